"""The states of all stages at once, other scales with results, and source drift."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, metrics
from interplay.core.model import UserError, plural
from interplay.kinds import sources
from interplay.kinds.table import KINDS
from interplay.study import compose
from interplay.study.expand import plan_study
from interplay.study.plan import Lock, Plan, Stage, flat_name, parse_lock

# How the stages of a project stand, all at once: a few system calls each, so that 10,000 of them take less than a second.


NEW, KEPT = "new", "kept"
FINISHED = ("done", KEPT)


class Found(NamedTuple):
    """A folder in results/."""

    kind: str
    state: str
    """As in `core.artifact`: done, running, failed, unfinished or new."""
    detail: str = ""
    """How far, or why it failed."""
    when: float = 0.0
    """When the record was written; 0 without one."""


def scan(results: Path) -> dict[str, Found]:
    """Digest -> how it stands, for every artifact folder of every kind."""
    return {name: _found(results / kind / name, kind) for kind in KINDS for name in _folders(results / kind)}


def _folders(kind: Path) -> list[str]:
    """Names of a kind's artifacts; what starts with a dot is on its way out (`interplay gc`)."""
    try:
        with os.scandir(kind) as entries:
            return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []


def _found(folder: Path, kind: str) -> Found:
    try:
        return Found(kind, "done", when=os.stat(f"{folder}/record.json").st_mtime)
    except FileNotFoundError:
        pass
    if not os.path.exists(f"{folder}/lease"):  # every stage that was ever started left one
        return Found(kind, NEW)
    return Found(kind, *artifact.state_of(folder))


def read_lock(path: Path) -> Lock:
    """Raises UserError when the file is not a lock: what it holds would pass for unused."""
    try:
        return parse_lock(artifact.read_json(path))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: not a lock; `interplay plan STUDY --scale SCALE --write` writes one") from None


def read_locks(configs: Path, extra: Iterable[Path] = ()) -> dict[str, dict[str, dict[str, Any]]]:
    """Lock (`study.scale`, a study in a folder with dots) -> its stages by digest, for all of configs/plans and the files given.

    Raises UserError at the first that is not a lock."""
    locks = [read_lock(path) for path in [*sorted((configs / "plans").rglob("*.lock.json")), *extra]]
    return {flat_name(lock.study, lock.scale): lock.stages for lock in locks}


def every_stage(locks: Mapping[str, dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The stages of all locks by digest."""
    return {digest: stage for stages in locks.values() for digest, stage in stages.items()}


def written(results: Path, kind: str, digest: str) -> dict[str, Any] | None:
    """A stage as its folder in results/ describes it; None where there is no description."""
    folder = artifact.folder(results, kind, digest)
    for name in ("stage.json", "record.json"):
        if (folder / name).exists():
            return {"label": "", "run": {}, **artifact.read_json(folder / name)}
    return None


class Library:
    """Stages as JSON by digest: of the plan at hand, and, read when asked for, of the folders in results/. Locks add stages that
    are in neither, without their specs, and the labels that count."""

    def __init__(
        self,
        planned: Mapping[str, Stage],
        results: Path,
        found: Mapping[str, Found],
        locked: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.planned, self.results, self.found, self.locked = planned, results, found, locked or {}
        self._read: dict[str, dict[str, Any] | None] = {}

    def get(self, ref: str) -> dict[str, Any] | None:
        """The stage of a digest (or of `digest@step`); None where nothing describes it."""
        digest = artifact.split_ref(ref)[0]
        if digest not in self._read:
            in_plan = self.planned.get(digest)
            self._read[digest] = in_plan.as_json() if in_plan else self._elsewhere(digest)
        return self._read[digest]

    def deps(self, digest: str) -> Mapping[str, str]:
        """Dependencies by role; none where nothing describes the stage. A lock has them without a file in results/ being read."""
        known = self.locked.get(digest) or self.get(digest)
        return known["deps"] if known else {}

    def _elsewhere(self, digest: str) -> dict[str, Any] | None:
        locked, found = self.locked.get(digest), self.found.get(digest)
        made = written(self.results, found.kind, digest) if found else None
        return {**made, **locked} if made and locked else made or locked


def share_done(folder: Path, stage: Stage) -> float:
    """How much of an unfinished stage its last save holds, in [0, 1]; 0 where saves do not tell."""
    saved = artifact.last_save(folder)
    if saved is None:
        return 0.0
    reached, whole = saved["state"].get("tokens"), getattr(stage.spec, "tokens", None)
    if reached is None or whole is None:
        reached, whole = saved["step"], getattr(stage.spec, "steps", None)
    return min(1.0, reached / whole) if whole else 0.0


# At which other scales a study has results. The scale is asked for anew with every command, so results at another one than that
# of configs/config.yaml look as if they were gone.


def other_scale_hint(configs: Path, results: Path, plan: Plan) -> str:
    """Such as `finished at smoke: add --scale smoke`, where nothing of the plan is there and something at another scale is; else
    empty."""
    if not results.exists() or has_begun(results, plan):
        return ""
    found = {scale: _state(configs, results, plan.study, scale) for scale in compose.scales(configs) if scale != plan.scale}
    known = {scale: state for scale, state in found.items() if state}
    if not known:
        return ""
    best = next((scale for scale, state in known.items() if state == "finished"), next(iter(known)))
    return f"{', '.join(f'{state} at {scale}' for scale, state in known.items())}: add --scale {best}"


def _state(configs: Path, results: Path, study: str, scale: str) -> str:
    try:
        plan = plan_study(configs, study, scale)
    except UserError:  # a study need not fit every scale
        return ""
    if artifact.done(artifact.folder(results, "report", plan.report)):
        return "finished"
    return "begun" if has_begun(results, plan) else ""


def has_begun(results: Path, plan: Plan) -> bool:
    """Whether any stage of the plan is finished."""
    return any(artifact.done(artifact.folder(results, stage.kind, digest)) for digest, stage in plan.stages.items())


# Finished stages that were made by sources which read otherwise now. An advisory: whether a result would differ is for a person
# to say, by raising a `VERSION`.


def drifted_stages(results: Path, stages: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """File of the package -> digests of the finished stages, given as (kind, digest), whose maker read it otherwise."""
    found: dict[str, list[str]] = {}
    for kind, digest in stages:
        made_by = metrics.read_telemetry(artifact.folder(results, kind, digest)).get("sources")
        for name in sources.differing(made_by, sources.of_kind(kind)) if made_by else []:
            found.setdefault(name, []).append(digest)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def drift_advisory(found: dict[str, list[str]]) -> list[str]:
    """The paragraph and one line a file; empty when there is nothing to say. Nothing reruns because of it."""
    if not found:
        return []
    stages = {digest for digests in found.values() for digest in digests}
    return [
        f"advisory: {plural(len(stages), 'finished stage')} stood on sources that read otherwise now (comments and docstrings "
        f"apart), {plural(len(found), 'file')} in all. They are kept. If the same spec would give another result now, raise "
        "VERSION of the model in schema/ that it belongs to: that reruns its users.",
        *(f"  {name}: {plural(len(digests), 'stage')}" for name, digests in found.items()),
    ]
