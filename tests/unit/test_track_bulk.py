"""Rows that are inserted in bulk are those that MLflow's own store writes."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, of_kind
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from tracking import finish_all, rows, store_in, template

from interplay.core import artifact
from interplay.track import describe
from interplay.track.mirror import Mirror
from snakemake_logger_plugin_mlflow import bulk, store

__all__ = ["template"]


def logged_in(uri: str) -> dict[str, Any]:
    """All that the client reads of a store's runs and models, by name: ids are drawn anew each time."""
    client = MlflowClient(uri)
    experiments = client.search_experiments()
    found = [run for one in experiments for run in client.search_runs([one.experiment_id], max_results=500)]
    models = [model for one in experiments for model in client.search_logged_models([one.experiment_id], max_results=500)]
    names = {run.info.run_id: run.info.run_name for run in found} | {model.model_id: model.name for model in models}

    def of_run(run: Any) -> dict[str, Any]:
        run = client.get_run(run.info.run_id)
        info = {key: value for key, value in dict(run.info).items() if key not in ("run_id", "run_uuid", "artifact_uri")}
        history = {
            key: [(point.step, point.timestamp, str(point.value)) for point in client.get_metric_history(run.info.run_id, key)]
            for key in run.data.metrics
        }
        tags = {key: names.get(value, value) for key, value in run.data.tags.items()}
        given = sorted((str(dict(one.dataset)), str([dict(tag) for tag in one.tags])) for one in run.inputs.dataset_inputs)
        taken = sorted(names[one.model_id] for one in run.inputs.model_inputs)
        made = sorted((names[one.model_id], one.step) for one in run.outputs.model_outputs)
        last = {key: str(value) for key, value in run.data.metrics.items()}
        assert run.info.artifact_uri.endswith(f"/{run.info.run_id}/artifacts")
        return {"info": info, "params": run.data.params, "tags": tags, "last": last, "points": history} | {
            "data": given,
            "models": (taken, made),
        }

    def of_model(model: Any) -> tuple[Any, ...]:
        points = [(one.key, one.value, one.step, one.timestamp, names[one.run_id]) for one in model.metrics or []]
        of = sorted(
            (*point, one.dataset_name, one.dataset_digest) for point, one in zip(points, model.metrics or [], strict=True)
        )
        assert model.artifact_location.endswith(f"/models/{model.model_id}/artifacts")
        return names[model.source_run_id], model.model_type, str(model.status), model.params, model.tags, of

    return {run.info.run_name: of_run(run) for run in found} | {f"model {model.name}": of_model(model) for model in models}


def both_ways(
    write: Callable[[str], Any], folder: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], dict[str, Any], list[Counter[str]]]:
    """What the client reads of two stores, of which the second was written by the calls of MLflow's own store, and their rows."""
    uris = []
    for name, fits in (("rows", True), ("calls", False)):
        (folder / name).mkdir()
        uris.append(store_in(folder / name, template))
        with monkeypatch.context() as chosen:
            if not fits:
                chosen.setattr(bulk, "fits", lambda database: False)
            write(uris[-1])
    return logged_in(uris[0]), logged_in(uris[1]), [rows(uri) for uri in uris]


def test_rows_that_are_inserted_in_bulk_are_those_of_mlflows_own_calls(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path)
    lab.edit("study/quickstart.yaml", "seeds: {values: [0]", "seeds: {values: [0, 1]")
    plan = lab.plan()
    finish_all(lab, plan)
    failed, stopped = of_kind(plan, "evaluate")[:2]
    for stage, message in ((failed, "out of memory"), (stopped, "")):
        (lab.out(stage) / "record.json").unlink()
        if message:
            artifact.write_json(lab.out(stage) / "failure.json", {"message": message})
    moment = max(describe.stage_times(lab.out(stage))[1] for stage in plan.stages.values()) / 1000 + 1
    monkeypatch.setattr("interplay.track.mirror.time.time", lambda: moment)
    in_bulk, by_calls, counts = both_ways(
        lambda uri: Mirror(plan, lab.results, uri).everything(), tmp_path, template, monkeypatch
    )
    assert len(in_bulk) > len(plan.stages)
    assert {one["info"]["status"] for name, one in in_bulk.items() if isinstance(one, dict)} > {"FINISHED", "KILLED"}
    assert in_bulk == by_calls
    assert counts[0] == counts[1]


def test_values_that_mlflow_changes_or_refuses_are_changed_and_refused_in_bulk(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    def write(uri: str) -> None:
        client = store.connect(uri)
        experiment = store.experiment(client, uri, "toy")
        with store.transaction(client):
            run = client.create_run(experiment, 1, {"a": "b"}, "odd").info.run_id
            points = [Metric("loss", value, 5, 2) for value in (float("nan"), 1.0, 1.0, -2.0)]
            client.log_batch(
                run, [*points, Metric("loss", float("-inf"), 1, 3), Metric("loss", 7.0, 9, 1)], [Param("p", "q" * 9000)]
            )
            client.log_batch(run, [Metric("loss", float("inf"), 1, 3)], [Param("p", "q" * 6000)], [RunTag("a", "c" * 9000)])
            client.set_terminated(run, "FAILED", 12)
            client.set_tag(run, "later", "seen")
            client.log_batch(run, points, tags=[RunTag("mlflow.runName", "renamed")])
        for wrong in ({"params": [Param("p", "other")]}, {"metrics": [Metric("a;b", 1.0, 1, 1)]}, {"tags": [RunTag("a;b", "x")]}):
            with store.transaction(client):
                fresh = client.create_run(experiment, 2, {}, f"fresh {len(wrong)}").info.run_id
                client.log_batch(fresh, params=[Param("p", "q")])
                with pytest.raises(Exception, match=r".") as found:
                    client.log_batch(fresh, **{"metrics": (), "params": (), "tags": (), **wrong})
                refused.append(re.sub(r"[0-9a-f]{32}", "", str(found.value)))

    in_bulk, by_calls, counts = both_ways(write, tmp_path, template, monkeypatch)
    assert in_bulk["renamed"]["tags"]["later"] == "seen"
    assert in_bulk == by_calls
    assert counts[0] == counts[1]
    assert refused[:3] == refused[3:]


def test_a_store_of_other_tables_is_written_by_its_own_calls(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = store_in(tmp_path, template)
    client = store.connect(uri)
    database: Any = client._tracking_client.store
    assert bulk.fits(database)
    monkeypatch.setitem(bulk.COLUMNS, "SqlRun", bulk.COLUMNS["SqlRun"] + " further")
    assert not bulk.fits(database)
    experiment = store.experiment(client, uri, "toy")
    with store.transaction(client):
        run = client.create_run(experiment, run_name="one").info.run_id
        client.log_batch(run, [Metric("loss", 1.0, 1, 1)])
    assert client.get_run(run).data.metrics == {"loss": 1.0}
