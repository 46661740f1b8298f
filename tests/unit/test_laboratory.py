"""What tests start is stopped by them."""

import subprocess
import sys

import psutil
import pytest
from conftest import ended_after, wait_for

PARENT = "import subprocess, time; subprocess.Popen(['sleep', '300'], start_new_session=True); time.sleep(300)"


def test_a_test_that_fails_leaves_nothing_that_it_started() -> None:
    """Not a child in a process group of its own, either."""
    process = subprocess.Popen([sys.executable, "-c", PARENT])
    wait_for(lambda: bool(psutil.Process(process.pid).children()))
    found = psutil.Process(process.pid).children()
    with pytest.raises(AssertionError, match="it failed"), ended_after(process):
        raise AssertionError("it failed")
    assert process.returncode is not None
    wait_for(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in found), 30)


def test_a_process_that_has_ended_keeps_its_exit_status() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with ended_after(process):
        assert process.wait() == 3
    assert process.returncode == 3
