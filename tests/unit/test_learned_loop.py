"""Samplers with a model of their own, and edits that look at advantages, in the whole loop: what they log, what they cost, and that
a run which is killed ends with the bytes of one that was not."""

from pathlib import Path
from typing import Any

import pytest
import world
from comma_runs import HOW, spec_of
from killed_rl import payload, run_killed

from interplay.core.artifact import read_json
from interplay.core.metrics import read
from interplay.rl import loop
from interplay.rl.edit_spec import D3S, DynamicSampling
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.sampler_spec import GainRlSampler, ModelValue, PclSampler
from interplay.rl.spec import RLSpec

PCL = PclSampler(candidates=2, value=ModelValue(learning_rate=1e-3))
GAIN = GainRlSampler(sigma=5.0, step=1.0, most=2.0)


def run_of(steps: int, **method: Any) -> RLSpec:
    return spec_of(steps, allocation=FixedAllocation(num_generations=4), **method)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 40)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        {"sampler": PCL, "edits": [DynamicSampling(max_num_gen_batches=2)]},
        {"sampler": GAIN, "edits": [D3S(samples=(0.25, 1.0), tokens=(0.25, 1.0))]},
    ],
    ids=["pcl", "gain_rl-d3s"],
)
def test_a_killed_run_ends_with_the_bytes_of_one_that_was_not(
    method: dict[str, Any], inputs: dict[str, Path], tmp_path: Path
) -> None:
    spec = run_of(10, **method)
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    out = tmp_path / "killed"
    run_killed(spec, inputs, out, HOW, [(2, 0.0), (5, 0.0)])
    assert payload(out) == payload(tmp_path / "whole")


def test_a_run_logs_what_its_sampler_says_and_tells_what_the_choice_cost(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(run_of(3, sampler=PCL), inputs, tmp_path, HOW)
    lines, telemetry = read(tmp_path), read_json(tmp_path / "telemetry.json")
    assert all({"sampler/value", "sampler/error", "sampler/explained_variance"} <= line.keys() for line in lines)
    assert lines[0]["sampler/value"] == pytest.approx(0.5)
    assert lines[-1]["sampler/value"] != lines[0]["sampler/value"]
    parts = [telemetry[f"seconds_{name}"] for name in ("sampler", "rollout", "update")]
    assert min(parts) > 0
    assert sum(parts) < 3.1 * telemetry["seconds_per_step"]


def test_d3s_trains_on_the_shares_that_it_was_given(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(run_of(3, edits=[D3S(samples=(0.25, 0.75), tokens=(0.5, 1.0))]), inputs, tmp_path, HOW)
    lines = read(tmp_path)
    assert [round(line["effective_ratio"] * 32) for line in lines] == [8, 16, 24]
    assert all(line["completions"] == 32 for line in lines)
    # Half of a quarter of the rows, up to how long they are; then three quarters of half; then three quarters of all.
    assert lines[0]["trained_tokens"] <= 8 * 12 / 2
    assert lines[0]["trained_tokens"] < lines[1]["trained_tokens"] < lines[2]["trained_tokens"] < lines[2]["completion_tokens"]
