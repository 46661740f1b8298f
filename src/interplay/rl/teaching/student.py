"""Students: forks of one model, each trained by a few steps of the RL loop on a dataset, and asked problems."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from interplay.core.random import stream_key
from interplay.data.sets import Pool
from interplay.data.tokenizer import Special
from interplay.model.decoder import Decoder
from interplay.optim import optimizer
from interplay.rl import loop
from interplay.rl.draw import TrainerState, sample_rollouts
from interplay.rl.requests.first_requests import plain_request
from interplay.rl.samplers.sampler import PromptSource
from interplay.rl.samplers.samplers import build_sampler
from interplay.rl.step_context import Memory, StepContext
from interplay.rl.teaching.spec import TeachSpec
from interplay.rl.update import Learner
from interplay.rollout.engine import Engine
from interplay.tasks.verdict import Row

Weights = dict[str, Tensor]
Lines = list[dict[str, float]]
"""Metrics of each step of RL on a dataset."""


class School(NamedTuple):
    """What students share."""

    spec: TeachSpec
    student: Decoder
    """Takes the weights of whichever student is at hand."""
    reference: Decoder | None
    engine: Engine
    """Samples from `student`."""
    tokenizer: Tokenizer
    special: Special
    files: Path
    """The folder of the tokenizer."""
    micro_batch_tokens: int


def weights(decoder: Decoder) -> Weights:
    """A copy of what a model knows."""
    return {name: parameter.detach().clone() for name, parameter in decoder.named_parameters()}


def become(decoder: Decoder, known: Weights) -> None:
    """Give a model these weights."""
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.copy_(known[name])


def world(school: School, spec: TeachSpec, rows: Sequence[Row], sizes: list[int], mix: list[float]) -> TrainerState:
    """What the RL loop works on, with a memory of its own."""
    return TrainerState(
        spec=spec,
        pool=Pool(list(rows), sizes),
        tokenizer=school.tokenizer,
        special=school.special,
        tokenizer_files=school.files,
        engine=school.engine,
        sampler=build_sampler(
            spec.method.sampler, PromptSource(sizes=sizes, mix=mix, seed=spec.seed, steps=spec.steps, rows=rows)
        ),
        memory=Memory(len(rows)),
    )


def trained(school: School, rows: Sequence[Row], step: int, factor: float) -> Lines:
    """Train the student at hand on the problems of one dataset, with a fresh optimiser at `factor` of its rate. The noise is that
    of the outer `step` for all datasets, so that equal ones have equal students."""
    own = school.spec.model_copy(update={"seed": stream_key(school.spec.seed, "student", step), "steps": school.spec.inner_steps})
    optimizers = optimizer.build_optimizers(own.optimizer, school.student.named_parameters())
    learner = Learner(own, school.student, school.reference, optimizers, school.micro_batch_tokens)
    course, seconds = world(school, own, rows, [len(rows)], [1.0]), defaultdict[str, float](float)
    optimizer.set_lr(optimizers, factor)
    return [loop.stepped(course, learner, number, seconds).metrics for number in range(1, own.steps + 1)]


class Asked(NamedTuple):
    """Completions of some problems by the student at hand."""

    passes: list[int]
    """Of each problem."""
    tokens: int
    """Sampled."""


def ask(school: School, rows: Sequence[Row], n: int, *words: int | str) -> Asked:
    """`n` completions of each problem; equal words, equal noise."""
    if not rows:
        return Asked([], 0)
    spec = school.spec.model_copy(update={"seed": stream_key(school.spec.seed, *words)})
    place = world(school, spec, rows, [len(rows)], [1.0])
    asks = [plain_request(slot, n, row.prompt) for slot, row in enumerate(rows)]
    found = sample_rollouts(place, list(range(len(rows))), asks, StepContext(spec.method, place.memory), Counter()).batch
    passes = [0] * len(rows)
    for i, verdict in zip(found.ids.tolist(), found.verdicts, strict=True):
        passes[i] += verdict.strict if spec.by == "strict" else verdict.answer
    return Asked(passes, int(found.written().sum()))


def probe(spec: TeachSpec, pool: Pool, step: int) -> list[Row]:
    """The hard problems that are asked in an outer step: by the mix, none twice as long as its set has others."""
    deck = PromptSource(sizes=pool.sizes, mix=spec.mix, seed=stream_key(spec.seed, "probe", step))
    count = min(spec.probe_problems, len(pool.rows))
    return [pool.rows[i] for i in build_sampler(spec.method.sampler, deck).select(count, 1)]
