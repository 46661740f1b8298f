"""Committed results: what an export writes, and that no study changes without them."""

import itertools
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import report_study
from conftest import ROOT, Laboratory

from interplay.core import artifact, metrics
from interplay.core.model import UserError
from interplay.report.metric_spec import measure_of
from interplay.report.stats import frame
from interplay.report.write import answers, summary, text
from interplay.study.expand import plan_study
from tools.reference import committed

RESULTS = sorted((ROOT / "docs/results").glob("*.json.gz"))


def test_committed_results_are_those_of_the_committed_plans() -> None:
    assert not (lines := committed.stale(ROOT)), "\n".join(lines)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_committed_result_has_seeds_stages_and_environment_and_is_small(path: Path) -> None:
    result = artifact.read_json(path)
    assert result["seeds"]
    assert re.fullmatch(r"[0-9a-f]{12}", result["report"])
    assert result["stages"]["report"] == 1
    assert {"cpu", "python", "torch"} <= result["exported"].keys()
    assert sum(each["stages"] for each in result["environments"]) == sum(result["stages"].values())
    assert path.stat().st_size < 100_000
    assert not path.with_suffix("").with_suffix("").exists(), "tables and figures are drawn from the file, not committed"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the configs of this one and one committed result, as if made by the plan."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs", ignore=shutil.ignore_patterns("study", "plans"))
    (tmp_path / "configs/study").mkdir()
    shutil.copy(ROOT / "configs/study/quickstart.yaml", tmp_path / "configs/study")
    (tmp_path / "docs/results").mkdir(parents=True)
    plan = plan_study(tmp_path / "configs", "quickstart", "laptop")
    plan.write_lock(tmp_path / "configs")
    result = artifact.read_json(ROOT / "docs/results/quickstart.laptop.json.gz")
    summary.write_known({**result, "report": plan.report}, tmp_path / "docs/results/quickstart.laptop.json.gz")
    return tmp_path


def test_a_study_that_changes_makes_its_result_stale_and_the_line_says_what_to_run(project: Path) -> None:
    assert committed.stale(project) == []
    study = project / "configs/study/quickstart.yaml"
    text = study.read_text()
    study.write_text(text.replace("seeds: {values: [0]", "seeds: {values: [7]"))
    assert study.read_text() != text
    plan_study(project / "configs", "quickstart", "laptop").write_lock(project / "configs")
    (line,) = committed.stale(project)
    assert line.startswith("docs/results/quickstart.laptop.json.gz: is of report ")
    assert "run `snakemake all --config study=quickstart scale=laptop`, then " in line
    assert "`interplay export quickstart --scale laptop -o docs/results/quickstart.laptop.json.gz` and `make docs`" in line


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"environments": None}, "does not say environments"),
        ({"grids": None}, "does not say grids"),
        ({"report": "0" * 12}, "is of report"),
        ({"study": "gone"}, "no study gone is planned at scale laptop under that name; remove it"),
    ],
)
def test_a_result_that_is_not_whole_is_named(damage: dict, said: str, project: Path) -> None:
    path = project / "docs/results/quickstart.laptop.json.gz"
    result = {**artifact.read_json(path), **damage}
    summary.write_known({key: value for key, value in result.items() if value is not None}, path)
    (line,) = committed.stale(project)
    assert said in line


def test_a_finished_study_is_exported_as_small_files(finished: Laboratory, tmp_path: Path) -> None:
    out = tmp_path / "quickstart.smoke.json"
    export = ("interplay", "export", "quickstart", "--scale", "smoke", "-o", str(out))
    done = finished.run(*export)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    plan = plan_study(finished.folder / "configs", "quickstart", "smoke")
    assert (found["report"], found["scale"], len(found["claims"]), found["seeds"]) == (plan.report, "smoke", 3, [0])
    assert found["stages"] == Counter(stage.kind for stage in plan.stages.values())
    (made,) = found["environments"]
    assert made == {"stages": len(plan.stages), **metrics.current_environment()} == {"stages": 14, **found["exported"]}
    assert {"main", "ops"} <= found["grids"].keys()
    assert found["figures"].keys() == {"pass_at_k", "by_op"}, "without the curves of training"
    drawn = tmp_path / "drawn"
    (drawn / "figures").mkdir(parents=True)
    for name in ("export.json", "figures/gone.svg"):
        (drawn / name).write_text("of an older export")
    draw = ("interplay", "export", "--from", str(out), "-o", str(drawn))
    assert finished.run(*draw).returncode == 0
    report = finished.folder / "results/report" / plan.report
    for table in (report / "tables").glob("*.md"):
        assert (drawn / "tables" / table.name).read_text() == table.read_text()
    assert {path.name for path in (drawn / "figures").glob("*.svg")} == {"pass_at_k.svg", "by_op.svg"}
    said = (drawn / "README.md").read_text()
    assert all(f"- {claim['verdict']}: {claim['says']}\n" in said for claim in found["claims"])

    shutil.rmtree(drawn)
    drawn.mkdir()
    (drawn / "thesis.tex").write_text("years of work")
    refused = finished.run(*draw)
    assert refused.returncode == 2
    assert f"{drawn}: not an export; name a folder" in refused.stderr


def test_tables_and_figures_of_a_summary_are_those_of_the_study(exported: tuple[answers.Answer, Path]) -> None:
    made, path = exported
    again = summary.read_summary(path)
    assert again.grids.keys() == made.grids.keys() >= {"main", "main_gain", "main_differences"}
    for name, grid in made.grids.items():
        assert text.as_markdown(again.grids[name], name) == text.as_markdown(grid, name)
    for name, one in made.contrasts.items():
        assert text.contrast_markdown(again.contrasts[name], name) == text.contrast_markdown(one, name)
    assert again.drawings.keys() == made.drawings.keys()
    for name, drawing in again.drawings.items():
        assert (drawing.caption, drawing.svg != b"") == (made.drawings[name].caption, True)
    assert made.results.kept
    assert again.results.kept
    for key, old in made.results.kept.items():
        new, unit = again.results.kept[key], measure_of(key[3])
        for one, other in zip((old.value, old.low, old.high), (new.value, new.low, new.high), strict=True):
            assert abs(one - other) * unit.factor <= 0.51 / 10**unit.decimals, key


def test_the_values_of_a_summary_keep_their_seeds(exported: tuple[answers.Answer, Path], tmp_path: Path) -> None:
    """An arm may lack a seed, as a base may lack a band: its values are not those of the first seeds of the study."""
    made, path = exported
    again = summary.read_summary(path)
    assert made.results.kept
    assert again.results.kept
    assert {old.seeds for old in made.results.kept.values()} == {(0, 1, 2), (1, 2)}
    for key, old in made.results.kept.items():
        new, unit = again.results.kept[key], measure_of(key[3])
        assert new.seeds == old.seeds, key
        assert new.per_seed == pytest.approx(old.per_seed, abs=0.51 / 10**unit.decimals / unit.factor), key
    known = json.loads(path.read_text())
    (tmp_path / "older.json").write_text(json.dumps({**known, "samples": [one[:4] for one in known["samples"]]}))
    with pytest.raises(UserError, match=r"the summary of toy holds 2 values of \S+ for 3 seeds; write it again with `interplay"):
        summary.read_summary(tmp_path / "older.json")


def test_a_committed_difference_is_that_of_its_seeds() -> None:
    """The central study, whose bases lack bands: of each seed, arm minus control is the difference that the summary has."""
    known = artifact.read_json(ROOT / "docs/results/interplay.central.laptop.json.gz")
    kept = summary.read_estimates(known, summary.read_grids(known))
    assert kept["rl_seldom", "", "seldom", "strict_pass@1"].seeds == (200, 201, 206, 208, 223)
    assert set(known["seeds"]) - {*kept["rl_edge", "", "hard", "strict_pass@1"].seeds} == {216}
    checked = Counter[int]()
    for (arm, against, band, metric), gap in kept.items():
        if against:
            one, other = (
                dict(zip(it.seeds, it.per_seed, strict=True)) for it in (kept[who, "", band, metric] for who in (arm, against))
            )
            assert list(gap.per_seed) == pytest.approx([one[seed] - other[seed] for seed in gap.seeds], abs=0.0011)
            checked[len(gap.seeds)] += 1
    assert checked.keys() == {5, 23, 24}


def test_an_end_of_an_interval_is_rounded_once(exported: tuple[answers.Answer, Path], tmp_path: Path) -> None:
    """A small number keeps its sign in a summary, by a digit that is not shown."""
    made, path = exported
    ends = itertools.cycle([-0.00046, 0.00046, 0.0045, -0.0005, 0.00025, -0.00104])
    grid = made.grids["main_gain"]
    cells = {key: cell._replace(estimate=cell.estimate._replace(low=next(ends))) for key, cell in grid.cells.items()}
    grid = grid._replace(cells=cells)
    numbers = summary.numbers_of(made._replace(grids={"main_gain": grid}, contrasts={}, drawings={}))
    (tmp_path / "odd.json").write_text(json.dumps({**json.loads(path.read_text()), **numbers}))
    again = summary.read_summary(tmp_path / "odd.json").grids["main_gain"]
    assert text.as_markdown(again, "main_gain") == text.as_markdown(grid, "main_gain")
    assert all((again.cells[key].estimate.low < 0) == (cell.estimate.low < 0) for key, cell in cells.items())


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[answers.Answer, Path]:
    """The answers of a study with a gain, a contrast and a figure of each kind, and its summary."""
    root = tmp_path_factory.mktemp("exported")
    random = np.random.default_rng(0)
    arms, inputs = [], {}
    for arm in ("base", "one", "two", "twin", "late"):
        for seed in (1, 2) if arm == "late" else (0, 1, 2):
            digest = "base" if arm == "base" else f"{arm}{seed}"
            if digest not in inputs:
                counts = {op: random.integers(0, 9, 10).tolist() for op in (2, 3, 4)}
                inputs[digest] = report_study.write_evaluation(root, digest, counts, n=8, extra_answers=1)
            arms.append(report_study.arm(arm, seed, [], digest, None if arm == "base" else "base"))
    contrasted = {"columns": ["op"], "cells": ["strict_pass@1"], "contrast": {"against": "one", "noise": "twin"}}
    contenders = [{"name": name, "tries": [{"arm": name}]} for name in ("one", "two", "base")]
    spec = report_study.spec(
        arms,
        tables={"main": {"columns": ["id", "edge"], "cells": ["strict_pass@1", "hacked"], "gain": {"against": "base"}}, "ops": contrasted},
        lineups={"ops": {"against": "one", "contenders": contenders, "twins": {"twin": "one"}}},
        figures={
            "curves": {"x": "k", "y": "strict_pass", "panel": "band"},
            "bars": {"x": "op", "y": "strict_pass@1"},
            "lines": {"x": "band", "y": "score", "bands": ["id", "edge"]},
            "map": {"x": "op", "y": "answer_pass@1", "form": "heat", "against": "base"},
        },
    )  # fmt: skip
    made = answers.answer_study(frame.read_results(spec, inputs)._replace(kept={}))
    known = {"study": "toy", "scale": "smoke", "question": "q", "claims": [], "seeds": [0, 1, 2]}
    contrasts = answers.record_metrics(made)["contrasts"]
    path = root / "toy.json"
    path.write_text(json.dumps({**known, "contrasts": contrasts, **summary.numbers_of(made)}))
    return made, path


def test_an_unfinished_study_is_refused_with_the_command_that_finishes_it(tmp_path: Path) -> None:
    plan = plan_study(ROOT / "configs", "quickstart", "smoke")
    with pytest.raises(UserError, match="quickstart is not finished; run `snakemake all --config study=quickstart scale=smoke`"):
        summary.write_summary(plan, tmp_path, tmp_path / "x.json")
