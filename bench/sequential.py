"""Error rates of verdicts that are judged at looks while replicates are added (report/stats/sequential.py).

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/sequential.py                     # 4,000 repetitions: some minutes on one core
    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/sequential.py --repetitions 500

Scenes are those of bench/coverage.py: bases, prompts and samples drawn anew each time, with the looks 6, 12 and 24 of
`stopping: {looks: [6, 12, 24]}`. The claim is that a difference is at least a threshold. Columns: the true difference and the
threshold in points; verdicts for the claim and against it (%), given up for futility (%), mean number of bases at the stop;
coverage of the interval after stopping and of the repeated one at the stop (%), half the width of the former in points, and how
often plain 95 % intervals at the same looks would give a verdict (%), which is the rate of errors of who just looks.
Where truth and threshold are equal each verdict is wrong: their sum is the rate of errors, at most 5 %. `fails marked` leaves out
bases whose own record says that they failed (the `fails` of a claim), exactly or with noise; `fails, late` looks at 12 and 24.
"""

import argparse
import zlib
from dataclasses import replace

import numpy as np
from coverage import EDGE, FAILING, FLOOR, SCENES, SIGNED, Rule, Scene

from interplay.report.claim_spec import AGAINST, FOR, NO_INFORMATION, Claim
from interplay.report.stats import sequential
from interplay.report.stats.contrast import JudgedClaim
from interplay.report.stats.estimate import Estimate
from interplay.report.stats.intervals import Spread, crossed_spread, nested_spread

LOOKS = (6, 12, 24)
LATE = {"fails, late": (12, 24)}
"""Looks of a test that has others."""
RULES: dict[str, Rule] = {"fails marked": FAILING["exact rule"][1], "noisy record": FAILING["noisy record"][1]}
"""Tests of the mean over bases that did not fail, and the rule for those that did."""
TESTS: dict[str, tuple[Scene, float | None]] = {
    "A/A": (SCENES["A/A"], None),
    "A/A, floor": (SCENES["A/A, floor"], None),
    "A/A, nested": (replace(SCENES["A/A"], nested=True), None),
    "at its threshold": (EDGE, None),
    "one in ten fails": (replace(EDGE, failing=0.1), None),
    "fails, late": (replace(EDGE, failing=0.1), None),
    "fails marked": (replace(EDGE, failing=0.1), None),
    "noisy record": (replace(EDGE, failing=0.1), None),
    "+3 points": (replace(EDGE, gain=0.24), 0.0),
    "+6 points": (replace(EDGE, gain=0.45), 0.0),
    "+10 points": (SCENES["+10 points"], 0.05),
    "far bases": (SCENES["far bases"], 0.05),
    "floor": (FLOOR, 0.03),
}
"""Name -> scene, and the threshold; None: the true difference."""


def spreads(gaps: np.ndarray, kept: np.ndarray, nested: bool, looks: tuple[int, ...]) -> list[Spread]:
    """Of the differences (24, P) at each look, without those of bases that failed."""
    parts = [gaps[:count][kept[:count]] for count in looks]
    return [nested_spread(list(of)) if nested else crossed_spread(of) for of in parts]


def judge(claim: Claim, found: list[Spread], bounds: sequential.Bounds, looks: tuple[int, ...]) -> JudgedClaim:
    """The claim at its stop."""
    for number, spread in enumerate(found, 1):
        low, high = spread._replace(level=bounds[number - 1].level).interval(SIGNED)
        estimate = Estimate(spread.mean, low, high, spread=spread)
        made = sequential.at_look(JudgedClaim(claim, claim.word(low, high), "", estimate), number, bounds, looks)
        if made.look and made.look.stopped:
            return made
    raise AssertionError("the last look stops")


def row(name: str, repetitions: int) -> str:
    """One line of the table."""
    (scene, threshold), rule, looks = TESTS[name], RULES.get(name), LATE.get(name, LOOKS)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    bounds = sequential.boundaries(looks, 0.05, 0.2)
    counts, done = np.zeros(8), 0
    while done < repetitions:
        count = min(repetitions - done, 2_000_000 // (LOOKS[-1] * scene.prompts))
        base, arm, first, second, moved = scene.draw(random, count, LOOKS[-1])
        kept = ~rule.marks(random, moved) if rule else np.ones(moved.shape, bool)
        truth = np.full(count, rule.truth(scene)[1]) if rule else second - first
        for gaps, true, of in zip(arm - base, truth, kept, strict=True):
            at = float(true) if threshold is None else threshold
            test = {"difference": "strict_pass@1", "band": "edge", "arm": "a", "against": "b", "at_least": at}
            claim, found = Claim.model_validate({"says": name, "test": test}), spreads(gaps, of, scene.nested, looks)
            made, plain = judge(claim, found, bounds, looks), [claim.word(*one.interval(SIGNED)) for one in found]
            assert made.look is not None
            low, high = made.look.interval
            futile = made.verdict == NO_INFORMATION and made.look.number < len(looks)
            held = (low <= true <= high, made.estimate.low <= true <= made.estimate.high)
            verdicts = (made.verdict in FOR, made.verdict in AGAINST, futile)
            any_plain = any(word != NO_INFORMATION for word in plain)
            counts += [*verdicts, made.look.replicates / 100, *held, (high - low) / 2, any_plain]
        done += count
    shares = "  ".join(f"{100 * number / repetitions:6.1f}" for number in counts)
    return f"{name:<18}{100 * float(true):+6.1f} {100 * at:+6.1f}  {shares}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--scenes", nargs="*", default=list(TESTS), choices=list(TESTS))
    options = parser.parse_args()
    heads = "  ".join(f"{head:>6}" for head in ("for", "agains", "futile", "bases", "after", "repeat", "half", "plain"))
    print(f"{'scene':<18}{'true':>6} {'claim':>6}  {heads}")
    for name in options.scenes:
        print(row(name, options.repetitions), flush=True)


if __name__ == "__main__":
    main()
