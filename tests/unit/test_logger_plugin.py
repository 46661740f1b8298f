"""The Snakemake logger plugin without Snakemake: from log records to runs."""

import logging
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
from tracking import dump, store_in, template

from snakemake_logger_plugin_mlflow import LogHandler, LogHandlerSettings, events, sink, store
from snakemake_logger_plugin_mlflow.events import Board, Job, Reader
from snakemake_logger_plugin_mlflow.worker import Worker

__all__ = ["template"]


def record(event: str, text: str = "", created: float = 100.0, **facts: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"event": event, "msg": text, **facts})
    made.created = created
    return made


def submitted(jobid: int = 1, command: str | None = "make it", created: float = 100.0, **facts: Any) -> logging.LogRecord:
    given = {"rule_name": "make", "wildcards": {"sample": "a"}, "threads": 2, "output": ["out"], "log": [], "benchmark": None}
    given |= {"resources": {"_cores": 2, "tmpdir": "/x", "mem_mb": 50}, "shellcmd": command}
    return record("job_info", created=created, jobid=jobid, **{**given, **facts})


def failed(jobid: int = 1, command: str = "make it", log: list[str] | None = None, created: float = 103.0) -> logging.LogRecord:
    return record("job_error", created=created, jobid=jobid, shellcmd=command, log=log or [], rule_msg=None, aux={})


def board(*records: logging.LogRecord) -> Board:
    reader, found = Reader(), Board()
    for item in records:
        event = reader.read(item)
        if event is not None:
            found.take(event)
    return found


def test_a_job_that_failed_runs_again_and_keeps_its_failure(tmp_path: Path) -> None:
    log = tmp_path / "make.log"
    log.write_text("working\nno such file\n\n")
    told = board(submitted(), record("error", "Command 'make it' returned non-zero exit status 3.", exception="RuleException"))
    assert told.jobs[1].status == "RUNNING"
    told = board(
        submitted(),
        record("error", "Command 'make it' returned non-zero exit status 3.", exception="RuleException"),
        failed(log=[str(log)]),
    )
    assert told.jobs[1].status == "FAILED"
    assert told.outcome() == "FAILED"
    told = board(submitted(), failed(log=[str(log)]), submitted(created=110), record("job_finished", job_id=1, created=112))
    job = told.jobs[1]
    assert (job.status, job.attempt, job.submitted, job.ended) == ("FINISHED", 2, 110, 112)
    assert job.failures == ["attempt 1: no such file"]
    assert told.outcome() == "FINISHED"


def test_each_failure_is_told_how_its_own_command_ended() -> None:
    told = board(
        submitted(1, "first"),
        submitted(2, "second"),
        record("error", "Command 'set -e; first' died with <Signals.SIGKILL: 9>.", exception="RuleException"),
        record("error", "Command 'set -e; second' returned non-zero exit status 2.", exception="RuleException"),
        failed(1, "first"),
        failed(2, "second"),
    )
    assert told.jobs[1].failures == ["attempt 1: died with <Signals.SIGKILL: 9>"]
    assert told.jobs[2].failures == ["attempt 1: returned non-zero exit status 2"]


def test_missing_output_fails_a_job_and_a_target_rule_is_none() -> None:
    text = "MissingOutputException in rule make:\nJob 1  completed successfully, but some output files are missing. out"
    told = board(
        submitted(),
        submitted(7, None, rule_name="all", output=[]),
        record("error", text, exception="MissingOutputException"),
    )
    assert {number: job.status for number, job in told.jobs.items()} == {1: "FAILED"}


def test_what_still_runs_when_snakemake_ends_was_killed() -> None:
    told = board(submitted(1), submitted(2), record("job_finished", job_id=2))
    told.stop(200.0)
    assert [job.status for job in told.jobs.values()] == ["KILLED", "FINISHED"]
    assert told.outcome() == "KILLED"


def test_benchmarks_are_read_in_both_formats_without_what_was_not_measured(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("s\th:m:s\tmax_rss\tmean_load\n1.5\t0:00:01\tNA\t50.0\n2.5\t0:00:02\t8.0\t-\n")
    (tmp_path / "a.jsonl").write_text('{"s": 4.0, "h:m:s": "0:00:04", "max_rss": "NA"}\n')
    rows = events.read_benchmark(str(tmp_path / "a.tsv"))
    assert rows == [{"s": 1.5, "mean_load": 50.0}, {"s": 2.5, "max_rss": 8.0}]
    assert events.benchmark_seconds(rows) == 4.0
    assert events.read_benchmark(str(tmp_path / "a.jsonl")) == [{"s": 4.0}]
    assert events.read_benchmark(str(tmp_path / "none.tsv")) == []


@pytest.fixture
def settings(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return {"tracking_uri": store_in(tmp_path, template), "experiment": "toy", "header": {}}


def test_a_job_is_one_run_whose_state_follows_it(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2-of-the-environment")
    Path("a.tsv").write_text("s\tmax_rss\n1.5\t64.0\n")
    Path("a.log").write_text("all of it\n")
    told = board(submitted(benchmark="a.tsv", log=["a.log"]))
    written, job = sink.sink(settings), told.jobs[1]

    def state(status: str, attempt: int, ended: float | None) -> Any:
        job.status, job.attempt, job.ended = status, attempt, ended
        written.update(job)
        return written.client.get_run(job.run)

    assert state("RUNNING", 1, None).info.status == "RUNNING"
    job.failures.append("attempt 1: died")
    assert state("FAILED", 1, 103.0).info.status == "FAILED"
    assert state("RUNNING", 2, None).info.status == "RUNNING"
    run = state("FINISHED", 2, 103.0)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "make sample=a"
    assert run.data.params == {"rule": "make", "threads": "2", "wildcards.sample": "a"}
    assert run.data.metrics == {
        "resources/mem_mb": 50, "run_seconds": 1.5, "queue_seconds": 1.5, "benchmark/s": 1.5, "benchmark/max_rss": 64,
    }  # fmt: skip
    assert run.data.tags["mlflow.parentRunId"] == written.parent
    assert run.data.tags["snakemake.failure"] == "attempt 1: died"
    assert [item.path for item in written.client.list_artifacts(job.run, "logs")] == ["logs/a.log"]
    written.close("FAILED")
    assert written.client.get_run(written.parent).info.status == "FAILED"
    assert "hunter2" not in "".join(dump(settings["tracking_uri"]))


def test_a_store_that_fails_after_a_run_was_made_gets_the_rest_of_it_later(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, job = sink.sink(settings), board(submitted()).jobs[1]
    with monkeypatch.context() as failing:
        failing.setattr(told.client, "log_batch", lambda *given, **named: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            told.update(job)
    told.update(job)
    [run] = told.client.search_runs([told.experiment], "params.rule = 'make'")
    assert len(told.client.search_runs([told.experiment])) == 2
    assert run.data.params == {"rule": "make", "threads": "2", "wildcards.sample": "a"}


def test_runs_of_a_dead_snakemake_are_closed_and_those_of_a_living_one_are_not(settings: dict[str, Any]) -> None:
    told = board(submitted())
    living = sink.sink(settings)
    dead = sink.sink(settings)
    dead.update(told.jobs[1])
    dead.tick()
    for run in (dead.parent, told.jobs[1].run):
        dead.client.set_tag(run, "snakemake.started", "1")  # the process id came again
    sink.sink(settings)
    closed = [dead.client.get_run(run).info for run in (dead.parent, told.jobs[1].run)]
    assert [info.status for info in closed] == ["KILLED", "KILLED"]
    assert abs(closed[0].end_time / 1000 - time.time()) < 60  # when it was last seen
    assert living.client.get_run(living.parent).info.status == "RUNNING"


class Broken:
    """A sink that never works."""

    def __init__(self) -> None:
        self.calls = 0

    def update(self, job: Job) -> None:
        self.calls += 1
        raise OSError("the store is gone")

    def tick(self) -> None:
        raise OSError("the store is gone")

    def close(self, outcome: str) -> None:
        raise OSError("the store is gone")


def test_a_sink_that_fails_is_one_line_of_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    broken, module = Broken(), types.ModuleType("broken_adapter")
    module.__dict__["sink"] = lambda settings: broken
    monkeypatch.setitem(sys.modules, "broken_adapter", module)
    uri = "http://me:secret@example.org"
    worker = Worker(LogHandlerSettings(tracking_uri=uri, adapter="broken_adapter"), {}, tick=0.01)
    worker.start()
    for item in (submitted(1), submitted(2), failed(1)):
        event = Reader().read(item)
        assert event is not None
        worker.take(event)
        time.sleep(0.05)
    worker.finish()
    assert capsys.readouterr().err == ("mlflow: http://example.org: the store is gone; the workflow goes on without it\n")
    assert broken.calls == 1


def test_a_dry_run_and_a_run_without_jobs_start_no_thread() -> None:
    for dryrun, item in ((True, submitted()), (False, record("workflow_started", snakemake_version="9"))):
        handler = LogHandler(types.SimpleNamespace(dryrun=dryrun), LogHandlerSettings())  # type: ignore[arg-type]
        handler.emit(item)
        assert handler.worker is None
        handler.close()


def test_names_are_made_fit_and_a_store_that_is_not_there_refuses() -> None:
    assert store.metric_key("edge/strict_pass@1 [%]") == "edge/strict_pass_at_1 ___"
    with pytest.raises(OSError, match=r"refused"):
        store.connect("http://127.0.0.1:9")
