"""What a signal does to a stage: a loop that saves ends where it has saved, all else at once."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interplay.core import execution
from interplay.kinds.table import KINDS
from interplay.run import workers


@pytest.fixture(autouse=True)
def handlers(signal_handlers: None) -> Iterator[None]:
    execution.install_handlers()
    yield
    execution.install_handlers()  # forgets the signal of this test: a loop of the next one would stop


@pytest.mark.parametrize("number", execution.SIGNALS)
def test_outside_a_loop_that_saves_a_signal_stops_at_once(number: int) -> None:
    with pytest.raises(execution.StoppedError):
        os.kill(os.getpid(), number)


def loop(done: list[int], *numbers: int) -> None:
    """Five steps; the signals come in the second one."""
    with execution.save_points(minutes=60) as saves:
        for step in range(1, 6):
            for number in numbers if step == 2 else ():
                os.kill(os.getpid(), number)
            done.append(step)
            if saves.due():
                saves.made(f"step {step} of 5")


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGUSR1, signal.SIGTERM], [signal.SIGINT]])
def test_a_loop_finishes_its_step_and_saves_before_it_stops(numbers: list[int]) -> None:
    done: list[int] = []
    with pytest.raises(execution.StoppedError, match=r"^stopped at step 2 of 5$"):
        loop(done, *numbers)
    assert done == [1, 2]


def test_the_second_ctrl_c_stops_at_once() -> None:
    done: list[int] = []
    with pytest.raises(execution.StoppedError):
        loop(done, signal.SIGINT, signal.SIGINT)
    assert done == [1]


def test_a_loop_that_was_asked_in_its_last_step_ends_by_itself_and_a_later_signal_stops_what_follows() -> None:
    with execution.save_points(minutes=60):
        os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(execution.StoppedError):
        os.kill(os.getpid(), signal.SIGTERM)


def test_without_a_signal_it_is_time_to_save_when_the_minutes_are_over() -> None:
    with execution.save_points(minutes=60) as rare, execution.save_points(minutes=0) as always:
        assert not rare.due()
        assert always.due()
        always.made("step 1 of 2")


def test_once_the_work_is_done_a_signal_comes_too_late() -> None:
    execution.ignore_signals()
    for number in execution.SIGNALS:
        os.kill(os.getpid(), number)


def test_a_signal_while_the_function_of_a_stage_is_imported_stops_it_after_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "signalled.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\ndef make(*given):\n    raise AssertionError('called')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(KINDS, "source", KINDS["source"]._replace(function="signalled:make"))
    with pytest.raises(execution.StoppedError):
        workers.load_function("source")
    assert callable(sys.modules.pop("signalled").make)
