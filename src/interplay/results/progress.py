"""How far the stages of a plan are, read from what they leave while they work: leases, logs, metrics.jsonl, resume/.

Only files are read, and no lock is kept, so it works for runs of this machine and of a cluster that shares the folder."""

import json
import platform
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.results.state import Found, Library, scan, share_done
from interplay.study.plan import Plan, Stage

STATES = ("waiting", "running", "stopped", "failed", "done")
"""waiting: not started; stopped: started, and neither done nor failed nor running: it goes on at the next start."""
FRESH = 150.0
"""Seconds since a stage on another machine, whose lease may not be seen here, wrote to its log: a line comes each minute."""
LINE = re.compile(r"(?P<done>\d+)/(?P<total>\d+) (?P<unit>\w+), (?P<rate>[\d.e+-]+)/s, (?P<left>\d+) s left(?P<values>.*)")
"""A line of `core.metrics.Progress`."""
RESUMED = re.compile(r"going on from (?P<done>\d+)/(?P<total>[1-9]\d*) ")
"""What it says when a stage goes on from a save."""
TAIL = 4096
"""Bytes at the end of a file that are read."""


class Reached(NamedTuple):
    """How far a running stage is."""

    share: float | None
    """In [0, 1]; None before anything tells."""
    text: str
    """Such as `12/40 steps`."""
    rate: float | None
    """Units per second."""
    unit: str
    left: float | None
    """Seconds to its end."""
    values: dict[str, float]
    """Last metrics."""


class Seen(NamedTuple):
    """One stage of the plan."""

    stage: Stage
    state: str
    detail: str
    reached: Reached | None


def look(plan: Plan, results: Path, logs: Path) -> list[Seen]:
    """All stages of the plan, in its order."""
    found = scan(results)
    return [_seen(stage, found.get(digest), results, logs) for digest, stage in plan.stages.items()]


def counts(seen: Iterable[Seen]) -> dict[str, dict[str, int]]:
    """Kind -> state -> number of stages, kinds in the plan's order."""
    table: dict[str, dict[str, int]] = {}
    for one in seen:
        row = table.setdefault(one.stage.kind, dict.fromkeys(STATES, 0))
        row[one.state] += 1
    return table


def time_left(plan: Plan, seen: list[Seen], results: Path) -> tuple[float | None, str]:
    """Seconds until all is done, with as many stages side by side as run now (None: nothing tells), and what that rests on."""
    from interplay.results import estimate

    left = {one.stage.digest: _share_left(one, results) for one in seen if one.state != "done"}
    found = scan(results)
    made = estimate.estimate(left, Library(plan.stages, results, found), found)
    seconds = {digest: time.seconds for digest, time in made.times.items()}
    seconds |= {one.stage.digest: one.reached.left for one in seen if one.reached and one.reached.left is not None}
    ends: dict[str, float] = {}
    for digest, stage in plan.stages.items():  # dependencies first
        before = max((ends[artifact.split_ref(dep)[0]] for dep in stage.deps.values()), default=0.0)
        ends[digest] = before + seconds.get(digest, 0.0)
    side_by_side = max(1, sum(one.state == "running" for one in seen))
    whole = max(sum(seconds.values()) / side_by_side, *ends.values(), 0.0)
    return (whole if seconds else None), f"{side_by_side} at a time, {estimate.said(made.sources())}"


def _share_left(one: Seen, results: Path) -> float:
    if one.reached is not None and one.reached.share is not None:
        return 1.0 - one.reached.share
    return 1.0 - share_done(artifact.folder(results, one.stage.kind, one.stage.digest), one.stage)


def reached(folder: Path, log: Path, spec: dict[str, Any]) -> Reached:
    """How far a stage is: by its last line in metrics.jsonl where its spec says how far that leads, else by its log."""
    line = last_line(log)
    metrics = last_metrics(folder)
    share, text, unit, rate, left = None, "", "", None, None
    if line is not None:
        done, total = int(line["done"]), int(line["total"])
        share, unit, rate, left = done / max(1, total), line["unit"], float(line["rate"]), float(line["left"])
        text = f"{done}/{total} {unit}"
    for key, goal in (("tokens", spec.get("tokens")), ("step", spec.get("steps"))):
        if goal and key in metrics and metrics[key] / goal >= (share or 0.0):
            unit = "steps" if key == "step" else key
            share, text = min(1.0, metrics[key] / goal), f"{metrics[key]:,.0f}/{goal:,} {unit}"
            rate, left = _pace(folder, log, share, metrics[key], line)
            break
    values = {key: value for key, value in metrics.items() if key not in ("step", "tokens")}
    return Reached(share, text, rate, unit, left, values or _values(line["values"] if line else ""))


def last_line(log: Path) -> re.Match[str] | None:
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


def _seen(stage: Stage, found: Found | None, results: Path, logs: Path) -> Seen:
    folder = artifact.folder(results, stage.kind, stage.digest)
    log = logs / stage.kind / f"{stage.digest}.log"
    state, detail = (found.state, found.detail) if found else ("new", "")
    if state == "unfinished" and _works_elsewhere(folder, log):
        state = "running"
    if state == "running":
        return Seen(stage, state, "", reached(folder, log, stage.spec.model_dump()))
    named = {"new": "waiting", "missing": "waiting", "unfinished": "stopped"}.get(state, state)
    return Seen(stage, named, detail, None)


def _works_elsewhere(folder: Path, log: Path) -> bool:
    """Whether another machine has written to the stage's log a moment ago. Locks of shared file systems may not be seen here."""
    try:
        host = artifact.read_json(folder / "telemetry.json").get("host")
        fresh = time.time() - log.stat().st_mtime < FRESH
    except (UserError, OSError):
        return False
    return fresh and host is not None and host != platform.node()


def _pace(folder: Path, log: Path, share: float, done: float, line: re.Match[str] | None) -> tuple[float | None, float | None]:
    """Rate and seconds left. The log knows the rate since the last start; before its first line, the time since then tells."""
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
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - TAIL))
            return handle.read().decode("utf-8", "replace")
    except OSError:
        return ""
