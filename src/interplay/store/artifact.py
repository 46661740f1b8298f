"""Artifacts: `results/<kind>/<digest>/`. `stage.json` says what shall be made; `record.json`, written last and atomically,
says that it was made; `telemetry.json` holds what the digest does not determine (time, host, attempt, throughput).

`resume/` lies beside the record while a stage is unfinished and is deleted once the record stands. `state/` stays: the training
state of an RL run at its end, from which a longer run of the same kind goes on (store.earlier). A stage holds the folder's lease
(flock) while it works, so the same stage started twice is computed once, and a killed process leaves no lock behind."""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interplay.schema.base import UserError
from interplay.store import worker

LOG = logging.getLogger(__name__)

NOT_PAYLOAD = {"record.json", "telemetry.json", "stage.json", "failure.json", "lease", ".snakemake_timestamp", "resume", "state"}
NOT_PAYLOAD |= {"report.html"}  # a view: it shows hours and hosts, and `interplay report` makes it again


def folder(results: Path, kind: str, digest: str) -> Path:
    """Where a stage's artifact lies."""
    return results / kind / digest


def split_ref(ref: str) -> tuple[str, int | None]:
    """A dependency as (digest, step): `digest` is the stage's result, `digest@step` a checkpoint that it keeps."""
    digest, _, step = ref.partition("@")
    return digest, int(step) if step else None


def find(results: Path, digest: str) -> Path:
    """The artifact folder of a digest, or the only one that starts with it. Raises UserError when none or several match."""
    start = digest if digest.isalnum() else "no digest"  # else it would be a pattern, or a path
    found = sorted({path.parent for name in ("stage.json", "record.json") for path in results.glob(f"*/{start}*/{name}")})
    if len(found) == 1:
        return found[0]
    several = f"is ambiguous: {', '.join(path.name for path in found)}" if found else "names no stage there"
    raise UserError(f"{results}: digest {digest!r} {several}")


def write_atomic(path: Path, data: bytes, every_worker: bool = False) -> None:
    """Write `data` so that a reader sees the old file or the new one and never a part; survives power loss. Where the disk is
    full, the OSError names the file and no part of it stays. Of several processes of a stage the first alone writes, unless
    `every_worker` has a file of its own."""
    if not (worker.first() or every_worker):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as part, open(part, "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def copy_atomic(source: Path, path: Path) -> None:
    """Copy a file so that a reader sees the old one or the new one and never a part; survives power loss. Of several processes of
    a stage the first alone copies."""
    if not worker.first():
        return
    with _replacing(path) as part:
        shutil.copyfile(source, part)
        with open(part, "rb") as copied:
            os.fsync(copied.fileno())


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Where to write what shall take the place of `path`."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Atomic, sorted, indented JSON."""
    write_atomic(path, to_json(value))


def to_json(value: Any) -> bytes:
    """Sorted, indented JSON."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def read_json(path: Path) -> Any:
    """Parsed JSON. Raises UserError naming the file when it is damaged or absent."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"{path}: not readable as JSON ({error})") from None


@contextlib.contextmanager
def lease(out: Path) -> Iterator[None]:
    """Hold the folder alone; says so and waits while another has it. The kernel frees it when the holder dies, in any way."""
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "lease", "a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read() or "another process"
            LOG.info("interplay: %s: %s is at work on it; waiting for its record", out, holder)
            fcntl.flock(handle, fcntl.LOCK_EX)
        handle.truncate(0)
        handle.write(f"process {os.getpid()} on {platform.node()}")
        handle.flush()
        yield


def payload(out: Path) -> list[Path]:
    """The files that belong to the result, sorted by name."""
    files = (path for path in out.rglob("*") if path.is_file() and path.relative_to(out).parts[0] not in NOT_PAYLOAD)
    return sorted(path for path in files if path.name not in NOT_PAYLOAD and not path.name.endswith(".part"))


def sweep(out: Path) -> None:
    """Remove what a killed process left half-written. For the holder of the lease; `stage.json` is its planner's to write."""
    shutil.rmtree(out / "resume.part", ignore_errors=True)
    for part in out.rglob(".*.part"):
        if not part.name.startswith(".stage.json."):
            part.unlink(missing_ok=True)


def discard(out: Path) -> None:
    """Remove all that an unfinished stage wrote, unless it goes on from `resume/` later."""
    if not (out / "resume").exists() and not done(out):
        shutil.rmtree(out / "resume.part", ignore_errors=True)
        for path in payload(out):
            path.unlink()


def checksum(path: Path) -> str:
    """sha256 of a file, in hex."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def model_checksum(model: Path) -> str:
    """sha256 over names and contents of a model folder's config.json, tokenizer.json and safetensors files: what it is,
    not where it lies.

    Raises UserError when one of them is missing."""
    files = [
        model / "config.json",
        model / "tokenizer.json",
        *(sorted(model.glob("*.safetensors")) or [model / "model.safetensors"]),
    ]
    for path in files:
        if not path.exists():
            raise UserError(
                f"{path}: no model there; give a Hugging Face folder with config.json, safetensors and tokenizer.json"
            )
    return hashlib.sha256("".join(f"{path.name} {checksum(path)}\n" for path in files).encode()).hexdigest()


def finish(out: Path, stage: dict, metrics: dict) -> None:
    """Write the record (manifest included) and remove `resume/`: from here on the stage is done."""
    files = {str(path.relative_to(out)): [path.stat().st_size, checksum(path)] for path in payload(out)}
    write_json(out / "record.json", {**stage, "metrics": metrics, "files": files})
    shutil.rmtree(out / "resume", ignore_errors=True)


def record(out: Path) -> dict:
    """The record of a finished artifact. Raises UserError when the file is none."""
    found = read_json(out / "record.json")
    if not (isinstance(found, dict) and isinstance(found.get("metrics"), dict) and isinstance(found.get("files"), dict)):
        raise UserError(f"{out / 'record.json'}: not a record; remove {out} to make it again")
    return found


def done(out: Path) -> bool:
    """Whether the stage succeeded."""
    return (out / "record.json").exists()


def absent(out: Path, only: tuple[str, ...] | None = None) -> list[str]:
    """Files of the record (of `only` these names, where given) that are not there."""
    return [name for name in record(out)["files"] if (only is None or name in only) and not (out / name).exists()]


def check(out: Path, only: tuple[str, ...] | None = None) -> None:
    """Raise UserError unless every file of the record (of `only` these names, where given) is there with size and checksum."""
    for name, (size, digest) in record(out)["files"].items():
        if only is not None and name not in only:
            continue
        path = out / name
        if not path.exists():
            remedy = f"get it (`interplay store pull`), or remove {out} to make it again"
            raise UserError(f"{path}: missing, though {out / 'record.json'} lists it; {remedy}")
        if path.stat().st_size != size or checksum(path) != digest:
            raise UserError(f"{path}: corrupted (checksum differs from {out / 'record.json'}); remove {out} to make it again")


def kept_steps(out: Path) -> list[int]:
    """Steps whose models a finished stage keeps in `checkpoints/<step>/model/`, by its manifest."""
    parts = [name.split("/") for name in record(out)["files"]]
    return sorted({int(part[1]) for part in parts if part[0] == "checkpoints" and part[2:3] == ["model"]})


def at_step(out: Path, step: int | None) -> Path:
    """What a dependency on a finished stage reads: its folder, or the folder of a kept checkpoint, which looks alike (`model/`).

    Raises UserError when that step is not kept."""
    if step is None:
        return out
    if step not in (kept := kept_steps(out)):
        raise UserError(f"{out}: keeps no checkpoint of step {step}; kept: {', '.join(map(str, kept)) or 'none'}")
    return out / "checkpoints" / str(step)
