r"""Which object of a table is the target? The prompt lists the objects with their attributes; the policy writes `ask(red)`, reads
`yes` or `no`, and boxes a name. A test of asking for hidden attributes, as doctors do (ProMed)."""

import math
import re
from functools import lru_cache
from typing import NamedTuple

from interplay.core.random import draw_sample, stream, stream_key
from interplay.tasks import family, spec, verdict
from interplay.tasks.environments.spec import TwentyQuestions
from interplay.tasks.facts.chains import invented_name

ATTRIBUTES = ("red", "big", "old", "soft", "loud", "flat", "warm", "rare")
CALL = re.compile(r"\s*ask\((\w{1,20})\)\s*")
YES, NO, BROKEN = "yes\n", "no\n", "error\n"


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


def reply(problem: Problem, turns: list[str]) -> family.Reply:
    """Whether the target has the attribute; a box ends the episode."""
    if family.is_final(turns[-1]):
        return family.Reply("", True)
    call = CALL.fullmatch(turns[-1])
    if not call or call[1] not in ATTRIBUTES[: problem.attributes]:
        return family.Reply(BROKEN, False)
    return family.Reply(YES if problem.objects[problem.target][1] >> ATTRIBUTES.index(call[1]) & 1 else NO, False)


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
    for number, turn in enumerate(turns):
        call = CALL.fullmatch(turn)
        text = reply(problem, turns[: number + 1]).text
        if call and text in (YES, NO):
            bit = ATTRIBUTES.index(call[1])
            left = [i for i in left if (problem.objects[i][1] >> bit & 1) == (text == YES)]
    return left


def expert(problem: Problem) -> list[str]:
    """The turns of the best strategy."""
    turns: list[str] = []
    while len(left := _candidates(problem, turns)) > 1:
        kinds = tuple(sorted(problem.objects[i][1] for i in left))
        turns.append(f"ask({ATTRIBUTES[_best(kinds, problem.attributes)[1]]})")
    return [*turns, f"{verdict.BOX}{problem.objects[left[0]][0]}}}"]


def render(problem: Problem, task: TwentyQuestions) -> family.Rendered:
    """The table, the expert's transcript, the name. An object without attributes is `plain`."""
    played = family.play(expert(problem), lambda turns: reply(problem, turns))
    lines = [f"{name}: {' '.join(_has(kind, problem.attributes)) or 'plain'}. " for name, kind in problem.objects]
    return family.Rendered("".join(lines) + "?\n", played, problem.objects[problem.target][0])


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


def verify(problem: Problem, completion: str, options: spec.Verify) -> verdict.Verdict:
    """Right: the last turn boxes the name (family.judge_transcript). The share of found observations is 1 where the replies
    leave one object after at most the worst-case number of questions of the best strategy; lower in proportion for more
    questions; 0 for a guess."""

    def found_share(turns: list[str]) -> float:
        asked = len(turns) - 1
        if len(_candidates(problem, turns[:-1])) > 1:
            return 0.0
        return min(1.0, depth(tuple(sorted(kind for _, kind in problem.objects)), problem.attributes) / max(asked, 1))

    name = problem.objects[problem.target][0]
    return family.judge_transcript(completion, lambda turns: reply(problem, turns), name, found_share)


def structure(problem: Problem) -> str:
    """16 hex digits: names and order do not count."""
    kinds = sorted(kind for _, kind in problem.objects)
    return f"{stream_key('twenty_questions', problem.attributes, problem.objects[problem.target][1], *kinds):016x}"


def vocabulary(task: TwentyQuestions) -> list[str]:
    """The pieces of a tokenizer of words."""
    frame = ["ask(", ")", ": ", ". ", " ", "plain", "?\n", YES, NO, BROKEN, verdict.BOX, "}"]
    return [*frame, *ATTRIBUTES[: task.attributes], *invented_name(task.names, "twenty_questions", task.world)]


TWENTY_QUESTIONS = family.Environment(
    name="twenty_questions",
    errors=family.TRANSCRIPT_ERRORS,
    generate=generate,
    render=render,
    solve=solve,
    loads=family.from_json(Problem),
    verify=verify,
    structure=structure,
    vocabulary=vocabulary,
    reply=reply,
    expert=expert,
)
