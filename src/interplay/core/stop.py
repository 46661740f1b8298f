"""Signal handlers: how a stage stops early, on SIGTERM (kill, scancel), SIGUSR1 (Slurm, ahead of a time limit) and SIGINT
(Ctrl-C).

A loop with checkpoints (`Saves`) finishes the current step, saves and stops. Other code stops at once. A second Ctrl-C always
stops at once: the run resumes from the last save."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

EXIT = 75
"""EX_TEMPFAIL of sysexits.h: the stage resumes when it is started again."""
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StoppedError(BaseException):
    """The stage stopped on a signal. Not an Exception, so that `except Exception` does not treat it as a failure."""


@dataclass
class _SignalState:
    """Whether a signal was received, and whether handling is deferred."""

    asked: bool = False
    held: bool = False


_STATE = _SignalState()


def install_handlers() -> None:
    """Install the handlers. For the main thread of the runner."""
    _STATE.asked = _STATE.held = False
    for number in SIGNALS:
        signal.signal(number, _handle_signal)


def ignore_signals() -> None:
    """Ignore further signals: the process is about to exit."""
    for number in SIGNALS:
        if signal.getsignal(number) is _handle_signal:
            signal.signal(number, signal.SIG_IGN)


def _handle_signal(number: int, frame: FrameType | None) -> None:
    impatient = _STATE.asked and number == signal.SIGINT
    _STATE.asked = True
    if impatient or not _STATE.held:
        raise StoppedError("stopped")


Agree = Callable[[tuple[bool, bool]], tuple[bool, bool]]
"""All-reduce of the flags (stop requested, save due) over the processes of a stage."""


class Saves:
    """Save points of a loop: every `minutes`, and after a signal. With several processes `agree` makes all of them save and stop
    at the same step."""

    def __init__(self, minutes: float, agree: Agree | None = None) -> None:
        self.seconds, self.last = minutes * 60, time.monotonic()
        self.agree, self.asked = agree, False

    def due(self) -> bool:
        """Whether to save now."""
        asked, late = _STATE.asked, time.monotonic() - self.last >= self.seconds
        if self.agree:
            asked, late = self.agree((asked, late))
            self.asked = asked
        return asked or late

    def made(self, where: str) -> None:
        """Called after a save at `where`, such as `step 3 of 40`. Raises StoppedError after a signal."""
        self.last = time.monotonic()
        if self.asked if self.agree else _STATE.asked:
            raise StoppedError(f"stopped at {where}")


@contextlib.contextmanager
def save_points(minutes: float, agree: Agree | None = None) -> Iterator[Saves]:
    """Signals are deferred within it until the loop has saved."""
    with defer_signals():
        yield Saves(minutes, agree)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Signals are deferred within it; `stop_requested` returns whether there was one."""
    _STATE.held = True
    try:
        yield
    finally:
        _STATE.held = False


@contextlib.contextmanager
def delay_signals() -> Iterator[None]:
    """Signals that come within it stop the stage at its end. For imports: one that an exception breaks off cannot be repeated in
    the process, and some extension modules lose the exception."""
    before = _STATE.asked
    with defer_signals():
        yield
    if _STATE.asked and not before:
        raise StoppedError("stopped")


def stop_requested() -> bool:
    """Whether this process received a signal to stop."""
    return _STATE.asked
