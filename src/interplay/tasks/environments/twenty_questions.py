r"""Which object of a table is meant? The prompt lists the objects with their attributes; the policy writes `ask(red)`, reads
`yes` or `no`, and boxes a name. A test by hidden attributes, as of asking doctors (ProMed)."""

import json
import math
import re
from functools import lru_cache
from typing import NamedTuple

from interplay.core.random import stream_key
from interplay.tasks.environments.games import Rendered, Replies, Reply, ended, transcript, worth
from interplay.tasks.environments.spec import TwentyQuestions
from interplay.tasks.facts import invented_name
from interplay.tasks.op_dag.graph import draw_sample, stream
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, Verdict

ATTRIBUTES = ("red", "big", "old", "soft", "loud", "flat", "warm", "rare")
CALL = re.compile(r"\s*ask\((\w{1,20})\)\s*")
YES, NO, BROKEN = "yes\n", "no\n", "error\n"


class Problem(NamedTuple):
    """A table and the object that is meant."""

    mode: str
    attributes: int
    """How many attributes there are; the first of ATTRIBUTES."""
    objects: tuple[tuple[str, int], ...]
    """Name, and a bit for each attribute that it has, the first one's lowest."""
    meant: int
    """Number of the object."""


def generate(task: TwentyQuestions, seed: int, index: int, op: int) -> Problem:
    """`op` objects that differ, and one of them. Keyed by (seed, index, op)."""
    draw = stream("twenty_questions", task.world, seed, index, op, task.attributes, task.names)
    names = draw_sample(draw, list(invented_name(task.names, "twenty_questions", task.world)), op)
    kinds = draw_sample(draw, list(range(2**task.attributes)), op)
    return Problem("questions", task.attributes, tuple(zip(names, kinds, strict=True)), draw() % op)


def reply(problem: Problem, said: list[str]) -> Reply:
    """Whether the object that is meant has the attribute; a box ends the episode."""
    if ended(said[-1]):
        return Reply("", True)
    call = CALL.fullmatch(said[-1])
    if not call or call[1] not in ATTRIBUTES[: problem.attributes]:
        return Reply(BROKEN, False)
    return Reply(YES if problem.objects[problem.meant][1] >> ATTRIBUTES.index(call[1]) & 1 else NO, False)


@lru_cache(maxsize=1 << 16)
def depth(kinds: tuple[int, ...], attributes: int) -> int:
    """Questions that the best strategy needs at worst to tell objects of these kinds apart; they differ."""
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


def _left(problem: Problem, said: list[str]) -> list[int]:
    """Numbers of the objects that the replies leave."""
    left = list(range(len(problem.objects)))
    for number, turn in enumerate(said):
        call = CALL.fullmatch(turn)
        told = reply(problem, said[: number + 1]).text
        if call and told in (YES, NO):
            bit = ATTRIBUTES.index(call[1])
            left = [i for i in left if (problem.objects[i][1] >> bit & 1) == (told == YES)]
    return left


def expert(problem: Problem) -> list[str]:
    """The turns of the best strategy."""
    turns: list[str] = []
    while len(left := _left(problem, turns)) > 1:
        kinds = tuple(sorted(problem.objects[i][1] for i in left))
        turns.append(f"ask({ATTRIBUTES[_best(kinds, problem.attributes)[1]]})")
    return [*turns, f"{BOX}{problem.objects[left[0]][0]}}}"]


def render(problem: Problem, task: TwentyQuestions) -> Rendered:
    """The table, the expert's transcript, the name. An object without attributes is `plain`."""
    told = transcript(expert(problem), lambda said: reply(problem, said))
    lines = [f"{name}: {' '.join(_has(kind, problem.attributes)) or 'plain'}. " for name, kind in problem.objects]
    return Rendered("".join(lines) + "?\n", told, problem.objects[problem.meant][0])


def _has(kind: int, attributes: int) -> list[str]:
    return [name for bit, name in enumerate(ATTRIBUTES[:attributes]) if kind >> bit & 1]


def solve(prompt: str, task: TwentyQuestions, ask: Replies) -> str:
    """The name by asking for every attribute, knowing nothing but the prompt. Raises ValueError where it is no prompt."""
    lines = [line.partition(": ") for line in prompt.removesuffix(". ?\n").split(". ")]
    turns: list[str] = []
    has = set()
    for name in ATTRIBUTES[: task.attributes]:
        turns.append(f"ask({name})")
        if ask(turns).text == YES:
            has.add(name)
    found = [name for name, _, words in lines if set(words.split()) - {"plain"} == has]
    if len(found) != 1:
        raise ValueError(f"not a prompt of twenty_questions: {prompt!r}")
    return found[0]


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Right: the last turn boxes the name. Found out: 1 where the replies leave one object and as few questions were asked as the
    best strategy needs at worst; less by the share of further ones; 0 for a guess. See tasks.environments.games.worth."""

    def earned(turns: list[str]) -> float:
        asked = len(turns) - 1
        if len(_left(problem, turns[:-1])) > 1:
            return 0.0
        return min(1.0, depth(tuple(sorted(kind for _, kind in problem.objects)), problem.attributes) / max(asked, 1))

    return worth(completion, lambda said: reply(problem, said), problem.objects[problem.meant][0], earned)


def structure(problem: Problem) -> str:
    """16 hex digits: names and order do not count."""
    kinds = sorted(kind for _, kind in problem.objects)
    return f"{stream_key('twenty_questions', problem.attributes, problem.objects[problem.meant][1], *kinds):016x}"


def shared(problem: Problem) -> bool:
    """No problem belongs to every split."""
    return False


def dumps(problem: Problem) -> str:
    """JSON, one line."""
    return json.dumps(problem, separators=(",", ":"))


def loads(text: str) -> Problem:
    """The problem that `dumps` wrote."""
    mode, attributes, objects, meant = json.loads(text)
    return Problem(mode, attributes, tuple((name, kind) for name, kind in objects), meant)


def alphabet(task: TwentyQuestions) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task)))))


def vocabulary(task: TwentyQuestions) -> list[str]:
    """The pieces of a tokenizer of words."""
    frame = ["ask(", ")", ": ", ". ", " ", "plain", "?\n", YES, NO, BROKEN, BOX, "}"]
    return [*frame, *ATTRIBUTES[: task.attributes], *invented_name(task.names, "twenty_questions", task.world)]
