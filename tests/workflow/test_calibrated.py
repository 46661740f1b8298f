"""Bands that are chosen for each base, with the real Snakemake: killed once the bands are there, gone on with, and finished with a
base that has no edge."""

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import Laboratory, kill_group, wait_for

from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage

pytestmark = pytest.mark.workflow
STUDY = """
task: op_dag
question: Does a step of RL help at the edge of a base that has none?
data:
  corpus: {band: id, split: train, size: 300}
  edge: {band: edge, split: rl, size: 40}
  test: {bands: [edge, pinned_edge], split: test, size: 20}
calibrate:
  arm: base
  evaluate: eval
  prompts: 10
  bands: {edge: {strict_pass@1: [0.97, 0.98]}}
stages:
  base: {kind: pretrain, model: pico, data: {corpus: 1.0}, tokens: 2048}
  rl: {kind: rl, data: {edge: 1.0}, method: grpo, steps: 1, prompts_per_step: 2}
  eval: {kind: evaluate, data: test, num_samples: 2}
arms:
  base: {path: [base]}
  rl: {path: [base, rl], control: base}
evaluate: [eval]
replicates: 1
exploratory: true
tables:
  main: {columns: [edge, pinned_edge], cells: [strict_pass@1]}
claims:
  - says: RL lifts the edge
    test: {difference: strict_pass@1, band: edge, arm: rl, against: base, at_least: 0.10}
"""
NAME = ("study=calibrated", "scale=smoke")


def stages(plan: Plan, kind: str) -> list[Stage]:
    return [stage for stage in plan.stages.values() if stage.kind == kind]


def test_a_study_whose_base_has_no_edge_ends_and_says_so(laboratory: Laboratory) -> None:
    folder = laboratory.folder
    (folder / "configs/study/calibrated.yaml").write_text(STUDY)
    plan = plan_study(folder / "configs", "calibrated", "smoke")
    (chosen,) = stages(plan, "calibrate")
    bands = folder / "results/calibrate" / chosen.digest / "bands.json"
    process = laboratory.start(*NAME)
    wait_for(lambda: (bands.parent / "record.json").exists())
    kill_group(process)
    before = laboratory.records()
    done = laboratory.snakemake(*NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path: laboratory.records()[path] for path in before} == before
    ops = json.loads(bands.read_text())["edge"]
    for stage in [one for one in stages(plan, "problems") if one.deps]:
        rows = pd.read_parquet(folder / "results/problems" / stage.digest / "problems.parquet")
        assert set(rows[rows["band"] == "edge"]["op"]) == set(ops)
    report = folder / "results/report" / plan.report
    (claim,) = json.loads((report / "claims.json").read_text())
    assert claim["verdict"] == "not tested"
    assert claim["reason"] == "no edge at seed 0: no candidate op has strict_pass@1 in [0.97, 0.98]"
    assert "no op, left out (seed 0)" in _page(report)
    assert plan_study(folder / "configs", "calibrated", "smoke").lock() == plan.lock()
    again = laboratory.snakemake(*NAME)
    assert "1 of 1 steps (100%) done" in again.stderr, again.stderr  # `all` itself


def _page(report: Path) -> str:
    return (report / "report.html").read_text()
