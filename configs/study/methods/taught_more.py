"""Rows that show an attempt before a question that is repeated, as the continuation `critique` does."""


def after_attempt(rows, separator="?"):
    """Of rows of two attempts (the step `units`): the question, the first one and the question again, and the second one."""
    made = []
    for row in rows:
        first, found, second = row["solution"].partition(separator)
        made += [row | {"prompt": row["prompt"] + first + row["prompt"], "solution": second}] if found else []
    return made
