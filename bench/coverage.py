"""How often the report's 95 % intervals hold what they are for, how often an A/A pair is found to differ, and the power of tests.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/coverage.py                    # 4,000 repetitions: some minutes on one core
    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/coverage.py --repetitions 500

Bases, prompts and cells of both are random on the logit scale, samples binomial; a scene's numbers were fitted (least squares
of means and variance components) to what was measured: `edge`, `floor` and `ceiling` are the bands edge, beyond and id of
data/scores/demo.laptop (four bases, 80 prompts, 16 samples), `far bases` the three bases of edge_bases (base 28, 13, 5 %, gain
of RL +42, +15, +20 points; docs/log/studies-of-the-central-paper.md). The true means are integrals over all of them. Each row
has, for a number of replicates: the coverage of the arm's value and of its difference to the base, half the width of the latter
in points, the share of differences whose p is below 5 %, the coverage of the difference by Student's interval over the bases
alone, and coverage and half the width of the interval from both arms (`interval: arms` of a claim).

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/coverage.py --fights

A second table has fights of seven contenders with one control on one base each (`FIGHTS`): how often some contender that is
like the control is found to differ (family-wise error), how often all intervals together hold the true differences, half their
width, the power for a contender that is better by 10 points, how often one that is like it is shown to be equivalent within 5
points, and the same power where Holm's method adjusts paired t tests.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/coverage.py --calibrated

A third table has bands that are calibrated on each base (`CALIBRATED`), from samples of held-out prompts and by the product's
own rule; base and arm are then evaluated on other prompts of the ops that were chosen, and bases without an edge are left out.
The target is the mean over bases that have an edge by such a calibration. Columns as in the first, of repetitions in which two
bases have one, and the share of bases without.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/coverage.py --failing

A fourth table has bases on which the arm fails, with the `fails` of a claim (`FAILING`): a record of each run, its own gain in
logits with noise, marks it as failed below a cut. Columns: true share of marked bases and true gain over the others; coverage of
the share's interval and of the gain's, of repetitions that leave two bases; half the width of the latter; how often three bases
are left, which a verdict needs; and, over all bases, coverage of the plain mean and half its width.
"""

import argparse
import zlib
from dataclasses import dataclass, replace

import numpy as np
from scipy import special, stats

from interplay.evaluate.scores import choose_bands
from interplay.report.stats import intervals
from interplay.report.stats.intervals import LEVEL, crossed_spread, holm_adjusted, nested_spread, pooled_spreads, t_interval

SAMPLES = 16
UNIT, SIGNED = (0.0, 1.0), (-1.0, 1.0)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


@dataclass
class Scene:
    """Logits: mean of the base, gain of the arm; standard deviations of bases, prompts and cells, and of the gain over bases and
    over prompts."""

    mean: float
    gain: float
    base: float
    prompt: float
    cell: float
    gain_base: float
    gain_prompt: float
    prompts: int = 80
    failing: float = 0.0
    """Share of bases on which the arm loses a logit."""
    nested: bool = False
    """Whether each base has prompts of its own."""
    one_base: bool = False
    """Whether all replicates are runs of one base, so that the target is that base."""

    def true_means(self, base: np.ndarray, of_base: float) -> tuple[np.ndarray, np.ndarray]:
        """Of the base and of the arm (n,), where `base` (n,) is what is known of the base and `of_base` the rest's deviation."""
        spread = self.prompt**2 + self.cell**2 + of_base**2
        first = _mean(self.mean + base, spread)
        gains = [(1 - self.failing, self.gain), (self.failing, -1.0)]
        moved = self.gain_base**2 + self.gain_prompt**2
        return first, np.sum([share * _mean(self.mean + gain + base, spread + moved) for share, gain in gains], axis=0)

    def draw(self, random: np.random.Generator, count: int, replicates: int) -> tuple[np.ndarray, ...]:
        """Rates of the base and of the arm (count, replicates, prompts), what their means truly are (count,), and the gain in
        logits on each base (count, replicates)."""
        rows, columns = (count, 1 if self.one_base else replicates, 1), (count, replicates if self.nested else 1, self.prompts)
        base, prompt = random.normal(0, self.base, rows), random.normal(0, self.prompt, columns)
        gain = self.gain + random.normal(0, self.gain_base, (count, replicates, 1))
        gain = np.where(random.random((count, replicates, 1)) < self.failing, -1.0, gain)
        whole = (count, replicates, self.prompts)
        logits = [self.mean + base + prompt + random.normal(0, self.cell, whole)]
        logits.append(logits[0] * 0 + self.mean + base + prompt + gain + random.normal(0, self.gain_prompt, columns))
        logits[1] += random.normal(0, self.cell, whole)
        known = base[:, 0, 0] if self.one_base else np.zeros(count)
        rates = [random.binomial(SAMPLES, 1 / (1 + np.exp(-of))) / SAMPLES for of in logits]
        return *rates, *self.true_means(known, 0.0 if self.one_base else self.base), gain[..., 0]


def _mean(logit: np.ndarray, variance: float) -> np.ndarray:
    """E[1 / (1 + exp(-z))] (n,) of z normal around each of `logit` (n,)."""
    values = 1 / (1 + np.exp(-(logit[:, None] + np.sqrt(variance) * NODES)))
    return values @ WEIGHTS / WEIGHTS.sum()


EDGE = Scene(0.85, 0.98, 0.52, 1.126, 1.06, 0.28, 0.49)
FLOOR = Scene(-4.34, 0.88, 0.68, 1.43, 1.42, 0.41, 0.58)
SCENES = {
    "edge": EDGE,
    "far bases": Scene(-3.82, 2.87, 1.72, 2.61, 1.40, 1.41, 0.13),
    "ceiling": Scene(4.36, -0.41, 0.35, 1.00, 0.83, 0.14, 0.49),
    "floor": FLOOR,
    "below 1 %": replace(FLOOR, mean=-7.0),
    "below 3 %": replace(FLOOR, mean=-5.3),
    "one in ten fails": replace(EDGE, failing=0.1),
    "prompts nested": replace(EDGE, nested=True),
    "600 prompts": replace(EDGE, prompts=600),
    "one base": replace(EDGE, one_base=True),
    "A/A": replace(EDGE, gain=0.020972),
    "A/A, floor": replace(FLOOR, gain=-0.140776),
    "+10 points": replace(EDGE, gain=0.765211),
}

MARGIN, NONE = 0.05, 0.005
"""Of an equivalent contender, and the largest true difference of one that is like the control."""


@dataclass
class Fight:
    """A scene whose arms are one control and contenders with gains (in logits) of their own over it."""

    scene: Scene
    gains: tuple[float, ...] = (0.0,) * 7
    own: float = 0.4
    """Standard deviation over bases of what an arm has for itself: at the edge 4.9 points a run. The scene's deviation of gain
    over bases is what all arms trained on a base share, that over prompts is each arm's own."""
    noisy: float = 1.0
    """How many times as much the last contender varies over bases."""

    def draw(self, random: np.random.Generator, count: int, replicates: int) -> np.ndarray:
        """Differences to the control (count, contenders, replicates, prompts)."""
        scene, arms = self.scene, len(self.gains) + 1
        shared = scene.mean + random.normal(0, np.hypot(scene.base, scene.gain_base), (count, 1, replicates, 1))
        shared = shared + random.normal(0, scene.prompt, (count, 1, 1, scene.prompts))
        shared = shared + random.normal(0, scene.cell, (count, 1, replicates, scene.prompts))
        gains = np.array([0.0, *self.gains])[None, :, None, None] + scene.gain
        factors = np.array([1.0] * (arms - 1) + [self.noisy])[None, :, None, None]
        own = factors * random.normal(0, self.own, (count, arms, replicates, 1))
        own = np.where(random.random(own.shape) < scene.failing, -1.0 - gains, own)
        own = own + random.normal(0, scene.gain_prompt, (count, arms, 1, scene.prompts))
        rates = random.binomial(SAMPLES, 1 / (1 + np.exp(-(shared + gains + own)))) / SAMPLES
        return rates[:, 1:] - rates[:, :1]

    def truth(self) -> np.ndarray:
        """The true differences (contenders,)."""
        scene, gains = self.scene, np.array([0.0, *self.gains]) + self.scene.gain
        spread = scene.base**2 + scene.prompt**2 + scene.cell**2 + scene.gain_base**2 + scene.gain_prompt**2
        moved = np.array([1.0] * (len(gains) - 1) + [self.noisy]) * self.own
        at = np.array([_mean(np.array([scene.mean + one]), spread + by**2)[0] for one, by in zip(gains, moved, strict=True)])
        fails = _mean(np.array([scene.mean - 1.0]), spread)[0]
        at = (1 - scene.failing) * at + scene.failing * fails
        return at[1:] - at[0]


def fight_row(name: str, fight: Fight, replicates: int, repetitions: int) -> str:
    """One line of the table of fights."""
    random = np.random.default_rng(zlib.crc32(f"fight {name} {replicates}".encode()))
    truth, gains = fight.truth(), np.array(fight.gains)
    like, better = np.abs(truth) < NONE, np.argmax(gains) if gains.max() > 0 else None
    wrong = held = found = plain = done = 0
    widths = tied = 0.0
    while done < repetitions:
        count = min(repetitions - done, max(1, 300_000 // (replicates * fight.scene.prompts)))
        for gaps in fight.draw(random, count, replicates):
            spreads = pooled_spreads(gaps, len(gaps))
            ends = np.array([of.interval(SIGNED) for of in spreads])
            rejected = (ends[:, 0] > 0) | (ends[:, 1] < 0)
            wrong += bool((rejected & like).any())
            held += bool(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).all())
            widths += float(np.diff(ends).mean()) / 2
            tied += float((np.abs(ends[like]).max(1) <= MARGIN).mean()) if like.any() else 0.0
            if better is not None:
                p = holm_adjusted(np.array([crossed_spread(of).p_value() for of in gaps]))
                found, plain = found + bool(ends[better, 0] > 0), plain + bool(p[better] < LEVEL)
        done += count
    shares = [f"{100 * number / repetitions:6.1f}" for number in (wrong, held, widths, tied, found, plain)]
    shares[4:] = shares[4:] if better is not None else ["     -", "     -"]
    return f"{name:<22}{replicates:3d}  {100 * truth.max():+6.1f}  {'  '.join(shares)}"


def row(name: str, scene: Scene, replicates: int, repetitions: int) -> str:
    """One line of the table."""
    random = np.random.default_rng(zlib.crc32(f"{name} {replicates}".encode()))
    held, rejected, widths, plain, of_arms = np.zeros(2), 0, 0.0, 0, np.zeros(2)
    done = 0
    while done < repetitions:
        count = min(repetitions - done, max(1, 2_000_000 // (replicates * scene.prompts)))
        base, arm, *truth, _ = scene.draw(random, count, replicates)
        for scores, start, first, second in zip(arm, base, *truth, strict=True):
            gaps = scores - start
            every = (nested_spread([*of]) if scene.nested else crossed_spread(of) for of in (scores, start, gaps))
            value, other, difference = every
            gap = second - first
            for at, (low, high), true in ((0, value.interval(UNIT), second), (1, difference.interval(SIGNED), gap)):
                held[at] += low <= true <= high
            low, high = difference.interval(SIGNED)
            widths += (high - low) / 2
            rejected += difference.p_value() < LEVEL
            low, high = t_interval(gaps.mean(1), SIGNED)
            plain += low <= gap <= high
            low, high = intervals.interval_of_arms(value, other, difference)
            of_arms += [low <= gap <= high, (high - low) / 2]
        done += count
    shares = [f"{100 * number / repetitions:6.1f}" for number in (*held, widths, rejected, plain, *of_arms)]
    return f"{name:<18}{replicates:3d}  {100 * first:5.1f} {100 * gap:+6.1f}  {'  '.join(shares)}"


@dataclass
class Calibrated:
    """Bases whose pass rate falls with op, and the edge that is chosen for each (logits)."""

    slope: float
    """Fall from one op to the next."""
    start: float = 4.0
    """At the first op."""
    ops: int = 9
    base: float = 1.0
    """Standard deviation of bases; the other variances are those of the scene `edge`."""
    probes: int = 100
    """Prompts of each op, by which the edge is chosen."""
    prompts: int = 150
    low: float = 0.05
    high: float = 0.5

    def draw(self, random: np.random.Generator, count: int) -> tuple[list[np.ndarray], np.ndarray, float]:
        """Of `count` bases, those with an edge: rates of base and arm (2, prompts) of each; their true means (bases, 2); and the
        share of bases without an edge."""
        levels = self.start - self.slope * np.arange(self.ops) + random.normal(0, self.base, (count, 1))
        gains = random.normal(EDGE.gain, EDGE.gain_base, count)
        spread = EDGE.prompt**2 + EDGE.cell**2
        means = np.stack([_mean(levels.ravel(), spread), _mean((levels + gains[:, None]).ravel(), spread + EDGE.gain_prompt**2)])
        probes = np.repeat(levels[..., None], self.probes, 2)
        probes = self.sampled(random, probes + random.normal(0, EDGE.prompt, probes.shape))
        rules = {"edge": {"strict_pass@1": (self.low, self.high)}}
        rates, truth = [], []
        for level, gain, own, mean in zip(levels, gains, probes, means.reshape(2, count, self.ops).swapaxes(0, 1), strict=True):
            measured = {op: {"strict_pass@1": float(of.mean())} for op, of in enumerate(own)}
            bands, lacking = choose_bands(rules, measured)
            if not lacking:
                at = np.resize(bands["edge"], self.prompts)
                drawn = level[at] + random.normal(0, EDGE.prompt, self.prompts)
                moved = drawn + gain + random.normal(0, EDGE.gain_prompt, self.prompts)
                rates.append(np.stack([self.sampled(random, logits) for logits in (drawn, moved)]))
                truth.append(mean[:, bands["edge"]].mean(1))
        return rates, np.array(truth), 1 - len(rates) / count

    def sampled(self, random: np.random.Generator, logits: np.ndarray) -> np.ndarray:
        """Shares of right samples."""
        logits = logits + random.normal(0, EDGE.cell, logits.shape)
        return random.binomial(SAMPLES, 1 / (1 + np.exp(-logits))) / SAMPLES


def calibrated_row(name: str, scene: Calibrated, truth: np.ndarray, replicates: int, repetitions: int) -> str:
    """One line of the table of calibrated bands; `truth` (2,): true means of base and arm."""
    random = np.random.default_rng(zlib.crc32(f"calibrated {name} {replicates}".encode()))
    held, widths, rejected, lacking, counted = np.zeros(2), 0.0, 0, 0.0, 0
    for _ in range(repetitions):
        rates, _, without = scene.draw(random, replicates)
        lacking += without / repetitions
        if len(rates) > 1:
            value = nested_spread([of[1] for of in rates])
            gain = nested_spread([of[1] - of[0] for of in rates])
            low, high = value.interval(UNIT)
            held[0] += low <= truth[1] <= high
            low, high = gain.interval(SIGNED)
            held[1] += low <= truth[1] - truth[0] <= high
            widths, rejected, counted = widths + (high - low) / 2, rejected + (gain.p_value() < LEVEL), counted + 1
    shares = [f"{100 * number:6.1f}" for number in (*held / counted, widths / counted, rejected / counted, lacking)]
    return f"{name:<18}{replicates:3d}  {100 * truth[0]:5.1f} {100 * (truth[1] - truth[0]):+6.1f}  {'  '.join(shares)}"


@dataclass
class Rule:
    """A run counts as failed where what it recorded, its gain in logits with noise, is below the cut."""

    cut: float = -0.5
    noise: float = 0.0

    def truth(self, scene: Scene) -> tuple[float, float]:
        """The share of bases that it marks, and the mean gain over the others."""
        gains = np.append(scene.gain + scene.gain_base * NODES, -1.0)
        weights = np.append((1 - scene.failing) * WEIGHTS / WEIGHTS.sum(), scene.failing)
        kept = weights * (special.ndtr((gains - self.cut) / self.noise) if self.noise else gains >= self.cut)
        spread = scene.prompt**2 + scene.cell**2 + scene.base**2
        lifted = _mean(scene.mean + gains, spread + scene.gain_prompt**2) - _mean(np.array([scene.mean]), spread)
        return float(1 - kept.sum()), float(kept @ lifted / kept.sum())

    def marks(self, random: np.random.Generator, gains: np.ndarray) -> np.ndarray:
        """Which runs failed, by their gains."""
        return np.asarray(gains + self.noise * random.normal(size=gains.shape) < self.cut)


def failing_row(name: str, scene: Scene, rule: Rule, replicates: int, repetitions: int) -> str:
    """One line of the table of bases that fail."""
    random = np.random.default_rng(zlib.crc32(f"failing {name} {replicates}".encode()))
    share, true = rule.truth(scene)
    counts, two, done = np.zeros(6), 0, 0
    while done < repetitions:
        count = min(repetitions - done, max(1, 2_000_000 // (replicates * scene.prompts)))
        base, arm, first, second, gains = scene.draw(random, count, replicates)
        gaps, marked = arm - base, rule.marks(random, gains)
        failed = marked.sum(1)
        low, high = np.array([intervals.share_interval(int(one), replicates) for one in range(replicates + 1)])[failed].T
        mean, half = many_intervals(gaps)
        counts[[0, 4, 5]] += ((low <= share) & (share <= high)).sum(), (abs(mean - second + first) <= half).sum(), half.sum()
        for left in range(2, replicates + 1):  # of repetitions that leave so many bases at once
            rows = failed == replicates - left
            if rows.any():
                kept = np.argsort(marked[rows], axis=1, kind="stable")[:, :left, None]
                mean, half = many_intervals(np.take_along_axis(gaps[rows], kept, 1))
                counts[1:4] += (abs(mean - true) <= half).sum(), half.sum(), len(mean) * (left > 2)
                two += len(mean)
        done += count
    counts[1:3] *= repetitions / two
    shares = [f"{100 * number / repetitions:6.1f}" for number in counts]
    return f"{name:<18}{replicates:3d}  {100 * share:5.1f} {100 * true:+6.1f}  {'  '.join(shares)}"


def many_intervals(gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and half widths (n,) of `crossed_spread` of each of gaps (n, R, P); the first is compared with it."""
    replicates, prompts = gaps.shape[1:]
    rows, columns = gaps.mean(2), gaps.mean(1)
    mean, between = rows.mean(1), rows.var(1, ddof=1) / replicates
    residual = gaps - rows[..., None] - columns[:, None] + mean[:, None, None]
    noise = (residual**2).sum((1, 2)) / ((replicates - 1) * (prompts - 1) * replicates * prompts)
    within = np.maximum(0.0, columns.var(1, ddof=1) / prompts - np.minimum(noise, between))
    free = (between + within) ** 2 / (between**2 / (replicates - 1) + within**2 / (prompts - 1))
    of_bases = stats.t.isf(LEVEL / 2, replicates - 1) * np.sqrt(between)
    half = np.maximum(stats.t.isf(LEVEL / 2, free.round(1)) * np.sqrt(between + within), of_bases)
    assert np.isclose(half[0], crossed_spread(gaps[0]).half)
    return mean, half


FAILING = {
    "exact rule": (SCENES["one in ten fails"], Rule()),
    "noisy record": (SCENES["one in ten fails"], Rule(cut=0.0, noise=0.5)),
    "half missed": (SCENES["one in ten fails"], Rule(cut=-1.0, noise=0.3)),
    "good ones marked": (SCENES["one in ten fails"], Rule(cut=0.6, noise=0.3)),
    "one in three fails": (replace(EDGE, failing=1 / 3), Rule()),
}

CALIBRATED = {
    "shallow": Calibrated(0.9),
    "steep": Calibrated(2.5),
    "few probes": Calibrated(0.9, probes=20),
    "narrow range": Calibrated(2.5, low=0.1, high=0.2),
}

FIGHTS = {
    "A/A": Fight(EDGE),
    "A/A, far bases": Fight(SCENES["far bases"]),
    "A/A, floor": Fight(FLOOR),
    "A/A, one in ten fails": Fight(SCENES["one in ten fails"]),
    "A/A, one noisy arm": Fight(EDGE, noisy=3.0),
    "one +10": Fight(EDGE, gains=(0.0,) * 6 + (0.990,)),
    "one +10, far bases": Fight(SCENES["far bases"], gains=(0.0,) * 6 + (1.0425,)),
    "one +10, some fail": Fight(SCENES["one in ten fails"], gains=(0.0,) * 6 + (1.126,)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--scenes", nargs="*", default=list(SCENES), choices=list(SCENES))
    parser.add_argument("--replicates", nargs="*", type=int, default=[3, 6, 12, 24])
    parser.add_argument("--fights", action="store_true", help="the table of fights alone")
    parser.add_argument("--calibrated", action="store_true", help="the table of calibrated bands alone")
    parser.add_argument("--failing", action="store_true", help="the table of bases on which the arm fails alone")
    options = parser.parse_args()
    if options.failing:
        print(f"{'failing':<18}{'n':>3}  {'share':>5} {'gain':>6}  {_heads('share', 'gain', 'half', 'three', 'all', 'half')}")
        lines = (failing_row(name, *of, n, options.repetitions) for name, of in FAILING.items() for n in options.replicates)
    elif options.calibrated:
        print(f"{'calibrated':<18}{'n':>3}  {'base':>5} {'gain':>6}  {_heads('value', 'gain', 'half', 'p<.05', 'no edge')}")
        truth = {name: of.draw(np.random.default_rng(1), 20_000)[1].mean(0) for name, of in CALIBRATED.items()}
        each = ((name, of, truth[name], n) for name, of in CALIBRATED.items() for n in options.replicates)
        lines = (calibrated_row(*of, options.repetitions) for of in each)
    elif options.fights:
        print(f"{'fight':<22}{'n':>3}  {_heads('+gain', 'family', 'held', 'half', 'tied', 'power', 'Holm')}")
        lines = (fight_row(name, of, n, options.repetitions) for name, of in FIGHTS.items() for n in options.replicates)
    else:
        heads = _heads("value", "gain", "half", "p<.05", "t only", "arms", "half")
        print(f"{'scene':<18}{'n':>3}  {'base':>5} {'gain':>6}  {heads}")
        lines = (row(name, SCENES[name], n, options.repetitions) for name in options.scenes for n in options.replicates)
    for line in lines:
        print(line, flush=True)


def _heads(*names: str) -> str:
    return "  ".join(f"{name:>6}" for name in names)


if __name__ == "__main__":
    main()
