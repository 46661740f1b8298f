"""What letters stand for while a completion is read. A letter means what it was last bound to, so that it may be bound again."""

from typing import NamedTuple

from interplay.tasks.op_dag.graph import Form
from interplay.tasks.op_dag.parse import Bracket, Expression, evaluate
from interplay.tasks.op_dag_prose.parse import Clause

Combination = dict[int, int]
"""Node -> how often it is counted; the constant stands under CONSTANT."""
CONSTANT = -1
NOTHING = -2
"""Stands for a letter that is bound to nothing."""


class Bound(NamedTuple):
    """What a letter stands for."""

    reach: frozenset[int]
    """The nodes that it comes down to; numbers below 0 are no nodes of the problem."""
    form: Form | None
    combination: Combination | None
    """What it is made of; None where that is not linear in the nodes."""
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


def said(clause: Clause, letters: dict[str, Bound], unknown: str) -> Said:
    """What a clause says where letters are bound so; `unknown` is the unknown's letter, empty where there is none."""
    first = clause.sides[0]
    plain = [side for side in clause.sides if not side.letters or side.letters == {unknown}]
    names = set(first.letters)
    for side in clause.sides[1:]:
        if side.letters:
            names |= side.letters - {unknown}
    at = {unknown: (1, 0)} if unknown else {}
    values = [evaluate(side.part.expression, at, None) for side in plain]
    last = clause.sides[-1]
    value = values[-1] if values and plain[-1] is last and last.result else None
    sound = None not in values and len(set(values)) < 2
    bounds = [letters.get(letter) for letter in first.part.letters]
    reach = [letters[name].reach if name in letters else frozenset((NOTHING,)) for name in names]
    known = {letter: bound.form for letter, bound in zip(first.part.letters, bounds, strict=True) if bound and bound.form}
    if sound and len(known) == len(first.letters):
        sound = _put_in(clause, known)
    derived = evaluate(first.part.expression, known, None)
    form = derived if value is None else value
    constants = [number for _, number in first.part.operands] + [number for b in bounds if b for number in b.constants]
    combination = None if None in bounds else combined(first.part.expression, letters)
    return Said(Bound(frozenset().union(*reach), form, combination, tuple(sorted(constants))), bool(names), value, sound, form == derived)


def _put_in(clause: Clause, known: dict[str, Form]) -> bool:
    """Whether the numbers put into the first expression are the values of its letters; yes where none are, or where these hang on
    the unknown, whose terms may be written in many ways."""
    first = clause.sides[0].part
    if not first.letters or any([form[0] for form in known.values()]):
        return True
    for side in clause.sides[1:]:
        if not side.letters and len(side.part.operands) > 1:
            given = [number for _, number in (*[known[letter] for letter in first.letters], *first.operands)]
            return sorted([abs(number) for _, number in side.part.operands]) == sorted(map(abs, given))
    return True


def combined(expression: Expression, letters: dict[str, Bound]) -> Combination | None:
    """The combination of nodes that an expression is; None where a product is not linear or a letter has none."""
    total: Combination = {}
    term: Combination = {}
    for operator, operand in expression:
        if isinstance(operand, str):
            found = letters[operand].combination if operand in letters else None
        elif isinstance(operand, Bracket):
            found = combined(operand.inside, letters)
        else:
            found = {CONSTANT: operand[1]}
        if found is None:
            return None
        if operator == "*":
            factor, other = (found, term) if found.keys() <= {CONSTANT} else (term, found)
            if not factor.keys() <= {CONSTANT}:
                return None
            term = {place: times * factor.get(CONSTANT, 0) for place, times in other.items()}
        else:
            _add(total, term)
            term = found if operator == "+" else {place: -times for place, times in found.items()}
    _add(total, term)
    return {place: times for place, times in total.items() if times}


def _add(total: Combination, term: Combination) -> None:
    for place, times in term.items():
        total[place] = total.get(place, 0) + times
