"""What stages take from outside the graph is looked for before any of them starts."""

from pathlib import Path

import pytest

from interplay.core.artifact import checksum
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data.spec import DatasetSpec
from interplay.model.spec import SourceSpec
from interplay.run import graph
from interplay.study.plan import Stage


def dataset(path: Path | None, sha256: str) -> Stage:
    return Stage.make(
        "dataset", DatasetSpec(format="gsm8k", sha256=sha256), {}, Run(path=str(path) if path else None), "data.mine"
    )


def test_a_file_must_be_in_its_place_and_the_one_that_was_planned_with(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("{}\n")
    graph.check_external([dataset(file, checksum(file))])
    with pytest.raises(UserError, match="has sha256"):
        graph.check_external([dataset(file, "ab" * 32)])
    file.unlink()
    with pytest.raises(UserError, match="no such file; put the gsm8k file"):
        graph.check_external([dataset(file, "ab" * 32)])


def test_a_model_that_was_not_adopted_and_has_no_place_is_refused(tmp_path: Path) -> None:
    spec = SourceSpec(sha256="ab" * 32)
    with pytest.raises(UserError, match="interplay adopt FOLDER"):
        graph.check_external([Stage.make("source", spec, {}, Run(), "base")])
    graph.check_external([Stage.make("source", spec, {}, Run(path=str(tmp_path)), "base")])


def test_all_that_is_missing_is_named_at_once_and_the_same_file_once(tmp_path: Path) -> None:
    file = dataset(tmp_path / "mine.jsonl", "ab" * 32)
    model = Stage.make("source", SourceSpec(sha256="cd" * 32), {}, Run(), "base")
    with pytest.raises(UserError) as refused:
        graph.check_external([file, model, file])
    assert str(refused.value).count("mine.jsonl") == 1
    assert "source cdcdcdcdcdcd: not in results/" in str(refused.value)
