"""Targets of learning curves: when a run reaches a level, what it spent until then, and runs that never do."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import report_study as study
from test_arms import configs, study as small_study

from interplay.core.model import UserError
from interplay.report.inspect import compare, explain
from interplay.report.spec import Contender, Lineup, Try
from interplay.report.stats import budget, confounds, contrast, estimate, frame, provenance
from interplay.report.stats.frame import Results
from interplay.report.write import answers, page, text
from interplay.study.expand import plan_study

__all__ = ["configs"]

LENGTH = 10
TARGET = {"half": {"stage": "rl", "curve": "strict", "level": 0.5, "window": 1}}
STEPS = {"difference": "steps_to_target", "band": "half", "arm": "fast", "against": "slow"}
SOONER = {"says": "fast is there sooner", "test": {**STEPS, "at_most": 0}}


def curve(reached: int | None) -> list[float]:
    """Six steps, the first at or above a half at this one."""
    return [0.6 if reached is not None and step >= reached else 0.1 for step in range(1, 7)]


def results(
    root: Path, arms: dict[str, list[int | None]], one_base: bool = False, cpu: float | None = 60.0, **given: object
) -> Results:
    """Arms whose run on each base reaches the target at a step. A step has 4 completions of one prompt of 5 tokens, each of 10, or
    of 5 in the arm `brief`: 40 generated, 45 trained on."""
    inputs, rows = {}, []
    for name, reached in arms.items():
        for seed, at in enumerate(reached):
            digest, length = f"m{name}{seed}", 5 if name == "brief" else LENGTH
            totals = {"steps": 6, "completions": 24, "prompt_tokens": 120, "completion_tokens": 24 * length, "optimizer_steps": 6}
            inputs[digest] = study.write_record(root, digest, "rl", study.RL, totals)
            steps = {"completions": [4.0] * 6, "prompt_tokens": [20.0] * 6, "completion_tokens": [4.0 * length] * 6}
            study.write_steps(inputs[digest], strict=curve(at), **steps)
            if cpu is not None:
                (inputs[digest] / "telemetry.json").write_text(json.dumps({"seconds_cpu": cpu, "attempts": 1}))
            base = 0 if one_base else seed
            inputs[f"{name}{seed}"] = study.write_evaluation(root, f"{name}{seed}", {4: [at or 0] * 3}, model=digest)
            rows.append(study.arm(name, seed, [f"base:pretrain:b{base}", f"rl:rl:{digest}"], f"{name}{seed}"))
    return frame.read_results(study.spec(rows, targets=TARGET, **given), inputs)


def found(of: Results, arm: str, metric: str = "steps_to_target", against: str = "") -> estimate.Estimate:
    return estimate.difference(of, arm, against, "half", metric) if against else estimate.value(of, arm, "half", metric)


# --- arithmetic ---


def test_the_first_step_at_which_the_smoothed_curve_is_at_the_level() -> None:
    points = list(enumerate([0.1, 0.6, 0.2, 0.4, 0.6, 0.5, 0.9], start=1))
    assert [budget.first_reach(points, 0.5, window) for window in (1, 2, 3, 7)] == [2, 5, 6, None]
    assert budget.first_reach(points, 0.4, 3) == 4, "means of three: .3, .4 (.6 + .2 + .4 but for rounding), .4, .5, .67"
    assert budget.first_reach(points, 1.0, 1) is None
    assert budget.first_reach(points[:2], 0.1, 3) is None, "fewer points than are smoothed over"


def test_a_run_counts_what_it_spent_until_it_was_there(tmp_path: Path) -> None:
    of = results(tmp_path, {"fast": [1, 2, 3, 2], "slow": [3, 5, 6, 4]})
    assert found(of, "fast").per_seed == (1, 2, 3, 2)
    assert found(of, "fast", "tokens_to_target").per_seed == (85, 170, 255, 170), "a step: 40 generated, 40 + 5 trained on"
    assert found(of, "fast", "seconds_to_target").per_seed == (10, 20, 30, 20), "60 CPU seconds over six equal steps"
    assert found(of, "fast", "reached_target").per_seed == (1, 1, 1, 1)
    gap = found(of, "fast", against="slow")
    mean, half = -2.5, 3.182446 * np.std([2, 3, 3, 2], ddof=1) / 2
    assert (gap.value, gap.low, gap.high) == pytest.approx((mean, mean - half, mean + half), abs=1e-5), "Student's over bases"
    said = "up to 6.0 steps: fast reached it in 4 of 4 runs, median 2.0; slow reached it in 4 of 4 runs, median 4.5"
    assert gap.over == f"any base (4 bases; {said})"


def test_a_run_that_never_reaches_the_target_counts_up_to_the_horizon(tmp_path: Path) -> None:
    """Left out, the two censored runs would turn the order round: slow would be there after 1 step, fast after 2.75."""
    of = results(tmp_path, {"fast": [3, 2, 3, 3], "slow": [1, 1, None, None]})
    slow = found(of, "slow")
    assert (slow.value, slow.per_seed) == (3.5, (1, 1, 6, 6))
    assert slow.over.endswith("slow reached it in 2 of 4 runs, median not reached)")
    assert found(of, "slow", "reached_target").value == 0.5
    assert found(of, "fast", against="slow").value == -0.75
    never = results(tmp_path / "never", {"fast": [None] * 4, "slow": [None] * 4})
    gap = found(never, "fast", against="slow")
    assert gap.value == 0
    assert np.isnan([gap.low, gap.high]).all(), "nothing is known of runs that all end before the target"
    assert estimate.p_value(gap) == 1


def test_the_horizon_is_where_the_shortest_run_ended(tmp_path: Path) -> None:
    """In tokens it is that of the arm with short completions, whose runs that never arrive must not look cheap."""
    of = results(tmp_path, {"brief": [None, None, None], "slow": [2, 5, 6]})
    assert found(of, "brief", "tokens_to_target").per_seed == (270, 270, 270), "six steps of 20 generated, 25 trained on"
    assert found(of, "slow", "tokens_to_target").per_seed == (170, 270, 270), "425 and 510 lie beyond it"
    assert "up to 0.3 thousand tokens: slow reached it in 1 of 3 runs" in found(of, "slow", "tokens_to_target").over
    assert found(of, "slow").per_seed == (2, 5, 6)


def test_all_equal_runs_bound_a_share_by_their_number(tmp_path: Path) -> None:
    share = found(results(tmp_path, {"fast": [1] * 4, "slow": [1] * 4}), "fast", "reached_target")
    assert (share.value, share.high) == (1, 1)
    assert share.low == pytest.approx(0.025**0.25), "Clopper and Pearson's bound for 4 of 4"


def test_seconds_need_the_telemetry_of_one_attempt(tmp_path: Path) -> None:
    of = results(tmp_path, {"fast": [1, 2, 3], "slow": [1, 2, 3]}, cpu=None)
    assert found(of, "fast", "seconds_to_target").missing[0].startswith("CPU seconds of mfast0 are not known")
    assert found(of, "fast").value == 2
    (of.folders["mfast0"] / "telemetry.json").write_text(json.dumps({"seconds_cpu": 9.0, "attempts": 2}))
    assert found(of, "fast", "seconds_to_target").missing[0].startswith("CPU seconds of mfast0 are not known")


def test_runs_of_one_base_say_so(tmp_path: Path) -> None:
    of = results(tmp_path, {"fast": [1, 2, 3], "slow": [3, 5, 6]}, one_base=True)
    assert found(of, "fast", against="slow").over.startswith("this base (3 runs; up to 6.0 steps")


def test_a_curve_of_evaluations_along_the_stage(tmp_path: Path) -> None:
    of = results(tmp_path, {"fast": [1, 1, 1]})
    right = {0: [[0, 1, 0], [1, 1, 2], [0, 0, 0]], 2: [[1, 2, 3], [4, 3, 2], [1, 1, 1]], 6: [[4, 4, 4], [0, 0, 0], [2, 2, 1]]}
    inputs, rows = dict(of.folders), []
    for row in of.spec.arms:
        rungs = []
        for step, each in right.items():
            digest = f"e{row.seed}_{step}"
            inputs[digest] = study.write_evaluation(tmp_path, digest, {4: each[row.seed]})
            rungs.append({"evaluation": "along", "stage": "rl", "step": step, "digest": digest})
        rows.append(row.model_dump() | {"rungs": rungs})
    target = {"stage": "rl", "curve": "strict_pass@1", "evaluation": "along", "band": "edge", "level": 0.5}
    along = frame.read_results(study.spec(rows, targets={"half": target}), inputs)
    assert found(along, "fast").per_seed == (2, 2, 6), "first evaluations with 6 of 12: .5 at 2, .75 at 2, never: the horizon"
    assert found(along, "fast", "reached_target").per_seed == (1, 1, 0)
    assert found(along, "fast", "tokens_to_target").per_seed == (170, 170, 510)


# --- verdicts ---


def verdict(root: Path, fast: list[int | None]) -> str:
    of = results(root, {"fast": fast, "slow": [2, 3, 4, 3]}, claims=[SOONER])
    return answers.answer_study(of).judged[0].verdict


def test_a_planted_curve_changes_the_verdict(tmp_path: Path) -> None:
    assert verdict(tmp_path / "1", [1, 1, 2, 1]) == "supported"
    assert verdict(tmp_path / "2", [1, 1, 2, None]) == "no information", "one run of four that never arrives"
    assert verdict(tmp_path / "3", [None] * 4) == "refuted"


def test_less_is_better_in_a_contrast_and_in_a_fight(tmp_path: Path) -> None:
    arms: dict[str, list[int | None]] = {
        "slow": [4, 5, 6, 5],
        "again": [4, 6, 6, 5],
        "fast": [1, 2, 3, 1],
        "stuck": [None, 6, None, None],
    }
    control = {"improves": {"arm": "fast", "against": "stuck", "by": 1}}
    for correction in ("holm", "dunnett"):
        asked = {"against": "slow", "correction": correction}
        asked |= {"noise": "again"} if correction == "holm" else {"requires": [control]}
        contenders = [Contender(name=name, tries=[Try(arm=name)]) for name in arms if name != "again"]
        lineups = {"t": Lineup(against="slow", contenders=contenders, twins={"again": "slow"} if correction == "holm" else {})}
        tables = {"t": {"columns": ["half"], "cells": ["steps_to_target"], "contrast": asked}}
        made = contrast.compare_arms(results(tmp_path / correction, arms, tables=tables, lineups=lineups), "t")
        words = {row.chosen.name: row.verdict for row in made.blocks[0].rows}
        assert words["fast"] == "better"
        assert words["stuck"] == "no information"
        assert text.contrast_notes(made)[0].startswith(
            "Steps to target in steps; differences to slow, of steps to target less is better,"
        )


def test_the_control_of_a_fight_on_times_improves_by_taking_less(tmp_path: Path) -> None:
    arms: dict[str, list[int | None]] = {"slow": [4, 5, 6, 5], "fast": [1, 2, 3, 1]}
    lineups = {"t": Lineup(against="slow", contenders=[Contender(name=name, tries=[Try(arm=name)]) for name in arms], twins={})}
    words = []
    for arm, against in (("fast", "slow"), ("slow", "fast")):
        asked = {
            "against": "slow",
            "correction": "dunnett",
            "requires": [{"improves": {"arm": arm, "against": against, "by": 1}}],
        }
        tables = {"t": {"columns": ["half"], "cells": ["steps_to_target"], "contrast": asked}}
        made = contrast.compare_arms(results(tmp_path / arm, arms, tables=tables, lineups=lineups), "t")
        words.append(made.blocks[0].rows[1].verdict)
    assert words == ["better", "not tested"]


# --- what is shown ---

TABLE = {"speed": {"columns": ["half"], "cells": ["reached_target", "steps_to_target", "tokens_to_target", "seconds_to_target"]}}


def test_page_table_compare_and_explain_show_a_target(tmp_path: Path) -> None:
    root = tmp_path / "results"
    of = results(root, {"fast": [1, 2, 3, 2], "slow": [3, 5, None, 4]}, claims=[SOONER], tables=TABLE)._replace(kept={})
    answer = answers.answer_study(of)
    assert confounds.find_confounds(of) == []
    written = page.render_page(answer, provenance.of_inputs(of.spec, of.folders), [])
    assert "fast reached it in 4 of 4 runs, median 2.0; slow reached it in 3 of 4 runs, median 4.5" in written
    assert "depend on the machine" in written
    assert "a restricted mean" in written
    shown = text.as_markdown(answer.grids["speed"], "speed")
    assert re.search(r"\| slow \| 75.0<br>.* 4.5<br>", shown)
    assert "Prompts:" not in shown
    side = compare.of_arm("fast", "fast", of.spec), compare.of_arm("slow", "slow", of.spec)
    lines = compare._on_targets(of.spec, "slow", "fast", root)
    assert re.search(r"half +steps_to_target, steps +4.5 +2.0 +-2.5", "\n".join(lines))
    assert (side[0].arm, side[1].arm) == ("fast", "slow")
    query = explain.CellName("speed", "slow", "", "half", "steps_to_target")
    stages = {digest: record for digest, record in of.records.items()}
    number, notes = explain.value(of.spec, "", root, query)
    assert (number.per_seed, notes, stages.keys() >= set(number.digests)) == ((3, 5, 6, 4), [], True)


# --- planned ---


def planned(configs: Path, target: str, table: str = "", *arms: str) -> None:
    more = f"targets: {{half: {{{target}}}}}\n" + (f"tables: {{speed: {{{table}}}}}" if table else "")
    small_study(configs, *(arms or ("rl: {path: [base, rl]}", "again: {path: [base, rl], set: {rl.seed: 100}}")), more=more)
    plan_study(configs, "mine", "smoke")


SOUND, SHOWN = "stage: rl, curve: strict, level: 0.5, window: 1", "columns: [half], cells: [steps_to_target], arms: [rl, again]"


def test_a_target_is_planned_and_changes_no_stage_but_the_report(configs: Path) -> None:
    small_study(configs, "rl: {path: [base, rl]}", "again: {path: [base, rl], set: {rl.seed: 100}}")
    before = plan_study(configs, "mine", "smoke")
    small_study(
        configs,
        *("rl: {path: [base, rl]}", "again: {path: [base, rl], set: {rl.seed: 100}}"),
        more=f"targets: {{half: {{{SOUND}}}}}\ntables: {{speed: {{{SHOWN}}}}}",
    )
    after = plan_study(configs, "mine", "smoke")
    assert set(before.stages) - {before.report} == set(after.stages) - {after.report}
    assert after.report_spec().targets["half"].level == 0.5
    assert before.design.get("targets") is None
    assert after.design["targets"]["half"]["level"] == 0.5


@pytest.mark.parametrize(
    ("target", "table", "said"),
    [
        (SOUND.replace("0.5", "1.5"), "", "level = 1.5"),
        (SOUND.replace("0.5", "0"), "", "level = 0"),
        (SOUND.replace("strict", "strikt"), "", "targets.half.curve = 'strikt': no curve of RL that rises"),
        (SOUND.replace("strict", "entropy"), "", "no curve of RL that rises as a model learns"),
        (SOUND.replace("stage: rl", "stage: base"), "", "targets.half.stage = 'base': must be a stage of kind rl"),
        (SOUND.replace("window: 1", "window: 99"), "", "points, so that no run could reach the target"),
        (f"{SOUND.replace('strict', 'nll')}, evaluation: eval", "", "is no share that rises"),
        (f"{SOUND.replace('strict', 'strict_pass@1')}, evaluation: eval", "", "no evaluation along rl of"),
        (f"{SOUND}, band: id", "", "band = 'id' belongs to an evaluation"),
        (SOUND, SHOWN.replace("steps_to_target", "strict_pass@1"), "half is a target; write reached_target"),
        (SOUND, SHOWN.replace("half", "id"), "is a number of a target, and id is none; write one of half"),
        (SOUND, SHOWN.replace(", arms: [rl, again]", ""), "has no stage rl, so no curve to reach half"),
        (SOUND, SHOWN.replace("half", "haf"), "no such band of the evaluations; did you mean 'half'"),
    ],
)
def test_what_no_curve_can_answer_is_refused_before_the_first_job(target: str, table: str, said: str, configs: Path) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        planned(configs, target, table)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("rl.method.sampler: {name: pcl}", "method.sampler"),
        ("rl.data: {hard: 1.0}", "data"),
        ("rl.temperature: 0.5", "temperature"),
    ],
)
def test_training_curves_of_other_problems_are_not_compared(change: str, key: str, configs: Path) -> None:
    other = f"again: {{path: [base, rl], set: {{{change}}}}}"
    with pytest.raises(UserError, match=f"training curves of rl and again are not about the same problems: {key} differs"):
        planned(configs, SOUND, SHOWN, "rl: {path: [base, rl]}", other)
