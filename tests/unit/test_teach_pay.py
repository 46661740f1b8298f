"""What a teacher is paid, by hand: the gain of students, how learnable proposals are, advantages that datasets share, promotion."""

import pytest
import torch
from pydantic import ValidationError
from teach_cases import METHOD, spec_of

from interplay.core.digest import canonical
from interplay.kinds.stages import paper_tokens
from interplay.rl.proposals import credited, grounded, intrinsic, promoted


def test_a_dataset_is_worth_what_its_student_passes_more_than_before_by_hand() -> None:
    assert grounded(5, [9, 5, 3], 20).tolist() == pytest.approx([0.2, 0.0, -0.1])


def test_what_is_always_or_never_solved_is_not_learnable_by_hand() -> None:
    # 0.5 * 0.5, 0; 0.25 * 0.75, of which the mean; nothing valid in the last.
    found = intrinsic([0.5, 1.0, 0.0, 0.25, 0.25], [0, 0, 0, 1, 1], 3)
    assert found.tolist() == pytest.approx([0.25 / 3, 0.1875, 0.0])


def test_the_proposals_of_a_dataset_share_what_it_is_worth_beside_the_others_by_hand() -> None:
    # RLOO over datasets: 0.3 - (0.0 + 0.1) / 2, 0.0 - (0.3 + 0.1) / 2, 0.1 - (0.3 + 0.0) / 2.
    rewards, valid = torch.tensor([0.3, 0.0, 0.1], dtype=torch.float64), torch.zeros(6, dtype=torch.bool)
    assert credited(rewards, valid, 0.1).tolist() == pytest.approx([0.25, 0.25, -0.2, -0.2, -0.05, -0.05])


def test_a_proposal_that_is_no_problem_pays_by_itself_by_hand() -> None:
    # Of four proposals the second is none: -0.4 beside 0, and for the others 0 beside -0.4 / 3.
    rewards, invalid = torch.tensor([0.2, 0.0], dtype=torch.float64), torch.tensor([False, True, False, False])
    third = 0.4 / 3
    assert credited(rewards, invalid, 0.4).tolist() == pytest.approx([0.2 + third, 0.2 - 0.4, -0.2 + third, -0.2 + third])


def test_equal_rewards_credit_nobody() -> None:
    equal = torch.full((3,), 0.1, dtype=torch.float64)
    assert credited(equal, torch.zeros(6, dtype=torch.bool), 0.1).tolist() == [0.0] * 6
    assert credited(equal, torch.ones(6, dtype=torch.bool), 0.1).tolist() == [0.0] * 6


@pytest.mark.parametrize(
    ("rewards", "trained", "threshold", "who"),
    [
        ([0.0, 0.05, 0.02], [True] * 3, 0.01, 1),
        ([0.0, 0.05, 0.05], [True] * 3, 0.05, 1),  # the first of equals, at the threshold
        ([0.0, 0.05, 0.02], [True] * 3, 0.06, None),
        ([0.0, 0.05, 0.02], [True, False, True], 0.01, 2),
        ([0.0, 0.0], [False, False], 0.0, None),
        ([-0.1, -0.2], [True, True], -1.0, 0),
    ],
)
def test_the_best_student_is_promoted_where_it_reaches_the_threshold(
    rewards: list[float], trained: list[bool], threshold: float, who: int | None
) -> None:
    assert promoted(torch.tensor(rewards, dtype=torch.float64), trained, threshold) == who


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"datasets": 1}, "datasets = 1: the teacher's advantages compare datasets; give 2 at least"),
        ({"teacher_reward": "intrinsic", "promote_threshold": 0.3}, "p \\(1 - p\\) is at most 0.25, so that no student would be"),
        ({"teacher_temperature": 0.0}, "teacher_temperature = 0 makes all proposals equal"),
        ({"temperature": 0.0}, "temperature = 0 makes all completions of a prompt equal"),
        ({"method": {**METHOD, "sampler": {"name": "pcl"}}}, "kind = teach needs .*; write method.sampler = uniform"),
        (
            {"method": {**METHOD, "continuation": {"name": "guide"}}},
            "kind = teach needs .*; write method.continuation = none",
        ),
        ({"method": {**METHOD, "loss": {"name": "disco"}}}, "kind = teach does not go with method.loss = disco"),
        (
            {"method": {**METHOD, "decoding": {"name": "lagged_nucleus"}}},
            "kind = teach does not go with method.decoding",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(changed: dict, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        spec_of(**changed)


def test_one_dataset_is_enough_where_nobody_learns_to_propose() -> None:
    assert spec_of(datasets=1, proposer="instances").proposals() == 0


def test_what_is_sampled_and_trained_on_is_counted_by_hand() -> None:
    # Three outer steps. Students: 2 datasets x 2 steps x 4 prompts x 4 completions of 24 tokens; proposals: 2 x 8 of 24 tokens;
    # hard problems: 6 x 4 completions, before and of either student.
    spec = spec_of(steps=3)
    assert (spec.learning_rollouts(), spec.judging_rollouts(), spec.proposals()) == (64, 72, 16)
    assert paper_tokens("teach", canonical(spec)) == round(3 * (5 * (64 * 24 + 16 * 24) + 72 * 24) / 3)
    # Paid for what is learnable, one student is trained, and each proposal is tried four times.
    own = spec_of(steps=3, teacher_reward="intrinsic")
    assert (own.learning_rollouts(), own.judging_rollouts()) == (32, 2 * 24 + 16 * 4)
