"""A short way through sentences that say just what the gold says, whatever the letters: the letters of a sentence are replaced by
signs for what they are bound to, and the result is compared with the gold's. What does not match is judged by scope.py."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from interplay.tasks.op_dag.graph import REVERSE, Form
from interplay.tasks.op_dag_prose.graph import UNKNOWN, Problem, forms
from interplay.tasks.op_dag_prose.render import UNTOLD, equation, step
from interplay.tasks.op_dag_prose.scope import PRIME, UNKNOWN_BOUND, Bound, weight

_NODE = 0xE000
_LOCAL = 0xF000
"""Code points of private use: nodes; intermediate results of the sentence at hand, and after them the node that it is about."""
_MADE = 0xF0000
"""Intermediate results of earlier sentences: node * 64 + number."""


class Script(NamedTuple):
    """What the gold says, in signs."""

    places: dict[str, int]
    """Full name -> place, of the necessary nodes."""
    tails: list[str]
    """What the sentence of each necessary node says behind its letter."""
    equation: list[str]
    """The sentences that solve the equation, without stops."""


class Matched(NamedTuple):
    """How far a completion says just what the gold says."""

    sentences: int
    """So many, from the first."""
    places: set[int]
    """Nodes that they define."""
    signs: dict[int, str]
    """Letter (its code point) -> what it is bound to, as a sign."""
    unknown: str


@lru_cache(maxsize=1024)
def script(problem: Problem) -> Script:
    """The script of a problem."""
    values = forms(problem)
    signs = [chr(_NODE + place) for place in range(problem.necessary)]
    if problem.mode == REVERSE:
        signs[0] = UNKNOWN
    tails = []
    for place, node in enumerate(problem.nodes[: problem.necessary]):
        _, tail = step(node, signs, values, place, _locals(), problem.mode == REVERSE)
        tails.append(tail.replace("so ", "") if tail != UNTOLD else tail)
    goal = equation(signs[-1], values[-1], problem.values[-1]) if problem.mode == REVERSE else []
    lines = [line for text in goal for line in text.split(".") if line]
    return Script({node.name: place for place, node in enumerate(problem.nodes[: problem.necessary])}, tails, lines)


def _locals() -> Iterator[str]:
    return map(chr, range(_LOCAL, _LOCAL + 64))


def match(problem: Problem, texts: list[str]) -> Matched:
    """How far the sentences (without stops) say just what the gold says, in any order in which letters are bound before use."""
    gold = script(problem)
    signs: dict[int, str] = {ord(UNKNOWN): "?"} if problem.mode == REVERSE else {}
    places: set[int] = set()
    unknown = ""
    for number, text in enumerate(texts):
        head, mark, tail = text.strip().partition("; ")
        if not mark or head[:7] != "Define " or head[-5:-1] != " as ":
            if not (unknown and _solves(gold, text.strip(), signs)):
                return Matched(number, places, signs, unknown)
            continue
        letter, place = head[-1], gold.places.get(head[7:-5], -1)
        if place < 0 or not letter.isascii() or not letter.isalpha():
            return Matched(number, places, signs, unknown)
        if tail == UNTOLD and gold.tails[place] == UNTOLD and not unknown:
            unknown = letter
            signs |= {ord(letter): UNKNOWN}
        else:
            clauses = tail.split("; ")
            own = [ord(clause[0]) for clause in clauses[:-1] if clause] + [ord(letter)]
            here = signs | {code: chr(_LOCAL + at) for at, code in enumerate(own)}
            if len(set(own)) < len(clauses) or (unknown and ord(unknown) in own):
                return Matched(number, places, signs, unknown)
            if tail.replace("so ", "").translate(here) != gold.tails[place]:
                return Matched(number, places, signs, unknown)
            signs |= {code: chr(_MADE + place * 64 + at) for at, code in enumerate(own[:-1])}
            signs[ord(letter)] = chr(_NODE + place)
        places.add(place)
    return Matched(len(texts), places, signs, unknown)


def _solves(gold: Script, text: str, signs: dict[int, str]) -> bool:
    """Whether a sentence is one of those that solve the equation, the unknown being called as in the gold."""
    if signs.get(ord(UNKNOWN)) != UNKNOWN:
        return False
    first = "We know "
    if text.startswith(first) and len(text) > len(first):
        place = len(first)
        text = first + signs.get(ord(text[place]), "?") + text[place + 1 :]
    return text in gold.equation


def bound(problem: Problem, values: list[Form], sign: str) -> Bound | None:
    """What a sign stands for; None for the letter that the unknown would have."""
    code = ord(sign)
    if sign == UNKNOWN:
        return UNKNOWN_BOUND
    if code < _NODE:
        return None
    if code < _MADE:
        place = code - _NODE
        return Bound(frozenset((place,)), values[place], weight(place), ())
    place, number = divmod(code - _MADE, 64)
    node = problem.nodes[place]
    reads = node.parents[: number + (2 if len(node.parents) > 1 else 1)]
    times = [-1 if node.minus and at else 1 for at in range(len(reads))]
    form = tuple(sum(t * values[parent][part] for t, parent in zip(times, reads, strict=True)) for part in (0, 1))
    print_ = sum(t * weight(parent) for t, parent in zip(times, reads, strict=True))
    return Bound(frozenset(reads), (form[0], form[1]), print_ % PRIME, ())
