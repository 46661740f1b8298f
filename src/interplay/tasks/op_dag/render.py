"""The terse surface: every token a single character.

A prompt is definitions separated by commas, dots strewn between them, and the question:
`s0,a6,..ca*b,.ba+3?c|` asks the value of c; `s0,a_,ca*b,ba+3?c=4|` says that c is 4 and asks the unknown, which stands as `_`.
A goal_first solution unfolds the goal, `ca*b,ba+3,a6|`, evaluates upwards, `a6,b6+3=2,c6*2=5`, and answers, `#5`. A leaf_first
solution writes each node once, `a6,ba+3=6+3=2,ca*b=6*2=5#5`. In reverse mode the values are linear forms, in brackets where they
are operands of more than one term, and the equation comes before the answer: `a_,b_+3=_+3,c(_+3)*2=2_+6|2_+6=4,2_=5#6`.
"""

from typing import NamedTuple

from interplay.tasks.op_dag.graph import REVERSE, Form, Node, Problem, forms, unfolding
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


class Rendered(NamedTuple):
    """What the model reads and what it should write. The prompt ends where the solution begins; the solution ends in the
    answer."""

    prompt: str
    solution: str
    answer: str


def alphabet(task: OpDag) -> str:
    """All characters that prompts and solutions of the task may hold in any of its contexts, in a fixed order. Modes and
    operators do not alter it, so that models trained on different mixes of them share a vocabulary."""
    signs = STEP + SECTION + ASK + EQUALS + ANSWER + UNKNOWN + FILLER + OPEN_BRACKET + CLOSE_BRACKET + "+-*0123456789"
    return signs + LETTERS[: task.letters * task.contexts]


def names(task: OpDag) -> str:
    """The letters that name nodes in the task's own context."""
    return LETTERS[task.letters * task.context : task.letters * (task.context + 1)]


def vocabulary(task: OpDag) -> list[str]:
    """The pieces of a tokenizer of words: the alphabet's characters, since nothing here is longer."""
    return list(alphabet(task))


class Sentences(NamedTuple):
    """The texts that solutions are made of. Definitions are of all nodes, the others of the necessary ones, each in the nodes'
    order."""

    definitions: list[str]
    evaluations: list[str]
    """Values put into the definition, and the result."""
    whole: list[str]
    """Definition, values put in, and result in one chain."""
    equations: list[str]
    """What a reverse solution solves in the end; empty in forward mode."""


def sentences(problem: Problem) -> Sentences:
    """All gold sentences of a problem. The order of operands is that of the prompt, so that a definition is copied as it
    stands."""
    names = [node.name for node in problem.nodes]
    definitions = [name + _expression(node, names) for name, node in zip(names, problem.nodes, strict=True)]
    values = forms(problem)
    reverse = problem.mode == REVERSE
    results = [show(form) for form in values]
    operands = [_operand(form) for form in values] if reverse else results
    evaluations, whole = [], []
    for node, definition, result in zip(problem.nodes, definitions, results, strict=False):
        worked = f"{_expression(node, operands)}{EQUALS}{result}" if node.operator else result
        evaluations.append(node.name + worked)
        whole.append(f"{definition}{EQUALS}{worked}" if node.parents else definition)
    equations = _equations(values[-1], problem.values[-1], problem.modulus) if reverse else []
    return Sentences(definitions, evaluations, whole, equations)


def render(problem: Problem, task: OpDag) -> Rendered:
    """Prompt, gold solution in the task's trace order, and answer."""
    texts = sentences(problem)
    order = unfolding(problem)
    if task.trace == "leaf_first":
        sections = [[texts.whole[place] for place in reversed(order)]]
    else:
        sections = [[texts.definitions[place] for place in order], [texts.evaluations[place] for place in reversed(order)]]
    if texts.equations:
        sections.append(texts.equations)
    solution = SECTION.join([STEP.join(section) for section in sections])
    answer = str(problem.answer)
    return Rendered(_prompt(problem, texts.definitions), solution + ANSWER + answer, answer)


def show(form: Form) -> str:
    """A linear form: `3`, `_`, `2_`, `2_+3`, `-_-4`."""
    slope, constant = form
    if not slope:
        return str(constant)
    term = UNKNOWN if slope == 1 else f"-{UNKNOWN}" if slope == -1 else f"{slope}{UNKNOWN}"
    return f"{term}{constant:+d}" if constant else term


def _operand(form: Form) -> str:
    """A form as an operand: in brackets where it has two terms or a sign."""
    text = show(form)
    return text if (not form[0] or not form[1]) and text[0] != "-" else OPEN_BRACKET + text + CLOSE_BRACKET


def _expression(node: Node, operands: list[str]) -> str:
    terms = [operands[parent] for parent in node.parents]
    if node.constant is not None:
        terms.append(str(node.constant))
    return node.operator.join(terms) or UNKNOWN


def _prompt(problem: Problem, texts: list[str]) -> str:
    if any(problem.filler):
        shown = [texts[place] + FILLER * dots for place, dots in zip(problem.order, problem.filler[1:], strict=True)]
        definitions = FILLER * problem.filler[0] + STEP.join(shown)
    else:
        definitions = STEP.join([texts[place] for place in problem.order])
    given = f"{EQUALS}{problem.values[-1]}" if problem.mode == REVERSE else ""
    return f"{definitions}{ASK}{problem.nodes[problem.goal].name}{given}{SECTION}"


def _equations(form: Form, value: int, modulus: int | None) -> list[str]:
    """The goal's form equals its given value; then, where both a factor and an addend must go, the addend goes first."""
    slope, constant = form
    lines = [f"{show(form)}{EQUALS}{value}"]
    if slope != 1 and constant:
        rest = value - constant
        lines.append(f"{show((slope, 0))}{EQUALS}{rest % modulus if modulus else rest}")
    return lines
