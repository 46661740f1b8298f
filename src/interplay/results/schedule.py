"""How long a plan takes on so many GPUs: its estimated times dealt out as a scheduler would, a stage as soon as its inputs are
made and GPUs for it are free, those that became ready first before others."""

import heapq
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from interplay.core.artifact import split_ref
from interplay.core.model import UserError
from interplay.results.estimate import Estimate
from interplay.study.plan import Plan


class Schedule(NamedTuple):
    """The unfinished stages on a number of GPUs."""

    gpus: int
    hours: float
    """From the first stage's start to the last one's end."""
    busy: float
    """Share of the GPU-hours in between in which a stage held a GPU."""


def on_gpus(plan: Plan, made: Estimate, gpus: int, wait: float = 0.0) -> Schedule:
    """Stages without GPUs start as soon as they can; each stage takes `wait` seconds more, for queues and polls, while its GPUs
    stand idle. Raises UserError where a stage needs more GPUs than there are."""
    asked = {digest: plan.stages[digest].run.gpus for digest in made.times}
    if widest := [digest for digest, many in asked.items() if many > gpus]:
        stage = plan.stages[widest[0]]
        raise UserError(f"--gpus {gpus}: {stage.label} ({stage.kind}) needs {asked[widest[0]]}; name as many at least")
    open_inputs, users = _graph(plan, made)
    ready = deque(digest for digest, count in open_inputs.items() if not count)
    running: list[tuple[float, str]] = []
    now, free = 0.0, gpus
    while ready or running:
        waiting: deque[str] = deque()
        for digest in ready:
            if asked[digest] <= free:
                free -= asked[digest]
                heapq.heappush(running, (now + wait + made.times[digest].seconds, digest))
            else:
                waiting.append(digest)
        now, done = heapq.heappop(running)
        free += asked[done]
        for user in users.get(done, ()):
            open_inputs[user] -= 1
            if not open_inputs[user]:
                waiting.append(user)
        ready = waiting
    held = sum(asked[digest] * time.seconds for digest, time in made.times.items())
    return Schedule(gpus, now / 3600, held / (gpus * now) if now else 0.0)


def _graph(plan: Plan, made: Estimate) -> tuple[dict[str, int], Mapping[str, list[str]]]:
    """Of the unfinished stages: how many unfinished inputs each waits for, and who waits for it."""
    open_inputs: dict[str, int] = {}
    users: dict[str, list[str]] = {}
    for digest in made.times:
        inputs = {split_ref(dep)[0] for dep in plan.stages[digest].deps.values()} & made.times.keys()
        open_inputs[digest] = len(inputs)
        for one in inputs:
            users.setdefault(one, []).append(digest)
    return open_inputs, users
