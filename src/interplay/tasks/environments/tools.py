r"""Environments with a tool.

`calculator`: the prompt is an expression, `(12-5)*7?`; the policy writes `calc(12-5)` and reads `7`, and boxes the
value in the end, `\boxed{49}`. The tool has a parser of its own: nothing that a model writes is ever evaluated as code.

`bios_search`: the prompt is a question, `Who is the boss of the mother of Ada?`; the policy writes `look(Ada)`, reads all facts
about Ada, `Ada's mother is Bea. Ada's city is Rom.`, and boxes the end of the chain.

`self_search`: searching one's own memory (SSRL, arXiv:2508.10874). The question is about memorised facts; the solution is one
text, `look(Ada)Ada's boss is Bea. Ada's city is Rom.`, a line for each look-up, then `\boxed{Bea}`. Read turn by turn, the same
text is an episode of bios_search, so that a model that writes both sides can be given the real dictionary, which holds all facts
about the people on the question's chain.

`twenty_questions`: which object of a table is the target? The prompt lists the objects with their attributes; the policy writes
`ask(red)`, reads `yes` or `no`, and boxes a name. A test of asking for hidden attributes, as doctors do (ProMed)."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from interplay.core.random import Draw, draw_sample, stream, stream_key
from interplay.tasks import family, spec, transcripts, verdict
from interplay.tasks.environments.spec import BiosSearch, Calculator, SelfSearch, TwentyQuestions
from interplay.tasks.facts import chains, people, questions
from interplay.tasks.facts.chains import invented_name
from interplay.tasks.verdict import BOX, Verdict

ATTRIBUTES = ("red", "big", "old", "soft", "loud", "flat", "warm", "rare")
ASK = re.compile(r"\s*ask\((\w{1,20})\)\s*")
YES, NO = "yes\n", "no\n"


class Table(NamedTuple):
    """A table and its target."""

    mode: str
    attributes: int
    """How many attributes there are; the first of ATTRIBUTES."""
    objects: tuple[tuple[str, int], ...]
    """Name, and a bit for each attribute that it has, the first one's lowest."""
    target: int
    """Number of the object."""


def generate_table(task: TwentyQuestions, seed: int, index: int, op: int) -> Table:
    """`op` objects that differ, and one of them. Keyed by (seed, index, op)."""
    draw = stream("twenty_questions", task.world, seed, index, op, task.attributes, task.names)
    names = draw_sample(draw, list(invented_name(task.names, "twenty_questions", task.world)), op)
    kinds = draw_sample(draw, list(range(2**task.attributes)), op)
    return Table("questions", task.attributes, tuple(zip(names, kinds, strict=True)), draw() % op)


def ask(problem: Table, attribute: str) -> str | None:
    """Whether the target has the attribute; None where there is no such attribute."""
    if attribute not in ATTRIBUTES[: problem.attributes]:
        return None
    return YES if problem.objects[problem.target][1] >> ATTRIBUTES.index(attribute) & 1 else NO


@lru_cache(maxsize=1 << 16)
def depth(kinds: tuple[int, ...], attributes: int) -> int:
    """Worst-case number of questions of the best strategy that identifies one of these kinds, which differ."""
    return _best(kinds, attributes)[0]


def _best(kinds: tuple[int, ...], attributes: int) -> tuple[int, int]:
    """The least depth and the first attribute that has it; of a single object 0, and no attribute (-1)."""
    if len(kinds) < 2:
        return 0, -1
    best = (len(kinds), -1)
    for attribute in range(attributes):
        has = tuple(kind for kind in kinds if kind >> attribute & 1)
        lacks = tuple(kind for kind in kinds if not kind >> attribute & 1)
        if has and lacks and 1 + math.ceil(math.log2(max(len(has), len(lacks)))) < best[0]:
            best = min(best, (1 + max(depth(has, attributes), depth(lacks, attributes)), attribute))
    return best


def _candidates(problem: Table, turns: list[str]) -> list[int]:
    """Numbers of the objects that agree with all replies."""
    left = list(range(len(problem.objects)))
    for call in filter(None, map(ASK.fullmatch, turns)):
        if said := ask(problem, call[1]):
            bit = ATTRIBUTES.index(call[1])
            left = [i for i in left if (problem.objects[i][1] >> bit & 1) == (said == YES)]
    return left


def ask_expert(problem: Table) -> list[str]:
    """The turns of the best strategy."""
    turns: list[str] = []
    while len(left := _candidates(problem, turns)) > 1:
        kinds = tuple(sorted(problem.objects[i][1] for i in left))
        turns.append(f"ask({ATTRIBUTES[_best(kinds, problem.attributes)[1]]})")
    return [*turns, f"{verdict.BOX}{problem.objects[left[0]][0]}}}"]


def shown_table(problem: Table) -> str:
    """The prompt. An object without attributes is `plain`."""
    lines = [f"{name}: {' '.join(_has(kind, problem.attributes)) or 'plain'}. " for name, kind in problem.objects]
    return "".join(lines) + "?\n"


def _has(kind: int, attributes: int) -> list[str]:
    return [name for bit, name in enumerate(ATTRIBUTES[:attributes]) if kind >> bit & 1]


def solve_table(prompt: str, task: TwentyQuestions, replies: family.Replies) -> str:
    """The name by asking for every attribute, from the prompt and the replies alone. Raises ValueError where it is no prompt."""
    lines = [line.partition(": ") for line in prompt.removesuffix(". ?\n").split(". ")]
    turns: list[str] = []
    has = set()
    for name in ATTRIBUTES[: task.attributes]:
        turns.append(f"ask({name})")
        if replies(turns).text == YES:
            has.add(name)
    found = [name for name, _, words in lines if set(words.split()) - {"plain"} == has]
    if len(found) != 1:
        raise ValueError(f"not a prompt of twenty_questions: {prompt!r}")
    return found[0]


def asked_share(problem: Table, turns: list[str]) -> float:
    """1 where the replies leave one object after at most the worst-case number of questions of the best strategy; lower in
    proportion for more questions; 0 for a guess."""
    if len(_candidates(problem, turns[:-1])) > 1:
        return 0.0
    return min(1.0, depth(tuple(sorted(kind for _, kind in problem.objects)), problem.attributes) / max(len(turns) - 1, 1))


def table_structure(problem: Table) -> str:
    """16 hex digits: names and order do not count."""
    kinds = sorted(kind for _, kind in problem.objects)
    return f"{stream_key('twenty_questions', problem.attributes, problem.objects[problem.target][1], *kinds):016x}"


def table_vocabulary(task: TwentyQuestions) -> list[str]:
    """The pieces of a tokenizer of words."""
    frame = ["ask(", ")", ": ", ". ", " ", "plain", "?\n", YES, NO, transcripts.BROKEN, verdict.BOX, "}"]
    return [*frame, *ATTRIBUTES[: task.attributes], *invented_name(task.names, "twenty_questions", task.world)]


TWENTY_QUESTIONS = transcripts.tool_environment(
    "ask",
    ASK,
    ask,
    prompt=shown_table,
    answer=lambda problem: problem.objects[problem.target][0],
    found_share=asked_share,
    name="twenty_questions",
    generate=generate_table,
    solve=solve_table,
    loads=family.from_json(Table),
    structure=table_structure,
    vocabulary=table_vocabulary,
    expert=ask_expert,
)


LONGEST, MOST = 100, 10**18
"""Most characters that the tool reads, and the size from which on it gives no value."""
CALCULATE = re.compile(r"\s*calc\((.*)\)\s*")
TOKEN = re.compile(r"\d{1,18}|[-+*()]")
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class Expression(NamedTuple):
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


def generate_expression(task: Calculator, seed: int, index: int, op: int) -> Expression:
    """The expression of the task at (seed, index) with `op` operators: a random tree, all of whose inner parts are in
    brackets."""
    draw = stream("calculator", seed, index, op, task.operators, task.largest)
    return Expression("calculator", _tree(draw, task, op, True), task.single)


def _tree(draw: Draw, task: Calculator, op: int, top: bool) -> str:
    if not op:
        return str(draw() % (task.largest + 1))
    left = draw() % op
    sides = _tree(draw, task, left, False), _tree(draw, task, op - 1 - left, False)
    whole = task.operators[draw() % len(task.operators)].join(sides)
    return whole if top else f"({whole})"


def calculate(problem: Expression, expression: str) -> str | None:
    """The value of an expression as the tool says it; None where it takes none such."""
    try:
        return f"{value(expression)}\n" if not problem.single or SINGLE.fullmatch(expression) else None
    except ValueError:
        return None


SINGLE = re.compile(r"-?\d+[-+*](?:-?\d+|\(-\d+\))")
"""The input of a tool that takes one operator at a time."""
INNER = re.compile(r"\((-?\d+)([-+*])(-?\d+)\)")
"""A bracket with one operator."""


def calculate_expert(problem: Expression) -> list[str]:
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
    "calc",
    CALCULATE,
    calculate,
    prompt=lambda problem: f"{problem.expression}?\n",
    answer=lambda problem: str(value(problem.expression)),
    name="calculator",
    generate=generate_expression,
    solve=solve_calculation,
    loads=family.from_json(Expression),
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
    "look",
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
