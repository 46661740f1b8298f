"""Forecast of the end of a curve from its start, and the error of the forecast.

The curve is y = c - a (x + 1)^-b: it saturates at c, as learning curves do that follow a power law (Hestness et al.,
arXiv:1712.00409). It is fitted by least squares with the soft L1 loss, which a few outliers do not move. The end is never looked
at before it is judged. Nearness says little where the curve had flattened already; so the value that the fitted part ended with
is judged by the same bound and reported with it."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from scipy import optimize

from interplay.report.metric_spec import Measure
from interplay.report.spec import Extrapolate
from interplay.report.stats import estimate

LEAST = 4
"""Points that a curve of three parameters is fitted to at least."""
RATES = (0.1, 0.3, 1.0, 3.0)
SLOWEST, FASTEST = 0.01, 10.0
"""Where the search for b starts, and where it stays."""
ROOM = 3.0
"""How far beyond the fitted values an asymptote may lie, in ranges of these."""
SMALLEST = 1e-9
EXACT = 1e-12


class Fit(NamedTuple):
    """y = c - a ((x + 1) / start)^-b."""

    c: float
    a: float
    b: float
    start: float

    def at(self, x: np.ndarray) -> np.ndarray:
        """Values (n,) at x (n,)."""
        return self.c - self.a * ((x + 1) / self.start) ** -self.b


class Forecast(NamedTuple):
    """A prediction and the observation. The end is the mean over the last points that are judged together."""

    fit: Fit
    fitted: int
    """Points that it was fitted to."""
    x: np.ndarray
    """Every place of the curve (n,)."""
    predicted: float
    observed: float
    allowed: float
    """Largest error that counts as near: the tolerance, or half of the interval of what was observed if that is wider."""
    stayed: float
    """What the fitted part ended with: the prediction that nothing changes any more."""

    @property
    def near(self) -> bool:
        """Whether the prediction lies near what was observed."""
        return abs(self.predicted - self.observed) <= self.allowed


def forecast(
    x: np.ndarray, y: np.ndarray, asked: Extrapolate, support: tuple[float, float], half: float = np.nan, judged: int = 1
) -> Forecast | None:
    """Fit the first part of y (n,) at x (n,) and judge it by the mean of the last `judged` points, whose interval has the
    half-width `half` (NaN: none is known). `support`: what y cannot leave. None where fewer than four points are fitted or none
    is left."""
    fitted = int(asked.part * len(x))
    judged = min(judged, len(x) - fitted)
    if fitted < LEAST or judged < 1:
        return None
    found = fit(x[:fitted], y[:fitted], support)
    return Forecast(
        fit=found,
        fitted=fitted,
        x=x,
        predicted=float(found.at(x[-judged:]).mean()),
        observed=float(y[-judged:].mean()),
        allowed=max(asked.tolerance, 0.0 if np.isnan(half) else half),
        stayed=float(y[max(0, fitted - judged) : fitted].mean()),
    )


def fit(x: np.ndarray, y: np.ndarray, support: tuple[float, float]) -> Fit:
    """The curve through y (n,) at x (n,), n >= 4: the best of several starts, since the loss has more than one valley. The
    asymptote stays within the support and not far from the values, which a straight line would send to infinity."""
    start, spread = float(x[0] + 1), float(np.ptp(y))
    if spread <= SMALLEST:
        return Fit(float(y.mean()), 0.0, 1.0, start)
    low, high = max(support[0], y.min() - ROOM * spread), min(support[1], y.max() + ROOM * spread)
    low, high = min(low, y.min() - SMALLEST), max(high, y.max() + SMALLEST)
    reach = (ROOM + 2) * spread * 10

    def errors(values: np.ndarray) -> np.ndarray:
        c, gap, rate = values.tolist()
        return Fit(c, gap, rate, start).at(x) - y

    bounds = ([low, -reach, SLOWEST], [high, reach, FASTEST])
    scale = max(_noise(y), 1e-3 * spread)
    tries = []
    for rate in RATES:
        first = [float(y[-1]), float(y[-1] - y[0]), rate]
        tries.append(
            optimize.least_squares(
                errors, first, bounds=bounds, loss="soft_l1", f_scale=scale, xtol=EXACT, ftol=EXACT, gtol=EXACT, max_nfev=2000
            )
        )
    c, gap, rate = min(tries, key=lambda one: float(one.cost)).x.tolist()
    return Fit(c, gap, rate, start)


def _noise(y: np.ndarray) -> float:
    """Standard deviation of the noise around a curve that changes little from point to point: from second differences, whose
    median outliers do not move."""
    second = np.abs(y[2:] - 2 * y[1:-1] + y[:-2])
    return float(1.4826 * np.median(second) / np.sqrt(6))


def half_width(ends: np.ndarray) -> float:
    """Half of Student's interval of the mean of `ends` (m,), one per seed; NaN for one seed."""
    if len(ends) < 2:
        return float("nan")
    low, high = estimate.t_interval(ends, (-np.inf, np.inf))
    return (high - low) / 2


def dash(axis: Axes, found: Forecast, measure: Measure, color: str) -> None:
    """Draw the curve on from where the fitted part ends, dashed."""
    first, last = float(found.x[found.fitted - 1]), float(found.x[-1])
    places = np.linspace(first, last, 60)
    axis.plot(places, measure.factor * found.fit.at(places), color=color, linewidth=1.3, linestyle=(0, (4, 2)))


def too_short(name: str, points: int) -> str:
    """Why there is no forecast."""
    return f"{name}: no forecast: of its {points} points too few are fitted (at least {LEAST}) or none is left for the test."


def line(name: str, found: Forecast, measure: Measure) -> str:
    """Forecast, observation and error, in one sentence."""
    predicted, observed, allowed, limit = (
        measure.shown(number) for number in (found.predicted, found.observed, found.allowed, found.fit.c)
    )
    off = measure.shown(abs(found.predicted - found.observed))
    said = (
        f"{name}: the first {found.fitted} of {len(found.x)} points (to step {found.x[found.fitted - 1]:g}) predict {predicted} "
    )
    said += f"for step {found.x[-1]:g} and {limit} in the limit; observed {observed}: "
    said += f"{'near' if found.near else 'not near'} (off by {off}, allowed {allowed})."
    verdict = "near" if abs(found.stayed - found.observed) <= found.allowed else "not near"
    return f"{said} The prediction of no change, {measure.shown(found.stayed)}, would have been {verdict}."
