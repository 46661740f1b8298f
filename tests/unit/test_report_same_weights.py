"""Arms that nothing set apart, and trainings that changed nothing, are told beside their differences."""

import json
from collections.abc import Callable
from pathlib import Path

import report_study as study
from specs import SPECS

from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.report.claim_spec import Claim, Premise
from interplay.report.display_spec import Table
from interplay.report.spec import ReportStage
from interplay.report.stats import contrast, frame, notes
from interplay.report.stats.frame import Results
from interplay.report.write import page, tables, text
from interplay.rl.spec import RLSpec

RIGHT = {2: [4, 4], 4: [1, 3] * 10}
BASE = "base:pretrain:p"


def results(root: Path, rl: dict[str, list[str]]) -> Results:
    """An arm `base` and arms of one RL stage after it; `rl` tells the weights of each by seed, and `p` are those of the base."""
    inputs = {"b": study.write_evaluation(root, "b", RIGHT), "p": with_weights(root, "pretrain", "p", "p")}
    seeds = range(len(next(iter(rl.values()))))
    arms = [study.arm("base", seed, [BASE], "b") for seed in seeds]
    for name, by_seed in rl.items():
        for seed, weights in enumerate(by_seed):
            model, evaluated = f"{name}-m{seed}", f"{name}-e{seed}"
            inputs[model] = with_weights(root, "rl", model, weights)
            inputs[evaluated] = study.write_evaluation(root, evaluated, RIGHT, model=model)
            arms.append(study.arm(name, seed, [BASE, f"rl:rl:{model}"], evaluated))
    return frame.read_results(study.spec(arms), inputs)


def with_weights(root: Path, kind: str, digest: str, weights: str) -> Path:
    spec = canonical(RLSpec.model_validate(SPECS["rl"][0])) if kind == "rl" else {}
    spent = {"completions": 64, "completion_tokens": 640, "prompt_tokens": 640}
    out = study.write_record(root, digest, kind, spec, spent)
    record = json.loads((out / "record.json").read_text())
    files = {"model/model.safetensors": [8, weights], "model/config.json": [2, "same"], "metrics.jsonl": [1, digest]}
    (out / "record.json").write_text(json.dumps({**record, "files": files}))
    return out


def claim(arm: str, against: str) -> Claim:
    test = {"difference": "strict_pass@1", "arm": arm, "against": against, "band": "edge", "at_least": -0.9}
    return Claim.model_validate({"says": "it costs nothing", "source": "by hand", "test": test})


def test_arms_whose_weights_all_differ_carry_no_caveat(tmp_path: Path) -> None:
    found = results(tmp_path, {"x": ["1", "2", "3"], "y": ["4", "5", "6"]})
    assert notes.caveats_of(found, ["base", "x", "y"]) == ()
    assert contrast.judge_claim(found, claim("x", "y")).caveat == ""


def test_arms_that_ended_with_the_same_weights_are_named_with_their_seeds(tmp_path: Path) -> None:
    found = results(tmp_path, {"x": ["1", "2", "3"], "y": ["1", "5", "3"], "z": ["1", "8", "9"]})
    line = (
        "Ended with the same weights, so the settings in which these arms differ had no effect: x, y, z (seed 0); x, y (seed 2)."
    )
    assert notes.idle_notes(found, ["base", "x", "y", "z"]) == (line,)
    assert notes.idle_notes(found, ["base", "x"]) == ()
    assert notes.same_weights_note(found, "x", "y") == "x and y ended with the same weights at seeds 0, 2"
    judged = contrast.judge_claim(found, claim("y", "x"))
    assert judged.verdict == "indicated", "all seeds share one base"
    assert judged.caveat == "y and x ended with the same weights at seeds 0, 2"


def test_training_that_changed_no_weights_is_told_once_and_its_start_is_no_twin(tmp_path: Path) -> None:
    found = results(tmp_path, {"x": ["p", "2", "p"], "y": ["4", "5", "6"]})
    assert notes.idle_notes(found, ["base", "x", "y"]) == ("Left the weights as they were: rl of x (seeds 0, 2).",)
    assert notes.same_weights_note(found, "x", "base") == "x and base ended with the same weights at seeds 0, 2"


def test_a_claim_about_an_arm_that_did_not_act_is_not_tested(tmp_path: Path) -> None:
    arms = {"x": ["p", "p", "p"], "y": ["4", "5", "6"], "z": ["4", "5", "6"], "w": ["p", "2", "3"], "v": ["p", "2", "p"]}
    found = results(tmp_path, arms)
    pairs = (("x", "y"), ("y", "x"), ("y", "z"), ("w", "y"), ("v", "y"))
    idle, beside, same, partly, mostly = (contrast.judge_claim(found, claim(arm, other)) for arm, other in pairs)
    assert (idle.verdict, idle.reason) == ("not tested", "x did not act: rl left the weights as they were")
    assert (same.verdict, same.reason) == ("not tested", "y and z ended with the same weights at seeds 0, 1, 2")
    assert (beside.verdict, beside.reason) == (idle.verdict, idle.reason), "nor is one that it is compared with"
    assert partly.verdict == "indicated", "it acted at two seeds of three"
    why = "v did not act: rl left the weights as they were at seeds 0, 2"
    assert (mostly.verdict, mostly.reason) == ("not tested", why), "it acted at one seed of three"
    premise = claim("y", "w").model_copy(update={"requires": [Premise(acts="x")]})
    assert contrast.judge_claim(found, premise).verdict == "not tested"


def test_rl_that_made_no_step_did_not_act_whatever_the_format_of_its_weights(tmp_path: Path) -> None:
    """A base in bfloat16 and RL's float32 copy of it have other checksums."""
    found = results(tmp_path, {"x": ["1", "2", "3"], "y": ["4", "5", "6"]})
    for seed, steps in enumerate((0, 7, 0)):
        found.records[f"x-m{seed}"]["metrics"]["optimizer_steps"] = steps
    judged = contrast.judge_claim(found, claim("y", "x"))
    why = "x did not act: rl left the weights as they were at seeds 0, 2"
    assert (judged.verdict, judged.reason) == ("not tested", why)
    found.records["x-m2"]["metrics"]["optimizer_steps"] = 1
    assert contrast.judge_claim(found, claim("y", "x")).verdict == "indicated"


def on_path(found: Results, arm: str, more: Callable[[int, list[ReportStage]], list[ReportStage]]) -> Results:
    """The results with another path of an arm at each seed."""
    rows = [row.model_copy(update={"path": more(row.seed, row.path)}) if row.arm == arm else row for row in found.spec.arms]
    return found._replace(spec=found.spec.model_copy(update={"arms": rows}))


def test_an_arm_that_ends_at_a_kept_checkpoint_has_to_have_acted_too(tmp_path: Path) -> None:
    found = results(tmp_path, {"x": ["1", "2", "3"], "y": ["4", "5", "6"]})
    for seed in range(3):
        found.records[f"x-m{seed}"]["files"]["checkpoints/20/model/model.safetensors"] = [8, "p"]
    kept = on_path(found, "x", lambda seed, path: [path[0], path[1].model_copy(update={"step": 20})])
    judged = contrast.judge_claim(kept, claim("x", "y"))
    assert (judged.verdict, judged.reason) == ("not tested", "x did not act: rl left the weights as they were")


def test_a_stage_that_selects_the_end_of_a_training_is_no_training_that_failed_to_act(tmp_path: Path) -> None:
    found = results(tmp_path, {"x": ["1", "2", "3"], "y": ["4", "5", "6"]})
    for seed in range(3):
        with_weights(tmp_path, "select", f"best{seed}", str(seed + 1))
        found.records[f"best{seed}"] = json.loads((tmp_path / "select" / f"best{seed}" / "record.json").read_text())
    chosen = on_path(found, "x", lambda seed, path: [*path, ReportStage(name="best", kind="select", digest=f"best{seed}")])
    assert contrast.judge_claim(chosen, claim("x", "y")).verdict == "indicated"
    assert notes.idle_notes(chosen, ["base", "x", "y"]) == ()


def test_two_arms_may_share_a_stage_and_are_then_one_model_by_plan(tmp_path: Path) -> None:
    found = results(tmp_path, {"x": ["1"]})
    twin = found.spec.arms[1].model_copy(update={"arm": "twin"})
    spec = found.spec.model_copy(update={"arms": [*found.spec.arms, twin]})
    both = found._replace(spec=spec)
    assert notes.idle_notes(both, ["x", "twin"]) == ()
    assert notes.same_weights_note(both, "x", "twin") == ""


def test_a_stage_without_a_record_or_without_weights_is_passed_over(tmp_path: Path) -> None:
    found = results(tmp_path, {"x": ["1"], "y": ["1"]})
    bare = found._replace(records={digest: {**record, "files": {}} for digest, record in found.records.items()})
    assert notes.caveats_of(bare, ["base", "x", "y"]) == ()
    assert notes.caveats_of(found._replace(records={}), ["base", "x", "y"]) == ()


def test_tables_and_the_page_say_it(tmp_path: Path) -> None:
    found = results(tmp_path, {"x": ["1", "2", "3"], "y": ["1", "5", "6"]})
    line = "Ended with the same weights, so the settings in which these arms differ had no effect: x, y (seed 0)."
    table = Table(columns=["edge"], cells=["strict_pass@1"])
    assert f"- {line}" in text.as_markdown(tables.value_grid(found, table), "title")
    alone = table.model_copy(update={"arms": ["x", "base"]})
    assert line not in text.as_markdown(tables.value_grid(found, alone), "title")
    spec = found.spec.model_copy(update={"claims": [claim("y", "x")]})
    page.write_report(spec, found.folders, tmp_path / "out", Run())
    shown = (tmp_path / "out" / page.PAGE).read_text()
    assert f'<p class="beware">{line}</p>' in shown
    assert "<p>Caveat: y and x ended with the same weights at seed 0.</p>" in shown
    assert "at seed 0" in json.loads((tmp_path / "out" / "claims.json").read_text())[0]["caveat"]


def test_arms_of_different_numerics_are_named(tmp_path: Path) -> None:
    found = results(tmp_path, {"x": ["1", "2"], "y": ["3", "4"]})
    assert notes.numerics_notes(found, ["base", "x", "y"]) == ()
    for digest in ("x-m0", "y-m1", "p"):
        found.records[digest]["numerics"] = "stacked"
    line = (
        "Stages of kind rl with different numerics, to which small differences may be due: "
        "alone: x seed 1, y seed 0; stacked: x seed 0, y seed 1."
    )
    assert notes.numerics_notes(found, ["base", "x", "y"]) == (line,)
    assert notes.numerics_notes(found, ["base"]) == ()
    assert line in notes.caveats_of(found, ["x", "y"])
