"""Reading a completion: steps, and within a step the name and the chain of expressions that are said to be equal.

Model text is taken apart by regular expressions and never evaluated as code; what does not fit the grammar is None, whatever
it holds. Parsed steps are cached by their text, since the same few thousand steps come again and again.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from interplay.tasks.op_dag.graph import Form
from interplay.tasks.op_dag.render import ANSWER, EQUALS, LETTERS, SECTION, STEP, UNKNOWN


class Bracket(NamedTuple):
    """What stands in brackets, as one operand. Brackets hold no brackets."""

    inside: "tuple[tuple[str, Form | str], ...]"


Operand = Form | str | Bracket
"""A number or linear form, a letter, or a bracket."""

Expression = tuple[tuple[str, Operand], ...] | tuple[tuple[str, Form | str], ...]
"""Signed operands: ("+", x) and ("-", x) begin a term, ("*", x) goes on with it."""

_LONGEST = 100
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_FACTOR = rf"(?:{_NUMBER})?{UNKNOWN}"
_ATOM = rf"[A-Za-z]|{_FACTOR}|{_NUMBER}"
_FLAT = rf"-?(?:{_ATOM})(?:[-+*](?:{_ATOM}))*"
_TERM = re.compile(rf"([-+*]?)(?:\(({_FLAT})\)|({_ATOM}))")
_WHOLE = re.compile(rf"-?(?:{_ATOM}|\({_FLAT}\))(?:[-+*](?:{_ATOM}|\({_FLAT}\)))*")
_RESULT = re.compile(rf"-?{_NUMBER}|-?{_FACTOR}(?:[-+]{_NUMBER})?|-?{_NUMBER}[-+]{_FACTOR}")
_DIGITS = re.compile(r"[0-9]+")


class Part(NamedTuple):
    """One expression of a chain."""

    expression: Expression
    letters: tuple[str, ...]
    """Letters in it, in order, repeats included; empty where it is made of numbers."""
    operands: tuple[Form, ...]
    """Its operands that are numbers, sorted; a bracket of numbers is one."""
    operators: frozenset[str]
    form: Form | None
    """What it comes to; None where it has letters or is not linear."""
    result: bool
    """Whether it is written as a number or a linear form."""
    residue: bool
    """Whether all its numbers are residues; always without a modulus."""


class Step(NamedTuple):
    """What one step says."""

    name: str
    """The letter it is about; empty for an equation, as reverse solutions end in."""
    named: Part | None
    """The first expression that names others: the definition."""
    letters: frozenset[str]
    """All letters that its expressions name."""
    worked: Part | None
    """The first expression of numbers, other than the value, that has two operands or more: the definition with values put in."""
    value: Form | None
    """What the chain ends in, if that is a number or a linear form."""
    numbers: tuple[Form | None, ...]
    """The forms of all expressions without letters."""
    sound: bool
    """All expressions of numbers in the chain are equal, and with a modulus the value is written as a residue."""


def split(completion: str) -> tuple[list[str], str | None]:
    """The texts of the steps, and what stands after the first answer mark, None if there is no mark."""
    body, mark, answer = completion.partition(ANSWER)
    return body.replace(SECTION, STEP).split(STEP), answer.strip() if mark else None


def parse(text: str, modulus: int | None) -> Step | None:
    """The step that a text states, or None if it is none."""
    return parse_cached(text, modulus) if 0 < len(text) <= _LONGEST else None


@lru_cache(maxsize=1 << 15)
def parse_cached(text: str, modulus: int | None) -> Step | None:
    """`parse` for a text that is neither empty nor overlong."""
    name, chain = (text[0], text[1:].removeprefix(EQUALS)) if text[0] in LETTERS else ("", text)
    parts: list[Part] = []
    for piece in chain.split(EQUALS):
        part = part_cached(piece, modulus)
        if part is None:
            return None
        parts.append(part)
    last = parts[-1]
    named = [part for part in parts if part.letters]
    numbers = [part for part in parts if not part.letters]
    worked = [part for part in numbers if len(part.operands) > 1 and not (part is last and last.result)]
    forms = tuple([part.form for part in numbers])
    return Step(
        name=name,
        named=named[0] if named else None,
        letters=frozenset([letter for part in named for letter in part.letters]),
        worked=worked[0] if worked else None,
        value=last.form if last.result else None,
        numbers=forms,
        sound=None not in forms and len(set(forms)) < 2 and (last.residue or not last.result),
    )


@lru_cache(maxsize=1 << 15)
def part_cached(text: str, modulus: int | None) -> Part | None:
    """The expression that a text is, or None if it is none."""
    if not _WHOLE.fullmatch(text):
        return None
    expression = tuple([(sign or "+", _operand(bracket, atom)) for sign, bracket, atom in _TERM.findall(text)])
    operands = [form for _, operand in expression if (form := operand_form(operand, {}, modulus)) is not None]
    signs = {sign for sign, _ in expression[1:]} | ({"-"} if text[0] == "-" else set())
    return Part(
        expression=expression,
        letters=tuple([character for character in text if character in LETTERS]),
        operands=tuple(sorted([reduce(form, modulus) for form in operands])),
        operators=frozenset(signs),
        form=evaluate(expression, {}, modulus),
        result=_RESULT.fullmatch(text) is not None,
        residue=not modulus or ("-" not in text and all(int(digits) < modulus for digits in _DIGITS.findall(text))),
    )


def _operand(bracket: str, atom: str) -> Operand:
    if bracket:
        return Bracket(tuple([(sign or "+", _atom(inner)) for sign, _, inner in _TERM.findall(bracket)]))
    return _atom(atom)


def _atom(text: str) -> Form | str:
    if text.isalpha():
        return text
    if text.endswith(UNKNOWN):
        return (int(text[:-1] or 1), 0)
    return (0, int(text))


def evaluate(expression: Expression, values: dict[str, Form], modulus: int | None) -> Form | None:
    """The linear form of an expression; None where a letter has no value or a product is not linear."""
    total: Form = (0, 0)
    term: Form = (0, 0)
    for operator, operand in expression:
        form = operand_form(operand, values, modulus)
        if form is None:
            return None
        if operator == "*":
            if term[0] and form[0]:
                return None
            term = (term[0] * form[1] + form[0] * term[1], term[1] * form[1])
        else:
            total = (total[0] + term[0], total[1] + term[1])
            term = form if operator == "+" else (-form[0], -form[1])
    return reduce((total[0] + term[0], total[1] + term[1]), modulus)


def operand_form(operand: Operand, values: dict[str, Form], modulus: int | None) -> Form | None:
    """The linear form of a form, a letter or a bracket; None where it has none."""
    if isinstance(operand, str):
        return values.get(operand)
    if isinstance(operand, Bracket):
        return evaluate(operand.inside, values, modulus)
    return operand


def reduce(form: Form, modulus: int | None) -> Form:
    """The form with residues for coefficients."""
    return (form[0] % modulus, form[1] % modulus) if modulus else form
