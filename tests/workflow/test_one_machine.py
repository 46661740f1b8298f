"""What the stages of a launch on one machine share."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import Laboratory

from interplay.core import artifact
from interplay.study.expand import plan_study


@pytest.mark.slow  # see test_borrowed_cores
def test_a_lone_pretraining_borrows_the_idle_core_and_leaves_the_same_model(finished: Laboratory, tmp_path: Path) -> None:
    launched, alone = (Laboratory(tmp_path / name) for name in ("launched", "alone"))
    for laboratory in (launched, alone):
        laboratory.take_data(finished)
        laboratory.edit("configs/scale/smoke.yaml", "pretrain: {", "pretrain: {dtype: int8, ")
        (laboratory.folder / "tmp").mkdir()
        laboratory.env["TMPDIR"] = str(laboratory.folder / "tmp")  # other tests' stages share the machine's cores
    plan = plan_study(launched.folder / "configs", "quickstart", "smoke")
    base = next(stage for stage in plan.stages.values() if stage.kind == "pretrain")
    record = f"results/pretrain/{base.digest}/record.json"
    started = launched.run(
        "snakemake", record, "--profile", "local", "--cores", "2", "--config", "study=quickstart", "scale=smoke"
    )
    assert started.returncode == 0, started.stderr
    out = launched.folder / record
    telemetry = json.loads((out.parent / "telemetry.json").read_text())
    assert 0 < telemetry["borrowed_core_seconds"] <= telemetry["seconds_wall"]
    again = alone.folder / out.parent.relative_to(launched.folder)
    again.mkdir(parents=True)
    shutil.copy(out.parent / "stage.json", again)
    done = alone.run("python", "-m", "interplay.run.stage", "run", base.digest)
    assert done.returncode == 0, done.stderr
    assert "borrowed_core_seconds" not in json.loads((again / "telemetry.json").read_text())
    assert artifact.record(again) == artifact.record(out.parent)
    assert (again / "model/model.safetensors").read_bytes() == (out.parent / "model/model.safetensors").read_bytes()


def test_the_scheduler_looks_at_what_waits_when_a_job_has_ended_and_not_by_the_clock(laboratory: Laboratory) -> None:
    """Snakemake's limit on launches a second makes it look again a second after each look, which adds up over a long launch."""
    plan = plan_study(laboratory.folder / "configs", "quickstart", "smoke")
    records = [f"results/problems/{stage.digest}/record.json" for stage in plan.stages.values() if stage.kind == "problems"]
    flags = ("--profile", "local", "--cores", "1", "--verbose")
    made = laboratory.run("snakemake", *records, *flags, "--config", "study=quickstart", "scale=smoke")
    assert made.returncode == 0, made.stderr
    assert made.stderr.count("Resources before job selection") <= len(records) + 1
