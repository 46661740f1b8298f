"""Metrics of the user's own: numbers of samples that a function of the study computes, from a planned stage to the report's table."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import report_study as study
import world
from conftest import copy_configs

from interplay.core import artifact
from interplay.core.artifact import write_json
from interplay.core.digest import canonical, hashed
from interplay.core.execution import Run
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.data.sets import load_pool
from interplay.evaluate.sampling import evaluate_model
from interplay.evaluate.scores import judge_own
from interplay.evaluate.spec import EvaluateSpec
from interplay.report.display_spec import Figure, Table
from interplay.report.draw.figures import draw_figure
from interplay.report.stats import frame
from interplay.report.write import tables, text
from interplay.study.expand import plan_study
from interplay.tasks.verdict import Verdict


def own_metric(code: str, **keys: Any) -> dict[str, Any]:
    """A metric `f` of this code, written out as a planned stage has it."""
    return {"function": "mine.py:f", "source": code, **keys}


@pytest.mark.parametrize(
    "code",
    ["float('nan')", "float('inf')", "'long'", "None", "[1.0]", "1j", "10**400"],
)
def test_a_metric_that_returns_no_finite_number_is_refused_in_one_line(code: str) -> None:
    spec = EvaluateSpec.model_validate({"metrics": [own_metric(f"def f(row, completion, verdict):\n    return {code}\n")]})
    with pytest.raises(UserError, match=r"^mine\.py:f: must return a finite number for each sample, not .+$"):
        judge_own(pa.table({"index": [0]}), [None], [""], [Verdict(True, True, 1.0, "none")], spec)


def test_a_metric_that_fails_is_reported_with_its_line() -> None:
    spec = EvaluateSpec.model_validate({"metrics": [own_metric("def f(row, completion, verdict):\n    return row.no_such\n")]})
    with pytest.raises(UserError, match=r"^mine\.py:f: fails at line 2 \(AttributeError"):
        judge_own(pa.table({"index": [0]}), [None], [""], [Verdict(True, True, 1.0, "none")], spec)


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ([own_metric("x"), own_metric("y")], "two are called 'f'"),
        (
            [{"function": "their-lab:a/b", "distribution": "their-lab", "version": "1"}],
            "'a/b' cannot be written",
        ),
    ],
)
def test_metrics_have_names_of_their_own_that_a_table_can_show(metrics: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(UserError, match=rf"^here: metrics.*{says}"):
        parse_model(EvaluateSpec, {"metrics": metrics}, KeyPlace("here"))


def test_an_evaluation_without_metrics_is_the_stage_that_it_was() -> None:
    assert "metrics" not in hashed(EvaluateSpec())
    assert "metrics" in hashed(EvaluateSpec.model_validate({"metrics": [own_metric("x")]}))


METRIC = "def length(row, completion, verdict, by=1):\n    return (len(completion) + len(row.prompt) + verdict.answer) / by\n"


def test_the_mean_of_a_metric_is_in_records_tables_and_intervals(tmp_path: Path) -> None:
    """A tiny evaluation in two blocks of samples, counted by hand from its samples, and shown by the report."""
    inputs = {"model": world.model(tmp_path, "m" * 12), "data": world.problem_set(tmp_path, "d" * 12, 13, split="test")}
    own = {"function": "mine.py:length", "source": METRIC, "options": {"by": 8}}
    plain = EvaluateSpec(num_samples=4, max_completion_length=12)
    spec = plain.model_copy(update={"metrics": EvaluateSpec.model_validate({"metrics": [own]}).metrics})
    digests = ["a" * 12, "b" * 12]
    folders = {one: tmp_path / "evaluate" / one for one in digests}
    for at, (one, folder_of) in enumerate(folders.items()):
        folder_of.mkdir(parents=True)
        block = spec.model_copy(update={"first_sample": 4 * at})
        record = {"kind": "evaluate", "digest": one, "spec": canonical(block), "deps": {"model": "m" * 12, "data": "d" * 12}}
        made = evaluate_model(block, inputs, folder_of, Run())
        write_json(folder_of / "record.json", {**record, "versions": {}, "files": {}, "metrics": made})
    (tmp_path / "plain").mkdir()
    evaluate_model(plain, inputs, tmp_path / "plain", Run())
    samples = [pq.read_table(folder_of / "samples.parquet") for folder_of in folders.values()]
    assert samples[0].drop(["own:length"]).equals(pq.read_table(tmp_path / "plain/samples.parquet"))
    prompts = {row.index: len(row.prompt) for row in load_pool([inputs["data"]]).rows}
    values: dict[int, list[float]] = {}
    for sample in pa.concat_tables(samples).to_pylist():
        value = (len(sample["completion"]) + prompts[sample["index"]] + sample["answer"]) / 8
        assert sample["own:length"] == value
        values.setdefault(sample["index"], []).append(value)
    means = np.array([np.mean(each) for each in values.values()])
    assert means.std() > 0
    first = pa.concat_tables(samples[:1])["own:length"].to_numpy().mean()
    assert artifact.record(folders[digests[0]])["metrics"]["band"]["easy"]["own:length"] == pytest.approx(first, rel=1e-5)
    table = Table(columns=["easy"], cells=["strict_pass@1", "own:length"])
    arms = [study.arm("base", 0, ["base:pretrain:mmmmmmmmmmmm"], digests[0])]
    results = frame.read_results(study.spec(arms, blocks={digests[0]: digests[1:]}), folders)
    grid = tables.value_grid(results, table)
    found = grid.cells["base", "easy", "own:length"].estimate
    assert (found.n_prompts, found.n_samples) == (13, 8)
    assert found.value == pytest.approx(means.mean())
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(2 * 2.1788 * means.std(ddof=1) / 13**0.5, rel=1e-4)  # t of 12 degrees
    shown = text.as_markdown(grid, "title")
    assert f"{means.mean():.3f}" in shown
    assert "easy length" in shown
    assert "length per sample" in shown.lower()
    assert "in comparisons more is better" in shown
    for form in ({"x": "op"}, {"x": "band", "bands": ["easy", "id"]}, {"x": "op", "form": "heat"}):
        assert draw_figure(results, Figure(y="own:length", **form)).png


QUICKSTART = "eval: {kind: evaluate"


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("own:length", ""),
        ("own:lenght", r"computes no metric 'lenght' of its own; did you mean 'own:length'"),
        ("length", "'length' is not a metric; write .*own:NAME"),
    ],
)
def test_a_cell_shows_a_metric_that_some_evaluation_computes(cell: str, says: str, tmp_path: Path) -> None:
    configs = with_metric(tmp_path, cell, "metrics: [{name: 'mine.py:length', by: 2}]")
    with pytest.raises(UserError, match=rf"quickstart\.yaml:\d+: tables.*cells.*({says})") if says else contextlib.nullcontext():
        stages = plan_study(configs, "quickstart", "smoke").stages.values()
        assert {one.options["by"] for stage in stages if isinstance(stage.spec, EvaluateSpec) for one in stage.spec.metrics} == {
            2
        }


def test_a_cell_of_a_metric_that_no_evaluation_lists_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"own:length'.*; give stages\.eval `metrics: \[\{name: \"file\.py:length\"\}\]`"):
        plan_study(with_metric(tmp_path, "own:length", ""), "quickstart", "smoke")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "def length(completion, row, verdict): ...",
            r"length takes \(completion, row, verdict\); its parameters must begin with",
        ),
        ("def length(row, completion, verdict): ...", "takes no option 'by'"),
        ("class length:\n    pass", "is no function"),
    ],
)
def test_a_metric_of_another_form_is_refused_when_planned(code: str, says: str, tmp_path: Path) -> None:
    configs = with_metric(tmp_path, "own:length", "metrics: [{name: 'mine.py:length', by: 2}]")
    (configs / "study/mine.py").write_text(code)
    where = r"quickstart\.yaml:\d+: stages\.eval\.metrics\.0\.name = 'mine\.py:length': "
    with pytest.raises(UserError, match=where + says):
        plan_study(configs, "quickstart", "smoke")


def test_a_name_means_one_metric_in_all_evaluations(tmp_path: Path) -> None:
    configs = with_metric(tmp_path, "own:length", "metrics: [{name: 'mine.py:length', by: 2}]")
    file = configs / "study/quickstart.yaml"
    line = next(line for line in file.read_text().splitlines() if QUICKSTART in line)
    again = line.replace("eval:", "again:").replace("by: 2", "by: 3")
    file.write_text(file.read_text().replace(line, f"{line}\n{again}").replace("evaluate: [eval]", "evaluate: [eval, again]"))
    with pytest.raises(UserError, match=r"quickstart\.yaml:\d+: stages\.\w+\.metrics: 'length' is another function here, or has"):
        plan_study(configs, "quickstart", "smoke")


def with_metric(folder_of: Path, cell: str, keys: str) -> Path:
    """The configs, with a quickstart whose evaluation has these keys and whose first table has this cell."""
    configs = copy_configs(folder_of)
    file = configs / "study/quickstart.yaml"
    written = file.read_text()
    assert written.count(QUICKSTART) == 1
    assert written.count("cells: [") >= 1
    written = written.replace(QUICKSTART, f"{QUICKSTART}, {keys}" if keys else QUICKSTART)
    file.write_text(written.replace("cells: [", f"cells: ['{cell}', ", 1))
    (configs / "study/mine.py").write_text(METRIC)
    return configs
