"""The score as a metric beside the pass rates, its baseline, and bands in an order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import report_study as study

from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.evaluate import scores
from interplay.report.claim_spec import Test as Asserted
from interplay.report.display_spec import Figure, Table
from interplay.report.draw import figures
from interplay.report.stats import estimate, frame
from interplay.report.stats.frame import Results
from interplay.report.write import latex, tables, text
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.verdict import Row

TABLE = Table(columns=["id", "edge"], cells=["score", "strict_pass@1"])


def results(root: Path, baseline: float | None = None, blocks: bool = False) -> Results:
    """One arm at two seeds; samples that are not right score a quarter."""
    inputs, arms = {}, []
    for seed, rights in enumerate(([4, 0], [4, 4])):
        inputs[f"e{seed}"] = study.write_evaluation(root, f"e{seed}", {2: [2], 4: rights}, partly=0.25, model=f"m{seed}")
        arms.append(study.arm("rl", seed, [f"rl:rl:m{seed}"], f"e{seed}"))
    more = {}
    if blocks:
        inputs["more"] = study.write_evaluation(root, "more", {2: [0], 4: [0, 0]}, partly=0.5, model="m0")
        more = {"blocks": {"e0": ["more"]}}
    found = frame.read_results(study.spec(arms, **more), inputs)
    if baseline is not None:
        for digest in ("e0", "e1"):
            found.records[digest]["metrics"] = {"band": {"edge": {"baseline_score": baseline, "prior_pass@1": 0.05}}}
    return found


def test_a_score_is_the_mean_over_samples_with_its_interval(tmp_path: Path) -> None:
    found = estimate.value(results(tmp_path), "rl", "edge", "score")
    assert found.per_seed == pytest.approx(((1 + 0.25) / 2, 1.0))
    assert found.over == "any base, any prompt (2 bases, 2 prompts)"
    assert estimate.value(results(tmp_path / "b"), "rl", "id", "score").value == pytest.approx(0.625)


def test_blocks_of_samples_are_one_mean(tmp_path: Path) -> None:
    read = results(tmp_path, blocks=True)
    assert read.prompts["e0"]["score"].tolist() == pytest.approx([2.5 + 2, 4 + 2, 1 + 2])
    assert estimate.value(read, "rl", "edge", "score").per_seed[0] == pytest.approx((6 + 3) / 16)


def test_counts_per_prompt_hold_the_sum_of_scores_whichever_file_they_are_read_from(tmp_path: Path) -> None:
    out = study.write_evaluation(tmp_path, "a", {4: [1, 3]}, partly=0.5)
    counted = frame.count_samples(out)
    assert counted["score"].tolist() == [1 + 1.5, 3 + 0.5]
    counted.reset_index().to_parquet(out / "prompts.parquet")
    pd.testing.assert_frame_equal(frame.count_samples(out), counted)


def test_a_score_has_no_answer_only_twin_and_stands_last() -> None:
    assert tables.side_by_side(["score", "strict_pass@1"]) == ["strict_pass@1", "answer_pass@1", "score"]
    assert tables.side_by_side(["score"]) == ["score"]


def test_the_trivial_policy_stands_under_the_score_and_the_answer_prior_under_the_answers(tmp_path: Path) -> None:
    grid = tables.value_grid(results(tmp_path, baseline=0.4), TABLE)
    assert grid.prior == {("edge", "answer_pass@1"): 0.05, ("edge", "score"): 0.4}
    written = text.as_markdown(grid, "title")
    assert "| answer prior | – | – | – | – | 5.0 | – |" in written
    assert "| trivial policy | – | – | – | – | – | 40.0 |" in written
    assert any(note.startswith("Trivial policy") for note in text.grid_notes(grid))
    assert "trivial policy,,edge,score,0.4," in text.as_csv(grid)
    assert latex.table_latex(latex.grid_float("name", grid), latex.REPORT).count(r"trivial policy &") == 1


def test_a_table_of_scores_alone_says_nothing_of_answers(tmp_path: Path) -> None:
    grid = tables.value_grid(results(tmp_path), Table(columns=["edge"], cells=["score"]))
    assert grid.prior == {}
    assert not any("Answer" in note for note in text.grid_notes(grid))


@pytest.mark.parametrize("metric", ["score_pass@1", "score@4", "score_pass"])
def test_there_is_no_pass_at_k_of_a_score(metric: str) -> None:
    with pytest.raises(UserError, match="there is one score for any number of samples; write score"):
        parse_model(Table, {"columns": ["edge"], "cells": [metric]}, KeyPlace("study.yaml"))


def test_a_claim_and_a_figure_over_ops_may_ask_for_the_score(tmp_path: Path) -> None:
    parse_model(Asserted, {"value": "score", "band": "edge", "arm": "rl", "within": [0, 0.9]}, KeyPlace("study.yaml"))
    assert figures.draw_figure(results(tmp_path), parse_model(Figure, {"x": "op", "y": "score"}, KeyPlace("study.yaml"))).svg


def test_a_score_against_the_step_is_that_of_the_training_log(tmp_path: Path) -> None:
    folder = study.write_record(tmp_path, "m0", "rl", study.RL, {})
    study.write_steps(folder, **{"score": [0.1, 0.4, 0.9], "drawn/hard": [0.0, 0.5, 1.0], "sampler/mean": [1, 2, 3]})
    arms = [study.arm("rl", 0, ["rl:rl:m0"], "e")]
    read = frame.read_results(study.spec(arms), {"m0": folder})
    for key in ("score", "drawn/hard", "sampler/mean"):
        drawn = figures.draw_figure(read, Figure(x="step", y=key))
        assert drawn.svg
        assert drawn.caption.startswith(key)


# --- bands in an order ---


def test_a_line_per_arm_passes_the_bands_in_the_order_that_is_given(tmp_path: Path) -> None:
    figure = Figure(x="band", y="strict_pass@1", bands=["edge", "id"])
    drawn = figures.draw_figure(results(tmp_path), figure)
    assert drawn.caption == "strict pass@1 by band. Whiskers: 95 % intervals, for any base, any prompt (rl)."
    svg = drawn.svg.decode()
    assert svg.index("<!-- edge -->") < svg.index("<!-- id -->")
    assert figures.draw_figure(results(tmp_path / "again"), figure).svg == drawn.svg


def test_an_order_of_bands_that_nobody_evaluated_says_why_it_is_not_drawn(tmp_path: Path) -> None:
    drawn = figures.draw_figure(results(tmp_path), Figure(x="band", y="score", bands=["1L", "2L"]))
    assert (drawn.svg, drawn.caption) == (b"", "Not drawn: no evaluation holds 1L, 2L.")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"x": "band", "y": "score"}, "list them from left to right"),
        ({"x": "band", "y": "score", "bands": ["id"]}, "two at least"),
        ({"x": "band", "y": "score", "bands": ["id", "id"]}, "each once"),
        ({"x": "op", "y": "score", "bands": ["id", "edge"]}, "bands belong to x: band, x: length and by: band"),
        ({"x": "length", "y": "score"}, "list them from left to right"),
        ({"x": "length", "y": "score", "bands": ["id", "edge"], "form": "heat"}, "not x: length"),
        ({"x": "band", "y": "reward", "bands": ["id", "edge"]}, "'reward' is not a metric"),
    ],
)
def test_an_order_of_bands_is_refused_that_cannot_be_drawn(given: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_model(Figure, given, KeyPlace("study.yaml"))


# --- what an evaluation records ---


def row(family: str, graph: str, mode: str) -> Row:
    plain = {"prompt": "", "solution": "", "answer": "1", "key": "", "origin": ""}
    return Row(set=0, index=0, band="b", op=1, mode=mode, graph=graph, family=family, **plain)


def samples(given: list[list[float]]) -> scores.Samples:
    shape = np.array(given).shape
    none, whole = np.zeros(shape, dtype=bool), np.ones(shape, dtype=int)
    return scores.Samples(none, none, np.array(given, dtype=np.float32), none, whole, np.full(shape, "value"))


def test_the_baseline_of_a_family_is_recorded_where_every_problem_has_one(monkeypatch: pytest.MonkeyPatch) -> None:

    families = {"with": replace(OP_DAG, loads=float, trivial_score=lambda score: score), "op_dag": OP_DAG}
    monkeypatch.setattr(scores, "judge_family", families.__getitem__)
    rows = [row("with", "0.25", "cited"), row("with", "0.75", "cited"), row("op_dag", "", "forward")]
    found = scores.summarise(rows, samples([[0.5, 1.0], [0.0, 0.5], [1.0, 1.0]]))
    assert found["mode"]["cited"]["baseline_score"] == 0.5
    assert found["mode"]["cited"]["score"] == 0.5
    assert "baseline_score" not in found["mode"]["forward"]
    assert "baseline_score" not in found["all"]
    assert found["all"]["score"] == pytest.approx(4 / 6)
