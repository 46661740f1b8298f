"""Advantages and losses against verl's own functions. verl asks for older libraries than the project's, so that it is no dependency
of the tests: unpack it beside them,

    pip install --no-deps --target DIR verl ray tensordict codetiming peft torchdata pyvers orjson msgpack jsonschema
    PYTHONPATH=DIR pytest -m slow tests/unit/test_verl.py

The losses are compared by their gradients, which are what trains; values may differ by a constant."""

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from rl_cases import batch_of, now_of
from test_rl_loss import CAP, Example, example
from test_rl_losses import GSPO_TOKEN, gradient, of_tokens
from torch import Tensor

from interplay.rl.advantage_spec import Advantage
from interplay.rl.advantages import advantages, gae, value_loss
from interplay.rl.loss_spec import Loss

pytestmark = pytest.mark.slow
verl = pytest.importorskip("verl.trainer.ppo.core_algos")
GROUPS = [0, 0, 0, 1, 1, 1, 2, 2]
REWARDS = [1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0, 0.25]
LENGTHS = [3, 5, 1, 2, 4, 4, 6, 1]


def scored() -> tuple[Tensor, Tensor]:
    """Rewards with the last token of each row, and the mask, both (N,T)."""
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    rewards[torch.arange(len(LENGTHS)), torch.tensor(LENGTHS) - 1] = torch.tensor(REWARDS, dtype=torch.float64)
    return rewards, mask.double()


@pytest.mark.parametrize(
    ("options", "theirs", "more"),
    [
        ({"name": "group"}, "grpo", {"epsilon": 1e-4}),
        ({"name": "group", "scale_rewards": "none"}, "grpo", {"norm_adv_by_std_in_grpo": False}),
        ({"name": "leave_one_out"}, "rloo", {}),
        ({"name": "length_baseline"}, "opo", {}),
        ({"name": "whitened", "baseline": "group"}, "reinforce_plus_plus_baseline", {}),
    ],
)
def test_advantages_are_those_of_verl(options: dict[str, Any], theirs: str, more: dict[str, Any]) -> None:
    spec = TypeAdapter(Advantage).validate_python(options)
    ours = advantages(spec, batch_of(REWARDS, GROUPS, LENGTHS), now_of())
    rewards, mask = scored()
    expected, _ = verl.get_adv_estimator_fn(theirs)(rewards, mask, index=np.array(GROUPS), **more)
    torch.testing.assert_close(ours.double() * mask, expected, rtol=1e-4, atol=1e-5)


def test_generalised_advantage_estimates_are_those_of_verl_before_they_are_whitened() -> None:
    rewards, mask = scored()
    values = torch.rand(mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * mask
    _, returns = verl.compute_gae_advantage_return(rewards, values, mask, torch.tensor(0.9), torch.tensor(0.8))
    ours = gae(values, batch_of(REWARDS, GROUPS, LENGTHS), 0.9, 0.8)
    torch.testing.assert_close(ours * mask, (returns - values) * mask, rtol=1e-6, atol=1e-6)


def test_the_critics_loss_is_that_of_verl() -> None:
    _, mask = scored()
    new, old, returns = torch.rand(3, *mask.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected, _ = verl.compute_value_loss(new, returns, old, mask, 0.2)
    torch.testing.assert_close((value_loss(new, old, returns, 0.2) * mask).sum() / mask.sum(), expected)


def config(policy: dict[str, Any], **more: Any) -> Any:
    """verl's options of an actor."""
    from verl.workers.config import ActorConfig, PolicyLossConfig

    given = {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1, "clip_ratio_c": 1e6, **more}
    return ActorConfig(**given, policy_loss=PolicyLossConfig(**policy))


CLIP = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
LOSSES: list[tuple[dict[str, Any], str, str, dict[str, Any], dict[str, Any]]] = [
    ({"epsilon_high": 0.28, "loss_type": "dapo"}, "vanilla", "token-mean", {}, CLIP),
    ({"epsilon_high": 0.28, "loss_type": "grpo"}, "vanilla", "seq-mean-token-mean", {}, CLIP),
    ({"epsilon_high": 0.28, "loss_type": "dr_grpo"}, "vanilla", "seq-mean-token-sum-norm", {}, CLIP),
    ({"epsilon_high": 0.28, "loss_type": "dapo", "delta": 1.4}, "vanilla", "token-mean", {}, {**CLIP, "clip_ratio_c": 1.4}),
    ({"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.03, "epsilon_high": 0.04},
     "gspo", "seq-mean-token-mean", {}, {"clip_ratio_low": 0.03, "clip_ratio_high": 0.04}),
    ({"loss_type": "cispo", "epsilon_high": 1.3}, "cispo", "token-mean", {}, {"clip_ratio_low": 1.0, "clip_ratio_high": 0.3}),
    ({"name": "sapo", "loss_type": "grpo"}, "sapo", "seq-mean-token-mean", {}, {"tau_pos": 1.0, "tau_neg": 1.05}),
    ({"name": "geo_mean"}, "geo_mean", "token-mean", {}, {"clip_ratio_low": 0.4, "clip_ratio_high": 0.4}),
    ({"name": "gpg", "loss_type": "dapo"}, "gpg", "token-mean", {}, {}),
    ({"name": "kl_cov", "kl_cov_ratio": 0.3}, "kl_cov", "token-mean", {"kl_cov_ratio": 0.3, "ppo_kl_coef": 1.0}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("options", "theirs", "mode", "policy", "more"), LOSSES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_verl(
    options: dict[str, Any], theirs: str, mode: str, policy: dict[str, Any], more: dict[str, Any], seed: int
) -> None:
    e = example(seed=seed)
    spec: Loss = TypeAdapter(Loss).validate_python({"name": "clipped", **options})
    torch.testing.assert_close(gradient(spec, e), _theirs(theirs, mode, config(policy, **more), e), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_gspo_with_credit_of_tokens_is_that_of_verl(seed: int) -> None:
    e = of_tokens(seed)
    spec: Loss = TypeAdapter(Loss).validate_python(GSPO_TOKEN)
    clip = {"clip_ratio_low": 0.1, "clip_ratio_high": 0.1}
    expected = _theirs("gspo", "seq-mean-token-mean", config({}, **clip), e)
    torch.testing.assert_close(gradient(spec, e), expected, rtol=1e-5, atol=1e-9)


def _theirs(name: str, mode: str, options: Any, e: Example) -> Tensor:
    logp = e.logp.clone().requires_grad_()
    assert e.mask.shape[1] == CAP, "what verl divides by where no length is given"
    loss, _ = verl.get_policy_loss_fn(name)(e.old, logp, e.advantage.clone(), e.mask.double(), mode, options)
    loss.backward()
    assert logp.grad is not None
    return logp.grad * e.mask
