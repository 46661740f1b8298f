"""Several processes share a stage: what comes out is what one process makes, but for rounding."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from devices_cases import CLOSE, LM, RL, Results, check_equal, environment, furthest, pretrain, rl_spec, weights

from interplay.core.artifact import find, read_json, write_json
from interplay.model.trainer_spec import Optimizer
from interplay.rl.advantage_spec import GaeAdvantage, ValueHead
from interplay.rl.edit_spec import DynamicSampling
from interplay.rl.loss_spec import ClippedLoss
from interplay.rollout.spec import RetryEpisode
from interplay.run.workers import JOB


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("several"))


@pytest.mark.slow  # see test_devices_ends
def test_two_processes_train_as_one_does(results: Results, tmp_path: Path) -> None:
    spec = pretrain(checkpoints=[2], seed=1)
    one = results.in_one("pretrain", spec, tmp_path, **LM)
    two = results.in_two("pretrain", spec, **LM)
    check_equal(one, two)
    assert furthest(weights(one / "checkpoints/2"), weights(two / "checkpoints/2")) < CLOSE
    told = read_json(two / "telemetry.json")
    assert (told["processes"], told["threads"]) == (2, 2)
    assert not (two / "resume").exists()


@pytest.mark.slow  # to the bit, of the exact class, in `test_exact`
def test_two_processes_sample_and_learn_as_one_does(results: Results, tmp_path: Path) -> None:
    one = results.in_one("rl", rl_spec(), tmp_path, **RL)
    two = results.in_two("rl", rl_spec(), **RL)
    check_equal(one, two)
    for table, column in (("rollouts", "completion"), ("history", "index")):
        said = [pq.read_table(out / f"{table}.parquet")[column].to_pylist() for out in (one, two)]
        assert said[0] == said[1]


SEAMS: dict[str, dict[str, Any]] = {
    "group": {},
    "critic": {"critic": ValueHead(), "advantage": GaeAdvantage()},
    "turns": {
        "episode": RetryEpisode(max_turns=2, feedback=","),
        "edits": [DynamicSampling(max_num_gen_batches=2)],
        "loss": ClippedLoss(),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("seams", SEAMS)
def test_replicated_weights_learn_as_one_does(results: Results, tmp_path: Path, seams: str) -> None:
    spec = rl_spec(seed=1, **SEAMS[seams])
    one = results.in_one("rl", spec, tmp_path, **RL)
    check_equal(one, results.in_two("rl", spec, **RL))


@pytest.mark.slow
def test_a_process_without_a_pass_takes_part(results: Results, tmp_path: Path) -> None:
    adamw = Optimizer(name="adamw")
    spec = pretrain(batch_tokens=64, tokens=600, seed=4, optimizer=adamw)
    one = results.in_one("pretrain", spec, tmp_path, **LM)
    check_equal(one, results.in_two("pretrain", spec, **LM))


@pytest.mark.slow
def test_torchrun_starts_the_same(results: Results, tmp_path: Path) -> None:
    spec, handover = pretrain(seed=6), tmp_path / "handover"
    one = results.in_one("pretrain", spec, tmp_path / "one", **LM)
    inputs = {role: str(find(results.path, digest)) for role, digest in results.roles("pretrain").items()}
    run = {**LM, "processes": 2}
    job = {"kind": "pretrain", "spec": spec.model_dump(), "run": run, "out": str(tmp_path / "two"), "inputs": inputs}
    write_json(handover / JOB, json.loads(json.dumps(job)))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "interplay.run.workers", str(handover)]
    made = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert made.returncode == 0, made.stderr
    assert read_json(handover / "0.json")["values"]["steps"] == 14
    check_equal(one, tmp_path / "two")
