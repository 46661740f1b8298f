"""Down-sampling of rows and tokens: against a search over all subsets, and in a real update."""

import copy
import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import examples
from hypothesis import given, strategies as st
from rl_cases import now_of
from torch import Tensor

from interplay.model import folder
from interplay.model.spec import Shape
from interplay.rl.batch import Batch
from interplay.rl.edit_spec import D3S
from interplay.rl.edits import d3s, edits_after_advantage, kept_rows, kept_tokens, largest_variance
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.policy import entropies, scores
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import Learner, update
from interplay.tasks.verdict import Verdict

SHAPE = Shape(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24)
WIDTH = 4


def batch_of(lengths: list[int], size: int, truncated: tuple[int, ...] = ()) -> Batch:
    """Groups of `size` rows of the given lengths."""
    g, n = torch.Generator().manual_seed(1), len(lengths)
    return Batch(
        row=torch.arange(n),
        ids=torch.arange(n) // size,
        groups=torch.arange(n) // size,
        prompts=[[1, 2, 3 + i // size] for i in range(n)],
        tokens=torch.randint(0, 9, (n, WIDTH), generator=g),
        lengths=torch.tensor(lengths),
        logprobs=torch.zeros(n, WIDTH),
        truncated=torch.tensor([i in truncated for i in range(n)]),
        completions=[""] * n,
        verdicts=[Verdict(False, False, 0.0, "value", 0, 0, 0, 0, 1)] * n,
        right=torch.zeros(n, dtype=torch.bool),
        rewards=torch.zeros(n, dtype=torch.float64),
        parts={},
    )


def advantage_of(batch: Batch, values: list[float]) -> Tensor:
    return torch.tensor(values)[:, None] * batch.mask()


# --- rows ---


@examples(200)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9), st.data())
def test_no_other_rows_have_a_larger_variance(values: list[int], data: Any) -> None:
    count = data.draw(st.integers(1, len(values)))
    chosen = largest_variance(torch.tensor(values, dtype=torch.float64), count)
    best = max(
        torch.tensor(subset, dtype=torch.float64).var(correction=0).item() for subset in itertools.combinations(values, count)
    )
    assert len(set(chosen.tolist())) == count
    taken = torch.tensor([float(values[i]) for i in chosen], dtype=torch.float64)
    assert taken.var(correction=0).item() == pytest.approx(best, abs=1e-9)


def test_the_most_negative_and_the_most_positive_advantages_are_kept() -> None:
    values = torch.tensor([0.1, -1.5, 0.0, 2.0, -0.2, -1.0, 1.8, 0.3])
    assert sorted(largest_variance(values, 4).tolist()) == [1, 3, 5, 6]
    assert sorted(largest_variance(torch.tensor([0.0, 0.0, 0.1, 9.0]), 2).tolist()) == [0, 3]


def test_the_scope_decides_whether_a_dull_group_keeps_rows() -> None:
    values, groups = torch.tensor([0.0, 0.1, 0.0, 0.1, -2.0, 2.0, -1.0, 1.0]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    assert kept_rows(D3S(), values, groups, 0.5).tolist() == [4, 5, 6, 7]
    of_each = kept_rows(D3S(scope="group"), values, groups, 0.5)
    assert (groups[of_each] == 0).sum() == 2
    assert {4, 5} < set(of_each.tolist())


def test_rows_of_equal_advantage_are_taken_from_all_prompts_alike() -> None:
    batch = batch_of([2] * 16, 4)
    advantage = advantage_of(batch, [1.0, 1.0, -1.0, -1.0] * 4)
    kept, values, _ = d3s(D3S(samples=(0.5, 0.5), tokens=(1, 1)), batch, advantage, batch.mask(), now_of())
    assert kept.groups.bincount().tolist() == [2, 2, 2, 2]
    assert values[:, 0].tolist() == [1.0, -1.0] * 4 or values[:, 0].sum() == 0


# --- tokens ---


def test_tokens_are_kept_by_advantage_times_entropy_among_those_that_bear_loss() -> None:
    score = torch.tensor([[5.0, 1.0, 9.0], [2.0, 3.0, 4.0]])
    bears = torch.tensor([[True, True, False], [True, True, True]])
    assert kept_tokens(score, bears, 0.4).tolist() == [[True, False, False], [False, False, True]]
    assert kept_tokens(score, bears, 0.41).sum() == 3
    assert torch.equal(kept_tokens(score, bears, 1.0), bears)


def test_an_edit_on_hand_computed_numbers() -> None:
    batch = batch_of([2, 4, 3, 2], 2)
    entropy = torch.tensor([[1.0, 0.1, 0, 0], [0.5, 0.2, 0.3, 0.4], [2.0, 0.1, 0.6, 0], [9.0, 9.0, 0, 0]])
    asked: list[list[int]] = []

    def given(kept: Batch) -> Tensor:
        asked.append(kept.row.tolist())
        return entropy[kept.row]

    advantage = advantage_of(batch, [-2.0, 1.0, 0.9, 0.1])
    kept, values, bears = d3s(
        D3S(samples=(0.5, 1.0), tokens=(0.5, 1.0)), batch, advantage, batch.mask(), replace(now_of(), entropy=given)
    )
    assert asked == [[0, 1]]  # the lowest and the highest advantage
    assert kept.row.tolist() == [0, 1]
    assert torch.equal(values, advantage[:2])
    # |A| H: 2.0, 0.2 | 0.5, 0.2, 0.3, 0.4: the upper three of six.
    assert bears.tolist() == [[True, False, False, False], [True, False, False, True]]


def test_shares_go_linearly_from_the_first_step_to_the_last() -> None:
    batch = batch_of([4] * 8, 4)
    advantage = advantage_of(batch, [-4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0])
    spec = D3S(samples=(0.25, 0.75), tokens=(0.25, 1.0))
    sizes = []
    for progress in (0.0, 0.5, 1.0):
        kept, _, bears = edits_after_advantage(
            batch, advantage, batch.mask(), now_of(edits=[spec], progress=progress, entropy=torch.ones(len(batch), WIDTH))
        )
        sizes.append((len(kept), int(bears.sum())))
    assert sizes == [(2, 2), (4, 10), (6, 24)]


def test_rows_that_bear_no_loss_are_not_kept() -> None:
    batch = batch_of([4] * 4, 4, truncated=(0, 3))
    advantage = advantage_of(batch, [-9.0, -1.0, 1.0, 9.0])
    bears = batch.mask() & ~batch.truncated[:, None]
    kept, _, _ = d3s(D3S(samples=(1, 1), tokens=(1, 1)), batch, advantage, bears, now_of())
    assert kept.row.tolist() == [1, 2]
    nothing, _, left = d3s(D3S(), batch, advantage, bears & False, now_of())
    assert (len(nothing), left.shape[0]) == (0, 0)


# --- in an update ---


def moved(batch: Batch, advantage: Tensor, bears: Tensor | None, **loss: Any) -> tuple[Tensor, dict[str, float]]:
    """The step of plain gradient descent, as one vector, and what the update reports."""
    policy = folder.init_decoder(SHAPE, 9, seed=0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(5 if parameter.dim() == 2 else 1)
    spec = RLSpec(method=Method(paper="t", loss=ClippedLoss(**loss)), mix=[1.0], steps=2, max_completion_length=WIDTH)
    spec = spec.model_copy(update={"optimizer": spec.optimizer.model_copy(update={"max_grad_norm": 0.0})})
    before = torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
    learner = Learner(spec, policy, (), [torch.optim.SGD(policy.parameters(), lr=1.0)], 10**6)
    values = update(learner, batch, advantage, 1, bears)
    return before - torch.nn.utils.parameters_to_vector(policy.parameters()).detach(), values


ADVANTAGE = [1.0, -1.0, 0.5, -0.5]


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_a_token_that_bears_no_loss_has_no_gradient(loss_type: Any) -> None:
    batch = batch_of([4] * 4, 2)
    bears = batch.mask()
    bears[:, 3] = False  # the last tokens: no later token sees them
    step, values = moved(batch, advantage_of(batch, ADVANTAGE), bears, loss_type=loss_type)
    other = replace(batch, tokens=torch.cat((batch.tokens[:, :3], (batch.tokens[:, 3:] + 1) % 9), 1))
    again, _ = moved(other, advantage_of(batch, ADVANTAGE), bears, loss_type=loss_type)
    assert torch.equal(step, again)
    assert not torch.equal(step, moved(batch, advantage_of(batch, ADVANTAGE), None, loss_type=loss_type)[0])
    assert values["trained_tokens"] == 12


def test_the_mean_of_the_loss_is_over_the_tokens_that_bear_it() -> None:
    batch = batch_of([4] * 4, 2)
    bears = batch.mask()
    bears[:, 2:] = False
    shorter = replace(batch, lengths=torch.tensor([2] * 4))
    for loss_type in ("grpo", "bnpo", "dapo"):
        masked, _ = moved(batch, advantage_of(batch, ADVANTAGE), bears, loss_type=loss_type)
        cut, _ = moved(shorter, advantage_of(shorter, ADVANTAGE), None, loss_type=loss_type)
        torch.testing.assert_close(masked, cut, atol=1e-6, rtol=1e-4)


def test_the_gradient_is_that_of_the_kept_tokens_alone() -> None:
    batch = batch_of([4, 3, 4, 2], 2)
    policy = folder.init_decoder(SHAPE, 9, seed=0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(5 if parameter.dim() == 2 else 1)
    spec, advantage = D3S(samples=(0.5, 0.5), tokens=(0.5, 0.5)), advantage_of(batch, ADVANTAGE)
    now = replace(now_of(), entropy=lambda some: entropies(policy, some, 1.0, torch.float32, 10**6))
    kept, values, bears = d3s(spec, batch, advantage, batch.mask(), now)
    step, _ = moved(kept, values, bears, loss_type="dapo")
    logp = scores(policy, batch, torch.arange(4), 1.0, torch.float32).logp
    where = torch.zeros(4, WIDTH, dtype=torch.bool)
    where[kept.row] = bears
    (-(logp * advantage)[where].sum() / where.sum()).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])
    assert 0 < int(where.sum()) == math.ceil(0.5 * int(kept.lengths.sum()))
    torch.testing.assert_close(step, expected, atol=1e-6, rtol=1e-3)


def test_entropies_do_not_depend_on_how_the_pass_is_cut() -> None:
    batch, policy = batch_of([4, 1, 3, 2], 2), folder.init_decoder(SHAPE, 9, seed=0)
    whole = entropies(policy, batch, 1.0, torch.float32, 10**6)
    torch.testing.assert_close(whole, entropies(policy, batch, 1.0, torch.float32, 1), atol=1e-6, rtol=1e-5)
    exact = scores(copy.deepcopy(policy), batch, torch.arange(4), 1.0, torch.float32, with_entropy=True).entropy
    torch.testing.assert_close(whole, exact, atol=1e-6, rtol=1e-5)
    assert not whole.requires_grad


def test_a_longer_run_does_not_go_on_from_one_whose_schedule_ended_earlier() -> None:
    def spec(steps: int, edits: list[Any]) -> RLSpec:
        return RLSpec(method=Method(paper="t", edits=edits), mix=[1.0], steps=steps)

    assert spec(8, []).continues(spec(4, []))
    assert not spec(8, [D3S()]).continues(spec(4, [D3S()]))
