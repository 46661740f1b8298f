"""How a stage stands, read from its folder: done, running, failed, unfinished (started, then stopped), new (written down, never
started) or missing (no folder)."""

import fcntl
from pathlib import Path
from typing import NamedTuple

from interplay.store import artifact


class State(NamedTuple):
    """`name` as above; `detail` for people: how far, or why it failed."""

    name: str
    detail: str = ""


def of(out: Path) -> State:
    """The state of the stage whose artifact folder is `out`."""
    if artifact.done(out):
        return State("done")
    if not out.is_dir():
        return State("missing")
    reached = _reached(out)
    if _held(out / "lease"):
        return State("running", reached)
    if (out / "failure.json").exists():
        return State("failed", str(artifact.read_json(out / "failure.json")["message"]))
    if (out / "telemetry.json").exists() or reached:
        return State("unfinished", f"goes on from {reached}" if reached else "stopped before its first save")
    return State("new")


def _reached(out: Path) -> str:
    """What its last save holds; empty when there is none."""
    for pointer in (out / "resume" / "state.json", out / "resume" / "state" / "state.json"):  # the trainer's, RL's
        if pointer.exists():
            return f"step {artifact.read_json(pointer)['step']}"
    shards = len(list(out.glob("resume/shards/*.parquet")))
    return f"{shards} finished shard{'' if shards == 1 else 's'}" if shards else ""


def _held(lease: Path) -> bool:
    """Whether a process on this machine, or on one that shares the file system's locks, holds the lease."""
    if not lease.exists():
        return False
    with open(lease) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
