"""TRL's arm of methods/engines under Snakemake with MLflow: its job is killed (SIGKILL) ten times at different moments, and the study
ends as if it had not been, with true states of its run on the way."""

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, Laboratory, wait_for

from interplay.core import artifact

ENGINES = ("study=methods/engines", "scale=smoke")
ONCE, RETRIED = 2, 8
"""Kills after which Snakemake ends and is started again, and kills after which it starts the job again by itself."""


def laid_out(folder: Path) -> Laboratory:
    """The study with GRPO alone, on both trainers; RL saves at every step."""
    laboratory = Laboratory(folder)
    study = yaml.safe_load((ROOT / "configs/study/methods/engines.yaml").read_text())
    study["arms"] = {name: study["arms"][name] for name in ("base", "grpo")}
    study["claims"] = [claim for claim in study["claims"] if claim["test"]["arm"] != "dapo"]
    study["stages"]["rl"]["run"] = {"save_minutes": 0.0}
    (laboratory.folder / "configs/study/methods/engines.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    laboratory.env["INTERPLAY_TRACK"] = "1"
    return laboratory


def on_trl(laboratory: Laboratory) -> Path:
    folders = (laboratory.folder / "results/rl").iterdir()
    return next(out for out in folders if json.loads((out / "stage.json").read_text())["spec"]["trainer"] == "trl")


def status(laboratory: Laboratory, out: Path) -> str:
    """Of the stage's run in MLflow; empty where there is none."""
    asked = "select status from runs join tags using (run_uuid) where key = 'stage.digest' and value = ?"
    try:
        with sqlite3.connect(laboratory.folder / "mlflow.db", timeout=30) as connection:
            found = connection.execute(asked, [out.name]).fetchone()
    except sqlite3.OperationalError:  # the tables are being made
        return ""
    return found[0] if found else ""


def holder(out: Path) -> int:
    """The process that works on the stage; 0 where none does."""
    if not (out / "lease").exists() or not artifact.is_leased(out / "lease"):
        return 0
    said = re.match(r"process (\d+) ", (out / "lease").read_text())
    return int(said[1]) if said else 0


def kill_job(laboratory: Laboratory, out: Path, after: float, before: int) -> int:
    """Kill the stage's job so long after it began to work, and is shown to; returns its process, another one than `before`."""
    wait_for(lambda: holder(out) not in (0, before) and status(laboratory, out) == "RUNNING", 600)
    process = holder(out)
    time.sleep(after)
    assert not artifact.done(out), "it was faster than the kill"
    os.kill(process, signal.SIGKILL)
    return process


def page(laboratory: Laboratory) -> tuple[dict[str, bytes], str]:
    """Tables of the report, and the page without numbers: times and attempts differ."""
    [report] = (laboratory.folder / "results/report").iterdir()
    tables = {path.name: path.read_bytes() for path in sorted((report / "tables").iterdir())}
    return tables, re.sub(r"[\d.,:]+", "", (report / "report.html").read_text())


@pytest.mark.slow
def test_an_arm_on_trl_that_is_killed_ten_times_ends_with_the_same_record_and_page(tmp_path: Path) -> None:
    whole, killed = laid_out(tmp_path / "whole"), laid_out(tmp_path / "killed")
    result = whole.snakemake(*ENGINES)
    assert result.returncode == 0, result.stdout + result.stderr
    assert status(whole, on_trl(whole)) == "FINISHED"
    shutil.copytree(whole.folder / "results", killed.folder / "results", symlinks=True)
    out = killed.folder / "results/rl" / on_trl(whole).name
    for other in (killed.folder / "results").glob("*/*/stage.json"):
        stage = json.loads(other.read_text())
        if out.name in (stage["digest"], *stage["deps"].values()) or stage["kind"] == "report":
            shutil.rmtree(other.parent)
    moments, process = random.Random(0), 0
    took = json.loads((on_trl(whole) / "telemetry.json").read_text())["seconds_wall"]
    for _ in range(ONCE):
        snakemake = killed.start(*ENGINES, flags=("--retries", "0"))
        process = kill_job(killed, out, moments.uniform(0, 0.6) * took, process)
        assert snakemake.wait() == 1
        assert status(killed, out) == "FAILED"
    snakemake = killed.start(*ENGINES, flags=("--retries", str(RETRIED)))
    for _ in range(RETRIED):
        process = kill_job(killed, out, moments.uniform(0, 0.6) * took, process)
    assert snakemake.wait() == 0
    assert status(killed, out) == "FINISHED"
    assert killed.records() == whole.records()
    assert page(killed) == page(whole)
    assert not (out / "resume").exists()
