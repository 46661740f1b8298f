"""Whether a stage that was told to stop gives its job of Slurm back to the queue, with a stand-in for scontrol on the path."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from interplay.core import execution
from interplay.run import slurm

OURS = f"interplay_{uuid.uuid4()}"
SHOWN = (
    "JobId={id} JobName={name} UserId=root(0) Requeue=1 Restarts={restarts} JobState={state} RunTime=00:58:00 TimeLimit=01:00:00 "
    "StartTime=2026-11-23T12:00:00 EndTime=2026-11-23T13:00:00 PreemptEligibleTime=2026-11-23T12:00:00 PreemptTime={preempted}"
)
SAVED = frozenset({("results/rl/0/resume/state.json", 1, 10)})
MORE = frozenset({("results/rl/0/resume/state.json", 2, 10)})
NOTHING: slurm.SavedFiles = frozenset()


class Queue:
    """A Slurm that knows one job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def holds(self, **job: Any) -> None:
        usual = {"id": "7", "name": OURS, "restarts": 0, "state": "RUNNING", "preempted": "None"}
        (self.folder / "job").write_text(SHOWN.format(**{**usual, **job}))

    def taken_back(self) -> list[str]:
        file = self.folder / "taken"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    command = tmp_path / "scontrol"
    command.write_text(f'#!/bin/sh\n[ "$1" = show ] && exec cat {tmp_path}/job\necho "$2" >> {tmp_path}/taken\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    return Queue(tmp_path)


def test_a_stage_that_saved_goes_on_in_the_same_job(queue: Queue) -> None:
    queue.holds(restarts=50)
    assert slurm.exit_after_stop(SAVED, MORE) == (execution.EXIT, "its job is requeued")
    assert queue.taken_back() == ["7"]


def test_a_task_of_an_array_is_put_back_alone(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "5")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    queue.holds()
    slurm.exit_after_stop(NOTHING, SAVED)
    assert queue.taken_back() == ["5_2"]


@pytest.mark.parametrize(("before", "now"), [(NOTHING, NOTHING), (SAVED, SAVED), (None, SAVED)])
def test_a_stage_that_saved_nothing_in_its_time_fails_and_says_what_it_needs(
    queue: Queue, before: slurm.SavedFiles | None, now: slurm.SavedFiles
) -> None:
    queue.holds()
    code, said = slurm.exit_after_stop(before, now)
    assert code == 1
    assert "saved nothing in 00:58:00 of 01:00:00" in said
    assert "run.runtime" in said
    assert queue.taken_back() == []


def test_a_stage_that_saves_nothing_is_put_back_where_another_job_took_its_place(queue: Queue) -> None:
    queue.holds(preempted="2026-11-23T12:30:00", restarts=slurm.MOST_RESTARTS - 1)
    assert slurm.exit_after_stop(NOTHING, NOTHING)[0] == execution.EXIT
    assert queue.taken_back() == ["7"]


def test_but_not_for_ever(queue: Queue) -> None:
    queue.holds(preempted="2026-11-23T12:30:00", restarts=slurm.MOST_RESTARTS)
    code, said = slurm.exit_after_stop(NOTHING, NOTHING)
    assert code == 1
    assert f"requeued {slurm.MOST_RESTARTS} times" in said
    assert queue.taken_back() == []


def test_one_that_has_saved_before_is_preempted_as_often_as_it_takes(queue: Queue) -> None:
    queue.holds(preempted="2026-11-23T12:30:00", restarts=slurm.MOST_RESTARTS)
    assert slurm.exit_after_stop(SAVED, SAVED)[0] == execution.EXIT
    assert queue.taken_back() == ["7"]


def test_the_preemption_of_an_earlier_start_is_over(queue: Queue) -> None:
    queue.holds(preempted="2026-11-23T11:30:00")
    assert slurm.exit_after_stop(NOTHING, NOTHING)[0] == 1


@pytest.mark.parametrize(
    "job", [{"name": "interplay-notebook"}, {"name": "interplay"}, {"state": "COMPLETING"}, {"state": "CANCELLED"}]
)
def test_a_job_that_the_profile_did_not_submit_or_that_ends_already_is_left_alone(queue: Queue, job: dict[str, str]) -> None:
    queue.holds(**job)
    assert slurm.exit_after_stop(NOTHING, SAVED) == (execution.EXIT, "goes on when started again")
    assert queue.taken_back() == []


def test_outside_of_slurm_nothing_is_asked(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.holds()
    monkeypatch.delenv("SLURM_JOB_ID")
    assert slurm.current_job() is None


def test_where_slurm_does_not_answer_the_stage_says_that_it_goes_on(queue: Queue) -> None:
    (queue.folder / "scontrol").unlink()
    assert slurm.exit_after_stop(NOTHING, SAVED) == (execution.EXIT, "goes on when started again")


def test_marks_tell_one_save_from_the_next(tmp_path: Path) -> None:
    file = tmp_path / "evaluate/0123456789ab/resume/shards/0.parquet"
    assert slurm.saved_files(tmp_path, "0123456789ab") == NOTHING
    file.parent.mkdir(parents=True)
    assert slurm.saved_files(tmp_path, "0123456789ab") == NOTHING, "a folder is no save"
    file.write_text("one")
    first = slurm.saved_files(tmp_path, "0123456789ab")
    assert first == slurm.saved_files(tmp_path, "0123456789ab")
    file.with_name("1.parquet").write_text("two")
    assert slurm.saved_files(tmp_path, "0123456789ab") > first
    assert slurm.saved_files(tmp_path, "ba9876543210") == NOTHING
