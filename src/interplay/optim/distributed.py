"""Processes of one stage: collectives (all_reduce, all_gather, barrier), which with one process do nothing; and the state that a
stage resumes from."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save as to_bytes
from torch import Tensor, nn

from interplay.core import artifact, execution

BUCKET = 1 << 24
"""Elements of one all-reduce of gradients."""

T = TypeVar("T")


def shard_round_robin(items: Sequence[T]) -> Sequence[T]:
    """The items of this rank, interleaved for load balance, since neighbouring items have similar sizes."""
    return items[execution.rank() :: execution.world_size()]


def batch_limit(size: int, items: int) -> int:
    """The batch size for `items` items, at most `size`, such that every process has a batch."""
    return max(1, min(size, -(-items // execution.world_size()))) if execution.world_size() > 1 else size


def shard_micro_batches(cut: Callable[[int], list[T]], tokens: int, items: int) -> Sequence[T]:
    """The micro-batches of this rank. `cut` maps a token limit to micro-batches over `items` items; the limit is `tokens`, halved
    until there is a micro-batch for every process."""
    found = cut(tokens)
    while len(found) < min(execution.world_size(), items) and tokens > 1:
        tokens //= 2
        found = cut(tokens)
    return shard_round_robin(found)


def all_reduce_sum(values: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if execution.world_size() > 1:
        dist.all_reduce(values)
    return values


def all_reduce_dict(values: dict[str, float]) -> dict[str, float]:
    """The sum of each value over the processes that have it."""
    if execution.world_size() == 1:
        return values
    sums: dict[str, float] = {}
    for one in all_gather_object(values):
        for name, value in one.items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def all_reduce_max(values: dict[str, float]) -> dict[str, float]:
    """The maximum of each value over the processes that have it."""
    every = all_gather_object(values)
    return {name: max(one[name] for one in every if name in one) for name in dict.fromkeys(name for one in every for name in one)}


def all_reduce_values(*values: float) -> list[float]:
    """The sum of each value over all processes."""
    return list(all_reduce_dict({str(place): value for place, value in enumerate(values)}).values())


def all_gather_object(value: Any) -> list[Any]:
    """The value (JSON data) of each process, by rank."""
    if execution.world_size() == 1:
        return [value]
    own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return [json.loads(bytes(data.tolist())) for data in all_gather_rows(own)]


def all_gather_rows(rows: Tensor) -> list[Tensor]:
    """The rows (n, ...) of each process, by rank; only n may differ."""
    if execution.world_size() == 1:
        return [rows]
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(execution.world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    longest = max(int(n) for n in counts)
    padded = rows.new_zeros((longest, *rows.shape[1:]))
    padded[: len(rows)] = rows
    room = [torch.empty_like(padded) for _ in counts]
    if longest:
        dist.all_gather(room, padded)
    return [part[: int(n)] for part, n in zip(room, counts, strict=True)]


def all_reduce_flags(flags: tuple[bool, bool]) -> tuple[bool, bool]:
    """(whether any process sets the first flag, whether rank 0 sets the second)."""
    if execution.world_size() == 1:
        return flags
    raised = all_reduce_sum(torch.tensor([flags[0], flags[1] and execution.is_first_rank()], dtype=torch.int32))
    return bool(raised[0]), bool(raised[1])


def barrier() -> None:
    """Wait for all processes."""
    if execution.world_size() > 1:
        all_reduce_sum(torch.zeros(1))


def all_reduce_gradients(model: nn.Module) -> None:
    """All-reduce (sum) the gradients, skipping parameters without a gradient on any process."""
    if execution.world_size() == 1:
        return
    parameters = [p for p in model.parameters() if p.requires_grad]
    known = all_reduce_sum(torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32)).tolist()
    for bucket in _buckets([p for p, some in zip(parameters, known, strict=True) if some]):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        for p, part in zip(bucket, all_reduce_sum(flat).split([p.numel() for p in bucket]), strict=True):
            p.grad = part.view_as(p)


def _buckets(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters in order, in buckets of at most BUCKET elements."""
    buckets: list[list[nn.Parameter]] = []
    size = BUCKET
    for p in parameters:
        if size + p.numel() > BUCKET:
            buckets.append([])
            size = 0
        buckets[-1].append(p)
        size += p.numel()
    return buckets


@contextmanager
def accumulate_gradient(model: nn.Module) -> Iterator[None]:
    """Inside the context each process accumulates the gradient of its own passes, of any number. After it the parameters have the
    sum over all processes, with numerics: exact that of the model's `sums`."""
    yield
    if sums := getattr(model, "sums", None):
        sums.reduced(model, all_reduce_sum)
    else:
        all_reduce_gradients(model)


# Resume state of a training stage: `resume/<step>.safetensors` (all tensors) and `resume/state.json`, which points to it.
#
# The pointer is replaced only after the new tensors are on disk and the old tensors are deleted only after that, so a kill at any
# time, or a full disk, leaves the old state or the new one.


POINTER = "state.json"


def save_checkpoint(resume: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Save (step, tensors, state) as the state to resume from. `state` is JSON data. Collective; the first process writes."""
    name = f"{step}.safetensors"
    if execution.is_first_rank():
        kept = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        artifact.write_atomic(resume / name, to_bytes(kept))
        _write_pointer(resume, {"step": step, "tensors": name, "state": state}, name)
    barrier()


def _write_pointer(resume: Path, pointer: dict[str, Any], name: str) -> None:
    """Replace the pointer, then delete the tensors of older steps; on a full disk delete the new ones and raise."""
    try:
        artifact.write_json(resume / POINTER, pointer)
    except OSError:
        (resume / name).unlink(missing_ok=True)
        raise
    for old in resume.iterdir():
        if old.name not in (POINTER, name):
            old.unlink()


def load_checkpoint(resume: Path) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """The last saved (step, tensors, state), on the CPU; None when there is none."""
    if not (resume / POINTER).exists():
        return None
    pointer = artifact.read_json(resume / POINTER)
    return pointer["step"], load_file(resume / pointer["tensors"]), pointer["state"]


SEGMENTS = "segments"
"""Folder of the states that stay, `segments/<step>/` each, and with `.json` the file of their checksums."""


def keep_segment(out: Path, step: int, how: execution.Run) -> None:
    """After a save to `out/resume` at a multiple of `segment_steps`: list its checksum, and keep all of resume/ with it, as links
    where the file system has them, since files there are replaced and never edited. Of several processes the first alone does."""
    if not how.segment_steps or step % how.segment_steps or not execution.is_first_rank():
        return
    before = [one for one in listed_segments(out) if one["step"] < step]
    if how.keep_segments:
        shutil.rmtree(out / SEGMENTS / str(step), ignore_errors=True)
        shutil.copytree(out / "resume", out / SEGMENTS / str(step), copy_function=_link)
    entry = {"step": step, "sha256": state_checksum(out / "resume")}
    artifact.write_json(out / f"{SEGMENTS}.json", {"states": [*before, entry]})


def _link(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def listed_segments(out: Path) -> list[dict[str, Any]]:
    """`step` and `sha256` of each listed training state of a stage, by step; [] where none is."""
    path = out / f"{SEGMENTS}.json"
    return list(artifact.read_json(path)["states"]) if path.exists() else []


def state_checksum(resume: Path) -> str:
    """sha256 of the training state in a folder: its step, its JSON data but for their numerics, and its tensors."""
    folder = resume if (resume / POINTER).exists() else resume / "state"
    pointer = artifact.read_json(folder / POINTER)
    state = {key: value for key, value in pointer["state"].items() if key != "numerics"}
    known = {"step": pointer["step"], "state": state, "tensors": [artifact.checksum(folder / pointer["tensors"])]}
    return hashlib.sha256(artifact.to_json(known)).hexdigest()


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose name begins with `prefix`, by the rest of the name."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def training_tensors(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The state of a training run: parameters, optimiser state with its step counts, and torch's CPU generator."""
    return {**model_tensors(model), **optimizer_tensors(optimizers), "generator": torch.get_rng_state()}


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters."""
    return {f"model.{name}": parameter for name, parameter in model.named_parameters()}


def optimizer_tensors(optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The state of optimisers; step counts are ()."""
    return {
        f"optimizer.{number}.{index}.{key}": value
        for number, optimizer in enumerate(optimizers)
        for index, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
    }


def restore_training(tensors: dict[str, Tensor], model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Load the tensors of `training_tensors` into a model and optimisers of the same structure."""
    restore_model(tensors, model)
    restore_optimizers(tensors, optimizers)
    torch.set_rng_state(tensors["generator"])


def restore_model(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Load the parameters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])


def restore_optimizers(tensors: dict[str, Tensor], optimizers: list[torch.optim.Optimizer]) -> None:
    """Load the state of optimisers."""
    for number, optimizer in enumerate(optimizers):
        state = optimizer.state_dict()
        state["state"] = {}
        for name, tensor in with_prefix(tensors, f"optimizer.{number}.").items():
            index, key = name.split(".")
            state["state"].setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict(state)


# Resume state of a stage that samples: its shards, consecutive problems whose samples are made together, each in its own file, so
# that a killed stage does not repeat them, even if batch size and number of processes change on resume.
#
# A file `<start>-<stop>.parquet` has the samples of the problems start..stop-1 of the set.


def complete_shards(kept: Path, problems: int, size: int, sample: Callable[[list[range]], None]) -> None:
    """Have the missing shards sampled. Raises StoppedError where a signal ends that before the last one."""
    if missing := remaining_shards(kept, problems, size):
        sample(missing)
        if left := len(remaining_shards(kept, problems, size)):
            finished = len(finished_shards(kept))
            raise execution.StoppedError(f"stopped at shard {finished} of {finished + left}")


def finished_shards(folder: Path) -> list[range]:
    """The shards in the folder, in the order of their problems."""
    names = (file.stem.split("-") for file in folder.glob("*-*.parquet"))
    return sorted((range(int(start), int(stop)) for start, stop in names), key=lambda shard: shard.start)


def remaining_shards(folder: Path, problems: int, size: int) -> list[range]:
    """Shards of at most `size` problems that cover the set's `problems` without a shard in the folder."""
    gaps, start = [], 0
    for shard in [*finished_shards(folder), range(problems, problems)]:
        gaps += [range(first, min(first + size, shard.start)) for first in range(start, shard.start, size)]
        start = shard.stop
    return gaps


def write_shard(folder: Path, shard: range, samples: pa.Table) -> None:
    """Write the samples of a shard, from any process of the stage."""
    sink = pa.BufferOutputStream()
    pq.write_table(samples, sink)
    artifact.write_atomic(shard_file(folder, shard), sink.getvalue().to_pybytes(), every_worker=True)


def read_shards(folder: Path) -> pa.Table:
    """The samples of all shards, in the order of their problems."""
    return pa.concat_tables([pq.read_table(shard_file(folder, shard)) for shard in finished_shards(folder)]).combine_chunks()


def shard_file(folder: Path, shard: range) -> Path:
    """The file of the samples of a shard."""
    return folder / f"{shard.start}-{shard.stop}.parquet"
