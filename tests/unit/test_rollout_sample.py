"""Drawing a token: the right distribution, and transformers' meaning of top-k and top-p."""

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import TopKLogitsWarper, TopPLogitsWarper

from interplay.rollout.request import Sampling, draw_tokens, keep_mask, uniform_noise


def sampling(temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0) -> Sampling:
    return Sampling(temperature, top_p, top_k, max_completion_length=8, seed=0, eos=1, pad=0)


@pytest.mark.parametrize(("temperature", "top_p", "top_k"), [(1.0, 1.0, 0), (0.7, 1.0, 0), (1.0, 0.8, 0), (1.3, 1.0, 4)])
def test_drawn_tokens_follow_the_softmax(temperature: float, top_p: float, top_k: int) -> None:
    count = 40000
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(4)) * 1.5
    noise = torch.from_numpy(uniform_noise(0, [7] * count, list(range(count)), 1)[:, 0])
    tokens, logprobs = draw_tokens(logits.expand(count, -1), noise, sampling(temperature, top_p, top_k))
    expected = keep_mask((logits / temperature).log_softmax(-1), sampling(1.0, top_p, top_k)).softmax(-1)[0].double().numpy()
    seen = np.bincount(tokens.numpy(), minlength=12)
    assert seen[expected == 0].sum() == 0
    live = expected > 0
    assert stats.chisquare(seen[live], expected[live] / expected[live].sum() * count).pvalue > 1e-3
    torch.testing.assert_close(logprobs, (logits / temperature).log_softmax(-1)[0, tokens])


def test_the_token_is_the_first_whose_cumulative_probability_exceeds_the_noise() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log().expand(6, -1)
    noise = torch.tensor([0.1, 0.49, 0.51, 0.76, 0.9, 1.0 - 2**-53], dtype=torch.float64)
    tokens, logprobs = draw_tokens(logits, noise, sampling())
    assert tokens.tolist() == [0, 0, 1, 2, 3, 3]
    torch.testing.assert_close(logprobs.exp(), torch.tensor([0.5, 0.5, 0.25, 0.125, 0.125, 0.125]))


def test_temperature_zero_takes_the_likeliest_token() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    tokens, logprobs = draw_tokens(logits, torch.tensor([0.999, 0.999], dtype=torch.float64), sampling(0.0))
    assert tokens.tolist() == [1, 0]
    torch.testing.assert_close(logprobs, logits.log_softmax(-1).max(-1).values)


@pytest.mark.parametrize("top_k", [1, 3, 11, 50])
def test_top_k_keeps_what_transformers_keeps(top_k: int) -> None:
    logprobs = torch.randn(20, 12, generator=torch.Generator().manual_seed(5)).log_softmax(-1)
    assert torch.equal(keep_mask(logprobs, sampling(top_k=top_k)), TopKLogitsWarper(top_k)(None, logprobs))


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
def test_top_p_keeps_what_transformers_keeps(top_p: float) -> None:
    logprobs = (torch.randn(20, 12, generator=torch.Generator().manual_seed(5)) * 2).log_softmax(-1)
    assert torch.equal(keep_mask(logprobs, sampling(top_p=top_p)), TopPLogitsWarper(top_p)(None, logprobs))
