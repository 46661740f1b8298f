"""What a verdict still needs, and verdicts from records."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import report_study as study
from scipy import stats

from interplay.report.stats import frame, intervals, sequential


def spread(deviation: float, n: int) -> intervals.Spread:
    """Of n replicates to which prompts add nothing."""
    return intervals.Spread(0.0, n, 50, deviation**2 / n, 0.0)


@pytest.mark.parametrize(("margin", "deviation"), [(0.03, 0.02), (0.01, 0.02), (0.002, 0.02)])
def test_one_replicate_fewer_is_not_enough(margin: float, deviation: float) -> None:
    def width(n: int) -> float:
        return spread(deviation, n).half

    needed = sequential.replicates(margin, width)
    assert needed is not None
    assert width(needed) <= margin
    assert needed == 3 or width(needed - 1) > margin


def test_what_cannot_be_told_has_no_number() -> None:
    assert sequential.replicates(0.0, lambda n: spread(0.02, n).half) is None, "it lies on its bound"
    assert sequential.replicates(1e-6, lambda n: spread(0.02, n).half) is None, "out of reach"
    assert sequential.replicates(0.1, lambda n: math.nan) is None, "no spread is known"


def test_of_repetitions_with_the_number_with_power_four_of_five_settle_it() -> None:
    margin, deviation = 0.03, 0.03
    needed = sequential.replicates(margin, lambda n: spread(deviation, n).detectable)
    assert needed is not None
    draws = np.random.default_rng(0).normal(margin, deviation, size=(20_000, needed))
    half = stats.t.ppf(0.975, needed - 1) * draws.std(axis=1, ddof=1) / math.sqrt(needed)
    settled = float((np.abs(draws.mean(axis=1)) > half).mean())
    assert 0.79 < settled < 0.9  # the number is whole, so that the power is 80 % or somewhat more


RIGHT = {0: 9, 1: 10, 2: 11}
"""Seed -> strictly right of 16 samples on each of 20 prompts: 56.3, 62.5 and 68.8 %."""


def needs(root: Path, at_least: float, shared: bool = False) -> sequential.Need:
    inputs, arms = {}, []
    for seed, right in RIGHT.items():
        inputs[f"e{seed}"] = study.write_evaluation(root, f"e{seed}", {4: [right] * 20}, n=16, model=f"r{seed}")
        inputs[f"r{seed}"] = study.write_record(root, f"r{seed}", "rl", {}, {}, {"init": "base"})
        arms.append(
            study.arm("rl", seed, ["base:pretrain:base" if shared else f"base:pretrain:b{seed}", f"rl:rl:r{seed}"], f"e{seed}")
        )
    for base in ("base", *(f"b{seed}" for seed in RIGHT)):
        inputs[base] = study.write_record(root, base, "pretrain", {}, {})
    for digest, seconds in (
        ("base", 100),
        *((f"b{seed}", 5) for seed in RIGHT),
        *((f"r{seed}", 10) for seed in RIGHT),
        *((f"e{seed}", 3) for seed in RIGHT),
    ):
        (inputs[digest] / "telemetry.json").write_text(json.dumps({"seconds_wall": seconds}))
    test = {"value": "strict_pass@1", "arm": "rl", "band": "edge", "at_least": at_least}
    deps = {**{f"e{seed}": [f"r{seed}"] for seed in RIGHT}, **{f"r{seed}": ["base" if shared else f"b{seed}"] for seed in RIGHT}}
    results = frame.read_results(study.spec(arms, claims=[{"says": "so", "test": test}]), inputs)
    (need,) = sequential.what_is_needed(results, deps)
    return need


def test_an_open_claim_needs_more_replicates_and_their_cost_is_that_of_what_varies(tmp_path: Path) -> None:
    need = needs(tmp_path, at_least=0.55)
    assert need.judged.verdict == "no information"
    assert (need.margin, need.have) == (pytest.approx(0.075), 3)
    assert need.interval == 6  # s = 0.0625: t(0.975, 4) s / sqrt(5) = 0.0776, t(0.975, 5) s / sqrt(6) = 0.0656
    assert need.powered == 8  # a paired t test of 8 with an effect of 1.2 s has a power of 0.82, one of 7 of 0.74
    assert need.seconds == pytest.approx(18)


def test_seeds_of_one_base_settle_nothing(tmp_path: Path) -> None:
    need = needs(tmp_path, at_least=0.3, shared=True)
    assert (need.judged.verdict, need.settled, need.have) == ("indicated", False, 1)
    assert need.seconds == pytest.approx(13), "the base is shared, so that one more run does not make it again"


def test_a_settled_claim_needs_none(tmp_path: Path) -> None:
    assert needs(tmp_path, at_least=0.3).settled
