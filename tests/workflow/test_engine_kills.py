"""GRPO's arm on TRL under the real Snakemake with the real MLflow: its job is killed twenty times, each time after a new step was
saved, and the study ends as if it had not been. MLflow says what is so on the way."""

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
from conftest import ROOT, Laboratory, saves, wait_for

from interplay.core import artifact

ENGINES = ("study=methods/engines", "scale=smoke")
STEPS = 80
"""Enough for all kills: an attempt saves a step or two before its own."""
ONCE, RETRIED = 2, 18
"""Kills after which Snakemake ends and is started again, and kills after which it starts the job again by itself."""

BESIDE = ("studies", "by-name", "tables")
"""Folders of results that are no stage's. A study's records are kept in the first, and taken from there where a stage has none."""

COST = r" of work<|>seed \d+, |GiB</td>|Time and memory are of the last attempt"


def laid_out(folder: Path) -> Laboratory:
    """The study with GRPO alone, on both trainers; RL saves at every step."""
    laboratory = Laboratory(folder)
    study = yaml.safe_load((ROOT / "configs/study/methods/engines.yaml").read_text())
    study["arms"] = {name: study["arms"][name] for name in ("base", "grpo")}
    study["claims"] = [claim for claim in study["claims"] if claim["test"]["arm"] != "dapo"]
    study["stages"]["rl"] |= {"steps": STEPS, "run": {"save_minutes": 0.0}}
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
            found = connection.execute(asked, [out.name]).fetchall()
    except sqlite3.OperationalError:  # the tables are being made
        return ""
    assert len(found) < 2, "two runs of one stage"
    return found[0][0] if found else ""


def holder(out: Path) -> int:
    """The process that works on the stage; 0 where none does."""
    if not artifact.is_leased(out / "lease"):
        return 0
    said = re.match(r"process (\d+) ", (out / "lease").read_text())
    return int(said[1]) if said else 0


def kill_job(laboratory: Laboratory, out: Path, delay: float) -> int:
    """Kill the stage's job so long after it saved a step that no attempt before it had. It is held meanwhile, until MLflow says
    that it runs: on a busy machine it would end before. Returns the step that it had saved."""
    before = saves(out)
    wait_for(lambda: saves(out) > before, 600)
    time.sleep(delay)
    process = holder(out)
    assert process, "it was faster than the kill"
    os.kill(process, signal.SIGSTOP)
    reached = saves(out)
    wait_for(lambda: status(laboratory, out) == "RUNNING")
    os.kill(process, signal.SIGKILL)
    return reached


def page(laboratory: Laboratory) -> tuple[dict[str, bytes], list[str]]:
    """Tables of the report, and the lines of the page but for those of times, memory and attempts."""
    [report] = (laboratory.folder / "results/report").iterdir()
    tables = {path.name: path.read_bytes() for path in sorted((report / "tables").iterdir())}
    lines = (report / "report.html").read_text().splitlines()
    return tables, [line for line in lines if not re.search(COST, line)]


@pytest.mark.slow
def test_an_arm_on_trl_that_is_killed_twenty_times_ends_with_the_same_record_and_page(tmp_path: Path) -> None:
    whole, killed = laid_out(tmp_path / "whole"), laid_out(tmp_path / "killed")
    result = whole.snakemake(*ENGINES)
    assert result.returncode == 0, result.stdout + result.stderr
    assert status(whole, on_trl(whole)) == "FINISHED"
    left = shutil.ignore_patterns("report", *BESIDE)
    shutil.copytree(whole.folder / "results", killed.folder / "results", symlinks=True, ignore=left)
    out = killed.folder / "results/rl" / on_trl(whole).name
    for other in (killed.folder / "results").glob("*/*/stage.json"):
        stage = json.loads(other.read_text())
        if out.name in (stage["digest"], *stage["deps"].values()):
            shutil.rmtree(other.parent)
    telemetry = json.loads((on_trl(whole) / "telemetry.json").read_text())
    delays, reached = random.Random(0), []
    for _ in range(ONCE):
        snakemake = killed.start(*ENGINES, flags=("--retries", "0"))
        reached.append(kill_job(killed, out, delays.uniform(0, telemetry["seconds_per_step"])))
        assert snakemake.wait() == 1, snakemake.errors.read_text()
        assert status(killed, out) == "FAILED"
    snakemake = killed.start(*ENGINES, flags=("--retries", str(RETRIED)))
    for _ in range(RETRIED):
        reached.append(kill_job(killed, out, delays.uniform(0, telemetry["seconds_per_step"])))
    print(f"killed after steps {reached} of {STEPS}; a step took {telemetry['seconds_per_step']:.2f} s")
    assert snakemake.wait() == 0, snakemake.errors.read_text()
    assert status(killed, out) == "FINISHED"
    assert json.loads((out / "telemetry.json").read_text())["attempts"] == ONCE + RETRIED + 1
    assert killed.records() == whole.records()
    assert page(killed) == page(whole)
    assert not (out / "resume").exists()
