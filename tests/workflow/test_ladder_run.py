"""A training ladder for real: one training stage and many evaluations, a path that starts from a kept checkpoint, a selection; and
more samples later, which make the new block alone."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, Laboratory

from interplay.core import artifact

pytestmark = pytest.mark.slow
CLIMB = ("study=climb", "scale=smoke")


@pytest.fixture
def climbed(finished: Laboratory, tmp_path: Path) -> Laboratory:
    laboratory = Laboratory(tmp_path / "climb")
    for kind in ("problems", "tokenizer", "corpus"):
        shutil.copytree(finished.folder / "results" / kind, laboratory.folder / "results" / kind)
    shutil.copy(ROOT / "tests/climb.yaml", laboratory.folder / "configs/study")
    result = laboratory.snakemake(*CLIMB)
    assert result.returncode == 0, result.stdout + result.stderr
    return laboratory


def test_a_ladder_runs_and_more_samples_add_only_their_block(climbed: Laboratory) -> None:
    top = climbed.folder / "results/by-name/climb.smoke"
    assert (top / "report/figures/climb.svg").stat().st_size > 5_000
    early = artifact.record((top / "early/rl@0").resolve())
    assert early["deps"]["init"].endswith("@20")
    base = (top / "rl/base@0").resolve()
    assert artifact.kept_steps(base) == [20, 40]
    choice = json.loads((top / "best/best@0/choice.json").read_text())
    lines = [json.loads(line) for line in (base / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["eval_loss/id"] for line in lines if "eval_loss/id" in line}
    assert {row["step"]: row["value"] for row in choice["candidates"]} == losses
    assert choice["chosen"]["value"] == min(losses.values())

    before = climbed.records()
    entry = "eval: {kind: evaluate, data: test"
    climbed.edit("configs/study/climb.yaml", f"{entry}}}", f"{entry}, num_samples: 48}}")
    result = climbed.snakemake(*CLIMB)
    assert result.returncode == 0, result.stdout + result.stderr
    after = climbed.records()
    assert before.items() <= after.items()
    new = [json.loads(after[name]) for name in after.keys() - before.keys()]
    assert sorted(record["kind"] for record in new) == ["evaluate"] * 4 + ["report"]
    blocks = {(r["spec"]["first_sample"], r["spec"]["num_samples"]) for r in new if r["kind"] == "evaluate"}
    assert blocks == {(32, 16)}
