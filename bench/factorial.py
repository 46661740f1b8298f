"""Main effects of a study that crosses two factors, for which claims are too narrow as they compare two arms: 90 % intervals over
bases (a replicate is a seed with all its runs) and prompts. Arms are named FIRST_SECOND, and base_FIRST before the second factor.

    PYTHONPATH=src python bench/factorial.py STUDY LOW HIGH [--scale coffee]    such as numerics/exact_factorial fast exact
"""

import argparse
from pathlib import Path

from interplay.core import artifact
from interplay.report.stats import estimate, frame
from interplay.study import expand

LEVEL = 0.1


def contrasts(low: str, high: str) -> dict[str, dict[str, float]]:
    """Name -> weights of arms."""
    pairs = [(a, b) for a in (low, high) for b in (low, high)]
    first, second = ({"_".join(pair): 0.5 if pair[at] == high else -0.5 for pair in pairs} for at in (0, 1))
    return {
        f"first factor, before the second: {high} - {low}": {f"base_{high}": 1.0, f"base_{low}": -1.0},
        f"second factor, mean over the first: {high} - {low}": second,
        f"first factor after the second, mean over it: {high} - {low}": first,
        "interaction, half the difference of differences": {arm: 2 * first[arm] * second[arm] for arm in first},
        f"all {high} - all {low}": {f"{high}_{high}": 1.0, f"{low}_{low}": -1.0},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("low")
    parser.add_argument("high")
    parser.add_argument("--scale", default="coffee")
    parser.add_argument("--metric", default="strict_pass@1")
    given = parser.parse_args()
    plan = expand.plan_study(Path("configs"), given.study, given.scale)
    folders = {digest: artifact.folder(Path("results"), of.kind, digest) for digest, of in plan.stages.items()}
    results = frame.read_results(plan.report_spec(), folders)
    for band in ("id", "edge"):
        for arm in results.spec.arm_names():
            found = estimate.value(results, arm, band, given.metric)
            print(f"{band:5} {arm}: {100 * found.value:.1f}, deviation {100 * found.deviation:.1f}, {len(found.seeds)} seeds")
        for name, weights in contrasts(given.low, given.high).items():
            found = estimate.weighted(results, weights, band, given.metric)
            if found.spread is not None:
                low, high = found.spread._replace(level=LEVEL).interval((-2.0, 2.0))
                ends = f"[{100 * low:+.2f}, {100 * high:+.2f}], deviation {100 * found.deviation:.2f}"
                print(f"{band:5} {name}: {100 * found.value:+.2f} {ends}, {found.over}")


if __name__ == "__main__":
    main()
