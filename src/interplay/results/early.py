"""Early warnings of a training run, from the lines of its metrics.jsonl: what would make the rest of the run worthless, said
while it can still be stopped. Pure functions; each row of `CHECKS` documents its threshold."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Lines = Sequence[Mapping[str, float]]
"""Of a metrics.jsonl, in the order of their steps."""

EQUAL_STEPS = 5
"""Steps in a row without a difference between the rewards of any group."""
WINDOW = 5
"""Last steps whose mean is compared."""
ENTROPY_LEFT = 0.1
"""Share of the entropy of the first steps below which it has collapsed."""
TRUNCATED = 0.5
"""Share of completions that were cut off."""
KL_LEAST, KL_TIMES = 0.1, 10.0
"""Nats per token, and multiple of the median so far, above both of which the KL to the reference has blown up."""
OVER_TIME = 2.0
"""Multiple of the time that past runs took."""


class Check(NamedTuple):
    """One kind of warning."""

    name: str
    threshold: str
    """When it is given, in words."""
    advice: str
    find: Callable[[Lines], str]
    """Lines -> what is wrong, with its numbers; empty where nothing is."""


class Warned(NamedTuple):
    """A warning about one run."""

    name: str
    text: str


def values_of(lines: Lines, key: str) -> list[float]:
    """The values of a metric, step by step, without lines that lack it."""
    return [line[key] for line in lines if key in line]


def equal_rewards(lines: Lines) -> str:
    """Whether no group of the last steps had two different rewards: its advantages are 0, and nothing is learnt."""
    last = values_of(lines, "effective_ratio")[-EQUAL_STEPS:]
    if len(last) < EQUAL_STEPS or any(last):
        return ""
    steps = next((n for n, value in enumerate(reversed(values_of(lines, "effective_ratio"))) if value), len(lines))
    reward = values_of(lines, "reward")[-1:]
    return f"all rewards of each group equal for {steps} steps{f' (mean {reward[0]:.3g})' if reward else ''}"


def collapsed_entropy(lines: Lines) -> str:
    """Whether the entropy of the policy is a small share of what it was at first."""
    known = values_of(lines, "entropy")
    if len(known) < 2 * WINDOW:
        return ""
    first, last = _mean(known[:WINDOW]), _mean(known[-WINDOW:])
    return f"entropy {first:.3g} -> {last:.3g} nats per token" if last < ENTROPY_LEFT * first else ""


def cut_off(lines: Lines) -> str:
    """Whether most completions of the last steps were cut off at their longest length."""
    last = values_of(lines, "truncated")[-WINDOW:]
    return f"{_mean(last):.0%} of completions truncated" if len(last) == WINDOW and _mean(last) > TRUNCATED else ""


def blown_kl(lines: Lines) -> str:
    """Whether the KL to the reference has grown by a multiple."""
    known = values_of(lines, "kl")
    if len(known) < 2 * WINDOW:
        return ""
    median, last = sorted(known)[len(known) // 2], _mean(known[-WINDOW:])
    return f"KL {median:.3g} -> {last:.3g} nats per token" if last > max(KL_LEAST, KL_TIMES * median) else ""


CHECKS = (
    Check(
        "equal rewards",
        f"no group with two different rewards for {EQUAL_STEPS} steps",
        "choose problems that are solved sometimes, or a finer reward",
        equal_rewards,
    ),
    Check(
        "entropy collapse",
        f"entropy, mean of {WINDOW} steps, below {ENTROPY_LEFT:.0%} of that of the first {WINDOW}",
        "lower the learning rate, or add an entropy or KL term",
        collapsed_entropy,
    ),
    Check(
        "truncation",
        f"over {TRUNCATED:.0%} of completions truncated, mean of {WINDOW} steps",
        "raise max_completion_length, or reward shorter answers",
        cut_off,
    ),
    Check(
        "KL blow-up",
        f"KL to the reference, mean of {WINDOW} steps, over {KL_TIMES:g} times its median and over {KL_LEAST} nats per token",
        "lower the learning rate, or raise beta",
        blown_kl,
    ),
)
"""THE table of warnings from metrics; `over_time` adds that of the clock."""


def warnings_of(lines: Lines) -> list[Warned]:
    """All warnings of a run so far."""
    return [Warned(check.name, f"{said}; {check.advice}") for check in CHECKS if (said := check.find(lines))]


def over_time(left: float, planned: float) -> list[Warned]:
    """A warning where what is left of a run, in seconds, takes more than `OVER_TIME` times what finished runs of its kind took
    for as much, and at least a minute more."""
    if left < max(OVER_TIME * planned, planned + 60) or planned <= 0:
        return []
    return [Warned("over time", f"what is left takes {left / planned:.1f} times as long as past runs; is the machine shared?")]


BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 12) -> str:
    """A curve as one line of text: the means of `width` equal parts between the least and the greatest."""
    width = min(width, len(values))
    parts = [values[len(values) * n // width : len(values) * (n + 1) // width] for n in range(width)]
    means = [_mean(part) for part in parts]
    if not means:
        return ""
    low, high = min(means), max(means)
    return "".join(BARS[round((len(BARS) - 1) * ((mean - low) / (high - low) if high > low else 0.5))] for mean in means)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
