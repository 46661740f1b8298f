"""How a stage ends before it is done. SIGTERM (kill, scancel), SIGUSR1 (Slurm, ahead of a time limit) and SIGINT (Ctrl-C) ask.

A loop that saves (`Saves`) finishes the step at hand, saves and stops. Whatever else is running stops at once. A second Ctrl-C
always stops at once: what was saved before is enough to go on from."""

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

EXIT = 75
"""EX_TEMPFAIL of sysexits.h: starting the stage again goes on with it."""
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StoppedError(BaseException):
    """A signal asked the stage to stop and it did. No Exception, so that nobody on the way takes it for a failure."""


@dataclass
class _Ears:
    """What signals this process heard, and whether it obeys them at once."""

    asked: bool = False
    held: bool = False


_EARS = _Ears()


def listen() -> None:
    """From here on the signals stop this process as told above. For the main thread of the runner."""
    _EARS.asked = _EARS.held = False
    for number in SIGNALS:
        signal.signal(number, _hear)


def deafen() -> None:
    """From here on the signals come too late for one that listened: it ends by itself in a moment."""
    for number in SIGNALS:
        if signal.getsignal(number) is _hear:
            signal.signal(number, signal.SIG_IGN)


def _hear(number: int, frame: FrameType | None) -> None:
    impatient = _EARS.asked and number == signal.SIGINT
    _EARS.asked = True
    if impatient or not _EARS.held:
        raise StoppedError("stopped")


class Saves:
    """When a loop saves: every `minutes`, and when a signal asked it to stop."""

    def __init__(self, minutes: float) -> None:
        self.seconds, self.last = minutes * 60, time.monotonic()

    def due(self) -> bool:
        """Whether to save now."""
        return _EARS.asked or time.monotonic() - self.last >= self.seconds

    def made(self, where: str) -> None:
        """All up to `where`, such as `step 3 of 40`, is saved. Raises StoppedError when a signal asked to stop."""
        self.last = time.monotonic()
        if _EARS.asked:
            raise StoppedError(f"stopped at {where}")


@contextlib.contextmanager
def saving(minutes: float) -> Iterator[Saves]:
    """Within it signals wait until the loop has saved."""
    _EARS.held = True
    try:
        yield Saves(minutes)
    finally:
        _EARS.held = False
