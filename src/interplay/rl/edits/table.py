"""The tables of edits, by the `name` of their spec. An edit acts before advantages are known or after.

Before: `(spec, batch, now) -> batch`: it may drop rows, and add rows with `now.draw(m)`.

After: `(spec, batch, advantage, bears, now) -> (batch, advantage, bears)`: it may drop rows, change advantages (N,T) and say
which tokens bear loss (N,T) bool; those that do not are in no mean of the loss either."""

from collections.abc import Callable

from torch import Tensor

from interplay.rl.batch import Batch
from interplay.rl.edits.d3s import d3s
from interplay.rl.edits.dynamic_sampling import dynamic_sampling
from interplay.rl.edits.rows import demonstrated, demonstrations, replay, replayed
from interplay.rl.edits.tokens import gtpo_conflict, information_mask, token_budget, top_entropy, uncertain_tokens
from interplay.rl.now import Now

BEFORE: dict[str, Callable[..., Batch]] = {
    "dynamic_sampling": dynamic_sampling,
    "replay": replay,
    "demonstrations": demonstrations,
}
AFTER: dict[str, Callable[..., tuple[Batch, Tensor, Tensor]]] = {
    "d3s": d3s,
    "token_budget": token_budget,
    "top_entropy": top_entropy,
    "uncertain_tokens": uncertain_tokens,
    "information_mask": information_mask,
    "gtpo_conflict": gtpo_conflict,
    "replay": replayed,
    "demonstrations": demonstrated,
}


def before(batch: Batch, now: Now) -> Batch:
    """The edits of the method that act on the batch as it was drawn, in order."""
    for spec in now.method.edits:
        if spec.name in BEFORE:
            batch = BEFORE[spec.name](spec, batch, now)
    return batch


def after(batch: Batch, advantage: Tensor, bears: Tensor, now: Now) -> tuple[Batch, Tensor, Tensor]:
    """The edits of the method that act on a batch with its advantages, in order."""
    for spec in now.method.edits:
        if spec.name in AFTER:
            batch, advantage, bears = AFTER[spec.name](spec, batch, advantage, bears, now)
    return batch, advantage, bears
