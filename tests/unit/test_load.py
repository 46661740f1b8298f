"""`interplay.load`: a study's results as tidy frames, and the notebook that shows them."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import ROOT, Laboratory, copy_configs

import interplay
from interplay.api import foreign
from interplay.api.frames import Loaded, _axis_values, _values
from interplay.cli import main
from interplay.core.model import UserError
from interplay.data.trajectory import Segment, Trajectory, write_trajectories
from interplay.results import catalog

NOTEBOOK = ROOT / "docs/notebooks/compare_arms.ipynb"


@pytest.fixture(scope="module")
def loaded(finished: Laboratory) -> Loaded:
    return interplay.load("quickstart", "smoke", root=finished.folder)


def test_the_package_itself_stays_light() -> None:
    script = "import sys, interplay; print([name for name in ('pandas', 'torch', 'pydantic') if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said == "[]\n"


def test_metrics_have_one_row_per_arm_seed_stage_subset_and_metric(loaded: Loaded) -> None:
    keys = ["arm", "seed", "stage", "subset", "metric"]
    assert not loaded.metrics.duplicated(keys).any()
    assert set(loaded.metrics["arm"]) == {"base", "rl_edge", "rl_hard"}
    assert loaded.metrics["value"].notna().all()
    assert set(loaded.metrics["state"]) == {"done"}


def test_metrics_are_those_of_the_records(loaded: Loaded, finished: Laboratory) -> None:
    row = loaded.metrics.query("arm == 'rl_edge' and kind == 'evaluate' and subset == 'edge' and metric == 'strict_pass@8'").iloc[
        0
    ]
    record = json.loads((finished.folder / "results/evaluate" / row["digest"] / "record.json").read_text())
    assert row["value"] == record["metrics"]["band"]["edge"]["strict_pass@8"]


def test_what_sets_arms_apart_is_a_column_that_can_be_pivoted_by(loaded: Loaded) -> None:
    assert loaded.axes == ["rl.data"]
    by_arm = loaded.metrics.drop_duplicates("arm").set_index("arm")["rl.data"]
    assert by_arm["rl_edge"] == "edge:1.0"
    assert by_arm["rl_hard"] == "hard:1.0"
    assert pd.isna(by_arm["base"])


def test_a_whole_method_goes_by_the_name_of_its_file_and_its_parts_by_theirs() -> None:
    keys, apart = _axis_values(ROOT / "configs", "methods/showdown", "smoke")
    assert "rl.method" in keys
    named = {arm: values["rl.method"] for arm, values in apart.items()}
    assert named["grpo[learning_rate=0.0001]"] == "grpo"
    assert named["dapo[learning_rate=0.0003]"] == "dapo"
    assert named["base"] is None
    _, curricula = _axis_values(ROOT / "configs", "curricula/showdown", "smoke")
    assert curricula["uniform[learning_rate=0.0002]"]["rl.method.sampler"] == "name:uniform"


def test_a_method_that_differs_from_its_file_says_so() -> None:
    known = catalog.known_methods(ROOT / "configs")
    changed = {**yaml.safe_load((ROOT / "configs/method/dapo.yaml").read_text()), "edits": []}
    assert (catalog.method_name(changed, known), catalog.method_name({"edge": 1.0}, known)) == ("dapo, changed", None)


def test_curves_are_the_lines_of_metrics_jsonl(loaded: Loaded) -> None:
    reward = loaded.curves.query("arm == 'rl_edge' and kind == 'rl' and metric == 'reward'")
    assert list(reward["step"]) == [1, 2, 3, 4]


def test_stages_hold_every_stage_of_the_plan_once_with_its_telemetry(loaded: Loaded) -> None:
    assert loaded.stages["digest"].is_unique
    assert set(loaded.stages["kind"]) == {"tokenizer", "problems", "corpus", "pretrain", "rl", "evaluate", "report"}
    assert (loaded.stages["seconds_wall"] > 0).all()


def test_samples_are_read_on_request_and_give_the_recorded_rates(loaded: Loaded) -> None:
    samples = loaded.samples(arm="rl_hard")
    assert set(samples["arm"]) == {"rl_hard"}
    rate = samples.groupby("band", observed=True)["strict"].mean()
    told = loaded.metrics.query("arm == 'rl_hard' and kind == 'evaluate' and metric == 'strict_pass@1'").set_index("subset")[
        "value"
    ]
    for band in ("id", "edge", "beyond", "hard"):
        assert rate[band] == pytest.approx(told[band], abs=1e-6)


def test_evaluations_leave_as_logs_of_inspect_and_come_back_as_the_scores_that_they_had(
    loaded: Loaded, finished: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inspect 0.3.285 reads such logs (`read_eval_log`, tried on 2026-11-26); here our reader does."""
    monkeypatch.chdir(finished.folder)
    main(["export", "quickstart", "--scale", "smoke", "--inspect", "-o", str(tmp_path / "logs")])
    logs = sorted((tmp_path / "logs").glob("*.eval"))
    assert [log.name for log in logs] == ["base.eval.0.eval", "rl_edge.eval.0.eval", "rl_hard.eval.0.eval"]
    known = loaded.samples()
    for score in ("strict", "answer", "score"):
        rows = foreign.read_files(logs, score)
        assert {row.system for row in rows} == {"quickstart/base", "quickstart/rl_edge", "quickstart/rl_hard"}
        for arm, own in known.groupby("arm"):
            given = sorted(zip(own["index"].astype(str), own[score].astype(float), strict=True))
            assert sorted((row.item, row.score) for row in rows if row.system == f"quickstart/{arm}") == given
    first = known[known["arm"] == "base"].iloc[0]
    with zipfile.ZipFile(logs[0]) as log:
        sample = json.loads(log.read(f"samples/{first['index']}_epoch_{first['sample'] + 1}.json"))
    assert sample["messages"][1]["content"] == sample["output"]["choices"][0]["message"]["content"] == first["completion"]
    assert sample["input"].endswith("|")
    assert sample["target"].isdecimal()


def test_samples_of_an_arm_that_is_not_there_are_none(loaded: Loaded) -> None:
    assert len(loaded.samples(arm="nobody")) == 0


def test_rollouts_are_the_kept_ones_of_rl_and_come_in_parts_with_the_same_types(loaded: Loaded) -> None:
    whole = loaded.rollouts()
    assert whole.groupby(["arm", "step"]).size().to_dict() == {
        (arm, step): 16 for arm in ("rl_edge", "rl_hard") for step in range(1, 5)
    }
    parts = list(loaded.stream("rl", rows=10))
    assert max(map(len, parts)) == 10
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)
    assert (whole["reward"].dtype, whole["step"].dtype, whole["strict"].dtype) == ("float32", "int32", "bool")
    assert list(next(loaded.stream("evaluate", columns=["strict"])).columns) == [*parts[0].columns[:9], "strict"]
    assert list(loaded.stream("rl", arm="base")) == []
    found = list(loaded.trajectories("rl"))
    assert [one.completion for one in found] == whole["completion"].tolist()
    assert [one.step for one in found] == whole["step"].tolist()


def test_samples_of_what_a_model_wrote_are_chosen_by_the_label_of_their_set(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "samples.parquet", [Trajectory((Segment("action", text),), "2+2?") for text in ("4", "5")])
    row = {"digest": "e" * 12, "kind": "generate", "label": "data.solved", "state": "done"}
    none = pd.DataFrame()
    known = Loaded("one", "smoke", [], none, none, pd.DataFrame([row]), {"e" * 12: tmp_path}, {})
    (found,) = known.stream("generate", columns=["completion"])
    assert found.to_dict("list") == {"stage": ["data.solved"] * 2, "digest": ["e" * 12] * 2, "completion": ["4", "5"]}
    assert [one.completion for one in known.trajectories("generate", stage="data.solved")] == ["4", "5"]
    assert list(known.stream("generate", stage="data.other")) == []
    with pytest.raises(UserError, match="arm = 'base': a generate stage is of no arm; leave it out, or give `stage`"):
        next(known.stream("generate", arm="base"))


def test_an_unfinished_study_loads_with_states_in_place_of_values(finished: Laboratory, tmp_path: Path) -> None:
    shutil.copytree(finished.folder / "configs", tmp_path / "configs")
    shutil.copytree(finished.folder / "results", tmp_path / "results", symlinks=True)
    rl = next(path for path in (tmp_path / "results/rl").iterdir())
    (rl / "record.json").unlink()
    (rl / "failure.json").write_text('{"message": "step 3: loss nan"}')
    shutil.rmtree(tmp_path / "results/evaluate")
    loaded = interplay.load("quickstart", "smoke", root=tmp_path)
    failed = loaded.metrics[loaded.metrics["digest"] == rl.name]
    assert list(failed["state"]) == ["failed"]
    assert failed["value"].isna().all()
    assert set(loaded.metrics.query("kind == 'evaluate'")["state"]) == {"new"}
    assert loaded.stages.set_index("digest").loc[rl.name, "detail"] == "step 3: loss nan"
    assert len(loaded.samples()) == 0


def test_a_study_that_never_ran_loads(tmp_path: Path) -> None:
    copy_configs(tmp_path)
    loaded = interplay.load("edge", "smoke", root=tmp_path)
    assert set(loaded.metrics["state"]) == {"new"}
    assert len(loaded.curves) == 0


def test_axes_of_a_grid_are_columns(tmp_path: Path) -> None:
    configs = copy_configs(tmp_path)
    path = configs / "study/quickstart.yaml"
    old = "rl_edge: {path: [base, rl], control: base}"
    grid = "\n  lr: {path: [base, rl], grid: {rl.optimizer.learning_rate: [0.001, 0.002], rl.minibatches: [1, 2]}}"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, old + grid))
    loaded = interplay.load("quickstart", "smoke", root=tmp_path)
    rows = loaded.metrics[loaded.metrics["group"] == "lr"].drop_duplicates("arm")
    assert sorted(zip(rows["rl.optimizer.learning_rate"], rows["rl.minibatches"], strict=True)) == [
        (0.001, 1),
        (0.001, 2),
        (0.002, 1),
        (0.002, 2),
    ]
    others = loaded.metrics[loaded.metrics["arm"] == "rl_edge"]
    assert set(others["rl.optimizer.learning_rate"]) == {0.0001}


def test_blocks_of_samples_count_as_one_evaluation(tmp_path: Path) -> None:
    """Two blocks of 2 samples over 2 prompts: pass@k is that of 4 samples."""
    strict = [np.array([[1, 0], [0, 0]], dtype=bool), np.array([[1, 1], [0, 1]], dtype=bool)]
    for number, block in enumerate(strict):
        folder = tmp_path / str(number)
        folder.mkdir()
        table = pd.DataFrame(
            {
                "index": [7, 7, 9, 9],
                "op": 1,
                "band": "id",
                "mode": "forward",
                "strict": block.ravel(),
                "answer": True,
                "score": 0.5,
            }
        )
        table.to_parquet(folder / "samples.parquet")
        cell = {"n": 2, "strict_pass@1": float(block.mean()), "length": 10.0 * number, "errors": {"none": 1.0} if number else {}}
        metrics = {"n_prompts": 2, "n_samples": 2, "all": cell, "band": {"id": cell}}
        (folder / "record.json").write_text(json.dumps({"metrics": metrics, "files": {}}))
    rows = {(row["subset"], row["metric"]): row["value"] for row in _values("evaluate", [tmp_path / "0", tmp_path / "1"], "done")}
    assert rows["", "n_samples"] == 4
    assert rows["all", "strict_pass@1"] == pytest.approx((3 / 4 + 1 / 4) / 2)
    assert rows["id", "strict_pass@2"] == pytest.approx((1 + 0.5) / 2)
    assert rows["all", "strict_pass@4"] == 1.0
    assert rows["all", "length"] == 5.0
    assert rows["all", "errors.none"] == 0.5


def test_an_unknown_study_is_refused_as_everywhere(finished: Laboratory) -> None:
    with pytest.raises(UserError, match="did you mean 'quickstart'"):
        interplay.load("quickstrat", "smoke", root=finished.folder)


def test_a_study_that_names_data_is_loaded_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(interplay.load("demo", "smoke", root=ROOT).metrics["arm"]) == {"base", "rl_edge", "rl_within", "gold_sft"}
    with pytest.raises(UserError, match="root = 'nowhere': no such folder"):
        interplay.load("demo", root="nowhere")


def test_the_example_notebook_runs_on_a_finished_study(finished: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name, value in {"INTERPLAY_ROOT": str(finished.folder), "STUDY": "quickstart", "SCALE": "smoke"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": os.fspath(NOTEBOOK.parent)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert any("rl_edge - base:" in output.get("text", "") for output in outputs)


def test_the_notebook_is_committed_with_its_outputs_and_without_anything_of_the_machine() -> None:
    text = NOTEBOOK.read_text()
    cells = json.loads(text)["cells"]
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    assert text.count('"image/png"') == 2
    assert len(text) < 50_000
    assert "/home" not in text
    assert "/tmp" not in text
