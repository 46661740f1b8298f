"""Problems of the prose surface (arXiv:2512.07783, appendix; the format of its released data), their text and their vocabulary:
one sentence per definition, one per step.

A prompt is `<question> The number of adult owl in Pine Ridge equals 2 plus the number of ... . What is the total number of
adult animals in Pine Ridge? </question> <solution>`. A solution has a sentence per necessary node, in topological order, with
letters for values: `Define adult owl in Pine Ridge as k; E = b = 3; so k = 2 + E = 2 + 3 = 5.`, sums of three or more folded
in pairs, and closes with `</solution> <answer> 5 </answer>`. In reverse mode the unknown is `x`, values are linear forms such
as `2*x + 4`, and the equation is solved before the answer."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from interplay.tasks.family import Rendered, from_json
from interplay.tasks.op_dag.dag import FORWARD, REVERSE, Form, GoldGraph, compiled, forms, mix_hash, restated, structure_key
from interplay.tasks.op_dag.spec import OpDagProse, Theme
from interplay.tasks.op_dag.terse import LETTERS

UNKNOWN = "x"
"""The letter of the unknown in solutions of reverse problems."""
TOTAL = "total number of "
"""The prefix of the things of a place in the name of their total."""


class Node(NamedTuple):
    """One quantity. Without a constant, the sum (or difference) of its parents; with one, the constant plus or times that. The
    unknown has neither parents nor constant."""

    thing: str
    """The counted noun: a type, or `total number of ...`."""
    place: str
    total: bool
    """Whether it is the total of its place, which no sentence defines: its parents are all types that are mentioned there."""
    parents: tuple[int, ...]
    """Places in `Problem.nodes`, all before the node's own."""
    constant: int | None
    operator: str
    """Between the constant and the rest, + or *; empty without a constant or without parents."""
    minus: bool
    """Whether the second of two parents is subtracted from the first."""

    @property
    def name(self) -> str:
        """The full name, such as `adult crow in Bundle Ranch`."""
        return f"{self.thing} in {self.place}"


new_node: Callable[[tuple], Node] = partial(tuple.__new__, Node)
"""A node of its fields, in a third of the time of `Node(...)`: a tenth of the time of a problem."""


class _ProblemFields(NamedTuple):
    mode: str
    """`forward`: the question is about the goal's value. `reverse`: about the value of nodes[0], given the goal's."""
    theme: str
    nodes: tuple[Node, ...]
    necessary: int
    """The number of necessary nodes; those after them are distractors, and totals that only distractors read."""
    values: tuple[int, ...]
    """Value of each necessary node, at the true value of the unknown."""
    slopes: tuple[int, ...]
    """Coefficient of the unknown in each necessary node's linear form; all 0 in forward mode."""
    order: tuple[int, ...]
    """Nodes in the order of their sentences in the prompt, without totals; in reverse mode -1 is the sentence of the goal's
    value."""
    letters: str
    """Letters in the order in which the gold solution uses them."""


class Problem(_ProblemFields, GoldGraph):
    """A problem with its gold graph. Necessary nodes come first in topological order, the goal last among them."""

    __slots__ = ()

    @property
    def modulus(self) -> None:
        """Values are plain integers."""


_REVERSE_LETTERS = LETTERS.replace(UNKNOWN, "")


def solution_letters(mode: str) -> list[str]:
    """The letters that solutions may use for nodes and for intermediate results."""
    return list(LETTERS if mode == FORWARD else _REVERSE_LETTERS)


def dumps(problem: Problem) -> str:
    """The problem as JSON, one line."""
    return json.dumps(problem._asdict(), separators=(",", ":"), ensure_ascii=False)


loads = from_json(Problem)
"""The inverse of `dumps`."""


_OPERATORS = {"": 0, "+": 1, "*": 2}


def structure(problem: Problem) -> str:
    """`structure_in_python`, from compiled code where that covers the problem."""
    key = compiled("structure_key", problem, True)
    return structure_in_python(problem) if key is None else f"{key:016x}"


def structure_in_python(problem: Problem) -> str:
    """16 hex digits, equal for problems that differ in nouns, letters, the order of sentences and of commuting operands
    (op_dag.dag.structure). Totals are nodes that read all types of their place, so that places need no colour."""
    colours, goal = [], problem.goal
    for place, node in enumerate(problem.nodes):
        constant = 0 if node.constant is None else node.constant + 2
        unknown = node.constant is None and not node.parents
        kind = ((_OPERATORS[node.operator] * 2 + node.minus) * 2 + node.total) * 2 + unknown
        colours.append(mix_hash((constant * 64 + kind) * 2 + (place == goal) + 1))
    return structure_key(problem, colours, [node.minus for node in problem.nodes])


# Text.


QUESTION, QUESTION_END = "<question> ", " </question> <solution>"
SOLUTION_END, ANSWER, ANSWER_END = " </solution>", " <answer> ", " </answer>"
HARD = "The question is difficult, so we use equations to solve it."
VALUE_UNKNOWN = "we don't know its value yet but will find it out later"
EXISTS = "exists, and its number is greater than 0"
SOLVED = "and we solve it through the following steps"


def render(problem: Problem, task: OpDagProse) -> Rendered:
    """Prompt, gold solution and answer (`render_in_python`)."""
    note = _note(problem, task)
    found = None if task.length else compiled("render_prose", problem, note)
    return Rendered(found[0], found[1], str(problem.answer)) if found else render_in_python(problem, task)


def _note(problem: Problem, task: OpDagProse) -> str:
    return totals_rule(task.theme(problem.theme)) + " " if task.note else ""


def render_in_python(problem: Problem, task: OpDagProse) -> Rendered:
    """Prompt, gold solution and answer, which prose_text.c writes, too, where the task gives no length."""
    note = _note(problem, task)
    answer = str(problem.answer)
    prompt = f"{QUESTION}{note}{' '.join(prompt_sentences(problem))} {question_text(problem)}{QUESTION_END}"
    sentences, end = solution_sentences(problem), f"{SOLUTION_END}{ANSWER}{answer}{ANSWER_END}"
    if task.length:
        first = int(problem.mode == REVERSE)  # behind HARD, and before the equations
        defined = slice(first, first + problem.necessary)
        sentences[defined] = restated(problem, sentences[defined], 1, len(" ".join(sentences)) + 1 + len(end), task.length)
    return Rendered(prompt, f" {' '.join(sentences)}{end}", answer)


def totals_rule(theme: Theme) -> str:
    """The rule about totals."""
    return (
        f"Note: the total number of {theme.things} in a place is the sum of all types of {theme.things} ever mentioned for that "
        "place; types that are never mentioned for it do not exist there."
    )


def prompt_sentences(problem: Problem) -> list[str]:
    """The sentences of the prompt, in its order."""
    nodes = problem.nodes
    subjects = [f"{node[0]} in {node[1]}" if node[2] else f"number of {node[0]} in {node[1]}" for node in nodes]
    return [
        f"The {subjects[problem.goal]} equals {problem.values[-1]}." if place < 0 else _definition(nodes[place], place, subjects)
        for place in problem.order
    ]


def question_text(problem: Problem) -> str:
    """The question of the prompt."""
    node = problem.nodes[0 if problem.mode == REVERSE else problem.goal]
    return f"What is the {node.name}?" if node.total else f"How many {node.thing} does {node.place} have?"


def _definition(node: Node, place: int, subjects: list[str]) -> str:
    _, _, _, reads, constant, operator, minus = node
    if not reads:
        return f"The {subjects[place]} {EXISTS}." if constant is None else f"The {subjects[place]} equals {constant}."
    if len(reads) == 1:
        body = f"the {subjects[reads[0]]}"
    elif len(reads) == 2:
        joint = "difference between" if minus else "sum of"
        body = f"the {joint} the {subjects[reads[0]]} and the {subjects[reads[1]]}"
    else:
        listed = ", ".join([f"the {subjects[parent]}" for parent in reads[:-1]])
        body = f"the sum of {listed}, and the {subjects[reads[-1]]}"
    if constant is not None:
        body = f"{constant} {'plus' if operator == '+' else 'times'} {body}"
    return f"The {subjects[place]} equals {body}."


def solution_sentences(problem: Problem) -> list[str]:
    """The sentences of the gold solution, without the answer."""
    reverse = problem.mode == REVERSE
    values = forms(problem)
    texts = [form_text(form) for form in values] if reverse else list(map(str, problem.values))
    free = iter(problem.letters)
    letters: list[str] = []
    found: list[str] = []
    for place, node in enumerate(problem.nodes[: problem.necessary]):
        if node[3]:
            letter, tail = _worked(node, letters, values, texts, free, reverse)
            tail = f"{tail} = {texts[place]}"
        elif node[4] is None:
            letter, tail = UNKNOWN, VALUE_UNKNOWN
        else:
            letter = next(free)
            tail = f"so {letter} = {node[4]}"
        letters.append(letter)
        found.append(f"Define {node[0]} in {node[1]} as {letter}; {tail}.")
    return [HARD, *found, *equation_sentences(letters[-1], values[-1], problem.values[-1])] if reverse else found


def _worked(
    node: Node, letters: list[str], values: list[Form], texts: list[str], free: Iterator[str], reverse: bool
) -> tuple[str, str]:
    """The letter of a node with parents, and its sentence after the definition's head, without the value at the end; `letters`,
    `values` and their `texts` are those of earlier nodes, and `free` letters are used first for intermediate results, then for
    the node."""
    _, _, _, reads, constant, operator, minus = node
    total, value = letters[reads[0]], texts[reads[0]]
    chain = ""
    if len(reads) > 1:
        sign, form = "-" if minus else "+", values[reads[0]]
        for number, parent in enumerate(reads[1:], start=2):
            left, right = (f"({value})", f"({texts[parent]})") if minus and reverse else (value, texts[parent])
            own, text = next(free), f"{total} {sign} {letters[parent]} = {left} {sign} {right}"
            if constant is None and number == len(reads):
                return own, f"{chain}so {own} = {text}"
            other = values[parent]
            form = (form[0] - other[0], form[1] - other[1]) if minus else (form[0] + other[0], form[1] + other[1])
            total, value = own, form_text(form)
            chain = f"{chain}{own} = {text} = {value}; "
    elif constant is None:
        own = next(free)
        return own, f"so {own} = {total}"
    else:
        own = next(free)
        total, chain = own, f"{own} = {total} = {value}; "
    own = next(free)
    worked = f"({constant}) * ({value})" if reverse and operator == "*" else f"{constant} {operator} {value}"
    return own, f"{chain}so {own} = {constant} {operator} {total} = {worked}"


def form_text(form: Form) -> str:
    """A linear form as released: `3`, `x`, `2*x + 4`, `x - 1`, `4 - 2*x`, `-x`."""
    slope, constant = form
    if not slope:
        return str(constant)
    size = abs(slope)
    term = UNKNOWN if size == 1 else f"{size}*{UNKNOWN}"
    if slope < 0:
        return f"{constant} - {term}" if constant > 0 else f"-{term} - {-constant}" if constant else f"-{term}"
    return f"{term} + {constant}" if constant > 0 else f"{term} - {-constant}" if constant else term


def equation_sentences(letter: str, form: Form, value: int) -> list[str]:
    """The goal's form equals its given value, solved as released."""
    slope, constant = form
    whole, rest = f"{form_text(form)} = {value}", value - constant
    return [
        f"We know {letter} = {value}, so we have {whole} {SOLVED}: Simplifying the equation: {whole}.",
        f"Move all terms to one side: {form_text((slope, -rest))} = 0.",
        f"Isolate the term with {UNKNOWN}: {slope}*{UNKNOWN} = {rest}.",
        f"Divide both sides by {slope}: {UNKNOWN} = {rest} / {slope}.",
        f"Solution: {UNKNOWN} = {rest // slope}.",
    ]


# The pieces of prompts and solutions, for tokenizers of words and of characters.


_FRAME = (
    QUESTION, QUESTION_END, SOLUTION_END, ANSWER, ANSWER_END, HARD, VALUE_UNKNOWN, SOLVED, EXISTS, "The number of ",
    "The total number of ", "the number of ", "the total number of ", "total number of ", " equals ", " plus ", " times ",
    "the sum of ", "the difference between ", " and ", ", and ", ", ", " in ", ". ", "How many ", " does ", " have?",
    "What is ", "Define ", " as ", "; ", "so ", " = ", " + ", " - ", " * ", " / ", "We know ", ", so we have ",
    ": Simplifying the equation: ", "Move all terms to one side: ", "Isolate the term with ", "Divide both sides by ",
    "Solution: ", ": ",
)  # fmt: skip


def vocabulary(task: OpDagProse) -> list[str]:
    """The pieces of a tokenizer of words: the nouns and the phrases of the sentences; letters and digits are single tokens. It
    depends on the themes, not on modes, counts and shares."""
    themes = [task.theme(name) for name in task.themes]
    nouns = [noun for theme in themes for group in (*theme.places, *theme.types, [theme.things]) for noun in group]
    return [*_FRAME, *dict.fromkeys(nouns), *dict.fromkeys(map(totals_rule, themes))]


def alphabet(task: OpDagProse) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task))) | set("0123456789()-" + LETTERS)))
