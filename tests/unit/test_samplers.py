"""Each sampler against hand-made histories: which prompts it takes, and in which proportion."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from sampler_cases import deck, frequencies, made, outcome, rates
from scipy import stats

from interplay.core.model import PermanentError
from interplay.rl.difficulty_samplers import RetainHardest, open_share
from interplay.rl.sampler import Tracker, draw_weighted, phase_at, prompt_prior
from interplay.rl.sampler_spec import EasyToHardSampler
from interplay.rl.samplers import LearnedMixture

# --- what all share ---


def test_the_prior_is_the_share_of_a_set_over_its_size() -> None:
    assert prompt_prior(deck([2, 4], [0.5, 0.5])).tolist() == [0.25, 0.25, 0.125, 0.125, 0.125, 0.125]


def test_weighted_draws_come_in_proportion_and_never_twice() -> None:
    weights = np.array([1.0, 0.0, 3.0, 4.0])
    stream = np.random.Generator(np.random.PCG64(0))
    pairs = Counter(tuple(draw_weighted(stream, weights, 2)) for _ in range(8000))
    # One after another: first i with w_i / 8, then j with w_j / (8 - w_i).
    expected = {(i, j): 8000 * weights[i] / 8 * weights[j] / (8 - weights[i]) for i in (0, 2, 3) for j in (0, 2, 3) if i != j}
    assert set(pairs) == set(expected)
    assert stats.chisquare([pairs[p] for p in expected], list(expected.values())).pvalue > 1e-3
    assert sorted(draw_weighted(stream, weights, 9)) == [0, 2, 3], "no more than there are"


def test_the_phase_is_the_one_whose_part_of_the_run_holds_the_progress() -> None:
    lengths = [1, 2, 1]
    assert [phase_at(step / 8, lengths) for step in range(8)] == [0, 0, 1, 1, 1, 1, 2, 2]


def test_the_tracker_follows_the_published_rule() -> None:
    # Single completions, rho 0.875: a 0.5 -> 0.875 * 0.5 + 1 -> 0.875 * 1.4375; b 0.5 -> 0.4375 -> 0.4375 * 0.875 + 1.
    tracker = Tracker(2, rho=0.875)
    tracker.add([outcome(1, 1.0), outcome(1, 0.0)])
    assert (tracker.a[1], tracker.b[1]) == (1.2578125, 1.3828125)
    assert tracker.value().tolist() == [0.5, pytest.approx(1.2578125 / 2.640625)]
    assert tracker.seen.tolist() == [False, True]


def test_the_tracker_counts_shares_of_a_pass_and_no_more_than_one_each() -> None:
    tracker = Tracker(1, prior=(0, 0))
    assert tracker.value().tolist() == [0.5], "nothing is known"
    tracker.add([outcome(0, 0.25, 7.0, -3.0, 0.0)])
    assert tracker.value().tolist() == [1.25 / 4]


def test_evidence_that_fades_goes_back_to_the_prior() -> None:
    tracker = Tracker(1, prior=(0.5, 0.5))
    tracker.add([outcome(0, 0, 0, 0, 0)])
    tracker.fade(0.5)
    assert (tracker.a[0], tracker.b[0]) == (0.5, 2.5)
    for _ in range(60):
        tracker.fade(0.5)
    assert tracker.value()[0] == pytest.approx(0.5)


# --- easy to hard, hard first ---


@pytest.mark.parametrize(
    ("pacing", "expected"),
    [
        # start 0.2, until 0.8: done = progress / 0.8.
        ("linear", [0.2, 0.6, 1.0, 1.0]),
        ("root", [0.2, np.sqrt(0.04 + 0.96 * 0.5), 1.0, 1.0]),
        ("step", [0.2, 0.2 + 0.8 / 3, 1.0, 1.0]),
    ],
)
def test_the_share_that_is_open_grows_as_its_formula_says(pacing: Any, expected: list[float]) -> None:
    spec = EasyToHardSampler(pacing=pacing)
    assert [open_share(spec, progress) for progress in (0.0, 0.4, 0.8, 1.0)] == pytest.approx(expected)


def test_easy_to_hard_opens_the_lowest_ops_first_and_hard_first_the_highest() -> None:
    options = {"pacing": "linear", "start": 0.25, "until": 1.0}
    for name, expected in (("easy_to_hard", {0, 1, 2}), ("hard_first", {9, 10, 11})):
        assert set(made(name, **options).select(3, 1)) == expected
        assert {i for _ in range(5) for i in made(name, deck(seed=_), **options).select(3, 1)} == expected
    # Half of the run: 0.25 + 0.75 / 2 of 12 prompts are 7.5, so the eighth is open as well.
    assert set(made("easy_to_hard", **options).select(8, 6)) == set(range(8))


def test_what_is_open_is_drawn_uniformly() -> None:
    counts = frequencies("easy_to_hard", deck(), [], 1200, 1, start=0.5, by="length")
    assert counts[6:].sum() == 0
    assert stats.chisquare(counts[:6]).pvalue > 1e-3


def test_a_paced_run_that_opens_nothing_at_first_draws_the_first_prompt_that_the_mix_has() -> None:
    assert made("easy_to_hard", deck([6, 6], [0.0, 1.0]), start=0.0).select(2, 1) == [6, 6]


def test_the_mix_decides_how_much_of_the_order_is_open_and_weighs_what_is() -> None:
    # The hard set has three quarters of the mix: the first half of the mix is the easy set and a third of the hard one.
    counts = frequencies("easy_to_hard", deck([6, 6], [0.25, 0.75]), [], 1500, 1, start=0.5)
    assert (counts > 0).tolist() == [True] * 8 + [False] * 4
    assert stats.chisquare(counts[:8], 1500 * np.array([1 / 24] * 6 + [3 / 24] * 2) / 0.5).pvalue > 1e-3


def test_bands_are_ordered_as_the_spec_lists_them() -> None:
    draws = made("easy_to_hard", by="band", bands=["high", "low", "middle"], start=1 / 3)
    assert {i % 3 for i in draws.select(4, 1)} == {2}
    with pytest.raises(PermanentError, match="lack 'middle'"):
        made("easy_to_hard", by="band", bands=["high", "low"]).select(1, 1)


def test_an_order_by_pass_rate_follows_what_was_observed() -> None:
    draws = made("easy_to_hard", deck([4], steps=2), by="pass_rate", start=0.5)
    draws.observe(1, [outcome(0, 0, 0), outcome(1, 1, 1), outcome(2, 0, 1), outcome(3, 1, 1)])
    assert set(draws.select(2, 1)) == {1, 3}


# --- edge of competence ---


def test_the_edge_sampler_takes_those_nearest_to_its_target() -> None:
    draws = made("edge_of_competence", deck([6]), candidates=None, explore=0.0)
    draws.observe(1, rates(0, 8, 4, 1, 5, 7))
    assert set(draws.select(2, 2)) == {2, 4}
    high = made("edge_of_competence", deck([6]), candidates=None, explore=0.0, target=1.0)
    high.observe(1, rates(0, 8, 4, 1, 5, 7))
    assert set(high.select(2, 2)) == {1, 5}


def test_within_a_band_all_are_alike() -> None:
    counts = np.zeros(6)
    for seed in range(600):
        draws = made("edge_of_competence", deck([6], seed=seed), candidates=None, explore=0.0, band=[0.3, 0.8], half_life=None)
        draws.observe(1, rates(0, 8, 4, 3, 5, 6))
        counts[draws.select(1, 2)] += 1
    assert counts[:2].sum() == 0
    assert stats.chisquare(counts[2:]).pvalue > 1e-3


def test_a_share_of_the_edge_draws_goes_to_prompts_that_were_never_drawn() -> None:
    draws = made("edge_of_competence", deck([40]), candidates=None, explore=0.25)
    draws.observe(1, rates(*[4] * 20))
    assert sum(i >= 20 for i in draws.select(8, 2)) == 2
    nothing_known = made("edge_of_competence", deck([40]), explore=0.25)
    assert len(set(nothing_known.select(8, 1))) == 8


def test_the_candidates_of_the_edge_come_by_the_mix() -> None:
    # One draw of one candidate: the prior itself.
    counts = frequencies("edge_of_competence", deck([3, 3], [0.2, 0.8]), [], 1500, 2, candidates=1)
    assert stats.chisquare([counts[:3].sum(), counts[3:].sum()], [300, 1200]).pvalue > 1e-3
    # Of all candidates it is the target that counts, whatever the mix.
    best = frequencies("edge_of_competence", deck([3, 3], [0.2, 0.8]), rates(4, 0, 0, 0, 0, 0), 20, 2, candidates=None, explore=0)
    assert best.tolist() == [20, 0, 0, 0, 0, 0]


def test_a_prompt_given_up_comes_back_when_its_evidence_is_old() -> None:
    draws = made("edge_of_competence", deck([2], steps=100), candidates=None, explore=0.0, half_life=2)
    draws.select(1, 1)
    draws.observe(1, rates(0, 6))
    assert draws.select(1, 2) == [1]
    for step in range(3, 30):
        draws.observe(step - 1, [outcome(1, 1, 1, 1, 1, 1, 1, 0, 0)])
        draws.select(1, step)
    assert draws.select(1, 30) == [0]


# --- single stream ---


def test_single_stream_weighs_by_the_spread_of_the_pass_rate() -> None:
    history = rates(0, 8, 4, 2)
    rate = (np.array([0, 8, 4, 2]) + 0.5 * 0.875) / (8 + 0.875)
    weights = np.sqrt(rate * (1 - rate)) + 0.05
    counts = frequencies("single_stream", deck([4]), history, 3000, 2)
    assert stats.chisquare(counts, 3000 * weights / weights.sum()).pvalue > 1e-3


def test_single_stream_multiplies_by_the_mix() -> None:
    counts = frequencies("single_stream", deck([2, 2], [0.2, 0.8]), [], 2000, 1)
    assert stats.chisquare(counts, [200, 200, 800, 800]).pvalue > 1e-3


def test_single_stream_begins_with_the_offline_samples_at_the_evidence_where_visits_settle() -> None:
    tracker = made("single_stream", deck([2], offline=[outcome(1, 1, 1, 1, 0, 0, 0, 0, 0)])).tracker  # type: ignore[attr-defined]
    # N0 = 1 / (1 - 0.875) = 8: a = 8 * 3.5 / 9, b = 8 * 5.5 / 9.
    assert (tracker.a.tolist(), tracker.b.tolist()) == ([0.5, pytest.approx(28 / 9)], [0.5, pytest.approx(44 / 9)])


# --- retain hardest ---


def test_retain_hardest_keeps_fewer_of_those_that_fail_most_and_only_of_those_kept() -> None:
    schedule = [{"steps": 1, "keep": 1.0}, {"steps": 1, "keep": 0.5}, {"steps": 2, "keep": 2}]
    draws = made("retain_hardest", deck([8], steps=4), schedule=schedule)
    assert set(draws.select(8, 1)) == set(range(8))
    draws.observe(1, rates(8, 0, 7, 1, 6, 2, 5, 3))
    assert set(draws.select(4, 2)) == {1, 3, 5, 7}
    # Prompt 0 fails now, but it left; of those kept 3 and 7 are the hardest now.
    draws.observe(2, [outcome(0, *[0.0] * 8), outcome(1, *[1.0] * 8), outcome(5, *[1.0] * 8), outcome(3, *[0.0] * 8)])
    draws.observe(2, [outcome(7, *[0.0] * 8), outcome(7, *[0.0] * 8)])
    assert set(draws.select(2, 3)) == set(draws.select(2, 4)) == {3, 7}


def test_the_choice_of_a_phase_stands_until_the_next_begins() -> None:
    draws = made("retain_hardest", deck([4], steps=8), schedule=[{"steps": 1, "keep": 2}])
    draws.observe(0, rates(0, 0, 8, 8))
    assert set(draws.select(2, 1)) == {0, 1}
    draws.observe(1, [outcome(i, *[float(i < 2)] * 8) for i in range(4)])
    draws.observe(1, [outcome(i, *[float(i < 2)] * 8) for i in range(4)])
    assert set(draws.select(2, 2)) == {0, 1}


def test_the_published_schedule_keeps_72_50_and_25_of_175() -> None:
    draws = made("retain_hardest", deck([175], steps=160))
    assert isinstance(draws, RetainHardest)
    kept = []
    for step in (1, 33, 97, 129):
        draws.select(1, step)
        kept.append(int(draws.kept.sum()))
    assert kept == [175, 72, 50, 25]


def test_a_set_with_share_zero_is_never_among_the_hardest() -> None:
    draws = made("retain_hardest", deck([3, 3], [0.0, 1.0]), schedule=[{"steps": 1, "keep": 2}])
    draws.observe(0, rates(0, 0, 0, 8, 8, 0))
    assert 5 in draws.select(2, 1)
    assert min(draws.select(4, 2)) >= 3


# --- phases ---


def test_a_phase_draws_the_prompts_between_its_bounds() -> None:
    # Prompt i has 3 i + 1 tokens: up to 10 are prompts 0..3, up to 22 are 4..7, those above are in no phase.
    draws = made("phases", bounds=[10, 22], carry="none")
    assert set(draws.select(4, 1)) == {0, 1, 2, 3}
    assert set(draws.select(4, 6)) == {4, 5, 6, 7}
    assert max(draws.select(30, 10)) == 7


def test_bounds_in_shares_split_the_prompts_in_order_of_length() -> None:
    draws = made("phases", bounds=[0.25, 1.0], unit="share", carry="none", lengths=[3, 1])
    assert set(draws.select(3, 1)) == set(draws.select(3, 7)) == {0, 1, 2}
    assert set(draws.select(9, 9)) == set(range(3, 12))


def test_carried_prompts_weigh_one_over_their_mean_reward() -> None:
    # Means 0, 0.25, 0.5 (never drawn) and 1: weights 8 (the cap), 4, 2 and 1.
    history = [outcome(0, 0, 0, 0, 0), outcome(1, 1, 0, 0, 0), outcome(3, 1, 1, 1, 1)]
    counts = frequencies("phases", deck(), history, 2000, 6, bounds=[10, 22], carried=1.0)
    assert counts[4:].sum() == 0
    assert stats.chisquare(counts[:4], 2000 * np.array([8, 4, 2, 1]) / 15).pvalue > 1e-3
    assert frequencies("phases", deck(), history, 20, 6, bounds=[10, 22], carried=1.0, carry="unsolved")[0] == 20


def test_the_carried_share_holds_whether_a_call_asks_for_one_prompt_or_many() -> None:
    history = rates(0, 0, 0, 0)
    alone = frequencies("phases", deck(), history, 2000, 6, bounds=[10, 40], carried=0.3)
    assert stats.binomtest(int(alone[:4].sum()), 2000, 0.3).pvalue > 1e-3
    draws = made("phases", bounds=[10, 40], carried=0.25)
    draws.observe(5, history)
    assert sum(i < 4 for i in draws.select(8, 6)) == 2


def test_a_phase_without_prompts_is_refused() -> None:
    with pytest.raises(PermanentError, match=r"none in phase 2, up to 6 tokens: prompts have 1 to 34 tokens"):
        made("phases", bounds=[5, 6])


# --- learned mixture ---


def test_the_value_of_a_kind_is_a_running_mean_of_its_advantages() -> None:
    draws = made("learned_mixture", deck([6]), by="set", scale_rewards="none", alpha=0.5)
    assert isinstance(draws, LearnedMixture)
    # Deviations 1/2, 1/2 and 0, 0: mean 1/4. Then 1/2.
    draws.observe(1, [outcome(0, 0, 1), outcome(1, 1, 1)])
    assert draws.value.tolist() == [0.125]
    draws.observe(2, [outcome(0, 0, 1)])
    assert draws.value.tolist() == [0.3125]


def test_kinds_are_drawn_by_the_softmax_of_their_values() -> None:
    # Ops 0, 3 are low, 1, 4 middle, 2, 5 high. Means |A|: 1/2, 0 and 3/8; half of it at alpha 1/2.
    history = [outcome(0, 0, 1), outcome(1, 0, 0), outcome(2, 0, 0, 0, 1)]
    counts = frequencies("learned_mixture", deck([6]), history, 3000, 2, scale_rewards="none", temperature=0.1)
    heat = np.exp(np.array([0.25, 0.0, 0.1875]) / 0.1)
    chances = heat / heat.sum() / 2
    assert stats.chisquare(counts, 3000 * np.tile(chances, 2)).pvalue > 1e-3


def test_the_mix_weighs_prompts_within_a_kind_and_rules_none_in_that_has_no_share() -> None:
    # Both sets have ops of all bands; the second has three times the share.
    counts = frequencies("learned_mixture", deck([6, 6, 3], [0.25, 0.75, 0.0]), [], 2400, 1)
    assert stats.chisquare([counts[:6].sum(), counts[6:12].sum()], [600, 1800]).pvalue > 1e-3
    assert counts[12:].sum() == 0


def test_a_kind_that_was_not_drawn_keeps_its_value_or_loses_it_as_released() -> None:
    for undrawn, expected in (("keep", 0.25), ("decay", 0.125)):
        draws = made("learned_mixture", deck([3]), scale_rewards="none", undrawn=undrawn)
        assert isinstance(draws, LearnedMixture)
        draws.observe(1, [outcome(0, 0, 1)])
        draws.observe(2, [outcome(1, 0, 0)])
        assert draws.value[draws.kinds.index("low")] == expected


def test_progress_is_the_change_of_the_mean_reward_since_the_kind_was_last_drawn() -> None:
    draws = made("learned_mixture", deck([3]), reward="progress", alpha=1.0)
    assert isinstance(draws, LearnedMixture)
    low = draws.kinds.index("low")
    seen = []
    for rewards in ((0, 1), (1, 1), (1, 0, 0, 0)):
        draws.observe(1, [outcome(0, *rewards)])
        seen.append(float(draws.value[low]))
    assert seen == [0.0, 0.5, 0.75]
