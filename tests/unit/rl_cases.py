"""Batches and steps for tests of RL's seams."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from interplay.rl.batch import Batch, Memory, StepContext, seams_of
from interplay.rl.spec import Method
from interplay.tasks.verdict import Verdict

RIGHT = Verdict(True, True, 1.0, "none", 0, 0, 0, 0, 1)
WRONG = Verdict(False, False, 0.0, "value", 0, 0, 0, 0, 1)


def batch_of(rewards: Sequence[float], groups: Sequence[int], lengths: Sequence[int] | None = None, **more: Any) -> Batch:
    """A row for each reward; verdicts follow it, prompts follow the group, and tokens are all 1 unless said otherwise."""
    n = len(rewards)
    long = torch.tensor(lengths or [1] * n)
    width = int(long.max()) if n else 1
    given: dict[str, Any] = {
        "row": torch.arange(n),
        "ids": torch.tensor(groups, dtype=torch.int64),
        "groups": torch.tensor(groups, dtype=torch.int64),
        "prompts": [[1, 2 + group] for group in groups],
        "tokens": torch.ones(n, width, dtype=torch.int64),
        "lengths": long,
        "logprobs": torch.zeros(n, width),
        "truncated": torch.zeros(n, dtype=torch.bool),
        "completions": [""] * n,
        "verdicts": [RIGHT if reward >= 1 else WRONG for reward in rewards],
        "rewards": torch.tensor(rewards, dtype=torch.float64),
        "parts": {},
        **more,
    }
    return Batch(**{"right": torch.tensor([verdict.strict for verdict in given["verdicts"]], dtype=torch.bool), **given})


def now_of(prompts: int = 100, entropy: Tensor | None = None, **more: Any) -> StepContext:
    """A step of a method; `entropy` (N,T) is told of the rows of a batch by their numbers `row`."""
    method = Method(paper="test", **{name: more.pop(name) for name in set(more) & set(Method.model_fields)})
    if entropy is not None:
        more["entropy"] = lambda batch: entropy[batch.row]
    return StepContext(seams_of(method), more.pop("memory", Memory(prompts)), **more)
