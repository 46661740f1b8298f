r"""Judges a completion by its final answer.

strict: the last `\boxed{}` holds the answer and nothing else. answer: that, or, where there is no box, the last number is right,
as most scorers of GSM8K have it. An answer given again and again counts for nothing."""

from interplay.schema.verify import Verify
from interplay.tasks.answer import BOX, MARK, dumped, extract
from interplay.tasks.qa.equal import equal, wordy
from interplay.tasks.qa.number import NUMBER, last, values
from interplay.tasks.qa.problem import Problem
from interplay.tasks.verdict import Verdict

REPEATS = 5
"""Equal numbers in a row at the end of a completion without a box that make it a dump."""


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Judge any text. Never raises on account of the text. Errors: truncated (no answer), dumped, answer (a wrong one), unboxed
    (right, but in no box)."""
    boxed = extract(completion) if BOX in completion else None
    said = boxed if boxed is not None else unboxed(completion, problem.answers[0])
    spread = dumped(completion) or (boxed is None and repeats(completion))
    right = not spread and equal(said, problem.answers)
    error = (
        "truncated" if not said and boxed is None
        else "dumped" if spread
        else "answer" if not right
        else "unboxed" if boxed is None
        else "none"
    )  # fmt: skip
    return Verdict(error == "none", right, float(right), error, said=said)


def unboxed(completion: str, gold: str) -> str:
    """The answer of a completion without a box: for words what follows the last `#`, else the last number, after that mark where
    it stands; empty where there is none."""
    tail = completion.rpartition(MARK)[2].strip()
    if wordy(gold):
        return tail.split("\n")[0] if MARK in completion else ""
    line = tail.split("\n")[0] if MARK in completion else ""
    return line if values(line) else last(completion)


def repeats(completion: str) -> bool:
    """Whether a completion ends in the same number over and over."""
    found = NUMBER.findall(completion)[-REPEATS:]
    return len(found) == REPEATS and len(set(found)) == 1
