"""Judges a completion step by step against the gold graph (arXiv:2512.07783, section 2), with names of the completion's own
in scope."""

from bisect import bisect_left
from functools import lru_cache
from typing import NamedTuple

from interplay.tasks.op_dag.graph import Form, Problem
from interplay.tasks.op_dag.judge import (
    BAD_PARENTS,
    BAD_VALUE,
    EXTRA,
    NAMED,
    UNREADABLE,
    VALUED,
    Effect,
    Layout,
    agrees,
    judge,
    judge_scoped,
    layout,
    tally,
)
from interplay.tasks.op_dag.parse import Step, evaluate, parse, split
from interplay.tasks.op_dag.render import sentences
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

# Names of the completion's own. A name that is no node of the problem may stand for an intermediate result (`qa+b,dq+c` for
# `da+b+c`): what reads it reads what it reads. A use means the binding in force there, which is the last one before it (or,
# where a solution unfolds from the goal down, the first after it), so that a name may be bound again later.


_DEEPEST = 30
"""Intermediates of intermediates are followed so far; a longer chain counts as unbound."""


class Reach(NamedTuple):
    """What a definition comes down to."""

    names: frozenset[str]
    """Nodes of the problem that it reads, and names that are bound to nothing."""
    operators: frozenset[str]
    values: dict[str, Form]
    """Forms of the letters it mentions."""
    form: Form | None
    """Its own form."""
    through: frozenset[int]
    """The bindings it goes through."""


class Scope(NamedTuple):
    """The steps of a completion and where its own names are bound."""

    truth: Layout
    steps: list[Step | None]
    bindings: dict[str, list[int]]
    """Name -> the steps that bind it, in order."""
    reached: dict[int, Reach]
    """What each step that was followed comes down to."""


def scoped_effects(truth: Layout, steps: list[Step | None]) -> list[Effect]:
    """The effects of all steps, in order. A wrong step about an intermediate is charged to the nodes whose definitions go
    through it; an intermediate that none goes through is an extra node."""
    scope = Scope(truth, steps, _bindings(truth, steps), {})
    definitions = _definitions(scope)
    first = dict(reversed(definitions))
    users = _users(scope, definitions)
    effects: list[Effect] = []
    valued: set[str] = set()
    for at, step in enumerate(steps):
        if step is None:
            effects.append((truth.problem.necessary, UNREADABLE))
            continue
        own = not step.letters <= truth.places.keys()
        # A step without letters works out what the node's definition says, wherever that stands.
        source = at if own else None if step.letters else first.get(step.name)
        if step.name and step.name not in truth.places:
            effects += _intermediate(scope, at, step, users, valued)
        elif source is not None and step.name in first:
            effects.append(_through(scope, step, source))
        else:
            effects.append(judge(truth, step))
        if step.value is not None:
            valued.add(step.name)
    return effects


def _definitions(scope: Scope) -> list[tuple[str, int]]:
    """The necessary nodes that are defined through names of the completion's own, and the steps that do so, in order."""
    places, necessary = scope.truth.places, scope.truth.problem.necessary
    return [
        (step.name, at)
        for at, step in enumerate(scope.steps)
        if step and places.get(step.name, necessary) < necessary and not step.letters <= places.keys()
    ]


def _users(scope: Scope, definitions: list[tuple[str, int]]) -> dict[int, set[int]]:
    """Binding -> the necessary nodes whose definitions go through it."""
    users: dict[int, set[int]] = {}
    for name, at in definitions:
        for binding in _reach(scope, at).through:
            users.setdefault(binding, set()).add(scope.truth.places[name])
    return users


def _bindings(truth: Layout, steps: list[Step | None]) -> dict[str, list[int]]:
    """Where each name is bound: by the steps that define it, else by the first that gives it a number."""
    bindings: dict[str, list[int]] = {}
    numbers: dict[str, list[int]] = {}
    for at, step in enumerate(steps):
        if step is not None and step.name and step.name not in truth.places:
            if step.named:
                bindings.setdefault(step.name, []).append(at)
            elif step.value is not None:
                numbers.setdefault(step.name, [at])
    return numbers | bindings


def _in_force(scope: Scope, name: str, at: int) -> int | None:
    """The last binding of a name before `at`, else the first from there on, else None."""
    places = scope.bindings.get(name)
    if not places:
        return None
    return places[max(0, bisect_left(places, at) - 1)]


def _reach(scope: Scope, at: int, depth: int = 0) -> Reach:
    """What the step `at` comes down to, following intermediates."""
    if at in scope.reached:
        return scope.reached[at]
    step = scope.steps[at]
    assert step is not None
    # Entered before it is complete, so that a name bound through itself ends here, as one bound to nothing.
    scope.reached[at] = Reach(frozenset(step.name), frozenset(), {}, None, frozenset())
    names: set[str] = set()
    through: set[int] = set()
    operators = set(step.named.operators if step.named else ())
    values: dict[str, Form] = {}
    for letter in sorted(step.letters):
        place = scope.truth.places.get(letter)
        binding = _in_force(scope, letter, at) if place is None else None
        if place is not None:
            names.add(letter)
            if place < scope.truth.problem.necessary:
                values[letter] = scope.truth.forms[place]
        elif binding is None or depth == _DEEPEST:
            names.add(letter)
        else:
            below = _reach(scope, binding, depth + 1)
            names |= below.names
            operators |= below.operators
            through |= below.through | {binding}
            if below.form is not None:
                values[letter] = below.form
    form = evaluate(step.named.expression, values, scope.truth.problem.modulus) if step.named else step.value
    scope.reached[at] = Reach(frozenset(names), frozenset(operators), values, form, frozenset(through))
    return scope.reached[at]


def _through(scope: Scope, step: Step, source: int) -> Effect:
    """The effect of a step about a node that the step `source` defines through names of the completion's own."""
    reach, defining = _reach(scope, source), scope.steps[source]
    assert defining is not None
    return judge_scoped(scope.truth, step._replace(named=defining.named), reach.names, reach.operators, reach.values)


def _intermediate(scope: Scope, at: int, step: Step, users: dict[int, set[int]], valued: set[str]) -> list[Effect]:
    """Effects of a step about an intermediate: none where it is right."""
    binding = at if step.named else _in_force(scope, step.name, at)
    if binding not in users:
        used = any(other.name == step.name for place in users if (other := scope.steps[place]))
        return [] if used else [(len(scope.truth.problem.nodes) + ord(step.name), EXTRA)]
    reach, bound = _reach(scope, binding), scope.steps[binding]
    assert bound is not None
    worked = step._replace(named=bound.named)
    bits = 0
    if not step.sound or (step.value is not None and step.value != reach.form) or not agrees(scope.truth, worked, reach.values):
        bits |= BAD_VALUE
    if step.value is not None and not (reach.names & scope.truth.places.keys()) <= valued:
        bits |= BAD_PARENTS
    return [(place, bits) for place in sorted(users[binding])] if bits else []


# Judges a completion step by step against the gold graph (arXiv:2512.07783, section 2, made scope-aware and symbolic).
#
# A necessary node is right when some step states its value, its parents are named somewhere, and nothing said about it is
# wrong: - parents: the set of nodes that its definition names, in the unfolding or in the evaluation, equals the gold set.
# Intermediate names of the completion's own are followed (scope.py). A value whose operands are named nowhere is a dependency
# mismatch. - order: its first value comes after the first values of all its parents; otherwise, too, a dependency mismatch. -
# value: the number (in reverse mode the linear form) equals the gold one. The numbers put into the definition must be the
# parents' values and its constant, and everything in a chain of equals must be equal; with a modulus a value is a residue. A
# node said to be two things is wrong, since one of them is. An equation must hold at the unknown's true value; a wrong one is
# charged to the goal. - operator (an option): every expression uses the gold operator, and a difference names its operands in
# the gold order. Without the option the operator of a definition is not looked at, as published; but numbers put in must still
# give the value that is stated.


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
