import json
import shutil
from pathlib import Path

import pytest
from command_line import interplay
from conftest import Laboratory

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.core.extension import Extension
from interplay.data.spec import ProblemsSpec
from interplay.study.plan import Stage

TEST_SET = "quickstart.smoke/data.test"


@pytest.fixture
def project(finished: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished laboratory."""
    shutil.copytree(finished.folder / "configs", tmp_path / "configs")
    shutil.copytree(finished.folder / "results", tmp_path / "results", symlinks=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


def problems_of(project: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    digest = interplay(capsys, "show", TEST_SET)[1].split()[1]
    return project / "results/problems" / digest


def test_a_stage_made_again_has_the_bytes_of_its_record_and_results_is_not_touched(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(project / "results")
    code, out, _ = interplay(capsys, "debug", "quickstart.smoke/rl_edge/rl@0", "--into", "scratch")
    assert code == 0
    assert "identical: " in out
    assert (project / "scratch/results/rl").is_dir()
    assert contents(project / "results") == before


def test_what_differs_from_the_record_is_listed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = problems_of(project, capsys) / "record.json"
    record = json.loads(path.read_text())
    record["files"]["problems.parquet"] = [record["files"]["problems.parquet"][0] + 1, "0" * 64]
    record["metrics"]["size"] = 7
    path.write_text(json.dumps(record))
    code, out, _ = interplay(capsys, "debug", TEST_SET, "--into", "scratch")
    assert code == 1
    size = record["files"]["problems.parquet"][0]
    assert f"  problems.parquet  {size} -> {size - 1} bytes\n" in out
    assert "  metric size       7 -> " in out


def test_fewer_steps_make_a_stage_of_its_own(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = interplay(capsys, "debug", "quickstart.smoke/rl_edge/rl@0", "--steps", "1", "--into", "scratch")
    assert code == 0
    assert "a shorter run, nothing to compare with" in out
    (record,) = (project / "scratch/results/rl").glob("*/record.json")
    assert json.loads(record.read_text())["metrics"]["steps"] == 1
    assert not (project / "results/rl" / record.parent.name).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((TEST_SET, "--steps", "3"), "a stage of kind problems has no steps"),
        (("quickstart.smoke/rl_edge/rl@0", "--steps", "500"), "must lie in 1..4"),
        ((TEST_SET, "--into", "results/scratch"), "debug does not write"),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: tuple[str, ...], message: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = interplay(capsys, "debug", *words)
    assert code == 2
    assert message in error


def test_an_input_that_is_not_finished_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = problems_of(project, capsys)
    (data / "record.json").unlink()
    code, _, error = interplay(capsys, "debug", "quickstart.smoke/base/eval@0", "--into", "scratch")
    assert code == 2
    assert f"{data.name}: not finished in results, and" in error
    assert "reads it as data; make it first" in error


def test_a_stage_that_fails_shows_where_and_keeps_what_it_wrote(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = ProblemsSpec.model_validate(json.loads((problems_of(project, capsys) / "record.json").read_text())["spec"])
    source = "def twist(rows):\n    raise ValueError('a planted fault')\n"
    broken = spec.model_copy(update={"transform": Extension(function="twist.py:twist", source=source)})
    stage = Stage.make("problems", broken, {}, Run(), "data.twisted")
    folder = project / "results/problems" / stage.digest
    artifact.write_json(folder / "stage.json", stage.as_json())
    artifact.write_json(folder / "failure.json", {"message": "as it failed in the job"})
    code, _, error = interplay(capsys, "debug", stage.digest, "--into", "scratch")
    assert code == 1
    assert "ValueError: a planted fault" in error
    assert f"its files are in scratch/results/problems/{stage.digest}" in error
