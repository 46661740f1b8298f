"""How a stage stands, read from its folder: done, running, failed, unfinished (started, then stopped), new (written down, never
started) or missing (no folder)."""

import fcntl
import os
from pathlib import Path
from typing import Any, NamedTuple

from interplay.schema.base import UserError
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
    if held(out / "lease"):
        return State("running", reached)
    if artifact.done(out):  # it ended while we looked
        return State("done")
    if (out / "failure.json").exists():
        return State("failed", str(artifact.read_json(out / "failure.json")["message"]))
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
    while we look."""
    for pointer in (out / "resume" / "state.json", out / "resume" / "state" / "state.json"):
        if pointer.exists():
            try:
                return artifact.read_json(pointer)
            except UserError:
                if pointer.exists():
                    raise
    return None


def held(lease: Path) -> bool:
    """Whether a process on this machine, or on one that shares the file system's locks, holds the lease."""
    if not lease.exists():
        return False
    with open(lease) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
