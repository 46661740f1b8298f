"""Chains of facts and their verifier, and invented names: what the families of facts share."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from interplay.core.random import Draw, stream
from interplay.tasks import spec, verdict


class Fact(NamedTuple):
    """One value of one function: the `relation` of `subject` is `object`."""

    subject: str
    relation: str
    object: str


About = tuple[str, str]
"""(subject, relation)."""


ERRORS = ("truncated", "parse", "wrong_hop", "missing_hop", "order", "extra", "answer")
"""Error classes of `judge` and `judge_statement`."""


def judge(
    hops: Sequence[Fact], context: Sequence[Fact], completion: str, read: Callable[[str], list[Fact] | None], options: spec.Verify
) -> verdict.Verdict:
    """The verdict on a completion that should state the hops and box the answer; `read` gives the facts of a text, None where it
    holds anything else. Never raises on account of the text.

    Strict: every hop is stated, in the order of the chain (by its first statement), no stated fact contradicts a hop or the
    context, nothing before the last box is unreadable, and the answer equals the object of the last hop exactly. Facts that the
    question does not need are free unless `extra_nodes` penalises them. Score: the share of hops that are stated in order and
    never contradicted; a hop that is needed twice has to be stated once.

    Error: the first of `truncated` (no answer, or too many), `parse`, `wrong_hop` (a contradiction), `missing_hop`, `order`,
    `extra` (where penalised), `answer`. The verdict counts hops as nodes: contradicted ones as value mismatches, those out of
    order as dependency mismatches."""
    said = verdict.extract_answer(completion) if verdict.BOX in completion and not verdict.is_answer_dump(completion) else None
    read_facts = read(completion.rpartition(verdict.BOX)[0] if verdict.BOX in completion else completion)
    stated = read_facts or []
    truth = {fact[:2]: fact.object for fact in (*context, *hops)}
    wrong = {fact[:2] for fact in stated if truth.get(fact[:2], fact.object) != fact.object}
    needed = {hop[:2] for hop in hops}
    missing, late = _missing_and_late(hops, stated)
    failed = needed & (wrong | late | missing)
    extra = len({fact[:2] for fact in stated} - needed)
    right = said == hops[-1].object
    penalised = extra and options.extra_nodes == "penalised"
    wrong_process = read_facts is None or wrong or missing or late or penalised
    error = "none" if right and not wrong_process else verdict.first_error(
        truncated=said is None, parse=read_facts is None, wrong_hop=wrong, missing_hop=missing, order=late, extra=penalised,
        answer=not right,
    )  # fmt: skip
    return verdict.Verdict(
        strict=error == "none",
        answer=right,
        score=1 - len(failed) / len(needed),
        error=error,
        value_mismatches=len(wrong & needed),
        dependency_mismatches=len(late),
        missing=len(missing - wrong),
        extra=extra,
        nodes=len(needed),
        said=said or "",
    )


def judge_statement(gold: str, completion: str) -> verdict.Verdict:
    """The verdict on the completion of a fact. Strict: the fact's object, and a stop. Error: `truncated` (no stop), `answer`,
    `parse` (text after the stop)."""
    said, stop, rest = completion.partition(".")
    right = said == gold and bool(stop)
    error = "truncated" if not stop else "answer" if not right else "parse" if rest.strip() else "none"
    return verdict.Verdict(error == "none", right, float(right), error, value_mismatches=int(bool(stop) and not right), said=said)


def parse_facts(text: str, pattern: re.Pattern[str], fact: Callable[[re.Match[str]], Fact]) -> list[Fact] | None:
    """The facts that a text states in sentences of a pattern, in order; None where it has anything else."""
    found, place = [], 0
    while match := pattern.match(text, place):
        found.append(fact(match))
        place = match.end()
    return None if text[place:].strip() else found


def _missing_and_late(hops: Sequence[Fact], stated: Sequence[Fact]) -> tuple[set[About], set[About]]:
    """The hops that are never stated, and those whose first statement precedes that of an earlier hop."""
    first: dict[Fact, int] = {}
    for place, fact in enumerate(stated):
        first.setdefault(fact, place)
    missing, late, reached = set(), set(), -1
    for hop in dict.fromkeys(hops):
        if hop not in first:
            missing.add(hop[:2])
        elif first[hop] < reached:
            late.add(hop[:2])
        else:
            reached = first[hop]
    return missing, late


def walk(start: str, path: Sequence[str], *known: Mapping[About, str]) -> str:
    """The end of a path, each step by the first table that has it. Raises ValueError where none has."""
    here = start
    for relation in path:
        found = [table[here, relation] for table in known if (here, relation) in table]
        if not found:
            raise ValueError(f"no fact about {relation!r} of {here}")
        here = found[0]
    return here


# Invented names: pronounceable, one token each with a tokenizer of words.


FIRST = "BDFGHKLMNPRSTVZ"
MIDDLE = "bdfgklmnprstvz"
VOWELS = "aeiou"
PAIRS = len(FIRST) * len(MIDDLE) * len(VOWELS) ** 2


def invented_name(count: int, *label: int | str) -> tuple[str, ...]:
    """`count` different names such as Bela or Tomiru, in random order, the same for the same label on every machine. They have
    two syllables while a third of such names suffices, else three."""
    draw = stream("names", *label)
    syllables = 2 if count <= PAIRS // 3 else 3
    found: dict[str, None] = {}
    while len(found) < count:
        found[_name(draw, syllables)] = None
    return tuple(found)


def _name(draw: Draw, syllables: int) -> str:
    starts = [FIRST, *[MIDDLE] * (syllables - 1)]
    return "".join(start[draw() % len(start)] + VOWELS[draw() % len(VOWELS)] for start in starts)
