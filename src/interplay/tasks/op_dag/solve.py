"""A solver that reads nothing but the prompt: the oracle beside the generator, with which it shares no code."""

from interplay.schema.op_dag import OpDag


def solve(prompt: str, task: OpDag) -> str:
    """The answer to a prompt. Evaluates the goal by substitution; for a reverse problem at 0 and at 1, which fixes the line
    a*x + b that must equal the given value. Raises ValueError where the prompt has no unique answer."""
    definitions, _, question = prompt.replace(".", "").rstrip("|").partition("?")
    bodies = {text[0]: text[1:] for text in definitions.split(",")}
    goal, _, given = question.partition("=")
    modulus = task.modulus
    if not given:
        return str(_value(goal, bodies, {}, modulus))
    unknown = next(name for name, body in bodies.items() if body == "_")
    at_zero = _value(goal, bodies, {unknown: 0}, modulus)
    slope = _value(goal, bodies, {unknown: 1}, modulus) - at_zero
    answer = _root(slope, int(given) - at_zero, modulus)
    if _value(goal, bodies, {unknown: answer}, modulus) != int(given):
        raise ValueError(f"the goal is no line in the unknown: {prompt}")
    return str(answer)


def _value(name: str, bodies: dict[str, str], known: dict[str, int], modulus: int | None) -> int:
    """The value of a name, by depth first; `known` holds what is known already and grows."""
    if name in known:
        return known[name]
    body = bodies[name]
    operator = next((sign for sign in "+-*" if sign in body), "")
    total: int | None = None
    for operand in body.split(operator) if operator else [body]:
        value = _value(operand, bodies, known, modulus) if operand in bodies else int(operand)
        if total is None:
            total = value
        elif operator == "+":
            total += value
        elif operator == "-":
            total -= value
        else:
            total *= value
    assert total is not None
    known[name] = total % modulus if modulus else total
    return known[name]


def _root(slope: int, rest: int, modulus: int | None) -> int:
    """The x with slope * x = rest, over the integers or modulo a prime. Raises ValueError where there is none or more than
    one."""
    if modulus:
        return rest * pow(slope, -1, modulus) % modulus
    if not slope or rest % slope:
        raise ValueError(f"{slope} * x = {rest} has no unique integer solution")
    return rest // slope
