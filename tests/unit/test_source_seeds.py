"""A path through a model folder for each seed: `path: 'models/{seed}'`."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import interplay
from lab import Lab, of_kind
from safetensors.numpy import save_file

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.report.draw import diagram
from interplay.results import estimate, state
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
            (folder / name).write_text(json.dumps({name: seed}))
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
    nodes, _ = diagram.study_graph(lab.plan().stages_json(), {})
    assert [(node.label, node.times) for node in nodes.values() if node.kind == "source"] == [("base", 2)]
    assert {node.times for node in nodes.values() if node.kind == "rl"} == {2}  # a box for each arm


def test_a_source_that_does_not_vary_is_the_folder_of_the_first_seed(lab: Lab) -> None:
    lab.edit("study/quickstart.yaml", "vary: [base, rl]", "vary: [rl]")
    assert list(sources(lab.plan())) == ["models/3"]


def test_a_seed_without_a_folder_is_refused_by_the_folders_name(lab: Lab) -> None:
    lab.edit("study/quickstart.yaml", "values: [3, 5]", "values: [3, 7]")
    with pytest.raises(UserError, match=r"models/7/config\.json: no model there"):
        lab.plan()


def test_a_folder_is_held_to_the_checksum_that_the_study_gives(lab: Lab) -> None:
    lab.edit(
        "study/quickstart.yaml", "path: 'models/{seed}'", f"path: models/3, sha256: {artifact.model_checksum(Path('models/3'))}"
    )
    assert list(sources(lab.plan())) == ["models/3"]
    lab.edit("study/quickstart.yaml", "path: models/3", "path: models/5")
    with pytest.raises(UserError, match=r"stages\.base\.sha256 = .*: but models/5 has "):
        lab.plan()


def test_of_a_model_of_unknown_size_the_time_is_unknown_and_no_limit_on_it_is_met(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = interplay(capsys, "plan", "quickstart", "--scale", "smoke", "--gpus", "8")
    assert "on GPUs: unknown" in said
    line = next(line for line in said.splitlines() if line.startswith("rl "))
    assert (code, line.split()[-3:]) == (0, ["?", "?", "unknown"])
    assert "an unknown time for" in said
    for limit in ("hours", "gpu-hours"):
        code, _, wrong = interplay(capsys, "plan", "quickstart", "--scale", "smoke", f"--max-{limit}", 5)
        assert (code, wrong.count("\n")) == (2, 1)
        assert f"max_{limit.replace('-', '_')} = 5: unknown time" in wrong


def test_the_size_of_a_model_is_that_of_its_weight_files_before_its_stage_has_run(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (3, 5):
        save_file({"a": np.zeros((30, 20)), "b": np.zeros(7)}, lab.folder / "models" / str(seed) / "model.safetensors")
    (rl, *_) = of_kind(lab.plan(), "rl")
    found = estimate.estimate_launch(state.Library(lab.plan().stages, lab.results, {}), {})
    assert found.costs[rl.digest].parameters == 607
    assert found.unknown() == []
    assert interplay(capsys, "plan", "quickstart", "--scale", "smoke", "--max-hours", 5)[0] == 0


QWEN = {
    **{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4},
    **{"intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False},
}
"""Of Qwen2.5-7B, whose model card says 7.61 billion parameters."""
HUB = "  base: {kind: source, hub_id: Qwen/Qwen2.5-7B, revision: d149729398750b98c0af14eb82c78cfe92750796"


def test_a_model_on_the_hub_costs_what_its_config_says(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.edit("study/quickstart.yaml", "  base: {kind: source, path: 'models/{seed}'}", f"{HUB}, config: data/qwen.json}}")
    lab.edit("study/quickstart.yaml", "values: [3, 5], vary: [base, rl]", "values: [3], vary: [rl]")
    with pytest.raises(UserError, match=r"config = 'data/qwen\.json': .*no such file.*; give the model's config\.json"):
        lab.plan()
    (lab.folder / "data").mkdir(exist_ok=True)
    artifact.write_json(lab.folder / "data" / "qwen.json", {"model_type": "mamba"})
    with pytest.raises(UserError, match=r"config = 'data/qwen\.json': model_type = 'mamba': its parameters are not counted"):
        lab.plan()
    artifact.write_json(lab.folder / "data" / "qwen.json", QWEN)
    (rl, *_) = of_kind(lab.plan(), "rl")
    found = estimate.estimate_launch(state.Library(lab.plan().stages, lab.results, {}), {})
    assert found.costs[rl.digest].parameters == 7615616512
    assert (found.unknown(), found.hours() > 0) == ([], True)
    said = json.loads(interplay(capsys, "plan", "quickstart", "--scale", "smoke", "--json")[1])
    assert (said["unknown"], said["hours"] > 0) == ([], True)
    lab.edit("study/quickstart.yaml", ", config: data/qwen.json", "")
    assert of_kind(lab.plan(), "rl")[0].digest == rl.digest, "what a model costs is no part of what it is"
    said = json.loads(interplay(capsys, "plan", "quickstart", "--scale", "smoke", "--json")[1])
    assert (len(said["unknown"]) > 2, said["hours"], said["gpu_hours"]) == (True, None, None)
    assert {one["seconds"] for one in said["stages"] if one["kind"] == "rl"} == {None}
