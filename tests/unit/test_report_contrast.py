"""Pairwise comparisons: what is chosen, what is adjusted, what is noise, and what may be called better."""

import csv
import io
import itertools
import re
from pathlib import Path

import browser
import numpy as np
import pytest
import report_study as study
from hypothesis import given, strategies as st
from scipy import stats as oracle

from interplay.report.inspect import explain as cells
from interplay.report.spec import Contender, Lineup, ReportStage, Try
from interplay.report.stats import contrast, frame, intervals, provenance
from interplay.report.stats.frame import Results
from interplay.report.write import answers, latex, page, text

TUNE = {"axis": "rl.optimizer.learning_rate", "band": "id"}
N = 16
"""Samples per prompt."""


def results(root: Path, arms: dict[str, list[tuple[int, int]]], tune: bool = True, **contrast_keys: object) -> Results:
    """Arms with (right of 16 on the tuning band, right of 16 on the edge) at each seed; each band has two prompts. `grpo_again`
    repeats grpo's first try; a name `x=2` is try 2 of x."""
    inputs, rows = {}, []
    for name, seeds in arms.items():
        for seed, (easy, hard) in enumerate(seeds):
            digest = f"{name}{seed}"
            inputs[digest] = study.write_evaluation(root, digest, {2: [easy, easy], 4: [hard, hard]}, n=N, model=f"m{digest}")
            rows.append(study.arm(name, seed, [f"rl:rl:m{digest}"], digest))
    groups: dict[str, list[Try]] = {}
    for name in arms:
        group, _, value = name.partition("=")
        if not name.endswith("again"):
            groups.setdefault(group, []).append(Try(arm=name, value=value))
    twins = {name: name.removesuffix("_again") for name in arms if name.endswith("again")}
    lineup = Lineup(against="grpo", contenders=[Contender(name=g, tries=t) for g, t in groups.items()], twins=twins)
    asked = {"against": "grpo", "noise": list(twins), **({"tune": TUNE} if tune else {}), **contrast_keys}
    tables = {"fight": {"columns": ["edge"], "cells": ["strict_pass@1"], "contrast": asked}}
    return frame.read_results(study.spec(rows, tables=tables, lineups={"fight": lineup}), inputs)


EDGES = [4, 5, 6]
"""Of grpo on the edge at three seeds."""


def seeds(edge: list[int], easy: int = 8) -> list[tuple[int, int]]:
    return [(easy, right) for right in edge]


def row(made: contrast.Comparison, name: str) -> contrast.ComparisonRow:
    return next(row for row in made.blocks[0].rows if row.chosen.name == name)


# --- arithmetic ---


def test_holm_adjusts_the_textbook_example() -> None:
    assert intervals.holm_adjusted(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p: list[float]) -> None:
    """A hypothesis is rejected at a level when every set of hypotheses that holds it is, by Bonferroni."""
    sets = [s for size in range(1, len(p) + 1) for s in itertools.combinations(range(len(p)), size)]
    closed = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in sets if i in s) for i in range(len(p))]
    assert intervals.holm_adjusted(np.array(p)) == pytest.approx(closed)


# --- what is chosen ---


def test_the_best_try_on_the_tuning_band_stands_for_its_arm_and_not_the_best_on_the_edge(tmp_path: Path) -> None:
    arms = {
        "grpo=1": seeds(EDGES, easy=9), "grpo=2": seeds([9, 9, 9], easy=8),
        "pcl=1": seeds([16, 16, 16], easy=2), "pcl=2": seeds([7, 8, 9], easy=3), "grpo=1_again": seeds(EDGES),
    }  # fmt: skip
    made = contrast.compare_arms(results(tmp_path, arms), "fight")
    assert {r.chosen.name: (r.chosen.arm, r.chosen.value) for r in made.blocks[0].rows} == {
        "grpo": ("grpo=1", "1"),
        "pcl": ("pcl=2", "2"),
    }
    assert row(made, "pcl").chosen.tuning == pytest.approx((2 / 16, 3 / 16))
    assert row(made, "pcl").gap.value == pytest.approx(3 / 16)


def test_an_arm_with_a_try_missing_is_not_judged(tmp_path: Path) -> None:
    arms = {"grpo": seeds(EDGES), "pcl=1": seeds(EDGES), "pcl=2": seeds(EDGES), "grpo_again": seeds(EDGES)}
    found = results(tmp_path, arms)
    prompts = {digest: table for digest, table in found.prompts.items() if digest != "pcl=21"}
    entry = row(contrast.compare_arms(found._replace(prompts=prompts), "fight"), "pcl")
    assert (entry.verdict, entry.chosen.arm) == ("missing", "")
    assert any("pcl=21" in reason for reason in entry.estimate.missing)


# --- verdicts ---


def test_differences_pairs_noise_and_adjusted_p_are_those_worked_by_hand(tmp_path: Path) -> None:
    arms = {"grpo": seeds([4, 5, 6]), "a": seeds([10, 11, 13]), "b": seeds([5, 5, 6]), "grpo_again": seeds([5, 5, 5])}
    made = contrast.compare_arms(results(tmp_path, arms, tune=False), "fight")
    a, b, floor = row(made, "a"), row(made, "b"), made.blocks[0].floor
    assert a.gap.per_seed == pytest.approx((6 / 16, 6 / 16, 7 / 16))
    p = [oracle.ttest_rel(x, [4, 5, 6]).pvalue for x in ([10, 11, 13], [5, 5, 6])]
    assert (a.p, b.p) == pytest.approx(p)
    assert (a.adjusted, b.adjusted) == pytest.approx((2 * p[0], max(2 * p[0], p[1])))
    assert made.tests == 2
    # Identical runs: +1, 0, -1 of 16: mean 0; within pairs the variances are 1/2, 0, 1/2 of 16ths squared.
    assert (floor.arm, floor.twin) == ("grpo_again", "grpo")
    assert floor.size == pytest.approx(0, abs=1e-12)
    assert (floor.deviation, floor.runs) == (pytest.approx(np.sqrt(1 / 3) / 16), 6)
    assert (a.verdict, b.verdict) == ("better", "no information")


def test_a_difference_within_the_noise_floor_is_a_tie_however_small_its_p(tmp_path: Path) -> None:
    arms = {"grpo": seeds([4, 5, 6]), "a": seeds([6, 7, 9]), "grpo_again": seeds([8, 8, 9])}
    entry = row(contrast.compare_arms(results(tmp_path, arms, tune=False), "fight"), "a")
    assert entry.adjusted < 0.05
    assert entry.verdict == "no information"


def test_runs_of_one_base_are_better_or_worse_here_alone(tmp_path: Path) -> None:
    arms = {"grpo": seeds([10, 11, 12]), "a": seeds([4, 5, 7]), "b": seeds([15, 16, 16]), "grpo_again": seeds([10, 11, 13])}
    found = results(tmp_path, arms, tune=False)
    shared = [
        item.model_copy(update={"path": [ReportStage(name="base", kind="pretrain", digest="b")]}) for item in found.spec.arms
    ]
    made = contrast.compare_arms(found._replace(spec=found.spec.model_copy(update={"arms": shared})), "fight")
    assert [row(made, name).verdict for name in "ab"] == ["worse here", "better here"]
    assert any("for this base alone" in note for note in text.contrast_notes(made))


def test_a_worse_arm_is_called_worse(tmp_path: Path) -> None:
    arms = {"grpo": seeds([10, 11, 12]), "a": seeds([4, 5, 7]), "grpo_again": seeds([10, 11, 13])}
    assert row(contrast.compare_arms(results(tmp_path, arms, tune=False), "fight"), "a").verdict == "worse"


def test_many_comparisons_make_ties_of_what_one_alone_would_show(tmp_path: Path) -> None:
    lone = {"grpo": seeds([4, 5, 6]), "a": seeds([7, 9, 10]), "grpo_again": seeds([4, 5, 7])}
    assert row(contrast.compare_arms(results(tmp_path / "1", lone, tune=False), "fight"), "a").verdict == "better"
    many = {**lone, **{f"x{i}": seeds([4, 6, 5]) for i in range(9)}}
    made = contrast.compare_arms(results(tmp_path / "2", many, tune=False), "fight")
    assert (made.tests, row(made, "a").verdict) == (10, "no information")
    plain = contrast.compare_arms(results(tmp_path / "3", many, tune=False, correction="none"), "fight")
    assert row(plain, "a").verdict == "better"


def test_the_floor_is_the_widest_of_several_identical_runs(tmp_path: Path) -> None:
    arms = {"grpo": seeds([4, 4]), "a": seeds([9, 9]), "grpo_again": seeds([5, 6])}
    found = results(tmp_path, arms, tune=False)
    lineup = found.spec.lineups["fight"].model_copy(update={"twins": {"grpo_again": "grpo", "a": "grpo"}})
    spec = found.spec.model_copy(update={"lineups": {"fight": lineup}})
    floor = contrast.compare_arms(found._replace(spec=spec), "fight").blocks[0].floor
    assert (floor.arm, floor.size) == ("a", pytest.approx(5 / 16))


def test_without_identical_runs_there_is_no_verdict(tmp_path: Path) -> None:
    arms = {"grpo": seeds([4, 5, 6]), "a": seeds([10, 11, 13]), "grpo_again": seeds([5, 5, 5])}
    found = results(tmp_path, arms, tune=False)
    prompts = {digest: table for digest, table in found.prompts.items() if "again" not in digest}
    made = contrast.compare_arms(found._replace(prompts=prompts), "fight")
    assert row(made, "a").verdict == "missing"
    assert "No noise floor: evaluation grpo_again0 of grpo_again" in text.contrast_caption(made, made.blocks[0])


def test_one_seed_is_judged_over_prompts_and_says_so(tmp_path: Path) -> None:
    arms = {"grpo": seeds([4]), "a": seeds([12]), "grpo_again": seeds([5])}
    made = contrast.compare_arms(results(tmp_path, arms, tune=False), "fight")
    assert "prompts" in row(made, "a").gap.over
    assert row(made, "a").p == pytest.approx(2 * 1.5**-2), "two prompts that both differ by a half"
    assert any(note.startswith("One seed") for note in text.contrast_notes(made))


# --- what is shown ---


@pytest.fixture
def answer(tmp_path: Path) -> answers.Answer:
    arms = {
        "grpo=1": seeds([4, 5, 6], easy=9), "grpo=2": seeds([9, 9, 9]),
        "pcl=1": seeds([10, 11, 13], easy=9), "pcl=2": seeds([4, 4, 4]),
        "d3s=1": seeds([5, 5, 6], easy=9), "d3s=2": seeds([4, 4, 4]), "grpo=1_again": seeds([5, 5, 7]),
    }  # fmt: skip
    return answers.answer_study(results(tmp_path / "results", arms))


def test_the_csv_holds_every_number_of_a_row(answer: answers.Answer) -> None:
    lines = list(csv.DictReader(io.StringIO(text.contrast_csv(answer.contrasts["fight_contrast"]))))
    line = next(line for line in lines if line["name"] == "pcl")
    assert (line["arm"], line["chosen"], line["against"], line["verdict"]) == ("pcl=1", "1", "grpo=1", "better")
    assert (line["floor_arm"], float(line["floor"])) == ("grpo=1_again", pytest.approx(2 / 48))
    assert (line["tuning"], line["tests"], line["correction"]) == ("0.5625;0.5", "2", "holm")
    assert float(line["p_adjusted"]) == pytest.approx(2 * float(line["p"]))
    assert next(line for line in lines if line["name"] == "grpo")["verdict"] == contrast.COMPARED


def test_markdown_and_latex_call_a_tie_a_tie_and_name_the_tuning_band(answer: answers.Answer) -> None:
    made = answer.contrasts["fight_contrast"]
    written = text.contrast_markdown(made, "title")
    assert "learning rate (best on id)" in written
    assert re.search(r"^\| d3s \| 1 \|.*\| no information \|$", written, re.M)
    assert re.search(r"^\| pcl \| 1 \|.*\| better \|$", written, re.M)
    assert "Noise floor 4.2: grpo=1_again − grpo=1" in written
    assert re.search(r"\| \+39\.6<br>\[\+3\d\.\d, \+4\d\.\d\]<br>\+37\.5 · \+37\.5 · \+43\.8 \|", written), "one unit throughout"
    tex = latex.table_latex(latex.contrast_float("name", made), latex.REPORT).partition(latex.MACROS)[2]
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 1
    rows = tex.partition(r"\midrule")[2]
    assert len({line.count("&") for line in rows.splitlines() if line.endswith(r"\\")}) == 1


def test_the_record_and_the_files_hold_the_contrast(answer: answers.Answer, tmp_path: Path) -> None:
    answers.write_answers(answer, tmp_path / "out")
    assert {path.suffix for path in (tmp_path / "out/tables").glob("fight_contrast.*")} == {".csv", ".md", ".tex"}
    found = answers.record_metrics(answer)["contrasts"]["fight_contrast"]["pcl/edge/strict_pass@1"]
    assert (found["verdict"], found["arm"]) == ("better", "pcl=1")
    assert found["difference"][0] == pytest.approx(19 / 48, abs=1e-6)


def test_the_page_shows_verdicts_and_every_number_leads_to_its_data(answer: answers.Answer) -> None:
    found = answer.results
    written = page.render_page(answer, provenance.of_inputs(found.spec, found.folders), [])
    assert '<span class="chip yes">better</span>' in written
    assert '<span class="chip none">no information</span>' in written
    key = "fight_contrast/pcl=1 − grpo=1/edge/strict_pass@1"
    assert f'data-cell="{key}"' in written
    data = browser.read_provenance(written)
    assert sorted(re.findall(r'data-cell="([^"]*)"', written)) == sorted(data["cells"])
    assert data["cells"][key]["command"].startswith("interplay explain toy fight_contrast 'pcl=1 - grpo=1' edge/strict_pass@1")


def test_explain_finds_a_difference_of_a_contrast_whichever_tries_were_chosen(answer: answers.Answer) -> None:
    spec = answer.results.spec
    stages = {record["digest"]: record for record in answer.results.records.values()}
    stages["test"] = {"kind": "problems", "digest": "test", "spec": {"bands": study.BANDS}, "deps": {}}
    asked = cells.match_cell(spec, stages, "fight_contrast", "pcl=1 - grpo=1", "edge", None)
    assert asked == cells.CellName("fight_contrast", "pcl=1", "grpo=1", "edge", "strict_pass@1")
