"""The states of all stages at once, other scales with results, drift of sources, and the progress of running stages."""

import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, metrics, model
from interplay.kinds import sources, table
from interplay.study import compose, expand
from interplay.study.plan import Plan, Stage

NEW, KEPT, UNNEEDED = "new", "kept", "unneeded"
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


def scan_results(results: Path) -> dict[str, Found]:
    """The state of every artifact folder by digest: a few system calls each, so that 10,000 of them take less than a second."""
    return {name: _found(results / kind / name, kind) for kind in table.KINDS for name in _folders(results / kind)}


def _folders(kind: Path) -> list[str]:
    """Names of a kind's artifacts; a name with a leading dot is being removed (`interplay gc`)."""
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
    if not os.path.exists(f"{folder}/lease"):  # every stage that was ever started has one
        return Found(kind, NEW)
    return Found(kind, *artifact.state_of(folder))


def read_stage(results: Path, kind: str, digest: str) -> dict[str, Any] | None:
    """A stage as described by its folder in results/; None where there is no description."""
    folder = artifact.folder(results, kind, digest)
    for name in ("stage.json", "record.json"):
        if (folder / name).exists():
            return {"label": "", "run": {}, **artifact.read_json(folder / name)}
    return None


class Library:
    """Stages as JSON by digest: of the plan, and, read on demand, of the folders in results/. Locks add stages that are in
    neither, without their specs, and the labels that are shown."""

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
        """The stage of a digest (or of `digest@step`); None where it is unknown."""
        digest = artifact.split_ref(ref)[0]
        if digest not in self._read:
            in_plan = self.planned.get(digest)
            self._read[digest] = in_plan.as_json() if in_plan else self._from_results(digest)
        return self._read[digest]

    def deps(self, digest: str) -> Mapping[str, str]:
        """Dependencies by role; none of an unknown stage. Those of a locked stage need no file in results/."""
        known = self.locked.get(digest) or self.get(digest)
        return known["deps"] if known else {}

    def _from_results(self, digest: str) -> dict[str, Any] | None:
        locked, found = self.locked.get(digest), self.found.get(digest)
        made = read_stage(self.results, found.kind, digest) if found else None
        return {**made, **locked} if made and locked else made or locked


def needed_stages(planned: Mapping[str, Stage], is_done: Callable[[str], bool]) -> list[str]:
    """The stages that a launch makes: reports that are not done, and of all that these depend on what is not done. The inputs of
    a finished stage are not needed, even where they are missing."""
    waiting = [digest for digest, stage in planned.items() if table.KINDS[stage.kind].makes == "report"]
    found: dict[str, None] = {}
    while waiting:
        digest = artifact.split_ref(waiting.pop())[0]
        if digest not in found and not is_done(digest):
            found[digest] = None
            waiting += planned[digest].deps.values()
    return list(found)


def share_done(folder: Path, stage: Stage) -> float:
    """The share of an unfinished stage that its last save holds, in [0, 1]; 0 where a save does not record it."""
    saved = artifact.last_save(folder)
    if saved is None:
        return 0.0
    reached, total = saved["state"].get("tokens"), getattr(stage.spec, "tokens", None)
    if reached is None or total is None:
        reached, total = saved["step"], getattr(stage.spec, "steps", None)
    return min(1.0, reached / total) if total else 0.0


# -- other scales ------------------------------------------------------------------------------------------------------
# Every command has its own --scale, so results at another one than that of configs/config.yaml look as if they were lost.


def other_scale_hint(configs: Path, results: Path, plan: Plan) -> str:
    """Such as `finished at smoke: add --scale smoke`, where nothing of the plan is finished and the study has results at another
    scale; else empty."""
    if not results.exists() or has_begun(results, plan):
        return ""
    found = {scale: _progress(configs, results, plan.study, scale) for scale in compose.scales(configs) if scale != plan.scale}
    known = {scale: progress for scale, progress in found.items() if progress}
    if not known:
        return ""
    best = next((scale for scale, progress in known.items() if progress == "finished"), next(iter(known)))
    return f"{', '.join(f'{progress} at {scale}' for scale, progress in known.items())}: add --scale {best}"


def _progress(configs: Path, results: Path, study: str, scale: str) -> str:
    try:
        plan = expand.plan_study(configs, study, scale)
    except model.UserError:  # a study need not fit every scale
        return ""
    if artifact.done(artifact.folder(results, "report", plan.report)):
        return "finished"
    return "begun" if has_begun(results, plan) else ""


def has_begun(results: Path, plan: Plan) -> bool:
    """Whether any stage of the plan is finished."""
    return any(artifact.done(artifact.folder(results, stage.kind, digest)) for digest, stage in plan.stages.items())


# -- drift -------------------------------------------------------------------------------------------------------------
# Finished stages whose source files differ from the ones that made them. Only an advisory: whether a result would differ is a
# person's decision, who then raises a `VERSION`.


def drifted_stages(results: Path, stages: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Source file -> digests of the finished stages, given as (kind, digest), that were made with another version of it."""
    found: dict[str, list[str]] = {}
    for kind, digest in stages:
        made_by = metrics.read_telemetry(artifact.folder(results, kind, digest)).get("sources")
        for name in sources.differing(made_by, sources.of_kind(kind)) if made_by else []:
            found.setdefault(name, []).append(digest)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def drift_advisory(found: dict[str, list[str]], most: int | None = None) -> list[str]:
    """A paragraph and one line per file, with `most` of at most that many; empty without drift. Nothing reruns because of it."""
    if not found:
        return []
    stages = {digest for digests in found.values() for digest in digests}
    more = len(found) - most if most is not None else 0
    return [
        f"advisory: {model.plural(len(stages), 'finished stage')} used source files that have changed since (other than in "
        f"comments and docstrings), {model.plural(len(found), 'file')} in all. They are kept. If the same spec would give "
        "another result now, raise VERSION of the spec class that configures the changed code: that reruns its users.",
        *(f"  {name}: {model.plural(len(digests), 'stage')}" for name, digests in list(found.items())[:most]),
        *([f"  {model.plural(more, 'more file')}: see `interplay plan`"] if more > 0 else []),
    ]


# -- progress of running stages -----------------------------------------------------------------------------------------
# Read from the files of running stages: leases, logs, metrics.jsonl, resume/.
#
# Nothing is written and no lock is held, so it works for runs on this machine and on a cluster that shares the folder.

STATES = ("waiting", "running", "stopped", "failed", "done")
"""waiting: not started; stopped: started, and neither done nor failed nor running: it resumes at the next start."""
FRESH = 150.0
"""Seconds since the last log line of a stage on another machine, whose lease may not be visible here; a line is written each
minute."""
LINE = re.compile(r"(?P<done>\d+)/(?P<total>\d+) (?P<unit>\w+), (?P<rate>[\d.e+-]+)/s, (?P<left>\d+) s left(?P<values>.*)")
"""A line of `core.metrics.Progress`."""
RESUMED = re.compile(r"going on from (?P<done>\d+)/(?P<total>[1-9]\d*) ")
"""The log line of a stage that resumes from a save."""
TAIL = 4096
"""Bytes at the end of a file that are read."""


class Reached(NamedTuple):
    """Progress of a running stage."""

    share: float | None
    """In [0, 1]; None while unknown."""
    text: str
    """Such as `12/40 steps`."""
    rate: float | None
    """Units per second."""
    unit: str
    left: float | None
    """Seconds to its end."""
    values: dict[str, float]
    """Last metrics."""


class Watched(NamedTuple):
    """One stage of the plan."""

    stage: Stage
    state: str
    detail: str
    reached: Reached | None


def watch_stages(plan: Plan, results: Path, logs: Path) -> list[Watched]:
    """All stages of the plan, in its order."""
    found = scan_results(results)
    return [_watch(stage, found.get(digest), results, logs) for digest, stage in plan.stages.items()]


def count_states(seen: Iterable[Watched]) -> dict[str, dict[str, int]]:
    """Kind -> state -> number of stages, kinds in the plan's order."""
    counts: dict[str, dict[str, int]] = {}
    for one in seen:
        row = counts.setdefault(one.stage.kind, dict.fromkeys(STATES, 0))
        row[one.state] += 1
    return counts


def time_left(plan: Plan, seen: list[Watched], results: Path) -> tuple[float | None, str]:
    """Seconds until all is done, with as many stages at a time as run now (None: unknown), and the basis of that estimate."""
    from interplay.results import estimate

    left = {one.stage.digest: _share_left(one, results) for one in seen if one.state != "done"}
    found = scan_results(results)
    made = estimate.estimate_stages(left, Library(plan.stages, results, found), found)
    seconds = {digest: one.seconds for digest, one in made.times.items()}
    seconds |= {one.stage.digest: one.reached.left for one in seen if one.reached and one.reached.left is not None}
    ends: dict[str, float] = {}
    for digest, stage in plan.stages.items():  # dependencies first
        before = max((ends[artifact.split_ref(dep)[0]] for dep in stage.deps.values()), default=0.0)
        ends[digest] = before + seconds.get(digest, 0.0)
    parallel = max(1, sum(one.state == "running" for one in seen))
    total = max(sum(seconds.values()) / parallel, *ends.values(), 0.0)
    return (total if seconds else None), f"{parallel} at a time, {estimate.describe_sources(made.sources())}"


def _share_left(one: Watched, results: Path) -> float:
    if one.reached is not None and one.reached.share is not None:
        return 1.0 - one.reached.share
    return 1.0 - share_done(artifact.folder(results, one.stage.kind, one.stage.digest), one.stage)


def read_progress(folder: Path, log: Path, spec: dict[str, Any]) -> Reached:
    """Progress by the last line of metrics.jsonl where the spec has the total, else by the log."""
    line = last_progress_line(log)
    latest = last_metrics(folder)
    share, text, unit, rate, left = None, "", "", None, None
    if line is not None:
        done, total = int(line["done"]), int(line["total"])
        share, unit, rate, left = done / max(1, total), line["unit"], float(line["rate"]), float(line["left"])
        text = f"{done}/{total} {unit}"
    for key, goal in (("tokens", spec.get("tokens")), ("step", spec.get("steps"))):
        if goal and key in latest and latest[key] / goal >= (share or 0.0):
            unit = "steps" if key == "step" else key
            share, text = min(1.0, latest[key] / goal), f"{latest[key]:,.0f}/{goal:,} {unit}"
            rate, left = _pace(folder, log, share, latest[key], line)
            break
    values = {key: value for key, value in latest.items() if key not in ("step", "tokens")}
    return Reached(share, text, rate, unit, left, values or _values(line["values"] if line else ""))


def last_progress_line(log: Path) -> re.Match[str] | None:
    """The last progress line of this attempt's log; None before the first one."""
    lines = [found for text in _tail(log).splitlines() if (found := LINE.search(text))]
    return lines[-1] if lines else None


def last_metrics(folder: Path) -> dict[str, float]:
    """The newest value of each metric among the last lines of metrics.jsonl."""
    found: dict[str, float] = {}
    for text in _tail(folder / "metrics.jsonl").split("\n"):
        if text.startswith("{") and text.endswith("}"):
            try:
                found |= json.loads(text)
            except json.JSONDecodeError:  # torn at the start of the tail
                continue
    return found


def _watch(stage: Stage, found: Found | None, results: Path, logs: Path) -> Watched:
    folder = artifact.folder(results, stage.kind, stage.digest)
    log = logs / stage.kind / f"{stage.digest}.log"
    state, detail = (found.state, found.detail) if found else ("new", "")
    if state == "unfinished" and _runs_elsewhere(folder, log):
        state = "running"
    if state == "running":
        return Watched(stage, state, "", read_progress(folder, log, stage.spec.model_dump()))
    named = {"new": "waiting", "missing": "waiting", "unfinished": "stopped"}.get(state, state)
    return Watched(stage, named, detail, None)


def _runs_elsewhere(folder: Path, log: Path) -> bool:
    """Whether another machine has just written to the stage's log. Locks of shared file systems may not be visible here."""
    try:
        host = artifact.read_json(folder / "telemetry.json").get("host")
        fresh = time.time() - log.stat().st_mtime < FRESH
    except (model.UserError, OSError):
        return False
    return fresh and host is not None and host != platform.node()


def _pace(folder: Path, log: Path, share: float, done: float, line: re.Match[str] | None) -> tuple[float | None, float | None]:
    """Rate and seconds left: by the log, which has the rate since the last start; before its first line, by the time since
    then."""
    if line is not None and 0 < int(line["done"]) < int(line["total"]):
        left = float(line["left"]) * (1 - share) / (1 - int(line["done"]) / int(line["total"]))
        return (done / share * (1 - share) / left if left > 0 else None), left
    try:
        seconds = time.time() - (folder / "telemetry.json").stat().st_mtime  # written when the stage started
    except OSError:
        return None, None
    before = [int(found["done"]) / int(found["total"]) for found in RESUMED.finditer(_tail(log))]
    made = share - (before[-1] if before else 0.0)
    if made <= 0:
        return None, None
    return done * made / share / max(seconds, 1e-9), seconds * (1 - share) / made


def _values(text: str) -> dict[str, float]:
    words = text.split()
    found = {}
    for key, value in zip(words[::2], words[1::2], strict=False):
        try:
            found[key] = float(value)
        except ValueError:
            break
    return found


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as handle:
            handle.seek(max(0, os.fstat(handle.fileno()).st_size - TAIL))
            return handle.read().decode("utf-8", "replace")
    except OSError:
        return ""
