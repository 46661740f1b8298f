"""Shards of an evaluation: every problem is in one, whatever batches and processes came before."""

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import examples, wait_for
from devices_cases import Results
from hypothesis import given, strategies as st

from interplay.core.artifact import read_json, write_json
from interplay.core.execution import EXIT
from interplay.evaluate.spec import EvaluateSpec
from interplay.optim import distributed

FINISHED = st.lists(st.integers(1, 9), max_size=6)


@examples(50)
@given(problems=st.integers(0, 60), gaps=FINISHED, lengths=FINISHED, size=st.integers(1, 12))
def test_what_is_left_and_what_is_finished_is_each_problem_once(
    tmp_path_factory: pytest.TempPathFactory, problems: int, gaps: list[int], lengths: list[int], size: int
) -> None:
    folder, start = tmp_path_factory.mktemp("shards"), 0
    for gap, length in zip(gaps, lengths, strict=False):
        shard = range(start + gap, start + gap + length)
        if shard.stop <= problems:
            distributed.write_shard(folder, shard, pa.table({"problem": list(shard)}))
        start = shard.stop
    before, left = distributed.finished_shards(folder), distributed.remaining_shards(folder, problems, size)
    assert sorted(problem for shard in [*before, *left] for problem in shard) == list(range(problems))
    assert all(0 < len(shard) <= size for shard in left)
    for shard in left:
        distributed.write_shard(folder, shard, pa.table({"problem": list(shard)}))
    if problems:
        assert distributed.read_shards(folder)["problem"].to_pylist() == list(range(problems))
    assert distributed.remaining_shards(folder, problems, size) == []


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("several"))


def test_two_processes_evaluate_to_the_bytes_that_one_makes(results: Results, tmp_path: Path) -> None:
    spec = EvaluateSpec(num_samples=4, max_completion_length=10, nll=True, errors=True)
    results.in_one("evaluate", spec, tmp_path, engine_batch=4)
    two = results.in_two("evaluate", spec, engine_batch=4)
    for name in ("samples.parquet", "prompts.parquet"):
        assert (two / name).read_bytes() == (tmp_path / name).read_bytes()
    told = read_json(two / "telemetry.json")
    assert (told["processes"], told["completion_tokens_per_second"] > 0) == (2, True)


@pytest.mark.slow  # see test_evaluate
def test_an_evaluation_goes_on_with_other_processes_and_batches(results: Results, tmp_path: Path) -> None:
    """Whoever is told that its batches are too large makes them smaller, and loses no shard by that."""
    spec = EvaluateSpec(num_samples=64, max_completion_length=60)
    how: dict[str, Any] = {"engine_batch": 64}
    results.in_one("evaluate", spec, tmp_path, **how)
    out = results.ask("evaluate", spec, results.roles("evaluate"), processes=2, **how)
    process = results.start(out)
    wait_for(lambda: len(distributed.finished_shards(out / "resume/shards")) >= 1)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[1]
    before = distributed.finished_shards(out / "resume/shards")
    assert (process.returncode, f"stopped at shard {len(before)} of 30; goes on when started again" in said) == (EXIT, True), said
    assert {len(shard) for shard in before} == {4}
    stage = json.loads((out / "stage.json").read_text())
    write_json(out / "stage.json", {**stage, "run": {"engine_batch": 128}})
    made = results.make(out)
    assert made.returncode == 0, made.stderr
    columns = ["index", "sample"]
    one, other = (pq.read_table(folder / "samples.parquet", columns=columns) for folder in (tmp_path, out))
    assert one.equals(other)
