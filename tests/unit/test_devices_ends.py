"""Stages of several processes that are stopped, killed or fail: they go on with any number of processes, and say one line."""

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from conftest import below, wait_for
from devices_cases import LM, Results, check_equal, environment, lines, pretrain

from interplay.core.artifact import last_save, read_json, write_json
from interplay.core.execution import EXIT
from interplay.model.trainer_spec import Optimizer


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("several"))


def reached(out: Path) -> int:
    saved = last_save(out)
    return int(saved["step"]) if saved else 0


def signal_once_saved(results: Results, out: Path, step: int, number: int) -> tuple[int, str]:
    """Start the stage and send its runner a signal once that step is saved; its exit code and what it said."""
    process = results.start(out)
    wait_for(lambda: reached(out) >= step or process.poll() is not None)
    process.send_signal(number)
    said = process.communicate(timeout=120)[1]
    return process.returncode, said


def with_run(out: Path, **run: object) -> None:
    stage = read_json(out / "stage.json")
    write_json(out / "stage.json", {**stage, "run": {**stage["run"], **run}})


def ours(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("interplay: ")]


@pytest.mark.slow  # 20 to 40 s; to the byte, of the exact class, in test_exact
@pytest.mark.parametrize("again", [False, True])
def test_a_run_goes_on_with_one_process_and_with_two_again(results: Results, tmp_path: Path, again: bool) -> None:
    spec = pretrain(tokens=60 * 480, eval_every=9, checkpoints=[2, 30])
    one = results.in_one("pretrain", spec, tmp_path, **LM)
    out = results.ask("pretrain", spec, results.roles("pretrain"), processes=2, **LM)
    steps = int(lines(one)[-1]["step"])
    code, said = signal_once_saved(results, out, 2, signal.SIGTERM)
    first = reached(out)
    assert (code, ours(said)) == (EXIT, [f"interplay: stopped at step {first} of {steps}; goes on when started again"])
    assert sorted(path.name for path in (out / "resume").iterdir()) == [f"{first}.safetensors", "state.json"]
    with_run(out, processes=1)
    second = first
    if again:
        code, said = signal_once_saved(results, out, first + 10, signal.SIGKILL)
        second = reached(out)
        assert (code, f"going on from {first}/{steps} steps" in said) == (-signal.SIGKILL, True)
        assert (out / "resume" / f"{second}.safetensors").exists()
        with_run(out, processes=2)
    made = results.make(out)
    assert (made.returncode, f"going on from {second}/{steps} steps" in made.stderr) == (0, True), made.stderr
    assert (2 <= first < steps, first < second < steps) == (True, again)
    check_equal(one, out)


def test_a_worker_that_is_killed_ends_the_stage_in_one_line(results: Results) -> None:
    spec = pretrain(tokens=4000 * 480, seed=1)
    out = results.ask("pretrain", spec, results.roles("pretrain"), processes=2, **LM)
    process = results.start(out)
    wait_for(lambda: reached(out) >= 2)
    workers = sorted(below(process, "interplay.run.workers"), key=lambda one: one.pid)
    workers[1].kill()
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    goes_on = "the stage goes on from its last save when started again"
    assert ours(said) == [f"interplay: worker 2 of 2 was ended by SIGKILL; {goes_on}"]
    assert "Traceback" not in said
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in workers)


@pytest.mark.slow
def test_workers_end_with_a_runner_that_is_killed(results: Results) -> None:
    spec = pretrain(tokens=4000 * 480, seed=2)
    out = results.ask("pretrain", spec, results.roles("pretrain"), processes=2, **LM)
    process = results.start(out)
    wait_for(lambda: reached(out) >= 1)
    workers = below(process, "interplay.run.workers")
    assert len(workers) == 2
    process.kill()
    process.communicate()
    psutil.wait_procs(workers, timeout=30)
    assert not any(one.is_running() for one in workers)


@pytest.mark.slow
def test_what_every_process_finds_wrong_is_said_once(results: Results) -> None:
    wild = Optimizer(name="adamw", learning_rate=1e30, max_grad_norm=0.0)
    spec = pretrain(optimizer=wild, seed=3)
    out = results.ask("pretrain", spec, results.roles("pretrain"), processes=2, **LM)
    made = results.make(out)
    assert made.returncode == 3
    assert len(ours(made.stderr)) == 1
    assert "lower the learning rate" in ours(made.stderr)[0]
    assert json.loads((out / "failure.json").read_text())["message"] in made.stderr


@pytest.mark.slow
def test_a_disk_that_is_full_for_one_process_is_one_line(results: Results, tmp_path: Path) -> None:
    """The first process, which writes, may write no file of more than a few bytes: the first save has no room."""
    spec = pretrain(seed=4)
    out = results.ask("pretrain", spec, results.roles("pretrain"), processes=2, **LM)
    limited = tmp_path / "sitecustomize.py"
    limited.write_text(
        "import os, resource, signal\n"
        "if os.environ.get('RANK') == '0':\n"
        "    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
    )
    env = {**environment(), "PYTHONPATH": os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])}
    made = subprocess.run(results.command(out), env=env, capture_output=True, text=True, timeout=300, check=False)
    assert made.returncode == 1
    said = ours(made.stderr)
    assert len(said) == 1
    assert "1.safetensors: File too large; the stage goes on from its last save" in said[0]
    assert "Traceback" not in made.stderr
