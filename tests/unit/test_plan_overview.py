"""`interplay plan`: how the stages stand, what they will take, and what is refused."""

import fcntl
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from lab import Lab, of_kind, telemetry
from scipy import stats

from interplay import cli
from interplay.cli import overview
from interplay.core import artifact
from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.report.stats import power
from interplay.report.stats.intervals import Spread
from interplay.results import estimate, locks, state
from interplay.run import graph
from interplay.run.graph import open_graph
from interplay.study import choices, expand
from interplay.study.plan import Plan, Stage

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["plan", "quickstart", "--scale", "smoke", *words]) == 0
    return capsys.readouterr().out


def row(text: str, kind: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(f"{kind} "))


def test_a_fresh_project_is_all_new_and_its_time_comes_from_flops(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys)
    assert row(text, "rl")[1:4] == ["2", "-", "2"]
    assert row(text, "rl")[-1] == "FLOPs"
    assert "30 GFLOP/s per CPU thread" in " ".join(text.split())
    assert "why new: no stage of these kinds is finished yet" in text
    assert not lab.results.exists()


def test_a_finished_project_has_nothing_to_do(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    plan = lab.plan()
    lab.finish_all(plan)
    text = said(capsys)
    assert row(text, "all")[1:4] == [str(len(plan.stages)), str(len(plan.stages)), "-"]
    assert "to do: nothing" in text
    assert "why new" not in text


def test_each_state_is_counted_and_those_in_the_way_say_how_far_they_are_or_why_they_failed(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = lab.plan()
    lab.finish_all(plan, but=("pretrain", "rl", "evaluate", "report"))
    pretrain, (failed, running) = of_kind(plan, "pretrain")[0], of_kind(plan, "rl")
    write_json(lab.start(pretrain) / "resume/state.json", {"step": 50, "tensors": "x", "state": {"tokens": 50_000}})
    write_json(lab.start(failed) / "failure.json", {"message": "step 3 of 4: loss nan"})
    with open(lab.start(running) / "lease") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        text = said(capsys)
    assert row(text, "pretrain")[1:6] == ["1", "-", "-", "1", "-"]
    assert row(text, "rl")[1:6] == ["2", "-", "-", "1", "1"]
    assert row(text, "evaluate")[1:4] == ["3", "-", "3"]
    assert f"unfinished: pretrain quickstart.smoke/base/base@0 ({pretrain.digest}): goes on from step 50" in text
    assert f"failed: rl quickstart.smoke/rl_edge/rl@0 ({failed.digest}): step 3 of 4: loss nan" in text
    assert f"running: rl quickstart.smoke/rl_hard/rl@0 ({running.digest})" in text


def test_a_result_that_neither_the_plan_nor_a_lock_reaches_is_counted_as_of_another_study(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    before = lab.plan()
    lab.finish_all(before)
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 5,")
    after = overview.read_overview(lab.plan(), lab.configs, lab.results)
    assert after.others == {"rl": 2, "evaluate": 2, "report": 1}
    text = said(capsys)
    assert row(text, "rl")[6] == "2"
    assert "other: 5 finished results of other studies, or of an earlier version of this one" in text
    before.write_lock(lab.configs)
    assert overview.read_overview(lab.plan(), lab.configs, lab.results).others == {}
    assert "other:" not in said(capsys)


def test_a_finished_run_whose_inputs_only_a_lock_knows_is_planned_beside(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    before = lab.lock()
    lab.finish(of_kind(before, "rl")[0])
    (lab.out(of_kind(before, "rl")[0]) / "state").mkdir()
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 5,")
    lab.edit("scale/smoke.yaml", "tokens: 100000", "tokens: 300000")
    assert row(said(capsys), "rl")[1:4] == ["2", "-", "2"]


def test_uses_count_each_arm_and_seed_for_itself(lab: Lab) -> None:
    plan = lab.plan()
    base = {"tokenizer", "held_out", "corpus set", "corpus", "base", "test", "eval"}
    with_rl = base | {"rl", "rl set"}
    assert overview.stage_uses(plan) == len(base) + 2 * len(with_rl)
    assert len(plan.stages) - 1 == len(base) + 2 * len({"rl", "rl set", "eval"})


# -- time --------------------------------------------------------------------------------------------------------------


def made(lab: Lab, plan: Plan) -> estimate.Estimate:
    found = state.scan_results(lab.results)
    return estimate.estimate_launch(state.Library(plan.stages, lab.results, found), found)


def test_time_is_the_work_at_the_median_pace_of_finished_stages_of_the_kind(lab: Lab) -> None:
    three = Lab(lab.folder / "three")
    three.edit("study/quickstart.yaml", "values: [0]", "values: [0, 1, 2]")
    for stage, seconds in zip(of_kind(three.plan(), "pretrain"), (10.0, 60.0, 20.0), strict=True):
        lab.finish(stage, seconds)
    lab.edit("scale/smoke.yaml", "tokens: 100000", "tokens: 300000")
    plan = lab.plan()
    (pretrain,) = of_kind(plan, "pretrain")
    found = made(lab, plan).times[pretrain.digest]
    assert found.source == estimate.MEASURED
    assert found.seconds == pytest.approx(3 * 20.0)
    assert found.gpu_seconds == 0


def test_the_start_of_a_short_run_is_not_multiplied_with_the_steps_of_a_long_one(lab: Lab) -> None:
    for stage in of_kind(lab.plan(), "rl"):
        lab.finish(stage, 8.0, seconds_per_step=0.05)
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 400,")
    plan = lab.plan()
    times = made(lab, plan).times
    start = 8.0 - 4 * 0.05
    assert [times[stage.digest].seconds for stage in of_kind(plan, "rl")] == pytest.approx([start + 400 * 0.05] * 2)


def test_evaluations_take_their_start_once_and_their_sampling_by_its_rate(lab: Lab) -> None:
    before = lab.plan()
    lab.finish_all(before, but=("evaluate",))
    for stage in of_kind(before, "evaluate"):
        out = lab.finish(stage, 7.0, completion_tokens_per_second=30_000.0)
        artifact.write_json(out / "record.json", {**artifact.record(out), "metrics": {"all": {"n": 160, "length": 11.71875}}})
    lab.edit("scale/smoke.yaml", "test: 40}", "test: 4000}")
    plan = lab.plan()
    times = made(lab, plan).times
    assert times[of_kind(plan, "evaluate")[0].digest].seconds == pytest.approx(5.0 + 100 * 2.0)


def test_a_run_that_did_not_time_its_steps_tells_no_pace_of_one_many_times_as_long(lab: Lab) -> None:
    for stage in of_kind(lab.plan(), "rl"):
        lab.finish(stage, 8.0)
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 400,")
    plan = lab.plan()
    assert {made(lab, plan).times[stage.digest].source for stage in of_kind(plan, "rl")} == {estimate.ASSUMED}


def test_of_models_of_one_size_the_run_of_about_the_same_length_tells_the_pace(lab: Lab) -> None:
    for steps, per_step in ((4, 1.0), (400, 0.05)):
        for stage in of_kind(lab.plan(), "rl"):
            lab.finish(stage, per_step * steps, seconds_per_step=per_step)
        lab.edit("scale/smoke.yaml", f"rl: {{steps: {steps},", f"rl: {{steps: {100 * steps},")
    lab.edit("scale/smoke.yaml", "rl: {steps: 40000,", "rl: {steps: 300,")
    plan = lab.plan()
    assert made(lab, plan).times[of_kind(plan, "rl")[0].digest].seconds == pytest.approx(300 * 0.05)


def test_the_pace_is_that_of_the_nearest_model_size(lab: Lab) -> None:
    (small,) = of_kind(lab.plan(), "pretrain")
    lab.finish(small, 10.0)
    lab.edit("scale/smoke.yaml", "/model@kinds.pretrain.model: pico", "/model@kinds.pretrain.model: nano")
    (large,) = of_kind(lab.plan(), "pretrain")
    lab.finish(large, 500.0)
    lab.edit("scale/smoke.yaml", "tokens: 100000", "tokens: 200000")
    plan = lab.plan()
    assert made(lab, plan).times[of_kind(plan, "pretrain")[0].digest].seconds == pytest.approx(1000.0)


def test_the_pace_is_that_of_the_same_dtype(lab: Lab) -> None:
    for dtype, seconds in (("bfloat16", 10.0), ("float32", 40.0)):
        lab.edit("scale/smoke.yaml", "pretrain: {", f"pretrain: {{dtype: {dtype}, ")
        lab.finish(of_kind(lab.plan(), "pretrain")[0], seconds)
        lab.edit("scale/smoke.yaml", f"dtype: {dtype}, ", "")
    lab.edit("scale/smoke.yaml", "pretrain: {tokens: 100000", "pretrain: {dtype: float32, tokens: 200000")
    plan = lab.plan()
    assert made(lab, plan).times[of_kind(plan, "pretrain")[0].digest].seconds == pytest.approx(80.0)


def test_what_a_small_model_takes_beyond_its_flops_is_not_multiplied_with_the_size_of_a_large_one(lab: Lab) -> None:
    (small,) = of_kind(lab.plan(), "pretrain")
    lab.finish(small, 10.0)
    size = made(lab, lab.plan()).costs[small.digest].parameters or 0
    lab.edit("scale/smoke.yaml", "/model@kinds.pretrain.model: pico", "/model@kinds.pretrain.model: nano")
    plan = lab.plan()
    (large,) = of_kind(plan, "pretrain")
    found = made(lab, plan)
    flops, parameters = found.costs[large.digest].flops or 0, found.costs[large.digest].parameters or 0
    rate = estimate.CPU_FLOPS * large.run.cores()
    beyond = 10.0 - 6 * size * 100_000 / rate
    assert parameters > 3 * size
    assert found.times[large.digest].seconds == pytest.approx(flops / rate + beyond)


def test_stages_on_gpus_take_no_pace_from_stages_without(lab: Lab) -> None:
    (stage,) = of_kind(lab.plan(), "pretrain")
    lab.finish(stage, 10.0)
    lab.edit("scale/smoke.yaml", "pretrain: {tokens: 100000,", "pretrain: {run: {gpus: 2}, tokens: 200000,")
    plan = lab.plan()
    (other,) = of_kind(plan, "pretrain")
    found = made(lab, plan)
    time_of, flops = found.times[other.digest], found.costs[other.digest].flops
    assert time_of.source == estimate.ASSUMED
    assert flops
    assert time_of.seconds == pytest.approx(estimate.START + flops / (2 * estimate.GPU_FLOPS))
    assert time_of.gpu_seconds == pytest.approx(2 * time_of.seconds)


def test_of_a_stage_that_took_several_attempts_the_rate_counts_and_not_the_last_attempts_time(lab: Lab) -> None:
    (stage,) = of_kind(lab.plan(), "pretrain")
    out = lab.finish(stage)
    telemetry(out, attempts=2)
    lab.edit("scale/smoke.yaml", "tokens: 100000", "tokens: 200000")
    plan = lab.plan()
    (new,) = of_kind(plan, "pretrain")
    assert made(lab, plan).times[new.digest].source == estimate.ASSUMED
    telemetry(out, tokens_per_second=500.0)
    assert made(lab, plan).times[new.digest].seconds == pytest.approx(400.0)


def test_a_longer_rl_run_takes_what_a_shorter_one_did_not_do(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    for stage in of_kind(lab.plan(), "rl"):
        write_json(lab.finish(stage) / "state/state/state.json", {})
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 16,")
    plan = lab.plan()
    times = made(lab, plan).times
    assert [times[stage.digest].seconds for stage in of_kind(plan, "rl")] == pytest.approx([0.75 * 4 * 10.0] * 2)
    assert "starts from the end of" in said(capsys)
    lab.edit("scale/smoke.yaml", "rl: {steps: 16,", "rl: {steps: 16, temperature: 0.5,")
    plan = lab.plan()
    times = made(lab, plan).times
    assert [times[stage.digest].seconds for stage in of_kind(plan, "rl")] == pytest.approx([4 * 10.0] * 2)


def test_a_record_that_a_launch_puts_back_is_not_planned_to_be_made(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    plan = lab.plan()
    lab.finish_all(plan)
    for stage in plan.stages.values():
        shutil.copytree(lab.out(stage), lab.results / "studies/quickstart.smoke/records" / stage.kind / stage.digest)
    for kind in {stage.kind for stage in plan.stages.values()}:
        shutil.rmtree(lab.results / kind, ignore_errors=True)
    text = said(capsys)
    back = open_graph(lab.folder, {"study": "quickstart", "scale": "smoke"}, True)
    assert f"kept: {len(plan.stages) - 1} records" in text
    assert row(text, "all")[1:4] == [str(len(plan.stages)), str(len(plan.stages) - 1), "1"]
    assert back.targets() == back.missing([plan.report])
    assert back.missing(list(plan.stages)) == back.targets()


def test_what_was_saved_is_not_counted_again(lab: Lab) -> None:
    plan = lab.plan()
    (stage,) = of_kind(plan, "pretrain")
    whole = made(lab, plan).times[stage.digest].seconds
    write_json(lab.start(stage) / "resume/state.json", {"step": 75, "tensors": "x", "state": {"tokens": 75_000}})
    assert made(lab, plan).times[stage.digest].seconds - estimate.START == pytest.approx((whole - estimate.START) / 4)


def test_the_longest_chain_runs_through_what_waits_for_each_other(lab: Lab) -> None:
    plan = lab.plan()
    found = made(lab, plan)
    (packed,) = of_kind(plan, "corpus")
    kinds = [of_kind(plan, kind)[0].digest for kind in ("pretrain", "rl", "evaluate")]
    waiting = [packed.deps["data.0"], packed.digest, *kinds]
    assert overview.estimate.longest_chain(plan, {digest: time.seconds for digest, time in found.times.items()}) == pytest.approx(
        sum(found.times[digest].seconds for digest in waiting)
    )


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_plan_beyond_its_limit_ends_with_exit_code_2_and_one_line_that_says_where_the_estimate_is_from(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.edit("scale/smoke.yaml", "pretrain: {tokens: 100000,", "pretrain: {run: {gpus: 1}, tokens: 100000,")
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--max-gpu-hours", "1e-9"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "max_gpu_hours = 1e-09" in error
    assert "from FLOPs" in error
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--max-gpu-hours", "1"]) == 0
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--max-hours", "1e-9"]) == 2


def test_a_launch_beyond_its_limit_is_refused_before_anything_is_written(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"study": "quickstart", "scale": "smoke"}
    with pytest.raises(SystemExit) as refused:
        open_graph(lab.folder, {**config, "max_hours": 1e-9}, True)
    assert refused.value.code == 2
    assert "max_hours = 1e-09" in capsys.readouterr().err
    assert open_graph(lab.folder, {**config, "max_hours": 100, "max_gpu_hours": 0}, True).targets()
    assert not lab.results.exists()


@pytest.mark.parametrize("value", ["five", None, "nan", -1])
def test_a_limit_that_is_no_number_of_hours_is_refused(value: object) -> None:
    with pytest.raises(UserError, match="must be a number of hours"):
        choices.hour_limits({"max_gpu_hours": value})
    with pytest.raises(UserError, match="must be a number of minutes"):
        choices.shared_minutes({"shared_minutes": value})


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_page_fits_100_columns_and_json_says_the_same(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.finish_all(lab.plan())
    lab.edit("scale/smoke.yaml", "tokens: 100000", "tokens: 300000")
    for words in ((), ("--full", "--stages")):
        text = said(capsys, *words)
        assert max(len(line) for line in text.splitlines()) <= 100
    data = json.loads(said(capsys, "--json"))
    new = [stage for stage in data["stages"] if stage["state"] == "new"]
    assert [row(text, "all")[i] for i in (1, 2, 3)] == [
        str(len(data["stages"])),
        str(len(data["stages"]) - len(new)),
        str(len(new)),
    ]
    assert {stage["kind"] for stage in new} == {"pretrain", "rl", "evaluate", "report"}
    assert {cause["digest"] for cause in data["causes"]} == {stage["digest"] for stage in new}


def test_a_missing_stage_of_a_finished_report_is_not_to_do_for_the_plan_as_for_a_launch(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = lab.plan()
    lab.finish_all(plan)
    gone = of_kind(plan, "evaluate")[0]
    shutil.rmtree(lab.out(gone))
    text = said(capsys)
    assert "to do: nothing" in text
    assert "not needed: 1 stage without a record" in text
    assert f"results/evaluate/{gone.digest}/record.json" in text
    launched = open_graph(lab.folder, {"study": "quickstart", "scale": "smoke"}, True)
    assert launched.targets() == []
    assert launched.to_make() == []
    shutil.rmtree(lab.out(plan.stages[plan.report]))
    assert "to do: 2 stages" in said(capsys)
    assert {stage.digest for stage in open_graph(lab.folder, {"study": "quickstart", "scale": "smoke"}, True).to_make()} == {
        gone.digest,
        plan.report,
    }


def test_a_launch_warns_of_drift(lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = lab.plan()
    lab.finish(of_kind(plan, "problems")[0], sources={f"file{n}.py": "0" for n in range(8)})
    monkeypatch.setattr(graph.live, "begin", lambda plans, results: None)
    launched = open_graph(lab.folder, {"study": "quickstart", "scale": "smoke"}, True)
    capsys.readouterr()
    graph.on_start(launched)
    err = capsys.readouterr().err
    assert "advisory: 1 finished stage used source files that have changed since" in err
    assert "more file" in err
    assert len([line for line in err.splitlines() if ".py: 1 stage" in line]) == graph.MOST_DRIFTED


def test_drift_is_an_advisory_and_with_strict_code_exit_code_2(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    plan = lab.plan()
    lab.finish_all(plan)
    (tokenizer,) = of_kind(plan, "tokenizer")
    telemetry(lab.out(tokenizer), sources={"data/tokenizer.py": "0" * 12})
    text = said(capsys)
    assert "advisory: 1 finished stage used source files that have changed since" in text
    assert "  data/tokenizer.py: 1 stage" in text
    assert "to do: nothing" in text
    assert cli.main(["plan", "quickstart", "--scale", "smoke", "--strict-code"]) == 2
    assert "data/tokenizer.py" in capsys.readouterr().err.splitlines()[-1]


def test_ten_thousand_stages_are_looked_at_in_less_than_a_second(lab: Lab) -> None:
    for number in range(10_000):
        out = lab.results / "rl" / f"{number:012x}"
        out.mkdir(parents=True)
        if number % 2:
            (out / "lease").touch()
            (out / "record.json").touch()
    started = time.process_time()
    found = state.scan_results(lab.results)
    assert time.process_time() - started < 1.0
    assert [sum(one.state == name for one in found.values()) for name in ("done", "new")] == [5_000, 5_000]


def test_a_lock_that_is_none_is_named(lab: Lab) -> None:
    lab.lock()
    broken = lab.configs / "plans/broken.lock.json"
    broken.write_text("[]")
    with pytest.raises(UserError, match=r"broken\.lock\.json: not a lock"):
        locks.read_locks(lab.configs)


def test_stage_is_the_same_whether_planned_locked_or_read_from_results(lab: Lab) -> None:
    plan = lab.lock()
    stage = of_kind(plan, "rl")[0]
    lab.finish(stage)
    found = state.scan_results(lab.results)
    stages = [
        state.Library(plan.stages, lab.results, found).get(stage.digest),
        state.Library({}, lab.results, found, locks.stages_of(locks.read_locks(lab.configs))).get(f"{stage.digest}@3"),
        state.Library({}, lab.results, found).get(stage.digest),
    ]
    assert stages[0] == stages[1] == stages[2] == stage.as_json()
    (lab.out(stage) / "stage.json").unlink()
    alone = state.Library({}, lab.results, found).get(stage.digest)
    assert alone is not None
    assert alone["spec"] == stage.as_json()["spec"]
    assert state.Library({}, lab.results, {}).get(stage.digest) is None


def test_a_source_that_a_lock_alone_names_is_known_without_its_size(lab: Lab) -> None:
    """Its folder is gone, and what was trained from it is not."""
    locked = {"0" * 12: {"kind": "source", "digest": "0" * 12, "deps": {}, "label": "sources.m"}}
    assert state.Library({}, lab.results, {}, locked).get("0" * 12) == locked["0" * 12]


def test_run_blocks_are_of_no_consequence_for_states(lab: Lab) -> None:
    stage = of_kind(lab.plan(), "rl")[0]
    other = Stage.make(stage.kind, stage.spec, stage.deps, Run(threads=2), "elsewhere")
    lab.finish(other)
    assert state.scan_results(lab.results)[stage.digest].state == "done"


def test_the_command_imports_nothing_heavy(lab: Lab) -> None:
    lab.finish_all(lab.plan())
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", "rl: {steps: 5,")
    code = (
        "import sys; from interplay import cli; assert cli.main(['plan', 'quickstart', '--scale', 'smoke']) == 0\n"
        "print([name for name in ('torch', 'transformers', 'pandas', 'numpy', 'mlflow', 'dvc', 'snakemake') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=lab.folder, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_the_power_of_each_claim_is_that_of_the_planned_bases_and_prompts_with_the_pilots_deviations() -> None:
    plan = expand.plan_study(ROOT / "configs", "demo", "laptop")
    assert plan.pilot is not None
    found = {one.claim.says: one for one in power.planned_power(plan, lambda digest: 100.0)}
    spread = Spread(0.0, 4, 80, plan.pilot["bases"] ** 2 / 4, plan.pilot["prompts"] ** 2 / 80)
    lifts = found["RL at the edge lifts the edge"]
    assert f"4 bases, finds {spread.detectable:.1f} points, power {spread.power(5):.2f}, below 0.8: needs " in lifts.said
    assert "needs 95 bases (10.56 h), exploratory" in lifts.said, "a base, RL, and two evaluations of 100 s a replicate"
    assert (lifts.power, lifts.exploratory, lifts.short) == (spread.power(5), True, False)
    keeps = found["RL at the edge keeps more of what was pre-trained than supervision does"]
    assert keeps.power is None, "a bound of 0 says nothing of the effect"
    shared = power.planned_power(expand.plan_study(ROOT / "configs", "edge", "laptop"), lambda digest: None)
    assert all("1 base, at most indicated, finds " in one.said for one in shared)


def test_a_claim_about_two_arms_of_the_same_stages_has_the_deviations_of_such_pairs() -> None:
    plan = expand.plan_study(ROOT / "configs", "methods/showdown_replication", "coffee")
    assert plan.pilot is not None
    found = {one.claim.says: one for one in power.planned_power(plan, lambda digest: None)}
    bases, prompts = plan.pilot["contenders"]
    rivals = Spread(0.0, 48, 160, bases**2 / 48, prompts**2 / 160)
    assert found["Ratios of whole sequences beat ratios of tokens"].power == rivals.power(3)
    gain = Spread(0.0, 48, 160, plan.pilot["bases"] ** 2 / 48, plan.pilot["prompts"] ** 2 / 160)
    assert found["GRPO lifts the edge"].power == gain.power(5)
    assert rivals.power(3) > 2 * gain.power(3)


def test_one_calibrated_base_shares_its_prompts_as_any_other_does() -> None:
    plan = expand.plan_study(ROOT / "configs", "interplay/edge_calibrated", "coffee", ["replicates=1"])
    said = [one.said for one in power.planned_power(plan, lambda digest: None)]
    assert said
    assert all(one.startswith("1 base, at most indicated, finds ") and "finds 0.0" not in one for one in said)


def test_a_tie_needs_both_of_its_bounds_left_out_at_the_level_of_the_looks() -> None:
    """Two one-sided tests of 5 %, as the study says (alpha 0.1): at a true difference of 0 each bound is missed on its own side."""
    plan = expand.plan_study(ROOT / "configs", "numerics/exact_factorial", "coffee")
    assert plan.pilot is not None
    found = {one.claim.test.band: one for one in power.planned_power(plan, lambda digest: None) if one.claim.test.margin}
    spread = Spread(0.0, 18, 10**6, plan.pilot["bases"] ** 2 / 18, 0.0, level=0.1)
    assert found["id"].power == pytest.approx(2 * spread.power(3) - 1)
    draws = np.random.default_rng(0).normal(0.0, plan.pilot["bases"], size=(20_000, 18))
    half = stats.t.ppf(0.95, 17) * draws.std(1, ddof=1) / np.sqrt(18)
    assert found["id"].power == pytest.approx((abs(draws.mean(1)) + half < 3).mean(), abs=0.02)
    registered = plan.stages[plan.report].spec.registration
    assert registered is not None
    assert not registered.changes
    power.refuse_short(plan, found.values())


def test_the_power_of_pass_at_32_counts_the_prompts_that_have_so_many_samples() -> None:
    plan = expand.plan_study(ROOT / "configs", "interplay/central", "laptop")
    assert plan.pilot is not None
    found = {
        one.claim.test.metric: one for one in power.planned_power(plan, lambda digest: None) if one.claim.test.band == "edge"
    }
    wide = [stage for stage in plan.stages.values() if stage.kind == "evaluate" and stage.spec.num_samples == 32]
    data = next(one for stage in wide if "edge" in (one := plan.stages[stage.deps["data"]].spec).shares)
    prompts = round(data.size * data.shares["edge"])
    spread = Spread(0.0, 24, 24 * prompts, (plan.pilot["bases"] ** 2 + plan.pilot["prompts"] ** 2 / prompts) / 24, 0.0)
    assert f"24 bases, finds {spread.detectable:.1f} points" in found["strict_pass@32"].said
    assert found["strict_pass@32"].said.partition(",")[2] != found["strict_pass@1"].said.partition(",")[2]
