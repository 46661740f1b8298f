"""How arms and numbers are shown: labels and colours; units, decimals, and what a mean cannot leave."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Literal

from interplay.core.model import Model

# Arms.


COLORS = {
    "grey": "#4d4d4d",
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "pink": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "purple": "#7F3C8D",
}
"""Grey, then Okabe and Ito's colours, which colour-blind readers can distinguish, the hardest to see on white last."""


def check_color(value: str) -> str:
    """`#rrggbb` for a colour. Raises ValueError for what is none."""
    if value and value not in COLORS and not re.fullmatch("#[0-9a-fA-F]{6}", value):
        raise ValueError(f"no colour: '{value}'; write #rrggbb, or one of {', '.join(COLORS)}")
    return COLORS.get(value, value)


class ArmShown(Model):
    """How an arm is called and drawn."""

    label: str = ""
    """Empty: made of its name."""
    color: str = ""
    """`#rrggbb`; empty: by its place among the arms."""


DROPPED = ("method", "sampler", "model", "task")
"""Axes whose values are names that need no other before them."""


def readable(arm: str) -> str:
    """An arm's name for readers: `kl[beta=0.1]` is `kl: beta 0.1`, `mid[data=edge:0.1+corpus:0.9]` is `mid: edge 0.1, corpus
    0.9`, and `loss[method=gspo]` is `loss: gspo`."""
    found = re.fullmatch(r"([^\[]*)\[(.*)\]", arm)
    if not found:
        return arm
    words = []
    for pair in re.split(r",(?=[\w.]+=)", found[2]):
        key, _, value = pair.partition("=")
        shares = re.fullmatch(r"[\w.]+:[^:+]+(\+[\w.]+:[^:+]+)*", value)
        value = value.replace(":", " ").replace("+", ", ") if shares else value
        words.append(value if shares or key in DROPPED else f"{key.replace('_', ' ')} {value}")
    return f"{found[1]}: {', '.join(words)}"


# Numbers: metrics of evaluations by their rows (`metric_spec`), and what runs log.


@dataclasses.dataclass(frozen=True)
class Measure:
    """How numbers of a kind are written."""

    factor: float
    """From the number as it is kept to the one that is shown."""
    decimals: int
    unit: str
    unit_of_differences: str
    support: tuple[float, float]
    """What a mean cannot leave."""

    @property
    def support_of_differences(self) -> tuple[float, float]:
        """What a difference of two means cannot leave."""
        return self.support[0] - self.support[1], self.support[1] - self.support[0]

    @property
    def bounded(self) -> bool:
        """Whether a mean cannot leave [low, high] on either side."""
        return math.isfinite(self.support[0]) and math.isfinite(self.support[1])

    @property
    def in_unit(self) -> str:
        """What follows the name of a metric in a sentence: `in nats per token`, `per sample`."""
        return self.unit if self.unit.startswith("per ") else f"in {self.unit}"

    def unit_of(self, signed: bool) -> str:
        """The unit of a number, or of a difference (`signed`)."""
        return self.unit_of_differences if signed else self.unit

    def tie(self, margin: float | None) -> str:
        """What follows a claimed bound where two within the margin count as equal; empty without one."""
        return f", equal within {self.shown(margin)}" if margin else ""

    def shown(self, number: float, signed: bool = False) -> str:
        """Never `-0.0`; a dash for NaN."""
        if math.isnan(number):
            return "–"
        rounded = round(self.factor * number, self.decimals) + 0.0
        return f"{rounded:{'+' if signed and rounded else ''}.{self.decimals}f}"


SHARE = Measure(100, 1, "%", "points", (0.0, 1.0))
SIGNED = Measure(100, 1, "points", "points", (-1.0, 1.0))
"""The difference of two shares of the same samples."""
NATS = Measure(1, 3, "nats per token", "nats per token", (0.0, math.inf))
ATTEMPTS = Measure(1, 2, "attempts per sample", "attempts per sample", (0.0, math.inf))
TURNS = Measure(1, 2, "per episode", "per episode", (0.0, math.inf))
RETURNED = Measure(1, 3, "per sample", "per sample", (-math.inf, math.inf))
"""What a function of the user's own returns for a sample, as it is."""
STEPS = Measure(1, 1, "steps", "steps", (0.0, math.inf))
TOKENS = Measure(1e-3, 1, "thousand tokens", "thousand tokens", (0.0, math.inf))
SECONDS = Measure(1, 1, "CPU seconds", "CPU seconds", (0.0, math.inf))
COMPLETION_NATS = Measure(1, 2, "nats per completion", "nats per completion", (-math.inf, math.inf))
RAW = Measure(1, 3, "", "", (-math.inf, math.inf))
"""What runs log, as it is."""
FRACTION = Measure(1, 3, "", "", SHARE.support)
"""A share that is written as it is kept, not in percent."""


@dataclasses.dataclass(frozen=True)
class Logged:
    """A key of `metrics.jsonl`. Its mean over the first or the last steps is in the record, as `KEY_first` and `KEY_last`, and on
    the validation set as `eval_KEY`. A pattern, such as `drawn/.+`, means keys that depend on the study. The rows are in
    logged.json."""

    name: str
    heading: str = ""
    """What an axis says; empty: the key."""
    measure: Literal["raw", "fraction"] = "raw"


LOGGED = tuple(Logged(**row) for row in json.loads(Path(__file__).with_name("logged.json").read_text(encoding="utf-8")))
"""What runs log and record of themselves. Other keys are written as they are, and nothing is known of their support."""


MINUS = " - "
"""Between two keys of one record: `reward_last - reward_first` is how far the reward of a run rose."""


def logged_measure(key: str) -> Measure:
    """How a key of `metrics.jsonl` or of a record, or the difference of two, is written, and what its mean cannot leave."""
    key, _, other = key.partition(MINUS)
    found = (
        FRACTION if row.measure == "fraction" else RAW
        for row in LOGGED
        if re.fullmatch(rf"(eval_)?({row.name})(_first|_last)?", key)
    )
    measure = next(found, RAW)
    return dataclasses.replace(measure, support=measure.support_of_differences) if other else measure


def logged_heading(key: str) -> str:
    """What the axis of a figure says of a key."""
    return next((row.heading for row in LOGGED if row.name == key and row.heading), key)
