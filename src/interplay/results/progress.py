"""Progress of the stages of a plan, read from the files of running stages (leases, logs, metrics.jsonl, resume/), and early
warnings from their curves: what would make the rest of a run worthless, said while it can still be stopped (each row of
`CHECKS` documents its threshold).

Nothing is written and no lock is held, so it works for runs on this machine and on a cluster that shares the folder."""

import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, metrics, model
from interplay.results.state import Found, Library, scan_results, share_done
from interplay.study.plan import Plan, Stage

Lines = Sequence[Mapping[str, float]]
"""Of a metrics.jsonl, in the order of their steps."""

EQUAL_STEPS = 5
"""Steps in a row without a difference between the rewards of any group."""
WINDOW = 5
"""Last steps whose mean is compared."""
ENTROPY_LEFT = 0.1
"""Share of the entropy of the first steps below which it has collapsed."""
TRUNCATED = 0.5
"""Share of completions that were cut off."""
KL_LEAST, KL_TIMES = 0.1, 10.0
"""Nats per token, and multiple of the median so far, above both of which the KL to the reference has blown up."""
OVER_TIME = 2.0
"""Multiple of the time that past runs took."""


class Check(NamedTuple):
    """One kind of warning."""

    name: str
    threshold: str
    """When it is given, in words."""
    advice: str
    find: Callable[[Lines], str]
    """Lines -> what is wrong, with its numbers; empty where nothing is."""


class Warned(NamedTuple):
    """A warning about one run."""

    name: str
    text: str


def values_of(lines: Lines, key: str) -> list[float]:
    """The values of a metric, step by step, without lines that lack it."""
    return [line[key] for line in lines if key in line]


def equal_rewards(lines: Lines) -> str:
    """Whether no group of the last steps had two different rewards: its advantages are 0, and nothing is learnt."""
    known = values_of(lines, "effective_ratio")
    if len(known) < EQUAL_STEPS or any(known[-EQUAL_STEPS:]):
        return ""
    steps = next((n for n, value in enumerate(reversed(known)) if value), len(known))
    reward = values_of(lines, "reward")[-1:]
    return f"all rewards of each group equal for {steps} steps{f' (mean {reward[0]:.3g})' if reward else ''}"


def collapsed_entropy(lines: Lines) -> str:
    """Whether the entropy of the policy is a small share of what it was at first."""
    known = values_of(lines, "entropy")
    if len(known) < 2 * WINDOW:
        return ""
    first, last = _mean(known[:WINDOW]), _mean(known[-WINDOW:])
    return f"entropy {first:.3g} -> {last:.3g} nats per token" if last < ENTROPY_LEFT * first else ""


def cut_off(lines: Lines) -> str:
    """Whether most completions of the last steps were cut off at their longest length."""
    last = values_of(lines, "truncated")[-WINDOW:]
    return f"{_mean(last):.0%} of completions truncated" if len(last) == WINDOW and _mean(last) > TRUNCATED else ""


def blown_kl(lines: Lines) -> str:
    """Whether the KL to the reference has grown by a multiple."""
    known = values_of(lines, "kl")
    if len(known) < 2 * WINDOW:
        return ""
    median, last = sorted(known)[len(known) // 2], _mean(known[-WINDOW:])
    return f"KL {median:.3g} -> {last:.3g} nats per token" if last > max(KL_LEAST, KL_TIMES * median) else ""


CHECKS = (
    Check(
        "equal rewards",
        f"no group with two different rewards for {EQUAL_STEPS} steps",
        "choose problems that are solved sometimes, or a finer reward",
        equal_rewards,
    ),
    Check(
        "entropy collapse",
        f"entropy, mean of {WINDOW} steps, below {ENTROPY_LEFT:.0%} of that of the first {WINDOW}",
        "lower the learning rate, or add an entropy or KL term",
        collapsed_entropy,
    ),
    Check(
        "truncation",
        f"over {TRUNCATED:.0%} of completions truncated, mean of {WINDOW} steps",
        "raise max_completion_length, or reward shorter answers",
        cut_off,
    ),
    Check(
        "KL blow-up",
        f"KL to the reference, mean of {WINDOW} steps, over {KL_TIMES:g} times its median and over {KL_LEAST} nats per token",
        "lower the learning rate, or raise beta",
        blown_kl,
    ),
)
"""THE table of warnings from metrics; `over_time` adds that of the clock."""


def warnings_of(lines: Lines) -> list[Warned]:
    """All warnings of a run so far."""
    return [Warned(check.name, f"{said}; {check.advice}") for check in CHECKS if (said := check.find(lines))]


def over_time(left: float, planned: float) -> list[Warned]:
    """A warning where what is left of a run, in seconds, takes more than `OVER_TIME` times what finished runs of its kind took
    for as much, and at least a minute more."""
    if left < max(OVER_TIME * planned, planned + 60) or planned <= 0:
        return []
    return [Warned("over time", f"what is left takes {left / planned:.1f} times as long as past runs; is the machine shared?")]


BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 12) -> str:
    """A curve as one line of text: the means of `width` equal parts between the least and the greatest."""
    width = min(width, len(values))
    parts = [values[len(values) * n // width : len(values) * (n + 1) // width] for n in range(width)]
    means = [_mean(part) for part in parts]
    if not means:
        return ""
    low, high = min(means), max(means)
    return "".join(BARS[round((len(BARS) - 1) * ((mean - low) / (high - low) if high > low else 0.5))] for mean in means)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


STATES = ("waiting", "running", "stopped", "failed", "done")
"""waiting: not started; stopped: started, and neither done nor failed nor running: it resumes at the next start."""
FRESH = 150.0
"""Seconds since the last log line of a stage on another machine, whose lease may not be visible here; a line is written each
minute."""
LINE = re.compile(r"(?P<done>\d+)/(?P<total>\d+) (?P<unit>\w+), (?P<rate>[\d.e+-]+)/s, (?P<left>\d+) s left(?P<values>.*)")
"""A line of `core.metrics.Progress`."""
RESUMED = re.compile(r"going on from (?P<done>\d+)/(?P<total>[1-9]\d*) ")
"""The log line of a stage that resumes from a save."""
TAIL, LONG_TAIL = 4096, 20_000
"""Bytes at the end of a file that are read; of a log that may end in a traceback."""
STOPPED = "interplay: stopped"
"""Beginning of the last line of a log whose stage was stopped by a signal."""


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
    """Of a stage that failed or stopped: why."""
    reached: Reached | None
    curve: tuple[float, ...] = ()
    """Reward, else loss, step by step."""
    warnings: tuple[Warned, ...] = ()


def watch_stages(plan: Plan, results: Path, logs: Path) -> list[Watched]:
    """All stages of the plan, in its order."""
    found = scan_results(results)
    return [_watch(stage, found.get(digest), results, logs) for digest, stage in plan.stages.items()]


def count_states(seen: Iterable[Watched]) -> dict[str, dict[str, int]]:
    """Kind -> state -> number of stages, kinds in the plan's order."""
    table: dict[str, dict[str, int]] = {}
    for one in seen:
        row = table.setdefault(one.stage.kind, dict.fromkeys(STATES, 0))
        row[one.state] += 1
    return table


class TimeLeft(NamedTuple):
    """When a study will be done."""

    seconds: float | None
    """With as many stages at a time as run now; None: unknown, or nothing runs."""
    basis: str
    late: dict[str, list[Warned]]
    """Digest of a running stage -> a warning where it is much slower than past ones."""


def time_left(plan: Plan, seen: list[Watched], results: Path) -> TimeLeft:
    """Seconds until all is done, and stages that are late."""
    from interplay.results import estimate

    left = {one.stage.digest: _share_left(one, results) for one in seen if one.state != "done"}
    found = scan_results(results)
    made = estimate.estimate_stages(left, Library(plan.stages, results, found), found)
    seconds = {digest: time.seconds for digest, time in made.times.items()}
    reached = {one.stage.digest: one.reached.left for one in seen if one.reached and one.reached.left is not None}
    measured = {digest: time.seconds for digest, time in made.times.items() if time.source == estimate.MEASURED}
    late = {digest: slow for digest, known in reached.items() if (slow := over_time(known, measured.get(digest, 0.0)))}
    seconds |= reached
    parallel = sum(one.state == "running" for one in seen)
    total = max(sum(seconds.values()) / max(1, parallel), estimate.longest_chain(plan, seconds))
    basis = f"{parallel} at a time, {estimate.describe_sources(made.sources())}"
    return TimeLeft(total if seconds and parallel else None, basis if parallel else "", late)


def _share_left(one: Watched, results: Path) -> float:
    if one.reached is not None and one.reached.share is not None:
        return 1.0 - one.reached.share
    return 1.0 - share_done(artifact.folder(results, one.stage.kind, one.stage.digest), one.stage)


def read_progress(folder: Path, log: Path, spec: dict[str, Any]) -> Reached:
    """Progress by the last line of metrics.jsonl where the spec has the total, else by the log."""
    line = last_progress_line(log)
    last = last_metrics(folder)
    share, text, unit, rate, left = None, "", "", None, None
    if line is not None:
        done, total = int(line["done"]), int(line["total"])
        share, unit, rate, left = done / max(1, total), line["unit"], float(line["rate"]), float(line["left"])
        text = f"{done}/{total} {unit}"
    for key, goal in (("tokens", spec.get("tokens")), ("step", spec.get("steps"))):
        if goal and key in last and last[key] / goal >= (share or 0.0):
            unit = "steps" if key == "step" else key
            share, text = min(1.0, last[key] / goal), f"{last[key]:,.0f}/{goal:,} {unit}"
            rate, left = _pace(folder, log, share, last[key], line)
            break
    values = {key: value for key, value in last.items() if key not in ("step", "tokens")}
    return Reached(share, text, rate, unit, left, values or _values(line["values"] if line else ""))


def last_progress_line(log: Path) -> re.Match[str] | None:
    """The last progress line of this attempt's log; None before the first one."""
    lines = [found for text in read_tail(log).splitlines() if (found := LINE.search(text))]
    return lines[-1] if lines else None


def last_metrics(folder: Path) -> dict[str, float]:
    """The newest value of each metric among the last lines of metrics.jsonl."""
    found: dict[str, float] = {}
    for text in read_tail(folder / "metrics.jsonl").split("\n"):
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
        lines = metrics.read(folder)
        curve = values_of(lines, "reward") or values_of(lines, "loss")
        reached = read_progress(folder, log, stage.spec.model_dump())
        return Watched(stage, state, "", reached, tuple(curve), tuple(warnings_of(lines)))
    if state == "unfinished" and (said := last_words(log)):
        stopped = said.startswith(STOPPED)
        return Watched(stage, "stopped" if stopped else "failed", said.removeprefix("interplay: "), None)
    named = {"new": "waiting", "missing": "waiting", "unfinished": "stopped"}.get(state, state)
    return Watched(stage, named, detail, None)


def last_words(log: Path) -> str:
    """The last line of a stage's log if that is a failure or a stop and no progress line; else nothing."""
    lines = [line for line in read_tail(log, LONG_TAIL).splitlines() if line.strip()]
    latest = [number for number, line in enumerate(lines) if line.endswith("]") and " [" in line] or [0]
    traced = any(line.startswith("Traceback ") for line in lines[latest[-1] :])
    return lines[-1].strip() if lines and (traced or lines[-1].startswith("interplay: ")) else ""


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
    before = [int(found["done"]) / int(found["total"]) for found in RESUMED.finditer(read_tail(log))]
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


def read_tail(path: Path, size: int = TAIL) -> str:
    """The end of a file; empty where it cannot be read."""
    try:
        with open(path, "rb") as handle:
            handle.seek(max(0, os.fstat(handle.fileno()).st_size - size))
            return handle.read().decode("utf-8", "replace")
    except OSError:
        return ""
