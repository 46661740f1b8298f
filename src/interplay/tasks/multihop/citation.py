"""Citations of chunks (LongRLVR, arXiv:2603.02146): which documents a completion names as useful, and what that is worth.

F_beta(Z, G) = (1 + beta^2) P R / (beta^2 P + R) of the list Z against the useful set G. Precision divides by the length of the
raw list, so that naming a document twice costs; recall counts the set."""

import re
from collections.abc import Sequence

from interplay.tasks.answer import BOX
from interplay.tasks.multihop.problem import Problem
from interplay.tasks.multihop.render import CITE, CITED

BETA = 2.0
NUMBER = re.compile(r"\d+")
MOST_DIGITS, NO_CHUNK = 9, -1


def cited(completion: str) -> list[int] | None:
    """The numbers in the list of a completion, repeats included; NO_CHUNK for one that is longer than any chunk's. None where a
    tag is missing or there twice, or where list and answer do not stand in this order: such a completion is worth nothing."""
    if any(completion.count(mark) != 1 for mark in (CITE, CITED, BOX)):
        return None
    start, end = completion.index(CITE) + len(CITE), completion.index(CITED)
    if not start <= end < completion.index(BOX):
        return None
    return [_number(digits.lstrip("0")) for digits in NUMBER.findall(completion[start:end])]


def _number(digits: str) -> int:
    """A model writes digits without end, and Python's `int` refuses more than a few thousand."""
    return int(digits or "0") if len(digits) <= MOST_DIGITS else NO_CHUNK


def f_beta(said: Sequence[int], useful: Sequence[int], beta: float = BETA) -> float:
    """F_beta of a list against the useful documents; 0 where they share nothing."""
    hits = len(set(said) & set(useful))
    if not hits:
        return 0.0
    precision, recall = hits / len(said), hits / len(set(useful))
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def baseline(problem: Problem) -> float:
    """The score of a policy that cites every chunk; 0 in modes without citations."""
    return f_beta(range(len(problem.documents)), problem.useful) if problem.mode == "citation" else 0.0
