"""A study whose problem set is filtered, for tests of what a plan makes of problem sets."""

import shutil
from pathlib import Path

import pytest
from conftest import ROOT

from interplay.cli import main
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage

STUDY = """
defaults:
  - /task@task: op_dag
  - /method@stages.rl.method: grpo
  - _self_

question: Does a filter by pass rate help?
data:
  corpus: {band: id, split: train}
  held_out: {band: id, split: validation}
  edge: {band: edge, split: rl}
  hard: {band: hard, split: rl}
  sifted:
    mix: {edge: 0.5, hard: 0.5}
    steps:
      - {name: pass_rate, arm: base, evaluate: probe, low: 1, high: 6, of: 8}
      - {name: deduplicate, how: structural}
      - {name: contamination, against: [test]}
  test: {bands: [id, edge], split: test}
stages:
  base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}
  rl: {kind: rl, data: {sifted: 1.0}}
  probe: {kind: evaluate, data: edge, num_samples: 8}
  eval: {kind: evaluate, data: test}
arms:
  base: {path: [base]}
  rl: {path: [base, rl], control: base}
evaluate: [eval]
seeds: {values: [0, 1], vary: [rl]}
tables:
  main: {columns: [id, edge], cells: [strict_pass@1]}
"""


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a project with the configs of this one but for its studies."""
    shutil.copytree(ROOT / "configs", folder / "configs", ignore=shutil.ignore_patterns("study", "plans"))
    (folder / "configs/study").mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(root: Path, *edits: tuple[str, str], text: str = STUDY) -> str:
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (root / "configs/study/sift.yaml").write_text(text)
    return text


def plan(root: Path, *edits: tuple[str, str], scale: str = "smoke") -> Plan:
    write(root, *edits)
    return plan_study(root / "configs", "sift", scale)


def named(made: Plan, label: str) -> Stage:
    return next(stage for stage in made.stages.values() if stage.label == label)


def refusal(root: Path, capsys: pytest.CaptureFixture[str], *edits: tuple[str, str], scale: str = "smoke") -> str:
    """The one line with which the study is refused."""
    write(root, *edits)
    assert main(["plan", "sift", "--scale", scale]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err.removeprefix("interplay: ").rstrip("\n")
