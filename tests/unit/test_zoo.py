"""The methods of configs/method: each is in a study, and three steps of each end with the numbers that are committed."""

import json
from pathlib import Path

import pytest
import zoo_cases as cases
from test_exact import only_exact

from interplay.kernels import library
from tools import zoo

KNOWN = json.loads(cases.GOLDEN.read_text())
WRITE = "if the change is meant, run `PYTHONPATH=src:.:tests/unit python tests/unit/zoo_cases.py {}` and commit the file"


def test_every_method_is_in_a_zoo_and_has_a_golden_run_of_three_steps() -> None:
    assert set(KNOWN) == set(cases.METHODS), WRITE.format("NAME")
    assert set(zoo.stages()) == set(cases.METHODS), "add it to configs/study/methods/zoo.yaml"


COMPARED = {name for name, file in cases.lists.conformance(cases.ROOT).items() if file["numbers"]} - {"dapo", "grpo", "ppo"}
"""Methods of which `test_conformance` compares loss and gradient with their release: their runs, but for three, are slow tests."""


compiled = pytest.mark.skipif(library.library() is None, reason="no C compiler")
"""Of runs with numerics: exact."""


@compiled
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in COMPARED)) for name in cases.METHODS])
def test_three_steps_of_a_method_end_as_committed(name: str, tmp_path: Path) -> None:
    """To the last digit where numerics: exact covers the method. Of the others, in float32, the weights of two processors differ,
    and the tokens that are sampled in these steps do not (docs/log/numerics.md)."""
    found = cases.measured(name, cases.METHODS[name], tmp_path)
    exact = cases.spec_of(name, cases.METHODS[name]).is_exact()
    assert found == (KNOWN[name] if exact else pytest.approx(KNOWN[name], rel=2e-3, abs=1e-5)), WRITE.format(name)
    assert found["moved"] > 0


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, method in cases.METHODS.items() if cases.spec_of(name, method).is_exact()])
def test_no_exact_method_takes_an_inexact_operation(name: str, tmp_path: Path) -> None:
    cases.inputs(cases.task_of(name, cases.METHODS[name]))
    with only_exact():
        cases.measured(name, cases.METHODS[name], tmp_path)


@compiled
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("a_grae", {"advantage": {"name": "a_grae", "alpha": 0.9}}),
        ("kimi_length", {"shaping": [{"name": "kimi_length", "weight": 0.9, "warmup": 0.2}]}),
        ("spo_segment", {"loss": {"name": "clipped", "loss_type": "bnpo", "epsilon": 0.1, "beta": 1.0e-4, "num_iterations": 2}}),
    ],
)
def test_a_change_of_an_equation_is_seen(name: str, change: dict, tmp_path: Path) -> None:
    method = type(cases.METHODS[name]).model_validate({**cases.canonical(cases.METHODS[name]), **change})
    assert cases.measured(name, method, tmp_path) != pytest.approx(KNOWN[name], rel=2e-3, abs=1e-5)  # far beyond a rounding


@pytest.mark.slow
def test_the_runs_of_the_zoo_end_as_committed() -> None:
    """What `python -m tools.zoo` says of the runs in results/; one that is not there is made by `interplay run methods/zoo`."""
    results = cases.ROOT / "results"
    known = json.loads(zoo.GOLDEN.read_text())
    there = {name: of for name, of in zoo.stages().items() if (results / "rl" / of[1] / "record.json").exists()}
    if not there:
        pytest.skip("no run of methods/zoo is in results/; `interplay run methods/zoo --scale coffee` makes them")
    wrong = {name: zoo.differences(zoo.measure(results, *of[1:]), known[name]) for name, of in there.items()}
    assert not any(wrong.values()), wrong
