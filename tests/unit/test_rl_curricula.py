"""Samplers inside the loop: killed runs resume to the same bytes, what was drawn is logged, and samples made before the first step
are read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import world
from killed_rl import payload, run_killed
from test_rl_loop import HOW, spec_of

from interplay.core.metrics import read
from interplay.data import sets
from interplay.rl import loop
from interplay.rl.assembly import offline_outcomes
from interplay.rl.edit_spec import DynamicSampling
from interplay.rl.reward_spec import OutcomeReward


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {
        "init": world.model(results, "m" * 12),
        "data.0": world.problem_set(results, "a" * 12, 30),
        "data.1": world.problem_set(results, "b" * 12, 7, seed=1),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        {"name": "learned_mixture", "by": "op", "temperature": 0.2},
        {"name": "retain_hardest", "schedule": [{"steps": 1, "keep": 1.0}, {"steps": 1, "keep": 0.5}]},
    ],
    ids=lambda sampler: sampler["name"],
)
def test_a_killed_run_with_a_sampler_that_learns_ends_with_the_bytes_of_one_that_was_not(
    inputs: dict[str, Path], tmp_path: Path, sampler: dict[str, Any]
) -> None:
    spec = spec_of("half", steps=14, method={"sampler": sampler, "edits": [DynamicSampling()]})
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    out = tmp_path / "killed"
    run_killed(spec, inputs, out, HOW, [(8, 0.0)])
    assert payload(out) == payload(tmp_path / "whole")


def test_each_step_logs_what_share_of_its_groups_came_from_each_band(inputs: dict[str, Path], tmp_path: Path) -> None:
    hard = world.problem_set(tmp_path / "results", "c" * 12, 10, seed=2)
    table = pq.read_table(hard / "problems.parquet")
    table = table.set_column(table.schema.get_field_index("band"), "band", pa.array(["hard"] * len(table)))
    table = table.set_column(table.schema.get_field_index("op"), "op", pa.array([9] * len(table), table.schema.field("op").type))
    pq.write_table(table, hard / "problems.parquet")
    sampler = {"name": "easy_to_hard", "start": 0.25, "pacing": "linear"}
    roles = {"init": inputs["init"], "data.0": inputs["data.0"], "data.1": hard}
    loop.train_policy(spec_of(steps=6, method={"sampler": sampler}), roles, tmp_path / "run", HOW)
    lines = read(tmp_path / "run")
    assert all(line["drawn/easy"] + line["drawn/hard"] == pytest.approx(1) for line in lines)
    assert lines[0]["drawn/hard"] == 0
    assert lines[-1]["drawn/hard"] > 0
    history = pq.read_table(tmp_path / "run" / "history.parquet").to_pylist()
    assert lines[-1]["drawn/hard"] == sum(row["set"] == 1 for row in history if row["step"] == 6) / 8
    assert lines[0]["drawn_op"] <= 3 < lines[-1]["drawn_op"]


def test_samples_made_before_the_first_step_are_judged_as_the_runs_own(inputs: dict[str, Path], tmp_path: Path) -> None:
    pool = sets.load_pool([inputs["data.0"], inputs["data.1"]])
    second = [row for row in pool.rows if row.set == 1]
    for part, completions in enumerate(([second[3].solution, "nonsense"], [second[3].solution])):
        (tmp_path / str(part)).mkdir()
        columns = {
            "index": [second[3].index] * len(completions),
            "completion": completions,
            "truncated": [False] * len(completions),
        }
        table = pa.table(columns)
        pq.write_table(table, tmp_path / str(part) / "samples.parquet")
    roles = {**inputs, "offline.1.0": tmp_path / "0", "offline.1.1": tmp_path / "1"}
    spec = spec_of(reward=OutcomeReward())
    assert offline_outcomes(spec, pool, inputs) == []
    (found,) = offline_outcomes(spec, pool, roles)
    assert (found.id, found.rewards, found.strict, found.answer) == (33, (1.0, 0.0, 1.0), 2, 2)
    reward = spec_of("half")  # a study's own reward pays even indices whose completion begins below 5
    (paid,) = offline_outcomes(reward, pool, roles)
    expected = [float(second[3].index % 2 == 0 and text[:1] < "5") for text in (second[3].solution, "nonsense")]
    assert paid.rewards == (expected[0], expected[1], expected[0])


def test_a_run_starts_from_samples_made_before_it(inputs: dict[str, Path], tmp_path: Path) -> None:
    pool = sets.load_pool([inputs["data.0"], inputs["data.1"]])
    first = [row for row in pool.rows if row.set == 0]
    rows = [(row.index, text) for row in first for text in ([row.solution] * 4 if row.index % 2 else ["nonsense"] * 4)]
    (tmp_path / "samples").mkdir()
    columns = {"index": [index for index, _ in rows], "completion": [text for _, text in rows], "truncated": [False] * len(rows)}
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "samples" / "samples.parquet")
    keep = {"name": "retain_hardest", "schedule": [{"steps": 1, "keep": 15}]}
    spec = spec_of(steps=1, method={"sampler": keep}, reward=OutcomeReward())
    loop.train_policy(spec, {**inputs, "offline.0.0": tmp_path / "samples"}, tmp_path / "run", HOW)
    history = pq.read_table(tmp_path / "run" / "history.parquet").to_pylist()
    assert {row["set"] for row in history} == {0}
    assert {row["index"] % 2 for row in history} == {0}, "only prompts that failed before the first step"
