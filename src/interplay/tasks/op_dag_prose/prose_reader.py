"""Readers of the prose surface: the gold graph of a problem that exists as text only, a solver that reads the prompt only, and
the graphs that solutions state."""

import re
from typing import NamedTuple

from interplay.tasks.op_dag.dag import FORWARD, REVERSE, Form, linear_root
from interplay.tasks.op_dag.graph_similarity import Definition, Graph, with_all_names
from interplay.tasks.op_dag_prose import prose_parser
from interplay.tasks.op_dag_prose.prose import TOTAL, Node, Problem, solution_letters
from interplay.tasks.op_dag_prose.prose_parser import Clause, Define
from interplay.tasks.op_dag_prose.spec import LETTERS, OpDagProse

# The gold graph of a problem that exists as text only, such as a row of the released data: read from the prompt alone.


_SENTENCE = re.compile(r"The (?:number of )?([^.]+? in [^.]+?) (?:equals ([^.]+)|exists, and its number is greater than 0)\.")
_ASKED = re.compile(r"(?:How many ([^.?]+) does ([^.?]+) have|What is the ([^.?]+))\?")
_BODY = re.compile(r"(?:([0-9]+)(?: (plus|times) |$))?((?:the (sum of|difference between) )?)(.*)")
_JOINT = re.compile(r"(?:,? and |, )the ")


def read_problem(text: str, theme: str = "") -> Problem:
    """The problem of a text in the wording of `prose.render`. Raises ValueError where it is no such text, or the question has no
    answer.

    Necessary are the nodes that the goal depends on, in an order of evaluation; letters are used in alphabetical order."""
    bodies, given, unknown = _stated(text)
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
    answer = linear_root(values[-1][0], given[1] - values[-1][1], None) if given else 0
    mode = REVERSE if given else FORWARD
    sentences = [place for place, node in enumerate(nodes) if not node.total] + ([-1] if given else [])
    return Problem(
        mode=mode,
        theme=theme,
        nodes=nodes,
        necessary=necessary,
        values=tuple(a * answer + b for a, b in values),
        slopes=tuple(a for a, _ in values),
        order=tuple(sentences),
        letters="".join(solution_letters(mode)[:LETTERS]),
    )


def _stated(text: str) -> tuple[dict[str, str], tuple[str, int] | None, str]:
    """The bodies of the definitions by name (of the unknown empty); the given value with its name; the name of the unknown."""
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
    """The unknown, the goal's dependencies, the goal, then all other names without cyclic definitions (distractors of the
    released data may have them); each after its operands."""
    order: dict[str, None] = {}
    for start in [*([unknown] if unknown else []), goal, *names]:
        found = dict(order)
        if _visit(start, reads, found, [], needed=start == goal):
            order = found
    return list(order)


def _visit(name: str, reads: dict[str, list[str]], order: dict[str, None], above: list[str], needed: bool) -> bool:
    """Append a name after its operands; False where its definition is cyclic or incomplete."""
    if name in order:
        return True
    if name not in reads or name in above:
        if needed:
            raise ValueError(f"{name!r} depends on itself" if name in above else f"no definition of {name!r}")
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


# A solver that reads the prompt only: the oracle for the generator, with which it shares no code.


_READ = re.compile(r"the (?:number of )?((?!sum of|difference between)[^,]+? in [^,]+?)(?=,| and the |$)")
_HEAD = re.compile(r"(?:([0-9]+)(?: (plus|times) |$))?(.*)")


def solve(prompt: str, task: OpDagProse) -> str:
    """The answer to a prompt. Evaluates the goal by substitution; for a reverse problem at 0 and at 1, which determines the line
    a*x + b that must equal the given value. Raises ValueError where the prompt has no unique answer."""
    bodies: dict[str, str] = {}
    given: list[tuple[str, int]] = []
    unknown = ""
    for name, body in _SENTENCE.findall(prompt):
        if not body:
            unknown = name
        elif body.isdigit() and (name.startswith(TOTAL) or name in bodies):
            given.append((name, int(body)))
        elif name in bodies:
            given.append((name, int(bodies[name])))
            bodies[name] = body
        else:
            bodies[name] = body
    mentioned = dict.fromkeys([*bodies, unknown, *(name for body in bodies.values() for name in _READ.findall(body))])
    members: dict[str, list[str]] = {}
    for name in mentioned:
        if name and not name.startswith(TOTAL):
            members.setdefault(name.partition(" in ")[2], []).append(name)
    asked = _ASKED.search(prompt)
    if asked is None:
        raise ValueError(f"no question: {prompt}")
    thing, place, total = asked.groups()
    name = total or f"{thing} in {place}"
    if not unknown:
        return str(_value(name, bodies, members, {}))
    ((goal, value),) = given
    at_zero = _value(goal, bodies, members, {unknown: 0})
    slope = _value(goal, bodies, members, {unknown: 1}) - at_zero
    if name != unknown:
        raise ValueError(f"the question is not about the unknown: {prompt}")
    return str(linear_root(slope, value - at_zero, None))


def _value(name: str, bodies: dict[str, str], members: dict[str, list[str]], known: dict[str, int]) -> int:
    """The value of a name, depth first; `known` holds the values so far and is extended."""
    if name not in known:
        if name.startswith(TOTAL):
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


# The graphs of prose solutions and problems for op_dag.graph_similarity.


_UNKNOWN_LEAF = Definition(numbers=((1, 0),))


class Meaning(NamedTuple):
    """The definition of a letter, with intermediate results resolved."""

    operators: frozenset[str]
    reads: tuple[str, ...]
    """Full names, in order."""
    numbers: tuple[Form, ...]


def stated_graph(completion: str) -> Graph:
    """The graph that a completion states, right or not, by full names; unreadable sentences are ignored. The first definition
    with operands counts, another only where there is none. An unbound letter is a name of its own."""
    found: Graph = {}
    letters: dict[str, Meaning] = {}
    for text in prose_parser.split_sentences(completion)[0]:
        sentence = prose_parser.parse_sentence(text.strip())
        if isinstance(sentence, Define):
            for one in _definitions(sentence, letters):
                if sentence.name not in found or (one.reads and not found[sentence.name].reads):
                    found[sentence.name] = one
            letters[sentence.letter] = Meaning(frozenset(), (sentence.name,), ())
    return with_all_names(found)


def gold_graph(problem: Problem) -> Graph:
    """The graph that gold solutions state: the necessary nodes."""
    nodes = problem.nodes[: problem.necessary]
    return {node.name: _gold(node, [nodes[parent].name for parent in node.parents], problem.mode) for node in nodes}


def _gold(node: Node, reads: list[str], mode: str) -> Definition:
    if node.constant is None and not reads:
        return Definition() if mode == FORWARD else _UNKNOWN_LEAF
    joined = {"-"} if node.minus else {"+"} if len(reads) > 1 else set()
    operators = joined | ({node.operator} if node.operator else set())
    numbers: tuple[Form, ...] = () if node.constant is None else ((0, node.constant),)
    return Definition(tuple(sorted(operators)), tuple(reads), numbers)


def _definitions(sentence: Define, letters: dict[str, Meaning]) -> list[Definition]:
    """The definitions of a sentence, clause by clause; binds its intermediate letters."""
    definitions = [_UNKNOWN_LEAF] if sentence.value_unknown else []
    for number, clause in enumerate(sentence.clauses):
        meaning = _clause_meaning(clause, letters)
        if clause.letter != sentence.letter or prose_parser.is_intermediate(sentence, number):
            letters[clause.letter] = meaning
        else:
            definitions.append(Definition(tuple(sorted(meaning.operators)), meaning.reads, meaning.numbers))
    return definitions


def _clause_meaning(clause: Clause, letters: dict[str, Meaning]) -> Meaning:
    part = clause.sides[0].part
    read = [letters.get(letter, Meaning(frozenset(), (letter,), ())) for letter in part.letters]
    return Meaning(
        operators=part.operators.union(*[one.operators for one in read]),
        reads=tuple([name for one in read for name in one.reads]),
        numbers=tuple(sorted([*part.operands, *[number for one in read for number in one.numbers]])),
    )
