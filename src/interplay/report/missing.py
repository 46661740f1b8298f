"""Why a stage of a plan has no record, in words: it failed, it stopped, it waits for another, or it was not run yet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interplay.store import artifact, state

LONGEST = 240
"""Characters of a log's line that are worth showing."""


def reasons(stages: Mapping[str, Mapping[str, Any]], results: Path, logs: Path) -> dict[str, str]:
    """Digest -> why it is missing, for every stage without a record. `stages` as JSON (kind, deps, label), dependencies first.

    What waits names the first stage on its way that did fail, and that one's reason."""
    found: dict[str, str] = {}
    for digest, stage in stages.items():
        out = artifact.folder(results, stage["kind"], digest)
        if not artifact.done(out):
            found[digest] = _own(out, logs / stage["kind"] / f"{digest}.log") or _waits(stage, stages, found) or "not run yet"
    return found


def state_of(why: str) -> str:
    """The state that a reason stands for: failed, unfinished or missing."""
    return "failed" if why.startswith("failed") else "unfinished" if why.startswith("stopped") else "missing"


def roots(stages: Mapping[str, Mapping[str, Any]], why: Mapping[str, str]) -> list[str]:
    """Missing stages that wait for no other missing one: what has to be mended or run first."""
    return [digest for digest in stages if digest in why and not _missing_dep(stages[digest], why)]


def _own(out: Path, log: Path) -> str:
    """What the stage itself tells; empty when it was never started."""
    name, detail = state.of(out)
    if name == "failed":
        return f"failed: {detail}"
    if name == "running":
        return f"running now{f', at {detail}' if detail else ''}"
    if name == "unfinished":
        said = _last_line(log)
        return f"stopped ({detail}){f'; the last line of its log: {said}' if said else ''}"
    return ""


def _waits(stage: Mapping[str, Any], stages: Mapping[str, Mapping[str, Any]], why: Mapping[str, str]) -> str:
    dep = _missing_dep(stage, why)
    if not dep:
        return ""
    if why[dep].startswith("waits for "):
        return why[dep]
    return f"waits for {stages[dep]['label']} [{stages[dep]['kind']} {dep}], {_as_clause(why[dep])}"


def _as_clause(reason: str) -> str:
    link = "which was" if reason.startswith("not") else "which is" if reason.startswith("running") else "which"
    return f"{link} {reason}"


def _missing_dep(stage: Mapping[str, Any], why: Mapping[str, str]) -> str:
    """The dependency to blame: one that failed or stopped before one that merely was not run."""
    gone = [dep for dep in (artifact.split_ref(ref)[0] for ref in stage["deps"].values()) if dep in why]
    return min(gone, key=lambda dep: why[dep].endswith("not run yet"), default="")


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return lines[-1].strip()[:LONGEST] if lines else ""
