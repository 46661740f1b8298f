"""The gate on speed compares what it measures with its bounds, and this project keeps them."""

import os
import subprocess
import sys
from types import ModuleType

import pytest
from conftest import ROOT


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import check

    return check


def test_a_value_below_its_bound_is_missed_and_one_at_it_is_met(check: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = {"training": {"ours": {"ratio": 1.5, "share": 0.25}}, "rollouts": {"ours": {"ratio": 4.0}}}
    found = {"training": {"ours": {"ratio": 1.49, "share": 0.25}, "peer": {}}, "rollouts": {"ours": {"ratio": 5.0, "share": 0.1}}}
    assert check.missed(bounds, found) == 1
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["MISSED", "met", "met"]


def test_a_bound_on_what_was_not_measured_is_an_error(check: ModuleType) -> None:
    with pytest.raises(KeyError):
        check.missed({"training": {"ours": {"ratio": 1.0}}}, {"training": {"peer": {"ratio": 1.0}}})


def test_peers_beyond_the_fastest_keep_the_figure_of_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import gemm

    clock, calls = [0.0], []

    def contestant(name: str, seconds: list[float]):
        def once() -> float:
            clock[0] += seconds[min(calls.count(name), len(seconds) - 1)]
            calls.append(name)
            return 12.0

        return once

    rates = gemm.in_turns(
        {
            "interplay": contestant("interplay", [12.0, 4.0, 6.0]),
            "fast": contestant("fast", [2.0, 3.0, 4.0]),
            "slow": contestant("slow", [6.0, 1.0]),
        },
        rounds=2,
        keep=1,
        clock=lambda: clock[0],
    )
    assert rates == {"interplay": 3.0, "fast": 4.0, "slow (first round)": 2.0}
    assert calls == ["interplay", "fast", "slow", "interplay", "fast", "interplay", "fast"]


def test_training_multiplies_three_times_as_much_as_a_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import gemm

    from interplay.model.spec import Shape

    shape = Shape(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=4, intermediate_size=16
    )
    forward = gemm.forward_products(shape, 10, tokens=5, predicted=3)
    # A layer: 8 x (2 + 1 + 1) x 4 for q, k, v; 8 x 8 for the output; 8 x 16 three times in the MLP. The head: 8 x 10.
    assert sum(m * k * n for m, k, n in forward) == 2 * 5 * (128 + 64 + 384) + 3 * 80
    assert sum(m * k * n for m, k, n in gemm.training_products(shape, 10, 5, 3)) == 3 * (2 * 5 * 576 + 3 * 80)


@pytest.mark.slow
def test_speed_keeps_its_bounds(check: ModuleType) -> None:
    if not check.has_instructions():
        pytest.skip("the bounds are for other processors")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "bench/check.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
