"""What is added to rewards: numbers worked out by hand, and what each term must leave alone."""

import math
from typing import Any

import pytest
import torch
from conftest import examples
from hypothesis import given, strategies as st
from pydantic import TypeAdapter
from rl_cases import batch_of, now_of

from interplay.rl.batch import Batch, Memory
from interplay.rl.edit_spec import Shaping
from interplay.rl.shaping import MEMBERS, loop_share, shape_rewards

LIMIT = 10


def added(
    batch: Batch, name: str, memory: Memory | None = None, entropy: Any = None, progress: float = 0.0, **options: Any
) -> list:
    spec = TypeAdapter(Shaping).validate_python({"name": name, **options})
    now = now_of(shaping=[spec], max_completion_length=LIMIT, memory=memory or Memory(10), entropy=entropy, progress=progress)
    after = shape_rewards(batch, now)
    assert after.parts[name].tolist() == pytest.approx((after.rewards - batch.rewards).tolist())
    return after.parts[name].tolist()


def test_overlong_falls_in_a_line_over_the_cache() -> None:
    batch = batch_of([1, 1, 0, 0], [0] * 4, [5, 6, 8, 10])
    assert added(batch, "overlong", cache=4) == pytest.approx([0, 0, -0.5, -1])
    assert added(batch, "overlong", cache=4, weight=0.2)[2] == pytest.approx(-0.1)
    assert added(batch, "overlong", cache_share=4 / LIMIT) == added(batch, "overlong", cache=4)


@pytest.mark.parametrize(
    ("tokens", "share"),
    [([], 0), ([1, 2, 3], 0), ([1, 2, 2], 2 / 3), ([9, 1, 2, 1, 2, 1, 2], 6 / 7), ([1, 2, 3, 1, 2], 0), ([5, 5, 5], 1)],
)
def test_the_loop_that_a_completion_ends_in(tokens: list[int], share: float) -> None:
    assert loop_share(tokens) == pytest.approx(share)


@examples(60)
@given(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(4, 9), min_size=1, max_size=4), st.integers(2, 4))
def test_a_planted_loop_is_found_whole(head: list[int], phrase: list[int], times: int) -> None:
    tokens = head + phrase * times
    assert loop_share(tokens) == pytest.approx(len(phrase) * times / len(tokens))


def test_repetition_takes_by_share_or_from_truncated_ones_alone() -> None:
    tokens = torch.tensor([[1, 2, 3, 4], [1, 2, 2, 2], [7, 7, 7, 7]])
    batch = batch_of([1, 0, 1], [0] * 3, [4, 4, 2], tokens=tokens, truncated=torch.tensor([True, True, False]))
    assert added(batch, "repetition") == pytest.approx([0, -0.075, -0.1])
    assert added(batch, "repetition", mode="truncated") == pytest.approx([0, -0.1, 0])


def test_length_is_held_against_the_shortest_right_completion_of_earlier_steps() -> None:
    memory = Memory(10)
    first = batch_of([1, 1, 0], [3, 3, 3], [6, 4, 2])
    assert added(first, "hapo_length", memory) == [0, 0, 0], "nothing is known of the prompt yet"
    again = batch_of([1, 1, 0, 0, 1], [3, 3, 3, 3, 4], [4, 8, 2, 6, 1])
    # h = 4: cos(pi / 2) = 0; cos(pi) = -1, held at -0.7; wrong: min(cos(pi / 4), 0) = 0; cos(3 pi / 4); another prompt: unknown.
    assert added(again, "hapo_length", memory) == pytest.approx([0, -0.7, 0, math.cos(0.75 * math.pi), 0], abs=1e-9)
    assert memory.tensors["hapo_length.shortest"][[3, 4, 5]].tolist() == [4, 1, math.inf]


def test_a_wrong_completion_never_overtakes_a_right_one_by_its_length() -> None:
    memory = Memory(10)
    memory.per_prompt("hapo_length.shortest", math.inf)[0] = 5
    batch = batch_of([1] * 10 + [0] * 10, [0] * 20, [*range(1, 11)] * 2)
    total = (batch.rewards + torch.tensor(added(batch, "hapo_length", memory))).tolist()
    assert min(total[:10]) > max(total[10:])


def test_kimis_length_term_by_hand() -> None:
    batch = batch_of([1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1], [2, 6, 2, 4, 3, 3])
    assert added(batch, "kimi_length") == pytest.approx([0.5, -0.5, 0, 0, 0, 0])
    assert added(batch, "kimi_length", warmup=0.5, progress=0.4) == [0] * 6
    assert added(batch, "kimi_length", warmup=0.5, progress=0.5)[0] == 0.5


def test_a_device_is_paid_where_it_helps_and_charged_where_it_hurts() -> None:
    texts = ["<plan> a", "b", "<plan> c", "d", "<plan> e", "<plan> f"]
    batch = batch_of([1, 0, 0, 1, 1, 0], [0, 0, 1, 1, 2, 2], [1, 1, 1, 1, 5, 5], completions=texts)
    assert added(batch, "gcpo", marker="<plan>") == pytest.approx([0.1, 0, -0.1, 0, 0, 0])
    assert added(batch, "gcpo", marker="<plan>", margin=1.0) == [0] * 6
    assert added(batch, "gcpo", marker="<plan>", length=0.2)[4:] == pytest.approx([0.1, 0.1])


def test_units_beyond_the_first_cost_right_completions_alone() -> None:
    batch = batch_of([1, 1, 0], [0] * 3, completions=["; a", "; a; b; c", "; a; b"])
    assert added(batch, "units", marker=";", weight=0.1) == pytest.approx([0, -0.2, 0])


def test_truncated_failures_are_ranked_by_entropy_where_all_failed() -> None:
    entropy = torch.tensor([[3.0, 3.0], [1.0, 1.0], [2.0, 2.0], [9.0, 9.0], [1.0, 1.0], [2.0, 2.0]])
    truncated = torch.tensor([True, True, True, False, True, True])
    batch = batch_of([0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 1, 1], [2] * 6, truncated=truncated)
    assert added(batch, "entropy_rank", entropy=entropy, most=0.2) == pytest.approx([0.2, 0, 0.1, 0, 0, 0])


def test_one_that_is_uncertain_only_at_its_peak_beats_nobody() -> None:
    entropy = torch.tensor([[9.0, 0.0], [2.0, 3.0], [1.0, 1.0]])
    batch = batch_of([0, 0, 0], [0] * 3, [2] * 3, truncated=torch.tensor([True] * 3))
    # Means 4.5, 2.5, 1; peaks 9, 3, 1: all in order. With means 1, 2.5, 1 the first and second share nothing.
    assert added(batch, "entropy_rank", entropy=entropy) == pytest.approx([0.1, 0.05, 0])
    entropy[0] = torch.tensor([3.5, 0.0])
    assert added(batch, "entropy_rank", entropy=entropy) == pytest.approx([0.075, 0.075, 0])


@pytest.mark.parametrize("name", [name for name in MEMBERS if name != "custom"])
def test_several_terms_add_up_and_each_is_kept_among_the_parts(name: str) -> None:
    marker = {"marker": "x"} if name in ("gcpo", "units") else {}
    specs = [TypeAdapter(Shaping).validate_python(d) for d in ({"name": name, **marker}, {"name": "overlong", "cache": 4})]
    batch = batch_of([1, 0, 1], [0] * 3, [8, 9, 10], completions=["x x", "", "x"])
    now = now_of(
        shaping=specs[: 2 - (name == "overlong")],
        max_completion_length=LIMIT,
        entropy=torch.ones(3, 10),
        reference=lambda b: b.logprobs - 1,
    )
    after = shape_rewards(batch, now)
    torch.testing.assert_close(after.rewards, batch.rewards + sum(after.parts.values()))
