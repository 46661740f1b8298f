"""In which unit a metric is told: shares in percent, their differences in points, likelihoods in nats per token, attempts in
units."""

from typing import NamedTuple

import numpy as np

from interplay.schema.metric import NLL, UNITS, is_known


class Measure(NamedTuple):
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

    def shown(self, number: float, signed: bool = False) -> str:
        """Never `-0.0`; a dash for NaN."""
        if np.isnan(number):
            return "–"
        rounded = round(self.factor * number, self.decimals) + 0.0
        return f"{rounded:{'+' if signed and rounded else ''}.{self.decimals}f}"


SHARE = Measure(100, 1, "%", "points", (0.0, 1.0))
NATS = Measure(1, 3, "nats per token", "nats per token", (0.0, np.inf))
UNITED = Measure(1, 2, "attempts per sample", "attempts per sample", (0.0, np.inf))
"""Numbers of units of samples."""
RAW = Measure(1, 3, "", "", (-np.inf, np.inf))
"""What runs log, as it is."""


def of(metric: str) -> Measure:
    """The measure of a metric of evaluations, or of what a run logs."""
    named = {NLL: NATS, UNITS: UNITED}
    return named.get(metric, SHARE if is_known(metric) else RAW)
