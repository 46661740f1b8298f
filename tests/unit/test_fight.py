"""Fights: one outcome, one variance for all arms, Dunnett's adjustment, a positive control, and ties that are shown."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import report_study as study
from scipy import stats as oracle
from test_arms import configs
from test_lineup import fight

from interplay.api import frames
from interplay.core.model import UserError
from interplay.report.display_spec import Tune
from interplay.report.spec import Contender, Lineup, Stopping, Try
from interplay.report.stats import contrast, estimate, frame, intervals, power, provenance, sequential
from interplay.report.stats.frame import Results
from interplay.report.write import answers, latex, page, text
from interplay.study import expand

__all__ = ["configs"]

N, PROMPTS = 16, 8
CONTROL = {"improves": {"arm": "grpo", "against": "base", "by": 0.1}}


def results(root: Path, arms: dict[str, list[int]], margin: float | None = None, one_base: bool = False) -> Results:
    """Arms with right of 16 on the edge at each base, or run of one base. All but base and grpo are contenders."""
    inputs, rows = {}, []
    for name, bases in arms.items():
        for seed, right in enumerate(bases):
            digest, trained = f"{name}{seed}", f"m{name}{seed}"
            inputs[digest] = study.write_evaluation(root, digest, {4: [right] * PROMPTS}, n=N, model=trained)
            rows.append(study.arm(name, seed, [f"base:pretrain:b{0 if one_base else seed}", f"rl:rl:{trained}"], digest))
    contenders = [Contender(name=name, tries=[Try(arm=name)]) for name in arms if name != "base"]
    asked = {"against": "grpo", "correction": "dunnett", "margin": margin, "requires": [CONTROL]}
    tables = {"fight": {"columns": ["edge"], "cells": ["strict_pass@1"], "contrast": asked}}
    lineups = {"fight": Lineup(against="grpo", contenders=contenders, twins={})}
    return frame.read_results(study.spec(rows, tables=tables, lineups=lineups), inputs)


def verdicts(found: Results) -> dict[str, str]:
    made = contrast.compare_arms(found, "fight")
    return {row.chosen.name: row.verdict for row in made.blocks[0].rows[1:]}


ARMS = {
    "base": [2, 3, 2, 4, 3, 2],
    "grpo": [7, 9, 8, 10, 9, 7],
    "like": [7, 9, 9, 10, 9, 7],
    "good": [10, 12, 11, 12, 12, 10],
    "poor": [5, 7, 7, 7, 7, 5],
}


# --- arithmetic ---


@pytest.mark.parametrize(
    ("contenders", "freedom", "table"), [(1, 10, 2.23), (2, 4, 3.31), (3, 12, 2.68), (4, 60, 2.51), (9, 20, 2.95)]
)
def test_quantiles_are_those_of_dunnetts_table_and_of_the_multivariate_t(contenders: int, freedom: int, table: float) -> None:
    found = intervals.t_quantile(float(freedom), contenders)
    assert found == pytest.approx(table, abs=0.006)
    shape = np.full((contenders, contenders), 0.5) + 0.5 * np.eye(contenders)
    inside = oracle.multivariate_t(shape=shape, df=freedom)
    ends = np.full(contenders, found)
    assert inside.cdf(ends, lower_limit=-ends, random_state=0) == pytest.approx(0.95, abs=5e-4)


@pytest.mark.parametrize("freedom", [2.0, 4.0, 40.0])
def test_at_the_level_of_an_early_look_a_quantile_is_between_students_and_bonferronis(freedom: float) -> None:
    for level in [sequential.spent(0.05, 3 / last, 2) for last in (12, 24, 30, 60, 200)]:
        student, bonferroni = oracle.t.isf(level / 2, freedom), oracle.t.isf(level / 6, freedom)
        assert student <= intervals.t_quantile(freedom, 3, level) <= bonferroni


@pytest.mark.parametrize("contenders", [5, 9, 30])
def test_a_quantile_of_an_early_look_is_found_for_a_contender_with_its_own_variance_over_three_bases(contenders: int) -> None:
    for level in (sequential.spent(0.05, 3 / 12, 2), 1e-5):
        student, bonferroni = oracle.t.isf(level / 2, 2.0), oracle.t.isf(level / 2 / contenders, 2.0)
        assert student < intervals.t_quantile(2.0, contenders, level) < bonferroni


def test_the_detectable_effect_is_that_of_a_test_at_the_level_of_the_interval() -> None:
    wide = intervals.Spread(0.0, 6, 80, 0.01, 0.001)
    for level in (0.05, 0.1, 0.003):
        at = wide._replace(level=level)
        assert at.power(at.detectable) == pytest.approx(0.8, abs=1e-3)


def test_adjusted_p_values_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    samples, control = [random.normal(size=5) + at for at in (0, 1.2, 2)], random.normal(size=5)
    known = oracle.dunnett(*samples, control=control, random_state=0)
    own = [intervals.largest_exceeds(abs(t), 16, 3) for t in known.statistic]
    assert own == pytest.approx(known.pvalue, abs=2e-4)


def test_the_pooled_variance_is_the_residual_of_a_layout_of_blocks() -> None:
    means = np.random.default_rng(1).normal(size=(4, 7))  # a control and three contenders on seven bases
    spreads = intervals.pooled_spreads((means[1:] - means[0])[:, :, None], 3)
    design = np.zeros((28, 11))
    for cell in range(28):
        design[cell, cell // 7] = design[cell, 4 + cell % 7] = 1
    fitted = design @ np.linalg.lstsq(design, means.ravel(), rcond=None)[0]
    residual = float(((means.ravel() - fitted) ** 2).sum()) / 18
    assert [of.error for of in spreads] == pytest.approx([np.sqrt(2 * residual / 7)] * 3)
    assert [of.freedom for of in spreads] == pytest.approx([18.0] * 3)


def test_one_contender_is_the_paired_comparison_of_claims() -> None:
    gaps = np.random.default_rng(2).normal(size=(6, 20))
    pooled, paired = intervals.pooled_spreads(gaps[None], 1)[0], intervals.crossed_spread(gaps)
    assert pooled == pytest.approx(paired)


def test_an_arm_that_varies_more_than_the_others_keeps_its_own_variance() -> None:
    random = np.random.default_rng(3)
    gaps = random.normal(size=(4, 12, 1)) * np.array([1, 1, 1, 20])[:, None, None]
    spreads = intervals.pooled_spreads(gaps, 4)
    assert [of.pooled for of in spreads] == [3, 3, 3, 1]
    assert spreads[3].between == pytest.approx(gaps[3].var(ddof=1) / 12)
    assert {of.family for of in spreads} == {4}


# --- verdicts ---


def test_contenders_are_better_worse_equivalent_or_without_information(tmp_path: Path) -> None:
    assert verdicts(results(tmp_path / "1", ARMS, margin=0.05)) == {"like": "equivalent", "good": "better", "poor": "worse"}
    assert verdicts(results(tmp_path / "2", ARMS)) == {"like": "no information", "good": "better", "poor": "worse"}
    here = {"like": "equivalent here", "good": "better here", "poor": "worse here"}
    assert verdicts(results(tmp_path / "3", ARMS, margin=0.05, one_base=True)) == here


def test_contenders_that_lack_different_bases_are_not_pooled_by_position(tmp_path: Path) -> None:
    """Of four bases `good` lacks the first and `poor` the last. Each has gains of three bases, which belong to others."""
    found = results(tmp_path, {"grpo": [2, 6, 10, 14], "good": [4, 9, 12, 16], "poor": [1, 5, 7, 13]})
    for seed, band in ((0, "own"), (3, "other")):
        found.records[f"c{seed}"] = {"metrics": {"bands": {}, "lacking": [band]}}
    trained = {"good": ["own"], "poor": ["other"]}
    arms = [
        row.model_copy(update={"calibration": f"c{row.seed}", "calibrated": trained.get(row.arm, [])}) for row in found.spec.arms
    ]
    found = found._replace(spec=found.spec.model_copy(update={"arms": arms}))
    made = estimate.fight_estimates(found, ["good", "poor"], "grpo", "edge", "strict_pass@1", 2, 0.05)
    assert (made["good"].seeds, made["poor"].seeds) == ((1, 2, 3), (0, 1, 2))
    for arm, gains in (("good", [3, 2, 2]), ("poor", [-1, -1, -3])):
        spread = made[arm].spread
        assert spread is not None
        assert (spread.pooled, spread.between) == (1, pytest.approx(np.var(np.array(gains) / N, ddof=1) / 3))


def test_what_here_means_is_said_where_a_verdict_has_that_word_alone(tmp_path: Path) -> None:
    for one_base in (False, True):
        found = results(tmp_path / str(one_base), ARMS, margin=0.05, one_base=one_base)
        notes = text.contrast_notes(contrast.compare_arms(found, "fight"))
        assert any("Here: fewer than three bases" in note for note in notes) == one_base


def test_what_holms_method_cannot_decide_with_three_bases_a_fight_can(tmp_path: Path) -> None:
    three = {name: bases[:3] for name, bases in ARMS.items()} | {f"x{i}": [7 + i % 2, 8 + i % 3, 8] for i in range(8)}
    three |= {"good": [10, 12, 12]}
    found = results(tmp_path, three)
    assert verdicts(found)["good"] == "better"
    alone = contrast.compare_arms(found, "fight").blocks[0].rows
    p = [oracle.ttest_rel(three[row.chosen.name], three["grpo"]).pvalue for row in alone[1:]]
    assert intervals.holm_adjusted(np.array(p))[1] > 0.05


def test_without_its_positive_control_nothing_of_a_fight_is_tested(tmp_path: Path) -> None:
    weak = {**ARMS, "base": [7, 8, 9, 8, 9, 7]}
    found = results(tmp_path, weak, margin=0.05)
    assert set(verdicts(found).values()) == {"not tested"}
    notes = text.contrast_notes(contrast.compare_arms(found, "fight"))
    assert any(
        note.startswith("Not tested: the positive control fails: strict_pass@1 of grpo on edge minus base") for note in notes
    )


def test_a_contender_that_did_not_act_is_not_tested_and_one_that_is_missing_counts(tmp_path: Path) -> None:
    found = results(tmp_path, ARMS)
    files = {**found.records["poor0"], "files": {"model/x.safetensors": [1, "same"]}}
    still = {f"b{seed}": files for seed in range(6)} | {f"mpoor{seed}": files for seed in range(6)}
    assert verdicts(found._replace(records={**found.records, **still})) == {
        "like": "no information",
        "good": "better",
        "poor": "not tested",
    }
    prompts = {digest: table for digest, table in found.prompts.items() if digest != "poor3"}
    made = contrast.compare_arms(found._replace(prompts=prompts), "fight")
    rows = {row.chosen.name: row for row in made.blocks[0].rows}
    assert (rows["poor"].verdict, made.tests) == ("missing", 3)
    assert rows["good"].gap.spread is not None
    assert (rows["good"].gap.spread.pooled, rows["good"].gap.spread.family) == (2, 3)


# --- what is shown ---


def test_page_tables_and_judge_show_a_fight(tmp_path: Path) -> None:
    found = results(tmp_path / "results", ARMS, margin=0.05)
    answer = answers.answer_study(found)
    written = page.render_page(answer, provenance.of_inputs(found.spec, found.folders), [])
    assert "differences to grpo, a fight" in written
    assert '<span class="chip yes">equivalent</span>' in written
    assert "p (Dunnett, of 3)" in written
    markdown = text.contrast_markdown(answer.contrasts["fight_contrast"], "title")
    assert re.search(r"^\| good .*\| better \|$", markdown, re.M)
    assert "pooled over 24 runs" in markdown
    assert "noise floor" not in markdown.lower()
    tex = latex.table_latex(latex.contrast_float("name", answer.contrasts["fight_contrast"]), latex.REPORT)
    assert "adjusted by Dunnett's method for 3 comparisons" in tex
    lines = list(frames.fight_lines(found))
    assert lines[0] == "fight fight: strict_pass@1 of edge against grpo, 3 contenders"
    assert re.match(r"  better +good: \+17\.7 \[\+\d+\.\d, \+\d+\.\d\] points for any base, any prompt", lines[2])


# --- refused ---

FIGHT = "against: grpo, among: [hard], correction: dunnett"
CHOSEN = ("grpo: {path: [base, rl]}", "hard: {path: [base, rl], set: {rl.data: {hard: 1.0}}}")
FOUND = "requires: [{improves: {arm: grpo, against: base, by: 0.1}}]"


def test_a_fight_is_planned_without_a_noise_floor(configs: Path) -> None:
    found = fight(configs, f"{FIGHT}, margin: 0.03, {FOUND}", *CHOSEN)
    assert ([one.name for one in found.contenders], found.twins) == (["grpo", "hard"], {})


@pytest.mark.parametrize(
    ("asked", "columns", "said"),
    [
        (FIGHT, "edge", "a fight requires a positive control that must be found"),
        (f"{FIGHT}, {FOUND}", "id, edge", "a fight has one primary outcome"),
        (f"{FIGHT}, {FOUND}, noise: again", "edge", "noise has no place in a fight"),
        (f"{FIGHT}, {FOUND.replace('against: base', 'against: bass')}", "edge", "requires.0.against = 'bass': no such arm"),
        (f"against: grpo, among: [hard], noise: again, {FOUND}", "edge", "requires belongs to a fight"),
        ("against: grpo, among: [hard]", "edge", "noise: name an arm that repeats another"),
    ],
)
def test_an_unfair_fight_is_refused_with_its_remedy(asked: str, columns: str, said: str, configs: Path) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        fight(configs, asked, *CHOSEN, columns=columns)


def test_a_plan_says_the_power_of_a_fight_with_the_pilots_deviations(tmp_path: Path) -> None:
    """Twelve bases find 10 points with power 0.8 and more, by the pilot of scale coffee; three do not, and the plan says what they
    need."""
    folder = tmp_path / "configs"
    shutil.copytree(Path(__file__).parents[2] / "configs", folder, ignore=shutil.ignore_patterns("plans", "schema"))
    written = (folder / "study/coffee_losses.yaml").read_text()
    fought = (
        "{against: grpo, among: [ppo, direct_advantage, four], correction: dunnett, margin: 0.03, requires: [{improves: {arm: "
    )
    fought += "grpo, against: base, by: 0.1}}]}"
    written = written.replace("{against: grpo, among: [ppo, direct_advantage, four], noise: third}", fought)
    written = written.replace(
        "seeds: {vary: [base, rl]}", "seeds: {values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], vary: [base, rl]}"
    )
    said = {}
    for name, text_of in (("twelve", written), ("three", written.replace("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]", "[0, 1, 2]"))):
        (folder / f"study/{name}.yaml").write_text(text_of)
        found = power.planned_power(expand.plan_study(folder, name, "coffee"), lambda digest: 60.0)
        said[name] = next(
            one for one in found if one.claim.says.startswith("fight losses: a contender that differs from grpo by 10 points")
        )
    assert (said["twelve"].power or 0) > 0.8
    assert (said["three"].power or 1) < 0.8
    assert "needs" in said["three"].said
    (folder / "study/less.yaml").write_text(written.replace("margin: 0.03,", "margin: 0.03, effect: 0.095,"))
    found = power.planned_power(expand.plan_study(folder, "less", "coffee"), lambda digest: None)
    assert next(one.said for one in found if one.claim.says.startswith("fight")).endswith(
        "power 0.79, below 0.8: needs 13 bases or 93 prompts in place of 80, exploratory"
    )


# --- tuned on a pilot ---


def test_the_bases_of_a_pilot_choose_and_are_judged_nowhere(tmp_path: Path) -> None:
    """On the study's own bases the other rate of `good` would be the best one."""
    names = {"good[lr=1]": [9, 9, 10, 9, 10, 9], "good[lr=2]": [13, 14, 12, 13, 14, 13]}
    found = results(tmp_path / "study", {**{name: ARMS[name] for name in ("base", "grpo")}, **names})
    chosen_by = results(tmp_path / "pilot", {"grpo": [8, 8], "good[lr=1]": [14, 13], "good[lr=2]": [5, 6]})
    table = found.spec.tables["fight"]
    tune = Tune(axis="rl.lr", band="op:4", bases=[0, 1])
    tables = {"fight": table.model_copy(update={"contrast": table.contrast.model_copy(update={"tune": tune})})}  # type: ignore[union-attr]
    tries = [Try(arm=name, value=name[-2]) for name in names]
    lineup = Lineup(
        against="grpo",
        contenders=[Contender(name="grpo", tries=[Try(arm="grpo", value="1")]), Contender(name="good", tries=tries)],
        twins={},
    )
    spec = found.spec.model_copy(update={"tables": tables, "lineups": {"fight": lineup}, "tuning": chosen_by.spec.arms})
    both = found._replace(spec=spec, prompts={**found.prompts, **{f"p{key}": item for key, item in chosen_by.prompts.items()}})
    rows = [row.model_copy(update={"evaluations": {"eval": f"p{row.evaluations['eval']}"}}) for row in spec.tuning]
    records = {**found.records, **{f"p{key}": item for key, item in chosen_by.records.items()}}
    both = both._replace(spec=spec.model_copy(update={"tuning": rows}), records=records)
    made = sequential.compare(both, "fight")
    row = made.blocks[0].rows[1]
    assert (row.chosen.arm, row.chosen.value) == ("good[lr=1]", "1")
    assert row.chosen.tuning == pytest.approx((27 / 32, 11 / 32))
    assert row.estimate.value == pytest.approx(56 / 96), "of the study's bases"
    assert any("over the bases 0, 1 of a pilot, which are judged nowhere" in note for note in text.contrast_notes(made))
    assert "Tries of rl.lr, chosen by strict_pass@1 on op:4: grpo 1 of 1 (50.0); good 1 of 1 (84.4), 2 (34.4)." in made.caveats


def test_a_fight_whose_contenders_had_unequal_tries_is_named(tmp_path: Path) -> None:
    arms = {**{name: ARMS[name] for name in ("base", "grpo")}, "good[lr=1]": ARMS["good"], "good[lr=2]": ARMS["poor"]}
    found = results(tmp_path, arms)
    whole = sequential.compare(found, "fight")
    assert not any(line.startswith("Confound") for line in whole.caveats), "all values are judged"
    one = Lineup(
        against="grpo", contenders=[Contender(name=name, tries=[Try(arm=name)]) for name in ("grpo", "good[lr=1]")], twins={}
    )
    picked = found._replace(spec=found.spec.model_copy(update={"lineups": {"fight": one}}))
    said = "Confound, tuned contender: unequal tries: grpo is one of 1, good[lr=1] is one of 2."
    assert said in sequential.compare(picked, "fight").caveats


# --- looks ---

LOOKS = [3, 6, 12]


def looked(root: Path, arms: dict[str, list[int]], margin: float | None = None) -> Results:
    found = results(root, arms, margin)
    return found._replace(spec=found.spec.model_copy(update={"stopping": Stopping(looks=LOOKS)}))


def test_alpha_is_spent_over_looks_and_contenders_together() -> None:
    """Fights of three contenders that are all like the control, on 3, 6 and 12 bases: at 5 % some look calls one different, at the
    levels that are spent no more than 5 %."""
    levels = np.diff([sequential.spent(0.05, look / 12, 2) for look in LOOKS], prepend=0.0)
    assert levels.sum() == pytest.approx(0.05)
    random, wrong = np.random.default_rng(0), {}
    arms = random.normal(size=(20_000, 4, 12))
    for name, at in (("plain", [0.05] * 3), ("spent", levels)):
        crossed = np.zeros(len(arms), bool)
        for look, level in zip(LOOKS, at, strict=True):
            here = arms[:, :, :look]
            gaps = (here[:, 1:] - here[:, :1]).mean(2)
            residual = here - here.mean(1, keepdims=True) - here.mean(2, keepdims=True) + here.mean((1, 2), keepdims=True)
            error = np.sqrt(2 * (residual**2).sum((1, 2)) / (3 * (look - 1)) / look)
            crossed |= (np.abs(gaps) > intervals.t_quantile(3.0 * (look - 1), 3, float(level)) * error[:, None]).any(1)
        wrong[name] = crossed.mean()
    assert wrong["plain"] > 0.08
    assert 0.035 < wrong["spent"] < 0.0535


def test_a_fight_stays_open_until_each_contender_is_decided_or_the_last_look(tmp_path: Path) -> None:
    wide = {"base": [1] * 12, "grpo": [7, 8, 9] * 4, "good": [12, 13, 14] * 4, "like": [8, 7, 10, 7, 8, 8] * 2}
    short = {name: bases[:3] for name, bases in wide.items()}
    first = sequential.compare(looked(tmp_path / "3", short), "fight")
    assert {row.chosen.name: row.verdict for row in first.blocks[0].rows[1:]} == {
        "good": "no information",
        "like": "no information",
    }
    assert (first.look.number, first.look.stopped) == (1, False)
    assert first.look.level == pytest.approx(sequential.spent(0.05, 0.25, 2))
    alone = contrast.compare_arms(results(tmp_path / "alone", short), "fight")
    assert {row.chosen.name: row.verdict for row in alone.blocks[0].rows[1:]}["good"] == "better", (
        "without looks it would be decided"
    )
    last = sequential.compare(looked(tmp_path / "12", wide), "fight")
    rows = {row.chosen.name: row for row in last.blocks[0].rows}
    assert (rows["good"].verdict, len(rows["good"].gap.seeds)) == ("better", 6), "decided at the second look, with its numbers"
    assert (rows["like"].verdict, len(rows["like"].gap.seeds)) == ("no information", 12)
    assert (last.look.number, last.look.stopped) == (3, True)
    notes = text.contrast_notes(last)
    assert any(note.startswith("Look 3 of 3, at 12 replicates, stopped: intervals and verdicts at level 0.0") for note in notes)


def test_all_decided_stops_a_fight_before_its_last_look(tmp_path: Path) -> None:
    arms = {"base": [1] * 6, "grpo": [7, 8, 9, 7, 8, 9], "good": [11, 13, 14, 12, 13, 13]}
    made = sequential.compare(looked(tmp_path, arms), "fight")
    assert (made.blocks[0].rows[1].verdict, made.look.number, made.look.stopped) == ("better", 2, True)
    assert any("Look 2 of 3" in line for line in frames.fight_lines(looked(tmp_path / "again", arms)))


def test_before_its_first_look_nothing_of_a_fight_is_judged(tmp_path: Path) -> None:
    made = sequential.compare(looked(tmp_path, {"base": [1, 1], "grpo": [7, 8], "good": [12, 13]}), "fight")
    assert made.blocks[0].rows[1].verdict == "missing"
    assert made.caveats[0] == "Not tested: the first look is at 3 replicates, and 2 are planned here."


def test_a_table_beneath_the_longest_caption_keeps_all_its_rows() -> None:
    column = latex.Group("t", ["a"], [[latex.Cell("1")]] * 10)
    for words in (4000, 6000, 9000):
        made = latex.Float("n", "word " * words, [(f"row {place}.",) for place in range(10)], ("",), [column])
        shown = latex.table_latex(made, latex.REPORT)
        assert all(f"row {place}." in shown for place in range(10))
