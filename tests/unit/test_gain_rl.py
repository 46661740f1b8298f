"""GAIN-RL: scores from hand-made states, ranks, the moving centre, and a state that keeps the scores of the initial policy."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, silu

from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.model import folder
from interplay.model.attention import rms_norm
from interplay.model.spec import Shape
from interplay.rl.sampler import Encode, Outcome, PromptSource, prompt_lengths
from interplay.rl.sampler_spec import GainRlSampler
from interplay.rl.samplers import GainRl, angles, common_prefix, score_all

SHAPE = Shape(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24)


# --- scores ---


def test_the_score_of_three_tokens_by_hand() -> None:
    half = math.sqrt(0.5)
    states = torch.tensor([[2.0, 0.0], [0.0, 3.0], [5.0, 5.0]])  # at 0, 90 and 45 degrees
    assert angles(states, 0) == pytest.approx(((0 + half + half) / 3, 0.0))
    assert angles(states, 1) == pytest.approx((half, (0 + half) / 2))
    assert angles(states, 2) == pytest.approx((0.0, (half + half) / 2))  # a single token of question: no pair within


def test_the_closed_form_is_the_mean_over_the_blocks_of_the_cosine_matrix() -> None:
    states = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    for prefix in (0, 1, 4, 7):
        matrix = cosine_similarity(states[:, None], states[None], dim=-1)
        question = matrix[prefix:, prefix:]
        within = question[torch.ones_like(question).tril(-1).bool()].mean().item()
        across = matrix[prefix:, :prefix].mean().item() if prefix else 0.0
        assert angles(states, prefix) == pytest.approx((within, across), abs=1e-6)


def test_the_fixed_prefix_is_what_all_prompts_begin_with() -> None:
    assert common_prefix([[1, 2, 3, 4], [1, 2, 5], [1, 2, 3]]) == 2
    assert common_prefix([[1, 2], [3, 2]]) == 0
    assert common_prefix([[1, 2, 3], [1, 2]]) == 1  # a token of its own is left to each
    assert common_prefix([[4, 4, 4]]) == 2


def test_states_are_those_that_enter_the_last_layers_mlp() -> None:
    decoder = folder.init_decoder(SHAPE, 9, seed=1)
    ids, places = torch.tensor([[1, 2, 3, 4]]), torch.arange(4)[None]
    inputs = decoder.mlp_input(ids, places)
    # From there the last layer's MLP and the norm are all that is left: undo them by computing on.
    last = decoder.model.layers[-1]
    final = decoder.hidden(ids, places)
    change = (silu(inputs @ last.mlp.gate_proj.weight.T) * (inputs @ last.mlp.up_proj.weight.T)) @ last.mlp.down_proj.weight.T
    with torch.no_grad():
        last.mlp.down_proj.weight.zero_()
    without = decoder.hidden(ids, places)  # the norm of the residual stream before that MLP; its weight is 1
    residual = residual_of(decoder, ids)
    torch.testing.assert_close(rms_norm(residual, torch.ones(16), 1e-6), without, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(rms_norm(residual, last.post_attention_layernorm.weight, 1e-6), inputs, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(rms_norm(residual + change, torch.ones(16), 1e-6), final, atol=1e-5, rtol=1e-4)


def residual_of(decoder: Any, ids: torch.Tensor) -> torch.Tensor:
    """The stream before the last MLP by transformers' own model."""
    from transformers import AutoConfig, AutoModelForCausalLM

    special = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    config = AutoConfig.for_model(**folder.config_json(decoder, special))
    model = AutoModelForCausalLM.from_config(config).eval()
    model.load_state_dict(decoder.state_dict(), strict=False)
    model.tie_weights()
    caught: list[torch.Tensor] = []
    model.model.layers[-1].post_attention_layernorm.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    with torch.no_grad():
        model(ids)
    return caught[0]


def encoded(prompts: list[list[int]], asked: list[int] | None = None) -> Encode:
    """Tokens of prompts by id; how many are asked for at once goes into `asked`."""

    def encode(ids: Sequence[int]) -> list[list[int]]:
        if asked is not None:
            asked.append(len(ids))
        return [prompts[i] for i in ids]

    return encode


def test_a_deck_is_never_encoded_at_once_and_its_scores_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, asked = folder.init_decoder(SHAPE, 9, seed=1), list[int]()
    prompts = [[1, 2, 3 + i % 6, *([4] * (i % 5))] for i in range(12)] + [[1, 5]]
    whole = score_all(decoder, encoded(prompts), 13, 8, torch.float32)
    monkeypatch.setattr("interplay.rl.sampler.SLICE", 3)
    assert score_all(decoder, encoded(prompts, asked), 13, 8, torch.float32).equal(whole)
    assert max(asked) == 3
    assert prompt_lengths(encoded(prompts, asked), 13) == [len(prompt) for prompt in prompts]
    assert max(asked) == 3


def test_scores_do_not_depend_on_padding_or_on_how_the_pass_is_cut() -> None:
    decoder = folder.init_decoder(SHAPE, 9, seed=1)
    prompts = [[1, 2, 3], [1, 2, 4, 5, 6], [1, 2, 7, 7], [1, 2, 8, 3, 3, 3, 4]]
    whole, pieces = (score_all(decoder, encoded(prompts), 4, tokens, torch.float32) for tokens in (10**6, 1))
    torch.testing.assert_close(whole, pieces, atol=1e-6, rtol=1e-5)
    for row, prompt in zip(whole, prompts, strict=True):
        ids = torch.tensor([prompt])
        alone = decoder.mlp_input(ids, torch.arange(len(prompt))[None])[0].detach()
        assert row.tolist() == pytest.approx(angles(alone, 2), abs=1e-5)
    assert len({round(score, 4) for score in whole[:, 0].tolist()}) > 1


# --- choices ---


def deck(size: int, mix: list[float] | None = None, **more: Any) -> PromptSource:
    return PromptSource(sizes=[size] if mix is None else [size // 2, size - size // 2], mix=mix or [1.0], seed=2, **more)


def with_scores(scores: list[tuple[float, float]], mix: list[float] | None = None, **options: Any) -> GainRl:
    draws = GainRl(GainRlSampler(**options), deck(len(scores), mix))
    draws.known = torch.tensor(scores, dtype=torch.float64)
    return draws


def test_prompts_are_ranked_by_both_parts_of_the_score_the_highest_first() -> None:
    scores = [(0.1, 0.0), (0.5, 0.0), (0.0, 0.1), (0.5, 0.0), (0.2, 0.01)]
    assert with_scores(scores).ranks().tolist() == [4, 1, 0, 2, 3]  # 0.1, 0.5, 0.8, 0.5, 0.28
    assert with_scores(scores, weight=0.0).ranks().tolist() == [3, 0, 4, 1, 2]


def falling(size: int) -> list[tuple[float, float]]:
    """Scores by which prompt i has rank i."""
    return [(1.0 - i / size, 0.0) for i in range(size)]


def test_the_chance_of_a_prompt_is_a_gaussian_of_its_rank() -> None:
    draws = with_scores(falling(12), sigma=3.0, mu=4.0)
    expected = np.exp(-0.5 * ((np.arange(12) - 4) / 3) ** 2)
    assert draws.weights() / draws.weights().sum() == pytest.approx(expected / expected.sum())
    counts = np.zeros(12)
    for step in range(1, 4001):
        counts[draws.select(1, step)] += 1
    assert counts / 4000 == pytest.approx(expected / expected.sum(), abs=0.03)


def test_a_step_draws_no_prompt_twice_and_the_mix_weighs_too() -> None:
    draws = with_scores(falling(12), sigma=100.0)
    assert sorted(draws.select(6, 1) + draws.select(6, 1)) == list(range(12))
    mixed = with_scores(falling(12), mix=[1.0, 0.0], sigma=100.0)
    assert max(i for step in range(1, 50) for i in mixed.select(3, step)) < 6


def test_a_centre_far_beyond_the_last_rank_draws_the_last_ones() -> None:
    draws = with_scores(falling(20), sigma=1.0, mu=60.0)
    assert sorted(draws.select(3, 1)) == [17, 18, 19]
    assert len(set(draws.select(16, 1))) == 16


def learnt(draws: GainRl, rewards: dict[int, tuple[float, ...]]) -> float:
    draws.observe(1, [Outcome(i, r, 0, 0) for i, r in rewards.items()])
    draws.learn(1)
    return draws.mu


def test_a_step_that_measured_no_prompt_leaves_the_centre() -> None:
    draws = with_scores([(0.4, 0.9), (0.2, 0.9)], mu=1.0)
    assert learnt(draws, {}) == 1.0
    assert draws.metrics() == {"mu": 1.0, "angle": 0.0}


def test_the_centre_moves_by_the_published_rule() -> None:
    draws = with_scores([(0.4, 0.9), (0.2, 0.9), (0.0, 0.9)])
    rise = 500 * math.tanh(2 * (0.75 - 0.5)) + 500 * math.tanh(2 * 0.3)
    assert learnt(draws, {0: (1.0, 1.0), 1: (0.0, 1.0)}) == pytest.approx(rise)
    assert draws.metrics() == {"mu": 0.0, "angle": pytest.approx(0.3)}
    assert learnt(with_scores([(0.0, 0.0)]), {0: (0.0, 0.0)}) == 0.0  # never back
    assert learnt(with_scores([(0.0, 0.0)], most=100.0), {0: (1.0,)}) == 100.0
    assert learnt(with_scores([(0.0, 0.0)] * 3, reference=30), {0: (1.0,)}) == pytest.approx(500 * math.tanh(1.0) / 10)


def test_with_the_old_lag_a_step_draws_around_the_centre_before_the_last_move() -> None:
    centres = {}
    for lag in ("old", "new"):
        draws = with_scores(falling(9), sigma=0.05, step=4.0, lag=lag, weight=0.0)
        seen = []
        for step in range(1, 4):
            seen.append(draws.select(1, step)[0])
            draws.observe(step, [Outcome(0, (1.0,), 1, 1)])
            draws.learn(step)
        centres[lag] = seen
    assert centres["new"][0] == 0 < centres["new"][1] < centres["new"][2]
    assert centres["old"] == [0, *centres["new"][:2]]


def test_a_resumed_run_keeps_the_scores_of_the_initial_policy_and_draws_the_same() -> None:
    prompts = [[1, 2, 3 + i % 5, *([4] * (i % 3)), 1 + i % 7] for i in range(24)]

    def made(seed: int) -> GainRl:
        policy = folder.init_decoder(SHAPE, 9, seed)
        spec = GainRlSampler(sigma=3.0, step=2.0)
        return GainRl(spec, deck(24, policy=policy, encode=lambda ids: [prompts[i] for i in ids]))

    def steps(draws: GainRl, numbers: range) -> list[Any]:
        seen = []
        for step in numbers:
            seen.append((draws.select(4, step), draws.mu))
            draws.observe(step, [Outcome(i, (float(i % 2), 1.0), 0, 0) for i in seen[-1][0]])
            draws.learn(step)
        return seen

    whole, first, moved = made(1), made(1), made(5)
    expected = steps(whole, range(1, 11))
    steps(first, range(1, 5))
    moved.load_state_dict(first.state_dict(), {name: tensor.clone() for name, tensor in first.tensors().items()})
    assert steps(moved, range(5, 11)) == expected[4:]
    assert not torch.equal(made(5).angles(), whole.angles())


def test_a_smallest_move_above_the_largest_is_refused() -> None:
    with pytest.raises(UserError, match=r"least \(5\.0\) must not exceed most \(2\.0\)"):
        parse_model(GainRlSampler, {"least": 5, "most": 2}, KeyPlace("f"))
