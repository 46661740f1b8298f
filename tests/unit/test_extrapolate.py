"""Forecast of the end of a curve from its start: exact curves are recovered, and noise is not called near unless it is."""

import numpy as np
import pytest
import report_study as study

from interplay.report.display_spec import Extrapolate, Figure
from interplay.report.draw import curves, figures
from interplay.report.draw.curves import forecast
from interplay.report.shown_spec import SHARE
from interplay.report.stats import frame

ASKED = Extrapolate(part=0.5, tolerance=0.05)
FREE = (-np.inf, np.inf)


@pytest.mark.parametrize(("c", "a", "b"), [(0.8, 0.7, 0.5), (0.6, 0.5, 0.25), (0.9, 0.8, 1.5), (2.0, -3.0, 0.7)])
@pytest.mark.parametrize("step", [1.0, 50.0])
def test_an_exact_curve_gives_back_its_asymptote_and_its_end(c: float, a: float, b: float, step: float) -> None:
    x = np.arange(24) * step
    y = c - a * (x + 1) ** -b
    found = forecast(x, y, ASKED, FREE)
    assert found is not None
    assert (found.fit.c, found.fit.b) == (pytest.approx(c, abs=1e-4), pytest.approx(b, abs=1e-3))
    assert found.predicted == pytest.approx(y[-1], abs=1e-4)
    assert found.near


def test_one_wild_point_does_not_move_the_fit() -> None:
    x = np.arange(40.0)
    y = 0.9 - 0.8 / (x + 1)
    y[7] = 5.0
    found = forecast(x, y, ASKED, FREE)
    assert found is not None
    assert found.predicted == pytest.approx(0.9 - 0.8 / 40, abs=0.02)


def test_a_curve_that_breaks_off_is_not_near() -> None:
    x = np.arange(20.0)
    y = 0.9 - 0.8 / (x + 1)
    y[12:] = 0.2
    found = forecast(x, y, ASKED, (0.0, 1.0))
    assert found is not None
    assert not found.near
    assert "not near (off by 6" in curves.describe_forecast("rl", found, SHARE)


def test_the_end_is_not_looked_at_and_a_wide_interval_is_what_makes_it_near() -> None:
    draw = np.random.default_rng(0)
    x, y = np.arange(20.0), draw.normal(0.5, 0.1, 20)
    ends = [0.0, 0.5, 1.0]
    found = [forecast(x, np.append(y[:-1], end), ASKED, (0.0, 1.0)) for end in ends]
    assert len({one.predicted for one in found if one}) == 1
    far = forecast(x, np.append(y[:-1], 1.0), ASKED, (0.0, 1.0), half=0.7)
    assert far is not None
    assert found[2] is not None
    assert (found[2].near, found[2].allowed) == (False, 0.05)
    assert (far.near, far.allowed) == (True, 0.7)


def test_noise_is_near_no_more_often_than_chance_allows() -> None:
    """Of independent noise with standard deviation 0.1 no forecast lies within 0.05 of the end in more than 38.3 %."""
    draw = np.random.default_rng(3)
    found = [forecast(np.arange(12.0), draw.normal(0.5, 0.1, 12), ASKED, (0.0, 1.0)) for _ in range(120)]
    near = [one.near for one in found if one]
    assert len(near) == 120
    assert near == [abs(one.predicted - one.observed) <= 0.05 for one in found if one]
    assert np.mean(near) < 0.383 + 3 * (0.383 * 0.617 / 120) ** 0.5


def test_shares_stay_within_their_support_and_few_points_give_no_forecast() -> None:
    x = np.arange(16.0)
    rising = forecast(x, x / 20, ASKED, (0.0, 1.0))
    assert rising is not None
    assert 0 <= rising.fit.c <= 1 + 1e-6
    assert forecast(x[:7], x[:7], ASKED, FREE) is None
    flat = forecast(x, np.full(16, 0.3), ASKED, FREE)
    assert flat is not None
    assert (flat.predicted, flat.near) == (0.3, True)


@pytest.mark.parametrize("place", [3, -1])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_curve_that_diverged_has_no_forecast(place: int, number: float) -> None:
    y = 1 - 1 / (np.arange(20.0) + 1)
    y[place] = number
    assert curves.forecast(np.arange(20.0), y, Extrapolate(), (-np.inf, np.inf)) is None


def test_a_training_curve_has_its_forecast_as_a_note(tmp_path) -> None:
    arms, inputs = [], {}
    for seed in range(2):
        values = [0.7 - 0.5 * (step + 2) ** -1.0 + 0.01 * seed for step in range(20)]
        inputs[f"m{seed}"] = study.write_record(tmp_path, f"m{seed}", "rl", study.RL, {"steps": 20})
        study.write_steps(inputs[f"m{seed}"], reward=values)
        arms.append(study.arm("rl", seed, [f"rl:rl:m{seed}"], "none"))
    figure = Figure(x="step", y="reward", extrapolate=Extrapolate(tolerance=0.01))
    found = frame.read_results(study.spec(arms, figures={"reward": figure}), inputs)
    drawn = figures.draw_figure(found, figure)
    (note,) = drawn.notes
    assert note.startswith("rl: the first 10 of 20 points (to step 10) predict 0.68")
    assert "near (off by 0.00" in note
    assert "Dashed" in drawn.caption
    plain = figures.draw_figure(found, Figure(x="step", y="reward"))
    assert plain.notes == []
    assert plain.svg != drawn.svg
    assert curves.TAIL == 10
