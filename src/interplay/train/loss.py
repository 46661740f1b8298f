"""The training loss of a batch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.data.batches import Batch
from interplay.model.decoder import Decoder


def token_losses(model: Decoder, batch: Batch, dtype: torch.dtype) -> Tensor:
    """Cross-entropy of each token of a batch that bears loss, (M,) float32, in nats. Logits are made for those places only."""
    hidden = model.hidden(batch.ids, batch.positions, batch.segments, dtype)
    return F.cross_entropy(model.logits(hidden.flatten(0, 1).index_select(0, batch.before)), batch.targets, reduction="none")
