"""A short way through sentences that say just what the gold says, whatever the letters: one comparison of text and a few of
letters, in place of parsing. What it does to a reading is what the long way (verify.py) would; what does not match goes that way.

The first letter of each clause is the sentence's own and stands at a fixed place, as do the letters that it reads, so that the
letters are picked out by place and put into the gold's text, which then must be the sentence."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

from interplay.tasks.op_dag.graph import REVERSE, Form
from interplay.tasks.op_dag.judge import BAD_PARENTS, NAMED, VALUED
from interplay.tasks.op_dag.render import LETTERS
from interplay.tasks.op_dag_prose.graph import UNKNOWN, Node, Problem, forms
from interplay.tasks.op_dag_prose.render import UNTOLD, equation, step
from interplay.tasks.op_dag_prose.scope import Letters, local

_READ, _OWN = 0xE000, 0xF000
"""Code points of private use, in place of letters: what a node reads, by rank; own letters of its sentence, its own the last."""
_SLOT = re.compile(f"([{chr(_READ)}-{chr(_OWN + 255)}{UNKNOWN}])")
_GOAL = chr(_READ)
_ALL = frozenset(LETTERS)
_KNOW = "We know "


class Shape(NamedTuple):
    """What the gold says of a node behind `Define <name> as <letter>; `, whatever the names."""

    length: int
    text: str
    """With %s for letters."""
    letters: Any
    """Picks the letters out of a text of that length: a tuple, or one letter where there is but one."""
    reads: tuple[tuple[int, int], ...]
    """Which of these (the first time) stands for which of the nodes that the line reads."""
    twins: tuple[tuple[int, int], ...]
    """Which of these are the same letter again."""
    first: Any
    """Picks each different one out of these."""
    different: int
    own: Any
    """Picks out those that it binds, the node's last."""
    bound: int
    """How many these are."""


class Line(NamedTuple):
    """What the gold says of one node."""

    shape: Shape
    place: int
    bits: int
    """Of the node (op_dag.judge), once it is said."""
    reads: tuple[int, ...]
    """Places of the parents, and last of the unknown."""
    codes: tuple[int, ...]
    """What its own letters are bound to (scope.Letters)."""


class Script(NamedTuple):
    """What the gold says."""

    lines: dict[str, Line | None]
    """`Define <name> as ` -> what comes behind the letter; None for the unknown."""
    equation: frozenset[str]
    """The sentences that solve the equation, without stops."""
    goal: int
    expected: list[int]
    """Bits of each necessary node that is right."""


@lru_cache(maxsize=1024)
def script(problem: Problem) -> Script:
    """The script of a problem."""
    values, reverse = forms(problem), problem.mode == REVERSE
    nodes = problem.nodes[: problem.necessary]
    expected = [VALUED | NAMED if node.parents else VALUED for node in nodes]
    lines = {
        f"Define {node.name} as ": _line(place, node, values, bits, reverse)
        for place, (node, bits) in enumerate(zip(nodes, expected, strict=True))
    }
    solved = equation(_GOAL, values[-1], problem.values[-1]) if reverse else []
    sentences = frozenset([line for text in solved for line in text.split(".") if line])
    return Script(lines, sentences, problem.goal, expected)


def _line(place: int, node: Node, values: list[Form], bits: int, reverse: bool) -> Line | None:
    signs = {parent: chr(_READ + rank) for rank, parent in enumerate(node.parents)}
    if reverse:
        signs[0] = UNKNOWN
    tail = step(node, signs, values, place, map(chr, range(_OWN, _OWN + 64)), reverse)[1]
    if tail == UNTOLD:
        return None
    shape = _shape(tail)
    codes = (*[local(place, number) for number in range(shape.bound - 1)], place)
    return Line(shape, place, bits, (*node.parents, 0), codes)


@lru_cache(maxsize=1 << 14)
def _shape(tail: str) -> Shape:
    """The shape of what the gold says, in signs."""
    pieces = _SLOT.split(tail)
    signs = [-1 if sign == UNKNOWN else ord(sign) - _READ for sign in pieces[1::2]]
    first: dict[int, int] = {}
    for at, sign in enumerate(signs):
        first.setdefault(sign, at)
    own = sorted([sign for sign in first if sign >= _OWN - _READ])
    starts = accumulate(map(len, pieces))
    return Shape(
        length=len(tail),
        text="%s".join(pieces[::2]),
        letters=itemgetter(*list(starts)[:-1:2]),
        reads=tuple([(at, sign) for sign, at in first.items() if sign < _OWN - _READ]),
        twins=tuple([(first[sign], at) for at, sign in enumerate(signs) if first[sign] != at]),
        first=itemgetter(*first.values()),
        different=len(first),
        own=itemgetter(*[first[sign] for sign in own]),
        bound=len(own),
    )


def match(gold: Script, letters: Letters, state: list[int], text: str) -> bool:
    """Whether a sentence (without blanks around it and without a stop) says just what the gold says. If so its letters are bound
    and the bits of its node are put into `state`; else nothing is changed."""
    head, _, tail = text.partition("; ")
    if head[:-1] not in gold.lines:
        return _solves(gold, letters, text)
    line = gold.lines[head[:-1]]
    if line is None:
        return _untold(letters, state, head[-1], tail)
    shape = line.shape
    if len(tail) != shape.length:
        return False
    found = shape.letters(tail)
    own = shape.own(found)
    if shape.text % found != tail or own[-1] != head[-1] or not _fit(line, letters, found, own):
        return False
    bits = line.bits
    for parent in line.reads[:-1]:
        if not state[parent] & VALUED:
            bits |= BAD_PARENTS
    state[line.place] |= bits
    letters.codes.update(zip(own, line.codes, strict=True))
    return True


def _fit(line: Line, letters: Letters, found: Sequence[str], own: Sequence[str]) -> bool:
    """Whether the letters of a sentence stand for what they should, and those of its own are letters and new to it."""
    shape, codes = line.shape, letters.codes
    for at, rank in shape.reads:
        if codes.get(found[at]) != line.reads[rank]:
            return False
    for at, again in shape.twins:
        if found[at] != found[again]:
            return False
    if len(set(shape.first(found))) < shape.different or not _ALL.issuperset(own):
        return False
    return not letters.unknown or letters.unknown not in own


def _untold(letters: Letters, state: list[int], letter: str, tail: str) -> bool:
    """Name the unknown, if it has no name yet."""
    if tail != UNTOLD or letters.unknown or letter not in _ALL:
        return False
    letters.name_unknown(letter)
    state[0] |= VALUED
    return True


def _solves(gold: Script, letters: Letters, text: str) -> bool:
    """Whether a sentence is one of those that solve the equation, the unknown being called as in the gold."""
    if not gold.equation or letters.unknown != UNKNOWN or letters.codes.get(UNKNOWN) != 0:
        return False
    spot = len(_KNOW)
    if text.startswith(_KNOW) and len(text) > spot:
        sign = _GOAL if letters.codes.get(text[spot]) == gold.goal else "?"
        text = f"{_KNOW}{sign}{text[spot + 1 :]}"
    return text in gold.equation
