"""How a stage is executed and never hashed: the `run` block, the cores that a stage has beyond it, the rank of this process among
those of the stage, and how it stops on a signal."""

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from interplay.core.model import Count, Model, Natural, NotNegative


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """For work that makes many objects that stay, among which Python would search for garbage again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# The `run` block: how a stage is executed. Never hashed.


class Verl(Model):
    """How `trainer: verl` spreads a stage over its GPUs; names are verl's."""

    strategy: Literal["fsdp2", "fsdp"] = "fsdp2"
    """What shards weights, gradients and optimiser over all GPUs: PyTorch's fully_shard, or the older FSDP."""
    tensor_model_parallel_size: Count = 1
    """GPUs of one machine that share one copy of the model which samples (vLLM)."""
    ulysses_sequence_parallel_size: Count = 1
    """GPUs that share each sequence of a pass: for texts of tens of thousands of tokens. It divides the model's heads."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of a GPU's memory that vLLM takes while it samples."""
    offload: bool = False
    """Keep weights and optimiser in the machine's memory while vLLM samples."""
    save_freq: Count = 10
    """Steps between two checkpoints. verl saves at no other moment: a stage that is stopped loses the steps since."""
    python: str = ""
    """Interpreter of the environment that has verl, whose libraries are not the project's; empty: that of the stage."""


class Run(Model):
    """Resources and execution. With the digest it fixes the bytes of a result on one kind of CPU; it never changes identity."""

    threads: Count = 1
    """CPU threads of each process: Snakemake reserves them, torch and OpenMP use them. On one machine a stage of `dtype: int8`
    takes idle cores of the launch as well, for what has the same bytes with any number of threads."""
    processes: Count = 1
    """Processes that share the work of one stage, on GPUs one for each; training, RL and evaluation can be shared. Each holds the
    whole model. A step sees the same rows in the same order for any number; sums differ by rounding. Samples of an evaluation are
    the same. A run may go on with another number of processes than it was saved with."""
    stack: Count = 1
    """Most stages that one process makes together, their weights stacked and their products batched: pretrain, midtrain, sft, rl
    and evaluate in float32 or bfloat16, the latter two with engine native. They are stages of one kind with one run block whose
    models have one shape and whose `dtype` and, in pretrain, midtrain and sft, `batch_tokens` agree; seeds, bases, data, methods
    and other numbers, such as rates, may differ. In RL rollouts are stacked, and each run updates by itself. The first job that
    starts takes those that are ready; the jobs of the others wait and end. Each leaves its own record, with `numerics: stacked`,
    since rounding depends on who shares the stack. memory_mb is for all of them."""
    memory_mb: Count = 3000
    """Memory of each process, with all that it starts (a pool of `problems`, vLLM's server): a cluster reserves it for all. The
    default is raised to what a stage is estimated to need; where another number is less than that, the plan is refused."""
    runtime: Count = 120
    """Minutes that a cluster grants: more than `warn_seconds` of configs/site.yaml and a minute."""
    gpus: Natural = 0
    """GPUs that a cluster reserves; of several processes one each. On one machine a stage waits until so many are free of other
    stages; `--resources gpu=2` sets how many Snakemake may use, so that others run meanwhile. Without any it computes on the
    CPU."""
    gpu_memory_gb: NotNegative = 0.0
    """Memory of a GPU, in 10^9 bytes: a stage that is estimated to need more is refused when it is planned, with the setting that
    fits. 0: not declared."""
    micro_batch_tokens: Count = 8192
    """Most tokens in one forward-backward pass; gradients accumulate up to the batch. Several processes make smaller passes where
    some would have none."""
    compile: bool = False
    """Whether the layers of passes that train are compiled (`torch.compile`, which needs a C++ compiler): half a minute or more
    at the start for faster passes on a GPU. The same but for rounding."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of layers for the backward pass, which recomputes the rest: less memory, a third more time, and the
    same bytes. Not for stacks."""
    share_prompts: bool = True
    """Pass a prompt that several completions follow once, and let them attend to it (Prefix Grouper, arXiv:2506.05433); false:
    pass it before each of them. The same but for rounding."""
    engine_batch: Count = 256
    """Sequences in a decoding batch, of each stage of a stack."""
    cuda_graphs: bool = True
    """On a GPU the native engine records its decoding steps and replays them as CUDA graphs, one launch a step; false: it
    launches each operation, several times slower for small models. The same samples."""
    engine_server: bool = False
    """With engine vllm: as a server in a process of its own, which the stage starts and ends and which listens on a Unix socket
    that no other user can reach; of several processes each has one. false: in the stage's process. The samples are the same."""
    engine_cache_mb: Count = 512
    """Memory of vLLM's key-value cache; of the native engine with dtype int8 on a CPU the most that it keeps of episodes from
    turn to turn, of each model that plays a seat: what does not fit in is passed again, with the same samples."""
    save_minutes: NotNegative = 1.0
    """Minutes between saves to resume/."""
    segment_steps: Natural = 0
    """Steps between the training states whose checksums `segments.json` lists, so that `interplay verify --segments` can make a
    run again from one of them to the next; 0: none, and a run is made again whole."""
    keep_segments: bool = True
    """With segment_steps: also keep these states (weights and optimiser, about three times the weights each) in segments/. false:
    checksums alone, so that a segment is made again from the start of its run."""
    keep_state: bool = True
    """Keep an RL run's final training state (three times its weights) with the record, so that a longer run goes on from it."""
    nodes: Count = 1
    """Machines of a cluster over which the `gpus` lie, equally many on each; several with trainer verl alone."""
    verl: Verl = Verl()
    """With trainer verl: how it spreads over the GPUs."""
    path: str | None = None
    """Folder that a source stage copies its model from, or file that a dataset stage reads; what a study names lies below the
    project's root."""
    judge: str = ""
    """Address of the OpenAI-compatible endpoint that rubrics with a `model` ask, such as http://127.0.0.1:8000/v1; its key, where
    it wants one, is the environment variable OPENAI_API_KEY of the job."""
    config: dict[str, Any] | None = None
    """The config.json of a source on the hub, by which the plan knows its size before it is here."""

    @model_validator(mode="before")
    @classmethod
    def _not_sharded(cls, value: Any) -> Any:
        """The key that native weights were sharded by: what takes its place."""
        if isinstance(value, dict) and "sharding" in value:
            remedy = "take the key away; where it does not fit, write lora: {r: 16}, or run.gradient_checkpointing: true"
            raise ValueError(f"sharding: each process holds the whole model; {remedy}")
        return value

    @model_validator(mode="after")
    def _one_gpu_each(self) -> "Run":
        if self.processes > 1 and self.gpus not in (0, self.processes):
            must = f"of {self.processes} processes each has one; write {self.processes}, or 0"
            raise ValueError(f"gpus = {self.gpus}: {must}")
        return self

    @model_validator(mode="after")
    def _stacks_in_one_process(self) -> "Run":
        if self.stack > 1 and self.processes > 1:
            raise ValueError(f"stack = {self.stack}: replicas are stacked in one process; write processes: 1, or stack: 1")
        return self

    def cores(self) -> int:
        """CPU threads of all processes together."""
        return self.threads * self.processes

    def memory(self) -> int:
        """Memory of all processes together, in MiB."""
        return self.memory_mb * self.processes

    def stated(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON: all that a `stage.json` says."""
        return self.model_dump(exclude_defaults=True)


STACKED = "stacked"
"""Numerics of a record that was made, or begun, in a stack. One without numerics was made alone."""


class Replica(NamedTuple):
    """A stage of a stack: the arguments of its kind's function but for the run block, which is that of the stack."""

    spec: Any
    inputs: dict[str, Path]
    out: Path


# Cores beyond the `run` block that this process may use now. `run.resources` lends them while no other stage needs them; only
# code whose bytes are the same with any number of threads may use them: the kernels of dtype int8. They read the number at each
# call, so it may change at any moment.


@dataclass
class _Borrowed:
    wanted: float | None = None
    """Since when there is a use for them."""
    count: int = 0
    since: float = 0.0
    """When the count became what it is."""
    before: float = 0.0
    """Core seconds until then."""


_BORROWED = _Borrowed()


def want_cores() -> None:
    """From here on this process has a use for borrowed cores."""
    _BORROWED.wanted = _BORROWED.wanted or time.monotonic()


def wants_cores() -> bool:
    """Whether this process has a use for borrowed cores."""
    return _BORROWED.wanted is not None


def set_borrowed_cores(count: int) -> None:
    """Change the number of borrowed cores."""
    _BORROWED.before = borrowed_seconds()
    _BORROWED.count, _BORROWED.since = count, time.monotonic()


def borrowed_cores() -> int:
    """How many borrowed cores this process has now."""
    return _BORROWED.count


def borrowed_seconds() -> float:
    """Core seconds that were borrowed so far."""
    return _BORROWED.before + _BORROWED.count * (time.monotonic() - _BORROWED.since)


def mean_borrowed_cores() -> float:
    """Their mean number since there was a use for them."""
    return 0.0 if _BORROWED.wanted is None else borrowed_seconds() / (time.monotonic() - _BORROWED.wanted)


# Which of a stage's processes this is. A stage runs in one unless its `run` block says more; of several, each is a worker and
# rank 0 alone writes (`artifact.write_atomic` and what is made with it, `metrics.jsonl`, progress).


RANK_KEYS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables of torchrun by which each process finds its rank."""

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
"""Environment variables that bind gloo and NCCL to the loopback interface."""


@dataclass
class _Place:
    rank: int = 0
    count: int = 1


_PLACE = _Place()


def set_rank(rank: int, count: int) -> None:
    """From here on this process is worker `rank` of 0..count-1."""
    _PLACE.rank, _PLACE.count = rank, count


def rank() -> int:
    """Number of this process among those of the stage, from 0."""
    return _PLACE.rank


def world_size() -> int:
    """How many processes work on the stage."""
    return _PLACE.count


def is_first_rank() -> bool:
    """Whether this process is the one that writes."""
    return _PLACE.rank == 0


# Signal handlers: how a stage stops early, on SIGTERM (kill, scancel), SIGUSR1 (Slurm, ahead of a time limit) and SIGINT
# (Ctrl-C).
#
# A loop with checkpoints (`Saves`) finishes the current step, saves and stops. Other code stops at once. A second Ctrl-C always
# stops at once: the run resumes from the last save.


EXIT = 75
"""EX_TEMPFAIL of sysexits.h: the stage resumes when it is started again."""
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StoppedError(BaseException):
    """The stage stopped on a signal. Not an Exception, so that `except Exception` does not treat it as a failure."""


@dataclass
class _SignalState:
    """Whether a signal was received, and whether handling is deferred."""

    asked: bool = False
    held: bool = False


_STATE = _SignalState()


def install_handlers() -> None:
    """Install the handlers. For the main thread of the runner."""
    _STATE.asked = _STATE.held = False
    for number in SIGNALS:
        signal.signal(number, _handle_signal)


def ignore_signals() -> None:
    """Ignore further signals: the process is about to exit."""
    for number in SIGNALS:
        if signal.getsignal(number) is _handle_signal:
            signal.signal(number, signal.SIG_IGN)


def _handle_signal(number: int, frame: FrameType | None) -> None:
    impatient = _STATE.asked and number == signal.SIGINT
    _STATE.asked = True
    if impatient or not _STATE.held:
        raise StoppedError("stopped")


Agree = Callable[[tuple[bool, bool]], tuple[bool, bool]]
"""All-reduce of the flags (stop requested, save due) over the processes of a stage."""


STOP_STEP = "INTERPLAY_STOP_STEP"
"""Environment variable: a step after which a training run saves and stops. For one segment of a run, made again."""


class Saves:
    """Save points of a loop: every `minutes`, every `steps` where that is not 0, and after a signal. With several processes
    `agree` makes all of them save and stop at the same step."""

    def __init__(self, minutes: float, agree: Agree | None = None, steps: int = 0) -> None:
        self.seconds, self.last = minutes * 60, time.monotonic()
        self.agree, self.asked, self.ends = agree, False, False
        self.steps, self.stop_step = steps, int(os.environ.get(STOP_STEP, 0))

    def due(self, step: int = 0) -> bool:
        """Whether to save now, after a step of 1, 2, ..."""
        asked, late = _STATE.asked, time.monotonic() - self.last >= self.seconds
        if self.agree:
            asked, late = self.agree((asked, late))
            self.asked = asked
        self.ends = bool(step) and step == self.stop_step
        return asked or late or self.ends or bool(step and self.steps and step % self.steps == 0)

    def made(self, where: str) -> None:
        """Called after a save at `where`, such as `step 3 of 40`. Raises StoppedError after a signal."""
        self.last = time.monotonic()
        if self.ends or (self.asked if self.agree else _STATE.asked):
            raise StoppedError(f"stopped at {where}")


@contextlib.contextmanager
def save_points(minutes: float, agree: Agree | None = None, steps: int = 0) -> Iterator[Saves]:
    """Signals are deferred within it until the loop has saved."""
    with defer_signals():
        yield Saves(minutes, agree, steps)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Signals are deferred within it; `stop_requested` returns whether there was one."""
    before, _STATE.held = _STATE.held, True
    try:
        yield
    finally:
        _STATE.held = before


@contextlib.contextmanager
def delay_signals() -> Iterator[None]:
    """Signals that come within it stop the stage at its end. For imports: one that an exception breaks off cannot be repeated in
    the process, and some extension modules lose the exception."""
    before = _STATE.asked
    with defer_signals():
        yield
    if _STATE.asked and not before:
        raise StoppedError("stopped")


def stop_requested() -> bool:
    """Whether this process received a signal to stop."""
    return _STATE.asked
