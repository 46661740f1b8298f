"""Stages that are killed once they have saved, in processes of their own."""

import time
from collections.abc import Sequence
from pathlib import Path

from forked import Script


def kill_once_saved(script: str, out: Path, arguments: Sequence[str], saved: str = "resume/state.json") -> None:
    """Run the script, whose first argument is `out`, and kill it (SIGKILL) as soon as it has saved its state there. It must not
    have ended with a model."""
    process = Script(script, str(out), *arguments)
    while not (out / saved).exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert (out / saved).exists()
    assert not (out / "model/model.safetensors").exists()
