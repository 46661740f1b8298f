"""Rows that show a text before or within a solution, for policies that are to read it."""

MARK = "\x1e"  # between the turns of a transcript


def behind_gold(rows):
    """Each question behind its own gold solution, as the teacher of the loss `distil` reads it."""
    return [row | {"prompt": row["solution"] + row["prompt"]} for row in rows]


def in_turns(rows, separator="?"):
    """Attempts that a separator divides (the step `units`) as turns, each with an end of its own, as the episode `retry` has them."""
    return [row | {"solution": row["solution"].replace(separator, f"{MARK}{separator}{MARK}")} for row in rows]
