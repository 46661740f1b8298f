"""The states of all stages at once, why some are missing, other scales with results, and drift of sources."""

import atexit
import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, metrics, model
from interplay.kinds import sources, table
from interplay.study import expand
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
    return {name: _read_state(results / kind / name, kind) for kind in table.KINDS for name in _folders(results / kind)}


def _folders(kind: Path) -> list[str]:
    """Names of a kind's artifacts; a name with a leading dot is being removed (`interplay gc`)."""
    try:
        with os.scandir(kind) as entries:
            return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []


def _read_state(folder: Path, kind: str) -> Found:
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


MOST_HEADER = 100_000_000
"""Bytes of the header of a safetensors file, at most."""


def source_size(results: Path, digest: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """Where the size of a model from outside is written: `config`, its config.json, and `metrics.parameters` as its record states
    them, or will, counted in the headers of its weight files. Of its artifact, of the folder in its run block, or of the
    config.json that the study gives; nothing where it has none of these."""
    folder = artifact.folder(results, "source", digest)
    if artifact.done(folder):
        parameters = artifact.record(folder)["metrics"].get("parameters")
        return {"metrics": {"parameters": parameters}, **_config(folder / "model")}
    if not run.get("path"):
        return {"config": run["config"]} if run.get("config") else {}
    counts = [count_weights(file) for file in sorted(Path(run["path"]).glob("*.safetensors"))]
    counted = {"metrics": {"parameters": sum(counts)}} if all(counts) and counts else {}
    return {**counted, **_config(Path(run["path"]))}


def _config(folder: Path) -> dict[str, Any]:
    """Of a folder whose weights DVC holds, or whose file is damaged, there is none."""
    with contextlib.suppress(OSError, ValueError, model.UserError):
        return {"config": artifact.read_json(folder / "config.json")}
    return {}


def count_weights(file: Path) -> int:
    """Numbers in a safetensors file; 0 where it is not readable, which the stage itself reports."""
    try:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            tensors = json.loads(opened.read(size)) if size <= MOST_HEADER else {}
        return sum(math.prod(one["shape"]) for name, one in tensors.items() if name != "__metadata__")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return 0


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
        digest = artifact.ref_digest(ref)
        if digest not in self._read:
            in_plan, locked, found = self.planned.get(digest), self.locked.get(digest), self.found.get(digest)
            made = read_stage(self.results, found.kind, digest) if found and not in_plan else None
            known = in_plan.as_json() if in_plan else {**(made or {}), **(locked or {})} or None
            if known and known.get("kind") == "source" and "run" in known:  # a lock does not say where its files are
                known |= source_size(self.results, digest, known["run"])
            self._read[digest] = known
        return self._read[digest]

    def deps(self, digest: str) -> Mapping[str, str]:
        """Dependencies by role; none of an unknown stage. Those of a locked stage need no file in results/."""
        known = self.locked.get(digest) or self.get(digest)
        return known["deps"] if known else {}


def needed_stages(planned: Mapping[str, Stage], is_done: Callable[[str], bool]) -> list[str]:
    """The stages that a launch makes: reports that are not done, and of all that these depend on what is not done. The inputs of
    a finished stage are not needed, even where they are missing."""
    waiting = [digest for digest, stage in planned.items() if table.KINDS[stage.kind].makes == "report"]
    found: dict[str, None] = {}
    while waiting:
        digest = artifact.ref_digest(waiting.pop())
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
    found = {scale: _progress(configs, results, plan.study, scale) for scale in expand.scales(configs) if scale != plan.scale}
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
    """Whether the study was ever launched at this scale: stages that it shares with another one do not count."""
    return (plan.study, plan.scale) in launched_studies(results)


class Launched(NamedTuple):
    """The newest report that a launch of a study set out to make."""

    report: str
    when: float


def launched_studies(results: Path) -> dict[tuple[str, str], Launched]:
    """(study, scale) -> its newest report, for all that were launched here or whose records came from a remote."""
    found: dict[tuple[str, str], Launched] = {}
    for name in _folders(results / "report"):
        stage = read_stage(results, "report", name)
        spec = stage.get("spec", {}) if stage else {}
        if stage and {"study", "scale"} <= spec.keys():
            key, when = (spec["study"], spec["scale"]), os.stat(results / "report" / name).st_mtime
            if key not in found or when > found[key].when:
                found[key] = Launched(name, when)
    return found


# -- missing stages ----------------------------------------------------------------------------------------------------
# Why a stage of a plan has no record, in words: it failed, it stopped, it waits for another, or it was not run yet.


LONGEST = 240
"""Characters of a log's line that are worth showing."""


def missing_reasons(stages: Mapping[str, Mapping[str, Any]], results: Path, logs: Path) -> dict[str, str]:
    """Digest -> why it is missing, for every stage without a record. `stages` as JSON (kind, deps, label), dependencies first.

    What waits names the first stage on its way that did fail, and that one's reason."""
    found: dict[str, str] = {}
    for digest, stage in stages.items():
        out = artifact.folder(results, stage["kind"], digest)
        if not artifact.done(out):
            found[digest] = (
                _own_reason(out, logs / stage["kind"] / f"{digest}.log") or _waiting_reason(stage, stages, found) or "not run yet"
            )
    return found


def reason_state(why: str) -> str:
    """The state that a reason stands for: failed, unfinished or missing."""
    return "failed" if why.startswith("failed") else "unfinished" if why.startswith("stopped") else "missing"


def missing_roots(stages: Mapping[str, Mapping[str, Any]], why: Mapping[str, str]) -> list[str]:
    """Missing stages that wait for no other missing one: what has to be fixed or run first."""
    return [digest for digest in why if not _missing_dep(stages[digest], why)]


MOST_CAUSES = 8
"""Failed stages that the last lines of a launch name."""
SWITCH = "INTERPLAY_LAST_LINES"
"""Environment variable; 0: a launch does not end with them, since the process that started it says them."""


def failure_lines(plan: Plan, results: Path, logs: Path, edited: bool = False) -> list[str]:
    """Of a study that did not end well: each stage that failed or stopped with its cause, and the next command. Empty where no
    stage of it was started. A plan that is `edited` on the command line has stages that its file's addresses do not lead to."""
    stages = plan.stages_json()
    why = missing_reasons(stages, results, logs)
    roots = [digest for digest in missing_roots(stages, why) if reason_state(why[digest]) != "missing"]
    if not roots:
        return []
    failed = [digest for digest in roots if reason_state(why[digest]) == "failed"]
    lines = [f"{plan.address(plan.stages[digest])} {why[digest]}" for digest in roots[:MOST_CAUSES]]
    lines += [f"and {len(roots) - len(lines)} more"] if len(roots) > len(lines) else []
    command = "the same command" if edited else f"`{plan.run_command()}`"
    if not failed:
        return [*lines, f"next: {command} goes on"]
    place = failed[0] if edited else plan.address(plan.stages[failed[0]])
    return [*lines, f"next: `interplay debug {place}` makes it again in the foreground; {command} tries again"]


def say_last(plans: Sequence[Plan], results: Path, logs: Path, edited: bool) -> None:
    """Have this process, Snakemake, end with these lines, after its own."""
    lines = [line for plan in plans for line in failure_lines(plan, results, logs, edited)]
    if os.environ.get(SWITCH) != "0" and lines:
        atexit.register(print, model.escape_control("\n".join(lines)), file=sys.stderr)


def _own_reason(out: Path, log: Path) -> str:
    """The reason in the stage's own folder and log; empty when it was never started."""
    name, detail = artifact.state_of(out)
    if name == "failed":
        return f"failed: {detail}"
    if name == "running":
        return f"running now{f', at {detail}' if detail else ''}"
    if name == "unfinished":
        said = _last_line(log)
        stopped = detail if detail.startswith("stopped") else f"stopped ({detail})"
        return f"{stopped}{f'; the last line of its log: {said}' if said else ''}"
    return ""


def _waiting_reason(stage: Mapping[str, Any], stages: Mapping[str, Mapping[str, Any]], why: Mapping[str, str]) -> str:
    dep = _missing_dep(stage, why)
    if not dep:
        return ""
    reason = why[dep]
    if reason.startswith("waits for "):
        return reason
    verb = "was " if reason.startswith("not") else "is " if reason.startswith("running") else ""
    return f"waits for {stages[dep]['label']} [{stages[dep]['kind']} {dep}], which {verb}{reason}"


def _missing_dep(stage: Mapping[str, Any], why: Mapping[str, str]) -> str:
    """The dependency to blame: one that failed or stopped before one that merely was not run."""
    gone = [dep for dep in (artifact.ref_digest(ref) for ref in stage["deps"].values()) if dep in why]
    return min(gone, key=lambda dep: why[dep].endswith("not run yet"), default="")


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return lines[-1].strip()[:LONGEST] if lines else ""


# -- drift -------------------------------------------------------------------------------------------------------------
# Finished stages whose source files differ from the ones that made them. Only an advisory: whether a result would differ is a
# person's decision, who then raises a `VERSION`.


def drifted_stages(results: Path, stages: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Source file -> digests of the finished stages, given as (kind, digest), that were made with another version of it."""
    found: dict[str, list[str]] = {}
    for kind, digest in stages:
        made_by = metrics.read_telemetry(artifact.folder(results, kind, digest)).get("sources")
        for name in sources.differing_files(made_by, sources.present_files(kind, made_by)) if made_by else []:
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
