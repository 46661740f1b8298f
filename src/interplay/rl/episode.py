"""What an episode is asked for."""

from collections import Counter
from collections.abc import Sequence

from interplay.rollout.request import Request


def requests(prompts: Sequence[list[int]], keys: Sequence[int], counts: Sequence[int], seen: Counter[int]) -> list[Request]:
    """One request per prompt (tokens), known to the sampling noise by its key.

    `seen` counts the samples that each key had in this step and is brought up to date: a prompt drawn twice gets new samples."""
    made = []
    for prompt, key, count in zip(prompts, keys, counts, strict=True):
        made.append(Request(prompt=prompt, key=key, first=seen[key], count=count))
        seen[key] += count
    return made
