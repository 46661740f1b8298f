"""Chains of facts, and what a completion is worth that should state one and box its end: what bios and taxonomy share."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from interplay.tasks.op_dag.graph import Draw, stream
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, Verdict, extract_answer, is_answer_dump


class Fact(NamedTuple):
    """One value of one function: the `relation` of `subject` is `object`."""

    subject: str
    relation: str
    object: str


About = tuple[str, str]
"""(subject, relation): what a fact is about."""


def judge(
    hops: Sequence[Fact], context: Sequence[Fact], completion: str, read: Callable[[str], list[Fact] | None], options: Verify
) -> Verdict:
    """A completion that should state the hops and box the answer; `read` gives the facts of a text, None where it holds anything
    else. Never raises on account of the text.

    Strict: every hop is stated, in the order of the chain (by its first statement), nothing that is stated contradicts a hop
    or the context, nothing before the last box is unreadable, and the answer is the object of the last hop, letter for
    letter. Facts that the question does not need are free unless `extra_nodes` penalises them. Score: the share of hops that are
    stated in place and never contradicted. One that is needed twice is stated once at least.

    Error: the first of `truncated` (no answer, or too many), `parse`, `wrong_hop` (a contradiction), `missing_hop`, `order`,
    `extra` (where penalised), `answer`. The verdict counts hops as nodes: contradicted ones as value mismatches, those out of
    order as dependency mismatches."""
    said = extract_answer(completion) if BOX in completion and not is_answer_dump(completion) else None
    stated = read(completion.rpartition(BOX)[0] if BOX in completion else completion)
    told = stated or []
    truth = {fact[:2]: fact.object for fact in (*context, *hops)}
    wrong = {fact[:2] for fact in told if truth.get(fact[:2], fact.object) != fact.object}
    needed = {hop[:2] for hop in hops}
    missing, late = _gaps(hops, told)
    spoilt = needed & (wrong | late | missing)
    extra = len({fact[:2] for fact in told} - needed)
    right = said == hops[-1].object
    error = (
        "truncated" if said is None
        else "parse" if stated is None
        else "wrong_hop" if wrong
        else "missing_hop" if missing
        else "order" if late
        else "extra" if extra and options.extra_nodes == "penalised"
        else "answer" if not right
        else "none"
    )  # fmt: skip
    contradicted = len(wrong & needed)
    return Verdict(
        strict=error == "none",
        answer=right,
        score=1 - len(spoilt) / len(needed),
        error=error,
        value_mismatches=contradicted,
        dependency_mismatches=len(late),
        missing=len(missing - wrong),
        extra=extra,
        nodes=len(needed),
        said=said or "",
    )


def judge_statement(gold: str, completion: str) -> Verdict:
    """Strict: the completion is the object that ends the fact, and a stop. Error: `truncated` (no stop), `answer`, `parse` (more
    than that)."""
    said, stop, rest = completion.partition(".")
    right = said == gold and bool(stop)
    error = "truncated" if not stop else "answer" if not right else "parse" if rest.strip() else "none"
    return Verdict(error == "none", right, float(right), error, value_mismatches=int(bool(stop) and not right), said=said)


def _gaps(hops: Sequence[Fact], told: Sequence[Fact]) -> tuple[set[About], set[About]]:
    """The hops that are never stated, and those whose first statement stands before that of an earlier hop."""
    first: dict[Fact, int] = {}
    for place, fact in enumerate(told):
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
    """Where a path leads, each step in the first of the tables that has it. Raises ValueError where none does."""
    here = start
    for relation in path:
        found = [table[here, relation] for table in known if (here, relation) in table]
        if not found:
            raise ValueError(f"nothing says what the {relation} of {here} is")
        here = found[0]
    return here


# Names that nobody bears: pronounceable, one token each with a tokenizer of words.


FIRST = "BDFGHKLMNPRSTVZ"
MIDDLE = "bdfgklmnprstvz"
VOWELS = "aeiou"
PAIRS = len(FIRST) * len(MIDDLE) * len(VOWELS) ** 2


def invented_name(count: int, *label: int | str) -> tuple[str, ...]:
    """`count` different names such as Bela or Tomiru, the same for the same label on every machine, in random order. Of two
    syllables while a third of these suffice, else of three."""
    draw = stream("names", *label)
    syllables = 2 if count <= PAIRS // 3 else 3
    found: dict[str, None] = {}
    while len(found) < count:
        found[_name(draw, syllables)] = None
    return tuple(found)


def _name(draw: Draw, syllables: int) -> str:
    starts = [FIRST, *[MIDDLE] * (syllables - 1)]
    return "".join(start[draw() % len(start)] + VOWELS[draw() % len(VOWELS)] for start in starts)
