"""Edits that choose tokens and rows or add some: what they leave, by hand, and in a real update. (Dynamic sampling and D3S have files
of their own.)"""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from rl_cases import batch_of, now_of

from interplay.rl.advantage_spec import GroupAdvantage
from interplay.rl.advantages import advantages
from interplay.rl.batch import Batch, Memory, StepContext
from interplay.rl.edit_spec import ConflictTokens, Demonstrations, Replay, TokenBudget, TopEntropy
from interplay.rl.edits import BUFFER, conflicts, edits_after_advantage, edits_before_advantage
from interplay.rl.spec import RLSpec


def edited(batch: Batch, now: StepContext, advantage: torch.Tensor | None = None) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    found = advantages(GroupAdvantage(), batch, now) if advantage is None else advantage
    return edits_after_advantage(batch, found, batch.mask(), now)


# --- a budget of tokens ---


def test_rows_are_taken_in_random_order_until_the_budget_is_reached() -> None:
    batch = batch_of([1, 0] * 10, [i // 2 for i in range(20)], [1 + i % 7 for i in range(20)])
    chosen = set()
    for step in range(30):
        kept, _, bears = edited(batch, now_of(edits=[TokenBudget(tokens=20)], step=step))
        assert kept.row.tolist() == sorted(kept.row.tolist())
        assert 20 <= int(bears.sum()) < 20 + 7
        chosen |= set(kept.row.tolist())
    assert chosen == set(range(20)), "no row is left out for good"


def test_a_budget_that_is_not_reached_keeps_all() -> None:
    batch = batch_of([1, 0], [0, 0], [3, 4])
    assert len(edited(batch, now_of(edits=[TokenBudget(tokens=100)]))[0]) == 2


def test_the_choice_is_a_function_of_seed_and_step() -> None:
    batch = batch_of([1, 0] * 10, [i // 2 for i in range(20)], [3] * 20)

    def rows(**now: int) -> list[int]:
        return edited(batch, now_of(edits=[TokenBudget(tokens=20)], **now))[0].row.tolist()

    assert rows(step=3) == rows(step=3) != rows(step=4)
    assert rows(step=3, seed=1) != rows(step=3)


# --- entropy ---


def test_only_the_most_uncertain_tokens_keep_an_advantage_and_all_still_bear_loss() -> None:
    entropy = torch.tensor([[0.1, 0.9, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8, 0.0]])
    batch = batch_of([1, 0], [0, 0], [5, 5])
    kept, advantage, bears = edited(batch, now_of(edits=[TopEntropy()], entropy=entropy))
    assert (advantage != 0).tolist() == [[False, True, False, False, False], [False, False, False, True, False]]
    assert bears.all()
    assert len(kept) == 2


# --- conflict tokens ---

SHARED = [[5, 6, 1, 9, 8], [5, 6, 2, 3, 8], [5, 7, 2, 3, 8]]
"""Right, wrong, wrong: all begin with 5 and end with 8; the first two share 5 6 at the start."""


def test_conflict_tokens_are_the_runs_from_either_end_that_both_signs_share() -> None:
    batch = batch_of([1, 0, 0], [0] * 3, [5] * 3, tokens=torch.tensor(SHARED))
    found = conflicts(batch, torch.tensor([1.0, -1, -1]))
    assert found.tolist() == [
        [True, True, False, False, True],
        [True, True, False, False, True],
        [True, False, False, False, True],
    ]
    assert not conflicts(batch, torch.tensor([1.0, 1.0, 1.0])).any(), "without the other sign nothing is in conflict"
    assert not conflicts(replace(batch, groups=torch.tensor([0, 1, 2])), torch.tensor([1.0, -1, -1])).any()


def test_runs_from_the_end_are_aligned_at_the_end() -> None:
    tokens = torch.tensor([[1, 2, 9, 0], [3, 9, 0, 0]])
    batch = batch_of([1, 0], [0, 0], [3, 2], tokens=tokens)
    assert conflicts(batch, torch.tensor([1.0, -1.0])).tolist() == [[False, False, True, False], [False, True, False, False]]


def test_wrong_completions_leave_shared_tokens_alone_and_right_ones_weigh_them_twice() -> None:
    batch = batch_of([1, 0, 0], [0] * 3, [5] * 3, tokens=torch.tensor(SHARED))
    plain = torch.tensor([[1.0], [-0.5], [-0.5]]).expand(3, 5)
    _, got, _ = edited(batch, now_of(edits=[ConflictTokens(entropy_limit=None)]), plain)
    assert got.tolist() == [[2, 2, 1, 1, 2], [0, 0, -0.5, -0.5, 0], [0, -0.5, -0.5, -0.5, 0]]


def test_completions_above_the_limit_of_entropy_are_dropped_and_entropy_has_a_price() -> None:
    entropy = torch.tensor([[0.2] * 5, [0.4] * 5, [0.7] * 5])
    batch = batch_of([1, 0, 0], [0] * 3, [5] * 3, tokens=torch.tensor([[1] * 5, [2] * 5, [3] * 5]))
    kept, got, _ = edited(
        batch, now_of(edits=[ConflictTokens()], entropy=entropy), torch.tensor([[1.0], [-0.5], [0]]).expand(3, 5)
    )
    assert kept.row.tolist() == [0, 1]
    assert got[:, 0].tolist() == pytest.approx([1 - 0.02, -0.5 - 0.04])
    assert ConflictTokens().entropy_limit == pytest.approx(math.log(2))


# --- past completions ---


def test_a_group_in_which_all_failed_gets_the_latest_past_success_and_the_other_way_round() -> None:
    memory = Memory(10)
    edits = [Replay(rows=1)]
    first = batch_of([1, 0, 1, 1], [3, 3, 4, 4], [2, 1, 3, 2], tokens=torch.arange(12).view(4, 3), completions=[*"abcd"])
    now = now_of(edits=edits, memory=memory)
    assert len(edits_before_advantage(first, now)) == 4, "nothing to replay yet"
    later = edits_before_advantage(batch_of([0, 0, 1, 1, 0, 0], [3, 3, 3, 4, 4, 9]), now)
    assert len(later) == 6, "prompt 3 passed and failed now; 4, too; of 9 nothing is known"
    again = edits_before_advantage(batch_of([0, 0, 1, 1], [4, 4, 3, 3]), now)
    assert again.row.tolist() == [0, 1, 2, 3, -1, -1]
    assert again.off_policy.tolist() == [False] * 4 + [True] * 2
    assert again.groups.tolist() == [4, 4, 3, 3, 3, 4]
    assert again.rewards.tolist() == [0, 0, 1, 1, 0, 1]


def test_a_replayed_row_is_what_was_sampled_then() -> None:
    memory, old = Memory(5), torch.tensor([[-0.1, -0.2, -0.3]])
    sampled = batch_of([1], [2], [3], tokens=torch.tensor([[7, 8, 9]]), logprobs=old, completions=["abc"])
    now = now_of(edits=[Replay()], memory=memory)
    edits_before_advantage(sampled, now)
    # The memory goes through JSON in a checkpoint.
    import json

    memory.load(json.loads(json.dumps(memory.notes)), {})
    got = edits_before_advantage(batch_of([0, 0], [2, 2], [1, 1]), now)
    assert got.tokens[2].tolist() == [7, 8, 9]
    torch.testing.assert_close(got.logprobs[2], old[0])
    assert (got.completions[2], got.verdicts[2].strict, int(got.lengths[2])) == ("abc", True, 3)
    found = advantages(GroupAdvantage(), got, now)
    assert found[2, 0] > 0 > found[0, 0], "the past success counts in its group"
    _, scaled, _ = edited(got, now_of(edits=[Replay(scale=0.5)]), found)
    assert scaled[2].tolist() == pytest.approx((0.5 * found[2]).tolist())
    assert torch.equal(scaled[:2], found[:2])


def test_the_buffer_keeps_the_latest_only() -> None:
    memory = Memory(5)
    now = now_of(edits=[Replay(rows=2, keep=2)], memory=memory)
    for text in "abc":
        edits_before_advantage(batch_of([1], [0], completions=[text]), now)
    assert [row["completion"] for row in memory.notes[BUFFER]["0.1"]] == ["b", "c"]
    assert edits_before_advantage(batch_of([0], [0]), now).completions == ["", "b", "c"]


def test_a_gold_solution_is_not_remembered_as_what_was_sampled() -> None:
    memory = Memory(10)
    now = now_of(edits=[Demonstrations(), Replay()], memory=memory, gold=gold)
    edits_before_advantage(batch_of([0, 0, 1, 0], [3, 3, 4, 4]), now)
    assert sorted(memory.notes[BUFFER]) == ["4.0", "4.1"]


# --- gold solutions ---


def gold(i: int) -> tuple[str, list[int]]:
    return f"gold {i}", [i, 1, 2]


def test_groups_with_few_successes_give_way_to_the_gold_solution() -> None:
    batch = batch_of([0, 0, 0, 1, 1, 1], [5, 5, 6, 6, 7, 7], [2] * 6)
    now = now_of(edits=[Demonstrations(sft_loss_coef=0.3)], gold=gold)
    kept = edits_before_advantage(batch, now)
    assert kept.row.tolist() == [2, 3, 4, 5, -1]
    assert kept.completions[-1] == "gold 5"
    assert kept.tokens[-1].tolist() == [5, 1, 2]
    _, advantage, bears = edited(kept, now)
    assert advantage[-1].tolist() == pytest.approx([0.3] * 3)
    assert advantage[:2, 0].tolist() == pytest.approx(advantages(GroupAdvantage(), batch, now)[2:4, 0].tolist())
    assert bears[-1].all()


def test_rows_that_a_continuation_keeps_out_of_the_statistics_are_no_gold_solutions() -> None:
    """Of prompt 6 a failed refinement, which critique keeps with `failed: keep`."""
    batch = batch_of([0, 0, 1, 0, 0], [5, 5, 6, 6, 6], excluded=torch.tensor([False] * 4 + [True]))
    now = now_of(edits=[Demonstrations(sft_loss_coef=0.3)], gold=gold)
    kept = edits_before_advantage(batch, now)
    _, advantage, _ = edited(kept, now)
    assert kept.row.tolist() == [2, 3, 4, -1]
    assert advantage[:, 0].tolist() == pytest.approx([*advantages(GroupAdvantage(), kept, now)[:3, 0].tolist(), 0.3])
    assert float(advantage[2, 0]) < 0


def test_the_gate_decides_how_many_successes_are_few() -> None:
    batch = batch_of([0, 1, 1, 1], [5, 5, 6, 6])
    for gate, left in ((0, 4), (1, 3), (2, 2)):
        assert len(edits_before_advantage(batch, now_of(edits=[Demonstrations(switch_gate=gate)], gold=gold))) == left


def test_rows_that_no_reward_of_spans_has_judged_are_refused() -> None:
    method = {"paper": "p", "edits": [{"name": "replay"}]}
    with pytest.raises(ValidationError, match=r"reward = subproblems does not go with method.edits: replay"):
        RLSpec.model_validate({"method": method, "reward": {"name": "subproblems"}, "mix": [1.0], "steps": 1})
