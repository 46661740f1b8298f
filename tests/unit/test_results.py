"""Committed results: what an export writes, and that no study changes without them."""

import json
import re
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, Laboratory

from interplay.core import metrics
from interplay.core.model import UserError
from interplay.report.write import answers
from interplay.study.expand import plan_study
from tools.reference import committed

RESULTS = sorted((ROOT / "docs/results").glob("*.json"))


def test_committed_results_are_those_of_the_committed_plans() -> None:
    assert not (lines := committed.stale(ROOT)), "\n".join(lines)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_committed_result_tells_seeds_stages_and_environment_and_is_small(path: Path) -> None:
    result = json.loads(path.read_text())
    assert result["seeds"]
    assert "report" in result["stages"]
    assert all(re.fullmatch(r"[0-9a-f]{12}( [0-9a-f]{12})*", digests) for digests in result["stages"].values())
    assert {"cpu", "python", "torch"} <= result["exported"].keys()
    assert sum(each["stages"] for each in result["environments"]) == sum(len(d.split()) for d in result["stages"].values())
    files = [path, *path.with_suffix("").iterdir()]
    assert {file.suffix for file in files} <= {".json", ".md", ".svg"}
    assert max(file.stat().st_size for file in files) < 200_000


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the configs of this one and one committed result."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs", ignore=shutil.ignore_patterns("study", "plans"))
    (tmp_path / "configs/study").mkdir()
    shutil.copy(ROOT / "configs/study/quickstart.yaml", tmp_path / "configs/study")
    shutil.copytree(ROOT / "docs/results/quickstart.laptop", tmp_path / "docs/results/quickstart.laptop")
    shutil.copy(ROOT / "docs/results/quickstart.laptop.json", tmp_path / "docs/results")
    plan_study(tmp_path / "configs", "quickstart", "laptop").write_lock(tmp_path / "configs")
    return tmp_path


def test_a_study_that_changes_makes_its_result_stale_and_the_line_says_what_to_run(project: Path) -> None:
    assert committed.stale(project) == []
    study = project / "configs/study/quickstart.yaml"
    text = study.read_text()
    study.write_text(text.replace("seeds: {values: [0]", "seeds: {values: [7]"))
    assert study.read_text() != text
    plan_study(project / "configs", "quickstart", "laptop").write_lock(project / "configs")
    (line,) = committed.stale(project)
    assert line.startswith("docs/results/quickstart.laptop.json: is of report ")
    assert "run `snakemake all --config study=quickstart scale=laptop`, then " in line
    assert "`interplay export quickstart --scale laptop -o docs/results/quickstart.laptop.json` and `make docs`" in line


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"environments": None}, "does not say environments"),
        ({"stages": {"rl": "0" * 12}}, "is of report"),
        ({"study": "gone"}, "no study gone is planned at scale laptop under that name; remove it"),
    ],
)
def test_a_result_that_is_not_whole_is_named(damage: dict, said: str, project: Path) -> None:
    path = project / "docs/results/quickstart.laptop.json"
    result = {**json.loads(path.read_text()), **damage}
    path.write_text(json.dumps({key: value for key, value in result.items() if value is not None}))
    (line,) = committed.stale(project)
    assert said in line


def test_a_result_without_its_tables_is_named(project: Path) -> None:
    shutil.rmtree(project / "docs/results/quickstart.laptop")
    (line,) = committed.stale(project)
    assert "has no tables in quickstart.laptop/" in line


def test_a_finished_study_is_exported_as_small_files(finished: Laboratory, tmp_path: Path) -> None:
    out = tmp_path / "quickstart.smoke.json"
    export = ("interplay", "export", "quickstart", "--scale", "smoke", "-o", str(out))
    done = finished.run(*export)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    plan = plan_study(finished.folder / "configs", "quickstart", "smoke")
    assert (found["report"], found["scale"], len(found["claims"]), found["seeds"]) == (plan.report, "smoke", 3, [0])
    assert {digest for digests in found["stages"].values() for digest in digests.split()} == plan.stages.keys()
    (made,) = found["environments"]
    assert made == {"stages": len(plan.stages), **metrics.current_environment()} == {"stages": 14, **found["exported"]}
    beside = tmp_path / "quickstart.smoke"
    names = {path.name for path in beside.iterdir()}
    assert names >= {"main.md", "ops.md", "pass_at_k.svg", "by_op.svg"}
    assert not names & {"reward.svg", "loss.svg"}
    svg = (beside / "pass_at_k.svg").read_text()
    assert ">k (samples per problem)</text>" in svg
    assert not re.search(r"\d\.\d\d", re.sub(r"<(style|defs)>.*?</", "", svg, flags=re.DOTALL))

    (beside / "pass_at_k.svg").write_text("old")
    (beside / "gone.svg").write_text("of an older study")
    assert finished.run(*export).returncode == 0
    assert (beside / "pass_at_k.svg").read_text() == svg
    assert {path.name for path in beside.iterdir()} == names
    (beside / "thesis.tex").write_text("years of work")
    refused = finished.run(*export)
    assert refused.returncode == 2
    assert "thesis.tex: not of an export; name another file" in refused.stderr


def test_an_unfinished_study_is_refused_with_the_command_that_finishes_it(tmp_path: Path) -> None:
    plan = plan_study(ROOT / "configs", "quickstart", "smoke")
    with pytest.raises(UserError, match="quickstart is not finished; run `snakemake all --config study=quickstart scale=smoke`"):
        answers.write_summary(plan, tmp_path, tmp_path / "x.json")
