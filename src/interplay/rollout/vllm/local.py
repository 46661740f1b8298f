"""vLLM in this process."""

import os
from pathlib import Path
from typing import Any

import torch

from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.model.decoder import Decoder
from interplay.rollout.request import Request, Rollouts, Sampling
from interplay.rollout.vllm import asking

REMEDY = "on a CPU, builds for CUDA of torchvision, torchaudio and torchcodec break it: pip uninstall them"


class Local:
    """Samples from the present weights of `decoder`, whose folder vLLM loads once and whose changes it is handed."""

    def __init__(self, decoder: Decoder, source: Path, how: Run, dtype: torch.dtype) -> None:
        given = asking.arguments(decoder, source, how, dtype)
        asking.environment()
        self.fresh = asking.Freshness(decoder)
        self.llm = _started(given)
        self.most = self.llm.llm_engine.model_config.max_model_len

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests; the same requests give the same samples as `native` does, up to rounding."""
        from vllm import SamplingParams

        asking.check_lengths(requests, sampling, self.most)
        if self.fresh.stale():
            self.llm.collective_rpc("take", args=(self.fresh.weights(),))
            # What was cached of a prompt is of the old weights.
            if not self.llm.reset_prefix_cache():
                raise RuntimeError("vLLM keeps cached prompts of old weights")
        each = [(r, r.first + i) for r in requests for i in range(r.count)]
        prompts = [{"prompt_token_ids": request.prompt} for request, _ in each]
        wanted = [SamplingParams(**asking.params(sampling, request, sample), flat_logprobs=True) for request, sample in each]
        with torch.random.fork_rng():  # vLLM draws from torch's own stream, which the trainer saves
            made = [output.outputs[0] for output in self.llm.generate(prompts, wanted, use_tqdm=False)]
        answers = [asking.Answer(list(one.token_ids), list(one.logprobs.logprobs)) for one in made]
        return asking.rollouts(requests, answers, sampling)

    def close(self) -> None:
        """Let go of its memory."""
        del self.llm


def _started(given: dict[str, Any]) -> Any:
    """vLLM's `LLM`, with what its start changes in this process put back: the trainer's random streams and threads."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        from vllm import LLM  # takes seconds
    except (ImportError, RuntimeError) as error:
        raise UserError(f"engine = 'vllm': cannot be imported ({error}); {REMEDY}") from None
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads
    with torch.random.fork_rng():
        llm = LLM(**given)
    torch.set_num_threads = set_threads
    torch.set_num_threads(threads)
    return llm
