"""A model from outside: any Hugging Face folder may stand at the start of a path."""

import json
from pathlib import Path

import pytest
from conftest import Laboratory

from interplay.core.execution import Run
from interplay.model.spec import SourceSpec
from interplay.study.plan import Stage


@pytest.mark.slow  # see test_demo
def test_a_path_may_start_from_a_model_folder(finished: Laboratory, laboratory: Laboratory) -> None:
    laboratory.take_data(finished)
    model = next(finished.folder.glob("results/pretrain/*/model"))
    (laboratory.folder / "models").mkdir()
    (laboratory.folder / "models/small").symlink_to(model)
    laboratory.edit(
        "configs/study/quickstart.yaml",
        "base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}",
        "base: {kind: source, path: models/small}\n  more: {kind: midtrain, data: {corpus: 1.0}, validation: held_out}",
    )
    laboratory.edit("configs/study/quickstart.yaml", "rl_edge: {path: [base, rl]", "rl_edge: {path: [base, more]")
    laboratory.edit(
        "configs/study/quickstart.yaml", "rl_hard: {path: [base, rl], control: rl_edge, set: {rl.data: {hard: 1.0}}}", ""
    )
    laboratory.edit("configs/study/quickstart.yaml", "arm: rl_hard", "arm: rl_edge")
    laboratory.edit("configs/study/quickstart.yaml", "  reward: {x: step, y: reward}\n", "")
    result = laboratory.snakemake("study=quickstart", "scale=smoke")
    assert result.returncode == 0, result.stderr
    source = json.loads(next(laboratory.folder.glob("results/source/*/record.json")).read_text())
    weights = Path(next(laboratory.folder.glob("results/source/*/model/model.safetensors")))
    assert weights.read_bytes() == (model / "model.safetensors").read_bytes()
    assert source["spec"]["sha256"] == source["metrics"]["sha256"]


def test_a_model_that_changed_since_the_plan_is_refused(finished: Laboratory, laboratory: Laboratory) -> None:
    origin = next(finished.folder.glob("results/pretrain/*/model"))
    stage = Stage.make("source", SourceSpec(sha256="0" * 64), {}, Run(path=str(origin)), "base")
    out = laboratory.folder / "results/source" / stage.digest
    out.mkdir(parents=True)
    (out / "stage.json").write_text(json.dumps(stage.as_json()))
    result = laboratory.run("python", "-m", "interplay.run.stage", "run", out.name)
    assert result.returncode == 2
    assert "plan the study again" in result.stderr
    assert not (out / "record.json").exists()
