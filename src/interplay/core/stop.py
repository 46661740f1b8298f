"""How a stage ends before it is done. SIGTERM (kill, scancel), SIGUSR1 (Slurm, ahead of a time limit) and SIGINT (Ctrl-C) ask.

A loop that saves (`Saves`) finishes the step at hand, saves and stops. Whatever else is running stops at once. A second Ctrl-C
always stops at once: what was saved before is enough to go on from."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

EXIT = 75
"""EX_TEMPFAIL of sysexits.h: starting the stage again goes on with it."""
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StoppedError(BaseException):
    """A signal asked the stage to stop and it did. No Exception, so that nobody on the way takes it for a failure."""


@dataclass
class _SignalState:
    """What signals this process heard, and whether it obeys them at once."""

    asked: bool = False
    held: bool = False


_STATE = _SignalState()


def install_handlers() -> None:
    """From here on the signals stop this process as told above. For the main thread of the runner."""
    _STATE.asked = _STATE.held = False
    for number in SIGNALS:
        signal.signal(number, _handle_signal)


def ignore_signals() -> None:
    """From here on the signals come too late for one that listened: it ends by itself in a moment."""
    for number in SIGNALS:
        if signal.getsignal(number) is _handle_signal:
            signal.signal(number, signal.SIG_IGN)


def _handle_signal(number: int, frame: FrameType | None) -> None:
    impatient = _STATE.asked and number == signal.SIGINT
    _STATE.asked = True
    if impatient or not _STATE.held:
        raise StoppedError("stopped")


Agree = Callable[[tuple[bool, bool]], tuple[bool, bool]]
"""What (asked to stop, time to save) are for all processes of a stage, given what they are for this one."""


class Saves:
    """When a loop saves: every `minutes`, and when a signal asked it to stop. Where several processes go through the loop
    together, `agree` makes them save and stop at the same step."""

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
        """All up to `where`, such as `step 3 of 40`, is saved. Raises StoppedError when a signal asked to stop."""
        self.last = time.monotonic()
        if self.asked if self.agree else _STATE.asked:
            raise StoppedError(f"stopped at {where}")


@contextlib.contextmanager
def save_points(minutes: float, agree: Agree | None = None) -> Iterator[Saves]:
    """Within it signals wait until the loop has saved."""
    with defer_signals():
        yield Saves(minutes, agree)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Within it signals wait; `asked` tells of them."""
    _STATE.held = True
    try:
        yield
    finally:
        _STATE.held = False


def stop_requested() -> bool:
    """Whether a signal asked this process to stop."""
    return _STATE.asked
