"""MLflow beside the real Snakemake: a workflow that knows nothing of Interplay, and a study."""

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Laboratory, kill_group, wait_for

pytestmark = pytest.mark.workflow

TOY = """
rule all:
    input: "good.txt", "flaky.txt", "bad.txt", "slain.txt", "slow.txt"
rule good:
    output: "good.txt"
    benchmark: "good.jsonl"
    resources: mem_mb=10
    shell: "sleep 2; touch {output}"
rule flaky:
    output: "flaky.txt"
    retries: 1
    shell: "test -e tried && touch {output} || {{ touch tried; exit 3; }}"
rule bad:
    output: "bad.txt"
    log: "bad.log"
    shell: "echo no such luck > {log}; exit 4"
rule slain:
    output: "slain.txt"
    shell: "kill -9 $$"
rule slow:
    output: "slow.txt"
    shell: "test -e begun && touch {output} || {{ touch begun; sleep 60; }}"
"""


def runs(folder: Path, experiment: str) -> dict[str, Any]:
    """Name -> run; the newest of a name."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return {run.info.run_name.split(" 2")[0]: run for run in reversed(client.search_runs([found.experiment_id]))}


def toy(folder: Path, *targets: str) -> list[str]:
    return ["snakemake", "--cores", "2", "--logger", "mlflow", "--logger-mlflow-experiment", "toy", "--keep-going", *targets]


def test_any_workflow_is_shown_as_it_went_after_failures_and_kills_of_jobs_and_of_snakemake(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(TOY)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name in ("SNAKEMAKE_PROFILE", "MLFLOW_TRACKING_URI"):
        env.pop(name, None)
    quiet = {"cwd": tmp_path, "env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    killed = subprocess.Popen(toy(tmp_path, "slow.txt"), start_new_session=True, **quiet)  # type: ignore[call-overload]
    wait_for(lambda: (tmp_path / "begun").exists() and (tmp_path / "mlflow.db").exists())
    wait_for(lambda: _status(tmp_path, "slow") == "RUNNING")
    kill_group(killed)
    left = runs(tmp_path, "toy")
    assert {name: run.info.status for name, run in left.items()} == {"workflow": "RUNNING", "slow": "RUNNING"}

    done = subprocess.run([*toy(tmp_path), "--nolock", "--rerun-incomplete"], **quiet, timeout=120, check=False)  # type: ignore[call-overload]
    assert done.returncode == 1
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert {client.get_run(run.info.run_id).info.status for run in left.values()} == {"KILLED"}
    told = runs(tmp_path, "toy")
    assert {name: run.info.status for name, run in told.items()} == {
        "workflow": "FAILED",
        "good": "FINISHED",
        "flaky": "FINISHED",
        "bad": "FAILED",
        "slain": "FAILED",
        "slow": "FINISHED",
    }
    assert "no such luck" in told["bad"].data.tags["snakemake.failure"]
    assert "SIGKILL" in told["slain"].data.tags["snakemake.failure"]
    assert told["flaky"].data.tags["snakemake.attempt"] == "2"
    assert told["flaky"].data.tags["snakemake.failure"].startswith("attempt 1: ")
    measured = told["good"].data.metrics
    assert measured["benchmark/s"] >= 1  # it sleeps for two; a clock may start late
    assert measured["run_seconds"] + measured["queue_seconds"] == pytest.approx(measured["run_seconds"], abs=5)
    assert measured["resources/mem_mb"] == 10


def _status(folder: Path, name: str) -> str:
    import sqlite3

    with sqlite3.connect(folder / "mlflow.db", timeout=30) as connection:
        try:
            found = connection.execute("select status from runs where name = ?", [name]).fetchone()
        except sqlite3.OperationalError:  # the tables are being made
            return ""
    return found[0] if found else ""


@pytest.mark.slow  # see test_track
def test_a_study_goes_on_without_its_store_and_is_complete_in_any_store_later(finished: Laboratory, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "lab")
    shutil.copytree(finished.folder / "results", laboratory.folder / "results", symlinks=True)
    shutil.copytree(finished.folder / "benchmarks", laboratory.folder / "benchmarks")
    study = ("study=quickstart", "scale=smoke")
    _forget_report(laboratory)
    laboratory.env |= {"INTERPLAY_TRACK": "1", "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    begun = time.monotonic()
    result = laboratory.snakemake(*study)
    spent = time.monotonic() - begun
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("mlflow: ")] == [
        "mlflow: http://127.0.0.1:9: [Errno 111] Connection refused; the study goes on, complete it with `interplay track sync`"
    ]
    assert spent < 100  # mlflow's own patience is minutes
    stages = len(laboratory.records())

    result = laboratory.run("interplay", "track", "sync", "quickstart", "--scale", "smoke", "--to", "sqlite:///mlflow.db")
    assert result.returncode == 0, result.stderr
    assert f"quickstart at smoke: {stages} FINISHED; sqlite:///mlflow.db" in result.stdout
    told = runs(laboratory.folder, "quickstart")
    assert Counter(run.info.status for run in told.values()) == {"FINISHED": stages + 4}  # the plan and three arms

    del laboratory.env["MLFLOW_TRACKING_URI"]
    _forget_report(laboratory)
    assert laboratory.snakemake(*study).returncode == 0
    again = runs(laboratory.folder, "quickstart")
    assert len(again) == stages + 4
    assert again["report"].info.status == again["quickstart at smoke"].info.status == "FINISHED"

    poison = tmp_path / "poison"  # a run with nothing to do says where it opens and does not import mlflow
    poison.mkdir()
    (poison / "mlflow.py").write_text("raise ImportError('imported')")
    laboratory.env["PYTHONPATH"] = str(poison)
    result = laboratory.snakemake(*study)
    assert result.returncode == 0, result.stderr
    said = [line for line in result.stderr.splitlines() if "mlflow" in line]
    assert [line.split(": ")[1][:13] for line in said] == ["`mlflow ui --", "scores by arm", "learning curv"]


def _forget_report(laboratory: Laboratory) -> None:
    [record] = laboratory.folder.glob("results/report/*/record.json")
    record.unlink()
