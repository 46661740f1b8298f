r"""Environments with a tool.

`calculator`: the prompt is an expression, `(12-5)*7?`; the policy writes `calc(12-5)` and reads `7`, and boxes the
value in the end, `\boxed{49}`. The tool has a parser of its own: nothing that a model writes is ever evaluated as code.

`bios_search`: the prompt is a question, `Who is the boss of the mother of Ada?`; the policy writes `look(Ada)`, reads all facts
about Ada, `Ada's mother is Bea. Ada's city is Rom.`, and boxes the end of the chain.

`self_search`: searching one's own memory (SSRL, arXiv:2508.10874). The question is about memorised facts; the solution is one
text, `look(Ada)Ada's boss is Bea. Ada's city is Rom.`, a line for each look-up, then `\boxed{Bea}`. Read turn by turn, the same
text is an episode of bios_search, so that a model that writes both sides can be given the real dictionary, which holds all facts
about the people on the question's chain."""

import operator
import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from interplay.core.random import Draw, stream, stream_key
from interplay.tasks import family, spec, transcripts, verdict
from interplay.tasks.environments.spec import BiosSearch, Calculator, SelfSearch
from interplay.tasks.facts import chains, people, questions
from interplay.tasks.verdict import BOX, Verdict

LONGEST, MOST = 100, 10**18
"""Most characters that the tool reads, and the size from which on it gives no value."""
CALCULATE = re.compile(r"\s*calc\((.*)\)\s*")
TOKEN = re.compile(r"\d{1,18}|[-+*()]")
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class Problem(NamedTuple):
    """An expression."""

    mode: str
    expression: str
    single: bool
    """Whether the tool takes one operator at a time."""


def value(text: str) -> int:
    """The value of an expression of integers, + - * and brackets. Raises ValueError for any other text, and where it is too long
    or the value of a part too large."""
    tokens = TOKEN.findall(text)
    if len(text) > LONGEST or "".join(tokens) != text:
        raise ValueError(f"no expression: {text[:LONGEST]!r}")
    tokens.reverse()
    found = _sum(tokens)
    if tokens:
        raise ValueError(f"more than an expression: {text!r}")
    return found


def _sum(tokens: list[str]) -> int:
    """The value of the sum that ends a reversed list of tokens, which is consumed."""
    return _joined(tokens, "+-", _product)


def _product(tokens: list[str]) -> int:
    return _joined(tokens, "*", _factor)


def _joined(tokens: list[str], signs: str, part: Callable[[list[str]], int]) -> int:
    total = part(tokens)
    while tokens and tokens[-1] in signs:
        total = OPERATIONS[tokens.pop()](total, part(tokens))
        if abs(total) >= MOST:
            raise ValueError("too large")
    return total


def _factor(tokens: list[str]) -> int:
    first = tokens.pop() if tokens else "end"
    if first.isdigit():
        return int(first)
    if first == "-":
        return -_factor(tokens)
    if first == "(":
        found = _sum(tokens)
        if tokens and tokens.pop() == ")":
            return found
    raise ValueError(f"unexpected token: {first}")


def generate(task: Calculator, seed: int, index: int, op: int) -> Problem:
    """The expression of the task at (seed, index) with `op` operators: a random tree, all of whose inner parts are in
    brackets."""
    draw = stream("calculator", seed, index, op, task.operators, task.largest)
    return Problem("calculator", _tree(draw, task, op, True), task.single)


def _tree(draw: Draw, task: Calculator, op: int, top: bool) -> str:
    if not op:
        return str(draw() % (task.largest + 1))
    left = draw() % op
    sides = _tree(draw, task, left, False), _tree(draw, task, op - 1 - left, False)
    whole = task.operators[draw() % len(task.operators)].join(sides)
    return whole if top else f"({whole})"


def calculate(problem: Problem, expression: str) -> str | None:
    """The value of an expression as the tool says it; None where it takes none such."""
    try:
        return f"{value(expression)}\n" if not problem.single or SINGLE.fullmatch(expression) else None
    except ValueError:
        return None


SINGLE = re.compile(r"-?\d+[-+*](?:-?\d+|\(-\d+\))")
"""The input of a tool that takes one operator at a time."""
INNER = re.compile(r"\((-?\d+)([-+*])(-?\d+)\)")
"""A bracket with one operator."""


def calculate_expert(problem: Problem) -> list[str]:
    """The turns of an expert who evaluates the first bracket with one operator until none is left."""
    left, turns = f"({problem.expression})", []
    while part := INNER.search(left):
        turns.append(f"calc({part[1]}{part[2]}{part[3]})")
        left = left[: part.start()] + str(value(part[0])) + left[part.end() :]
    return [*turns, f"{verdict.BOX}{left}}}"]


def solve_calculation(prompt: str, task: Calculator, replies: family.Replies) -> str:
    """The value of the expression in a prompt, one operator after the other. Raises ValueError where it is no prompt."""
    left = f"({prompt.removesuffix(chr(10)).removesuffix('?')})"
    while part := INNER.search(left):
        found = OPERATIONS[part[2]](int(part[1]), int(part[3]))
        left = left[: part.start()] + str(found) + left[part.end() :]
    return str(int(left))


CALCULATOR = transcripts.tool_environment(
    CALCULATE,
    calculate,
    prompt=lambda problem: f"{problem.expression}?\n",
    answer=lambda problem: str(value(problem.expression)),
    name="calculator",
    generate=generate,
    solve=solve_calculation,
    loads=family.from_json(Problem),
    structure=lambda problem: f"{stream_key('calculator', problem.expression):016x}",
    # Digits one by one.
    vocabulary=lambda task: ["calc(", ")", "(", verdict.BOX, "}", "error", "\n", "?", "-", *"+*", *"0123456789"],
    expert=calculate_expert,
)


SEARCH = re.compile(r"\s*look\((\w{1,40})\)\s*")
NOTHING_FOUND = "nothing\n"


def look(problem: people.Problem, name: str) -> str:
    """The facts about a person, in the order of the context."""
    each = zip(problem.context, questions.context_sentences(problem), strict=True)
    facts = [text for fact, text in each if fact.subject == name]
    return f"{' '.join(facts)}\n" if facts else NOTHING_FOUND


def search_expert(problem: people.Problem) -> list[str]:
    """The expert's turns: one look-up for each person of the chain, then the answer."""
    return [*(f"look({name})" for name in dict.fromkeys(hop.subject for hop in problem.hops)), f"{BOX}{problem.answer}}}"]


def solve_search(prompt: str, task: BiosSearch | SelfSearch, replies: family.Replies) -> str:
    """The answer by look-ups, from the prompt and the replies alone. Raises ValueError where it is no prompt, or the dictionary
    lacks a fact."""
    asked = questions.QUESTION.fullmatch(prompt)
    if asked is None:
        raise ValueError(f"not a prompt of {task.name}: {prompt!r}")
    here, turns = asked[2], []
    for relation in questions.asked_relations(asked):
        turns.append(f"look({here})")
        found = [fact.object for fact in questions.sentences(replies(turns).text) or [] if fact[:2] == (here, relation)]
        if not found:
            raise ValueError(f"no fact about {relation!r} of {here}")
        here = found[0]
    return here


def found_share(problem: people.Problem, turns: list[str]) -> float:
    """The share of the chain's people that were looked up."""
    looked = {call[1] for turn in turns if (call := SEARCH.fullmatch(turn))}
    needed = {hop.subject for hop in problem.hops}
    return len(needed & looked) / len(needed)


BIOS_SEARCH = transcripts.tool_environment(
    SEARCH,
    look,
    prompt=lambda problem: questions.question(problem).removesuffix("?") + questions.ASKED,
    answer=lambda problem: problem.answer,
    found_share=found_share,
    name="bios_search",
    generate=lambda task, seed, index, op: questions.BIOS.generate(task.bios, seed, index, op),
    solve=solve_search,
    loads=questions.BIOS.loads,
    # Never a key of bios itself.
    structure=lambda problem: f"{stream_key('bios_search', questions.BIOS.structure(problem)):016x}",
    shared=questions.BIOS.shared,
    vocabulary=lambda task: [*questions.BIOS.vocabulary(task.bios), "look(", ")", " ", "\n", transcripts.BROKEN, NOTHING_FOUND],
    expert=search_expert,
)

# Search in memory.


FOUND = re.compile(rf"look\(\w{{1,40}}\)(?:{NOTHING_FOUND}|{transcripts.BROKEN})?")
"""A look-up, and its result where it finds no facts."""
FORM = re.compile(r"(?:look\(\w{1,40}\)[^\n]+\n)+\\boxed\{[^{}\n]*\}")
"""Look-ups, each with what is found, then the answer."""


def generate_memory(task: SelfSearch, seed: int, index: int, op: int) -> people.Problem:
    """A chain of `op` memorised facts; the context is the dictionary."""
    problem, known = questions.BIOS.generate(task.bios, seed, index, op), people.world(task.bios).facts
    subjects = {hop.subject for hop in problem.hops}
    return problem._replace(context=tuple(chains.Fact(*about, there) for about, there in known.items() if about[0] in subjects))


def render_memory(problem: people.Problem, task: SelfSearch) -> family.Rendered:
    """The question without context, the expert's look-ups and what they find as one text, the answer."""
    shown = BIOS_SEARCH.render(problem, task)
    return shown._replace(solution=shown.solution.replace(transcripts.MARK, ""))


def verify_memory(problem: people.Problem, completion: str, options: spec.Verify) -> Verdict:
    """The verdict on a completion, or on the transcript of an episode. The facts found are judged as the steps of bios are
    (tasks.facts.chains.judge), by model or environment. Error `format`: an answer that is not look-ups, each with a result, and
    then the box."""
    text = completion.replace(transcripts.MARK, "")
    verdict = chains.judge(problem.hops, problem.context, text, lambda part: questions.sentences(FOUND.sub(" ", part)), options)
    if verdict.error == "truncated" or FORM.fullmatch(text.strip()):
        return verdict
    return verdict._replace(strict=False, error="format")


SELF_SEARCH = replace(
    BIOS_SEARCH,
    name="self_search",
    errors=(*chains.ERRORS, "format"),
    generate=generate_memory,
    render=render_memory,
    verify=verify_memory,
    structure=lambda problem: f"{stream_key('self_search', questions.BIOS.structure(problem._replace(context=()))):016x}",
)
