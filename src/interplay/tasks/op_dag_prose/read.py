"""The gold graph of a prose problem that exists as text only, a solver that reads the prompt only, and the graphs that
solutions state."""

import re
from typing import NamedTuple

from interplay.tasks.op_dag.graph import FORWARD, REVERSE, Form
from interplay.tasks.op_dag.novelty import Definition, Graph, closed
from interplay.tasks.op_dag_prose.graph import TOTAL, Node, Problem, letters
from interplay.tasks.op_dag_prose.parse import Clause, Define, parse, read_on, split
from interplay.tasks.op_dag_prose.render import EXISTS
from interplay.tasks.op_dag_prose.spec import LETTERS, OpDagProse

# The gold graph of a problem that is there as text only, such as a row of the released data: read from the prompt alone.


_SENTENCE = re.compile(rf"The (?:number of )?([^.]+? in [^.]+?) (?:equals ([^.]+)|{EXISTS})\.")
_ASKED = re.compile(r"(?:How many ([^.?]+) does ([^.?]+) have|What is the ([^.?]+))\?")
_BODY = re.compile(r"(?:([0-9]+)(?: (plus|times) |$))?((?:the (sum of|difference between) )?)(.*)")
_JOINT = re.compile(r"(?:,? and |, )the ")


def read(text: str, theme: str = "") -> Problem:
    """The problem that a text tells, its question included; two layers, in the wording of render. Raises ValueError where it is
    not such a text, or where what is asked cannot be worked out.

    Necessary are the nodes that the goal comes down to, in an order of evaluation; letters are taken in alphabetical order."""
    bodies, given, unknown = _told(text)
    asked = _ASKED.search(text)
    if asked is None:
        raise ValueError(f"no question: {text!r}")
    goal = given[0] if given else asked[3] or f"{asked[1]} in {asked[2]}"
    if (given is None) != (not unknown):
        raise ValueError(f"an unknown needs a value that is given: {text!r}")
    reads = {name: _reads(body) for name, body in bodies.items()}
    mentioned = dict.fromkeys([*bodies, *(name for names in reads.values() for name in names), goal])
    for name in [name for name in mentioned if name.startswith(TOTAL)]:
        place = name.partition(" in ")[2]
        reads[name] = [other for other in bodies if other.partition(" in ")[2] == place]
    order = _order(unknown, goal, reads, mentioned)
    necessary = order.index(goal) + 1
    nodes = tuple(_node(name, bodies.get(name, ""), [order.index(other) for other in reads[name]]) for name in order)
    values = _forms(nodes[:necessary], unknown)
    answer = _root(values[-1], given[1]) if given else 0
    mode = REVERSE if given else FORWARD
    told = [place for place, node in enumerate(nodes) if not node.total] + ([-1] if given else [])
    return Problem(
        mode=mode,
        theme=theme,
        nodes=nodes,
        necessary=necessary,
        values=tuple(a * answer + b for a, b in values),
        slopes=tuple(a for a, _ in values),
        order=tuple(told),
        letters="".join(letters(mode)[:LETTERS]),
    )


def _told(text: str) -> tuple[dict[str, str], tuple[str, int] | None, str]:
    """What each name equals, in words (the unknown: nothing); the value that is given; the name of the unknown."""
    bodies: dict[str, str] = {}
    given = None
    unknown = ""
    for name, body in _SENTENCE.findall(text):
        if not body:
            unknown = name
            bodies[name] = ""
        elif name.startswith(TOTAL) or name in bodies:
            number, bodies[name] = (bodies[name], body) if name in bodies and not body.isdigit() else (body, bodies.get(name, ""))
            given = (name, int(number))
            if name.startswith(TOTAL):
                del bodies[name]
        else:
            bodies[name] = body
    return bodies, given, unknown


def _reads(body: str) -> list[str]:
    found = _BODY.fullmatch(body)
    rest = found[5].removeprefix("the ") if found else ""
    return [part.removeprefix("number of ") for part in _JOINT.split(rest)] if rest else []


def _order(unknown: str, goal: str, reads: dict[str, list[str]], names: dict[str, None]) -> list[str]:
    """The unknown, what the goal comes down to, the goal, then all else that does not come down to itself (distractors of the
    released data may); each after what it reads."""
    order: dict[str, None] = {}
    for start in [*([unknown] if unknown else []), goal, *names]:
        found = dict(order)
        if _visit(start, reads, found, [], needed=start == goal):
            order = found
    return list(order)


def _visit(name: str, reads: dict[str, list[str]], order: dict[str, None], above: list[str], needed: bool) -> bool:
    """Put a name behind all that it reads; False where it comes down to itself or to what nothing defines."""
    if name in order:
        return True
    if name not in reads or name in above:
        if needed:
            raise ValueError(f"{name!r} comes down to itself" if name in above else f"nothing says what {name!r} equals")
        return False
    if not all([_visit(other, reads, order, [*above, name], needed) for other in reads[name]]):
        return False
    order[name] = None
    return True


def _node(name: str, body: str, parents: list[int]) -> Node:
    thing, _, place = name.partition(" in ")
    if name.startswith(TOTAL):
        return Node(thing, place, True, tuple(parents), None, "", False)
    found = _BODY.fullmatch(body)
    assert found is not None
    constant = int(found[1]) if found[1] else None
    operator = {"plus": "+", "times": "*", None: ""}[found[2]]
    return Node(thing, place, False, tuple(parents), constant, operator, found[4] == "difference between")


def _forms(nodes: tuple[Node, ...], unknown: str) -> list[Form]:
    values: list[Form] = []
    for node in nodes:
        signs = [-1 if node.minus and number else 1 for number in range(len(node.parents))]
        a = sum(sign * values[parent][0] for sign, parent in zip(signs, node.parents, strict=True))
        b = sum(sign * values[parent][1] for sign, parent in zip(signs, node.parents, strict=True))
        if node.name == unknown:
            a, b = 1, 0
        elif node.operator == "*":
            assert node.constant is not None
            a, b = a * node.constant, b * node.constant
        elif node.constant is not None:
            b += node.constant
        values.append((a, b))
    return values


def _root(form: Form, value: int) -> int:
    slope, constant = form
    if not slope or (value - constant) % slope:
        raise ValueError(f"{slope} * x + {constant} = {value} has no unique integer solution")
    return (value - constant) // slope


# A solver that reads nothing but the prompt: the oracle beside the generator, with which it shares no code.


_SOLVE_SENTENCE = re.compile(
    r"The (?:number of )?([^.]+? in [^.]+?) (?:equals ([^.]+)|exists, and its number is greater than 0)\."
)
_QUESTION = re.compile(r"(?:How many ([^.?]+) does ([^.?]+) have|What is the ([^.?]+))\?")
_READ = re.compile(r"the (?:number of )?((?!sum of|difference between)[^,]+? in [^,]+?)(?=,| and the |$)")
_HEAD = re.compile(r"(?:([0-9]+)(?: (plus|times) |$))?(.*)")
_TOTAL = "total number of "


def solve(prompt: str, task: OpDagProse) -> str:
    """The answer to a prompt. Evaluates what is asked by substitution; for a reverse problem the goal at 0 and at 1, which fixes
    the line a*x + b that must equal the given value. Raises ValueError where the prompt has no unique answer."""
    bodies: dict[str, str] = {}
    given: list[tuple[str, int]] = []
    unknown = ""
    for name, body in _SOLVE_SENTENCE.findall(prompt):
        if not body:
            unknown = name
        elif body.isdigit() and (name.startswith(_TOTAL) or name in bodies):
            given.append((name, int(body)))
        elif name in bodies:
            given.append((name, int(bodies[name])))
            bodies[name] = body
        else:
            bodies[name] = body
    mentioned = dict.fromkeys([*bodies, unknown, *(name for body in bodies.values() for name in _READ.findall(body))])
    members: dict[str, list[str]] = {}
    for name in mentioned:
        if name and not name.startswith(_TOTAL):
            members.setdefault(name.partition(" in ")[2], []).append(name)
    asked = _QUESTION.search(prompt)
    if asked is None:
        raise ValueError(f"no question: {prompt}")
    thing, place, total = asked.groups()
    name = total or f"{thing} in {place}"
    if not unknown:
        return str(_value(name, bodies, members, {}))
    ((goal, value),) = given
    at_zero = _value(goal, bodies, members, {unknown: 0})
    slope = _value(goal, bodies, members, {unknown: 1}) - at_zero
    if name != unknown or not slope or (value - at_zero) % slope:
        raise ValueError(f"no unique answer: {prompt}")
    return str((value - at_zero) // slope)


def _value(name: str, bodies: dict[str, str], members: dict[str, list[str]], known: dict[str, int]) -> int:
    """The value of a name, by depth first; `known` holds what is known already and grows."""
    if name not in known:
        if name.startswith(_TOTAL):
            result = sum([_value(other, bodies, members, known) for other in members[name.partition(" in ")[2]]])
        else:
            head = _HEAD.fullmatch(bodies[name])
            assert head is not None
            number, operator, rest = head.groups()
            values = [_value(other, bodies, members, known) for other in _READ.findall(rest)]
            result = values[0] - values[1] if rest.startswith("the difference") else sum(values)
            if number:
                result = int(number) * result if operator == "times" else int(number) + result
        known[name] = result
    return known[name]


# The graphs of prose solutions and problems, in the words of op_dag.novelty, so that one measure reads both surfaces.


_UNTOLD = Definition(numbers=((1, 0),))


class Meaning(NamedTuple):
    """What a letter stands for, intermediate results taken apart."""

    operators: frozenset[str]
    reads: tuple[str, ...]
    """Full names, in order."""
    numbers: tuple[Form, ...]


def stated_graph(completion: str) -> Graph:
    """The graph that a completion states, right or not, by full names; what cannot be read states nothing. The first definition
    that reads something counts, another only where there is none. A letter bound to nothing stands for itself."""
    found: Graph = {}
    letters: dict[str, Meaning] = {}
    for text in split(completion)[0]:
        sentence = parse(text.strip())
        if isinstance(sentence, Define):
            for one in _definitions(sentence, letters):
                if sentence.name not in found or (one.reads and not found[sentence.name].reads):
                    found[sentence.name] = one
            letters[sentence.letter] = Meaning(frozenset(), (sentence.name,), ())
    return closed(found)


def gold_graph(problem: Problem) -> Graph:
    """The graph that gold solutions state: the necessary nodes."""
    nodes = problem.nodes[: problem.necessary]
    return {node.name: _gold(node, [nodes[parent].name for parent in node.parents], problem.mode) for node in nodes}


def _gold(node: Node, reads: list[str], mode: str) -> Definition:
    if node.constant is None and not reads:
        return Definition() if mode == FORWARD else _UNTOLD
    joined = {"-"} if node.minus else {"+"} if len(reads) > 1 else set()
    operators = joined | ({node.operator} if node.operator else set())
    numbers: tuple[Form, ...] = () if node.constant is None else ((0, node.constant),)
    return Definition(tuple(sorted(operators)), tuple(reads), numbers)


def _definitions(sentence: Define, letters: dict[str, Meaning]) -> list[Definition]:
    """What a sentence says its node is, clause by clause; binds its intermediate letters."""
    said = [_UNTOLD] if sentence.untold else []
    for number, clause in enumerate(sentence.clauses):
        meaning = _meaning(clause, letters)
        if clause.letter != sentence.letter or read_on(sentence, number):
            letters[clause.letter] = meaning
        else:
            said.append(Definition(tuple(sorted(meaning.operators)), meaning.reads, meaning.numbers))
    return said


def _meaning(clause: Clause, letters: dict[str, Meaning]) -> Meaning:
    part = clause.sides[0].part
    read = [letters.get(letter, Meaning(frozenset(), (letter,), ())) for letter in part.letters]
    return Meaning(
        operators=part.operators.union(*[one.operators for one in read]),
        reads=tuple([name for one in read for name in one.reads]),
        numbers=tuple(sorted([*part.operands, *[number for one in read for number in one.numbers]])),
    )
