"""Problems of op_dag_prose that exist as text only, such as rows of the released data: their gold graph, read from the prompt alone."""

import re

from interplay.tasks.op_dag.dag import FORWARD, REVERSE, Form, linear_root
from interplay.tasks.op_dag.prose import TOTAL, Node, Problem, solution_letters
from interplay.tasks.op_dag.spec import LETTERS

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


def levels(problem: Problem) -> list[int]:
    """For each necessary node, the number of nodes on the longest path from a leaf to it; the goal's is the depth."""
    found: list[int] = []
    for node in problem.nodes[: problem.necessary]:
        found.append(1 + max([found[parent] for parent in node.parents], default=0))
    return found
