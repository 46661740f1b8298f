"""A solver that reads nothing but the prompt: the oracle beside the generator, with which it shares no code."""

import re

from interplay.schema.op_dag_prose import OpDagProse

_SENTENCE = re.compile(r"The (?:number of )?([^.]+? in [^.]+?) (?:equals ([^.]+)|exists, and its number is greater than 0)\.")
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
    for name, body in _SENTENCE.findall(prompt):
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
