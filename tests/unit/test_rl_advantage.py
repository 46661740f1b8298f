"""Group advantages: hand-worked numbers, TRL's deviation as oracle, and the symmetries that they must have."""

import pytest
import torch
from conftest import examples
from hypothesis import given, strategies as st
from rl_cases import batch_of, now_of
from torch import Tensor

from interplay.rl.advantage_spec import GroupAdvantage
from interplay.rl.advantages import advantages


def of(rewards: list[float], groups: list[int], scale: str, tokens: int = 1) -> Tensor:
    return advantages(GroupAdvantage(scale_rewards=scale), batch_of(rewards, groups, [tokens] * len(rewards)), now_of())


def test_group_scaling_divides_by_the_bessel_corrected_deviation_of_the_group() -> None:
    # 1, 0, 0, 0: mean 1/4, deviation sqrt((9/16 + 3/16) / 3) = 1/2.
    got = of([1, 0, 0, 0], [0, 0, 0, 0], "group")[:, 0]
    assert got.tolist() == pytest.approx([0.75 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001])


def test_batch_scaling_divides_the_group_centred_rewards_by_the_deviation_of_all_rewards() -> None:
    # 1, 0 | 3, 0: group means 1/2 and 3/2; all: mean 1, deviation sqrt((0 + 1 + 4 + 1) / 3) = sqrt(2).
    got = of([1, 0, 3, 0], [4, 4, 7, 7], "batch")[:, 0]
    assert got.tolist() == pytest.approx([x / (2**0.5 + 1e-4) for x in (0.5, -0.5, 1.5, -1.5)])


def test_no_scaling_leaves_the_group_centred_rewards() -> None:
    assert of([1, 0, 3, 0], [0, 0, 1, 1], "none")[:, 0].tolist() == [0.5, -0.5, 1.5, -1.5]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_those_of_trl(scale: str) -> None:
    from trl.trainer.utils import nanstd

    rewards = torch.rand(24, generator=torch.Generator().manual_seed(0))
    grouped = rewards.view(6, 4)
    deviation = {"group": nanstd(grouped, dim=1)[:, None], "batch": nanstd(rewards), "none": torch.tensor(1.0 - 1e-4)}[scale]
    expected = (grouped - grouped.mean(1, keepdim=True)) / (deviation + 1e-4)
    got = of(rewards.tolist(), [i // 4 for i in range(24)], scale)[:, 0]
    torch.testing.assert_close(got, expected.flatten(), atol=1e-5, rtol=1e-5)


def test_a_group_of_equal_rewards_gets_exactly_zero_though_its_mean_is_rounded() -> None:
    got = of([0.1] * 3 + [1, 0, 0], [0, 0, 0, 1, 1, 1], "group")[:, 0]
    assert sum([0.1] * 3) / 3 != 0.1
    assert got[:3].tolist() == [0, 0, 0]
    assert got[3] > 1


def test_a_group_of_one_has_nothing_to_be_compared_with() -> None:
    assert of([5.0, 1, 0], [0, 1, 1], "group")[0].tolist() == [0]


def test_every_token_of_a_completion_bears_its_advantage_and_padding_none() -> None:
    got = advantages(GroupAdvantage(scale_rewards="none"), batch_of([1, 0], [0, 0], [2, 3]), now_of())
    assert got.tolist() == [[0.5, 0.5, 0.0], [-0.5, -0.5, -0.5]]


rewards_in_pairs = st.lists(st.floats(0, 1, width=32), min_size=4, max_size=16).filter(lambda x: len(x) % 4 == 0)


@examples(50)
@given(rewards_in_pairs, st.floats(-8, 8, width=32), st.sampled_from(["group", "batch", "none"]))
def test_a_constant_added_to_all_rewards_of_a_group_changes_nothing(rewards: list[float], shift: float, scale: str) -> None:
    groups = [i // 4 for i in range(len(rewards))]
    plain = of(rewards, groups, "group" if scale == "batch" else scale)
    moved = of(
        [r + shift * (g == 0) for r, g in zip(rewards, groups, strict=True)], groups, "group" if scale == "batch" else scale
    )
    torch.testing.assert_close(plain, moved, atol=1e-4, rtol=1e-4)


@examples(50)
@given(rewards_in_pairs, st.randoms(use_true_random=False), st.sampled_from(["group", "batch", "none"]))
def test_the_order_of_rows_and_the_numbers_of_groups_do_not_matter(rewards: list[float], random, scale: str) -> None:
    groups = [i // 4 for i in range(len(rewards))]
    order = list(range(len(rewards)))
    random.shuffle(order)
    plain = of(rewards, groups, scale)[order]
    moved = of([rewards[i] for i in order], [100 - 7 * groups[i] for i in order], scale)
    torch.testing.assert_close(plain, moved, atol=1e-6, rtol=1e-6)


@examples(50)
@given(rewards_in_pairs, st.sampled_from(["group", "batch", "none"]))
def test_the_advantages_of_a_group_sum_to_zero(rewards: list[float], scale: str) -> None:
    got = of(rewards, [i // 4 for i in range(len(rewards))], scale)
    assert got.view(-1, 4).sum(1).abs().max() < 1e-4


def test_rows_set_aside_are_compared_with_their_group_and_not_counted_in_it() -> None:
    # Two right of the four that count: mean 1/2, deviation sqrt(4 * (1/4) / 3); the one aside is judged by them.
    batch = batch_of([1, 1, 0, 0, 1], [0] * 5, excluded=torch.tensor([False] * 4 + [True]))
    got = advantages(GroupAdvantage(), batch, now_of())[:, 0]
    assert got.tolist() == pytest.approx([x / ((1 / 3) ** 0.5 + 1e-4) for x in (0.5, 0.5, -0.5, -0.5, 0.5)])
