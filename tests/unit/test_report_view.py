"""What the page shows beyond the numbers: reuse, budgets, cost, and what stands behind a cell."""

import re
from pathlib import Path

import browser
import pytest
import report_study as study

from interplay.core import artifact
from interplay.core.metrics import clock, quantity
from interplay.report.display_spec import Table
from interplay.report.spec import ReportSpec
from interplay.report.stats import budget, provenance
from interplay.report.stats.estimate import Estimate
from interplay.report.stats.frame import read_results
from interplay.report.stats.provenance import Provenance
from interplay.report.write import answers, headline, page, tables

SFT = {"tokens": 1000, "batch_tokens": 100}
N = 50
"""Parameters of the model."""


@pytest.fixture
def laid(tmp_path: Path) -> tuple[ReportSpec, dict[str, Path]]:
    """`base`, and `rl` on it at two seeds; corpus and problem set are known by the records alone."""
    study.write_problems(tmp_path, "test", [2, 4], ["a", "b"])
    study.write_record(tmp_path, "text", "corpus", {"sequence_length": 64}, {}, {"data.0": "test"})
    base = study.write_record(tmp_path, "m", "pretrain", SFT, {"tokens": 1010, "parameters": N}, {"corpus": "text"})
    inputs = {"m": base, "b": study.write_evaluation(tmp_path, "b", {2: [4], 4: [1]})}
    arms = [study.arm("base", seed, ["base:pretrain:m"], "b") for seed in (0, 1)]
    for seed in (0, 1):
        metrics = {"completions": 96, "completion_tokens": 900 + 100 * seed, "prompt_tokens": 400}
        inputs[f"m{seed}"] = study.write_record(tmp_path, f"m{seed}", "rl", study.RL, metrics, {"init": "m"})
        inputs[f"r{seed}"] = study.write_evaluation(tmp_path, f"r{seed}", {2: [4], 4: [2 + seed]}, model=f"m{seed}")
        arms.append(study.arm("rl", seed, ["base:pretrain:m", f"rl:rl:m{seed}"], f"r{seed}", control="base"))
    telemetry(
        base, seconds_wall=7200.0, seconds_cpu=3600.0, peak_memory_mb=512.0, tokens_per_second=100.0, attempts=1, host="alpha"
    )
    telemetry(inputs["m0"], seconds_wall=60.0, attempts=3, peak_memory_mb=2048.0, completion_tokens_per_second=50.0, host="beta")
    return study.spec(arms, tables={"main": {"columns": ["edge"], "cells": ["strict_pass@1"]}}), inputs


def telemetry(out: Path, **values: float | str) -> None:
    artifact.write_json(out / "telemetry.json", values)


def look(laid: tuple[ReportSpec, dict[str, Path]]) -> Provenance:
    return provenance.of_inputs(*laid)


def test_what_stands_behind_a_report_reaches_down_to_the_data_with_dependencies_first(laid: tuple) -> None:
    digests = list(look(laid).stages)
    assert set(digests) == {"test", "text", "m", "m0", "m1", "b", "r0", "r1"}
    assert digests.index("test") < digests.index("text") < digests.index("m") < digests.index("m0") < digests.index("r0")


def test_reuse_counts_each_stage_once_for_every_arm_and_seed_that_rests_on_it(laid: tuple) -> None:
    # base: test, text, m, b at 2 seeds; rl: test, text, m, m<seed>, r<seed> at 2 seeds.
    assert provenance.stage_reuse(laid[0], look(laid)) == (18, 8)


def test_seeds_of_a_stage_are_one_entry_and_name_their_seeds(laid: tuple) -> None:
    found = {(entry.kind, entry.name): entry for entry in provenance.stage_entries(laid[0], look(laid))}
    assert [(m.digest, m.seeds) for m in found["rl", "rl"].members] == [("m0", "seed 0"), ("m1", "seed 1")]
    assert [(m.digest, m.seeds) for m in found["pretrain", "base"].members] == [("m", "seeds 0, 1")]
    assert found["rl", "rl"].members[0].attempts == "3 attempts"
    assert found["rl", "rl"].arms == ["rl"]
    assert found["corpus", "corpus"].arms == ["base", "rl"]


def test_budgets_of_an_arm_are_sums_over_its_path_and_means_over_its_seeds(laid: tuple) -> None:
    base, rl = budget.arm_costs(laid[0], look(laid))
    assert (base["paper"], base["planned"], base["realised"]) == ("1,000", ["1,000", "0", "300,000"], ["1,010", "0", "303,000"])
    # 3 steps x 8 prompts x 4 samples = 96 completions of at most 16 tokens; 5/3 x 96 x 16 = 2,560.
    assert rl["paper"] == quantity(1000 + 2560)
    assert rl["planned"] == [quantity(1000 + 1536), "96", quantity(N * (6 * 2536 + 2 * 1536))]
    # 950 sampled in the mean, and 400 / 4 tokens of prompts, which pass once for a group.
    assert rl["realised"] == [quantity(1010 + 1050), "96", quantity(N * (6 * 2060 + 2 * 1050))]


def test_the_realised_budget_of_an_arm_that_is_not_finished_is_not_shown(laid: tuple) -> None:
    spec, inputs = laid
    for seed in (0, 1):
        (inputs[f"m{seed}"] / "stage.json").write_text(
            (inputs[f"m{seed}"] / "record.json").read_text().replace('"metrics"', '"was"')
        )
        (inputs[f"m{seed}"] / "record.json").unlink()
    row = budget.arm_costs(spec, look(laid))[1]
    assert row["realised"] == ["–", "–", "–"]
    assert row["planned"][0] == "2,536"


def test_cost_sums_what_is_recorded_and_says_what_is_not(laid: tuple) -> None:
    rows = {row["kind"]: row for row in provenance.stage_costs(look(laid))}
    assert (rows["pretrain"]["wall"], rows["pretrain"]["cpu"], rows["pretrain"]["memory"]) == ("2.00 h", "60.0 min", "0.50 GiB")
    assert rows["pretrain"]["rate"] == "100 tokens/s trained on"
    assert (rows["rl"]["wall"], rows["rl"]["attempts"]) == ("60 s (1 of 2 stages)", "3 (1 of 2 stages)")
    assert rows["corpus"]["wall"] == rows["pretrain"]["gpu"] == provenance.ABSENT
    assert rows["all"]["wall"] == "2.02 h (2 of 8 stages)"
    assert rows["all"]["memory"] == "2.00 GiB (2 of 8 stages)"
    assert provenance.where_and_when(look(laid)) == "on alpha, beta"


def test_gpu_time_is_wall_time_for_each_gpu_reserved(laid: tuple) -> None:
    spec, inputs = laid
    for digest, gpus in (("m", 4), ("m0", 0), ("m1", 0)):
        artifact.write_json(inputs[digest] / "stage.json", {"run": {"gpus": gpus}})
    rows = {row["kind"]: row for row in provenance.stage_costs(provenance.of_inputs(spec, inputs))}
    assert (rows["pretrain"]["gpu"], rows["rl"]["gpu"]) == ("8.00 h", "none")


def test_a_cell_leads_to_each_seeds_evaluation_and_from_there_to_the_data(laid: tuple) -> None:
    spec, inputs = laid
    grids = {
        "main_differences": tables.difference_grid(read_results(spec, inputs), Table(columns=["edge"], cells=["strict_pass@1"]))
    }
    of = look(laid)
    data = page.provenance_data(spec, grids, of, provenance.entry_anchors(provenance.stage_entries(spec, of)))
    cell = data["cells"]["main_differences/rl − base/edge/strict_pass@1"]
    assert cell["seeds"] == [(0, "+25.0", ["r0", "b"]), (1, "+50.0", ["r1", "b"])]
    assert (cell["n"], cell["over"]) == ("1 prompts, 4 samples each", "this base, any prompt (2 runs, 1 prompts)")
    assert cell["command"] == "interplay explain toy main_differences 'rl - base' edge/strict_pass@1 --scale smoke"
    lines = [
        (0, "evaluation", "r1"),
        (1, "model", "m1"),
        (2, "init", "m"),
        (3, "corpus", "text"),
        (4, "data.0", "test"),
        (1, "data", "test"),
    ]
    assert data["chains"]["r1"] == lines
    assert data["stages"]["m1"] == ("rl", "", "#stage-m0", "")


def test_a_kept_checkpoint_is_named_by_its_step(laid: tuple, tmp_path: Path) -> None:
    study.write_evaluation(tmp_path, "kept", {2: [1]}, model="m@300")
    assert page.provenance_chain("kept", provenance.of_inputs(laid[0], {"kept": tmp_path / "evaluate/kept"}))[1] == (
        1,
        "model at step 300",
        "m",
    )


def test_every_cell_of_the_page_has_its_data_and_every_link_its_place(laid: tuple, tmp_path: Path) -> None:
    spec, inputs = laid
    made = answers.answer_study(read_results(spec, inputs))
    written = page.write_page(made, provenance.of_inputs(spec, inputs), tmp_path / "out").read_text()
    data = browser.read_provenance(written)
    assert sorted(re.findall(r'data-cell="([^"]*)"', written)) == sorted(data["cells"])
    anchors = set(re.findall(r'id="([^"]*)"', written))
    assert set(re.findall(r'href="#([^"]*)"', written)) <= anchors
    assert {anchor.removeprefix("#") for _, _, anchor, _ in data["stages"].values()} <= anchors


def test_data_in_the_page_cannot_end_its_script(laid: tuple, tmp_path: Path) -> None:
    spec = laid[0].model_copy(update={"study": "</script><script>alert(1)//"})
    written = page.write_page(
        answers.answer_study(read_results(spec, laid[1])), provenance.of_inputs(spec, laid[1]), tmp_path / "out"
    ).read_text()
    assert written.count("<script") == written.count("</script") == 2


@pytest.mark.parametrize(
    ("low", "high", "claimed", "signed", "inside"),
    [(0.2, 0.3, (0.1, 0.5), False, True), (0.2, 0.6, (0.1, 0.5), False, False), (-0.01, 0.02, (-0.05, float("inf")), True, True)],
)
def test_a_claims_picture_shows_the_interval_inside_the_claimed_range_or_not(
    low: float, high: float, claimed: tuple[float, float], signed: bool, inside: bool
) -> None:
    scale = (-0.1, 0.1) if signed else (0.0, 1.0)
    drawn = headline.forest_svg(Estimate(value=(low + high) / 2, low=low, high=high, seeds=(0,)), claimed, scale, signed)
    box = re.search(r'class="claimed" x="([\d.]+)" y="1" width="([\d.]+)"', drawn)
    line = re.search(r'class="interval" x1="([\d.]+)" x2="([\d.]+)"', drawn)
    left, right = float(box[1]), float(box[1]) + float(box[2])
    assert (left <= float(line[1]) and float(line[2]) <= right + 0.1) == inside


def test_numbers_read_as_people_write_them() -> None:
    assert [clock(seconds) for seconds in (0.2, 42, 89.4, 200, 7200)] == ["under 1 s", "42 s", "89 s", "3.3 min", "2.00 h"]
    assert [quantity(n) for n in (0, 1536, 3.14159, 3_000_258, 26.7e12)] == ["0", "1,536", "3.14", "3.00 M", "26.7 T"]
