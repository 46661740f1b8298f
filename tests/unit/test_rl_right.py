"""One definition of right: the verdict that the reward is about. Further terms of a reward never change what is right."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from rl_cases import RIGHT, WRONG, batch_of, now_of
from test_rl_requests import ROWS, at

from interplay.core.model import UserError
from interplay.rl.advantage_spec import EntropyAdvantage, PassKAdvantage, SharpenedAdvantage
from interplay.rl.advantages import advantages
from interplay.rl.batch import Batch, Memory
from interplay.rl.continuation import kept_rollouts, next_requests
from interplay.rl.edit_spec import Demonstrations, HistoryLengthShaping, KimiLengthShaping, Replay
from interplay.rl.edits import edits_before_advantage
from interplay.rl.loss_spec import DiscoLoss
from interplay.rl.losses import FullBatch, disco_weights
from interplay.rl.reward_spec import FormatReward, OutcomeReward, OwnReward, ProcessReward
from interplay.rl.rewards import right_by
from interplay.rl.shaping import shape_rewards
from interplay.rl.spec import RLSpec
from interplay.tasks.verdict import Verdict

BLEND = [1.0, 0.84, 0.72, 0.72]
"""One right completion, and three with some right steps: all earn more than 0."""
FORMAT = [0.8, 0.2, 0.2, 0.0]
"""The right one has not the right form."""
OVERLONG = [0.7, 0.0, 0.0, 0.0]
"""The right one is charged for its length."""
PAID = pytest.mark.parametrize("rewards", [BLEND, FORMAT, OVERLONG, [-0.3, -1.0, -1.0, -1.0]])


def judged(rewards: Sequence[float], lengths: Sequence[int] | None = None, right: int = 1, **more: Any) -> Batch:
    """A group whose first `right` completions are right."""
    n = len(rewards)
    return batch_of(rewards, [0] * n, lengths, verdicts=[RIGHT] * right + [WRONG] * (n - right), **more)


@PAID
def test_disco_lifts_the_right_one_above_the_others_whatever_they_earn(rewards: list[float]) -> None:
    batch = judged(rewards)
    zeros, ones = torch.zeros(4, 1), torch.ones(4, 1)
    whole = FullBatch(zeros, zeros, ones, ones, ones.bool(), batch.groups, batch.right, zeros.double())
    assert disco_weights(DiscoLoss(basic=True), whole)["row"][:, 0].sign().tolist() == [1, -1, -1, -1]


@PAID
def test_pass_at_k_pays_the_right_one(rewards: list[float]) -> None:
    got = advantages(PassKAdvantage(k=2), judged(rewards), now_of())[:, 0].tolist()
    rate = 0.5  # of the six pairs three hold the right one
    wrong = (1 - rate - 2 / 3) / math.sqrt(rate * (1 - rate))
    assert got == pytest.approx([1, wrong, wrong, wrong])


@PAID
def test_gtpo_shapes_right_and_wrong_ones(rewards: list[float]) -> None:
    entropy = torch.tensor([[0.25], [0.25], [0.28], [0.2]])
    got = advantages(EntropyAdvantage(), judged(rewards), now_of(entropy=entropy))[:, 0]
    assert got[0] > 1 > 0 > got[1:].max(), "there is a right one and wrong ones"


def test_xrpos_bonus_is_for_right_completions() -> None:
    batch = judged([1.0, 0.9, 0.1, 0.0], logprobs=torch.tensor([[-1.0], [-3.0], [0.0], [0.0]]))
    plain = advantages(SharpenedAdvantage(scale=0), batch, now_of())[:, 0]
    got = advantages(SharpenedAdvantage(), batch, now_of())[:, 0]
    assert plain[1] > 0, "it earns more than the mean, and is wrong all the same"
    assert got[1] == plain[1]


@PAID
@pytest.mark.parametrize("right", [0, 1])
def test_gold_takes_the_place_of_groups_without_a_right_completion(rewards: list[float], right: int) -> None:
    now = now_of(edits=[Demonstrations()], gold=lambda i: ("gold", [7, 8]))
    kept = edits_before_advantage(judged(rewards, right=right), now)
    assert (kept.completions == ["gold"]) == (right == 0)
    assert len(kept) == (4 if right else 1)
    assert bool(kept.right[0])


@PAID
def test_a_past_success_comes_back_to_a_group_without_one(rewards: list[float]) -> None:
    now = now_of(edits=[Replay()], memory=Memory(4))
    first = edits_before_advantage(judged(rewards), now)
    assert len(first) == 4, "a group of both kinds needs nothing"
    second = edits_before_advantage(judged(rewards, right=0), now)
    assert second.right.tolist() == [False] * 4 + [True]
    assert second.rewards[4] == rewards[0]


@PAID
def test_hints_and_critiques_are_for_what_is_wrong(rewards: list[float]) -> None:
    guide, critique = (at(4, continuation={"name": name}) for name in ("guide", "critique"))
    assert len(next_requests(ROWS[:1], judged(rewards, right=0), 0, guide)) == 1
    assert next_requests(ROWS[:1], judged(rewards), 0, guide) == []
    assert len(next_requests(ROWS[:1], judged(rewards), 0, critique)) == 1
    assert next_requests(ROWS[:1], judged(rewards, right=4), 0, critique) == []
    off = torch.tensor([False, False, True, True])
    assert kept_rollouts(judged(rewards, right=3, off_policy=off), critique).row.tolist() == [0, 1, 2]


@PAID
def test_a_prompt_that_fails_is_reflected_on(rewards: list[float]) -> None:
    now = at(4, continuation={"name": "reflection"}, memory=Memory(4))
    kept_rollouts(judged(rewards, completions=["a", "b", "c", "d"]), now)
    assert now.memory.notes["reflection"] == {"0.0": {"n": 4, "reward": 1.0, "wrong": "d"}}


@PAID
def test_length_is_charged_to_wrong_completions_and_paid_to_right_ones(rewards: list[float]) -> None:
    kimi = shape_rewards(judged(rewards, [2, 2, 4, 3]), now_of(shaping=[KimiLengthShaping()])).parts["kimi_length"]
    assert kimi.tolist() == [0.5, 0, -0.5, 0]
    now = now_of(shaping=[HistoryLengthShaping()], memory=Memory(4))
    shape_rewards(judged(rewards, [4, 2, 2, 2]), now)
    hapo = shape_rewards(judged(rewards, [2, 2, 8, 4]), now).parts["hapo_length"]
    assert hapo.tolist() == pytest.approx([math.cos(math.pi / 4), 0, -1, 0], abs=1e-12)


LUCKY = Verdict(False, True, 0.5, "value")


@pytest.mark.parametrize(
    ("reward", "lucky"),
    [
        (OutcomeReward(), True),
        (FormatReward(), True),
        (ProcessReward(), False),
        (ProcessReward(form="blend"), False),
        (OwnReward(function="a.py:b"), True),
        (OwnReward(function="a.py:b", right="strict"), False),
    ],
)
def test_a_right_answer_with_a_wrong_step_is_right_for_rewards_that_do_not_read_steps(reward: Any, lucky: bool) -> None:
    assert right_by(reward, [RIGHT, LUCKY, WRONG]).tolist() == [True, lucky, False]


def version(reward: dict[str, Any], **method: Any) -> int:
    return RLSpec(method={"paper": "p", **method}, mix=[1.0], steps=1, reward=reward).hashed_version()


def test_only_runs_in_which_pay_and_verdict_differ_are_another_version() -> None:
    pass_k, kimi = {"advantage": {"name": "pass_k"}}, {"shaping": [{"name": "kimi_length"}]}
    assert version({"name": "outcome"}, **pass_k) == version({"name": "process"}, **kimi) == 1
    assert version({"name": "process", "form": "blend"}) == 1, "nothing asks what is right"
    assert version({"name": "process", "form": "blend"}, **pass_k) == version({"name": "format"}, **kimi) == 2
    assert version({"name": "outcome"}, **pass_k, shaping=[{"name": "overlong"}]) == 2


def test_segments_that_others_continue_have_no_verdict() -> None:
    tree = {"continuation": {"name": "tree", "branches": [2, 4]}, "advantage": {"name": "pass_k"}}
    with pytest.raises((UserError, ValueError), match=r"tree does not go with method\.advantage = pass_k, which reads"):
        RLSpec(method={"paper": "p", **tree}, mix=[1.0], steps=1)
