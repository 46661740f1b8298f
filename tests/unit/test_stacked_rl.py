"""RL runs in one process: each as it would be alone, up to rounding."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import world
from conftest import stopped_when
from killed_rl import payload
from test_rl_loop import spec_of

from interplay.core import artifact
from interplay.core.execution import Replica, Run
from interplay.core.metrics import read, read_telemetry
from interplay.core.model import PermanentError
from interplay.model import folder
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rl import loop
from interplay.rl.edit_spec import DynamicSampling
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.request_spec import AdaptiveTemperature, LaggedNucleus
from interplay.rollout import engine as stack
from interplay.rollout.spec import RetryEpisode

CLOSE = 1e-6
"""Largest difference of a weight. Updates are those of a run alone, so that only another token would make one."""
HOW = Run(stack=3, engine_batch=32, micro_batch_tokens=400)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    for seed in range(3):
        world.model(results, f"model{seed}", seed)
    world.problem_set(results, "a", 30)
    world.problem_set(results, "b", 7, seed=1)
    return results


def roles(artifacts: Path, number: int) -> dict[str, Path]:
    sets = {f"data.{i}": artifacts / "problems" / name for i, name in enumerate("ab")}
    return {"init": artifacts / "pretrain" / f"model{number}", **sets}


def replicas(artifacts: Path, out: Path, changes: list[dict[str, Any]]) -> list[Replica]:
    usual = {"steps": 4, "optimizer": TuneOptimizer(learning_rate=1e-3)}
    return [
        Replica(spec_of(**{**usual, **change}), roles(artifacts, number), out / str(number))
        for number, change in enumerate(changes)
    ]


def trained(some: list[Replica], how: Run = HOW) -> dict[int, stack.Outcome]:
    return dict(loop.rl_replicas(some, how))


def weights(out: Path) -> torch.Tensor:
    return torch.cat([value.flatten() for value in folder.load_decoder(out / "model").state_dict().values()])


def assert_close(together: Path, alone: Path) -> None:
    assert float((weights(together) - weights(alone)).abs().max()) < CLOSE
    for one, other in zip(read(together), read(alone), strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)
    columns = ["step", "completion", "reward"]
    rows = [pq.read_table(out / "rollouts.parquet", columns=columns).to_pylist() for out in (together, alone)]
    assert rows[0] == rows[1]


DIFFERENT = {
    "seeds": [{}, {"seed": 1}, {"seed": 2}],
    "numbers": [
        {"steps": 2, "checkpoints": [1]},
        {"prompts_per_step": 12},
        {"temperature": 0.8, "max_completion_length": 20, "minibatches": 2, "optimizer": TuneOptimizer(learning_rate=5e-4)},
    ],
    "methods": [
        {"method": {"edits": [DynamicSampling()]}},
        {"method": {"loss": ClippedLoss(beta=0.1), "episode": RetryEpisode(max_turns=3, feedback="a")}},
        {"method": {"decoding": LaggedNucleus(top_p=0.9, sync_every=1)}},
    ],
    "state": [{"method": {"decoding": AdaptiveTemperature()}}, {}, {"seed": 5}],
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_run_in_a_stack_ends_as_it_does_alone(artifacts: Path, tmp_path: Path, name: str) -> None:
    some = replicas(artifacts, tmp_path / "stack", DIFFERENT[name])
    found = trained(some)
    for number, one in enumerate(some):
        metrics = loop.train_policy(one.spec, one.inputs, tmp_path / str(number), Run(engine_batch=32, micro_batch_tokens=400))
        assert found[number] == pytest.approx(metrics, rel=1e-3, abs=1e-4)
        assert_close(one.out, tmp_path / str(number))
        assert [path.name for path in one.out.glob("checkpoints/*")] == [str(step) for step in one.spec.checkpoints]
        assert read_telemetry(one.out)["seconds_per_step"] > 0
    assert len({float(weights(one.out).sum()) for one in some}) == 3


def test_a_run_that_diverges_fails_alone(artifacts: Path, tmp_path: Path) -> None:
    wild = {"optimizer": TuneOptimizer(learning_rate=1e30, max_grad_norm=0.0)}
    some = replicas(artifacts, tmp_path / "stack", [{}, wild, {"seed": 1}])
    found = trained(some)
    assert isinstance(found[1], PermanentError)
    assert "lower the learning rate" in str(found[1])
    assert not (some[1].out / "model").exists()
    for number in (0, 2):
        loop.train_policy(
            some[number].spec, some[number].inputs, tmp_path / str(number), Run(engine_batch=32, micro_batch_tokens=400)
        )
        assert_close(some[number].out, tmp_path / str(number))


def stopped_at(some: list[Replica], step: int) -> None:
    """Train until the first replica has saved a step, as a signal ends it."""
    saves = [some[0].out / "resume" / "state" / f"{n}.safetensors" for n in range(step, 100)]
    with stopped_when(lambda: any(save.exists() for save in saves), "stopped at step"):
        trained(some, HOW.model_copy(update={"save_minutes": 0.0}))


def test_a_stopped_stack_goes_on_to_the_same_bytes_alone_and_in_another_stack(artifacts: Path, tmp_path: Path) -> None:
    changes = [
        {"steps": 6, "method": {"edits": [DynamicSampling()]}},
        {"steps": 6, "seed": 1},
        {"steps": 5, "seed": 2},
    ]
    whole, again, apart = (replicas(artifacts, tmp_path / name, changes) for name in ("whole", "again", "apart"))
    trained(whole)
    stopped_at(again, 2)
    steps = {artifact.read_json(one.out / "resume" / "state" / "state.json")["step"] for one in again}
    assert len(steps) == 1
    trained(again)
    for one, other in zip(whole, again, strict=True):
        assert payload(one.out) == payload(other.out)
        for file in (one.out / "state").rglob("*.*"):
            assert file.read_bytes() == (other.out / file.relative_to(one.out)).read_bytes()
    stopped_at(apart, 2)
    assert artifact.saved_numerics(apart[0].out) == {"numerics": "stacked"}
    loop.train_policy(apart[0].spec, apart[0].inputs, apart[0].out, HOW.model_copy(update={"save_minutes": 0.0}))
    assert artifact.saved_numerics(apart[0].out) == {"numerics": "stacked"}
    assert_close(apart[0].out, whole[0].out)
    fresh = replicas(artifacts, tmp_path / "fresh", [{"seed": 9}])
    assert all(isinstance(one, dict) for one in trained([*apart[1:], *fresh]).values())
    for number in (1, 2):
        assert_close(apart[number].out, whole[number].out)


def test_a_run_alone_saves_what_it_saved_before_there_were_stacks(artifacts: Path, tmp_path: Path) -> None:
    one = replicas(artifacts, tmp_path, [{"steps": 1}])[0]
    loop.train_policy(*one, Run())
    assert artifact.read_json(one.out / "state" / "state" / "state.json")["state"].keys() == {"sampler", "memory"}
