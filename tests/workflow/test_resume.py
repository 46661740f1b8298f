"""A stage that is killed goes on from its last save and ends with the bytes of an uninterrupted one."""

import contextlib
import json
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from conftest import BEHIND, Laboratory, below, saves, untrained, wait_for

from interplay.core.artifact import done, is_leased, read_json
from interplay.core.execution import EXIT
from interplay.kinds.stages import digest_of_content
from interplay.results import state
from interplay.run import forkserver
from interplay.study.expand import plan_study


def unfinish(laboratory: Laboratory, kind: str) -> Path:
    """Take one stage of the kind back to where only its `stage.json` is there, saving as often as it can from now on."""
    out = sorted(laboratory.folder.glob(f"results/{kind}/*"))[0]
    stage = json.loads((out / "stage.json").read_text())
    shutil.rmtree(out)
    out.mkdir()
    stage["run"]["save_minutes"] = 0.0
    (out / "stage.json").write_text(json.dumps(stage))
    return out


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("pretrain", 20, 60),
        pytest.param("rl", 1, 2, marks=pytest.mark.slow),
        pytest.param("evaluate", 1, 2, marks=pytest.mark.slow),
    ],
)
def test_a_stage_that_is_killed_and_then_stopped_ends_with_the_same_bytes(
    finished: Laboratory, tmp_path: Path, kind: str, first: int, second: int
) -> None:
    copy = Laboratory(tmp_path / "copy")
    subprocess.run(["cp", "-r", str(finished.folder / "results"), str(copy.folder)], check=True)
    whole = {p.name: p.read_bytes() for p in sorted(copy.folder.glob(f"results/{kind}/*"))[0].rglob("*") if p.is_file()}
    out = unfinish(copy, kind)
    reached = []
    for number, least in ((signal.SIGKILL, first), (signal.SIGTERM, second)):
        process = copy.stage(out.name)
        wait_for(lambda least=least: saves(out) >= least or done(out))
        process.send_signal(number)
        code = process.wait()
        if done(out):  # it was faster than the signal
            break
        assert code == {signal.SIGKILL: -9, signal.SIGTERM: EXIT}[number]
        reached.append(saves(out))
    assert copy.stage(out.name).wait() == 0
    again = {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    unlike = {"stage.json", "telemetry.json", "lease"}
    assert {name for name in whole if name not in unlike and again[name] != whole[name]} == set()
    assert again.keys() - unlike == whole.keys() - unlike
    resumed = [
        int(line.split()[3].split("/")[0])
        for line in (copy.folder / "log").read_text().splitlines()
        if line.startswith("going on from")
    ]
    assert resumed == reached
    stopped = [line for line in (copy.folder / "log").read_text().splitlines() if line.startswith("interplay: ")]
    assert all(line.endswith("; goes on when started again") for line in stopped)
    assert len(stopped) == len(reached[1:])


def test_a_stopped_job_is_retried_by_snakemake_and_goes_on(finished: Laboratory, tmp_path: Path) -> None:
    copy = Laboratory(tmp_path / "copy")
    copy.take_data(finished)
    copy.edit("configs/scale/smoke.yaml", "pretrain: {", "pretrain: {run: {save_minutes: 0.0}, ")
    base = next(finished.folder.glob("results/pretrain/*"))
    out = copy.folder / "results/pretrain" / base.name
    target = f"results/pretrain/{base.name}/record.json"
    command = [
        *BEHIND,
        "snakemake",
        target,
        "--profile",
        "local",
        "--retries",
        "1",
        "--config",
        "study=quickstart",
        "scale=smoke",
    ]
    process = subprocess.Popen(command, cwd=copy.folder, env=copy.env, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: saves(out) >= 1)
    for runner in below(process, forkserver.__file__):
        with contextlib.suppress(psutil.NoSuchProcess):
            runner.terminate()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert (out / "record.json").read_bytes() == (base / "record.json").read_bytes()
    log = (copy.folder / f"logs/pretrain/{base.name}.log").read_text()
    assert read_json(out / "telemetry.json")["attempts"] == 1 + log.count("goes on when started again")
    assert log.count("interplay: stopped at step") == log.count("going on from") == 1


def test_a_loss_that_is_not_finite_is_one_line_and_is_not_retried(finished: Laboratory, tmp_path: Path) -> None:
    copy = Laboratory(tmp_path / "copy")
    subprocess.run(["cp", "-r", str(finished.folder / "results"), str(copy.folder)], check=True)
    out = unfinish(copy, "pretrain")
    stage = json.loads((out / "stage.json").read_text())
    stage["spec"]["optimizer"] = {**stage["spec"]["optimizer"], "learning_rate": 1e30, "muon_learning_rate": 1e30}
    stage["digest"] = digest_of_content(stage)
    out = out.rename(out.with_name(stage["digest"]))
    (out / "stage.json").write_text(json.dumps(stage))
    first = copy.run("python", "-m", "interplay.run.stage", "run", out.name)
    lines = [line for line in first.stderr.splitlines() if line.startswith("interplay: ")]
    assert first.returncode == 3
    assert len(lines) == 1
    assert "step " in lines[0]
    assert "Traceback" not in first.stderr
    again = copy.run("python", "-m", "interplay.run.stage", "run", out.name)
    assert again.returncode == 3
    assert "steps," not in again.stderr


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_what_ends_interplay_run_ends_its_snakemake_and_their_stages(
    finished: Laboratory, tmp_path: Path, number: signal.Signals
) -> None:
    laboratory = untrained(finished, tmp_path / "laboratory")
    command = [*BEHIND, "interplay", "run", "quickstart", "--scale", "smoke", "--cores", "2"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=laboratory.folder, env=laboratory.env, **quiet)  # type: ignore[call-overload]

    def at_work() -> list[Path]:
        return [path.parent for path in laboratory.folder.glob("results/pretrain/*/resume") if saves(path.parent)]

    wait_for(lambda: bool(at_work()))
    started = psutil.Process(process.pid).children(recursive=True)
    assert any("snakemake" in " ".join(one.cmdline()) for one in started)
    process.send_signal(number)
    process.wait(timeout=60)
    wait_for(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in started), 60)
    [out] = at_work()
    assert not done(out)
    assert "stopped at step" in (laboratory.folder / f"logs/pretrain/{out.name}.log").read_text()
    plan = plan_study(laboratory.folder / "configs", "quickstart", "smoke")
    *stopped, command = state.failure_lines(plan, laboratory.folder / "results", laboratory.folder / "logs")
    assert "stopped (goes on from step" in stopped[0]
    assert command == "next: `interplay run quickstart --scale smoke` goes on"
    assert not is_leased(out / "lease")
