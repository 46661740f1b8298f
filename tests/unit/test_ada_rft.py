"""AdaRFT: a target difficulty that moves with the reward, by hand."""

import math

import pytest
from sampler_cases import deck, made, outcome


def test_the_target_moves_with_the_mean_reward_and_stays_within_the_scale() -> None:
    draws = made("ada_rft", deck([11]), target=20)
    draws.observe(1, [outcome(0, 1, 1), outcome(1, 1, 0)])  # 3/4: tanh(2 * 1/4)
    draws.learn(1)
    up = 20 + 50 * math.tanh(0.5)
    assert draws.metrics() == {"target": pytest.approx(up)}
    draws.observe(2, [outcome(0, 0, 0)])  # 0: tanh(-1)
    draws.learn(2)
    assert draws.metrics() == {"target": pytest.approx(up - 50 * math.tanh(1))}
    for step in range(3, 9):
        draws.observe(step, [outcome(0, 0)])
        draws.learn(step)
    assert draws.metrics() == {"target": 0.0}


def test_a_step_that_measured_no_prompt_leaves_the_target() -> None:
    """As where all completions start from a prefix, or none of a window ended."""
    draws = made("ada_rft", deck([11]), target=20)
    draws.observe(1, [])
    draws.learn(1)
    assert draws.metrics() == {"target": 20}


def test_the_nearest_come_first_and_none_again_before_all_have_come() -> None:
    draws = made("ada_rft", deck([11]), target=50)  # ops 0..10: difficulties 0, 10, .., 100
    assert set(draws.select(3, 1)) == {4, 5, 6}
    assert set(draws.select(4, 2)) == {2, 3, 7, 8}
    assert set(draws.select(5, 3)) == {0, 1, 9, 10, 5}, "four are left; then round again"


def test_difficulty_by_pass_rate_is_the_share_of_offline_samples_that_failed() -> None:
    told = deck([4], offline=[outcome(0, 1, 1, 1, 1), outcome(1, 1, 0, 0, 0), outcome(2, 0, 0, 0, 0), outcome(3, 1, 1, 1, 0)])
    draws = made("ada_rft", told, by="pass_rate", target=80)
    assert [draws.select(1, step) for step in (1, 2, 3, 4)] == [[1], [2], [3], [0]]


def test_a_run_that_goes_on_draws_as_if_it_had_not_stopped() -> None:
    whole, first = (made("ada_rft", deck([12, 8], [0.6, 0.4])) for _ in range(2))
    seen = []
    for step in range(1, 9):
        ids = whole.select(4, step)
        whole.observe(step, [outcome(i, 1, float(i % 2)) for i in ids])
        whole.learn(step)
        seen.append(ids)
    for step in range(1, 4):
        first.observe(step, [outcome(i, 1, float(i % 2)) for i in first.select(4, step)])
        first.learn(step)
    first.select(4, 4)
    first.observe(4, [outcome(i, 1, float(i % 2)) for i in seen[3]])  # stopped between the groups and the end of the step
    again = made("ada_rft", deck([12, 8], [0.6, 0.4]))
    again.load_state_dict(first.state_dict(), first.tensors())
    again.learn(4)
    assert [again.select(4, 5)] == seen[4:5]
