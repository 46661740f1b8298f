"""What letters stand for while a completion is read. A letter means what it was last bound to, so that it may be bound again."""

from collections.abc import Sequence
from hashlib import shake_128
from typing import NamedTuple

from interplay.tasks.op_dag.graph import Form
from interplay.tasks.op_dag.parse import Bracket, Expression, Operand
from interplay.tasks.op_dag_prose.graph import Node
from interplay.tasks.op_dag_prose.parse import Clause

NOTHING = -1
"""Stands for a letter that is bound to nothing, and for a name that is no node."""
OTHER = -1
"""The code of a letter that is bound to something that the gold does not make."""
PRIME = 2**61 - 1
_LARGEST = 10**15
"""Numbers beyond are taken for none: what is multiplied over and over has no end."""
_WEIGHTS = [int.from_bytes(shake_128(bytes([place])).digest(7)) for place in range(256)]


class Bound(NamedTuple):
    """What a letter stands for."""

    reach: frozenset[int]
    """The nodes that it comes down to; NOTHING is no node of the problem."""
    form: Form | None
    print: int
    """Fingerprint of what it is made of: the polynomial in the nodes, at fixed random numbers for these, modulo a large prime.
    Equal polynomials have equal ones, others practically never."""
    constants: tuple[int, ...]
    """The numbers in its making."""


class Said(NamedTuple):
    """What a clause says of its letter."""

    bound: Bound
    named: bool
    """Whether it names any letter."""
    value: Form | None
    """What the chain ends in, if that is a number or a linear form."""
    sound: bool
    """Everything in the chain that has no letters but the unknown's is equal, and the numbers put in are the letters' values."""
    follows: bool
    """The value, where there is one, is what the first expression comes to."""


def weight(place: int) -> int:
    """The number that stands for a node in fingerprints."""
    return _WEIGHTS[place % len(_WEIGHTS)]


UNBOUND = Bound(frozenset((NOTHING,)), None, 0, ())
UNKNOWN_BOUND = Bound(frozenset((0,)), (1, 0), weight(0), ())


def local(place: int, number: int) -> int:
    """The code of the so many-th intermediate result of a node."""
    return -2 - 64 * place - number


class Bounds(dict[int, Bound]):
    """Code -> what it stands for: a node's place, or `local`; made when it is first asked for."""

    def __init__(self, nodes: Sequence[Node], forms: list[Form]) -> None:
        self.nodes, self.forms = nodes, forms

    def __missing__(self, code: int) -> Bound:
        if code >= 0:
            found = Bound(frozenset((code,)), self.forms[code], weight(code), ())
        else:
            found = self._folded(*divmod(-2 - code, 64))
        self[code] = found
        return found

    def _folded(self, place: int, number: int) -> Bound:
        """The sum (or difference) of as many parents of a node as its so many-th intermediate result takes."""
        node = self.nodes[place]
        reads = node.parents[: number + (2 if len(node.parents) > 1 else 1)]
        signs = [-1 if node.minus and at else 1 for at in range(len(reads))]
        slope, rest = (
            sum([sign * self.forms[parent][part] for sign, parent in zip(signs, reads, strict=True)]) for part in (0, 1)
        )
        print_ = sum([sign * weight(parent) for sign, parent in zip(signs, reads, strict=True)])
        return Bound(frozenset(reads), (slope, rest), print_ % PRIME, ())


_NO_BOUNDS = Bounds((), [])


class Letters:
    """What letters stand for as far as a completion has been read."""

    __slots__ = ("bounds", "codes", "made", "unknown")

    def __init__(self) -> None:
        self.bounds = _NO_BOUNDS
        """Those of the problem, once a sentence is read that does not match."""
        self.codes: dict[str, int] = {}
        """Letter -> its code among `bounds`, or OTHER."""
        self.made: dict[str, Bound] = {}
        """Where the code is OTHER: what it is bound to."""
        self.unknown = ""
        """The unknown's letter; empty where there is none. In reverse mode it alone has code 0."""

    def __getitem__(self, letter: str) -> Bound:
        code = self.codes.get(letter)
        return UNBOUND if code is None else self.made[letter] if code == OTHER else self.bounds[code]

    def bind(self, letter: str, bound: Bound) -> None:
        """Bind a letter to anything."""
        self.codes[letter] = OTHER
        self.made[letter] = bound

    def name_unknown(self, letter: str) -> None:
        """The unknown has this letter from here on; one that it had goes on to stand for its node, and for no unknown."""
        if self.unknown != letter and self.codes.get(self.unknown) == 0:
            self.bind(self.unknown, UNKNOWN_BOUND)
        self.unknown = letter
        self.codes[letter] = 0


def said(clause: Clause, letters: Letters) -> Said:
    """What a clause says where letters are bound so."""
    sides, unknown = clause.sides, letters.unknown
    first, last = sides[0], sides[-1]
    plain = [side for side in sides if not side.letters or side.letters == unknown]
    sound, value = True, None
    if plain:
        form = plain[0].form
        sound = form is not None and all([side.form == form for side in plain])
        if plain[-1] is last and last.result:
            value = last.form
    names = first.letters
    for side in sides[1:]:
        if side.letters and side.letters != unknown:
            names += side.letters.replace(unknown, "") if unknown else side.letters
    bounds = {letter: letters[letter] for letter in names}
    derived, print_ = worth(first.part.expression, bounds)
    if sound and first.letters and None not in [bounds[letter].form for letter in first.letters]:
        sound = _put_in(clause, [bound.form for bound in map(bounds.__getitem__, first.part.letters) if bound.form])
    constants = [number for _, number in first.part.operands]
    for letter in first.part.letters:
        constants += bounds[letter].constants
    reach = frozenset().union(*[bound.reach for bound in bounds.values()]) if bounds else frozenset()
    found = Bound(reach, derived if value is None else value, print_, tuple(sorted(constants[:99])))
    return Said(found, bool(bounds), value, sound, value is None or value == derived)


def _put_in(clause: Clause, known: list[Form]) -> bool:
    """Whether the numbers put into the first expression are the values of its letters; yes where none are, or where these hang on
    the unknown, whose terms may be written in many ways."""
    first = clause.sides[0].part
    if any([slope for slope, _ in known]):
        return True
    for side in clause.sides[1:]:
        if not side.letters and len(side.part.operands) > 1:
            given = [abs(number) for _, number in known] + [abs(number) for _, number in first.operands]
            return sorted([abs(number) for _, number in side.part.operands]) == sorted(given)
    return True


def worth(expression: Expression, bounds: dict[str, Bound]) -> tuple[Form | None, int]:
    """The linear form of an expression, None where a letter has none or a product is not linear, and its fingerprint."""
    slope = rest = print_ = term_slope = term_rest = term_print = 0
    known = True
    for operator, operand in expression:
        form, number = _operand(operand, bounds)
        if form is None:
            known, form = False, (0, 0)
        if operator == "*":
            known = known and not (term_slope and form[0])
            term_slope, term_rest = term_slope * form[1] + form[0] * term_rest, term_rest * form[1]
            term_print = term_print * number % PRIME
        else:
            slope, rest, print_ = slope + term_slope, rest + term_rest, print_ + term_print
            term_slope, term_rest, term_print = (*form, number) if operator == "+" else (-form[0], -form[1], -number)
    form = (slope + term_slope, rest + term_rest)
    return form if known and abs(form[0]) + abs(form[1]) < _LARGEST else None, (print_ + term_print) % PRIME


def _operand(operand: Operand, bounds: dict[str, Bound]) -> tuple[Form | None, int]:
    if isinstance(operand, str):
        bound = bounds[operand]
        return bound.form, bound.print
    if isinstance(operand, Bracket):
        return worth(operand.inside, bounds)
    return operand, operand[1]
