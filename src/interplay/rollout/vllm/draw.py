"""Drawing inside vLLM, as a logits processor of its: the very draw that the other engines make, with the same noise.

vLLM's own sampler knows a seed for each request, but its log-probabilities are either at temperature 1 or behind top-p and top-k.
So the processor leaves of each row the one token that it drew, at its log-probability, and minus infinity elsewhere: greedy
decoding takes that token, and `processed_logits` reports that number."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from interplay.rollout.request import draw_tokens, uniform_noise
from interplay.rollout.vllm.asking import NAME, sampling_of


class Row(NamedTuple):
    """A request that decodes."""

    said: dict[str, Any]
    """What `asking.params` said of its sampling."""
    noise: NDArray[np.float64]
    """(T,), by position."""
    written: list[int]
    """Its tokens so far; vLLM's own list, which grows."""


class Draw(LogitsProcessor):
    """Draws the next token of every request."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.rows: dict[int, Row] = {}

    def is_argmax_invariant(self) -> bool:
        """Whether greedy decoding would do the same without."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Learn which requests stand at which rows."""
        process_dict_updates(self.rows, batch_update, _row)

    def apply(self, logits: Tensor) -> Tensor:
        """Logits (N, vocab), row n of the request that stands there -> what is told above. Requests of one batch share their way
        of sampling: an engine has one call at a time."""
        rows = [self.rows[n] for n in range(len(logits)) if n in self.rows]
        if not rows:
            return logits  # vLLM tries out its memory
        noise = np.array([row.noise[min(len(row.written), len(row.noise) - 1)] for row in rows])
        at = torch.tensor(sorted(n for n in self.rows if n < len(logits)), device=logits.device)
        tokens, logprobs = draw_tokens(logits[at].float(), torch.from_numpy(noise).to(logits.device), sampling_of(rows[0].said))
        left = torch.full_like(logits, float("-inf"))
        left[at, tokens] = logprobs.to(left.dtype)
        return left


def _row(params: SamplingParams, prompt: list[int] | None, written: list[int]) -> Row | None:
    said = (params.extra_args or {}).get(NAME)
    if said is None:
        return None
    return Row(said, uniform_noise(said["seed"], [said["key"]], [said["sample"]], said["length"])[0], written)
