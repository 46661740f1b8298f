"""Stages that are killed once they have saved, in processes of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from conftest import BEHIND


def kill_once_saved(script: str, out: Path, arguments: Sequence[str], saved: str = "resume/state.json") -> None:
    """Run the script, whose first argument is `out`, and kill it (SIGKILL) as soon as it has saved its state there. It must not
    have ended with a model."""
    command = [*BEHIND, sys.executable, "-c", script, str(out), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # the script imports what the tests do
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    while not (out / saved).exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (out / saved).exists()
    assert not (out / "model/model.safetensors").exists()
