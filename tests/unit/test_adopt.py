import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import interplay
from conftest import Laboratory, copy_configs
from transformers import AutoModelForCausalLM

from interplay.api import single
from interplay.core import artifact
from interplay.core.model import UserError
from interplay.study.expand import plan_study


@pytest.fixture
def model(finished: Laboratory, tmp_path: Path) -> Path:
    """A model folder that may be damaged."""
    return Path(shutil.copytree(next(finished.folder.glob("results/pretrain/*/model")), tmp_path / "model"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    copy_configs(folder)
    monkeypatch.chdir(folder)
    return folder


def test_a_model_becomes_a_source_that_a_study_names_by_its_checksum(
    model: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = interplay(capsys, "adopt", model, "--study", "quickstart", "--stage", "base")
    assert code == 0
    line = next(line for line in out.splitlines() if "kind: source" in line)
    study = project / "configs/study/quickstart.yaml"
    text = study.read_text()
    old = "  base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}"
    assert old in text
    study.write_text(text.replace(old, line))
    stages = plan_study(project / "configs", "quickstart", "smoke").stages.values()
    (source,) = [stage for stage in stages if stage.kind == "source"]
    folder = project / "results/source" / source.digest
    assert artifact.done(folder)
    assert (folder / "model/model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    assert (model / "config.json").exists()


def test_the_study_need_not_be_there_yet(model: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = interplay(capsys, "adopt", model, "--study", "mine/fresh")
    assert code == 0
    assert "in configs/study/mine/fresh.yaml (a new file):" in out
    assert "in configs/study/edge.yaml:" in interplay(capsys, "adopt", model, "--study", "edge")[1]
    code, _, error = interplay(capsys, "adopt", model, "--study", "../outside")
    assert (code, error.count("\n")) == (2, 1)
    assert "must be a file's name below configs/study" in error


def test_a_model_that_rl_made_is_a_hugging_face_folder_that_can_be_adopted(
    finished: Laboratory, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = next(finished.folder.glob("results/rl/*/model"))
    assert interplay(capsys, "adopt", made)[0] == 0
    assert AutoModelForCausalLM.from_pretrained(made).num_parameters() > 0


def test_adopting_twice_does_it_once(model: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interplay(capsys, "adopt", model)
    record = next(project.glob("results/source/*/record.json"))
    before = record.stat().st_mtime_ns
    moved = model.rename(model.with_name("elsewhere"))
    assert "here already" in interplay(capsys, "adopt", moved)[1]
    assert record.stat().st_mtime_ns == before
    assert len(list(project.glob("results/source/*"))) == 1


def cut_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-100])


def drop_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def break_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def empty_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "qwen3"}')


def other_width(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": config["intermediate_size"] + 8}))


def forget_stop(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")


@pytest.mark.parametrize(
    "damage", [cut_weights, drop_tokenizer, break_tokenizer, break_config, empty_config, other_width, forget_stop]
)
def test_a_damaged_or_incomplete_model_is_refused_in_one_line_and_leaves_nothing(
    damage: Callable[[Path], None], model: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(model)
    code, out, error = interplay(capsys, "adopt", model)
    assert (code, out) == (2, "")
    assert error.count("\n") == 1
    assert "model" in error
    assert not (project / "results").exists()


def test_a_finished_artifact_comes_with_all_that_it_rests_on(
    finished: Laboratory, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = next(finished.folder.glob("results/evaluate/*"))
    code, out, _ = interplay(capsys, "adopt", origin, "--inputs")
    assert code == 0
    for path in project.glob("results/*/*"):
        artifact.check(path)
        twin = finished.folder / path.relative_to(project) / "record.json"
        assert (path / "record.json").read_bytes() == twin.read_bytes()
        assert path.name in out
    assert {"evaluate", "pretrain", "corpus", "problems", "tokenizer"} <= {path.name for path in project.glob("results/*")}
    assert interplay(capsys, "adopt", origin)[1] == f"{origin.name} was here already, complete\n"


def test_an_artifact_whose_record_was_altered_is_refused(finished: Laboratory, tmp_path: Path) -> None:
    origin = next(finished.folder.glob("results/tokenizer/*"))
    copy = Path(shutil.copytree(origin, tmp_path / "results/tokenizer" / origin.name))
    record = json.loads((copy / "record.json").read_text())
    record["spec"]["task"]["letters"] += 1
    (copy / "record.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"but it is recorded as {origin.name}"):
        single.adopt_artifacts(copy, tmp_path / "mine", inputs=False)
    assert not (tmp_path / "mine").exists()


def test_an_artifact_whose_payload_is_damaged_is_refused(finished: Laboratory, tmp_path: Path) -> None:
    origin = next(finished.folder.glob("results/tokenizer/*"))
    copy = Path(shutil.copytree(origin, tmp_path / "results/tokenizer" / origin.name))
    with open(next(copy.glob("tokenizer/*.json")), "a") as handle:
        handle.write(" ")
    with pytest.raises(UserError, match="corrupted"):
        single.adopt_artifacts(copy, tmp_path / "mine", inputs=False)
    assert not (tmp_path / "mine").exists()


def test_a_folder_that_is_neither_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = interplay(capsys, "adopt", project)
    assert code == 2
    assert "neither a model (config.json, or a .gguf file) nor a finished artifact (record.json); name one" in error
