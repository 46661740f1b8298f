"""Artifact folders `results/<kind>/<digest>/`: atomic writes, manifests, leases, the state of a stage, and the git commit
recorded with it.

`stage.json` says what is to be made; `record.json` that it is finished, with a checksum of every file."""

import contextlib
import fcntl
import gzip
import hashlib
import json
import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import execution
from interplay.core.model import UserError

# Artifacts: `results/<kind>/<digest>/`. `stage.json` says what shall be made; `record.json`, written last and atomically, says
# that it was made; `telemetry.json` holds what the digest does not determine (time, host, attempt, throughput).
#
# `resume/` exists while a stage is unfinished and is deleted once the record is written. `state/` stays: the
# training state of an RL run at its end, from which a longer run of the same kind goes on (run.stage). `segments/` stays, too:
# states on the way (`run.segment_steps`), whose checksums `segments.json` lists. A stage holds the
# folder's lease (flock) while it works, so the same stage started twice is computed once, and a killed process leaves no
# lock.


LOG = logging.getLogger(__name__)

NOT_PAYLOAD = {"record.json", "telemetry.json", "stage.json", "failure.json", "lease", ".snakemake_timestamp", "resume", "state"}
NOT_PAYLOAD |= {"segments", "segments.json"}  # training states on the way, as the run block asks for them
NOT_PAYLOAD |= {"report.html"}  # a view: it shows hours and hosts, and `interplay report` makes it again


STUDIES, SHIPPED = "studies", Path("data/bases")
"""Where finished stages are kept once more: in results/, with each study that used them, and next to it, with the project."""


def folder(results: Path, kind: str, digest: str) -> Path:
    """Where a stage's artifact lies."""
    return results / kind / digest


def split_ref(ref: str) -> tuple[str, int | None]:
    """A dependency as (digest, step): `digest` is the stage's result, `digest@step` a checkpoint that it keeps."""
    digest, _, step = ref.partition("@")
    return digest, int(step) if step else None


def ref_digest(ref: str) -> str:
    """The stage that a dependency names, without the step of a checkpoint."""
    return ref.partition("@")[0]


def make_ref(digest: str, step: int | None) -> str:
    """The dependency that `split_ref` reads."""
    return digest if step is None else f"{digest}@{step}"


def closure(roots: Iterable[str], inputs: Callable[[str], Iterable[str]]) -> list[str]:
    """Digests of the roots and of all that they depend on, each once, dependencies first; `inputs`: digest -> references."""
    found: dict[str, None] = {}

    def visit(ref: str) -> None:
        digest = ref_digest(ref)
        if digest not in found:
            for dep in inputs(digest):
                visit(dep)
            found[digest] = None

    for root in roots:
        visit(root)
    return list(found)


KNOWN_BY = "`interplay plan STUDY --stages` lists those of a study"
"""Where the digests of stages are found."""


def find(results: Path, digest: str) -> Path:
    """The artifact folder of a digest, or the only one that starts with it. Raises UserError when none or several match."""
    start = digest if digest.isalnum() else "no digest"  # else it would be a pattern, or a path
    found = sorted({path.parent for name in ("stage.json", "record.json") for path in results.glob(f"*/{start}*/{name}")})
    if len(found) == 1:
        return found[0]
    several = f"is ambiguous: {', '.join(path.name for path in found)}" if found else f"names no stage there; {KNOWN_BY}"
    raise UserError(f"{results}: digest {digest!r} {several}")


def write_atomic(path: Path, data: bytes, every_worker: bool = False) -> None:
    """Write `data` so that a reader sees the old file or the new one and never a part; survives power loss. Where the disk is
    full, the OSError names the file and no part of it stays. Of several processes of a stage the first alone writes, unless
    `every_worker` has a file of its own."""
    if not (execution.is_first_rank() or every_worker):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as part, open(part, "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def copy_atomic(source: Path, path: Path) -> None:
    """Copy a file so that a reader sees the old one or the new one and never a part; survives power loss. Of several processes of
    a stage the first alone copies."""
    if not execution.is_first_rank():
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
    """Parsed JSON, compressed where the name ends in .gz. Raises UserError naming the file when it is damaged or absent."""
    try:
        return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; name one that is there") from None
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{path}: not readable as JSON ({error})") from None


@contextlib.contextmanager
def lease(out: Path, wait: bool = True) -> Iterator[bool]:
    """An exclusive lock on the folder. While another process has it, waits with a log line; without `wait` gives False. The
    kernel releases it when the holder dies."""
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "lease", "a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                yield False
                return
            handle.seek(0)
            holder = handle.read() or "another process"
            LOG.info("interplay: %s: %s holds its lease; waiting for the record", out, holder)
            fcntl.flock(handle, fcntl.LOCK_EX)
        handle.truncate(0)
        handle.write(f"process {os.getpid()} on {platform.node()}")
        handle.flush()
        yield True


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


HUB = "hub://"
"""Before `owner/name@revision/path` of a file in a data set of the Hugging Face hub."""


def local_file(file: str) -> Path:
    """The path of a data file; one of the hub is taken from the hub's cache on this machine, or else downloaded into it. Raises
    UserError where that fails."""
    if not file.startswith(HUB):
        return Path(file)
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    name, _, rest = file.removeprefix(HUB).partition("@")
    revision, _, path = rest.partition("/")
    try:
        return Path(hf_hub_download(name, path, repo_type="dataset", revision=revision))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"{file}: not on the hub, or the hub is out of reach ({why}); download it elsewhere, and name it as file"
        ) from None


def model_checksum(model: Path) -> str:
    """sha256 over names and contents of a model folder's config.json, tokenizer.json and safetensors files: what it is,
    not where it lies.

    Raises UserError when one of them is missing."""
    weights = sorted(model.glob("*.safetensors")) or [model / "model.safetensors"]
    files = [model / "config.json", model / "tokenizer.json", *weights]
    for path in files:
        if not path.exists():
            remedy = "give a Hugging Face folder with config.json, safetensors and tokenizer.json"
            raise UserError(f"{path}: no model there; {remedy}")
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


def numerics_of(record: dict) -> str:
    """How a record was made, as far as its rounding depends on it: `stacked` with others (`run.stack`), or `alone`."""
    return str(record.get("numerics", "alone"))


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
    """What a dependency on a finished stage reads: its folder, or that of a kept checkpoint, which has the same form (`model/`).

    Raises UserError when that step is not kept."""
    if step is None:
        return out
    if step not in (kept := kept_steps(out)):
        raise UserError(f"{out}: keeps no checkpoint of step {step}; kept: {', '.join(map(str, kept)) or 'none'}")
    return out / "checkpoints" / str(step)


# The state of a stage, read from its folder: done, running, failed, unfinished (started, then stopped), new (written down, never
# started) or missing (no folder).


class State(NamedTuple):
    """`name` as above; `detail` for people: how far, or why it failed."""

    name: str
    detail: str = ""


def state_of(out: Path) -> State:
    """The state of the stage with this artifact folder."""
    if done(out):
        return State("done")
    if not out.is_dir():
        return State("missing")
    reached = _reached(out)
    if is_leased(out / "lease"):
        return State("running", reached)
    if done(out):  # it ended between the checks
        return State("done")
    if (out / "failure.json").exists():
        return State("failed", str(read_json(out / "failure.json")["message"]))
    if (out / "telemetry.json").exists() or reached:
        return State("unfinished", f"goes on from {reached}" if reached else "stopped before its first save")
    return State("new")


def _reached(out: Path) -> str:
    """What its last save holds; empty when there is none."""
    if saved := last_save(out):
        return f"step {saved['step']}"
    try:
        shards = sum(name.endswith(".parquet") for name in os.listdir(out / "resume" / "shards"))
    except FileNotFoundError:
        return ""
    return f"{shards} finished shard{'' if shards == 1 else 's'}" if shards else ""


def last_save(out: Path) -> dict[str, Any] | None:
    """What the pointer to the last save of a trainer or of an RL run says; None where there is none, also when the stage ends
    meanwhile."""
    for pointer in (out / "resume" / "state.json", out / "resume" / "state" / "state.json"):
        if pointer.exists():
            try:
                return read_json(pointer)
            except UserError:
                if pointer.exists():
                    raise
    return None


def is_leased(lease: Path) -> bool:
    """Whether a process on this machine, or on one that shares the file system's locks, holds the lease."""
    if not lease.exists():
        return False
    with open(lease) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


NUMERICS = "numerics.json"


def mark_stacked(out: Path) -> None:
    """Say next to saves that have no state of their own (shards of an evaluation) that some were made in a stack."""
    if not (out / "resume" / NUMERICS).exists():
        write_json(out / "resume" / NUMERICS, {"numerics": execution.STACKED})


def saved_numerics(out: Path) -> dict[str, str]:
    """`numerics` of an unfinished stage's saves, as the record has it: {} where all of it was made alone."""
    marked = out / "resume" / NUMERICS
    state = read_json(marked) if marked.exists() else (last_save(out) or {}).get("state")
    found = state.get("numerics") if isinstance(state, dict) else None
    return {"numerics": found} if found else {}


# The project's git commit: recorded with the result, never hashed.


def current_commit() -> str:
    """The commit of the working directory, with `-dirty` where tracked files differ from it; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # a read must not block a commit that runs at the same time
    try:
        found = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return found.stdout.strip()
