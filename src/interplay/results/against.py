"""A plan compared with the lock of another commit, whose specs are rebuilt from that commit's configs and sources."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core.artifact import split_ref
from interplay.core.model import UserError, plural
from interplay.results import catalog, cause, rebuild, state
from interplay.results.cause import Cause, Comparison
from interplay.study.plan import Plan

Stages = Mapping[str, dict[str, Any]]
NAMED = 3
"""Stages that differ and that a line names."""


class Locked(NamedTuple):
    """The stages of a lock by digest, with their specs as far as these are known."""

    name: str
    """Which lock it is."""
    stages: Stages
    lacking: str = ""
    """Why specs of stages that the plan lacks are not known; empty where all are."""


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


def of_commit(plan: Plan, configs: Path, results: Path, revision: str) -> Locked:
    """The plan's lock at a commit, tag or branch. Raises UserError when git, the commit or the lock is missing."""
    if not revision:  # git would take it for its index
        raise UserError("--against: name a commit, a tag or a branch")
    try:
        locked = rebuild.lock_at(revision, plan.lock_path(configs))
    except UserError as error:
        raise UserError(f"--against {revision}: {error}") from None
    stages = _with_specs(locked, plan, results)
    if not _lacking(stages):
        return Locked(revision, stages)
    try:
        rebuilt = rebuild.planned(revision, plan.study, plan.scale, locked)
    except UserError as error:
        return Locked(revision, stages, str(error))
    stages = {digest: rebuilt.get(digest, stage) for digest, stage in stages.items()}
    return Locked(revision, stages, "the commit's configs give other stages than its lock" if _lacking(stages) else "")


def of_working_tree(plan: Plan, configs: Path, results: Path) -> Locked | None:
    """The lock as it lies in configs/plans; None where there is none or it is this plan. Where it holds stages that no commit
    planned, since it was written and not committed, the last committed lock that its commit's configs give stands in."""
    path = plan.lock_path(configs)
    if not path.exists() or plan.locked(configs):
        return None
    locked = state.read_lock(path).stages
    stages = _with_specs(locked, plan, results)
    if not _lacking(stages):
        return Locked("the lock", stages)
    try:
        commit, rebuilt = rebuild.last_agreed(plan.study, plan.scale, configs)
    except UserError as error:
        return Locked("the lock", stages, str(error))
    filled = {digest: rebuilt.get(digest, stage) for digest, stage in stages.items()}
    if not _lacking(filled):
        return Locked("the lock", filled)
    return Locked(f"the lock of commit {commit[:12]} (the one here was not committed)", rebuilt)


def _with_specs(locked: Stages, plan: Plan, results: Path) -> Stages:
    """The lock's stages: those of the plan as planned, others as they lie in results/, and the rest as the lock has them."""
    new = catalog.as_json(plan)
    return {
        digest: new.get(digest) or {**(state.written(results, stage["kind"], digest) or {}), **stage}
        for digest, stage in locked.items()
    }


def _lacking(stages: Stages) -> list[str]:
    return [digest for digest, stage in stages.items() if "spec" not in stage]


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


def summary(locked: Locked, plan: Plan) -> str:
    """On one line how a plan differs from its lock: how many stages, and the first field of the first one, dependencies first."""
    new = catalog.as_json(plan)
    found = compare(locked.stages, new)
    counts = {"changed": len(found.changed), "added": len(found.added), "removed": len(found.removed)}
    said = [f"compared with {locked.name}: {', '.join(f'{count} {word}' for word, count in counts.items() if count)}"]
    if not any(counts.values()):
        labels = ((old["label"], new[digest]["label"]) for digest, old in locked.stages.items())
        renamed = next((f", but {old} is called {now} now" for old, now in labels if old != now), "")
        said = [f"the stages of {locked.name}{renamed}"]
    elif first := next((one for one in found.changed if one.changes), None):
        said.append(f"{first.kind} {first.label}: {first.changes[0]}")
    else:
        pairs = [(one.kind, one.label) for one in found.changed]
        pairs += [(one["kind"], one["label"]) for one in (*found.added, *found.removed)]
        names = [kind if kind == label else f"{kind} {label}" for kind, label in pairs]
        said.append(", ".join(names[:NAMED]) + (f" and {plural(len(names) - NAMED, 'more stage')}" if len(names) > NAMED else ""))
    return "; ".join([*said, f"earlier specs are not available: {locked.lacking}"] if locked.lacking else said)
