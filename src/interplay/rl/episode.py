"""Episode seam: how the policy acts on prompts. `(spec, engine, requests, sampling) -> Rollouts`."""

from collections import Counter
from collections.abc import Callable, Sequence

from interplay.rollout.engine import Engine
from interplay.rollout.request import Request, Rollouts, Sampling
from interplay.schema.rl import CompletionEpisode


def requests(prompts: Sequence[list[int]], keys: Sequence[int], counts: Sequence[int], seen: Counter[int]) -> list[Request]:
    """One request per prompt (tokens), known to the sampling noise by its key.

    `seen` counts the samples that each key had in this step and is brought up to date: a prompt drawn twice gets new samples."""
    made = []
    for prompt, key, count in zip(prompts, keys, counts, strict=True):
        made.append(Request(prompt=prompt, key=key, first=seen[key], count=count))
        seen[key] += count
    return made


def completion(spec: CompletionEpisode, engine: Engine, asked: list[Request], sampling: Sampling) -> Rollouts:
    """One completion per sample, one turn."""
    return engine.generate(asked, sampling)


MEMBERS: dict[str, Callable[..., Rollouts]] = {"completion": completion}


def episode(spec: CompletionEpisode, engine: Engine, asked: list[Request], sampling: Sampling) -> Rollouts:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, engine, asked, sampling)
