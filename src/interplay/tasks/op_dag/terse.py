"""The terse surface, in which every token is a single character: text of problems and solutions, and the parser of steps.

A prompt is definitions separated by commas, dots scattered between them, and the question:
`s0,a6,..ca*b,.ba+3?c|` asks for the value of c; `s0,a_,ca*b,ba+3?c=4|` gives c = 4 and asks for the unknown, which is written
`_`. A goal_first solution unfolds the goal, `ca*b,ba+3,a6|`, evaluates upwards, `a6,b6+3=2,c6*2=5`, and answers, `#5`. A
leaf_first solution writes each node once, `a6,ba+3=6+3=2,ca*b=6*2=5#5`. In reverse mode the values are linear forms, in brackets
where they are operands with more than one term, and the equation comes before the answer:
`a_,b_+3=_+3,c(_+3)*2=2_+6|2_+6=4,2_=5#6`. Where the task gives a length, values are stated again, `a6,a6,b6+3=2,c6*2=5`, and
the prompt may ask for it, `s0,a6,..ca*b,.ba+3?c.|`."""

import re
from functools import lru_cache
from typing import NamedTuple

from interplay.tasks.family import Rendered
from interplay.tasks.op_dag.dag import REVERSE, Form, Problem, forms, restated, unfolding
from interplay.tasks.op_dag.spec import OpDag

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
STEP = ","
SECTION = "|"
ASK = "?"
EQUALS = "="
ANSWER = "#"
UNKNOWN = "_"
FILLER = "."
OPEN_BRACKET, CLOSE_BRACKET = "()"


def alphabet(task: OpDag) -> str:
    """All characters of prompts and solutions in any context of the task, in a fixed order. It does not depend on modes and
    operators, so that models trained on different mixes of them share a vocabulary."""
    signs = STEP + SECTION + ASK + EQUALS + ANSWER + UNKNOWN + FILLER + OPEN_BRACKET + CLOSE_BRACKET + "+-*0123456789"
    return signs + LETTERS[: task.letters * task.contexts]


def node_letters(task: OpDag) -> str:
    """The letters that name nodes in the task's own context."""
    return LETTERS[task.letters * task.context : task.letters * (task.context + 1)]


class Sentences(NamedTuple):
    """The sentences of solutions, in the nodes' order. All but the definitions are of necessary nodes only."""

    definitions: list[str]
    evaluations: list[str]
    """The definition with values substituted, and the result."""
    whole: list[str]
    """Definition, substituted values and result in one chain."""
    equations: list[str]
    """The equation that ends a reverse solution; empty in forward mode."""
    forms: list[Form]
    """The values as linear forms."""


def gold_sentences(problem: Problem, number: int | None = None) -> Sentences:
    """The gold sentences of the first `number` nodes, at least the necessary ones; None: of all. The order of operands is that of
    the prompt, so that a definition is a copy."""
    values, reverse = forms(problem), problem.mode == REVERSE
    names = [node[0] for node in problem.nodes]
    results = [form_text(form) for form in values] if reverse else list(map(str, problem.values))
    operands = [_operand_text(form, text) for form, text in zip(values, results, strict=True)] if reverse else results
    definitions, evaluations, whole = [], [], []
    necessary = problem.necessary
    for place, (name, operator, parents, constant) in enumerate(problem.nodes[:number]):
        inside = place < necessary
        if len(parents) == 2 and constant is None:
            first, second = parents
            definition = f"{name}{names[first]}{operator}{names[second]}"
            worked = f"{operands[first]}{operator}{operands[second]}" if inside else ""
        elif len(parents) == 1 and constant is not None:
            definition = f"{name}{names[parents[0]]}{operator}{constant}"
            worked = f"{operands[parents[0]]}{operator}{constant}" if inside else ""
        else:
            definition = name + _expression_text(operator, parents, constant, names)
            worked = _expression_text(operator, parents, constant, operands) if operator and inside else ""
        definitions.append(definition)
        if inside:
            worked = f"{worked}{EQUALS}{results[place]}" if operator else results[place]
            evaluations.append(name + worked)
            whole.append(f"{definition}{EQUALS}{worked}" if parents else definition)
    equations = _equations(values[-1], problem.values[-1], problem.modulus) if reverse else []
    return Sentences(definitions, evaluations, whole, equations, values)


def render(problem: Problem, task: OpDag) -> Rendered:
    """Prompt, gold solution in the task's trace order, and answer."""
    texts = gold_sentences(problem)
    order = unfolding(problem)
    if task.trace == "leaf_first":
        sections = [[texts.whole[place] for place in reversed(order)]]
    else:
        sections = [[texts.definitions[place] for place in order], [texts.evaluations[place] for place in reversed(order)]]
    answer, asked = str(problem.answer), 0
    if texts.equations:
        sections.append(texts.equations)
    if task.length:
        at = len(sections) - 1 - bool(texts.equations)
        written = len(_solution(sections, answer))
        more = restated(problem, sections[at], len(STEP), written, task.length)
        asked = task.asks_length * (len(more) - len(sections[at]))
        sections[at] = more
    return Rendered(_prompt(problem, texts.definitions, asked), _solution(sections, answer), answer)


def _solution(sections: list[list[str]], answer: str) -> str:
    return SECTION.join([STEP.join(section) for section in sections]) + ANSWER + answer


def form_text(form: Form) -> str:
    """A linear form: `3`, `_`, `2_`, `2_+3`, `-_-4`."""
    slope, constant = form
    if not slope:
        return str(constant)
    term = UNKNOWN if slope == 1 else f"-{UNKNOWN}" if slope == -1 else f"{slope}{UNKNOWN}"
    return f"{term}+{constant}" if constant > 0 else f"{term}{constant}" if constant else term


def _operand_text(form: Form, text: str) -> str:
    """A form, whose text is known, as an operand: in brackets where it has two terms or a sign."""
    return text if (not form[0] or not form[1]) and text[0] != "-" else OPEN_BRACKET + text + CLOSE_BRACKET


def _expression_text(operator: str, parents: tuple[int, ...], constant: int | None, operands: list[str]) -> str:
    terms = [operands[parent] for parent in parents]
    if constant is not None:
        terms.append(str(constant))
    return operator.join(terms) or UNKNOWN


def _prompt(problem: Problem, texts: list[str], asked: int) -> str:
    if any(problem.filler):
        shown = [texts[place] + FILLER * dots for place, dots in zip(problem.order, problem.filler[1:], strict=True)]
        definitions = FILLER * problem.filler[0] + STEP.join(shown)
    else:
        definitions = STEP.join([texts[place] for place in problem.order])
    given = f"{EQUALS}{problem.values[-1]}" if problem.mode == REVERSE else ""
    return f"{definitions}{ASK}{problem.nodes[problem.goal].name}{given}{FILLER * asked}{SECTION}"


def _equations(form: Form, value: int, modulus: int | None) -> list[str]:
    """The goal's form equals its given value; then, where there are a factor and an addend, the equation without the addend."""
    slope, constant = form
    lines = [f"{form_text(form)}{EQUALS}{value}"]
    if slope != 1 and constant:
        rest = value - constant
        lines.append(f"{form_text((slope, 0))}{EQUALS}{rest % modulus if modulus else rest}")
    return lines


# Parser of completions: steps, and within a step its name and the chain of expressions between signs of equality.
#
# Model text is split by regular expressions and never evaluated as code; text outside the grammar gives None. Parsed steps are
# cached by their text, since the same few thousand steps recur.


class Bracket(NamedTuple):
    """A bracket as one operand. Brackets do not nest."""

    inside: "tuple[tuple[str, Form | str], ...]"


Operand = Form | str | Bracket
"""A number or linear form, a letter, or a bracket."""

Expression = tuple[tuple[str, Operand], ...] | tuple[tuple[str, Form | str], ...]
"""Signed operands: ("+", x) and ("-", x) begin a term, ("*", x) continues it."""

_LONGEST = 100
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_FACTOR = rf"(?:{_NUMBER})?{UNKNOWN}"
_ATOM = rf"[A-Za-z]|{_FACTOR}|{_NUMBER}"
_FLAT = rf"-?(?:{_ATOM})(?:[-+*](?:{_ATOM}))*"
_TERM = re.compile(rf"([-+*]?)(?:\(({_FLAT})\)|({_ATOM}))")
_EXPRESSION = re.compile(rf"-?(?:{_ATOM}|\({_FLAT}\))(?:[-+*](?:{_ATOM}|\({_FLAT}\)))*")
_RESULT = re.compile(rf"-?{_NUMBER}|-?{_FACTOR}(?:[-+]{_NUMBER})?|-?{_NUMBER}[-+]{_FACTOR}")
_DIGITS = re.compile(r"[0-9]+")


class Part(NamedTuple):
    """One expression of a chain."""

    expression: Expression
    letters: tuple[str, ...]
    """Its letters, in order, repeats included."""
    operands: tuple[Form, ...]
    """Its operands that are numbers, sorted; a bracket of numbers is one."""
    operators: frozenset[str]
    form: Form | None
    """Its value; None where it has letters or is not linear."""
    result: bool
    """Whether its text is a number or a linear form."""
    residue: bool
    """Whether all its numbers are residues; always without a modulus."""


class Step(NamedTuple):
    """One step."""

    name: str
    """The letter that it defines or values; empty for an equation, as at the end of reverse solutions."""
    named: Part | None
    """The first expression with letters: the definition."""
    letters: frozenset[str]
    """All letters of its expressions."""
    worked: Part | None
    """The first expression of numbers, except the value, with two operands or more: the definition with values substituted."""
    value: Form | None
    """The end of the chain, if it is a number or a linear form."""
    numbers: tuple[Form | None, ...]
    """The forms of all expressions without letters."""
    sound: bool
    """Whether all expressions of numbers in the chain are equal, and with a modulus the value is written as a residue."""


def split_steps(completion: str) -> tuple[list[str], str | None]:
    """The texts of the steps, and the text after the first answer mark, None if there is no mark."""
    body, mark, answer = completion.partition(ANSWER)
    return body.replace(SECTION, STEP).split(STEP), answer.strip() if mark else None


def parse_step(text: str, modulus: int | None) -> Step | None:
    """The step of a text, or None if it is no step."""
    return parse_step_cached(text, modulus) if 0 < len(text) <= _LONGEST else None


@lru_cache(maxsize=1 << 15)
def parse_step_cached(text: str, modulus: int | None) -> Step | None:
    """`parse_step` for a text that is neither empty nor too long."""
    name, chain = (text[0], text[1:].removeprefix(EQUALS)) if text[0] in LETTERS else ("", text)
    parts: list[Part] = []
    for piece in chain.split(EQUALS):
        part = parse_part(piece, modulus)
        if part is None:
            return None
        parts.append(part)
    last = parts[-1]
    named = [part for part in parts if part.letters]
    numbers = [part for part in parts if not part.letters]
    worked = [part for part in numbers if len(part.operands) > 1 and not (part is last and last.result)]
    forms = tuple([part.form for part in numbers])
    return Step(
        name=name,
        named=named[0] if named else None,
        letters=frozenset([letter for part in named for letter in part.letters]),
        worked=worked[0] if worked else None,
        value=last.form if last.result else None,
        numbers=forms,
        sound=None not in forms and len(set(forms)) < 2 and (last.residue or not last.result),
    )


@lru_cache(maxsize=1 << 15)
def parse_part(text: str, modulus: int | None) -> Part | None:
    """The expression of a text, or None if it is no expression."""
    if not _EXPRESSION.fullmatch(text):
        return None
    expression = tuple([(sign or "+", _parsed_operand(bracket, atom)) for sign, bracket, atom in _TERM.findall(text)])
    operands = [form for _, operand in expression if (form := operand_form(operand, {}, modulus)) is not None]
    signs = {sign for sign, _ in expression[1:]} | ({"-"} if text[0] == "-" else set())
    return Part(
        expression=expression,
        letters=tuple([character for character in text if character in LETTERS]),
        operands=tuple(sorted([reduce_form(form, modulus) for form in operands])),
        operators=frozenset(signs),
        form=evaluate(expression, {}, modulus),
        result=_RESULT.fullmatch(text) is not None,
        residue=not modulus or ("-" not in text and all(int(digits) < modulus for digits in _DIGITS.findall(text))),
    )


def _parsed_operand(bracket: str, atom: str) -> Operand:
    if bracket:
        return Bracket(tuple([(sign or "+", _atom(inner)) for sign, _, inner in _TERM.findall(bracket)]))
    return _atom(atom)


def _atom(text: str) -> Form | str:
    if text.isalpha():
        return text
    if text.endswith(UNKNOWN):
        return (int(text[:-1] or 1), 0)
    return (0, int(text))


def evaluate(expression: Expression, values: dict[str, Form], modulus: int | None) -> Form | None:
    """The linear form of an expression; None where a letter has no value or a product is not linear."""
    total: Form = (0, 0)
    term: Form = (0, 0)
    for operator, operand in expression:
        form = operand_form(operand, values, modulus)
        if form is None:
            return None
        if operator == "*":
            if term[0] and form[0]:
                return None
            term = (term[0] * form[1] + form[0] * term[1], term[1] * form[1])
        else:
            total = (total[0] + term[0], total[1] + term[1])
            term = form if operator == "+" else (-form[0], -form[1])
    return reduce_form((total[0] + term[0], total[1] + term[1]), modulus)


def operand_form(operand: Operand, values: dict[str, Form], modulus: int | None) -> Form | None:
    """The linear form of an operand; None where it has none."""
    if isinstance(operand, str):
        return values.get(operand)
    if isinstance(operand, Bracket):
        return evaluate(operand.inside, values, modulus)
    return operand


def reduce_form(form: Form, modulus: int | None) -> Form:
    """The form with residues for coefficients."""
    return (form[0] % modulus, form[1] % modulus) if modulus else form


# The graph that a solution states, of either surface: for each name the operands, operators and numbers of its first definition.


class Definition(NamedTuple):
    """The stated definition of a node."""

    operators: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """Names, in order."""
    numbers: tuple[Form, ...] = ()


Graph = dict[str, Definition]
"""Name -> definition; a name that is read and never defined has an empty one."""


def stated_graph(completion: str, modulus: int | None) -> Graph:
    """The graph that a completion states, right or not; unreadable steps are ignored. The first definition of a name counts, and
    a bare number only where there is none."""
    found: Graph = {}
    for text in split_steps(completion)[0]:
        step = parse_step(text, modulus)
        if step is None or not step.name:
            continue
        if step.named is not None and not (step.name in found and found[step.name].reads):
            found[step.name] = Definition(tuple(sorted(step.named.operators)), step.named.letters, step.named.operands)
        elif step.value is not None and step.name not in found:
            found[step.name] = Definition(numbers=(step.value,))
    return with_all_names(found)


def gold_graph(problem: Problem) -> Graph:
    """The graph that gold solutions state: the necessary nodes."""
    nodes = problem.nodes[: problem.necessary]
    return {node.name: Definition(*_parts(problem, place)) for place, node in enumerate(nodes)}


def with_all_names(graph: Graph) -> Graph:
    """The graph with a node for each name that is read."""
    return {**{name: Definition() for one in graph.values() for name in one.reads}, **graph}


def _parts(problem: Problem, place: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Form, ...]]:
    node = problem.nodes[place]
    reads = tuple(problem.nodes[parent].name for parent in node.parents)
    unknown: Form = (1, 0)
    numbers: tuple[Form, ...] = ((0, node.constant),) if node.constant is not None else () if reads else (unknown,)
    return (node.operator,) if node.operator else (), reads, numbers
