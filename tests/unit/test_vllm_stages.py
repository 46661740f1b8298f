"""Stages that sample with vLLM: evaluations and RL leave what they leave with `native`. For an environment that holds vLLM:
`make test-vllm`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import world
from scipy.stats import binomtest

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import Model
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import folder
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rl import loop
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec
from interplay.rollout.vllm import Freshness
from interplay.run import workers

pytestmark = pytest.mark.vllm
SHAPE = world.SHAPE.model_copy(update={"head_dim": 32, "initializer_range": 0.12})
PLACES = [False, True]
"""Values of engine_server."""
REWARD = """
def commas(problems, completions, verdicts):
    return [c.count(",") / max(len(c), 1) for c in completions]
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {
        "model": world.model(results, "m" * 12, shape=SHAPE),
        "data": world.problem_set(results, "d" * 12, 41, split="test"),
        "data.0": world.problem_set(results, "a" * 12, 30),
    }


SPEC = EvaluateSpec(num_samples=4, max_completion_length=20, seed=5, entropy=True, engine="vllm")


@pytest.mark.parametrize("server", PLACES)
def test_an_evaluation_leaves_the_samples_that_native_leaves(inputs: dict[str, Path], tmp_path: Path, server: bool) -> None:
    ours = sampling.evaluate_model(SPEC, inputs, tmp_path / "vllm", Run(engine_batch=32, engine_server=server))
    spec = SPEC.model_copy(update={"engine": "native"})
    theirs = sampling.evaluate_model(spec, inputs, tmp_path / "native", Run(engine_batch=32))
    assert ours == theirs
    made, expected = (pq.read_table(tmp_path / name / "samples.parquet") for name in ("vllm", "native"))
    assert made.drop(["nats"]).equals(expected.drop(["nats"]))
    assert made["nats"].to_pylist() == pytest.approx(expected["nats"].to_pylist(), abs=1e-3)


def test_samples_with_other_noise_pass_as_often_within_what_chance_allows(inputs: dict[str, Path], tmp_path: Path) -> None:
    """The share of completions that end by themselves, of a kind of which there are many, as of a biased coin."""
    spec = SPEC.model_copy(update={"num_samples": 32, "seed": 6})
    ours = sampling.evaluate_model(spec, inputs, tmp_path / "vllm", Run())
    theirs = sampling.evaluate_model(spec.model_copy(update={"engine": "native", "seed": 7}), inputs, tmp_path / "native", Run())
    ended, share = round((1 - ours["all"]["truncated"]) * 41 * 32), 1 - theirs["all"]["truncated"]
    assert 0.05 < share < 0.95
    assert binomtest(ended, 41 * 32, share).pvalue > 1e-3


RUNNER = """
import json, sys
from pathlib import Path
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.core.execution import Run
spec, inputs, out, how = (json.loads(a) for a in sys.argv[1:])
sampling.evaluate_model(EvaluateSpec(**spec), {k: Path(v) for k, v in inputs.items()}, Path(out), Run(**how))
"""


@pytest.mark.parametrize("server", PLACES)
def test_a_killed_evaluation_keeps_its_shards_and_ends_as_one_that_was_not(
    inputs: dict[str, Path], tmp_path: Path, server: bool
) -> None:
    spec, how = SPEC.model_copy(update={"max_completion_length": 200}), Run(engine_batch=4, engine_server=server)
    out, shards = tmp_path / "killed", tmp_path / "killed" / "resume" / "shards"
    arguments = [spec.model_dump(), {role: str(path) for role, path in inputs.items()}, str(out), how.model_dump()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RUNNER, *map(json.dumps, arguments)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(shards.glob("*.parquet"))) < 3:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in shards.glob("*.parquet")}
    assert 3 <= len(kept) < 11
    sampling.evaluate_model(spec, inputs, out, how)
    assert all((path.stat().st_mtime_ns, path.read_bytes()) == before for path, before in kept.items())
    sampling.evaluate_model(spec, inputs, tmp_path / "whole", how)
    assert (out / "samples.parquet").read_bytes() == (tmp_path / "whole" / "samples.parquet").read_bytes()


def rl_spec(engine: str = "vllm", **loss: Any) -> RLSpec:
    return RLSpec(
        method=Method(paper="test", allocation=FixedAllocation(num_generations=4), loss={"name": "clipped", **loss}),
        reward=OwnReward(function="mine.py:commas", source=REWARD),
        mix=[1.0],
        steps=6,
        prompts_per_step=8,
        max_completion_length=12,
        optimizer=TuneOptimizer(learning_rate=5e-3),
        engine=engine,
    )


MEAN, LARGEST = "sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max"


def trained(inputs: dict[str, Path], out: Path, spec: RLSpec, **run: Any) -> tuple[list[dict[str, Any]], torch.Tensor]:
    """Lines of metrics.jsonl, and the weights that a run ends with."""
    how = Run(engine_batch=32, micro_batch_tokens=400, **run)
    loop.train_policy(spec, {"init": inputs["model"], "data.0": inputs["data.0"]}, out, how)
    return read(out), torch.nn.utils.parameters_to_vector(folder.load_decoder(out / "model").parameters())


@pytest.mark.parametrize("server", PLACES)
def test_rl_learns_what_it_learns_with_native_since_every_step_samples_from_its_weights(
    inputs: dict[str, Path], tmp_path: Path, server: bool
) -> None:
    lines, weights = trained(inputs, tmp_path / "vllm", rl_spec(), engine_server=server)
    expected, native = trained(inputs, tmp_path / "native", rl_spec("native"))
    assert all(line[MEAN] < 1e-5 and line[LARGEST] < 1e-4 for line in lines), "engine and training disagree"
    assert [line["reward"] for line in lines] == pytest.approx([line["reward"] for line in expected], abs=1e-6)
    torch.testing.assert_close(weights, native, atol=1e-4, rtol=1e-3)


def shared(kind: str, spec: Model, inputs: dict[str, Path], out: Path) -> dict[str, Any]:
    """The stage in two processes, each with a server."""
    how = Run(engine_batch=32, micro_batch_tokens=400, engine_server=True, processes=2)
    return workers.run_workers({"kind": kind, "spec": spec.model_dump(), "run": how.stated()}, inputs, out, how)


def test_two_processes_with_a_server_each_evaluate_as_one_does(inputs: dict[str, Path], tmp_path: Path) -> None:
    one = sampling.evaluate_model(SPEC, inputs, tmp_path / "one", Run(engine_batch=32))
    assert shared("evaluate", SPEC, inputs, tmp_path / "two") == one
    made, expected = (pq.read_table(tmp_path / name / "samples.parquet").drop(["nats"]) for name in ("two", "one"))
    assert made.equals(expected)


def test_two_processes_with_a_server_each_learn_as_one_does(inputs: dict[str, Path], tmp_path: Path) -> None:
    expected, weights = trained(inputs, tmp_path / "one", rl_spec())
    shared("rl", rl_spec(), {"init": inputs["model"], "data.0": inputs["data.0"]}, tmp_path / "two")
    assert [line["reward"] for line in read(tmp_path / "two")] == pytest.approx([line["reward"] for line in expected], abs=1e-6)
    assert all(line[MEAN] < 1e-5 and line[LARGEST] < 1e-4 for line in read(tmp_path / "two"))
    made = torch.nn.utils.parameters_to_vector(folder.load_decoder(tmp_path / "two" / "model").parameters())
    torch.testing.assert_close(made, weights, atol=1e-4, rtol=1e-3)


def test_an_engine_that_is_not_given_the_new_weights_shows_in_what_every_run_tells_and_is_made_up_for(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Freshness, "stale", lambda self: False)
    lines, weights = trained(inputs, tmp_path / "stale", rl_spec())
    assert lines[0][MEAN] < 1e-5
    assert all(line[MEAN] > 1e-3 for line in lines[1:])
    assert lines[-1]["sampling/importance_sampling_ratio/max"] > 1.1
    _, corrected = trained(inputs, tmp_path / "corrected", rl_spec(vllm_importance_sampling_clip_max=2.0))
    assert not torch.equal(weights, corrected)
