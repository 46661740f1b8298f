import csv
import io
import json
from pathlib import Path

import pytest
import report_study as study

from interplay.report.display_spec import Table
from interplay.report.inspect import chain
from interplay.report.shown_spec import SHARE
from interplay.report.stats import frame
from interplay.report.stats.frame import Results
from interplay.report.write import latex, tables, text

BASE = {2: [4, 4], 3: [4, 2], 4: [1, 0, 2, 1]}
TUNED = [{2: [4, 4], 3: [4, 4], 4: [3, 2, 4, right]} for right in (1, 2, 3)]
TABLE = Table(columns=["id", "edge"], cells=["strict_pass@1"])


def results(root: Path) -> Results:
    inputs = {"b": study.write_evaluation(root, "b", BASE)}
    add_metrics(inputs["b"], {"band": {"edge": {"prior_pass@1": 0.05, "errors": {"none": 0.5, "value": 0.3, "parse": 0.2}}}})
    arms = [study.arm("base", seed, ["base:pretrain:m"], "b") for seed in range(3)]
    for seed in range(3):
        inputs[f"r{seed}"] = study.write_evaluation(root, f"r{seed}", TUNED[seed])
        arms.append(study.arm("rl", seed, ["base:pretrain:m", f"rl:rl:m{seed}"], f"r{seed}"))
        arms.append(study.arm("far", seed, ["base:pretrain:m", f"rl:rl:f{seed}"], "absent", control="rl"))
    trained = {"base": [2, 3], "rl": [2, 3, 4], "far": [2]}
    return frame.read_results(study.spec(arms, trained_ops=trained), inputs)


def add_metrics(out: Path, metrics: dict) -> None:
    record = json.loads((out / "record.json").read_text())
    (out / "record.json").write_text(json.dumps({**record, "metrics": metrics}))


def test_a_csv_line_holds_everything_a_cell_must_say(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(text.as_csv(tables.value_grid(results(tmp_path), TABLE)))))
    cell = next(row for row in rows if (row["arm"], row["column"], row["cell"]) == ("rl", "edge", "strict_pass@1"))
    assert float(cell["estimate"]) == 11 / 16
    assert float(cell["low"]) <= 11 / 16 - 4.302653 / 16 / 3**0.5 < 11 / 16 < float(cell["high"])
    over = "this base, any prompt (3 runs, 4 prompts)"
    assert (cell["over"], cell["n_prompts"], cell["n_samples"], cell["seeds"]) == (over, "4", "4", "0;1;2")
    assert (cell["per_seed"], cell["evaluations"]) == ("0.625;0.6875;0.75", "r0;r1;r2")


def test_strict_and_answer_stand_side_by_side_whichever_was_asked_for() -> None:
    assert tables.side_by_side(["answer_pass@1", "strict_pass@8"]) == [
        "strict_pass@1",
        "answer_pass@1",
        "strict_pass@8",
        "answer_pass@8",
    ]


def test_the_answer_prior_stands_under_the_answer_columns_alone(tmp_path: Path) -> None:
    grid = tables.value_grid(results(tmp_path), TABLE)
    assert grid.prior == {("edge", "answer_pass@1"): 0.05}
    assert "| answer prior | – | – | – | 5.0 |" in text.as_markdown(grid, "title")


def test_ops_that_no_stage_of_an_arm_was_trained_on_are_marked(tmp_path: Path) -> None:
    grid = tables.value_grid(results(tmp_path), TABLE)
    marks = {(arm, column): grid.cells[arm, column, "strict_pass@1"].mark for arm in grid.rows for column in grid.columns}
    assert marks == {
        ("base", "id"): "",
        ("base", "edge"): tables.UNTRAINED,
        ("rl", "id"): "",
        ("rl", "edge"): "",
        ("far", "id"): tables.PARTLY,
        ("far", "edge"): tables.UNTRAINED,
    }
    assert any(note.startswith("†: no op of this column") for note in text.grid_notes(grid))


def test_an_arm_that_starts_from_a_model_of_elsewhere_gets_no_mark_since_nobody_knows_its_data(tmp_path: Path) -> None:
    inputs = {"b": study.write_evaluation(tmp_path, "b", {3: [4], 4: [1]})}
    arms = [study.arm("adopted", 0, ["base:source:m"], "b"), study.arm("tuned", 0, ["base:source:m", "rl:rl:n"], "b")]
    arms.append(study.arm("own", 0, ["base:pretrain:o"], "b"))
    grid = tables.value_grid(frame.read_results(study.spec(arms), inputs), TABLE)
    marks = {arm: grid.cells[arm, "edge", "strict_pass@1"].mark for arm in grid.rows}
    assert marks == {"adopted": "", "tuned": "", "own": tables.UNTRAINED}


def test_op_becomes_one_column_per_op(tmp_path: Path) -> None:
    grid = tables.value_grid(results(tmp_path), Table(columns=["op"], cells=["strict_pass@1"]))
    assert grid.columns == ["op:2", "op:3", "op:4"]
    assert [grid.cells["base", column, "strict_pass@1"].estimate.value for column in grid.columns] == [1.0, 0.75, 0.25]


def test_an_arm_is_compared_with_the_model_it_started_from_and_with_its_control(tmp_path: Path) -> None:
    assert tables.difference_pairs(results(tmp_path)) == [("rl", "base"), ("far", "base"), ("far", "rl")]


def test_an_arm_whose_path_begins_with_other_models_is_not_compared_with_them(tmp_path: Path) -> None:
    arms = [study.arm("base", 0, ["base:pretrain:m"], "b"), study.arm("rl", 0, ["base:pretrain:other", "rl:rl:r"], "b")]
    inputs = {"b": study.write_evaluation(tmp_path, "b", BASE)}
    assert tables.difference_pairs(frame.read_results(study.spec(arms), inputs)) == []


def test_an_arm_that_leaves_a_stage_at_an_earlier_checkpoint_does_not_continue_the_arm_that_ends_it(tmp_path: Path) -> None:
    early = study.arm("early", 0, ["base:pretrain:m", "rl:rl:e"], "b")
    early["path"][0]["step"] = 2000
    arms = [study.arm("base", 0, ["base:pretrain:m"], "b"), early, study.arm("rl", 0, ["base:pretrain:m", "rl:rl:r"], "b")]
    found = frame.read_results(study.spec(arms), {"b": study.write_evaluation(tmp_path, "b", BASE)})
    assert tables.difference_pairs(found) == [("rl", "base")]


def test_a_difference_shows_the_minimum_detectable_effect(tmp_path: Path) -> None:
    grid = tables.difference_grid(results(tmp_path), TABLE)
    cell = grid.cells["rl − base", "edge", "strict_pass@1"]
    assert cell.estimate.value == pytest.approx(7 / 16)
    # sd 1/16 over 3 pairs: noncentrality 5.6535 has 80 % power at t_crit 4.3027, and 5.6535 / 16 / sqrt(3) = 0.2040; prompts add.
    assert text.cell_lines(cell) == ["+43.8", "[+27.6, +59.9]ᵇ", "+37.5 · +43.8 · +50.0", "MDE 22.1"]
    assert any(note.startswith("MDE") for note in text.grid_notes(grid))


def test_a_missing_evaluation_is_shown_as_missing_with_its_reason(tmp_path: Path) -> None:
    grid = tables.value_grid(results(tmp_path), TABLE)
    assert text.cell_lines(grid.cells["far", "edge", "strict_pass@1"]) == ["missing"]
    assert "Missing: evaluation absent of far at seed 1 is not there." in text.grid_notes(grid)


def test_an_interval_of_one_base_is_marked_and_explained(tmp_path: Path) -> None:
    grid = tables.value_grid(results(tmp_path), TABLE)
    assert text.cell_lines(grid.cells["base", "edge", "strict_pass@1"])[1].endswith("]ᵇ")
    assert any(note.startswith("ᵇ: for this base, any prompt (1 run, 4 prompts)") for note in text.grid_notes(grid))


def test_a_wide_table_is_shown_in_blocks_that_keep_strict_beside_answer(tmp_path: Path) -> None:
    wide = Table(columns=["id", "edge", "op:4"], cells=["strict_pass@1", "strict_pass@4"])
    shown = tables.grid_blocks(tables.value_grid(results(tmp_path), wide))
    assert [len(block) for block in shown] == [6, 6]
    assert shown[1][:2] == [("id", "strict_pass@4"), ("id", "answer_pass@4")]


@pytest.mark.parametrize(
    ("number", "signed", "shown"),
    [(0.4126, False, "41.3"), (0.05, True, "+5.0"), (-0.0001, True, "0.0"), (float("nan"), True, "–")],
)
def test_percent_has_one_decimal_and_no_minus_zero(number: float, signed: bool, shown: str) -> None:
    assert SHARE.shown(number, signed) == shown


def test_latex_escapes_names_and_closes_what_it_opens(tmp_path: Path) -> None:
    grid = tables.value_grid(results(tmp_path), Table(columns=["id"], cells=["strict_pass@1"]))
    written = latex.table_latex(latex.grid_float("name", grid), latex.REPORT).partition(latex.MACROS)[2]
    assert written.count(r"\begin{tabular}") == written.count(r"\end{tabular}") == 1
    assert written.count("{") - written.count(r"\{") == written.count("}") - written.count(r"\}")
    body = written[written.index(r"\toprule") :]
    assert "_" not in body.replace(r"\_", "")
    assert "†" not in body


def test_overlap_of_a_test_set_with_the_other_sets_is_counted_by_structural_key(tmp_path: Path) -> None:
    found = results(tmp_path)
    keys = {"test": ([2, 2, 3], ["a", "a", "b"]), "train": ([2, 3], ["c", "b"])}
    inputs = dict(found.folders)
    for digest, (ops, of_op) in keys.items():
        inputs[digest] = study.write_problems(tmp_path, digest, ops, of_op)
    (entry,) = chain.set_overlaps(frame.read_results(found.spec, inputs))
    assert entry == chain.Overlap("test", 3, repeats={2: 1}, shared={3: 1}, variants={}, against=["train"])


def test_errors_are_the_mean_over_evaluations_most_frequent_first(tmp_path: Path) -> None:
    entry = next(arm for arm in chain.arm_rows(results(tmp_path)) if arm["name"] == "base")
    assert entry["errors"] == {"edge": "value 30.0 %, parse 20.0 %"}
    assert entry["trained"] == "2–3"


def test_a_table_may_show_some_arms_only(tmp_path: Path) -> None:
    found = results(tmp_path)
    some = TABLE.model_copy(update={"arms": ["base", "rl"]})
    assert tables.value_grid(found, some).rows == ["base", "rl"]
    assert tables.difference_grid(found, some).rows == ["rl − base"]
    assert tables.difference_pairs(found, TABLE.model_copy(update={"arms": ["base"]})) == []


def test_a_table_says_where_not_all_was_sampled_by_one_engine(tmp_path: Path) -> None:
    found = results(tmp_path)

    def by(engine: str, dtype: str = "float32") -> Results:
        how = {digest: ("native", "float32") if digest == "b" else (engine, dtype) for digest in found.records}
        specs = {
            digest: {**record["spec"], "engine": how[digest][0], "dtype": how[digest][1]}
            for digest, record in found.records.items()
        }
        return found._replace(records={digest: {**found.records[digest], "spec": spec} for digest, spec in specs.items()})

    some = TABLE.model_copy(update={"arms": ["base", "rl"]})
    assert tables.value_grid(by("native"), some).notes == ()
    line = (
        "Evaluations sampled by different engines, to which differences may be due: native in float32: base; vllm in float32: rl."
    )
    for made in (tables.value_grid(by("vllm"), some), tables.difference_grid(by("vllm"), some)):
        assert made.notes == (line,)
        assert f"- {line}" in text.as_markdown(made, "title")
    assert "bfloat16: rl" in tables.value_grid(by("native", "bfloat16"), some).notes[0]
    alone = TABLE.model_copy(update={"arms": ["rl"]})
    assert tables.value_grid(by("vllm"), alone).notes == ()
