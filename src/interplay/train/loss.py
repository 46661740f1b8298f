"""The training loss of a batch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.data.batches import Batch
from interplay.model.decoder import Decoder, attention, forward, rotary, visible_blocks


def token_losses(model: Decoder, batch: Batch, dtype: torch.dtype) -> Tensor:
    """Cross-entropy of each token of a batch that bears loss, (M,) float32, in nats."""
    return F.cross_entropy(target_logits(model, batch, dtype), batch.targets, reduction="none")


def target_logits(model: Decoder, batch: Batch, dtype: torch.dtype) -> Tensor:
    """The logits (M, vocab) float32 from which the tokens of a batch that bear loss are predicted.

    Matrix products run over all tokens at once and attention bucket by bucket; the last MLP and the logits only see places
    that bear loss."""
    blocks = [visible_blocks(None, length, batch.ids.device, dtype) for _, length in batch.buckets]
    sizes = [count * length for count, length in batch.buckets]

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed = []
        for shape, seen, *parts in zip(batch.buckets, blocks, q.split(sizes), k.split(sizes), v.split(sizes), strict=True):
            queries, keys, values = (part.unflatten(0, shape) for part in parts)
            mixed.append(attention(queries, keys, values, seen).flatten(0, 1))
        return torch.cat(mixed)

    rope = rotary(model.shape, batch.positions, dtype)
    hidden = forward(model.shape, model.weights(dtype), batch.ids, rope, attend, batch.before)
    return model.logits(hidden)
