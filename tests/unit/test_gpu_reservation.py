"""On one machine each stage has GPUs of its own."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from interplay.core.model import UserError
from interplay.run import resources

HOLDER = """
import time
from interplay.run import resources as gpus
with gpus.reserve_gpus(2):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs, as far as the driver's tool tells."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho GPU-a\necho GPU-b\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(resources.tempfile, "tempdir", None)
    monkeypatch.setattr(resources, "POLL_INTERVAL", 0.01)
    monkeypatch.delenv(resources.VISIBLE, raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.mark.usefixtures("two")
def test_stages_side_by_side_have_a_gpu_each_and_a_third_waits(capsys: pytest.CaptureFixture[str]) -> None:
    had: list[str] = []

    def third() -> None:
        with resources.reserve_gpus(1):
            had.append(os.environ[resources.VISIBLE])

    with resources.reserve_gpus(1):
        assert os.environ[resources.VISIBLE] == "GPU-a"
        os.environ.pop(resources.VISIBLE)  # another process would not inherit it
        with resources.reserve_gpus(1):
            assert os.environ.pop(resources.VISIBLE) == "GPU-b"
            waiting = threading.Thread(target=third)
            waiting.start()
            waiting.join(0.2)
            assert (waiting.is_alive(), had) == (True, [])
            os.environ[resources.VISIBLE] = ""
        waiting.join(10)
        assert had == ["GPU-b"]
        os.environ[resources.VISIBLE] = ""
    assert "waiting for 1 GPU: in use by other stages" in capsys.readouterr().err
    assert resources.VISIBLE not in os.environ


@pytest.mark.usefixtures("two")
def test_a_killed_stage_lets_go_of_its_gpus() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with resources.reserve_gpus(2):
        assert os.environ[resources.VISIBLE] == "GPU-a,GPU-b"


@pytest.mark.usefixtures("two")
def test_only_those_that_the_user_shows_are_dealt_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(resources.VISIBLE, "1")
    with resources.reserve_gpus(1):
        assert os.environ[resources.VISIBLE] == "1"
        assert Path(os.environ["TMPDIR"], f"interplay-gpus-{os.getuid()}", "GPU-b").exists()
    assert os.environ[resources.VISIBLE] == "1"
    with pytest.raises(UserError, match=r"^run.gpus = 2: 1 GPU visible here; write at most 1$"), resources.reserve_gpus(2):
        pass


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(("count", "job"), [(0, None), (2, "7")])
def test_who_asks_for_none_or_is_a_job_of_a_cluster_keeps_what_it_has(
    count: int, job: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    with resources.reserve_gpus(count):
        assert resources.VISIBLE not in os.environ


def test_a_machine_without_any_computes_on_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources.shutil, "which", lambda name: None)
    with resources.reserve_gpus(8):
        pass
