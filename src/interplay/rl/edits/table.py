"""The tables of edits, by the `name` of their spec. An edit acts before advantages are known or after.

Before: `(spec, batch, draw, pad_token, advantage) -> batch`: it may drop rows, and add rows with `draw(m)`, which samples and
scores the groups of m fresh prompts; `advantage` is the spec of what will judge them.

After: `(spec, batch, advantage, bears, progress, entropy) -> (batch, advantage, bears)`: it may drop rows, change advantages
(N,T) and say which tokens bear loss (N,T) bool; those that do not are in no mean of the loss either. `progress` is 0 at the
first step and 1 at the last; `entropy(batch)` gives the policy's at each token, (N,T), at the price of a forward pass: rollouts
know only the log-probabilities of the tokens they drew."""

from collections.abc import Callable, Sequence

from torch import Tensor

from interplay.rl.batch import Batch
from interplay.rl.edits.d3s import d3s
from interplay.rl.edits.dynamic_sampling import Draw, dynamic_sampling
from interplay.schema.advantage import Advantage
from interplay.schema.edit import Edit

BEFORE: dict[str, Callable[..., Batch]] = {"dynamic_sampling": dynamic_sampling}
AFTER: dict[str, Callable[..., tuple[Batch, Tensor, Tensor]]] = {"d3s": d3s}


def before(specs: Sequence[Edit], batch: Batch, draw: Draw, pad_token: int, advantage: Advantage) -> Batch:
    """The edits of the method that act on the batch as it was drawn, in order."""
    for spec in specs:
        if spec.name in BEFORE:
            batch = BEFORE[spec.name](spec, batch, draw, pad_token, advantage)
    return batch


def after(
    specs: Sequence[Edit], batch: Batch, advantage: Tensor, bears: Tensor, progress: float, entropy: Callable[[Batch], Tensor]
) -> tuple[Batch, Tensor, Tensor]:
    """The edits of the method that act on a batch with its advantages, in order."""
    for spec in specs:
        if spec.name in AFTER:
            batch, advantage, bears = AFTER[spec.name](spec, batch, advantage, bears, progress, entropy)
    return batch, advantage, bears
