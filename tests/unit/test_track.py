"""Studies in MLflow: told from the records, complete, and told only once."""

import base64
import contextlib
import dataclasses
import itertools
import json
import shutil
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lab import Lab, of_kind
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from pyarrow import parquet
from sqlalchemy import event
from sqlalchemy.engine import Engine
from tracking import dump, finish, finish_all, finish_each_kind, rows, steps, store_in, template

from interplay.cli import main
from interplay.core import artifact, metrics
from interplay.report.spec import ReportSpec
from interplay.study import expand
from interplay.track import arms, describe, live
from interplay.track.arms import MOST_HEADLINES
from interplay.track.mirror import DONE, SCORED, Mirror
from snakemake_logger_plugin_mlflow import store
from snakemake_logger_plugin_mlflow.events import Job

__all__ = ["template"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


@pytest.fixture
def uri(tmp_path: Path, template: Path) -> str:
    return store_in(tmp_path, template)


def runs(mirror: Mirror) -> dict[str, Any]:
    """Name -> run, for all runs of the study."""
    return {run.info.run_name: run for run in mirror.client.search_runs([mirror.experiment])}


ARMS = {"base", "rl_edge", "rl_hard"}
"""Of the quickstart: each has a run."""


def test_a_study_has_a_run_for_the_plan_and_for_every_arm_with_its_stages_below(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    mirror = Mirror(plan, lab.results, uri)
    assert set(mirror.everything().values()) == {"FINISHED"}
    told = runs(mirror)
    assert {run.info.status for run in told.values()} == {"FINISHED"}
    parent, ofarms = told.pop("quickstart at smoke"), {name: told.pop(name) for name in ARMS}
    assert len(told) == len(plan.stages)
    assert not any("mlflow.parentRunId" in run.data.tags for run in [parent, *ofarms.values()])
    for name, run in told.items():
        above = ofarms.get(name.partition("/")[0], parent)
        assert run.data.tags["mlflow.parentRunId"] == above.info.run_id, name
    evaluation = told["rl_edge/eval@0"]
    assert evaluation.data.params["arm"] == "rl_edge"
    assert evaluation.data.params["path"] == "base > rl > eval"
    assert evaluation.data.params["spec.temperature"] == "1.0"
    assert evaluation.data.metrics["edge/strict_pass_at_8"] == 0.5
    assert evaluation.info.end_time - evaluation.info.start_time == 60_000
    assert parent.data.tags["claim.01"] == "supported: It does."
    assert parent.data.metrics["claims/supported"] == 1
    assert {item.path for item in mirror.client.list_artifacts(parent.info.run_id)} == {"tables", "plan.json"}
    assert evaluation.data.metrics["system/tokens_per_second"] == 5.0
    assert not any(key.startswith(("telemetry", "benchmark")) for key in evaluation.data.metrics)
    for run in [parent, evaluation, *ofarms.values()]:
        assert run.data.tags["mlflow.user"] == lab.results.owner()
        assert run.data.tags["mlflow.source.name"] == "configs/study/quickstart.yaml"
    assert "spec.json" in {item.path for item in mirror.client.list_artifacts(evaluation.info.run_id)}


def test_the_run_of_an_arm_has_its_configuration_and_its_scores_over_replicates(lab: Lab, uri: str) -> None:
    lab.edit("study/quickstart.yaml", "seeds: {values: [0]", "seeds: {values: [0, 1]")
    plan = lab.plan()
    evaluations = [stage for stage in of_kind(plan, "evaluate") if stage.label.startswith("rl_hard/")]
    for stage in plan.stages.values():
        finish(lab, stage)
    for stage, score in zip(evaluations, (0.25, 0.75), strict=True):
        artifact.finish(lab.out(stage), stage.identity(), {"band": {"edge": {"strict_pass@1": score}}})
    (lab.out(plan.stages[plan.report]) / "record.json").unlink()
    mirror = Mirror(plan, lab.results, uri)
    mirror.everything()
    arm = runs(mirror)["rl_hard"]
    assert (arm.info.status, arm.data.params["path"], arm.data.params["seeds"]) == ("FINISHED", "base > rl", "0, 1")
    assert (arm.data.params["rl.data"], arm.data.params["rl.steps"]) == ("problems/hard", "4")
    assert arm.data.metrics["edge strict_pass_at_1"] == 0.5
    assert arm.data.metrics["cost/tokens"] > 64

    cells = {"main": {"rl_hard/edge/strict_pass@1": [0.5, 0.2, 0.8]}}
    artifact.finish(lab.out(plan.stages[plan.report]), plan.stages[plan.report].identity(), {"claims": [], "tables": cells})
    Mirror(plan, lab.results, uri).everything()
    arm = runs(mirror)["rl_hard"]
    assert arm.data.metrics["interval/edge strict_pass_at_1 high"] == 0.8
    assert "| edge strict_pass@1 | 0.5 | 0.2 to 0.8 |" in arm.data.tags["mlflow.note.content"]
    assert len([key for key in arm.data.metrics if "/" not in key]) <= MOST_HEADLINES


def test_an_arm_of_an_earlier_plan_goes_below_that_plan(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    old = Mirror(plan, lab.results, uri)
    old.everything()
    lab.edit("study/quickstart.yaml", "set: {rl.data: {hard: 1.0}}", "set: {rl.data: {hard: 1.0}, rl.steps: 1}")
    plan = lab.plan()
    finish_all(lab, plan)
    Mirror(plan, lab.results, uri).everything()
    two = [run for run in old.client.search_runs([old.experiment]) if run.info.run_name == "rl_hard"]
    assert {run.data.tags.get("mlflow.parentRunId") for run in two} == {None, old.parent.info.run_id}


def test_an_arm_whose_stages_were_removed_from_disk_stays_as_it_was_reported(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    Mirror(plan, lab.results, uri).everything()
    for kind in ("pretrain", "rl", "evaluate", "report"):
        for stage in of_kind(plan, kind):
            shutil.rmtree(lab.out(stage))
    mirror = Mirror(plan, lab.results, uri)
    mirror.everything()
    assert {runs(mirror)[arm].info.status for arm in ARMS} == {"FINISHED"}


def test_saved_views_select_arms_and_curves_of_the_plan(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    mirror = Mirror(plan, lab.results, uri)
    mirror.everything()
    tags = mirror.client.get_experiment(mirror.experiment).tags
    kept = {key.removeprefix(arms.TAG): json.loads(value) for key, value in tags.items() if key.startswith(arms.TAG)}
    assert [kept[f"smoke-{name}"]["name"] for name in ("scores", "curves", "cost")] == [
        "Scores by arm (smoke)",
        "Learning curves (smoke)",
        "Cost by arm (smoke)",
    ]
    states = {key: json.loads(zlib.decompress(base64.b64decode(value["state"][8:]))) for key, value in kept.items()}
    chosen = {
        key: {run.info.run_name for run in mirror.client.search_runs([mirror.experiment], state["searchFilter"])}
        for key, state in states.items()
    }
    assert chosen["smoke-scores"] == chosen["smoke-cost"] == ARMS
    assert chosen["smoke-curves"] == {"base/base@0", "rl_edge/rl@0", "rl_hard/rl@0"}
    assert "metrics.`edge strict_pass_at_1`" in states["smoke-scores"]["selectedColumns"]
    assert states["smoke-curves"]["compareRunCharts"][0]["selectedMetricKeys"] == ["reward"]
    scores, curves, cost = (live.address("http://127.0.0.1:5999/", "7", view) for view in arms.study_views(plan))
    assert scores.startswith(
        "http://127.0.0.1:5999/#/experiments/7/runs?workflowType=machine_learning&viewStateShareKey=smoke-scores"
    )
    assert (curves[-5:], cost[-5:]) == ("CHART", "TABLE")


def test_the_views_are_links_above_the_runs_and_a_note_of_ones_own_is_kept(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    mirror = Mirror(plan, lab.results, uri)
    mirror.everything()

    def note(text: str | None = None) -> str:
        if text is not None:
            mirror.client.set_experiment_tag(mirror.experiment, arms.NOTE, text)
        mirror.write_views()
        return mirror.client.get_experiment(mirror.experiment).tags[arms.NOTE]

    links = note()
    path = f"#/experiments/{mirror.experiment}/runs?workflowType=machine_learning"
    assert links.startswith(f"[Scores by arm (smoke)]({path}&viewStateShareKey=smoke-scores&compareRunsMode=TABLE) · [Learning")
    assert "\n" not in links
    other = arms.study_views(plan)[0]._replace(key="laptop-scores", name="Scores by arm (laptop)")
    arms.write_views(mirror.client, mirror.experiment, [other], 1)
    both = note()
    assert both.startswith(links)
    assert "[Scores by arm (laptop)]" in both
    assert note(f"{links}\n\nRead this first.") == f"{links}\n\nRead this first."
    assert note("Mine.") == "Mine."


def test_curves_without_a_prefix_are_few(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    stage = of_kind(plan, "rl")[0]
    out = lab.start(stage)
    (out / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5, "groups": 16.0, "reward/outcome": 0.5}\n')
    artifact.finish(out, stage.identity(), {"reward_last": 0.5})
    mirror = Mirror(plan, lab.results, uri)
    found = {key for key in mirror.client.get_run(mirror.stage(stage.digest).info.run_id).data.metrics if "system/" not in key}
    assert found == {"reward", "detail/groups", "reward/outcome", "final/reward_last"}
    assert len(describe.HEADLINES) <= MOST_HEADLINES


def test_completions_of_an_evaluation_are_a_table(lab: Lab, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # MLflow reads a table by its global address
    plan = lab.plan()
    stage = of_kind(plan, "evaluate")[0]
    data = plan.stages[stage.deps["data"]]
    for one in (data, stage):
        lab.start(one)
    parquet.write_table(
        pa.table({"index": [3, 4], "prompt": ["1+1", "1+2"], "answer": ["two", "three"]}), lab.out(data) / "problems.parquet"
    )
    row = {"index": [4, 4], "strict": [True, False], "completion": ["=3", "=4"], "error": ["none", "value"]}
    parquet.write_table(pa.table(row), lab.out(stage) / "samples.parquet")
    finish(lab, stage)
    mirror = Mirror(plan, lab.results, uri)
    run = mirror.stage(stage.digest)
    table = mirror.client.load_table(mirror.experiment, "rollouts.json", [run.info.run_id])
    assert table.to_dict("records") == [
        {"prompt": "1+2", "gold": "three", "completion": "=3", "strict": True, "error": "none"},
        {"prompt": "1+2", "gold": "three", "completion": "=4", "strict": False, "error": "value"},
    ]


def test_arms_that_sweep_a_number_with_a_point_are_told_whole(lab: Lab, uri: str) -> None:
    swept = "  swept: {path: [base, rl], grid: {rl.optimizer.learning_rate: [0.0003, 0.003]}}\n"
    lab.edit("study/quickstart.yaml", "evaluate: [eval]", f"{swept}evaluate: [eval]")
    plan = lab.plan()
    finish_all(lab, plan)
    mirror = Mirror(plan, lab.results, uri)
    assert set(mirror.everything().values()) == {"FINISHED"}
    swept = runs(mirror)["swept[learning_rate=0.0003]/eval@0"].data.params
    assert (swept["group"], swept["axis.learning_rate"]) == ("swept", "0.0003")
    names = {model.name for model in mirror.client.search_logged_models([mirror.experiment])}
    assert "swept[learning_rate=0·0003] rl@0" in names


def test_a_second_sync_changes_nothing_at_all(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    Mirror(plan, lab.results, uri).everything()
    before = dump(uri)
    Mirror(plan, lab.results, uri).everything()
    assert dump(uri) == before


def test_a_sync_that_was_killed_is_completed_without_doubling_anything(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    mirror = Mirror(plan, lab.results, uri)
    mirror.everything()
    before = rows(uri)
    for run in mirror.client.search_runs([mirror.experiment]):
        mirror.client.delete_tag(run.info.run_id, SCORED if "arm.digest" in run.data.tags else DONE)
    Mirror(plan, lab.results, uri).everything()
    assert rows(uri) == before


@pytest.mark.parametrize(
    ("committed", "answered"),
    [
        ("at once", False),
        ("call by call", True),
        pytest.param("at once", True, marks=pytest.mark.slow),
        pytest.param("call by call", False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("create_run", 1),
        *[("log_batch", number) for number in range(1, 5)],
        ("create_logged_model", 1),
        ("log_outputs", 1),
        ("finalize_logged_model", 2),
        ("set_terminated", 2),
    ],
)
def test_a_write_that_fails_leaves_nothing_out_for_good(
    call: str,
    number: int,
    answered: bool,
    committed: str,
    lab: Lab,
    uri: str,
    whole: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the store was not reached, or did what it was asked and its answer was lost. A server commits call by call."""
    if committed == "call by call":
        monkeypatch.setattr(store, "transaction", contextlib.nullcontext)
    plan = lab.plan()
    finish_each_kind(lab, plan)
    real, calls = getattr(MlflowClient, call), itertools.count(1)

    def write(*given: Any, **named: Any) -> Any:
        if next(calls) != number:
            return real(*given, **named)
        if answered:
            real(*given, **named)
        raise ConnectionError("the store is gone")

    with monkeypatch.context() as failing:
        failing.setattr(MlflowClient, call, write)
        with pytest.raises(ConnectionError):
            Mirror(plan, lab.results, uri).everything()
    mirror = Mirror(plan, lab.results, uri)
    mirror.everything()
    assert rows(uri) == whole
    assert all(run.data.params for run in mirror.client.search_runs([mirror.experiment]))
    assert all(str(model.status) == "READY" for model in mirror.client.search_logged_models([mirror.experiment]))


def test_a_study_is_written_in_a_few_transactions(lab: Lab, uri: str) -> None:
    """Each commit waits for the disk: several a stage would take minutes for a study of thousands."""
    plan = lab.plan()
    finish_all(lab, plan)
    commits = []
    count: Callable[[Any], None] = commits.append
    event.listen(Engine, "commit", count)
    try:
        mirror = Mirror(plan, lab.results, uri)
        before = len(commits)
        mirror.everything()
        assert set(mirror.everything().values()) == {"FINISHED"}
    finally:
        event.remove(Engine, "commit", count)
    assert 0 < len(commits) - before < len(plan.stages)


def test_a_transaction_that_fails_leaves_the_store_as_it_was_and_usable(lab: Lab, uri: str) -> None:
    client = store.connect(uri)
    experiment = store.experiment(client, uri, "toy")
    kept = client.create_run(experiment)
    before = dump(uri)

    def write_and_fail() -> None:
        with store.transaction(client):
            client.log_batch(kept.info.run_id, [Metric("loss", 1.0, 1, 1)], [Param("kind", "rl")], [RunTag("a", "b")])
            assert client.get_run(kept.info.run_id).data.metrics == {"loss": 1.0}
            client.create_run(experiment)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        write_and_fail()
    assert dump(uri) == before
    client.set_tag(kept.info.run_id, "a", "c")
    assert client.get_run(kept.info.run_id).data.tags["a"] == "c"


def test_points_that_a_store_has_already_are_left_out_of_a_transaction(lab: Lab, uri: str) -> None:
    """MLflow tries to write them, fails, and writes the others: the failure must not take with it what was written before."""
    client = store.connect(uri)
    run = client.create_run(store.experiment(client, uri, "toy")).info.run_id
    points = [Metric("loss", 1.0 / step, step, step) for step in range(1, 5)]
    client.log_batch(run, points[:2])
    with store.transaction(client):
        client.log_batch(run, params=[Param("kind", "rl")])
        client.log_batch(run, points, tags=[RunTag("a", "b")])
    assert [point.step for point in client.get_metric_history(run, "loss")] == [1, 2, 3, 4]
    assert client.get_run(run).data.params == {"kind": "rl"}
    assert client.get_run(run).data.tags["a"] == "b"


def test_a_run_of_more_points_than_a_batch_holds_arrives_whole(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    [stage] = of_kind(plan, "pretrain")
    out = lab.start(stage)
    steps(out, 2500)
    artifact.finish(out, stage.identity(), {"steps": 2500})
    mirror = Mirror(plan, lab.results, uri)
    run = mirror.stage(stage.digest)
    assert [point.step for point in mirror.client.get_metric_history(run.info.run_id, "loss")] == list(range(1, 2501))
    assert DONE in mirror.client.get_run(run.info.run_id).data.tags


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Counter[str]:
    """Table -> number of rows, after a sync that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    lab, uri = Lab(folder), store_in(folder, template)
    plan = lab.plan()
    finish_each_kind(lab, plan)
    Mirror(plan, lab.results, uri).everything()
    return rows(uri)


def test_parameters_that_a_finished_run_lacks_are_told_by_the_next_sync(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    Mirror(plan, lab.results, uri).everything()
    before = dump(uri)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as connection:
        connection.execute("DELETE FROM params")
    Mirror(plan, lab.results, uri).everything()
    assert sorted(dump(uri)) == sorted(before)


def test_steps_appear_while_a_stage_runs_and_none_twice_after_a_resume(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    [stage] = of_kind(plan, "pretrain")
    out = lab.start(stage)
    steps(out, 3)
    mirror = Mirror(plan, lab.results, uri)
    run = mirror.stage(stage.digest, describe.Found("RUNNING"))
    assert [point.step for point in mirror.client.get_metric_history(run.info.run_id, "loss")] == [1, 2, 3]
    steps(out, 2)  # killed and resumed: the third step is made again
    later = Mirror(plan, lab.results, uri)
    later.stage(stage.digest, describe.Found("RUNNING"))
    finish(lab, stage)
    later.stage(stage.digest)
    history = later.client.get_metric_history(run.info.run_id, "loss")
    assert [point.step for point in history] == [1, 2, 3, 4]
    assert [point.value for point in history] == [1, 1 / 2, 1 / 3, 1 / 4]
    assert sorted(point.timestamp for point in history) == [point.timestamp for point in history]


def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert metrics.read(tmp_path) == [{"step": 1, "loss": 2.0}]


def test_the_state_of_a_run_is_that_of_its_stage(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    failing, stopped = of_kind(plan, "rl")
    out = lab.start(failing)
    (out / "failure.json").write_text('{"message": "loss is not finite at step 3"}')
    out = lab.start(stopped)
    (out / "telemetry.json").write_text('{"attempts": 1}')
    mirror = Mirror(plan, lab.results, uri)
    assert mirror.everything() == {failing.digest: "FAILED", stopped.digest: "KILLED"}
    told = mirror.client.search_runs([mirror.experiment])
    assert {run.info.run_name: run.info.status for run in told} == {
        "quickstart at smoke": "FAILED",
        "rl_edge": "FAILED",
        "rl_edge/rl@0": "FAILED",
        "rl_hard": "KILLED",
        "rl_hard/rl@0": "KILLED",
    }
    failed = next(run for run in told if run.info.run_name == "rl_edge/rl@0")
    assert failed.data.tags["message"] == "loss is not finite at step 3"
    assert failed.data.tags["mlflow.note.content"].startswith("**Failed:** loss is not finite at step 3")
    (out.parent / failing.digest / "failure.json").unlink()
    finish_all(lab, plan)
    mirror.everything()
    again = mirror.client.get_run(failed.info.run_id)
    assert (again.info.status, again.data.tags["message"]) == ("FINISHED", "")
    assert "Failed" not in again.data.tags["mlflow.note.content"]


def test_a_failure_that_only_the_log_tells_is_a_failure_and_a_stop_by_signal_is_none(tmp_path: Path) -> None:
    out, log = tmp_path / "results" / "rl" / "0", tmp_path / "logs" / "rl" / "0.log"
    for folder in (out, log.parent):
        folder.mkdir(parents=True)
    (out / "telemetry.json").write_text("{}")
    log.write_text("a/rl@0 [rl 0]\nTraceback (most recent call last):\n  File\nValueError: no\n")
    assert describe.look_at_stage(tmp_path / "results", "rl", "0") == ("FAILED", "ValueError: no")
    log.write_text(log.read_text() + "a/rl@0 [rl 0]\ninterplay: stopped at step 3 of 9; goes on when started again\n")
    assert describe.look_at_stage(tmp_path / "results", "rl", "0").status == "KILLED"
    log.write_text(log.read_text() + "a/rl@0 [rl 0]\n4/9 steps, 1/s, 5 s left\n")
    assert describe.look_at_stage(tmp_path / "results", "rl", "0").status == "KILLED"


def test_an_evaluation_leads_to_its_model_and_that_to_its_data(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    mirror = Mirror(plan, lab.results, uri)
    mirror.everything()
    evaluation = mirror.client.get_run(runs(mirror)["rl_edge/eval@0"].info.run_id)
    [dataset] = evaluation.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.tags[0].value) == ("problems/test", "evaluation")
    [given] = evaluation.inputs.model_inputs
    model = mirror.client.get_logged_model(given.model_id)
    assert model.tags["path"].endswith("/model")
    assert {metric.key: metric.value for metric in model.metrics}["edge/strict_pass_at_1"] == 0.25
    maker = mirror.client.get_run(model.source_run_id)
    assert maker.info.run_name == "rl_edge/rl@0"
    assert [item.dataset.name for item in maker.inputs.dataset_inputs] == ["problems/edge"]
    base = mirror.client.get_run(mirror.client.get_logged_model(maker.inputs.model_inputs[0].model_id).source_run_id)
    assert base.info.run_name == "base/base@0"
    assert "problems/corpus" in [item.dataset.name for item in base.inputs.dataset_inputs]


def test_a_stage_made_by_another_study_stands_in_this_one_too(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    Mirror(plan, lab.results, uri).everything()
    other = Mirror(dataclasses.replace(plan, study="other"), lab.results, uri)
    other.everything()
    assert len(runs(other)) == len(plan.stages) + len(ARMS) + 1


def test_a_changed_plan_takes_over_the_runs_of_the_stages_it_keeps(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    old = Mirror(plan, lab.results, uri)
    old.everything()
    spec = plan.stages[plan.report].spec
    assert isinstance(spec, ReportSpec)
    lab.edit("study/quickstart.yaml", spec.question, "Is it so?")
    new = Mirror(lab.plan(), lab.results, uri)
    new.everything()
    told = new.client.search_runs([new.experiment])
    assert len(told) == len(plan.stages) + len(ARMS) + 2  # another run of the plan; the new report is not made
    kept = next(run for run in told if run.info.run_name == "problems/test")
    assert kept.data.tags["mlflow.parentRunId"] == new.parent.info.run_id
    assert {run.data.tags["plan"] for run in told if run.info.run_name in ARMS} == {new.plan.report}
    assert new.client.get_run(old.parent.info.run_id).data.tags["superseded.by"] == new.plan.report


def test_what_is_mirrored_is_remembered_until_something_changes(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    assert not live.is_mirrored(plan, lab.results, uri)
    live.mark_mirrored(plan, lab.results, uri, Mirror(plan, lab.results, uri).everything(), "1")
    assert live.is_mirrored(plan, lab.results, uri)
    assert not live.is_mirrored(plan, lab.results, "https://user:word@example.org")
    assert "store.db" not in (lab.results / live.NAME).read_text()
    [stage] = of_kind(plan, "pretrain")
    (lab.out(stage) / "record.json").unlink()
    assert not live.is_mirrored(plan, lab.results, uri)


def test_a_store_out_of_reach_costs_one_line_and_no_time(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    tracking = live.Live([plan, plan], lab.results, "http://me:secret@127.0.0.1:9")
    tracking.finish()
    tracking.finish()
    [line] = capsys.readouterr().err.splitlines()
    assert "interplay track sync" in line
    assert "http://127.0.0.1:9" in line
    assert "secret" not in line


def test_a_job_that_is_heard_of_after_the_end_does_not_leave_its_study_running(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    finish_all(lab, plan)
    live.mark_mirrored(plan, lab.results, uri, Mirror(plan, lab.results, uri).everything(), "1")
    tracking = live.Live([plan], lab.results, uri)
    job = Job(1, "report", {"digest": plan.report}, 1, {}, [], None, submitted=1.0)
    tracking.update(job)
    mirror = tracking.mirror(plan)
    assert mirror.client.get_run(mirror.parent.info.run_id).info.status == "RUNNING"
    tracking.finish()
    tracking.update(job)
    assert {run.info.status for run in runs(mirror).values()} == {"FINISHED"}
    assert live.is_mirrored(plan, lab.results, uri)


def test_what_a_killed_snakemake_left_running_is_closed_and_what_runs_is_followed(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    [stage] = of_kind(plan, "pretrain")
    gone, _ = of_kind(plan, "rl")
    for begun in (stage, gone):
        Mirror(plan, lab.results, uri).stage(begun.digest, describe.Found("RUNNING"))
        (lab.start(begun) / "telemetry.json").write_text('{"attempts": 1}')
    tracking = live.Live([plan], lab.results, uri)
    with artifact.lease(lab.out(stage)):
        mirror = tracking.mirror(plan)
        told = runs(mirror)
        assert [told[name].info.status for name in ("rl_edge/rl@0", "base/base@0")] == ["KILLED", "RUNNING"]
        steps(lab.out(stage), 2)
        tracking.tick()
        assert len(mirror.client.get_metric_history(told["base/base@0"].info.run_id, "loss")) == 2
        tracking.finish()
    told = runs(mirror)
    assert told["base/base@0"].info.status == told["quickstart at smoke"].info.status == "RUNNING"
    live.Live([plan], lab.results, uri).finish()
    assert {run.info.status for run in runs(mirror).values()} == {"KILLED"}


def test_a_killed_job_fails_its_arm_and_study_and_all_three_run_when_it_is_started_again(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    stage, _ = of_kind(plan, "rl")
    (lab.start(stage) / "telemetry.json").write_text('{"attempts": 1}')
    for _ in range(2):
        tracking = live.Live([plan], lab.results, uri)
        job = Job(1, "rl", {"digest": stage.digest}, 1, {}, [], None, submitted=1.0)
        tracking.update(job)
        mirror = tracking.mirror(plan)
        assert [run.info.status for run in runs(mirror).values()] == ["RUNNING"] * 3
        job.status, job.failures = "FAILED", ["attempt 1: died with <Signals.SIGKILL: 9>"]
        tracking.update(job)
        tracking.finish()
        assert [run.info.status for run in runs(mirror).values()] == ["FAILED"] * 3


def test_two_snakemakes_at_once_make_each_run_once(lab: Lab, uri: str) -> None:
    plan = lab.plan()
    one, other = (live.Live([plan], lab.results, uri) for _ in range(2))
    job = Job(1, "corpus", {"digest": of_kind(plan, "corpus")[0].digest}, 1, {}, [], None, submitted=1.0)
    one.tick()
    other.update(job)
    one.update(job)
    finish_all(lab, plan)
    for tracking in (other, one):
        job.status, job.ended = "FINISHED", 2.0
        tracking.update(job)
        tracking.finish()
    mirror = one.mirror(plan)
    assert len(mirror.client.search_runs([mirror.experiment])) == len(plan.stages) + len(ARMS) + 1
    models = mirror.client.search_logged_models([mirror.experiment])
    assert len({model.tags["stage.digest"] for model in models}) == len(models)


def test_a_stage_that_a_signal_stopped_is_no_failure(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    job = Job(1, "rl", {}, 1, {}, [str(log)], None, submitted=1.0, status="FAILED", failures=["attempt 1: died"])
    assert live.reported_state(job) == ("FAILED", "attempt 1: died")
    log.write_text("interplay: stopped at step 3 of 9; goes on when started again\n")
    assert live.reported_state(job).status == "KILLED"


def test_sync_says_what_it_told_and_refuses_what_is_not_there(lab: Lab, uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["track", "sync", "quickstart", "--scale", "smoke", "--to", uri]) == 2
    assert "has nothing of study quickstart" in capsys.readouterr().err
    finish_all(lab, lab.plan())
    assert main(["track", "sync", "--all", "--to", uri]) == 0
    assert "quickstart at smoke: 14 FINISHED" in capsys.readouterr().out
    assert main(["track", "sync", "quickstart", "--scale", "smoke", "--to", "sqlite:////nowhere/at/all.db"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_sync_of_all_neither_plans_nor_mirrors_studies_that_were_never_launched(
    lab: Lab, uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study edge shares its base and problems with quickstart."""
    finish_all(lab, lab.plan())
    assert set(lab.plan("edge").stages) & set(lab.plan().stages)
    plan, planned = expand.plan_study, list[tuple[str, str]]()
    monkeypatch.setattr(expand, "plan_study", lambda *given, **more: planned.append(given[1:3]) or plan(*given, **more))
    assert main(["track", "sync", "--all", "--to", uri]) == 0
    assert planned == [("quickstart", "smoke")]
    said = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if not line.startswith("mlflow: ")]
    assert said == ["quickstart at smoke"]
    client = MlflowClient(uri)
    assert {one.name for one in client.search_experiments()} <= {"Default", "quickstart"}


def test_axes_of_an_arm_are_read_from_its_name() -> None:
    assert describe.arm_axes("rl[lr=0.1,mix=[0.5,0.5],name=a b]") == {"lr": "0.1", "mix": "[0.5,0.5]", "name": "a b"}
    assert describe.arm_axes("rl") == {}
