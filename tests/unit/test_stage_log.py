"""The log file of a stage keeps all its lines when another process removes it; and the OpenMP settings of a stage."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

from interplay.run import stage


def test_a_log_that_another_snakemake_removes_comes_back_with_all_of_its_text(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "stage.log"
    with stage._logged_to(log):
        print("one", file=sys.stderr)
        log.unlink()
        print("two", file=sys.stderr)
        with (
            contextlib.redirect_stderr(io.StringIO()),
            stage._logged_to(log),
        ):  # as the other one's job, which waits for the lease
            print("waits", file=sys.stderr)
        print("three", file=sys.stderr)
    assert log.read_text().split() == ["one", "two", "waits", "three"]


def test_what_is_said_also_reaches_the_terminal_where_the_log_has_no_room(tmp_path: Path, capsys) -> None:
    with stage._logged_to(tmp_path / "stage.log"), open("/dev/full", "ab", buffering=0) as full:
        tee = sys.stderr
        tee.log = full
        print("said", file=sys.stderr)
    assert capsys.readouterr().err == "said\n"


def test_threads_of_openmp_are_as_many_as_the_stage_has_and_wait_passively() -> None:
    code = "from interplay.run import resources; resources.limit_threads(2); import torch; torch.ones(100, 100) @ torch.ones(100, 100)"
    names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")
    given = {**{name: value for name, value in os.environ.items() if name not in names}, "OMP_DISPLAY_ENV": "VERBOSE"}
    shown = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True).stderr
    assert "GOMP_SPINCOUNT = '0'" in shown
    assert "OMP_NUM_THREADS = '2'" in shown
