"""The published surface (arXiv:2512.07783, appendix; the format of its released data) and its vocabulary."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from interplay.tasks.op_dag.graph import REVERSE, Form
from interplay.tasks.op_dag.render import LETTERS
from interplay.tasks.op_dag_prose.graph import UNKNOWN, Node, Problem, forms
from interplay.tasks.op_dag_prose.spec import OpDagProse, Theme

# The published surface (arXiv:2512.07783, appendix; the format of its released data): one sentence per definition, one per
# step.
#
# A prompt is `<question> The number of adult owl in Pine Ridge equals 2 plus the number of ... . What is the total number of
# adult animals in Pine Ridge? </question> <solution>`. A solution has a sentence per necessary node, in topological order, with
# letters for values: `Define adult owl in Pine Ridge as k; E = b = 3; so k = 2 + E = 2 + 3 = 5.`, sums of three or more folded
# in pairs, and closes with `</solution> <answer> 5 </answer>`. In reverse mode the unknown is `x`, values are linear forms such
# as `2*x + 4`, and the equation is solved before the answer.


QUESTION, QUESTION_END = "<question> ", " </question> <solution>"
SOLUTION_END, ANSWER, ANSWER_END = " </solution>", " <answer> ", " </answer>"
HARD = "The question is difficult, so we use equations to solve it."
UNTOLD = "we don't know its value yet but will find it out later"
EXISTS = "exists, and its number is greater than 0"
SOLVED = "and we solve it through the following steps"


class Rendered(NamedTuple):
    """What the model reads and what it should write. The prompt ends where the solution begins; the solution ends in the
    answer."""

    prompt: str
    solution: str
    answer: str


def render(problem: Problem, task: OpDagProse) -> Rendered:
    """Prompt, gold solution and answer."""
    note = rule(task.theme(problem.theme)) + " " if task.note else ""
    answer = str(problem.answer)
    prompt = f"{QUESTION}{note}{' '.join(told(problem))} {question(problem)}{QUESTION_END}"
    return Rendered(prompt, f" {' '.join(steps(problem))}{SOLUTION_END}{ANSWER}{answer}{ANSWER_END}", answer)


def rule(theme: Theme) -> str:
    """The rule about totals, in words."""
    return (
        f"Note: the total number of {theme.things} in a place is the sum of all types of {theme.things} ever mentioned for that "
        "place; types that are never mentioned for it do not exist there."
    )


def told(problem: Problem) -> list[str]:
    """The sentences of the prompt, in its order."""
    goal = problem.nodes[problem.goal]
    return [
        f"The {_subject(goal)} equals {problem.values[-1]}." if place < 0 else _definition(problem.nodes[place], problem.nodes)
        for place in problem.order
    ]


def question(problem: Problem) -> str:
    """What is asked."""
    node = problem.nodes[0 if problem.mode == REVERSE else problem.goal]
    return f"What is the {node.name}?" if node.total else f"How many {node.thing} does {node.place} have?"


def _subject(node: Node) -> str:
    return node.name if node.total else f"number of {node.name}"


def _definition(node: Node, nodes: tuple[Node, ...]) -> str:
    if not node.parents and node.constant is None:
        return f"The number of {node.name} {EXISTS}."
    reads = [f"the {_subject(nodes[parent])}" for parent in node.parents]
    if not reads:
        body = ""
    elif len(reads) == 1:
        body = reads[0]
    elif len(reads) == 2:
        body = f"the {'difference between' if node.minus else 'sum of'} {reads[0]} and {reads[1]}"
    else:
        body = f"the sum of {', '.join(reads[:-1])}, and {reads[-1]}"
    link = " " if node.operator == "" else " plus " if node.operator == "+" else " times "
    number = "" if node.constant is None else str(node.constant)
    return f"The number of {node.name} equals {(number + link + body).strip()}."


def steps(problem: Problem) -> list[str]:
    """The sentences of the gold solution, without the answer."""
    values = forms(problem)
    free = iter(problem.letters)
    letters: list[str] = []
    found: list[str] = []
    for place, node in enumerate(problem.nodes[: problem.necessary]):
        letter, tail = step(node, letters, values, place, free, problem.mode == REVERSE)
        letters.append(letter)
        found.append(f"Define {node.name} as {letter}; {tail}.")
    return [HARD, *found, *equation(letters[-1], values[-1], problem.values[-1])] if problem.mode == REVERSE else found


def step(
    node: Node, letters: Sequence[str] | Mapping[int, str], values: list[Form], place: int, free: Iterator[str], reverse: bool
) -> tuple[str, str]:
    """The letter of a node and what a solution says of it; `letters` and `values` are those of the nodes before, and `free`
    letters are taken first for intermediate results, then for the node."""
    if node.constant is None and not node.parents:
        return UNKNOWN, UNTOLD
    if not node.parents:
        letter = next(free)
        return letter, f"so {letter} = {node.constant}"
    operands = [(letters[parent], values[parent]) for parent in node.parents]
    clauses = _folded(node, operands, free, reverse)
    letter, text = clauses.pop()
    chain = "".join([f"{own} = {made}; " for own, made in clauses])
    return letter, f"{chain}so {letter} = {text} = {show(values[place])}"


Operand = tuple[str, Form]
"""A letter and its value."""


def _folded(node: Node, operands: list[Operand], free: Iterator[str], reverse: bool) -> list[tuple[str, str]]:
    """Letters and what they are: intermediate results, whose value is told, and last the node itself, whose value is not yet."""
    clauses = []
    total, form = operands[0]
    if len(operands) == 1 and node.constant is None:
        return [(next(free), total)]
    if len(operands) == 1:
        clauses.append((next(free), f"{total} = {show(form)}"))
        total = clauses[-1][0]
    sign = "-" if node.minus else "+"
    for number, (letter, other) in enumerate(operands[1:], start=2):
        left, right = (f"({show(form)})", f"({show(other)})") if node.minus and reverse else (show(form), show(other))
        text = f"{total} {sign} {letter} = {left} {sign} {right}"
        form = (form[0] - other[0], form[1] - other[1]) if node.minus else (form[0] + other[0], form[1] + other[1])
        total = next(free)
        ends = number == len(operands) and node.constant is None
        clauses.append((total, text if ends else f"{text} = {show(form)}"))
    if node.constant is not None:
        constant, sign = str(node.constant), node.operator
        worked = f"({constant}) * ({show(form)})" if reverse and sign == "*" else f"{constant} {sign} {show(form)}"
        clauses.append((next(free), f"{constant} {sign} {total} = {worked}"))
    return clauses


def show(form: Form) -> str:
    """A linear form as released: `3`, `x`, `2*x + 4`, `x - 1`, `4 - 2*x`, `-x`."""
    slope, constant = form
    if not slope:
        return str(constant)
    size = abs(slope)
    term = UNKNOWN if size == 1 else f"{size}*{UNKNOWN}"
    if slope < 0:
        return f"{constant} - {term}" if constant > 0 else f"-{term} - {-constant}" if constant else f"-{term}"
    return f"{term} + {constant}" if constant > 0 else f"{term} - {-constant}" if constant else term


def equation(letter: str, form: Form, value: int) -> list[str]:
    """The goal's form equals its given value, solved as released."""
    slope, constant = form
    whole, rest = f"{show(form)} = {value}", value - constant
    return [
        f"We know {letter} = {value}, so we have {whole} {SOLVED}: Simplifying the equation: {whole}.",
        f"Move all terms to one side: {show((slope, -rest))} = 0.",
        f"Isolate the term with {UNKNOWN}: {slope}*{UNKNOWN} = {rest}.",
        f"Divide both sides by {slope}: {UNKNOWN} = {rest} / {slope}.",
        f"Solution: {UNKNOWN} = {rest // slope}.",
    ]


# The pieces of prompts and solutions, for tokenizers of words and of characters.


_FRAME = (
    QUESTION, QUESTION_END, SOLUTION_END, ANSWER, ANSWER_END, HARD, UNTOLD, SOLVED, EXISTS, "The number of ",
    "The total number of ", "the number of ", "the total number of ", "total number of ", " equals ", " plus ", " times ",
    "the sum of ", "the difference between ", " and ", ", and ", ", ", " in ", ". ", "How many ", " does ", " have?",
    "What is ", "Define ", " as ", "; ", "so ", " = ", " + ", " - ", " * ", " / ", "We know ", ", so we have ",
    ": Simplifying the equation: ", "Move all terms to one side: ", "Isolate the term with ", "Divide both sides by ",
    "Solution: ", ": ",
)  # fmt: skip


def vocabulary(task: OpDagProse) -> list[str]:
    """The pieces of a tokenizer of words: the nouns and the phrases of the sentences; letters and digits stand alone, so that
    every number is spelt. Modes, counts and shares do not alter it, the themes do."""
    themes = [task.theme(name) for name in task.themes]
    nouns = [noun for theme in themes for group in (*theme.places, *theme.types, [theme.things]) for noun in group]
    return [*_FRAME, *dict.fromkeys(nouns), *dict.fromkeys(map(rule, themes))]


def alphabet(task: OpDagProse) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task))) | set("0123456789()-" + LETTERS)))
