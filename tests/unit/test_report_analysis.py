"""Metrics beyond pass rates: likelihoods, hacked answers, error classes; tables against an arm; heat maps and stacked bars."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import report_study as study

from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.report.claim_spec import Claim
from interplay.report.display_spec import Figure, Table
from interplay.report.draw import figures, style
from interplay.report.stats import contrast, estimate, frame
from interplay.report.stats.frame import Results
from interplay.report.write import answers, tables, text

BASE = {2: [4, 3], 4: [1, 0, 2, 1]}
TUNED = {2: [4, 4], 4: [3, 2, 4, 0]}


def evaluation(root: Path, digest: str, counts: study.Counts, nll: list[float] | None, extra: int = 1) -> Path:
    """An evaluation with `prompts.parquet`: wrong samples are of class value, those with the right answer of class dependency."""
    out = study.write_evaluation(root, digest, counts, extra_answers=extra)
    prompts = frame.count_samples(out).reset_index()
    if nll is not None:
        wrong = prompts["n"] - prompts["answer"]
        prompts = prompts.assign(nll=nll, error_none=prompts["strict"], error_dependency=prompts["answer"] - prompts["strict"])
        prompts = prompts.assign(error_value=wrong) if wrong.any() else prompts
    prompts.to_parquet(out / "prompts.parquet")
    return out


def results(root: Path, tuned: list[list[float]] | None = None, **given: object) -> Results:
    inputs = {"b": evaluation(root, "b", BASE, [0.5, 0.7, 1.0, 1.2, 1.4, 1.6])}
    arms = [study.arm("base", seed, ["base:pretrain:m"], "b") for seed in range(3)]
    for seed in range(3):
        nll = [0.5, 0.5, 0.8, 1.0, 1.2, 1.2 + 0.1 * seed]
        inputs[f"r{seed}"] = evaluation(root, f"r{seed}", TUNED, nll)
        arms.append(study.arm("rl", seed, ["base:pretrain:m", f"rl:rl:m{seed}"], f"r{seed}"))
    return frame.read_results(study.spec(arms, **given), inputs)


def test_nll_is_told_in_nats_with_the_intervals_of_other_metrics(tmp_path: Path) -> None:
    found = results(tmp_path)
    base = estimate.value(found, "base", "edge", "nll")
    assert (base.value, base.over) == (pytest.approx(1.3), "this base, any prompt (1 run, 4 prompts)")
    gap = estimate.difference(found, "rl", "base", "edge", "nll")
    assert gap.per_seed == pytest.approx((-0.25, -0.225, -0.2))
    assert gap.low == pytest.approx(-0.28966, abs=1e-5), "no narrower than over the runs alone, -0.28710"
    grid = tables.value_grid(found, Table(columns=["edge"], cells=["nll", "strict_pass@1"], against="base"))
    assert text.cell_lines(grid.cells["rl − base", "edge", "nll"])[:3] == [
        "-0.225†",
        "[-0.290, -0.160]ᵇ",
        "-0.250 · -0.225 · -0.200",
    ]
    assert text.grid_notes(grid)[0].startswith("Percent, nll in nats per token, with the 95 % interval")
    assert grid.prior == {}


def test_a_mean_that_nothing_bounds_has_no_interval_where_all_prompts_agree(tmp_path: Path) -> None:
    inputs = {digest: evaluation(tmp_path, digest, {4: [1, 1]}, [1.0, 1.0]) for digest in "ab"}
    arms = [study.arm(name, 0, [f"{name}:pretrain:{name}"], digest) for name, digest in (("one", "a"), ("two", "b"))]
    gap = estimate.difference(frame.read_results(study.spec(arms), inputs), "one", "two", "edge", "nll")
    assert gap.value == 0
    assert np.isnan([gap.low, gap.high]).all()


def test_hacked_is_the_right_answers_whose_process_is_wrong(tmp_path: Path) -> None:
    found = results(tmp_path)
    # Of 4 samples on 4 prompts: strict 1, 0, 2, 1; right answers 2, 1, 3, 2.
    assert estimate.value(found, "base", "edge", "hacked").value == pytest.approx(4 / 16)
    answer, strict = (estimate.value(found, "base", "edge", f"{kind}_pass@1").value for kind in ("answer", "strict"))
    assert estimate.value(found, "base", "edge", "hacked").value == pytest.approx(answer - strict)
    share = estimate.value(found, "base", "edge", "hacked_of_right")
    assert share.value == pytest.approx(4 / 8)
    assert 0 <= share.low < 0.5 < share.high <= 1
    gap = estimate.difference(found, "rl", "base", "edge", "hacked_of_right")
    # RL: strict 3, 2, 4, 0, right 4, 3, 4, 1: 3 of 12.
    assert gap.value == pytest.approx(3 / 12 - 4 / 8)


def test_the_ratio_of_hacked_to_right_has_the_spread_of_redrawn_ratios(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    answer = draw.integers(0, 9, 300)
    prompts = pd.DataFrame({"n": 8, "answer": answer, "strict": draw.binomial(answer, 0.6)})
    scores = frame.prompt_scores(prompts, "hacked_of_right").to_numpy()
    hacked = (prompts["answer"] - prompts["strict"]).to_numpy()
    chosen = draw.integers(0, 300, (4000, 300))
    ratios = hacked[chosen].sum(1) / answer[chosen].sum(1)
    assert scores.mean() == pytest.approx(hacked.sum() / answer.sum())
    assert scores[chosen].mean(1).std() == pytest.approx(ratios.std(), rel=0.02)


def test_a_share_of_few_right_answers_is_no_surer_than_these_few(tmp_path: Path) -> None:
    inputs = {"b": evaluation(tmp_path, "b", {4: [4, *[0] * 30]}, [1.0] * 31, extra=0)}
    found = frame.read_results(study.spec([study.arm("base", 0, ["base:pretrain:m"], "b")]), inputs)
    share = estimate.value(found, "base", "edge", "hacked_of_right")
    assert (share.value, share.high) == (0.0, pytest.approx(0.975))
    none = {"n": evaluation(tmp_path, "n", {4: [0, 0]}, [1.0] * 2, extra=0)}
    empty = frame.read_results(study.spec([study.arm("base", 0, ["base:pretrain:m"], "n")]), none)
    assert estimate.value(empty, "base", "edge", "hacked_of_right").missing[0].endswith("has no right answer there")


def test_the_classes_of_errors_are_shares_that_sum_to_one_and_a_class_that_did_not_occur_is_0(tmp_path: Path) -> None:
    found = results(tmp_path)
    assert frame.error_classes(found) == ["none", "value", "dependency"]
    grid = tables.value_grid(found, Table(columns=["id", "edge"], cells=["error"]))
    assert grid.metrics == ["error:none", "error:value", "error:dependency"]
    shares = [grid.cells["base", "edge", metric].estimate.value for metric in grid.metrics]
    assert shares == pytest.approx([4 / 16, 8 / 16, 4 / 16])
    assert estimate.value(found, "rl", "edge", "error:parse").value == 0.0
    assert "| | id no error |" in text.as_markdown(grid, "title")


def test_blocks_add_their_classes_and_keep_the_likelihoods_of_the_first(tmp_path: Path) -> None:
    first, second = evaluation(tmp_path, "a", {4: [1, 0]}, [1.0, 2.0]), evaluation(tmp_path, "c", {4: [4, 2]}, [0.0, 0.0])
    later = pd.read_parquet(second / "prompts.parquet").drop(columns="nll")
    both = frame.merge_blocks([frame.count_samples(first), later.set_index("index")])
    assert both["nll"].tolist() == [1.0, 2.0]
    assert both[["error_none", "error_value", "error_dependency"]].sum(axis=1).tolist() == [8, 8]
    assert both["error_none"].tolist() == both["strict"].tolist() == [5, 2]


def test_what_an_evaluation_does_not_tell_is_missing_and_says_which_key_it_takes(tmp_path: Path) -> None:
    inputs = {"b": evaluation(tmp_path, "b", BASE, None)}
    found = frame.read_results(study.spec([study.arm("base", 0, ["base:pretrain:m"], "b")]), inputs)
    assert estimate.value(found, "base", "edge", "nll").missing == (
        "evaluation b of base at seed 0 scores no gold solutions (nll: true)",
    )
    assert "errors: true" in estimate.value(found, "base", "edge", "error:value").missing[0]


def test_a_table_against_an_arm_has_differences_alone(tmp_path: Path) -> None:
    table = Table(columns=["id"], cells=["strict_pass@1"], against="base")
    made = answers.answer_study(results(tmp_path, tables={"forgetting": table}))
    assert list(made.grids) == ["forgetting"]
    cell = made.grids["forgetting"].cells["rl − base", "id", "strict_pass@1"]
    assert (cell.against, cell.estimate.value) == ("base", pytest.approx(0.125))


def test_a_claim_about_a_difference_of_nll_is_judged_in_nats(tmp_path: Path) -> None:
    test = {"difference": "nll", "band": "edge", "arm": "rl", "against": "base", "at_most": -0.1}
    claim = Claim.model_validate({"says": "Gold is likelier", "test": test})
    assert contrast.judge_claim(results(tmp_path), claim).verdict == "indicated"


HEAT = Figure(form="heat", x="op", y="nll", against="base")
BARS = Figure(x="band", bands=["id", "edge"], y="error")


def test_a_heat_map_writes_the_number_of_each_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(tmp_path)
    monkeypatch.setitem(style.STYLE, "svg.fonttype", "none")
    drawn = figures.draw_figure(found, HEAT).svg.decode()
    assert "−0.100" in drawn
    assert "−0.225" in drawn
    assert ">nats per token<" in drawn
    values = figures.draw_figure(found, HEAT.model_copy(update={"against": None, "y": "strict_pass@1"})).svg.decode()
    assert ">25.0<" in values
    assert ">100.0<" in values
    assert figures.draw_figure(found, HEAT).png == figures.draw_figure(found, HEAT).png


def test_a_map_of_depths_by_lengths_has_a_row_for_each_band_of_one_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for band, right in (("short", {0: 4, 50: 3}), ("long", {0: 2, 100: 0})):
        for op, of in right.items():
            rows += [
                {
                    "index": len(rows) + at,
                    "band": band,
                    "op": op,
                    "mode": "needle",
                    "n": 4,
                    "strict": of,
                    "answer": of,
                    "score": of,
                }
                for at in range(2)
            ]
    for digest, given in (("a", rows), ("b", [{**row, "answer": 4} for row in rows])):
        out = study.write_record(tmp_path, digest, "evaluate", {"num_samples": 4}, {}, {"model": "m", "data": "test"})
        pd.DataFrame(given).to_parquet(out / "prompts.parquet")
    arms = [study.arm(name, 0, ["base:pretrain:m"], digest) for name, digest in (("base", "a"), ("rl", "b"))]
    found = frame.read_results(study.spec(arms), {one: tmp_path / "evaluate" / one for one in "ab"})
    monkeypatch.setitem(style.STYLE, "svg.fonttype", "none")
    given = {"form": "heat", "x": "depth", "by": "band", "y": "answer_pass@1", "bands": ["short", "long"], "arms": ["base"]}
    map_of_base = Figure.model_validate(given)
    shown = figures.draw_figure(found, map_of_base)
    drawn = shown.svg.decode()
    assert all(f">{cell}<" in drawn for cell in ("short", "long", "0", "50", "100", "75.0", "100.0", "50.0", "0.0"))
    assert ">depth of the needle (% of the context)<" in drawn
    assert "by band and depth" in shown.caption
    gaps = figures.draw_figure(found, map_of_base.model_copy(update={"arms": ["rl"], "against": "base"})).svg.decode()
    assert all(f">+{gap}<" in gaps for gap in ("25.0", "50.0", "100.0"))


def test_stacked_bars_name_the_classes_and_the_missing_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(style.STYLE, "svg.fonttype", "none")
    drawn = figures.draw_figure(results(tmp_path), BARS)
    assert all(f">{name}<" in drawn.svg.decode() for name in ("no error", "value", "dependency", "base", "rl", "id", "edge"))
    inputs = {"b": evaluation(tmp_path, "plain", BASE, None)}
    bare = figures.draw_figure(frame.read_results(study.spec([study.arm("base", 0, ["base:pretrain:m"], "b")]), inputs), BARS)
    assert bare.caption == "Not drawn: no evaluation that counts classes of errors is there."


@pytest.mark.parametrize(
    ("cls", "given", "says"),
    [
        (Table, {"columns": ["id"], "cells": ["nll@2"]}, "there is one nll for any number of samples; write nll"),
        (Table, {"columns": ["id"], "cells": ["error:dependancy"]}, "did you mean 'dependency'"),
        (Figure, {"x": "k", "y": "strict_pass", "form": "heat"}, "write x: op, x: band or a key"),
        (Figure, {"x": "depth", "y": "nll"}, "x: depth is the columns of a heat map"),
        (Figure, {"x": "depth", "by": "band", "y": "score", "form": "heat", "bands": ["id", "edge"]}, "of one arm"),
        (Figure, {"x": "depth", "by": "band", "y": "score", "form": "heat", "arms": ["rl"]}, "bands are missing"),
        (Figure, {"x": "op", "y": "nll", "against": "base"}, "against belongs to form: heat"),
        (Figure, {"x": "op", "y": "nll", "extrapolate": {}}, "extrapolate belongs to x: step"),
        (Figure, {"x": "op", "y": "error"}, "'error' is not a metric"),
        (Figure, {"x": "step", "y": "loss", "extrapolate": {"part": 1.0}}, "extrapolate.part"),
        (
            Claim,
            {"says": "x", "test": {"value": "nll", "band": "id", "arm": "a", "within": [0, 1]}},
            "claim a difference of nll",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(cls: type, given: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_model(cls, given, KeyPlace("study.yaml"))
