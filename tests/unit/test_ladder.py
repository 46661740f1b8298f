"""Kept checkpoints in a plan: paths that start from one, evaluations along a stage, selection; and samples that come in blocks."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import report_study as toy
from conftest import ROOT, copy_configs

from interplay.core.artifact import split_ref
from interplay.core.model import UserError
from interplay.report.display_spec import Figure
from interplay.report.draw import curves
from interplay.report.stats import frame
from interplay.report.stats.estimate import value
from interplay.study import sets
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage

STUDY = (ROOT / "tests/climb.yaml").read_text()


def plan(tmp_path: Path, *changes: tuple[str, str]) -> Plan:
    """The plan of STUDY at smoke scale, after replacements of its text."""
    text = STUDY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    configs = tmp_path / "configs"
    if not configs.exists():
        copy_configs(configs.parent)
    (configs / "study/climb.yaml").write_text(text)
    return plan_study(configs, "climb", "smoke")


def arm(made: Plan, name: str):
    return next(row for row in made.stages[made.report].spec.arms if row.arm == name)


def test_a_path_that_starts_from_a_kept_checkpoint_depends_on_it_and_shares_its_stage(tmp_path: Path) -> None:
    made = plan(tmp_path)
    early, whole = arm(made, "early"), arm(made, "rl")
    base = whole.path[0].digest
    assert early.path[0].digest == base
    assert early.path[0].step == 20
    assert made.stages[early.path[1].digest].deps["init"] == f"{base}@20"
    assert made.stages[whole.path[1].digest].deps["init"] == base
    trained = made.stages[made.report].spec.trained_ops
    assert trained["early"] == trained["rl"]


def test_every_dependency_is_planned_before_what_needs_it(tmp_path: Path) -> None:
    seen: set[str] = set()
    for digest, stage in plan(tmp_path).stages.items():
        assert {split_ref(dep)[0] for dep in stage.deps.values()} <= seen
        seen.add(digest)


def test_a_ladder_is_one_training_stage_and_an_evaluation_of_its_start_every_checkpoint_and_its_end(tmp_path: Path) -> None:
    made = plan(tmp_path)
    row = arm(made, "rl")
    base, rl = (stage.digest for stage in row.path)
    models = {rung.step: made.stages[rung.digest].deps["model"] for rung in row.rungs}
    assert models == {0: base, 1: f"{rl}@1", 2: f"{rl}@2", 4: rl}
    assert list(row.evaluations) == ["eval"]
    assert not arm(made, "base").rungs
    assert {rung.digest for rung in row.rungs} <= made.stages[made.report].deps.keys()


def test_along_a_trainer_the_ladder_ends_at_the_checkpoint_that_the_path_goes_on_from(tmp_path: Path) -> None:
    made = plan(tmp_path, ("along: rl", "along: base"))
    assert [rung.step for rung in arm(made, "rl").rungs] == [20, 40, None]
    assert [rung.step for rung in arm(made, "early").rungs] == [20]


def test_an_arm_that_is_evaluated_along_its_last_stage_alone_is_judged_by_its_end(tmp_path: Path) -> None:
    made = plan(tmp_path, ("evaluate: [eval, along]", "evaluate: [along]"))
    row = arm(made, "rl")
    assert row.evaluations == {"along": row.rungs[-1].digest}
    assert made.stages[row.evaluations["along"]].deps["model"] == row.path[-1].digest
    assert not arm(made, "base").evaluations, "the base ends before that stage"


def test_selection_by_a_metric_depends_on_its_stage_alone_and_what_follows_on_the_choice(tmp_path: Path) -> None:
    made = plan(tmp_path)
    base, best, rl = (stage.digest for stage in arm(made, "best").path)
    assert made.stages[best].deps == {"init": base}
    assert made.stages[best].spec.candidates == [20, 40]
    assert made.stages[rl].deps["init"] == best


def test_selection_by_pass_rate_evaluates_every_candidate_on_the_validation_set(tmp_path: Path) -> None:
    made = plan(tmp_path, ("by: eval_loss/id, mode: min", "by: strict_pass@2, mode: max, band: id, evaluate: judge"))
    base, best, _ = (stage.digest for stage in arm(made, "best").path)
    deps = made.stages[best].deps
    judged = [made.stages[deps[f"evaluation.{number}.0"]] for number in range(3)]
    assert [stage.deps["model"] for stage in judged] == [f"{base}@20", f"{base}@40", base]
    assert all(made.stages[stage.deps["data"]].spec.split == "validation" for stage in judged)
    assert set(deps) == {"init", *(f"evaluation.{number}.0" for number in range(3))}


ALONG = "targets: {half: {stage: rl, curve: strict_pass@1, evaluation: along, band: edge, level: 0.5}}\nfigures:"


def test_a_target_on_evaluations_along_a_stage_names_a_band_and_a_metric_of_theirs(tmp_path: Path) -> None:
    assert plan(tmp_path, ("figures:", ALONG)).report_spec().targets["half"].band == "edge"
    for change in (("strict_pass@1", "strict_pass@4"), ("band: edge", "band: 'op:2'"), ("band: edge, ", "")):
        plan(tmp_path, ("figures:", ALONG.replace(*change)))


def test_the_ops_of_a_set_with_a_calibrated_band_are_not_known_to_a_plan(tmp_path: Path) -> None:
    made = plan(tmp_path)
    digest = next(digest for digest, stage in made.stages.items() if stage.label == "data.test")
    whole = made.stages[digest]
    assert sets.all_ops(made.stages, [digest]) == {op for ops in whole.spec.bands.values() for op in ops}
    changed = replace(whole, spec=whole.spec.model_copy(update={"calibrated": {"hard": [9]}}))
    assert sets.all_ops({digest: changed}, [digest]) == set()


REFUSED = {
    "a target on a band that the evaluation lacks": (
        ("figures:", ALONG.replace("band: edge", "band: egde")), "targets.half.band = 'egde': no such band of along; did you mean 'edge'",
    ),
    "a target on an op that the evaluation lacks": (
        ("figures:", ALONG.replace("band: edge", "band: 'op:99'")), "targets.half.band = 'op:99': no problem of along has 99 ops",
    ),
    "a target on more samples than the evaluation has": (
        ("figures:", ALONG.replace("@1", "@64")), "targets.half.curve = 'strict_pass@64': evaluation along has 4 samples per prompt",
    ),
    "a target on what the evaluation does not record": (
        ("figures:", ALONG.replace("strict_pass@1", "probe:x")), "targets.half.curve = 'probe:x': evaluation along ",
    ),
    "a step that is not kept": (("base@20", "base@21"), "no checkpoint is kept at step 21; kept: 20, 40"),
    "a step that is no number": (("base@20", "base@end"), "must be stage@step"),
    "a misspelt stage": (("base@20", "bass@20"), "did you mean 'base'"),
    "a ladder along a stage without checkpoints": ((", checkpoints: [1, 2, 4]", ""), "keeps no checkpoints to evaluate along"),
    "a ladder along no stage": (("along: rl", "along: r1"), "no such stage"),
    "a selection after a stage without checkpoints": ((", checkpoints: [40, 20]", ""), "kept: none"),
    "a selection after a checkpoint": (("[base, best, rl]", "[base@20, best, rl]"), "keeps no checkpoints"),
    "a pass rate without an evaluation": (("by: eval_loss/id", "by: strict_pass@1"), "name the evaluate stage"),
    "a loss with an evaluation": (("mode: min", "mode: min, evaluate: judge"), "belongs to by: strict_pass@k or by: entropy"),
    "a loss on a band that is not validated": (("by: eval_loss/id", "by: eval_loss/ib"), "known: id"),
    "more samples than the evaluation has": (
        ("by: eval_loss/id, mode: min", "by: strict_pass@16, mode: max, evaluate: judge"), "has 8 samples per prompt",
    ),
    "a band that the evaluation lacks": (
        ("by: eval_loss/id, mode: min", "by: strict_pass@1, mode: max, band: edge, evaluate: judge"), "no such band",
    ),
    "entropy that the evaluation does not keep": (
        ("by: eval_loss/id, mode: min", "by: entropy, mode: max, evaluate: judge"), "give it entropy: true",
    ),
    "candidates by hand": (("mode: min", "mode: min, candidates: [20]"), "unknown key 'candidates'"),
    "a ladder that an arm sends nowhere": (
        ("path: [base, rl], control: base", "path: [base, rl], control: base, set: {along.along: 7}"), "along.along = 7: should be text",
    ),
    "an evaluation that is none": (("by: eval_loss/id, mode: min", "by: strict_pass@1, mode: max, evaluate: rl"), "is a rl stage; name one of kind evaluate"),
    "checkpoints past the end": (("checkpoints: [1, 2, 4]", "checkpoints: [1, 9]"), "9 is not among the steps 1..4"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(tmp_path: Path, case: str) -> None:
    change, says = REFUSED[case]
    with pytest.raises(UserError) as refused:
        plan(tmp_path, change)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


# --- blocks of samples ---


def evaluations(made: Plan) -> dict[str, Stage]:
    return {digest: stage for digest, stage in made.stages.items() if stage.kind == "evaluate"}


def test_more_samples_add_only_the_new_block(tmp_path: Path) -> None:
    few = evaluations(plan(tmp_path))
    some = plan(tmp_path, ("eval: {kind: evaluate, data: test}", "eval: {kind: evaluate, data: test, num_samples: 64}"))
    many = plan(tmp_path, ("eval: {kind: evaluate, data: test}", "eval: {kind: evaluate, data: test, num_samples: 80}"))
    new = [stage.spec for digest, stage in evaluations(some).items() if digest not in few]
    assert set(few) <= set(evaluations(some)) <= set(evaluations(many))
    assert [(spec.first_sample, spec.num_samples) for spec in new] == [(32, 32)] * 4
    more = [stage.spec for digest, stage in evaluations(many).items() if digest not in evaluations(some)]
    assert [(spec.first_sample, spec.num_samples) for spec in more] == [(64, 16)] * 4
    report = some.stages[some.report]
    row = arm(some, "rl")
    (second,) = report.spec.blocks[row.evaluations["eval"]]
    assert some.stages[second].spec.first_sample == 32
    assert second in report.deps


def test_the_report_reads_the_blocks_of_an_evaluation_as_one(tmp_path: Path) -> None:
    folders = {
        "whole": toy.write_evaluation(tmp_path, "whole", {2: [8, 3], 4: [0, 1]}, n=8),
        "first": toy.write_evaluation(tmp_path, "first", {2: [4, 2], 4: [0, 0]}, n=4),
        "second": toy.write_evaluation(tmp_path, "second", {2: [4, 1], 4: [0, 1]}, n=4),
    }
    rows = [toy.arm("whole", 0, ["m:rl:m"], "whole"), toy.arm("parts", 0, ["m:rl:m"], "first")]
    results = frame.read_results(toy.spec(rows, blocks={"first": ["second"]}), folders)
    for metric in ("strict_pass@1", "strict_pass@8", "answer_pass@4"):
        whole, parts = (value(results, name, "id", metric) for name in ("whole", "parts"))
        assert parts._replace(digests=()) == whole._replace(digests=())
    assert value(results, "parts", "id", "strict_pass@1").n_samples == 8


def test_an_evaluation_with_a_missing_block_is_missing(tmp_path: Path) -> None:
    folders = {"first": toy.write_evaluation(tmp_path, "first", {2: [4, 2]}, n=4)}
    results = frame.read_results(toy.spec([toy.arm("parts", 0, ["m:rl:m"], "first")], blocks={"first": ["second"]}), folders)
    assert np.isnan(value(results, "parts", "id", "strict_pass@1").value)


# --- the figure ---


def test_the_ladder_is_drawn_over_the_steps_and_ends_where_the_record_says(tmp_path: Path) -> None:
    folders = {name: toy.write_evaluation(tmp_path, name, {2: [count, count]}) for name, count in (("a", 1), ("b", 2), ("c", 4))}
    folders["m"] = toy.write_record(tmp_path, "m", "pretrain", {}, {"steps": 99})
    row = toy.arm("base", 0, ["base:pretrain:m"], "c")
    rungs = [
        {"evaluation": "along", "stage": "base", "step": step, "digest": name}
        for step, name in ((10, "a"), (20, "b"), (None, "c"))
    ]
    results = frame.read_results(toy.spec([{**row, "rungs": rungs}, {**row, "arm": "again", "rungs": rungs}]), folders)
    (curve,) = curves.ladders(results, "strict_pass@1", "id")
    assert curve.arms == ["base", "again"]
    assert [(step, point.value) for step, point in curve.points] == [(10, 0.25), (20, 0.5), (99, 1.0)]
    canvas, caption = curves.ladder_by_step(results, Figure(x="step", y="strict_pass@1"))
    assert canvas is not None
    assert "along base" in caption


@pytest.mark.parametrize("last", [99, 20_000, 400_000])
def test_the_steps_beneath_narrow_panels_stand_apart(last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "BANDS", {"id": [2], "edge": [4], "beyond": [6], "hard": [8]})
    folders = {name: toy.write_evaluation(tmp_path, name, {2: [1], 4: [1], 6: [0], 8: [0]}) for name in "ab"}
    row = toy.arm("base", 0, ["base:pretrain:m"], "b")
    rungs = [{"evaluation": "along", "stage": "base", "step": step, "digest": name} for step, name in ((1, "a"), (last, "b"))]
    results = frame.read_results(toy.spec([{**row, "rungs": rungs}]), folders)
    canvas, _ = curves.ladder_by_step(results, Figure(x="step", y="strict_pass@1", panel="band"))
    assert canvas is not None
    canvas.draw_without_rendering()
    for axis in [axis for axis in canvas.axes if axis.get_visible()]:
        low, high = axis.get_xlim()
        ticks = [tick for tick in axis.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [tick.label1.get_window_extent() for tick in ticks]
        assert len(boxes) >= 2
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
