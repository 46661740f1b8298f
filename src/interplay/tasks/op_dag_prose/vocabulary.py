"""The pieces of prompts and solutions, for tokenizers of words and of characters."""

from interplay.schema.op_dag_prose import OpDagProse
from interplay.tasks.op_dag.render import LETTERS
from interplay.tasks.op_dag_prose.render import (
    ANSWER,
    ANSWER_END,
    EXISTS,
    HARD,
    QUESTION,
    QUESTION_END,
    SOLUTION_END,
    SOLVED,
    UNTOLD,
    rule,
)

_FRAME = (
    QUESTION, QUESTION_END, SOLUTION_END, ANSWER, ANSWER_END, HARD, UNTOLD, SOLVED, EXISTS, "The number of ",
    "The total number of ", "the number of ", "the total number of ", "total number of ", " equals ", " plus ", " times ",
    "the sum of ", "the difference between ", " and ", ", and ", ", ", " in ", ". ", "How many ", " does ", " have?",
    "What is ", "Define ", " as ", "; ", "so ", " = ", " + ", " - ", " * ", " / ", "We know ", ", so we have ",
    ": Simplifying the equation: ", "Move all terms to one side: ", "Isolate the term with ", "Divide both sides by ",
    "Solution: ", ": ",
)  # fmt: skip


def vocabulary(task: OpDagProse) -> list[str]:
    """The pieces of a tokenizer of words: the nouns and the phrases of the sentences; letters and digits stand alone, so that
    every number is spelt. Modes, counts and shares do not alter it, the themes do."""
    themes = [task.theme(name) for name in task.themes]
    nouns = [noun for theme in themes for group in (*theme.places, *theme.types, [theme.things]) for noun in group]
    return [*_FRAME, *dict.fromkeys(nouns), *dict.fromkeys(map(rule, themes))]


def alphabet(task: OpDagProse) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task))) | set("0123456789()-" + LETTERS)))
