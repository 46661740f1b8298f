r"""Which object of a table is the target? The prompt lists the objects with their attributes; the policy writes `ask(red)`, reads
`yes` or `no`, and boxes a name. A test of asking for hidden attributes, as doctors do (ProMed)."""

import math
import re
from functools import lru_cache
from typing import NamedTuple

from interplay.core.random import draw_sample, stream, stream_key
from interplay.tasks import family, transcripts, verdict
from interplay.tasks.environments.spec import TwentyQuestions
from interplay.tasks.facts.chains import invented_name

ATTRIBUTES = ("red", "big", "old", "soft", "loud", "flat", "warm", "rare")
CALL = re.compile(r"\s*ask\((\w{1,20})\)\s*")
YES, NO = "yes\n", "no\n"


class Problem(NamedTuple):
    """A table and its target."""

    mode: str
    attributes: int
    """How many attributes there are; the first of ATTRIBUTES."""
    objects: tuple[tuple[str, int], ...]
    """Name, and a bit for each attribute that it has, the first one's lowest."""
    target: int
    """Number of the object."""


def generate(task: TwentyQuestions, seed: int, index: int, op: int) -> Problem:
    """`op` objects that differ, and one of them. Keyed by (seed, index, op)."""
    draw = stream("twenty_questions", task.world, seed, index, op, task.attributes, task.names)
    names = draw_sample(draw, list(invented_name(task.names, "twenty_questions", task.world)), op)
    kinds = draw_sample(draw, list(range(2**task.attributes)), op)
    return Problem("questions", task.attributes, tuple(zip(names, kinds, strict=True)), draw() % op)


def ask(problem: Problem, attribute: str) -> str | None:
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


def _candidates(problem: Problem, turns: list[str]) -> list[int]:
    """Numbers of the objects that agree with all replies."""
    left = list(range(len(problem.objects)))
    for call in filter(None, map(CALL.fullmatch, turns)):
        if said := ask(problem, call[1]):
            bit = ATTRIBUTES.index(call[1])
            left = [i for i in left if (problem.objects[i][1] >> bit & 1) == (said == YES)]
    return left


def expert(problem: Problem) -> list[str]:
    """The turns of the best strategy."""
    turns: list[str] = []
    while len(left := _candidates(problem, turns)) > 1:
        kinds = tuple(sorted(problem.objects[i][1] for i in left))
        turns.append(f"ask({ATTRIBUTES[_best(kinds, problem.attributes)[1]]})")
    return [*turns, f"{verdict.BOX}{problem.objects[left[0]][0]}}}"]


def shown_table(problem: Problem) -> str:
    """The prompt. An object without attributes is `plain`."""
    lines = [f"{name}: {' '.join(_has(kind, problem.attributes)) or 'plain'}. " for name, kind in problem.objects]
    return "".join(lines) + "?\n"


def _has(kind: int, attributes: int) -> list[str]:
    return [name for bit, name in enumerate(ATTRIBUTES[:attributes]) if kind >> bit & 1]


def solve(prompt: str, task: TwentyQuestions, replies: family.Replies) -> str:
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


def found_share(problem: Problem, turns: list[str]) -> float:
    """1 where the replies leave one object after at most the worst-case number of questions of the best strategy; lower in
    proportion for more questions; 0 for a guess."""
    if len(_candidates(problem, turns[:-1])) > 1:
        return 0.0
    return min(1.0, depth(tuple(sorted(kind for _, kind in problem.objects)), problem.attributes) / max(len(turns) - 1, 1))


def structure(problem: Problem) -> str:
    """16 hex digits: names and order do not count."""
    kinds = sorted(kind for _, kind in problem.objects)
    return f"{stream_key('twenty_questions', problem.attributes, problem.objects[problem.target][1], *kinds):016x}"


def vocabulary(task: TwentyQuestions) -> list[str]:
    """The pieces of a tokenizer of words."""
    frame = ["ask(", ")", ": ", ". ", " ", "plain", "?\n", YES, NO, transcripts.BROKEN, verdict.BOX, "}"]
    return [*frame, *ATTRIBUTES[: task.attributes], *invented_name(task.names, "twenty_questions", task.world)]


TWENTY_QUESTIONS = transcripts.tool_environment(
    CALL,
    ask,
    prompt=shown_table,
    answer=lambda problem: problem.objects[problem.target][0],
    found_share=found_share,
    name="twenty_questions",
    generate=generate,
    solve=solve,
    loads=family.from_json(Problem),
    structure=structure,
    vocabulary=vocabulary,
    expert=expert,
)
