"""What stages used of what they were given, from telemetry alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import Lab

from interplay.cli import main
from interplay.core.execution import Run
from interplay.results.telemetry import Usage, proposals, usage_by_kind
from interplay.run.graph import Graph


def test_stages_of_a_kind_that_were_given_the_same_are_one_row(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    plan = lab.plan()
    first, second, unfinished = [stage for stage in plan.stages.values() if stage.kind == "evaluate"][:3]
    lab.finish(first, 60.0, seconds_cpu=30.0, peak_memory_mb=400.0, attempts=2)
    lab.finish(second, 180.0, seconds_cpu=90.0, peak_memory_mb=700.0)
    lab.start(unfinished)
    (row,) = usage_by_kind(plan, lab.results)
    assert (row.kind, row.stages, row.attempts, row.memory_mb, row.minutes) == ("evaluate", 2, 3, 700.0, 3.0)
    assert row.cpu == pytest.approx(120 / 240)


def given(value: Any, digest: str) -> Any:
    """What a rule gives Snakemake for a stage."""
    return value(SimpleNamespace(digest=digest)) if callable(value) else value


def test_threads_and_memory_of_a_stage_are_those_of_all_its_processes(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.edit("scale/smoke.yaml", "pretrain: {", "pretrain: {run: {processes: 2, threads: 3, memory_mb: 2000}, ")
    plan = lab.plan()
    stage = next(s for s in plan.stages.values() if s.kind == "pretrain")
    graph = Graph(lab.results, [plan])
    assert (given(graph.resources()["mem_mb"], stage.digest), given(graph.threads(), stage.digest)) == (4000, 6)
    lab.finish(stage, 10.0, seconds_cpu=30.0, peak_memory_mb=3000.0, peak_processes=3)
    (row,) = usage_by_kind(plan, lab.results)
    assert (row.run.cores(), row.run.memory(), row.cpu) == (6, 4000, pytest.approx(0.5))
    assert "memory_mb" not in proposals(row), "three quarters of what both were given"
    assert proposals(row._replace(memory_mb=3900.0))["memory_mb"] == 2600, "of each process, as it was given"


def test_an_older_peak_of_several_processes_proposes_nothing(tmp_path: Path) -> None:
    """It was that of the largest process alone."""
    lab = Lab(tmp_path)
    lab.edit("scale/smoke.yaml", "pretrain: {", "pretrain: {run: {processes: 2}, ")
    plan = lab.plan()
    lab.finish(next(s for s in plan.stages.values() if s.kind == "pretrain"), 10.0, seconds_cpu=30.0, peak_memory_mb=100.0)
    assert usage_by_kind(plan, lab.results) == []


def test_a_stage_that_tells_nothing_is_left_out(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    plan = lab.plan()
    lab.finish(next(iter(plan.stages.values())))  # without memory and processor time
    assert usage_by_kind(plan, lab.results) == []


@pytest.mark.parametrize(
    ("memory_mb", "minutes", "expected"),
    [
        (2000.0, 90.0, {}),
        (800.0, 90.0, {"memory_mb": 1100}),
        (2900.0, 90.0, {"memory_mb": 3800}),
        (2000.0, 12.0, {"runtime": 30}),
        (2000.0, 119.0, {"runtime": 240}),
        (2000.0, 0.1, {"runtime": 10}),
    ],
)
def test_what_is_far_off_is_proposed_anew(memory_mb: float, minutes: float, expected: dict[str, int]) -> None:
    row = Usage("rl", Run(memory_mb=3000, runtime=120), 1, 0.9, memory_mb, minutes, 1)
    assert proposals(row) == expected


def test_the_command_prints_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["efficiency", "quickstart", "--scale", "smoke"]) == 0
    assert "no stage of quickstart at scale smoke has finished" in capsys.readouterr().out
    stage = next(stage for stage in lab.plan().stages.values() if stage.kind == "pretrain")
    lab.finish(stage, 60.0, seconds_cpu=57.0, peak_memory_mb=640.0)
    assert main(["efficiency", "quickstart", "--scale", "smoke"]) == 0
    assert "95%" in (said := capsys.readouterr().out)
    assert "memory_mb: 900, runtime: 10" in said
