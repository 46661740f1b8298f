"""Rows of atomic questions for policies that later combine both sorts of facts."""

ASKED = ("Who is ", "What is ")


def context_of(prompt):
    """The sentences before the question; empty where there are none."""
    return prompt[: max(prompt.rfind(word) for word in ASKED)]


def behind_contexts(rows, every=1):
    """Each `every`-th question by heart behind the context of another row, whose facts it does not need."""
    contexts = [found for row in rows if (found := context_of(row["prompt"]))]
    made, place = [], 0
    for row in rows:
        if not context_of(row["prompt"]):
            place += 1
            if place % every == 0:
                row = row | {"prompt": contexts[place % len(contexts)] + row["prompt"]}
        made.append(row)
    return made
