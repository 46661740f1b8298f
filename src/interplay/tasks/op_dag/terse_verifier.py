"""The verifier of the terse surface: judges a completion step by step against the gold graph (arXiv:2512.07783, section 2), with
intermediate names of the completion in scope."""

from bisect import bisect_left
from typing import NamedTuple

from interplay.tasks import spec, verdict
from interplay.tasks.op_dag import dag, terse
from interplay.tasks.op_dag.dag import BITS, REVERSE, Form, Problem
from interplay.tasks.op_dag.terse import ANSWER, SECTION, STEP, Step, evaluate, gold_sentences, parse_step, reduce_form

VALUED, NAMED, BAD_VALUE, BAD_PARENTS, BAD_OPERATOR, EXTRA, UNREADABLE = BITS

# One step against the gold graph: its node, and what of it is wrong.


Effect = tuple[int, int]
"""The place of a step's node, and its bits. Places from `necessary` on are not in the gold graph."""


class Gold(NamedTuple):
    """The gold of a problem; lists have one entry per necessary node."""

    problem: Problem
    places: dict[str, int]
    """Name -> place, of all nodes."""
    forms: list[Form]
    """The linear forms."""
    needs: list[int]
    """The parents, as bits."""
    expected: list[int]
    """Bits of each node that is right."""
    effects: dict[str, Effect]
    """Step text -> effect: initially of the gold sentences, then also of judged steps, since completions of a prompt share
    many."""


@dag.keep_by_identity
def gold(problem: Problem) -> Gold:
    """The gold of a problem."""
    definitions, evaluations, whole, equations, forms = gold_sentences(problem, problem.necessary)
    effects: dict[str, Effect] = {}
    needs, expected = [], []
    for place, definition in enumerate(definitions):
        parents = problem.nodes[place].parents
        whole_bits = NAMED | VALUED if parents else VALUED
        effects[evaluations[place]] = place, VALUED
        effects[definition], effects[whole[place]] = (place, NAMED if parents else VALUED), (place, whole_bits)
        needs.append(sum(1 << parent for parent in parents))
        expected.append(whole_bits)
    for number, text in enumerate(equations):
        effects[text] = problem.goal, 0 if number else dag.STATED
        expected[problem.goal] |= dag.STATED
    places = {node[0]: place for place, node in enumerate(problem.nodes)}
    return Gold(problem, places, forms, needs, expected, effects)


def judge_step(truth: Gold, step: Step) -> Effect:
    """The effect of a step that has names of nodes only."""
    if not step.name:
        return _equation_effect(truth, step)
    place = truth.places[step.name]
    if place >= truth.problem.necessary:
        return place, EXTRA
    node, named, worked = truth.problem.nodes[place], step.named, step.worked
    letters = tuple([truth.problem.nodes[parent].name for parent in node.parents])
    constant: tuple[Form, ...] = () if node.constant is None else ((0, node.constant),)
    bits = _value_bits(truth, place, step)
    if named:
        bits |= NAMED
        if step.letters != set(letters):
            bits |= BAD_PARENTS
        elif named.operands != constant or len(named.letters) != len(letters):
            bits |= BAD_VALUE
        if named.operators != set(node.operator) or (node.operator == "-" and named.letters != letters):
            bits |= BAD_OPERATOR
    bits |= _unworked(node, step, bits)
    if worked:
        if worked.operands != tuple(sorted([truth.forms[parent] for parent in node.parents] + list(constant))):
            bits |= BAD_VALUE
        if worked.operators != set(node.operator):
            bits |= BAD_OPERATOR
    return place, bits


def _unworked(node: dag.Node, step: Step, bits: int) -> int:
    """The bit of a value without the numbers that it is worked out from; a form of two terms may be both (`b_+3=_+3`)."""
    shown = step.worked or (len(step.numbers) > 1 and step.value and all(step.value))
    return dag.UNWORKED if bits & VALUED and node.operator and not shown else 0


def values_agree(truth: Gold, step: Step, values: dict[str, Form]) -> bool:
    """Whether the substituted numbers are the values of the letters and the constants of the definition; True without any."""
    if not step.worked or not step.named:
        return True
    if any(letter not in values for letter in step.named.letters):
        return False
    modulus = truth.problem.modulus
    expected = [reduce_form(values[letter], modulus) for letter in step.named.letters] + list(step.named.operands)
    return step.worked.operands == tuple(sorted(expected))


def _value_bits(truth: Gold, place: int, step: Step) -> int:
    if step.value is None:
        return 0 if step.sound else BAD_VALUE
    return VALUED if step.sound and step.value == truth.forms[place] else VALUED | BAD_VALUE


def _equation_effect(truth: Gold, step: Step) -> Effect:
    """The effect of a step without a name, which must hold at the unknown's true value; a wrong one counts against the goal's
    value. One of them must be the goal's form and the value that is given for it."""
    problem = truth.problem
    if problem.mode != REVERSE or step.letters or len(step.numbers) < 2 or None in step.numbers:
        return problem.necessary, UNREADABLE
    sides = {reduce_form((0, a * problem.answer + b), problem.modulus) for a, b in filter(None, step.numbers)}
    if len(sides) > 1:
        return problem.goal, BAD_VALUE
    return problem.goal, dag.STATED if {truth.forms[problem.goal], (0, problem.values[-1])} <= set(step.numbers) else 0


# Intermediate names. A name that is no node of the problem may be an intermediate result (`qa+b,dq+c` for `da+b+c`): a definition
# that reads it reads its operands. A use refers to the last binding before it (or, where a solution unfolds from the goal down,
# the first after it), so that a name may be rebound later.


_DEEPEST = 30
"""The longest chain of intermediate names that is followed; a longer one counts as unbound."""


class Reach(NamedTuple):
    """A definition with its intermediate names resolved."""

    names: frozenset[str]
    """Nodes of the problem that it reads, and unbound names."""
    operators: frozenset[str]
    values: dict[str, Form]
    """Forms of its letters."""
    form: Form | None
    """Its value."""
    through: frozenset[int]
    """The bindings of its intermediate names."""


class Scope(NamedTuple):
    """The steps of a completion and the bindings of its intermediate names."""

    truth: Gold
    steps: list[Step | None]
    bindings: dict[str, list[int]]
    """Name -> the steps that bind it, in order."""
    reached: dict[int, Reach]
    """Step -> its resolved definition."""


def scoped_effects(truth: Gold, steps: list[Step | None]) -> list[Effect]:
    """The effects of all steps, in order. A wrong step about an intermediate name counts against the nodes whose definitions read
    it; an intermediate name that no definition reads is an extra node."""
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
        # A step without letters evaluates the node's definition, which may be any step.
        source = at if own else None if step.letters else first.get(step.name)
        if step.name and step.name not in truth.places:
            effects += _intermediate(scope, at, step, users, valued)
        elif source is not None and step.name in first:
            effects.append(_through(scope, step, source))
        else:
            effects.append(judge_step(truth, step))
        if step.value is not None:
            valued.add(step.name)
    return effects


def _definitions(scope: Scope) -> list[tuple[str, int]]:
    """The necessary nodes whose definitions read intermediate names, and the defining steps, in order."""
    places, necessary = scope.truth.places, scope.truth.problem.necessary
    return [
        (step.name, at)
        for at, step in enumerate(scope.steps)
        if step and places.get(step.name, necessary) < necessary and not step.letters <= places.keys()
    ]


def _users(scope: Scope, definitions: list[tuple[str, int]]) -> dict[int, set[int]]:
    """Binding -> the necessary nodes whose definitions read it."""
    users: dict[int, set[int]] = {}
    for name, at in definitions:
        for binding in _reach(scope, at).through:
            users.setdefault(binding, set()).add(scope.truth.places[name])
    return users


def _bindings(truth: Gold, steps: list[Step | None]) -> dict[str, list[int]]:
    """Name -> the steps that bind it: those that define it, else the first that gives it a number."""
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
    """The last binding of a name before step `at`, else the first from there on, else None."""
    places = scope.bindings.get(name)
    if not places:
        return None
    return places[max(0, bisect_left(places, at) - 1)]


def _reach(scope: Scope, at: int, depth: int = 0) -> Reach:
    """The resolved definition of step `at`."""
    if at in scope.reached:
        return scope.reached[at]
    step = scope.steps[at]
    assert step is not None
    # Entered before it is complete, so that a name that is bound through itself counts as unbound.
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
    """The effect of a step about a necessary node that step `source` defines through intermediate names."""
    truth, reach, defining = scope.truth, _reach(scope, source), scope.steps[source]
    assert defining is not None
    step = step._replace(named=defining.named)
    place = truth.places[step.name]
    node = truth.problem.nodes[place]
    bits = _value_bits(truth, place, step) | NAMED
    if reach.names != {truth.problem.nodes[parent].name for parent in node.parents}:
        bits |= BAD_PARENTS
    if reach.operators != set(node.operator) or (step.worked and step.named and step.worked.operators != step.named.operators):
        bits |= BAD_OPERATOR
    if not values_agree(truth, step, reach.values):
        bits |= BAD_VALUE
    return place, bits | _unworked(node, step, bits)


def _intermediate(scope: Scope, at: int, step: Step, users: dict[int, set[int]], valued: set[str]) -> list[Effect]:
    """Effects of a step about an intermediate name: none where it is right."""
    binding = at if step.named else _in_force(scope, step.name, at)
    if binding not in users:
        used = any(other.name == step.name for place in users if (other := scope.steps[place]))
        return [] if used else [(len(scope.truth.problem.nodes) + ord(step.name), EXTRA)]
    reach, bound = _reach(scope, binding), scope.steps[binding]
    assert bound is not None
    worked = step._replace(named=bound.named)
    bits = 0
    if (
        not step.sound
        or (step.value is not None and step.value != reach.form)
        or not values_agree(scope.truth, worked, reach.values)
    ):
        bits |= BAD_VALUE
    if step.value is not None and not (reach.names & scope.truth.places.keys()) <= valued:
        bits |= BAD_PARENTS
    return [(place, bits) for place in sorted(users[binding])] if bits else []


# The verifier: scope-aware and symbolic.
#
# A necessary node is right if some step states its value, its parents are named somewhere, and no statement about it is wrong:
# - parents: the set of nodes that its definition reads, in the unfolding or in the evaluation, equals the gold set. Intermediate
#   names are followed. A value whose operands are named nowhere is a dependency mismatch.
# - order: its first value follows the first values of all its parents; otherwise, too, a dependency mismatch.
# - value: the number (in reverse mode the linear form) equals the gold one. The substituted numbers must be the parents' values
#   and the constant, and all sides of a chain must be equal; with a modulus a value is a residue. A node with two values is
#   wrong, since one of them is. An equation must hold at the unknown's true value; a wrong one counts against the goal, and so
#   does a reverse solution that never sets the goal's form equal to its given value.
# - operator (an option): every expression uses the gold operator, and a difference names its operands in the gold order. Without
#   the option the operator of a definition is ignored, as published; but substituted numbers must still give the stated value.
# - arithmetic (an option): a value of a node with an operator comes with the numbers that it is worked out from.


def verify(problem: Problem, completion: str, options: spec.Verify) -> verdict.Verdict:
    """The verdict on any text as a solution of the problem, in either trace order. Never raises on account of the text."""
    found = dag.compiled("judge_terse", problem, completion, dag.asked_for(options))
    return dag.conclude(judge(problem, completion, options) if found is None else found, problem, options)


def judge(problem: Problem, completion: str, options: spec.Verify) -> dag.Counts:
    """The counts of a completion, which terse_verdict.c finds, too."""
    truth = gold(problem)
    texts, answer = terse.split_steps(completion)
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
    return dag.tally(state, truth.expected, options, readable, len(extras), answer)


def _effects(truth: Gold, texts: list[str]) -> list[Effect]:
    """The effects of the steps, in order; an empty text is no step."""
    known, modulus = truth.effects, truth.problem.modulus
    for text in filter(None, texts):
        if text not in known:
            step = parse_step(text, modulus)
            if step is None:
                known[text] = (truth.problem.necessary, UNREADABLE)
            elif step.letters.union(step.name) <= truth.places.keys():
                known[text] = judge_step(truth, step)
            else:
                return scoped_effects(truth, [parse_step(other, modulus) for other in texts if other])
    return [known[text] for text in texts if text]


def statements(problem: Problem, completion: str) -> list[verdict.Statement]:
    """What the steps of a completion state of nodes of the problem. A step of an unfolding, which comes before the mark of the
    evaluation, has no value, and neither has a definition by itself; the prompt gives the values of nodes without parents."""
    places = gold(problem).places
    body = completion.partition(ANSWER)[0]
    unfolded, _, worked = body.partition(SECTION) if SECTION in body else ("", "", body)
    found = []
    for planned, part in ((True, unfolded), (False, worked.replace(SECTION, STEP))):
        for step in filter(None, (parse_step(text, problem.modulus) for text in part.split(STEP))):
            if step.name in places:
                value = None if planned or step.value is None else str(step.value)
                found.append(verdict.Statement(step.name, value, not problem.nodes[places[step.name]].parents))
    return found
