"""The clipped loss: hand-worked numbers, TRL's own code as oracle, finite differences, and what padding must not change."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from interplay.rl.loss import k3, policy_loss, token_weights
from interplay.schema.rl import ClippedLoss

CAP = 6
"""max_completion_length of the examples."""


class Example(SimpleNamespace):
    logp: Tensor
    old: Tensor
    reference: Tensor
    advantage: Tensor
    mask: Tensor


def example(rows: int = 5, seed: int = 0) -> Example:
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, CAP + 1, (rows,), generator=g)
    mask = torch.arange(CAP) < lengths[:, None]
    logp = (-3 * torch.rand(rows, CAP, generator=g, dtype=torch.float64)) * mask
    old = (logp + 0.5 * torch.randn(rows, CAP, generator=g, dtype=torch.float64)) * mask
    reference = (logp + 0.3 * torch.randn(rows, CAP, generator=g, dtype=torch.float64)) * mask
    advantage = torch.randn(rows, 1, generator=g, dtype=torch.float64) * mask
    return Example(logp=logp, old=old, reference=reference, advantage=advantage, mask=mask)


def loss_of(spec: ClippedLoss, e: Example, logp: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    weights = token_weights(spec, e.mask, int(e.mask.sum()), 1, CAP).double()
    reference = e.reference if spec.beta else None
    return policy_loss(spec, e.logp if logp is None else logp, e.old, reference, e.advantage, e.mask, weights)


def test_clipping_by_hand() -> None:
    # Ratios 2 and 1/2 with epsilon 0.2: advantage +1 at ratio 2 is clipped to 1.2; advantage -1 at 1/2 to -0.8; -1 at 2 is not.
    mask = torch.ones(1, 3, dtype=torch.bool)
    old = torch.zeros(1, 3)
    logp = torch.tensor([[2.0, 0.5, 2.0]]).log()
    advantage = torch.tensor([[1.0, -1.0, -1.0]])
    spec = ClippedLoss(loss_type="dapo")
    loss, sums = policy_loss(spec, logp, old, None, advantage, mask, token_weights(spec, mask, 3, 1, CAP))
    assert float(loss) == pytest.approx(-(1.2 - 0.8 - 2.0) / 3)
    assert int(sums["clip_fraction"]) == 2


def test_delta_caps_the_ratio_where_the_advantage_is_negative() -> None:
    mask = torch.ones(1, 1, dtype=torch.bool)
    spec = ClippedLoss(loss_type="dapo", delta=1.5)
    logp, old, advantage = torch.tensor([[2.0]]).log(), torch.zeros(1, 1), -torch.ones(1, 1)
    assert float(policy_loss(spec, logp, old, None, advantage, mask, mask.float())[0]) == pytest.approx(1.5)


def test_cispo_weights_the_log_probability_by_the_capped_ratio_without_a_gradient_through_it() -> None:
    mask = torch.ones(1, 1, dtype=torch.bool)
    spec = ClippedLoss(loss_type="cispo", epsilon_high=3.0)
    logp = torch.tensor([[-1.0]], requires_grad=True)
    loss, _ = policy_loss(spec, logp, torch.tensor([[-3.0]]), None, torch.tensor([[2.0]]), mask, mask.float())
    loss.backward()
    assert loss.item() == pytest.approx(-3.0 * 2.0 * -1.0)
    assert float(logp.grad) == pytest.approx(-6.0)


def test_weights_by_hand() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    by_type = {name: token_weights(ClippedLoss(loss_type=name), mask, 12, 2, 10) for name in ("grpo", "bnpo", "dr_grpo", "dapo")}
    assert by_type["grpo"].tolist() == [[0.25, 0.25, 0], [0.5, 0, 0]]
    assert by_type["bnpo"].sum() == pytest.approx(1)
    assert by_type["bnpo"][1, 0] == pytest.approx(1 / 3)
    assert by_type["dr_grpo"][0, 0] == pytest.approx(1 / 20)
    assert by_type["dapo"][0, 0] == pytest.approx(1 / 6)  # 12 tokens in the whole batch, shared by 2 steps


def test_k3_is_zero_at_equality_positive_elsewhere_and_unbiased() -> None:
    p, q = torch.tensor([0.2, 0.3, 0.5]).double(), torch.tensor([0.5, 0.3, 0.2]).double()
    estimates = k3((q / p).log())
    assert float(k3(torch.zeros(1))) == 0
    assert (estimates >= 0).all()
    assert float((p * estimates).sum()) == pytest.approx(float((p * (p / q).log()).sum()))


OPTIONS = [
    {"loss_type": "grpo"},
    {"loss_type": "bnpo", "epsilon_high": 0.28},
    {"loss_type": "dr_grpo", "delta": 1.4},
    {"loss_type": "dapo", "epsilon_high": 0.28, "beta": 0.1},
    {"loss_type": "cispo", "epsilon_high": 1.3},
    {"loss_type": "cispo", "epsilon_high": 1.3, "beta": 0.04},
    {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.03, "epsilon_high": 0.04},
    {"loss_type": "dapo", "importance_sampling_level": "sequence", "beta": 0.1},
]


def loss_of_trl(spec: ClippedLoss, e: Example, logp: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """GRPOTrainer._compute_loss itself, given log-probabilities in place of a model."""
    from collections import defaultdict

    from trl import GRPOTrainer

    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *a, **k: (logp, torch.zeros_like(logp), None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=spec.importance_sampling_level,
        beta=spec.beta,
        loss_type=spec.loss_type,
        epsilon_low=spec.epsilon,
        epsilon_high=spec.epsilon if spec.epsilon_high is None else spec.epsilon_high,
        args=SimpleNamespace(delta=spec.delta, use_bias_correction_kl=False, steps_per_generation=1),
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=CAP,
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
    )
    inputs = {
        "prompt_ids": torch.zeros(len(logp), 1, dtype=torch.int64),
        "prompt_mask": torch.ones(len(logp), 1, dtype=torch.int64),
        "completion_ids": torch.zeros(logp.shape, dtype=torch.int64),
        "completion_mask": e.mask.int(),
        "advantages": e.advantage,
        "old_per_token_logps": e.old,
        "ref_per_token_logps": e.reference,
        "num_items_in_batch": e.mask.sum(),
    }
    return GRPOTrainer._compute_loss(trainer, None, inputs), trainer._metrics["train"]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_loss_gradient_and_metrics_are_those_of_trl(options: dict[str, Any]) -> None:
    spec, e = ClippedLoss(**options), example()
    ours = e.logp.clone().requires_grad_()
    theirs = e.logp.clone().requires_grad_()
    loss, sums = loss_of(spec, e, ours)
    expected, metrics = loss_of_trl(spec, e, theirs)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-9)
    if spec.importance_sampling_level == "token":  # of sequences, TRL reports the share of sequences and not of tokens
        clipped = metrics["cispo_clip_ratio" if spec.loss_type == "cispo" else "clip_ratio/region_mean"][0]
        assert float(sums["clip_fraction"] / e.mask.sum()) == pytest.approx(clipped)
    if spec.beta:
        assert float(sums["kl"] / e.mask.sum()) == pytest.approx(metrics["kl"][0])


# Not for cispo, which holds its ratio fixed on purpose: see its hand-worked gradient above.
@pytest.mark.parametrize(
    "options", [o for o in OPTIONS if o["loss_type"] != "cispo"], ids=lambda o: "-".join(map(str, o.values()))
)
def test_the_gradient_is_that_of_finite_differences(options: dict[str, Any]) -> None:
    spec, e = ClippedLoss(**options), example(seed=3)
    logp = e.logp.clone().requires_grad_()
    loss_of(spec, e, logp)[0].backward()
    step = 1e-6
    for i, t in e.mask.nonzero().tolist():
        nudge = torch.zeros_like(e.logp)
        nudge[i, t] = step
        slope = (loss_of(spec, e, e.logp + nudge)[0] - loss_of(spec, e, e.logp - nudge)[0]) / (2 * step)
        assert float(logp.grad[i, t]) == pytest.approx(float(slope), abs=1e-6)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_padding_does_not_change_the_loss(options: dict[str, Any]) -> None:
    spec, e = ClippedLoss(**options), example()
    wide = Example(**{name: torch.nn.functional.pad(value, (0, 3)) for name, value in vars(e).items()})
    torch.testing.assert_close(loss_of(spec, e)[0], loss_of(spec, wide)[0])


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_the_order_of_rows_does_not_change_the_loss(options: dict[str, Any]) -> None:
    spec, e = ClippedLoss(**options), example()
    turned = Example(**{name: value.flip(0) for name, value in vars(e).items()})
    torch.testing.assert_close(loss_of(spec, e)[0], loss_of(spec, turned)[0])
