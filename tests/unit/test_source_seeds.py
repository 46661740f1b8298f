"""A path through a model folder for each seed: `path: 'models/{seed}'`."""

from pathlib import Path

import pytest
from lab import Lab, of_kind

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.report.draw import diagram
from interplay.study.plan import Plan

BASE = "  base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}"
SEEDS = "seeds: {values: [0], vary: [base, rl]}"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The quickstart study at seeds 3 and 5, from a folder for each. Only their content matters to a plan."""
    for seed in (3, 5):
        folder = tmp_path / "models" / str(seed)
        folder.mkdir(parents=True)
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (folder / name).write_text(f"{name} of {seed}")
    monkeypatch.chdir(tmp_path)
    made = Lab(tmp_path)
    made.edit("study/quickstart.yaml", BASE, "  base: {kind: source, path: 'models/{seed}'}")
    made.edit("study/quickstart.yaml", SEEDS, "seeds: {values: [3, 5], vary: [base, rl]}")
    made.edit("study/quickstart.yaml", "  loss: {x: step, y: loss}\n", "")
    return made


def sources(plan: Plan) -> dict[str, str]:
    """Path -> checksum of the source stages."""
    return {str(stage.run.path): stage.as_json()["spec"]["sha256"] for stage in of_kind(plan, "source")}


def test_each_seed_starts_from_the_folder_of_its_number(lab: Lab) -> None:
    plan = lab.plan()
    assert sources(plan) == {f"models/{seed}": artifact.model_checksum(Path(f"models/{seed}")) for seed in (3, 5)}
    assert len(set(sources(plan).values())) == 2
    assert len(of_kind(plan, "rl")) == 4  # two arms at two seeds
    assert {stage.label for stage in of_kind(plan, "source")} == {"stages.base@3", "stages.base@5"}


def test_the_picture_of_the_plan_has_one_box_for_the_folders_of_all_seeds(lab: Lab) -> None:
    nodes, _ = diagram.study_graph({digest: stage.as_json() for digest, stage in lab.plan().stages.items()}, {})
    assert [(node.label, node.times) for node in nodes.values() if node.kind == "source"] == [("base", 2)]
    assert {node.times for node in nodes.values() if node.kind == "rl"} == {2}  # a box for each arm


def test_a_source_that_does_not_vary_is_the_folder_of_the_first_seed(lab: Lab) -> None:
    lab.edit("study/quickstart.yaml", "vary: [base, rl]", "vary: [rl]")
    assert list(sources(lab.plan())) == ["models/3"]


def test_a_seed_without_a_folder_is_refused_by_the_folders_name(lab: Lab) -> None:
    lab.edit("study/quickstart.yaml", "values: [3, 5]", "values: [3, 7]")
    with pytest.raises(UserError, match=r"models/7/config\.json: no model there"):
        lab.plan()
