"""Judges a completion step by step against the gold graph (arXiv:2512.07783, section 2, made scope-aware and symbolic).

A necessary node is right when some step states its value, its parents are named somewhere, and nothing said about it is wrong:
- parents: the set of nodes that its definition names, in the unfolding or in the evaluation, equals the gold set. Intermediate
  names of the completion's own are followed (scope.py). A value whose operands are named nowhere is a dependency mismatch.
- order: its first value comes after the first values of all its parents; otherwise, too, a dependency mismatch.
- value: the number (in reverse mode the linear form) equals the gold one. The numbers put into the definition must be the
  parents' values and its constant, and everything in a chain of equals must be equal; with a modulus a value is a residue. A
  node said to be two things is wrong, since one of them is. An equation must hold at the unknown's true value; a wrong one is
  charged to the goal.
- operator (an option): every expression uses the gold operator, and a difference names its operands in the gold order. Without
  the option the operator of a definition is not looked at, as published; but numbers put in must still give the value that is
  stated.
"""

from functools import lru_cache
from typing import NamedTuple

from interplay.schema.verify import Verify
from interplay.tasks.op_dag.graph import Problem
from interplay.tasks.op_dag.judge import (
    BAD_PARENTS,
    EXTRA,
    NAMED,
    UNREADABLE,
    VALUED,
    Effect,
    judge,
    layout,
)
from interplay.tasks.op_dag.parse import parse, split
from interplay.tasks.op_dag.render import sentences
from interplay.tasks.op_dag.scope import scoped_effects
from interplay.tasks.op_dag.tally import tally
from interplay.tasks.verdict import Verdict


class Gold(NamedTuple):
    """What right solutions of a problem say; lists hold one entry per necessary node."""

    problem: Problem
    needs: list[int]
    """The parents, as bits."""
    expected: list[int]
    """Bits of a node that is right."""
    effects: dict[str, Effect]
    """Step text -> effect: at first the gold sentences, then whatever was judged, since the completions of a prompt are much
    alike."""


@lru_cache(maxsize=1024)
def gold(problem: Problem) -> Gold:
    """The gold of a problem, before any step was judged."""
    nodes = problem.nodes[: problem.necessary]
    texts = sentences(problem)
    effects: dict[str, Effect] = {}
    for place, node in enumerate(nodes):
        effects[texts.evaluations[place]] = (place, VALUED)
        effects[texts.definitions[place]] = (place, NAMED if node.parents else VALUED)
        effects[texts.whole[place]] = (place, NAMED | VALUED if node.parents else VALUED)
    for text in texts.equations:
        effects[text] = (problem.goal, 0)
    needs = [sum([1 << parent for parent in node.parents]) for node in nodes]
    return Gold(problem, needs, [VALUED | NAMED if node.parents else VALUED for node in nodes], effects)


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Judge any text as a solution of the problem, in either trace order. Never raises on account of the text."""
    truth = gold(problem)
    texts, answer = split(completion)
    necessary, needs = problem.necessary, truth.needs
    state = [0] * necessary
    valued = 0
    extras: set[int] = set()
    readable = True
    for place, bits in _effects(truth, texts):
        if place < necessary:
            if bits & VALUED:
                if needs[place] & ~valued:
                    bits |= BAD_PARENTS
                valued |= 1 << place
            state[place] |= bits
        elif bits & EXTRA:
            extras.add(place)
        else:
            readable = False
    return tally(state, truth.expected, options, readable, len(extras), answer, problem.answer)


def _effects(truth: Gold, texts: list[str]) -> list[Effect]:
    """The effects of the steps, in order; an empty text is no step."""
    known = truth.effects
    effects = [known[text] for text in texts if text in known]
    if len(effects) == len(texts):
        return effects
    plan, modulus = layout(truth.problem), truth.problem.modulus
    for text in filter(None, texts):
        if text not in known:
            step = parse(text, modulus)
            if step is None:
                known[text] = (truth.problem.necessary, UNREADABLE)
            elif step.letters.union(step.name) <= plan.places.keys():
                known[text] = judge(plan, step)
            else:
                return scoped_effects(plan, [parse(other, modulus) for other in texts if other])
    return [known[text] for text in texts if text]
