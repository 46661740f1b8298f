"""Prompts of the terse surface: the parser of prompts that a model wrote, a solver that reads the prompt only (the oracle for the
generator), and the row of the family."""

import re
from typing import NamedTuple

from interplay.tasks.family import Generator, Language, PlainProblem, PlainStep, Rates
from interplay.tasks.op_dag import dag, dag_growth, spec, terse, terse_verifier

# The parser of prompts: the inverse of rendering, for texts that a model wrote.
#
# A text is split by the parser of steps (terse.py) and never evaluated as code. Accepted are the prompts that the task's own
# generator may write: definitions of its letters, one operator each, the constant last, no name read twice in one definition;
# every name that is read is defined once and without cycles, in distractors, too; the question has one answer, and without a
# modulus no value leaves [0, max_value]. The numbers of distractors and fillers are free.


FLAWS = ("unfinished", "grammar", "repeated", "undefined", "circular", "unanswerable", "range")
UNFINISHED, GRAMMAR, REPEATED, UNDEFINED, CIRCULAR, UNANSWERABLE, RANGE = FLAWS
"""Why a text poses no problem. unfinished: the prompt does not end; grammar: it is not in the language of the task; repeated: a
name is defined twice; undefined: a name in a definition or the question is not defined; circular: a definition depends on itself;
unanswerable: the given value fits no value of the unknown, or several; range: a value leaves the task's range."""
END = terse.SECTION
"""The token that ends a prompt, and occurs nowhere else in one."""
LONGEST = 100
"""Most characters of a definition."""
_GIVEN = re.compile(r"0|[1-9][0-9]{0,17}")


class Defined(NamedTuple):
    """One definition of a text."""

    name: str
    operator: str
    reads: tuple[str, ...]
    constant: int | None
    expression: terse.Expression
    dots: int
    """Neutral characters after it."""


def parse_prompt(text: str, task: spec.OpDag) -> dag.Problem | str:
    """The problem of the prompt at the start of a text, or one of FLAWS. Text after the prompt's end is ignored. Never raises on
    account of the text."""
    prompt, end, _ = text.partition(END)
    if not end:
        return UNFINISHED
    body, ask, question = prompt.partition(terse.ASK)
    question = question.rstrip(terse.FILLER) if task.asks_length else question
    goal, equals, given = question.partition(terse.EQUALS)
    mode = dag.REVERSE if equals else dag.FORWARD
    bare = body.lstrip(terse.FILLER)
    found = [_definition(piece, task) for piece in bare.split(terse.STEP)]
    defined = [one for one in found if one is not None]
    unknowns = sum(not one.reads and one.constant is None for one in defined)
    asked = (
        len(goal) == 1 and goal in terse.node_letters(task) and any(name == mode and share for name, share in task.modes.items())
    )
    stated = not equals or (_GIVEN.fullmatch(given) is not None and (task.modulus is None or int(given) < task.modulus))
    if not ask or not asked or not stated or len(defined) < len(found) or unknowns != (mode == dag.REVERSE):
        return GRAMMAR
    places = {one.name: place for place, one in enumerate(defined)}
    if len(places) < len(defined):
        return REPEATED
    if goal not in places or any(name not in places for one in defined for name in one.reads):
        return UNDEFINED
    filler = (len(body) - len(bare), *(one.dots for one in defined))
    return _evaluated(defined, places, places[goal], int(given) if given else None, filler, task)


def _evaluated(
    defined: list[Defined], places: dict[str, int], goal: int, given: int | None, filler: tuple[int, ...], task: spec.OpDag
) -> dag.Problem | str:
    """The problem of definitions without undefined names, or one of FLAWS; `given`: the goal's value in reverse mode."""
    parents = [[places[name] for name in one.reads] for one in defined]
    order = _topological_order(defined, parents)
    if order is None:
        return CIRCULAR
    needed = dag.dependencies(parents, goal)
    chain = [place for place in order if place in needed]
    solved = _solved([defined[place] for place in chain], given, task.modulus)
    if solved is None:
        return UNANSWERABLE
    values, slopes = solved
    if task.modulus is None and not all(0 <= value <= task.max_value for value in values):
        return RANGE
    nodes = [*chain, *(place for place in order if place not in needed)]
    where = {place: at for at, place in enumerate(nodes)}
    return dag.Problem(
        mode=dag.FORWARD if given is None else dag.REVERSE,
        modulus=task.modulus,
        nodes=tuple(
            dag.Node(defined[i].name, defined[i].operator, tuple(where[parent] for parent in parents[i]), defined[i].constant)
            for i in nodes
        ),
        necessary=len(chain),
        values=values,
        slopes=slopes,
        order=tuple(where[place] for place in range(len(defined))),
        filler=filler,
    )


def _definition(piece: str, task: spec.OpDag) -> Defined | None:
    """The definition of a piece of text, or None if it is none."""
    text = piece.rstrip(terse.FILLER)
    name, known = text[:1], terse.node_letters(task)
    part = terse.parse_part(text[1:], task.modulus) if 1 < len(text) <= LONGEST and name in known else None
    if part is None or text[1] == "-":
        return None
    operands = [operand for _, operand in part.expression]
    signs = {sign for sign, _ in part.expression[1:]}
    reads = tuple(operand for operand in operands if isinstance(operand, str))
    rest = operands[len(reads) :]
    if text[1:] == terse.UNKNOWN:
        return Defined(name, "", (), None, part.expression, len(piece) - len(text))
    constant = _constant(rest[0], task) if rest else None
    fits = len(signs) <= 1 and signs <= set(task.operators) and all(operand in known for operand in reads)
    fits = fits and tuple(operands[: len(reads)]) == reads and len(set(reads)) == len(reads)
    if not fits or len(operands) > max(2, task.max_parents) or len(rest) > 1 or (rest and constant is None):
        return None
    return Defined(name, "".join(signs), reads, constant, part.expression, len(piece) - len(text))


def _constant(operand: object, task: spec.OpDag) -> int | None:
    """The number of an operand; None where it is no number, or no residue."""
    if not isinstance(operand, tuple) or len(operand) != 2 or operand[0]:
        return None
    return operand[1] if task.modulus is None or operand[1] < task.modulus else None


def _topological_order(defined: list[Defined], parents: list[list[int]]) -> list[int] | None:
    """All places, each after its parents, the unknown first; None where there is a cycle."""
    left = sorted(range(len(defined)), key=lambda place: bool(parents[place]) or defined[place].constant is not None)
    order: list[int] = []
    while left:
        ready = [place for place in left if all(parent in order for parent in parents[place])]
        if not ready:
            return None
        order += ready
        left = [place for place in left if place not in ready]
    return order


def _solved(chain: list[Defined], given: int | None, modulus: int | None) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Values and coefficients of the unknown of the definitions of a chain, where the value of the last, the goal, is `given` in
    reverse mode; None where one is not linear, or the unknown has no unique value."""
    forms: dict[str, dag.Form] = {}
    for one in chain:
        form = terse.evaluate(one.expression, forms, modulus)
        if form is None:
            return None
        forms[one.name] = form
    slope, constant = forms[chain[-1].name]
    try:
        unknown = 0 if given is None else dag.linear_root(slope, given - constant, modulus)
    except ValueError:
        return None
    values = [a * unknown + b for a, b in forms.values()]
    return tuple(value % modulus if modulus else value for value in values), tuple(a for a, _ in forms.values())


# A solver that reads the prompt only: the oracle for the generator, with which it shares no code.


def solve(prompt: str, task: spec.OpDag) -> str:
    """The answer to a prompt. Evaluates the goal by substitution; for a reverse problem at 0 and at 1, which determines the line
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
    answer = dag.linear_root(slope, int(given) - at_zero, modulus)
    if _value(goal, bodies, {unknown: answer}, modulus) != int(given):
        raise ValueError(f"the goal is not linear in the unknown: {prompt}")
    return str(answer)


def _value(name: str, bodies: dict[str, str], known: dict[str, int], modulus: int | None) -> int:
    """The value of a name, depth first; `known` holds the values so far and is extended."""
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


# Plain notation: `ca*b` reads `c = a × b`, and every step of a completion says what is wrong with it.


_SIGN = re.compile(r"(?<=[\w)])([-+*])")
_BAD = terse_verifier.BAD_VALUE | terse_verifier.BAD_PARENTS | terse_verifier.BAD_OPERATOR
UNKNOWN_NAME = "x"


def plain_problem(problem: dag.Problem) -> PlainProblem:
    """The definitions in the order of the prompt, and the question."""
    definitions = terse.gold_sentences(problem).definitions
    given = [(plain_notation(definitions[place]), place < problem.necessary) for place in problem.order]
    goal, base = problem.nodes[problem.goal].name, f", counting modulo {problem.modulus}" if problem.modulus else ""
    if problem.mode == dag.REVERSE:
        return PlainProblem(given, f"{goal} is {problem.values[-1]}. What is {UNKNOWN_NAME}{base}?")
    return PlainProblem(given, f"What is {goal}{base}?")


def plain_steps(problem: dag.Problem, completion: str) -> list[PlainStep]:
    """The steps, each with what would be right in its place, the answer, and the names that no step gives a value."""
    truth = terse_verifier.gold(problem)
    texts, answer = terse.split_steps(completion)
    right = terse.gold_sentences(problem, problem.necessary).whole
    steps, valued = [], 0
    for text in filter(None, texts):
        step = terse.parse_step(text, problem.modulus)
        why = ""
        if step is None:
            why = "cannot be read as a step"
        elif step.letters.union(step.name) <= truth.places.keys():
            place, bits = terse_verifier.judge_step(truth, step)
            if place < problem.necessary:
                early = bits & terse_verifier.VALUED and truth.needs[place] & ~valued
                names = [
                    problem.nodes[parent].name
                    for parent in problem.nodes[place].parents
                    if truth.needs[place] & ~valued & 1 << parent
                ]
                why = (
                    f"right is {plain_notation(right[place])}"
                    if bits & _BAD
                    else f"uses {' and '.join(names)} before its value"
                    if early
                    else ""
                )
                valued |= (1 << place) if bits & terse_verifier.VALUED else 0
        steps.append(PlainStep(plain_notation(text), why))
    unseen = [node.name for place, node in enumerate(problem.nodes[: problem.necessary]) if not valued >> place & 1]
    if unseen and not any(step.wrong for step in steps):
        steps.append(PlainStep("…", f"never works out {', '.join(unseen)}"))
    if answer is None:
        return [*steps, PlainStep("no answer", "stops before it")]
    return [*steps, PlainStep(f"answer {answer}", "" if answer == str(problem.answer) else f"right is {problem.answer}")]


def plain_notation(text: str) -> str:
    """A definition, step or equation of the terse surface with spaces and signs as in print."""
    name, chain = (text[:1], text[1:].removeprefix(terse.EQUALS)) if text[:1] in terse.LETTERS else ("", text)
    spaced = _SIGN.sub(lambda sign: f" {sign[1]} ", chain.replace(terse.UNKNOWN, UNKNOWN_NAME)).replace(terse.EQUALS, " = ")
    return (f"{name} = {spaced}" if name else spaced).replace("*", "×").replace("-", "−")


OP_DAG = Generator(
    name="op_dag",
    errors=dag.ERRORS,
    generate=dag_growth.generate,
    render=terse.render,
    solve=solve,
    loads=dag.loads,
    verify=terse_verifier.verify,
    structure=dag.structure,
    dumps=dag.dumps,
    characters=terse.alphabet,
    vocabulary=lambda task: list(terse.alphabet(task)),
    language=Language(parse_prompt, terse.node_letters, END, FLAWS),
    calls=dag.calls,
    rates=Rates(2300, 40000, 130, 470),
    statements=terse_verifier.statements,
    plain_problem=plain_problem,
    plain_steps=plain_steps,
)
