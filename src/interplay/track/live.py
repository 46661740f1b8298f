"""The mirror while Snakemake runs: told of jobs by the logger plugin (`Sink`), of the start and the end by the hooks.

Both end in the same idempotent `Mirror`, under one lock, so it does not matter which comes first, or whether the plugin is there.
Nothing is opened before the first job or the end, and nothing at all where everything is mirrored already. Tracking never fails a
study: after an error there is one line, then silence for some minutes; `interplay track sync` completes the store later."""

import logging
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from interplay.study.plan import Plan
from interplay.track import marker
from interplay.track.describe import STOPPED, Found, last_words, times
from snakemake_logger_plugin_mlflow import redact, store
from snakemake_logger_plugin_mlflow.events import Job

LOG = logging.getLogger(__name__)

PAUSE = 300.0
"""Seconds of silence after an error."""
LAST_TRY = 30.0
"""Seconds after an error from which the end of the run tries once more."""
SWITCH = "INTERPLAY_TRACK"
"""Environment variable: 0 keeps studies out of MLflow."""


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

    def mirror(self, plan: Plan) -> Any:
        """The study's mirror."""
        if plan.report not in self.mirrors:
            from interplay.track.mirror import Mirror

            marker.forget_mirrored(plan, self.results, self.uri)
            self.mirrors[plan.report] = Mirror(plan, self.results, self.uri)
            if plan.report not in self.opened:
                self.mirrors[plan.report].close_orphans()
                self.opened.add(plan.report)
        return self.mirrors[plan.report]

    def update(self, job: Job) -> None:
        """A job of Snakemake changed its state."""
        digest = job.wildcards.get("digest", "")
        self._guarded(lambda: self._update(digest, job))

    def _update(self, digest: str, job: Job) -> None:
        for plan in self.plans:
            if digest not in plan.stages:
                continue
            mirror = self.mirror(plan)
            if job.status == "RUNNING" and not self.ended:
                mirror.running()
            mirror.stage(digest, seen(job), round(1000 * job.submitted))
            if job.status == "FINISHED":
                begun = times(self.results / plan.stages[digest].kind / digest)[0] / 1000
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
        if plan.report in self.opened or not marker.is_mirrored(plan, self.results, self.uri):
            marker.mark_mirrored(plan, self.results, self.uri, self.mirror(plan).everything())

    def _guarded(self, step: Any) -> None:
        with self.lock:
            if time.monotonic() < self.silent_until:
                return
            try:
                with marker.mirror_turn(self.results, self.me) as stale:
                    if stale:
                        self.mirrors.clear()
                    step()
            except Exception as error:  # whatever it is, the study is worth more
                self.failed_at = time.monotonic()
                self.silent_until = self.failed_at + PAUSE
                self.mirrors.clear()
                if not self.warned:
                    self.warned = True
                    said = f"mlflow: {redact.reason(self.uri, error)}; the study goes on, complete it with `interplay track sync`"
                    LOG.warning("%s", said)


def seen(job: Job) -> Found:
    """What the scheduler knows of a stage beyond its folder. One that a signal stopped goes on later: that is no failure."""
    if job.status != "FAILED":
        return Found("RUNNING" if job.status == "RUNNING" else "KILLED")
    last = next((words for words in (last_words(Path(path)) for path in job.logs) if words), "")
    if last.startswith(STOPPED):
        return Found("KILLED", last)
    return Found("FAILED", last or job.failures[-1])


class _Now:
    """The run that this process is at; the plugin's thread asks for it."""

    live: Live | None = None


def begin(plans: list[Plan], results: Path) -> None:
    """Called by the hooks before the first job."""
    _Now.live = Live(plans, results, store.uri_of()) if os.environ.get(SWITCH) != "0" else None


def finish() -> None:
    """Called by the hooks after the last job."""
    if _Now.live is not None:
        _Now.live.finish()


class Sink:
    """What the logger plugin tells of jobs; see snakemake_logger_plugin_mlflow.sink.Sink."""

    def update(self, job: Job) -> None:
        """A job changed its state."""
        if _Now.live is not None:
            _Now.live.update(job)

    def tick(self) -> None:
        """Half a minute has passed."""
        if _Now.live is not None:
            _Now.live.tick()

    def close(self, outcome: str) -> None:
        """Snakemake ends, in whatever way: also without the hooks, as after Ctrl-C."""
        finish()
