"""Gain as sharpening and capability: a worked example, the identities, and what chance alone does to each estimator."""

from pathlib import Path

import numpy as np
import pytest
import report_study as study

from interplay.core.model import UserError
from interplay.report.display_spec import Gain, Table
from interplay.report.inspect import explain
from interplay.report.stats import frame
from interplay.report.stats.frame import Results
from interplay.report.write import answers, tables, text
from interplay.report.write.tables import Counts, per_prompt
from interplay.study.answers import tables_with_k
from interplay.tasks.verdict import pass_at_k

BASE = [0, 1, 2, 0]
ARM = [1, 3, 1, 0]
"""Right of 4 samples on four prompts."""


def counts(right: list[int], n: int = 4) -> Counts:
    return Counts(np.array(right), np.full(len(right), n))


def halves(draw: np.random.Generator, rates: np.ndarray, n: int) -> Counts:
    """Two halves of n // 2 samples each, sampled afresh."""
    half = np.full(len(rates), n // 2)
    head, tail = draw.binomial(half, rates), draw.binomial(half, rates)
    return Counts(head + tail, 2 * half, head, half)


def test_the_parts_of_a_worked_example() -> None:
    found = per_prompt(counts(BASE), counts(ARM), 4)
    assert found["gain"].tolist() == [0.25, 0.5, -0.25, 0.0]
    assert found["sharpening"].tolist() == [0.0, 0.5, -0.25, 0.0]
    assert found["capability"].tolist() == [0.25, 0.0, 0.0, 0.0]
    assert np.isnan(found["capability_split"]).all()
    assert found["newly_solved@4"].tolist() == [1, 0, 0, 0]
    assert found["lost@4"].tolist() == [0, 0, 0, 0]
    # One sample each: the base fails in 3/4, the arm succeeds in 3/4.
    assert per_prompt(counts([1]), counts([3]), 1)["newly_solved@1"][0] == pytest.approx(0.75 * 0.75)
    assert per_prompt(counts([1]), counts([3]), 1)["lost@1"][0] == pytest.approx(0.25 * 0.25)


def test_the_split_of_a_worked_example() -> None:
    """Halves of 2 and 2 samples: base 0+1 right, arm 1+2; then base 1+1; then base 0+0, arm 0+1."""
    two = np.full(3, 2)
    base = Counts(np.array([1, 2, 0]), 2 * two, np.array([0, 1, 0]), two)
    arm = Counts(np.array([3, 2, 1]), 2 * two, np.array([1, 1, 0]), two)
    found = per_prompt(base, arm, 2)
    # The head of the first fails: the tails measure 2/2 - 1/2, at half weight. Its tail does not fail and chooses nothing.
    assert found["capability_split"].tolist() == [0.25, 0.0, 0.25]
    assert found["sharpening_split"].tolist() == [0.25, 0.0, 0.0]


def test_sharpening_and_capability_add_up_and_shares_differ_by_pass_at_k() -> None:
    draw = np.random.default_rng(0)
    base, arm = (halves(draw, draw.random(50), 8) for _ in range(2))
    for k in (1, 3, 8):
        found = per_prompt(base, arm, k)
        for ending in ("", "_split"):
            assert found[f"sharpening{ending}"] + found[f"capability{ending}"] == pytest.approx(found["gain"], abs=1e-12)
        rates = [pass_at_k(one.n, one.right, k) for one in (arm, base)]
        assert found[f"newly_solved@{k}"] - found[f"lost@{k}"] == pytest.approx(rates[0] - rates[1], abs=1e-12)


def test_a_model_against_itself_shows_no_split_capability_whether_it_is_sampled_afresh_or_not() -> None:
    draw = np.random.default_rng(1)
    rates = draw.choice([0.02, 0.05, 0.1, 0.5], 200_000)
    base = halves(draw, rates, 8)
    same = per_prompt(base, base, 8)
    assert not any(same[name].any() for name in (*tables.PARTS, *tables.SPLIT))
    found = per_prompt(base, halves(draw, rates, 8), 8)
    assert abs(found["capability_split"].mean()) < 4 * found["capability_split"].std() / np.sqrt(len(rates))
    expected = np.mean((1 - rates) ** 8 * rates)
    assert found["capability"].mean() == pytest.approx(expected, abs=4 * found["capability"].std() / np.sqrt(len(rates)))
    assert expected > 0.02


def test_what_is_chosen_and_measured_apart_is_right_in_the_mean() -> None:
    draw = np.random.default_rng(2)
    base, arm = (halves(draw, np.full(100_000, rate), 8) for rate in (0.1, 0.3))
    found = per_prompt(base, arm, 4)
    assert found["capability_split"].mean() == pytest.approx(0.9**4 * (0.3 - 0.1), abs=0.005)
    assert found["newly_solved@4"].mean() == pytest.approx(0.9**4 * (1 - 0.7**4), abs=0.005)
    assert found["lost@4"].mean() == pytest.approx((1 - 0.9**4) * 0.7**4, abs=0.005)


def test_blocks_give_the_table_its_split_columns(tmp_path: Path) -> None:
    inputs = {}
    for digest, rights in {"b": [0, 1], "b2": [0, 0], "r": [1, 3], "r2": [2, 3]}.items():
        inputs[digest] = study.write_evaluation(tmp_path, digest, {4: rights})
    arms = [study.arm("base", 0, ["base:pretrain:m"], "b"), study.arm("rl", 0, ["base:pretrain:m", "rl:rl:n"], "r")]
    read = frame.read_results(study.spec(arms, blocks={"b": ["b2"], "r": ["r2"]}), inputs)
    made = tables.gain_grid(read, TABLE)
    assert made.metrics == tables.gain_metrics(4)
    # First prompt: both halves of the base fail, 3/8. Second: its tail fails and the heads measure 3/4 - 1/4, at half weight.
    assert made.cells["rl − base", "edge", "capability_split"].estimate.value == pytest.approx((3 / 8 + 1 / 4) / 2)
    assert made.cells["rl − base", "edge", "capability"].estimate.value == pytest.approx(3 / 16)


TABLE = Table(columns=["edge"], cells=["strict_pass@1"], gain={"against": "base", "k": 4})


def results(root: Path) -> Results:
    inputs = {"b": study.write_evaluation(root, "b", {4: BASE})}
    arms = [study.arm("base", seed, ["base:pretrain:m"], "b") for seed in range(3)]
    for seed, rights in enumerate((ARM, [2, 3, 1, 0], [0, 3, 1, 0])):
        inputs[f"r{seed}"] = study.write_evaluation(root, f"r{seed}", {4: rights})
        arms.append(study.arm("rl", seed, ["base:pretrain:m", f"rl:rl:m{seed}"], f"r{seed}"))
    return frame.read_results(study.spec(arms, tables={"main": TABLE}), inputs)


def test_the_table_has_each_part_with_its_interval(tmp_path: Path) -> None:
    made = answers.answer_study(results(tmp_path)).grids["main_gain"]
    assert made.rows == ["rl − base"]
    cell = made.cells["rl − base", "edge", "capability"].estimate
    assert cell.per_seed == (0.25 / 4, 0.5 / 4, 0.0)
    assert cell.over == "this base, any prompt (3 runs, 4 prompts)"
    assert cell.value == pytest.approx(0.0625)
    assert cell.low <= 0.0625 - 4.302653 * 0.0625 / 3**0.5 + 1e-6, "no narrower than over the runs alone"
    assert made.cells["rl − base", "edge", "newly_solved@4"].estimate.per_seed == (0.25, 0.25, 0.0)
    shown = text.as_markdown(made, "title")
    assert "regression to the mean" in shown
    assert "| | edge gain | edge sharpening | edge capability |" in shown


def test_one_seed_has_an_interval_over_prompts(tmp_path: Path) -> None:
    found = results(tmp_path)
    one = found._replace(spec=found.spec.model_copy(update={"arms": [row for row in found.spec.arms if row.seed == 0]}))
    cell = tables.gain_grid(one, TABLE).cells["rl − base", "edge", "sharpening"].estimate
    assert (cell.value, cell.over) == (0.0625, "this base, any prompt (1 run, 4 prompts)")
    assert -1 <= cell.low < 0.0625 < cell.high <= 1


STAGES = {
    **{digest: {"kind": "evaluate", "spec": {}, "deps": {"data": "test"}} for digest in ("b", "r0", "r1", "r2")},
    "test": {"kind": "problems", "spec": {"bands": {"edge": {"4": 1.0}}}, "deps": {}},
}


def test_explain_takes_a_cell_of_gains_and_one_against_an_arm_down_to_the_counts(tmp_path: Path) -> None:
    found = results(tmp_path)
    against = Table(columns=["edge"], cells=["strict_pass@1"], against="base")
    spec = found.spec.model_copy(update={"tables": {"main": TABLE, "plain": against}})
    asked = explain.match_cell(spec, STAGES, "main gain", "rl - base", "edge/newly solved@4", None)
    assert asked == explain.CellName("main_gain", "rl", "base", "edge", "newly_solved@4")
    value, notes = explain.value(spec, "r", tmp_path, asked)
    assert (value, notes) == (tables.gain_grid(found, TABLE).cells["rl − base", "edge", "newly_solved@4"].estimate, [])
    asked = explain.match_cell(spec, STAGES, "plain", "rl − base", "edge", None)
    assert asked == explain.CellName("plain", "rl", "base", "edge", "strict_pass@1")
    assert explain.value(spec, "r", tmp_path, asked)[0].per_seed == (0.125, 0.1875, 0.0625)
    with pytest.raises(UserError, match="no table 'plain differences'"):
        explain.match_cell(spec, STAGES, "plain differences", "rl - base", "edge", None)


def test_a_gain_without_counts_is_what_the_record_of_the_report_says(tmp_path: Path) -> None:
    found = results(tmp_path)
    shown = answers.record_metrics(answers.answer_study(found))
    study.write_record(tmp_path, "r", "report", {}, shown)
    for path in tmp_path.glob("evaluate/*/samples.parquet"):
        path.unlink()
    value, notes = explain.value(found.spec, "r", tmp_path, explain.CellName("main_gain", "rl", "base", "edge", "capability"))
    assert (value.value, value.seeds) == (0.0625, ())
    assert len(notes) == 4


def test_a_gain_that_names_no_k_gets_the_most_that_its_arms_allow(tmp_path: Path) -> None:
    rows = results(tmp_path).spec.arms
    free = TABLE.model_copy(update={"gain": Gain(against="base")})
    made = tables_with_k({"free": free, "fixed": TABLE}, rows, {"b": 64, "r0": 32, "r1": 128, "r2": 128}.__getitem__)
    assert made["free"].gain == Gain(against="base", k=32)
    assert made["fixed"] is TABLE
