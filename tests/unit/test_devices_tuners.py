"""The trainers on few data in two processes make what they make in one."""

from pathlib import Path
from typing import Any

import pytest
import world
from devices_cases import check_equal
from test_prefer import pair_set

from interplay.core.execution import Run
from interplay.core.model import Model
from interplay.run import workers
from interplay.run.workers import load_function
from interplay.train.spec import PreferSpec, RewardModelSpec, UnlearnSpec

HOW: dict[str, Any] = {"micro_batch_tokens": 300, "save_minutes": 0.0}
PAIRS: dict[str, Any] = {"mix": [1.0], "steps": 4, "pairs_per_step": 8, "max_length": 128}
SIDES: dict[str, Any] = {"forget_mix": [1.0], "retain_mix": [1.0], "steps": 4, "problems_per_step": 8, "max_length": 128}

CASES: dict[str, tuple[str, Model]] = {
    "dpo": ("prefer", PreferSpec(**PAIRS)),
    "kto": ("prefer", PreferSpec(loss_type="kto", **PAIRS)),
    "heads": ("reward_model", RewardModelSpec(heads=3, **PAIRS)),
    "npo": ("unlearn", UnlearnSpec(objective="npo", **SIDES)),
    "blur": ("unlearn", UnlearnSpec(objective="npo", formulation="blur", **SIDES)),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    pairs = pair_set(results, "b" * 12)
    sides = {f"{side}.0": world.problem_set(results, side[0] * 12, 24, split="train") for side in ("forget", "retain")}
    return {"init": world.model(results, "a" * 12), "data.0": pairs, "validation": pairs, **sides}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_tune_as_one_does(inputs: dict[str, Path], tmp_path: Path, case: str) -> None:
    kind, spec = CASES[case]
    one = load_function(kind)(spec, inputs, tmp_path / "one", Run(**HOW))
    how = Run(**HOW, processes=2)
    stage = {"kind": kind, "spec": spec.model_dump(), "run": how.stated()}
    two = workers.run_workers(stage, inputs, tmp_path / "two", how)
    check_equal(tmp_path / "one", tmp_path / "two")
    assert two.keys() == one.keys()
    numbers = {name: value for name, value in one.items() if isinstance(value, int | float)}
    assert {name: two[name] for name in numbers} == pytest.approx(numbers, rel=1e-4, abs=1e-4)
