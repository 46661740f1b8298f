"""The thread that writes to MLflow, so that the scheduler never waits for it."""

import importlib
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from snakemake_logger_plugin_mlflow.events import Board, Event
from snakemake_logger_plugin_mlflow.store import redacted_reason, uri_of

if TYPE_CHECKING:
    from snakemake_logger_plugin_mlflow.sink import Sink

TICK = 30.0
"""Seconds between looks at what runs."""
PAUSE = 300.0
"""Seconds of silence after an error."""
FLUSH = 120.0
"""Most seconds that the end of the workflow waits for the last writes."""


class Worker(threading.Thread):
    """Keeps the board of jobs up to date and lets the sink write what changed. What could not be written stays on the board for
    the next attempt."""

    def __init__(self, settings: Any, header: dict[str, Any], tick: float = TICK) -> None:
        super().__init__(name="mlflow", daemon=True)
        self.settings, self.header, self.interval = settings, header, tick
        self.events: queue.Queue[Event | None] = queue.Queue()
        self.board = Board()
        self.sink: Sink | None = None
        self.silent_until = 0.0
        self.warned = False

    def take(self, event: Event) -> None:
        """Called by other threads; returns at once."""
        self.events.put(event)

    def finish(self) -> None:
        """Called by another thread at the end; returns when all is written, but after `FLUSH` seconds at the latest."""
        self.events.put(None)
        self.join(FLUSH)
        if self.is_alive():
            print(f"mlflow: not all written after {FLUSH:.0f} s; the workflow goes on", file=sys.stderr, flush=True)

    def run(self) -> None:
        """Until `finish`."""
        while True:
            try:
                event = self.events.get(timeout=self.interval)
            except queue.Empty:
                self._try(self._tick)
                continue
            if event is None:
                break
            self.board.take(event)
            if self.events.empty():  # a burst of events is written once
                self._try(self._push)
        self.board.stop(time.time())
        if not self.warned or time.monotonic() >= self.silent_until:
            self.silent_until = 0.0
            self._try(self._close)

    def _try(self, step: Any) -> None:
        """Nothing that goes wrong with tracking may reach the workflow."""
        if time.monotonic() < self.silent_until:
            return
        try:
            step()
        except Exception as error:
            self.silent_until = time.monotonic() + PAUSE
            if not self.warned:
                self.warned = True
                said = redacted_reason(uri_of(self.settings.tracking_uri), error)
                print(f"mlflow: {said}; the workflow goes on without it", file=sys.stderr, flush=True)

    def _push(self) -> None:
        sink = self._opened()
        for job in self.board.changed():
            sink.update(job)
            job.changed = False

    def _tick(self) -> None:
        if self.sink is None or self.board.changed():
            self._push()
        self._opened().tick()

    def _close(self) -> None:
        self._push()
        self._opened().close(self.board.outcome())

    def _opened(self) -> "Sink":
        if self.sink is None:
            name = self.settings.adapter or "snakemake_logger_plugin_mlflow.sink"
            settings = {"tracking_uri": self.settings.tracking_uri, "experiment": self.settings.experiment, "header": self.header}
            self.sink = importlib.import_module(name).sink(settings)
        return self.sink
