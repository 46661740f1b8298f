"""Chains of facts and their verifier, and invented names: what the families of facts share; and the family taxonomy, a deep
hierarchy whose facts a model memorises, for recall by depth: each of its problems is a chain."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from interplay.core.random import Draw, stream, stream_key
from interplay.tasks import family, spec, verdict
from interplay.tasks.facts.spec import Taxonomy


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


# A taxonomy: the tree, its problems, their text and their verifier.


IS = "is a"
"""The relation from a class to its parent."""


class Problem(NamedTuple):
    """A question about an ancestor, or a fact to be completed."""

    mode: str
    """The level: statement or recall."""
    hops: tuple[Fact, ...]
    """From the class in the question up to the answer."""

    @property
    def op(self) -> int:
        """Levels between the two."""
        return len(self.hops)

    @property
    def answer(self) -> str:
        """The ancestor."""
        return self.hops[-1].object


def tree(task: Taxonomy) -> tuple[str, ...]:
    """Names of all classes, the root first, level by level: the parent of class i is class (i - 1) // branching."""
    return _tree(task.world, task.depth, task.branching)


@lru_cache(maxsize=32)
def _tree(world: int, depth: int, branching: int) -> tuple[str, ...]:
    shape = Taxonomy.model_construct(depth=depth, branching=branching)
    return invented_name(shape.classes(), "taxonomy", world)


@lru_cache(maxsize=32)
def _order(world: int, classes: int) -> tuple[int, ...]:
    """All classes but the root, in the order in which sets of statements take them."""
    return tuple(sorted(range(1, classes), key=lambda number: stream_key("taxonomy", "order", world, number)))


def generate(task: Taxonomy, seed: int, index: int, op: int) -> Problem:
    """The problem of the task at (seed, index) about an ancestor `op` levels up. Statements take fact `index` modulo the number
    of facts, for every seed. Raises UserError where the tree is not so deep."""
    family.check_op(task, op, "depth", "level")
    names = tree(task)
    if task.level == "statement":
        order = _order(task.world, len(names))
        here = order[index % len(order)]
    else:
        first = sum(task.branching**level for level in range(op))
        draw = stream("taxonomy", task.world, seed, index, op)
        here = first + draw() % (len(names) - first)
    hops = []
    for _ in range(op):
        above = (here - 1) // task.branching
        hops.append(Fact(names[here], IS, names[above]))
        here = above
    return Problem(task.level, tuple(hops))


def structure(problem: Problem) -> str:
    """16 hex digits: names count, since the question is about them. A statement shares no key with a question."""
    return f"{stream_key('taxonomy', problem.mode == 'statement', *(name for hop in problem.hops for name in hop)):016x}"


# Text, verifier and solver.
#
# A question has one link for each level, `What is the kind of the kind of Nomi?`, so that a depth outside training needs no new
# token; its solution climbs, `Nomi is a Bela. Bela is a Toru. \boxed{Toru}`.


ASKED = "?\n"
SENTENCE = re.compile(r"\s*(\w+) is a (\w+)\.")
STUB = re.compile(r"(\w+) is a ")
LINK = "the kind of "
QUESTION = re.compile(rf"What is ((?:{LINK})+)(\w+)\?\n")


def render(problem: Problem, task: Taxonomy) -> family.Rendered:
    """Prompt, gold solution, and answer."""
    start, answer = problem.hops[0].subject, problem.answer
    if problem.mode == "statement":
        return family.Rendered(f"{start} {IS} ", f"{answer}.", answer)
    steps = "".join(f"{hop.subject} {IS} {hop.object}. " for hop in problem.hops)
    return family.Rendered(f"What is {LINK * problem.op}{start}{ASKED}", f"{steps}{verdict.BOX}{answer}}}", answer)


def solve(prompt: str, task: Taxonomy) -> str:
    """The answer to a prompt, by the facts of the tree. Raises ValueError where it is no prompt of the task."""
    names = tree(task)
    above = {(name, IS): names[number // task.branching] for number, name in enumerate(names[1:])}
    if stub := STUB.fullmatch(prompt):
        return walk(stub[1], [IS], above)
    asked = QUESTION.fullmatch(prompt)
    if asked is None:
        raise ValueError(f"not a prompt of taxonomy: {prompt!r}")
    return walk(asked[2], [IS] * asked[1].count(LINK), above)


def _stated_facts(text: str) -> list[Fact] | None:
    return parse_facts(text, SENTENCE, lambda match: Fact(match[1], IS, match[2]))


def verify(problem: Problem, completion: str, options: spec.Verify) -> verdict.Verdict:
    """Judge any text as a solution (tasks.facts.chains.judge)."""
    if problem.mode == "statement":
        return judge_statement(problem.answer, completion)
    return judge(problem.hops, (), completion, _stated_facts, options)


def vocabulary(task: Taxonomy) -> list[str]:
    """The pieces of a tokenizer of words, the same for both levels. The stop is a separate token: positions may jump there."""
    return ["What is ", f" {IS} ", " ", ".", verdict.BOX, "}", LINK, ASKED, *tree(task)]


TAXONOMY = family.Generator(
    name="taxonomy",
    errors=ERRORS,
    generate=generate,
    render=render,
    solve=solve,
    loads=family.from_json(Problem),
    verify=verify,
    structure=structure,
    shared=lambda problem: problem.mode == "statement",  # facts to be memorised
    vocabulary=vocabulary,
    rates=family.Rates(6300, 35000, 18, 113),
)
