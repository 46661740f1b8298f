"""The gold graph of a problem that is there as text only, such as a row of the released data: read from the prompt alone."""

import re

from interplay.schema.op_dag_prose import LETTERS
from interplay.tasks.op_dag.graph import FORWARD, REVERSE, Form
from interplay.tasks.op_dag_prose.graph import TOTAL, Node, Problem, letters
from interplay.tasks.op_dag_prose.render import EXISTS

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
