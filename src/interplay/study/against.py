"""A plan beside the lock that another commit holds of it."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.schema.base import UserError
from interplay.store.artifact import split_ref
from interplay.study import cause
from interplay.study.cause import Cause, Comparison
from interplay.study.plan import Plan

Stages = Mapping[str, dict[str, Any]]


class Differences(NamedTuple):
    """From the lock to the plan."""

    added: list[dict[str, Any]]
    """Stages of the plan that take nobody's place."""
    removed: list[dict[str, Any]]
    """Stages of the lock whose place nobody takes."""
    changed: list[Cause]
    """Stages of the plan at a place (kind and label) that another one held, which is their `nearest`."""
    same: int


class _Two:
    """The library of both sides."""

    def __init__(self, old: Stages, new: Stages) -> None:
        self.stages = {**old, **new}

    def get(self, ref: str) -> dict[str, Any] | None:
        return self.stages.get(split_ref(ref)[0])


def lock_of(plan: Plan, configs: Path, revision: str) -> dict[str, dict[str, Any]]:
    """Stages by digest of the plan's lock at a commit, tag or branch. Raises UserError when git or the lock is missing."""
    path = plan.lock_path(configs)
    if not revision:  # git would take it for its index
        raise UserError("--against: name a commit, a tag or a branch")
    try:
        result = subprocess.run(
            ["git", "show", "--end-of-options", f"{revision}:./{path.as_posix()}"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise UserError(f"--against {revision}: git is not installed") from None
    if result.returncode:
        said = result.stderr.strip().splitlines()
        reason = said[0].removeprefix("fatal: ") if said else f"git show ended with {result.returncode}"
        raise UserError(f"--against {revision}: {path}: {reason}")
    try:
        return {stage["digest"]: stage for stage in json.loads(result.stdout)["stages"]}
    except (ValueError, KeyError, TypeError):
        raise UserError(f"--against {revision}: {path}: not a lock at that commit") from None


def compare(old: Stages, new: Stages) -> Differences:
    """Stages added, removed and changed. Those that share kind and label are pairs; several of one label pair up in their
    order."""
    gone = {digest: stage for digest, stage in old.items() if digest not in new}
    waiting: dict[tuple[str, str], list[str]] = {}
    for digest, stage in gone.items():
        waiting.setdefault((stage["kind"], stage["label"]), []).append(digest)
    comparison = Comparison(_Two(old, new))
    added, changed, paired = [], [], set()
    for digest, stage in new.items():
        if digest in old:
            continue
        places = waiting.get((stage["kind"], stage["label"]))
        if not places:
            added.append(stage)
            continue
        before = min(places, key=lambda other: comparison.distance(other, digest))
        places.remove(before)
        paired.add(before)
        changed.append(Cause(digest, stage["kind"], stage["label"], before, tuple(comparison.distinct_changes(before, digest))))
    return Differences(added, [stage for digest, stage in gone.items() if digest not in paired], changed, len(old) - len(gone))


def as_json(found: Differences) -> dict[str, Any]:
    """The differences for programs."""

    def brief(stage: dict[str, Any]) -> dict[str, str]:
        return {key: stage[key] for key in ("digest", "kind", "label")}

    return {
        "added": [brief(stage) for stage in found.added],
        "removed": [brief(stage) for stage in found.removed],
        "changed": [cause.as_json(one) for one in found.changed],
        "same": found.same,
    }
