"""Code inside vLLM's processes. In its workers: a logits processor that draws as the other engines do, with the same noise, and
new weights. In its server (`python -m interplay.rollout.vllm_worker ARGUMENTS`): one more way to end.

vLLM's own sampler has a seed for each request, but its log-probabilities are either at temperature 1 or after top-p and top-k.
So the processor leaves in each row only the token that it drew, at its log-probability, and minus infinity elsewhere: greedy
decoding takes that token, and `processed_logits` reports that number."""

import os
import runpy
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from interplay.rollout.request import draw_tokens, uniform_noise
from interplay.rollout.vllm import NAME, sampling_of


class Row(NamedTuple):
    """A request that decodes."""

    said: dict[str, Any]
    """What `vllm.params` said of its sampling."""
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
        """Update which requests are at which rows."""
        process_dict_updates(self.rows, batch_update, _row)

    def apply(self, logits: Tensor) -> Tensor:
        """Logits (N, vocab), row n of the request there -> as described above. Requests of one batch share their way
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


# New weights for a running vLLM: what its worker can do in addition (`worker_extension_cls`).


class Refresh:
    """Mixed into vLLM's worker."""

    model_runner: Any

    def take(self, given: "dict[str, Tensor] | str") -> None:
        """Replace the weights by those given by name, or by those of a safetensors file."""
        weights = safetensors.torch.load_file(given) if isinstance(given, str) else given
        self.model_runner.reload_weights(weights_iterator=iter(weights.items()))
        model = self.model_runner.get_model()
        if model.config.tie_word_embeddings:
            # vLLM reloads the embedding alone. The head shares its tensor, but on a CPU it multiplies by a packed copy.
            model.lm_head.weight = model.model.embed_tokens.weight
            model.lm_head.quant_method.process_weights_after_loading(model.lm_head)


# The server. Its standard input is a pipe whose other end the stage holds and never writes to. When the stage is gone, however it
# went, the pipe is at its end, and the server's whole process group, which is its own, goes too, with the folder of its socket.


def _end_with_the_stage() -> None:
    sys.stdin.buffer.read()
    shutil.rmtree(Path(sys.argv[sys.argv.index("--uds") + 1]).parent, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    # The warning of a time limit, which is for the stage: where it reaches all that a job runs, its default would end the server.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_stage, daemon=True).start()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
