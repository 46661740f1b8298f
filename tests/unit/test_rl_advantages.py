"""Advantages with other baselines or with more than the reward in them: numbers worked out by hand or by brute force, and the
symmetries that they must have. (The group's own stand in test_rl_advantage.py.)"""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import examples
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError
from rl_cases import RIGHT, WRONG, batch_of, now_of

from interplay.rl.advantage_spec import Advantage
from interplay.rl.advantages import MEMBERS, advantages
from interplay.rl.batch import Batch, take
from interplay.rl.group_advantages import answer_entropy
from interplay.rl.spec import RLSpec

ONE = 1e-4
"""Added to deviations."""


def of(batch: Batch, name: str, entropy: Any = None, **options: Any) -> torch.Tensor:
    spec = TypeAdapter(Advantage).validate_python({"name": name, **options})

    def continued(rows: Batch, places: Any, n: int) -> torch.Tensor:
        return torch.full((len(places),), 0.4)

    return advantages(spec, batch, now_of(entropy=entropy, continued=continued))


def rows(batch: Batch, name: str, **options: Any) -> list[float]:
    return of(batch, name, **options)[:, 0].tolist()


# --- baselines ---


def test_leaving_itself_out_compares_a_completion_with_the_others() -> None:
    assert rows(batch_of([1, 0, 0.5, 0, 1], [0, 0, 0, 1, 1]), "leave_one_out") == pytest.approx([0.75, -0.75, 0, -1, 1])
    assert rows(batch_of([1.0], [0]), "leave_one_out") == [0]


def test_a_row_set_aside_is_compared_with_all_others() -> None:
    off = torch.tensor([False, False, True])
    assert rows(batch_of([1, 0, 1], [0, 0, 0], excluded=off), "leave_one_out") == pytest.approx([1, -1, 0.5])


@pytest.mark.parametrize("advantage", [{"name": "group"}, {"name": "group", "scale_rewards": "batch"}, {"name": "xrpo"}])
def test_a_row_set_aside_is_not_divided_by_next_to_nothing_where_the_others_are_equal(advantage: dict[str, Any]) -> None:
    off = torch.tensor([False, False, True])
    assert rows(batch_of([0, 0, 1], [0, 0, 0], excluded=off), **advantage) == [0, 0, 1]


def test_whitening_leaves_nothing_of_equal_values_or_of_a_single_token() -> None:
    """0.1 + ... + 0.1 over seven is not 0.1, and Adam would blow the difference up to a step of full size."""
    assert rows(batch_of([0.1] * 7, [0] * 7), "whitened", baseline="none") == [0] * 7
    assert rows(batch_of([1.0], [0]), "whitened", baseline="none") == [0]


@pytest.mark.parametrize("baseline", ["group", "none"])
def test_whitening_is_over_the_tokens_of_the_batch(baseline: str) -> None:
    batch = batch_of([1, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], [3, 1, 2, 5, 4, 1])
    centred = np.array([1 / 3, -2 / 3, 1 / 3, 2 / 3, -1 / 3, -1 / 3] if baseline == "group" else batch.rewards)
    tokens = np.repeat(centred, batch.lengths)
    expected = (centred - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)
    assert rows(batch, "whitened", baseline=baseline) == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_baseline_weighed_by_length() -> None:
    # (3 * 1 + 1 * 0) / 4 = 3/4.
    assert rows(batch_of([1, 0], [0, 0], [3, 1]), "length_baseline") == pytest.approx([0.25, -0.75])


def pass_k_by_search(rewards: list[float], k: int) -> list[float]:
    """The mean over all choices of k completions of what their shared reward is above the mean, over the deviation."""
    choices = list(itertools.combinations(range(len(rewards)), k))
    shared = [max(rewards[i] for i in choice) for choice in choices]
    mean, deviation = np.mean(shared), np.std(shared)
    if not deviation:
        return [0.0] * len(rewards)
    each = [[s for s, choice in zip(shared, choices, strict=True) if i in choice] for i in range(len(rewards))]
    return [float((np.mean(mine) - mean) / deviation) for mine in each]


@examples(60)
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=8), st.data())
def test_pass_k_in_closed_form_is_the_mean_over_all_groups_of_k(rewards: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(rewards)))
    got = rows(batch_of(rewards, [0] * len(rewards)), "pass_k", k=k)
    assert got == pytest.approx(pass_k_by_search(rewards, k), abs=1e-5)


def test_pass_one_is_the_groups_own_advantage_but_for_its_deviation() -> None:
    got = rows(batch_of([1, 0, 0, 0], [0] * 4), "pass_k", k=1)
    assert got == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3])


def test_a_grae_by_hand() -> None:
    # One group, one right of four; p = w = 1/4; A0 = 3/4 / (1/2 + e), -1/4 / (1/2 + e). (w/2)/sqrt(p) = 1/4; ((1-w)/2)/sqrt(1-p).
    scale = 0.25 + 0.375 / math.sqrt(0.75)
    plain = [0.75 / (0.5 + ONE), -0.25 / (0.5 + ONE)]
    expected = [plain[0] * scale * 0.25, *[plain[1] * scale] * 3]
    assert rows(batch_of([1, 0, 0, 0], [0] * 4), "a_grae") == pytest.approx(expected)
    assert rows(batch_of([1, 0, 0, 0], [0] * 4), "a_grae", alpha=0.5)[0] == pytest.approx(expected[0] * 2)
    assert rows(batch_of([1, 1, 0, 0], [0, 0, 1, 1]), "a_grae") == [0] * 4


def test_the_tracked_advantage_is_standardised_over_the_batch() -> None:
    batch = batch_of([1, 0, 1], [0, 1, 2], expected=torch.tensor([0.5, 0.25, 1.0], dtype=torch.float64))
    # 0.5, -0.25, 0: mean 1/12, deviation of 0.5, -0.25, 0.
    values = np.array([0.5, -0.25, 0.0])
    expected = (values - values.mean()) / (values.std(ddof=1) + ONE)
    assert rows(batch, "tracked") == pytest.approx(expected.tolist(), abs=1e-6)
    with pytest.raises(ValueError, match="needs a sampler that expects"):
        rows(batch_of([1.0], [0]), "tracked")


# --- agreement, likelihood, entropy ---


def said(*answers: str) -> dict[str, Any]:
    return {"verdicts": [(RIGHT if answer == "7" else WRONG)._replace(said=answer) for answer in answers]}


def test_answer_entropy_is_that_of_the_answers_given() -> None:
    batch = batch_of([1, 1, 0, 0], [0, 0, 0, 0], **said("7", "7", "3", ""))
    assert answer_entropy(batch).tolist() == pytest.approx([1.5] * 4)


def test_copo_gives_whole_prompts_an_advantage_where_their_own_is_zero() -> None:
    batch = batch_of([1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 2, 2], **said("7", "7", "3", "3", "7", "3"))
    # Prompts' rewards 1, 0, 1/2: standardised 1, -1, 0 but for the epsilon.
    forced = rows(batch, "copo", threshold=0.0, steepness=1000.0)
    assert forced[:4] == pytest.approx([0.5 / (0.5 + ONE)] * 2 + [-0.5 / (0.5 + ONE)] * 2, abs=1e-6)
    assert forced[4:] == pytest.approx([0.5 / (math.sqrt(0.5) + ONE), -0.5 / (math.sqrt(0.5) + ONE)])
    assert rows(batch, "copo", blend="no_global") == pytest.approx(rows(batch, "group"))
    only = rows(batch, "copo", blend="only_global")
    assert only[4] == pytest.approx(0, abs=1e-9)
    agreed = rows(batch, "copo", blend="only_global", consistency=0.5)
    assert agreed[4] < only[4], "a prompt whose answers differ is worth less"


def test_a_completion_without_reward_learns_from_its_prompt_alone_in_copo_as_released() -> None:
    # Four answers to the first prompt, two bits of entropy; two to the second, one bit: w = sigmoid(5) and 1/2 for what is right.
    batch = batch_of([1, 0, 0, 0, 1, 1, 0, 0], [0] * 4 + [1] * 4, **said("7", "3", "2", "1", "7", "7", "3", "3"))
    high = 0.125 / (0.125 * math.sqrt(2) + ONE)  # the prompts' rewards 1/4 and 1/2, standardised
    low = -high
    first, second = 0.75 / (0.5 + ONE), 0.5 / (math.sqrt(1 / 3) + ONE)
    w = 1 / (1 + math.exp(-5))
    expected = [w * first + (1 - w) * low, *[low] * 3, *[(second + high) / 2] * 2, *[high] * 2]
    assert rows(batch, "copo", blend="soft_zero") == pytest.approx(expected, abs=1e-6)
    forced = rows(batch, "copo", blend="soft_forced")
    assert forced[0] == pytest.approx(expected[0], abs=1e-6)
    assert forced[1] != pytest.approx(low, abs=0.1)


def test_xrpo_pays_right_completions_that_are_less_likely_than_their_group_up_to_a_cap() -> None:
    logprobs = torch.tensor([[-1.0], [-3.0], [-2.0], [-2.0]])
    batch = batch_of([1, 1, 0, 0], [0] * 4, logprobs=logprobs)
    plain = 0.5 / (math.sqrt(1 / 3) + ONE)
    got = rows(batch, "xrpo")
    # s - mean: 1, -1: eta e and 1/e; bonus 0 and min(2.5 (1 - 1/e), plain / 2).
    assert got == pytest.approx([plain, plain * 1.5, -plain, -plain])
    small = rows(batch, "xrpo", scale=0.1)
    assert small[1] == pytest.approx(plain + 0.1 * (1 - math.exp(-1)))


def test_entropy_shapes_right_completions_up_and_sure_wrong_ones_down() -> None:
    entropy = torch.tensor([[0.25], [0.2], [0.25], [0.2]])
    batch = batch_of([1, 1, 0, 0], [0] * 4)
    shaped = [1 + 0.1 * 0.25 / 0.225, 1 + 0.1 * 0.2 / 0.225, -1 - 0.1 * 4 / 4.5, -1 - 0.1 * 5 / 4.5]
    expected = (np.array(shaped) - np.mean(shaped)) / (np.std(shaped, ddof=1) + ONE)
    for level in ("token", "sequence"):
        assert rows(batch, "gtpo_entropy", entropy=entropy, level=level) == pytest.approx(expected.tolist(), abs=1e-6)
    no_wrong = rows(batch, "gtpo_entropy", entropy=entropy, wrong=False)
    assert no_wrong[2] == pytest.approx(no_wrong[3])


def test_entropy_is_shared_at_each_place_among_the_completions_that_reach_it() -> None:
    entropy = torch.tensor([[0.25, 0.25], [0.2, 0.0], [0.2, 0.2], [0.2, 0.2]])
    batch = batch_of([1, 1, 0, 0], [0] * 4, [2, 1, 2, 2])
    got = of(batch, "gtpo_entropy", entropy=entropy)
    assert got[1, 1] == 0
    # At the second place one right and two wrong are alive: 1.1, -1.1, -1.1.
    values = np.array([1.1, -1.1, -1.1])
    expected = (values - values.mean()) / (values.std(ddof=1) + ONE)
    assert [float(got[i, 1]) for i in (0, 2, 3)] == pytest.approx(expected.tolist(), abs=1e-6)


# --- all of them ---

ELSEWHERE = ("spans", "role", "turn_returns", "turns", "igpo", "custom", "remax", "gdpo", "grpo_passk", "optimal_token_baseline")
"""Advantages of spans, seats and turns, and of rewards in parts: see test_rl_advantage.py, test_rl_self_play.py, test_rl_turns.py,
test_turn_credit.py and test_token_credit.py."""
NAMES = [name for name in MEMBERS if name not in ELSEWHERE]
ACROSS = ("copo", "tracked", "whitened", "gae", "segments")
"""Those that compare with more than the rewards of the group."""


def mixed(seed: int = 0) -> tuple[Batch, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    n = 12
    batch = batch_of(
        torch.randint(0, 2, (n,), generator=g).tolist(),
        [i // 4 for i in range(n)],
        torch.randint(1, 5, (n,), generator=g).tolist(),
        expected=torch.rand(n, generator=g, dtype=torch.float64),
        logprobs=-torch.rand(n, 4, generator=g),
        **said(*[str(int(v)) for v in torch.randint(5, 9, (n,), generator=g)]),
    )
    batch = replace(batch, logprobs=batch.logprobs[:, : batch.tokens.shape[1]])
    batch = replace(batch, values=torch.rand(batch.tokens.shape, generator=g))
    return batch, torch.rand(n, batch.tokens.shape[1], generator=g)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_does_not_matter_and_nothing_lies_outside_the_mask(name: str, seed: int) -> None:
    batch, entropy = mixed(seed)
    options = {"k": 2} if name == "pass_k" else {}
    plain = of(batch, name, entropy=entropy, **options)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(seed))
    moved = of(take(batch, order), name, entropy=entropy, **options)
    torch.testing.assert_close(moved, plain[order], atol=1e-5, rtol=1e-5)
    assert not plain[~batch.mask()].any()
    assert plain.any()


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ACROSS])
def test_groups_without_a_difference_have_no_advantage(name: str) -> None:
    batch, entropy = mixed()
    ones = torch.ones(len(batch), dtype=torch.float64)
    same = replace(batch, rewards=ones, right=ones.bool())
    assert not of(same, name, entropy=entropy, **({"k": 2} if name == "pass_k" else {})).any()


def spec_of(advantage: dict[str, Any], group: int = 4, sampler: str = "uniform") -> RLSpec:
    method = {
        "paper": "p",
        "allocation": {"name": "fixed", "num_generations": group},
        "advantage": advantage,
        "sampler": {"name": sampler},
    }
    return RLSpec.model_validate({"method": method, "mix": [1.0], "steps": 1})


def test_combinations_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"method\.advantage\.k = 5: at most num_generations, 4"):
        spec_of({"name": "pass_k", "k": 5})
    with pytest.raises(ValidationError, match=r"tracked needs a member that expects a pass rate .*; write method.sampler = "):
        spec_of({"name": "tracked"})
    with pytest.raises(ValidationError, match="num_generations = 1"):
        spec_of({"name": "leave_one_out"}, group=1)
    spec_of({"name": "tracked"}, group=1, sampler="single_stream")
    spec_of({"name": "whitened", "baseline": "none"}, group=1)
