"""Boundaries of looks against published tables and an integral of their own, and what a claim does at each look."""

from pathlib import Path

import numpy as np
import pytest
import report_study as study
from scipy import optimize, stats

from interplay.report.claim_spec import Claim
from interplay.report.spec import Stopping
from interplay.report.stats import confounds, frame, sequential
from interplay.report.stats.contrast import JudgedClaim
from interplay.report.stats.intervals import Spread

PUBLISHED = {
    (1, 2, 3): (3.7103, 2.5114, 1.9930),
    (1, 2, 3, 4): (4.3326, 2.9631, 2.3590, 2.0141),
    (1, 2, 3, 4, 5): (4.8769, 3.3569, 2.6803, 2.2898, 2.0310),
}
"""Equally spaced looks, two-sided 5 %, the spending function of Lan and DeMets like O'Brien and Fleming: printed by gsDesign and
ldBounds, and in Proschan, Lan and Wittes, Statistical Monitoring of Clinical Trials (2006)."""
CONSTANTS = {("O'Brien-Fleming", 3): 2.004, ("O'Brien-Fleming", 5): 2.040, ("Pocock", 3): 2.289, ("Pocock", 5): 2.413}
"""Jennison and Turnbull, Group Sequential Methods (2000), tables 2.1 and 2.3, two-sided 5 %."""


@pytest.mark.parametrize("looks", PUBLISHED)
def test_efficacy_boundaries_are_those_of_the_tables(looks: tuple[int, ...]) -> None:
    found = [bound.efficacy for bound in sequential.boundaries(looks, 0.05, None)]
    assert found == pytest.approx(PUBLISHED[looks], abs=2e-4)


@pytest.mark.parametrize(("kind", "looks"), CONSTANTS)
def test_the_recursion_gives_the_constants_of_pocock_and_of_obrien_and_fleming(kind: str, looks: int) -> None:
    times = np.arange(1, looks + 1) / looks

    def crossed(constant: float) -> float:
        walk, total = sequential.START, 0.0
        for time in times:
            end = constant / np.sqrt(time) if kind == "O'Brien-Fleming" else constant
            total += walk.chance(time, 0.0, -np.inf, np.inf) - walk.chance(time, 0.0, -end, end)
            walk = walk.to(time, 0.0, [(-end, end)])
        return total - 0.05

    assert optimize.brentq(crossed, 1.5, 3.0) == pytest.approx(CONSTANTS[kind, looks], abs=6e-4)


def test_errors_of_both_kinds_are_spent_in_full() -> None:
    """By Monte Carlo of the normal process, which shares no code with the recursion."""
    looks = (6, 12, 24)
    bounds = sequential.boundaries(looks, 0.05, 0.2)
    times = np.array([bound.time for bound in bounds])
    random = np.random.default_rng(0)
    steps = random.normal(size=(400_000, 3)) * np.sqrt(np.diff(times, prepend=0))

    def shares(drift: float, futile: bool) -> tuple[float, float]:
        deviates = (np.cumsum(steps, 1) + drift * times) / np.sqrt(times)
        on, found = np.ones(len(steps), bool), np.zeros(len(steps), bool)
        for at, bound in enumerate(bounds):
            found |= on & (abs(deviates[:, at]) >= bound.efficacy)
            on &= (abs(deviates[:, at]) < bound.efficacy) & (abs(deviates[:, at]) >= bound.futility * futile)
        return float(found.mean()), float(on.mean())

    assert shares(0.0, False)[0] == pytest.approx(0.05, abs=0.0015), "futility is not binding"
    assert shares(0.0, True)[0] < 0.05
    drift = optimize.brentq(lambda at: shares(at, True)[0] - 0.8, 2.0, 4.0)
    assert shares(drift, False)[0] == pytest.approx(stats.norm.sf(1.96 - drift), abs=0.01), "looks cost little power"
    assert bounds[-1].futility == bounds[-1].efficacy, "at the last look one of both is reached"


def test_an_interval_after_the_first_look_is_students() -> None:
    bounds = sequential.boundaries((6, 12, 24), 0.05, 0.2)
    spread = Spread(0.5, 6, 10**6, 0.0004, 0.0)
    low, high = sequential.after_stopping(spread, 0.0, 1, bounds)
    assert (low, high) == pytest.approx((0.5 - spread.half, 0.5 + spread.half), abs=1e-3)


CLAIM = Claim.model_validate(
    {"says": "so", "test": {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", "at_least": 0.05}}
)


def results(root: Path, right: list[int], looks: list[int], missing: int = 0, beta: float | None = 0.2) -> frame.Results:
    """Replicates whose base solves 2 of 16 samples of each prompt, and RL so many; the last ones are not finished."""
    inputs, arms = {}, []
    for seed, count in enumerate(right):
        for name, solved in (("b", 2), ("r", count)):
            if seed < len(right) - missing:
                inputs[f"{name}{seed}"] = study.write_evaluation(root, f"{name}{seed}", {4: [solved] * 20}, n=16)
        path = [f"base:pretrain:m{seed}"]
        arms += [study.arm("base", seed, path, f"b{seed}"), study.arm("rl", seed, [*path, f"rl:rl:m{seed}r"], f"r{seed}")]
    return frame.read_results(study.spec(arms, stopping=Stopping(looks=looks, beta=beta)), inputs)


def at(judged: JudgedClaim) -> tuple[str, int, bool]:
    assert judged.look is not None
    return judged.verdict, judged.look.number, judged.look.stopped


def test_a_look_takes_its_replicates_alone_and_a_verdict_stands(tmp_path: Path) -> None:
    """The first three agree on +50 points; the fourth to sixth would undo it, and come too late."""
    judged = sequential.judge(results(tmp_path, [10, 10, 11, 2, 1, 0], [3, 6]), CLAIM)
    assert at(judged) == ("supported", 1, True)
    assert judged.look is not None
    assert judged.look.replicates == 3
    assert judged.estimate.seeds == (0, 1, 2)
    assert "look 1 of 2, at 3 replicates, with a boundary of 2.96" in judged.reason
    assert judged.look.interval[0] > judged.estimate.low, "the repeated interval is the wider one"


def test_what_would_be_a_verdict_alone_is_none_at_an_early_look(tmp_path: Path) -> None:
    found = results(tmp_path, [9, 11, 12, 9, 11, 12], [3, 6], missing=3)
    alone = found._replace(spec=found.spec.model_copy(update={"stopping": None, "arms": found.spec.arms[:6]}))
    assert sequential.judge(alone, CLAIM).verdict == "supported"
    assert at(sequential.judge(found, CLAIM)) == ("no information", 1, False)


def test_an_interval_of_both_arms_is_at_the_level_of_its_look(tmp_path: Path) -> None:
    found = results(tmp_path, [9, 11, 12, 9, 11, 12], [3, 6], missing=3)
    claim = CLAIM.model_copy(update={"test": CLAIM.test.model_copy(update={"interval": "arms"})})
    alone = found._replace(spec=found.spec.model_copy(update={"stopping": None, "arms": found.spec.arms[:6]}))
    once, look = sequential.judge(alone, claim).estimate, sequential.judge(found, claim).estimate
    assert look.low < once.low < once.high < look.high


def test_a_claim_is_given_up_where_a_verdict_is_too_unlikely(tmp_path: Path) -> None:
    right = [2, 3, 4, 2, 4, 3]  # +6.25 points, a quarter of a standard error from the threshold
    judged = sequential.judge(results(tmp_path / "a", right, [6, 12], missing=0), CLAIM)
    assert at(judged) == ("no information", 1, True)
    assert "given up" in judged.reason
    never = sequential.judge(results(tmp_path / "b", right, [6, 12], beta=None), CLAIM)
    assert at(never) == ("no information", 1, False)


def test_before_its_first_look_a_claim_is_not_judged(tmp_path: Path) -> None:
    few = sequential.judge(results(tmp_path / "a", [9, 10, 11], [6, 12]), CLAIM)
    assert (few.verdict, few.look) == ("not judged", None)
    assert "the first look is at 6 replicates, and 3 are planned" in few.reason
    unfinished = sequential.judge(results(tmp_path / "b", [9, 10, 11], [3, 6], missing=1), CLAIM)
    assert (unfinished.verdict, unfinished.look) == ("not judged", None)


@pytest.mark.parametrize(
    ("test", "value", "threshold"),
    [
        ({"at_least": 0.05}, 0.03, 0.05),
        ({"margin": 0.05}, 0.01, 0.05),
        ({"margin": 0.05}, -0.02, -0.05),
        ({"margin": 0.05}, 0.08, 0.05),
    ],
)
def test_the_deciding_threshold_is_the_one_that_an_interval_has_to_leave_out(test: dict, value: float, threshold: float) -> None:
    own = {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", **test}
    assert sequential.deciding(Claim.model_validate({"says": "so", "test": own}), value) == threshold


def test_a_look_whose_bases_are_too_few_for_a_verdict_stops_nothing(tmp_path: Path) -> None:
    """At the first look one of three bases lacks the band; the other two, which agree, would be all that was ever seen."""
    found = results(tmp_path, [10] * 6, [3, 6])
    rule = {"bands": {"edge": {"strict_pass@1": [0.05, 0.5]}}}
    for seed in range(6):
        found.records[f"c{seed}"] = {"spec": rule, "metrics": {"bands": {"edge": [4]}, "lacking": ["edge"] * (seed == 0)}}
    arms = [row.model_copy(update={"calibration": f"c{row.seed}"}) for row in found.spec.arms]
    left_out = found._replace(spec=found.spec.model_copy(update={"arms": arms, "lacking": "left out"}))
    judged = sequential.judge(left_out, CLAIM)
    assert at(judged) == ("supported", 2, True)
    assert judged.estimate.bases == 5
    early = sequential.judge(frame.of_seeds(left_out, [0, 1, 2]), CLAIM)
    assert at(early) == ("indicated", 1, False)


def test_the_first_base_of_an_unfinished_study_has_no_siblings_to_be_far_from(tmp_path: Path) -> None:
    found = results(tmp_path, [10, 10, 11], [3], missing=2)
    found = found._replace(spec=found.spec.model_copy(update={"claims": [CLAIM], "stopping": None}))
    assert confounds.find_confounds(found) == []
