"""Rollouts by several processes: each samples its share of the requests, and all learn what came of every one."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from interplay.optim import ranks
from interplay.rollout.engine import Engine
from interplay.rollout.request import Request, Rollouts, Sampling, join
from interplay.store import worker


class Dealt(NamedTuple):
    """An engine with its like in every process of the stage. Since noise is keyed by what a token is, the completions are those
    of one process, but for what batches of other sizes round otherwise."""

    own: Engine

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests, the same in every process."""
        places = ranks.mine(range(len(requests)))
        made = self.own.generate([requests[i] for i in places], sampling) if places else None
        parts = [ranks.collected(value) for value in _even(made, torch.tensor(places), sampling)]
        each = [Rollouts(*(part[rank] for part in parts)) for rank in range(worker.count())]
        everything = join([one for one in each if len(one.request)], sampling)
        order = everything.request.argsort(stable=True)
        return Rollouts(*(value[order] for value in everything))

    def close(self) -> None:
        """Let go of what the own engine holds."""
        self.own.close()


def dealt(engine: Engine) -> Engine:
    """The engine of a stage, however many processes it has."""
    return Dealt(engine) if worker.count() > 1 else engine


def _even(made: Rollouts | None, places: Tensor, sampling: Sampling) -> Rollouts:
    """What one process made, with the numbers of the requests among all, in arrays as wide as completions may be."""
    longest = sampling.max_completion_length
    if made is None:
        none = torch.zeros(0, dtype=torch.int64)
        return Rollouts(none, none, none.view(0, 1).expand(0, longest), none, torch.zeros(0, longest), none.bool())
    return made._replace(
        request=places[made.request],
        tokens=pad(made.tokens, (0, longest - made.tokens.shape[1]), value=sampling.pad),
        logprobs=pad(made.logprobs, (0, longest - made.logprobs.shape[1])),
    )
