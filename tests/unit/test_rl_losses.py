"""Losses beyond the clipped one: hand-worked numbers, TRL's own code as oracle, autograd of the published objective, and what must
not matter. (TRL's loss types with a clip stand in test_rl_loss.py.)"""

import math
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from test_rl_loss import CAP, Example, example
from torch import Tensor

from interplay.rl.loss_spec import ClipCovLoss, DiscoLoss, GeoMeanLoss, GpgLoss, HapoTokenLoss, KlCovLoss, Loss, VespoLoss
from interplay.rl.losses import (
    MEMBERS,
    STEPS,
    FullBatch,
    MicroBatch,
    covariance,
    first,
    heterogeneity,
    prepare_loss,
    score,
    share_of,
    token_losses,
)
from interplay.rl.spec import RLSpec
from interplay.rl.update import token_weights

GROUPS = [0, 0, 0, 1, 1]
RIGHT = [True, False, False, True, True]
"""The second group has no wrong completion."""


def whole_of(e: Example, logp: Tensor | None = None, entropy: Tensor | None = None) -> FullBatch:
    n = len(e.mask)
    return FullBatch(
        logp=(e.logp if logp is None else logp).detach(),
        old_logp=e.old,
        entropy=torch.ones_like(e.logp) if entropy is None else entropy,
        advantage=e.advantage,
        mask=e.mask,
        groups=torch.tensor(GROUPS[:n]),
        right=torch.tensor(RIGHT[:n]),
        noise=torch.rand(e.logp.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64),
    )


def seen_of(spec: Loss, e: Example, logp: Tensor, whole: FullBatch | None = None) -> MicroBatch:
    """What a loss sees; steps are of two tokens, and a teacher is as far away as the advantage is large."""
    known = prepare_loss(spec, whole_of(e, logp) if whole is None else whole)
    known[STEPS] = torch.arange(logp.shape[1]).expand(logp.shape) // 2
    reference = e.old if spec.refers() else None
    return MicroBatch(logp, e.old, e.advantage, e.mask, reference, known, e.advantage**2)


def loss_of(spec: Loss, e: Example, logp: Tensor | None = None, whole: FullBatch | None = None) -> Tensor:
    at = e.logp if logp is None else logp
    per_token, _ = token_losses(spec, seen_of(spec, e, at, whole))
    return (per_token * token_weights(spec.loss_type, e.mask, int(e.mask.sum()), 1, CAP)).sum()


def gradient(spec: Loss, e: Example) -> Tensor:
    logp = e.logp.clone().requires_grad_()
    loss_of(spec, e, logp).backward()
    return logp.grad


def one_row(logp: list[float], old: list[float], advantage: float) -> Example:
    t = [torch.tensor([values], dtype=torch.float64) for values in (logp, old)]
    return Example(logp=t[0], old=t[1], advantage=torch.full_like(t[0], advantage), mask=torch.ones_like(t[0], dtype=torch.bool))


# --- smooth weights ---


def test_vespo_weighs_by_a_gamma_curve_of_the_product_of_ratios() -> None:
    # Ratios 2 and 1/4: w = 1/2; A > 0: phi = e^3 (1/2)^2 e^(-3/2); loss -phi A log pi.
    e = one_row([math.log(2.0), math.log(0.25)], [0.0, 0.0], 2.0)
    phi = math.exp(3) * 0.25 * math.exp(-1.5)
    spec = VespoLoss()
    per_token, sums = token_losses(spec, MicroBatch(e.logp, e.old, e.advantage, e.mask))
    assert per_token[0].tolist() == pytest.approx([-phi * 2 * math.log(2), -phi * 2 * math.log(0.25)])
    assert float(sums["phi"]) == pytest.approx(2 * phi)
    assert gradient(spec, e)[0].tolist() == pytest.approx([-phi * 2 / 2] * 2)


@pytest.mark.parametrize("seed", range(3))
def test_vespo_is_that_of_trl(seed: int) -> None:
    from trl import GRPOTrainer

    e = example(seed=seed)
    phi = GRPOTrainer.get_gamma_weights(e.advantage, e.logp - e.old, e.mask, None, 2.0, 3.0, 3.0, 2.0)
    expected = -(phi * e.advantage * e.logp * e.mask).sum() / e.mask.sum()
    torch.testing.assert_close(loss_of(VespoLoss(), e), expected, rtol=1e-6, atol=1e-9)


def test_gpg_has_the_gradient_of_the_policy_gradient_at_any_ratio() -> None:
    e = example()
    weights = token_weights("dapo", e.mask, int(e.mask.sum()), 1, CAP)
    torch.testing.assert_close(gradient(GpgLoss(), e), -(e.advantage * weights).double())


def test_the_geometric_mean_clips_each_token_on_the_side_to_which_its_advantage_pulls() -> None:
    # log ratios 1 and -1, epsilon 0.4: A > 0 cuts 1 to 0.4 and leaves -1: mean -0.3; A < 0 leaves 1 and cuts -1 to -0.4: mean 0.3.
    for sign, mean in ((1.0, -0.3), (-1.0, 0.3)):
        e = one_row([1.0, -1.0], [0.0, 0.0], sign)
        assert float(loss_of(GeoMeanLoss(), e)) == pytest.approx(-sign * math.exp(mean))


def test_the_geometric_mean_of_ratios_inside_the_bounds_is_the_ratio_of_the_sequence() -> None:
    e = example()
    e.old = e.logp - 0.05 * e.mask
    clipped = TypeAdapter(Loss).validate_python({"name": "clipped", "loss_type": "grpo", "importance_sampling_level": "sequence"})
    torch.testing.assert_close(gradient(GeoMeanLoss(), e), gradient(clipped, e))


# --- credit of tokens under a ratio of the sequence ---

SEQUENCE = {"name": "clipped", "loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1, "epsilon_high": 0.1}
GSPO_TOKEN = {**SEQUENCE, "importance_sampling_level": "sequence_token"}


def of_tokens(seed: int = 0) -> Example:
    """An example whose advantages differ from token to token."""
    e = example(seed=seed)
    e.advantage = torch.randn(e.mask.shape, generator=torch.Generator().manual_seed(seed + 7), dtype=torch.float64) * e.mask
    return e


@pytest.mark.parametrize("seed", range(4))
def test_gspo_token_gives_each_token_its_own_credit_at_the_ratio_of_its_sequence(seed: int) -> None:
    e, spec = of_tokens(seed), TypeAdapter(Loss).validate_python(GSPO_TOKEN)
    counts = e.mask.sum(1, keepdim=True)
    ratio = (((e.logp - e.old) * e.mask).sum(1, keepdim=True) / counts).exp()
    clipped = ((ratio > 1.1) & (e.advantage > 0)) | ((ratio < 0.9) & (e.advantage < 0))
    expected = torch.where(clipped, 0.0, -ratio * e.advantage) * e.mask / counts / len(e.mask)
    torch.testing.assert_close(gradient(spec, e), expected)
    shared = gradient(TypeAdapter(Loss).validate_python(SEQUENCE), e)
    inside = e.mask & (counts > 1)
    assert not torch.allclose(shared[inside], expected[inside]), (
        "with one ratio for the sequence the tokens of a row share the credit"
    )


@pytest.mark.parametrize("options", [{}, {"name": "sapo"}, {"name": "kl_cov", "ppo_kl_coef": 0.0}, {"loss_type": "luspo"}])
def test_gspo_token_is_gspo_where_a_row_has_one_advantage(options: dict[str, Any]) -> None:
    own = {name: value for name, value in SEQUENCE.items() if "name" not in options or not name.startswith("epsilon")}
    one, other = (
        TypeAdapter(Loss).validate_python({**own, **options, "importance_sampling_level": level})
        for level in ("sequence", "sequence_token")
    )
    torch.testing.assert_close(loss_of(one, example()), loss_of(other, example()))
    torch.testing.assert_close(gradient(one, example()), gradient(other, example()))


def test_vespo_keeps_the_credit_of_tokens_and_the_geometric_mean_shares_it() -> None:
    e = of_tokens()
    e.old = e.logp
    weights = token_weights("grpo", e.mask, 1, 1, CAP)
    own = -(e.advantage * weights).double()
    torch.testing.assert_close(gradient(VespoLoss(loss_type="grpo"), e), own)
    assert not torch.allclose(gradient(GeoMeanLoss(), e), own)


GROUPED = {"advantage": {"name": "group"}}
CREDIT: list[dict[str, Any]] = [
    {"advantage": {"name": "gtpo_entropy"}},
    {"edits": [{"name": "top_entropy"}]},
    {"edits": [{"name": "gtpo_conflict"}]},
    {"advantage": {"name": "segments"}},
    {"advantage": {"name": "gae"}, "critic": {"name": "value_head"}},
]


@pytest.mark.parametrize("credit", CREDIT, ids=str)
@pytest.mark.parametrize(
    "loss", [SEQUENCE, {"name": "geo_mean"}, {"name": "sapo", "importance_sampling_level": "sequence"}], ids=str
)
def test_credit_of_tokens_is_refused_where_a_loss_would_average_it_away(credit: dict[str, Any], loss: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"the mean of their advantages \(write importance_sampling_level: sequence_token"):
        RLSpec(method={"paper": "p", **credit, "loss": loss}, mix=[1.0], steps=1)
    for able in (GSPO_TOKEN, {"name": "vespo"}, {"name": "clipped"}):
        RLSpec(method={"paper": "p", **credit, "loss": able}, mix=[1.0], steps=1)
    for whole in (GROUPED, {"advantage": {"name": "gtpo_entropy", "level": "sequence"}}):
        RLSpec(method={"paper": "p", **whole, "loss": loss}, mix=[1.0], steps=1)


def test_luspo_weighs_a_sequence_by_its_length() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert token_weights("luspo", mask, 3, 1, 10).tolist() == [[0.5, 0.5, 0], [0.5, 0, 0]]


# --- covariance ---


def test_covariance_by_hand() -> None:
    # log pi -1, -3 (mean -2); A 2, 0 (mean 1): (1)(1) and (-1)(-1).
    e = one_row([-1.0, -3.0], [0.0, 0.0], 0.0)
    e.advantage = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    assert covariance(whole_of(e))[0].tolist() == [1.0, 1.0]


def test_tokens_held_back_are_counted_by_share_one_at_least() -> None:
    mask = torch.ones(2, 5, dtype=torch.bool)
    assert [share_of(mask, share) for share in (0.0, 0.0002, 0.35, 1.0)] == [0, 1, 3, 10]
    score = torch.tensor([[3.0, 1, 2], [5, 4, 0]])
    among = torch.tensor([[True, True, True], [False, True, True]])
    assert first(score, among, 2).tolist() == [[True, False, False], [False, True, False]]


def test_clip_cov_takes_the_gradient_from_tokens_within_its_bounds_alone() -> None:
    e = example(seed=1)
    e.old = e.logp.clone()
    wide = ClipCovLoss(clip_cov_ratio=1.0, clip_cov_lb=0.2, clip_cov_ub=1.0)
    cov = covariance(whole_of(e))
    within = (cov > 0.2) & (cov < 1.0) & e.mask
    assert 0 < int(within.sum()) < int(e.mask.sum())
    assert torch.equal(gradient(wide, e) == 0, within | ~e.mask)
    few = gradient(ClipCovLoss(clip_cov_ratio=2 / int(e.mask.sum()), clip_cov_lb=0.2, clip_cov_ub=1.0), e)
    assert int(((few == 0) & e.mask).sum()) == 2


def test_kl_cov_charges_the_tokens_that_covary_most_for_leaving() -> None:
    e = example(seed=2)
    count = 3
    spec = KlCovLoss(kl_cov_ratio=(count + 0.5) / int(e.mask.sum()), ppo_kl_coef=2.0)
    cov = covariance(whole_of(e)).masked_fill(~e.mask, -math.inf)
    held = torch.zeros_like(e.mask).flatten().index_fill_(0, cov.flatten().topk(count).indices, True).view(e.mask.shape)
    difference = (e.logp - e.old) * e.mask
    expected = (-difference.exp() * e.advantage + 2 * difference.abs() * held)[e.mask].mean()
    assert float(loss_of(spec, e)) == pytest.approx(float(expected))


# --- DisCO ---


def objective(spec: DiscoLoss, e: Example, logp: Tensor) -> Tensor:
    """The published objective, negated, as one differentiable number."""
    scores = score(spec, logp, e.old, e.mask)[:, 0]
    tau = spec.tau or {"logL": 10.0, "Lratio": 1.0}[spec.score]
    right, groups = torch.tensor(RIGHT), torch.tensor(GROUPS)
    here = groups == 0  # the other group has one kind only, and counts in the mean over prompts
    good, bad = scores[here & right], scores[here & ~right]
    apart = bad.mean() if spec.basic else tau * (bad / tau).exp().mean().log()
    divergence = ((e.old - logp) * e.mask).sum() / e.mask.sum()
    return -(good.mean() - apart) / len(groups.unique()) + 0.5 * spec.disco_beta * (divergence - spec.delta).clamp(min=0) ** 2


@pytest.mark.parametrize("form", ["logL", "Lratio"])
@pytest.mark.parametrize("basic", [False, True])
@pytest.mark.parametrize("off", [-0.02, 0.02])
def test_discos_gradient_is_that_of_its_objective_with_its_constraint(form: Any, basic: bool, off: float) -> None:
    e, spec = example(), DiscoLoss(score=form, basic=basic, tau=0.7, delta=0.001)
    e.old = (e.logp + off * torch.arange(1, 6)[:, None]) * e.mask
    logp = e.logp.clone().requires_grad_()
    objective(spec, e, logp).backward()
    torch.testing.assert_close(gradient(spec, e), logp.grad, rtol=1e-5, atol=1e-7)


# --- entropy ---


def test_heterogeneity_runs_from_minus_one_to_one_and_is_zero_at_its_quantile() -> None:
    e = example(rows=1)
    e.mask[:] = True
    entropy = torch.tensor([[1.0, 2, 3, 4, 5, 60]]).double()
    h = heterogeneity(HapoTokenLoss(entropy_pivot=0.8), whole_of(e, entropy=entropy))["h"]
    pivot = math.log(5)  # the 0.8-quantile of six values is the fifth
    expected = [(math.log(v) - pivot) / (math.log(60 / 5) if v > 5 else math.log(5)) for v in entropy[0].tolist()]
    assert h[0].tolist() == pytest.approx(expected)


def test_hapo_widens_the_upper_clip_of_uncertain_tokens_and_the_lower_one_of_certain_ones() -> None:
    # Ratios 1.3 and 0.7, bounds 0.2. h = 1 doubles the upper one, h = -1 the lower one.
    for h, ratio, advantage, expected in [
        (1.0, 1.3, 1.0, -1.3 * 2),  # outside half of the bounds and uncertain: advantage doubled; 1.3 < 1.4
        (0.0, 1.3, 1.0, -1.2),
        (-1.0, 0.7, -1.0, 0.7),  # 0.7 > 0.6; certain and outside half of the bounds: as it was
        (0.0, 0.7, -1.0, 0.8),
        (-1.0, 1.05, 1.0, 0.0),  # certain and inside half of the bounds: times 1 + h
    ]:
        e = one_row([math.log(ratio)], [0.0], advantage)
        known = {"h": torch.tensor([[h]], dtype=torch.float64)}
        per_token, _ = token_losses(HapoTokenLoss(), MicroBatch(e.logp, e.old, e.advantage, e.mask, None, known))
        assert float(per_token) == pytest.approx(expected, abs=1e-9)


# --- all of them ---


@pytest.mark.parametrize("name", [name for name in MEMBERS if name != "custom"])
def test_padding_and_the_order_of_rows_do_not_matter(name: str) -> None:
    spec, e = TypeAdapter(Loss).validate_python({"name": name}), example()
    whole = whole_of(e)
    wide = Example(**{key: torch.nn.functional.pad(value, (0, 3)) for key, value in vars(e).items()})
    padded = FullBatch(*(torch.nn.functional.pad(v, (0, 3)) if v.dim() == 2 else v for v in whole[:-1]))
    torch.testing.assert_close(loss_of(spec, e), loss_of(spec, wide, whole=padded))
    turned = Example(**{key: value.flip(0) for key, value in vars(e).items()})
    torch.testing.assert_close(loss_of(spec, e), loss_of(spec, turned, whole=FullBatch(*(v.flip(0) for v in whole[:-1]))))


@pytest.mark.parametrize("name", [name for name in MEMBERS if name != "custom"])
def test_every_sum_that_is_announced_is_given(name: str) -> None:
    spec, e = TypeAdapter(Loss).validate_python({"name": name}), example()
    assert set(token_losses(spec, seen_of(spec, e, e.logp))[1]) - {"kl"} == set(MEMBERS[name].sums)
