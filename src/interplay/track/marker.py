"""What is mirrored already, so that a run with nothing to do need not import mlflow: `results/.mlflow-mirrored`.

Only a shortcut: where it is lost or wrong for a store, the mirror finds out by searching. Stores are named by a hash: an address
may hold a password."""

import contextlib
import fcntl
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.study.plan import Plan
from interplay.track import describe
from snakemake_logger_plugin_mlflow.store import sqlite_file

NAME = ".mlflow-mirrored"
TURN = ".mlflow-turn"


@contextlib.contextmanager
def mirror_turn(results: Path, me: str) -> Iterator[bool]:
    """Mirror alone: two processes that look for a run and then make it would make it twice. Yields whether another process
    mirrored since the last turn of `me`, so that what was looked up may be out of date."""
    results.mkdir(parents=True, exist_ok=True)
    with open(results / TURN, "a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        last = handle.read()
        if last != me:
            handle.truncate(0)
            handle.write(me)
            handle.flush()
        yield last != me


def is_mirrored(plan: Plan, results: Path, uri: str) -> bool:
    """Whether the store was left with all that is on disk now, and nothing of it can have changed since."""
    file = sqlite_file(uri)
    if file is not None and not file.exists():
        return False
    left = _read(results).get(_store(uri), {}).get(f"{plan.study}.{plan.scale}", {})
    if left.get("plan") != plan.report or "RUNNING" in left["stages"].values():
        return False
    states = {digest: describe.look_at_stage(results, stage.kind, digest).status for digest, stage in plan.stages.items()}
    return left["stages"] == {digest: status for digest, status in states.items() if status}


def mark_mirrored(plan: Plan, results: Path, uri: str, states: dict[str, str]) -> None:
    """Remember what was mirrored."""
    known = _read(results)
    known.setdefault(_store(uri), {})[f"{plan.study}.{plan.scale}"] = {"plan": plan.report, "stages": states}
    artifact.write_json(results / NAME, known)


def forget_mirrored(plan: Plan, results: Path, uri: str) -> None:
    """The study is being mirrored: from now until it is settled again its store may hold anything."""
    known = _read(results)
    if known.get(_store(uri), {}).pop(f"{plan.study}.{plan.scale}", None) is not None:
        artifact.write_json(results / NAME, known)


def _read(results: Path) -> dict[str, Any]:
    try:
        return artifact.read_json(results / NAME)
    except UserError:
        return {}


def _store(uri: str) -> str:
    file = sqlite_file(uri)
    return hashlib.sha256((str(file.absolute()) if file else uri).encode()).hexdigest()[:12]
