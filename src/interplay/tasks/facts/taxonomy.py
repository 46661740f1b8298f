"""A deep hierarchy whose facts a model memorises, for recall by depth: the tree, its problems, their text and their verifier."""

import re
from functools import lru_cache
from typing import NamedTuple

from interplay.core.random import stream, stream_key
from interplay.tasks import family, spec, verdict
from interplay.tasks.facts.chains import ERRORS, Fact, invented_name, judge, judge_statement, parse_facts, walk
from interplay.tasks.facts.spec import Taxonomy

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
