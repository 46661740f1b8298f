"""What blind guessing is worth, by format."""

import json
from functools import lru_cache

from interplay.tasks.reformulated.form import CHOICES, CLOZE, HIDDEN, TRUE_FALSE, Form, read
from interplay.tasks.reformulated.surface import TERSE
from interplay.tasks.row import Row

FAMILY = "reformulated"


def chance(row: Row) -> float:
    """The chance that a guess among all answers that the prompt leaves open is right: 1/4, 1/10, 1/2; of a cloze one over the
    answers that fit the mask; of an open question over residues 1/p, else 0."""
    return _of(row.family, row.graph)


@lru_cache(maxsize=1 << 16)
def _of(family: str, graph: str) -> float:
    if family == FAMILY:
        return guess(read(graph))
    modulus = _modulus(family, graph)
    return 1 / modulus if modulus else 0.0


def guess(form: Form) -> float:
    """`chance` of a form."""
    if form.format in CHOICES:
        return 1 / CHOICES[form.format]
    if form.format == TRUE_FALSE:
        return 0.5
    return _masked(form) if form.format == CLOZE else _of(form.family, form.graph)


def _modulus(family: str, graph: str) -> int | None:
    return json.loads(graph).get("modulus") if family == TERSE else None


def _masked(form: Form) -> float:
    modulus = _modulus(form.family, form.graph)
    if modulus:
        fitting = [value for value in range(modulus) if fits(str(value), form.mask)]
        return 1 / max(len(fitting), 1)
    ways = 1.0
    for shown, character in zip(form.mask, form.gold, strict=True):
        ways *= (10 if character.isdigit() else 26) if shown == HIDDEN else 1
    return 1 / ways


def fits(value: str, mask: str) -> bool:
    """Whether a value may be what a mask hides."""
    return len(value) == len(mask) and all(shown in (HIDDEN, c) for shown, c in zip(mask, value, strict=True))
