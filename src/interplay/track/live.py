"""The mirror while Snakemake runs: the logger plugin (`Sink`) reports jobs, the hooks report start and end.

Both end in the same idempotent `Mirror`, under one lock, so it does not matter which comes first, or whether the plugin is there.
Nothing is opened before the first job or the end, and nothing at all where everything is mirrored already. Tracking never fails a
study: after an error there is one line, then silence for some minutes; `interplay track sync` completes the store later."""

import contextlib
import fcntl
import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interplay.core import artifact, model
from interplay.results import progress
from interplay.study.plan import Plan
from interplay.track import arms, describe
from snakemake_logger_plugin_mlflow import events, store

LOG = logging.getLogger(__name__)

PAUSE = 300.0
"""Seconds of silence after an error."""
LAST_TRY = 30.0
"""Seconds after an error from which the end of the run tries once more."""
SWITCH = "INTERPLAY_TRACK"
"""Environment variable: 0 keeps studies out of MLflow."""
ADDRESS = "http://127.0.0.1:5000"
"""Of `mlflow ui` where nothing else is said."""


class Live:
    """The studies of this run of Snakemake and their mirrors, opened when first needed."""

    def __init__(self, plans: list[Plan], results: Path, uri: str) -> None:
        self.plans, self.results, self.uri = plans, results, uri
        self.mirrors: dict[str, Any] = {}
        self.lock = threading.RLock()
        self.silent_until = self.failed_at = 0.0
        self.warned = False
        self.ended = False
        self.me = uuid.uuid4().hex
        self.opened: set[str] = set()
        self.said: set[tuple[str, str]] = set()

    def mirror(self, plan: Plan) -> Any:
        """The study's mirror."""
        if plan.report not in self.mirrors:
            from interplay.track.mirror import Mirror

            forget_mirrored(plan, self.results, self.uri)
            self.mirrors[plan.report] = Mirror(plan, self.results, self.uri)
            if plan.report not in self.opened:
                self.mirrors[plan.report].close_orphans()
                self.mirrors[plan.report].write_views()
                self.opened.add(plan.report)
                self._say_address(plan, self.mirrors[plan.report].experiment, "start")
        return self.mirrors[plan.report]

    def _say_address(self, plan: Plan, experiment: str, when: str) -> None:
        if (plan.report, when) not in self.said:
            self.said.add((plan.report, when))
            for line in address_lines(plan, self.uri, experiment):
                LOG.info("%s", line)

    def update(self, job: events.Job) -> None:
        """A job of Snakemake changed its state."""
        digest = job.wildcards.get("digest", "")
        self._guarded(lambda: self._update(digest, job))

    def _update(self, digest: str, job: events.Job) -> None:
        for plan in self.plans:
            if digest not in plan.stages:
                continue
            mirror = self.mirror(plan)
            if job.status == "RUNNING" and not self.ended:
                mirror.running()
            mirror.stage(digest, reported_state(job), round(1000 * job.submitted))
            if job.status == "FINISHED":
                begun = describe.stage_times(self.results / plan.stages[digest].kind / digest)[0] / 1000
                waited = max(0.0, round(begun - job.submitted, 1))
                mirror.job(digest, {"queue_seconds": waited}, round(1000 * (job.ended or time.time())))

    def tick(self) -> None:
        """Mirror the steps that were written since."""
        self._guarded(self._tick)

    def _tick(self) -> None:
        for mirror in [self.mirror(plan) for plan in self.plans if plan.report in self.opened]:
            for digest, run in mirror.runs.items():
                if digest in mirror.plan.stages and mirror.status[run.info.run_id] == "RUNNING":
                    mirror.steps(digest)

    def finish(self) -> None:
        """Complete every study as far as it came. Events of jobs may still wait in the plugin's thread: they come too late to say
        that the study runs."""
        self.ended = True
        self.silent_until = min(self.silent_until, self.failed_at + LAST_TRY)
        for plan in self.plans:
            self._guarded(lambda plan=plan: self._finish(plan))

    def _finish(self, plan: Plan) -> None:
        if plan.report in self.opened or not is_mirrored(plan, self.results, self.uri):
            mirror = self.mirror(plan)
            mark_mirrored(plan, self.results, self.uri, mirror.everything(), mirror.experiment)
        if experiment := _entry(plan, self.results, self.uri).get("experiment"):
            self._say_address(plan, experiment, "end")

    def _guarded(self, step: Any) -> None:
        with self.lock:
            if time.monotonic() < self.silent_until:
                return
            try:
                with mirror_turn(self.results, self.me) as stale:
                    if stale:
                        self.mirrors.clear()
                    step()
            except Exception as error:  # tracking never fails a study
                self.failed_at = time.monotonic()
                self.silent_until = self.failed_at + PAUSE
                self.mirrors.clear()
                if not self.warned:
                    self.warned = True
                    why = store.redacted_reason(self.uri, error)
                    LOG.warning("mlflow: %s; the study goes on, complete it with `interplay track sync`", why)


def reported_state(job: events.Job) -> describe.Found:
    """The state of a stage by its job. One that a signal stopped is resumed later: that is no failure."""
    if job.status != "FAILED":
        return describe.Found("RUNNING" if job.status == "RUNNING" else "KILLED")
    last = next((words for words in (progress.last_words(Path(path)) for path in job.logs) if words), "")
    if last.startswith(progress.STOPPED):
        return describe.Found("KILLED", last)
    return describe.Found("FAILED", last or job.failures[-1])


class _Now:
    """The run of this process; the plugin's thread reads it."""

    live: Live | None = None


def begin(plans: list[Plan], results: Path) -> None:
    """Called by the hooks before the first job."""
    _Now.live = Live(plans, results, store.uri_of()) if os.environ.get(SWITCH) != "0" else None


def finish() -> None:
    """Called by the hooks after the last job."""
    if _Now.live is not None:
        _Now.live.finish()


class Sink:
    """Receives jobs from the logger plugin; see snakemake_logger_plugin_mlflow.sink.Sink."""

    def update(self, job: events.Job) -> None:
        """A job changed its state."""
        if _Now.live is not None:
            _Now.live.update(job)

    def tick(self) -> None:
        """Half a minute has passed."""
        if _Now.live is not None:
            _Now.live.tick()

    def close(self, outcome: str) -> None:
        """Snakemake ends, normally or not: the hooks do not run after Ctrl-C."""
        finish()


# What is mirrored already, so that a run with nothing to do need not import mlflow: `results/.mlflow-mirrored`.
#
# Only a cache: where it is lost or wrong for a store, the mirror searches the store. Stores are named by a hash, since an address
# may hold a password.


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
    file = store.sqlite_file(uri)
    if file is not None and not file.exists():
        return False
    left = _entry(plan, results, uri)
    if left.get("plan") != plan.report or "RUNNING" in left["stages"].values():
        return False
    states = {digest: describe.look_at_stage(results, stage.kind, digest).status for digest, stage in plan.stages.items()}
    return left["stages"] == {digest: status for digest, status in states.items() if status}


def mark_mirrored(plan: Plan, results: Path, uri: str, states: dict[str, str], experiment: str) -> None:
    """Remember what was mirrored, and the id of its experiment there."""
    known = _read(results)
    entry = {"plan": plan.report, "stages": states, "experiment": experiment}
    known.setdefault(_store(uri), {})[f"{plan.study}.{plan.scale}"] = entry
    artifact.write_json(results / NAME, known)


def forget_mirrored(plan: Plan, results: Path, uri: str) -> None:
    """The study is being mirrored: from now until it is settled again its store may hold anything."""
    known = _read(results)
    if known.get(_store(uri), {}).pop(f"{plan.study}.{plan.scale}", None) is not None:
        artifact.write_json(results / NAME, known)


def _entry(plan: Plan, results: Path, uri: str) -> dict[str, Any]:
    """What was left in the store of the study; empty where it was not mirrored."""
    found: dict[str, Any] = _read(results).get(_store(uri), {}).get(f"{plan.study}.{plan.scale}", {})
    return found


def _read(results: Path) -> dict[str, Any]:
    try:
        return artifact.read_json(results / NAME)
    except model.UserError:
        return {}


def _store(uri: str) -> str:
    file = store.sqlite_file(uri)
    return hashlib.sha256((str(file.absolute()) if file else uri).encode()).hexdigest()[:12]


# The adapter: a run per stage, in the experiment of its study, instead of one per job.


def sink(settings: dict[str, Any]) -> Sink:
    """For the logger plugin."""
    return Sink()


# Where the views of a study open.


def address(uri: str, experiment: str, view: arms.View) -> str:
    """Where the view opens: on the server that the store is, else where `mlflow ui` shows it."""
    place = store.redacted(uri).rstrip("/") if uri.startswith(("http://", "https://")) else ADDRESS
    return f"{place}/{arms.view_path(experiment, view)}"


def address_lines(plan: Plan, uri: str, experiment: str) -> list[str]:
    """What a run of Snakemake says of its studies: where their views open, and how a store that is no server is shown."""
    scores, curves, _ = (address(uri, experiment, view) for view in arms.study_views(plan))
    served = uri.startswith(("http://", "https://"))
    show = [] if served else [f"mlflow: `mlflow ui --backend-store-uri {store.redacted(uri)}` shows"]
    return [*show, f"mlflow: scores by arm of {plan.study}: {scores}", f"mlflow: learning curves: {curves}"]
