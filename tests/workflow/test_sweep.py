"""A sweep as one writes it: methods by name in a grid and KL by value, drawn against what was swept, through Snakemake to the page;
with a key of the study on the command line."""

import json

import pytest
from conftest import Laboratory

from interplay.study.expand import plan_study

pytestmark = pytest.mark.workflow
STUDY = """
task: op_dag
question: Which loss, and how much KL?
data:
  corpus: {band: id, split: train, size: 400}
  edge: {band: edge, split: rl, size: 60}
  test: {bands: [id, edge], split: test, size: 20}
stages:
  base: {kind: pretrain, model: pico, data: {corpus: 1.0}, tokens: 8192}
  rl: {kind: rl, data: {edge: 0.5, corpus: rest}, method: grpo, steps: 2}
  eval: {kind: evaluate, data: test, num_samples: 2}
arms:
  base: {path: [base], label: before RL}
  loss: {path: [base, rl], control: base, grid: {rl.method: [grpo, gspo]}}
  kl: {path: [base, rl], control: base, label: 'KL {beta}', grid: {rl.method.loss.beta: [0.01, 0.1]}}
evaluate: [eval]
seeds: {values: [0], vary: [rl]}
tables:
  main: {columns: [id, edge], cells: [strict_pass@1], title: Scores}
figures:
  method: {x: rl.method, y: strict_pass@1, title: Which loss}
  beta: {x: rl.method.loss.beta, y: strict_pass@1, band: edge, log: true}
  cost: {x: flops, y: strict_pass@1, log: true}
"""


def test_a_sweep_is_drawn_against_what_was_swept(laboratory: Laboratory) -> None:
    (laboratory.folder / "configs/study/sweep.yaml").write_text(STUDY)
    given = ["rl.steps=1"]
    result = laboratory.snakemake("study=sweep", "scale=smoke", f"set={given[0]}")
    assert result.returncode == 0, result.stdout + result.stderr
    plan = plan_study(laboratory.folder / "configs", "sweep", "smoke", given)
    report = laboratory.folder / "results/report" / plan.report
    assert (report / "record.json").exists()
    page = (report / "report.html").read_text()
    for said in ("before RL", "KL 0.01", "loss: gspo", "Scores", "Which loss"):
        assert said in page, said
    assert sorted(path.stem for path in (report / "figures").glob("*.svg")) == ["beta", "cost", "method"]
    tables = json.loads((report / "record.json").read_text())["metrics"]["tables"]["main"]
    assert {key.partition("/")[0] for key in tables} == {
        "base", *(f"loss[method={name}]" for name in ("grpo", "gspo")), "kl[beta=0.01]", "kl[beta=0.1]"
    }  # fmt: skip
