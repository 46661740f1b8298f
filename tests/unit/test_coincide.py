"""Losses at a ratio of exactly 1: which of them are one, by their gradients, and what the planner says of studies with such arms."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import interplay
from lab import SCALE, Lab
from pydantic import TypeAdapter, ValidationError
from test_rl_loss import CAP, Example, example
from test_rl_losses import gradient, loss_of, whole_of
from torch import Tensor

from interplay.core.model import UserError
from interplay.rl.loss_spec import GpgLoss, Loss
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import token_weights

SEQUENCE = {"importance_sampling_level": "sequence"}
CLIPPED: dict[str, Any] = {"name": "clipped"}
PLAIN: list[tuple[dict[str, Any], str]] = [
    ({**CLIPPED, "epsilon": 0.01, "epsilon_high": 0.28, "delta": 1.4}, "dapo"),
    ({**CLIPPED, "loss_type": "bnpo"}, "bnpo"),
    ({**CLIPPED, "loss_type": "dr_grpo"}, "dr_grpo"),
    ({**CLIPPED, "loss_type": "cispo", "epsilon_high": 5.0}, "dapo"),
    ({**CLIPPED, "loss_type": "grpo", **SEQUENCE}, "grpo"),
    ({**CLIPPED, "loss_type": "luspo", **SEQUENCE}, "luspo"),
    ({**CLIPPED, "loss_type": "grpo", "importance_sampling_level": "sequence_token"}, "grpo"),
    ({"name": "sapo", "sapo_temperature_pos": 3.0}, "grpo"),
    ({"name": "sapo", "loss_type": "dapo", **SEQUENCE}, "dapo"),
    ({"name": "vespo", "vespo_k_pos": 5.0}, "dapo"),
    ({"name": "geo_mean"}, "grpo"),
    ({"name": "gpg", "loss_type": "luspo"}, "luspo"),
    ({"name": "dppo", "epsilon": 0.01, "ratio_cap": 2.0}, "dapo"),
    ({"name": "dro", "dro_beta": 3.0}, "dapo"),
    ({"name": "kl_cov", "kl_cov_ratio": 0.5, "ppo_kl_coef": 9.0}, "bnpo"),
]
"""Losses that are the plain policy gradient at a ratio of 1, with the weights of tokens that are left of them."""
OWN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "clip_cov", "epsilon": 0.01, "clip_cov_ratio": 0.3, "clip_cov_lb": -9}, {"name": "clip_cov", "clip_cov_ratio": 0.3, "clip_cov_lb": -9}),
    ({"name": "hapo_token", "epsilon": 0.01}, {"name": "hapo_token"}),
    ({"name": "disco", "disco_beta": 1.0, "delta": 0.5}, {"name": "disco"}),
    ({"name": "disco", "score": "Lratio", "tau": 0.1}, {"name": "disco", "basic": True}),
    ({"name": "distil", "mix_rlvr": 0.5, "epsilon": 0.01}, {"name": "distil", "mix_rlvr": 0.5}),
]  # fmt: skip
"""Losses that stay something of their own there, and what is left of them."""


def spec_of(options: dict[str, Any]) -> Loss:
    found: Loss = TypeAdapter(Loss).validate_python(options)
    return found


def still(seed: int) -> Example:
    """An example at a ratio of 1."""
    e = example(seed=seed)
    e.old = e.logp.clone()
    return e


def uneven(spec: Loss, e: Example) -> Tensor:
    """The gradient where tokens are drawn from distributions of different entropies."""
    logp = e.logp.clone().requires_grad_()
    entropy = torch.rand(e.logp.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    loss_of(spec, e, logp, whole_of(e, logp, entropy)).backward()
    return logp.grad


def policy_gradient(e: Example, loss_type: str) -> Tensor:
    return -(e.advantage * token_weights(loss_type, e.mask, int(e.mask.sum()), 1, CAP)).double()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("options", "loss_type"), PLAIN, ids=str)
def test_at_a_ratio_of_one_a_loss_is_the_one_that_stands_for_it(options: dict[str, Any], loss_type: str, seed: int) -> None:
    spec, e = spec_of(options), still(seed)
    stands = spec.at_ratio_one()
    assert (stands.name, stands.loss_type) == ("clipped", loss_type)
    assert stands == spec_of({**CLIPPED, "loss_type": loss_type}), "nothing of its own is left"
    torch.testing.assert_close(gradient(spec, e), policy_gradient(e, loss_type), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(gradient(stands, e), policy_gradient(e, loss_type), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("options", "left"), OWN, ids=str)
def test_what_does_nothing_at_a_ratio_of_one_is_left_out_of_the_others(
    options: dict[str, Any], left: dict[str, Any], seed: int
) -> None:
    spec, e = spec_of(options), still(seed)
    assert spec.at_ratio_one() == spec_of(left)
    torch.testing.assert_close(uneven(spec, e), uneven(spec.at_ratio_one(), e), rtol=1e-6, atol=1e-9)
    assert not torch.allclose(uneven(spec, e), policy_gradient(e, spec.loss_type)), "it is not the plain policy gradient"


@pytest.mark.parametrize("options", [options for options, _ in PLAIN if spec_of(options).needs_ratio()], ids=str)
def test_losses_that_need_a_ratio_act_on_one(options: dict[str, Any]) -> None:
    spec, e = spec_of(options), example(seed=1)
    assert not torch.allclose(gradient(spec, e), policy_gradient(e, spec.at_ratio_one().loss_type))


def test_plain_losses_need_none() -> None:
    for options in (
        CLIPPED,
        {"name": "gpg"},
        {"name": "clip_cov"},
        {"name": "disco"},
        {"name": "disco", "score": "Lratio", "basic": True},
    ):
        assert not spec_of(options).needs_ratio()
    assert isinstance(spec_of({"name": "gpg"}), GpgLoss)
    assert float(loss_of(spec_of(CLIPPED), still(0))) != 0


# --- when the ratio is 1, and what then has the same gradients ---


def rl(loss: dict[str, Any], **more: Any) -> RLSpec:
    method = {"paper": "p", "loss": loss, **more.pop("method", {})}
    return RLSpec(method=method, mix=[1.0], steps=1, prompts_per_step=8, **more)


def test_the_ratio_is_one_with_one_update_of_what_the_policy_itself_made() -> None:
    assert rl(CLIPPED).ratio_is_one()
    assert not rl(CLIPPED, minibatches=2).ratio_is_one()
    assert not rl({**CLIPPED, "num_iterations": 2}).ratio_is_one()
    assert not rl(CLIPPED, method={"edits": [{"name": "replay"}]}).ratio_is_one()
    assert not rl(CLIPPED, method={"continuation": {"name": "guide"}}).ratio_is_one()


def test_equal_gradients_are_found_by_what_members_say_and_not_by_name() -> None:
    one = rl(CLIPPED).equal_gradients()
    for same in ({"name": "gpg"}, {**CLIPPED, "loss_type": "bnpo"}, {"name": "kl_cov"}, {"name": "vespo"}):
        assert rl(same).equal_gradients() == one
        assert (rl(same, minibatches=2).equal_gradients() == one) is False
    assert rl({"name": "sapo"}).equal_gradients() == rl({"name": "geo_mean"}).equal_gradients() != one
    again = rl({**CLIPPED, "num_iterations": 3})
    assert again.equal_gradients() == rl({**CLIPPED, "num_iterations": 3, "loss_type": "bnpo"}).equal_gradients(), "one mean"
    assert again.equal_gradients() != rl({**CLIPPED, "num_iterations": 3, "epsilon": 0.1}).equal_gradients(), "the clip acts"
    assert rl({"name": "gpg", "beta": 0.1}).equal_gradients() != one
    assert rl({**CLIPPED, "loss_agg_mode": "seq-mean-token-mean"}).equal_gradients() == rl({"name": "sapo"}).equal_gradients()
    assert rl({**CLIPPED, "kl_estimator": "k2"}).equal_gradients() == one, "there is no reference"
    k2, k3 = ({**CLIPPED, "beta": 0.1, "kl_estimator": name} for name in ("k2", "k3+"))
    assert rl(k2).equal_gradients() == rl(k3).equal_gradients() != rl({**CLIPPED, "beta": 0.1}).equal_gradients()
    product = {**CLIPPED, "loss_type": "grpo", "importance_sampling_level": "product"}
    assert rl(product).equal_gradients() != rl({**CLIPPED, "loss_type": "grpo"}).equal_gradients(), "rows weigh by their lengths"


@pytest.mark.parametrize("weighed", [{"loss_agg_mode": "token-mean"}, {"loss_denominator": 64}])
def test_whatever_weighs_its_tokens_cispo_is_no_clipped_surrogate(weighed: dict[str, Any]) -> None:
    plain, cispo = ({**CLIPPED, "epsilon_high": 5.0, "loss_type": name, **weighed} for name in ("dapo", "cispo"))
    assert rl(plain, minibatches=4).equal_gradients() != rl(cispo, minibatches=4).equal_gradients()
    assert rl(plain).equal_gradients() == rl(cispo).equal_gradients(), "all ratios are 1"


# --- minibatches of a method ---


def test_a_method_gives_its_minibatches_where_nothing_else_does() -> None:
    method = {"paper": "p", "minibatches": 16}
    given: dict[str, Any] = {"mix": [1.0], "steps": 1, "prompts_per_step": 32}
    taken = RLSpec(method=method, **given)
    assert (taken.minibatches, taken.method.minibatches) == (16, None)
    assert taken == RLSpec(method=Method(**method), **given) == RLSpec(method={"paper": "p"}, minibatches=16, **given)
    assert RLSpec(method=method, minibatches=1, **given).minibatches == 1
    for prompts, even in ((8, 8), (12, 12), (20, 10), (7, 7), (34, 2)):
        assert RLSpec(method=method, **{**given, "prompts_per_step": prompts}).minibatches == even, (
            "what a step shares out evenly"
        )
    with pytest.raises(ValidationError, match="minibatches"):
        RLSpec(method={"paper": "p", "minibatches": 0}, **given)


# --- studies ---

STUDY = """
task: op_dag
question: Which loss?
data:
  corpus: {band: id, split: train}
  edge: {band: edge, split: rl}
  test: {bands: [id, edge], split: test}
stages:
  base: {kind: pretrain, model: pico, data: {corpus: 1.0}}
  rl: {kind: rl, data: {edge: 1.0}, method: grpo}
  eval: {kind: evaluate, data: test}
arms:
  base: {path: [base]}
  grpo: {path: [base, rl], control: base}
  again: {path: [base, rl], control: grpo, set: {rl.seed: 100}}
  ARMS
evaluate: [eval]
"""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def plan(lab: Lab, *arms: str) -> Any:
    (lab.configs / "study/one.yaml").write_text(STUDY.replace("ARMS", "\n  ".join(arms)))
    return lab.plan("one")


def minibatches(planned: Any) -> dict[str, int]:
    return {one.label.partition("/")[0]: one.spec.minibatches for one in planned.stages.values() if one.kind == "rl"}


NO_RATIO = r"the loss .* acts on ratios, and rl\.minibatches = 1 with rl\.method\.loss\.num_iterations = 1 leaves all at 1"
REFUSED = {
    "kl_cov": ("arms.x", NO_RATIO, "x: {path: [base, rl], control: grpo, set: {rl.method: kl_cov, rl.method.minibatches: 1}}"),
    "gspo": ("arms.x", NO_RATIO, "x: {path: [base, rl], control: grpo, set: {rl.method: gspo, rl.method.minibatches: 1}}"),
    "cispo": ("arms.x", NO_RATIO, "x: {path: [base, rl], set: {rl.method.loss.loss_type: cispo}}"),
    "bnpo is grpo": (
        "arms.x", "x is trained by the very gradients of grpo: rl has 1 optimiser steps a batch, so that the ratio is 1",
        "x: {path: [base, rl], control: grpo, set: {rl.method: bnpo}}",
    ),
    "values of a grid": (
        "arms.x", r"x\[epsilon=0.3\] is trained by the very gradients of x\[epsilon=0.1\]",
        "x: {path: [base, rl], grid: {rl.method.loss.epsilon: [0.1, 0.3]}, set: {rl.temperature: 0.9}}",
    ),
    "one mean of all tokens": (
        "arms.y", "y is trained by the very gradients of x: rl has 2 optimiser steps a batch and its loss is clipped with loss_type dapo",
        "x: {path: [base, rl], set: {rl.method.loss.num_iterations: 2}}\n"
        "  y: {path: [base, rl], set: {rl.method.loss.num_iterations: 2, rl.method.loss.loss_type: bnpo}}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_arms_without_a_ratio_or_without_a_difference_are_refused_unless_they_say_why(case: str, lab: Lab) -> None:
    key, said, arm = REFUSED[case]
    with pytest.raises(UserError, match=said) as error:
        plan(lab, arm)
    assert f": {key}: " in str(error.value)
    assert "coincides: why it is wanted" in str(error.value)
    last = arm.rindex("path:")
    plan(lab, f"{arm[:last]}coincides: it is a control, {arm[last:]}")


def test_other_evaluations_are_no_coincidence(lab: Lab) -> None:
    plan(lab, "x: {path: [base, rl], set: {rl.method: bnpo, eval.num_samples: 8}}")


def test_methods_come_with_their_minibatches_and_stage_scale_and_arm_overrule_them(lab: Lab) -> None:
    arms = [
        "x: {path: [base, rl], control: grpo, set: {rl.method: kl_cov}}",
        "y: {path: [base, rl], control: grpo, set: {rl.method: gspo}}",
    ]
    assert minibatches(plan(lab, *arms)) == {"grpo": 1, "again": 1, "x": 8, "y": 4}
    arms.append("z: {path: [base, rl], control: grpo, set: {rl.method: gspo, rl.minibatches: 2}}")
    assert minibatches(plan(lab, *arms))["z"] == 2
    lab.edit(f"scale/{SCALE}.yaml", "rl: {", "rl: {minibatches: 2, ")
    assert minibatches(plan(lab, *arms[:2])) == {"grpo": 2, "again": 2, "x": 2, "y": 2}


def test_the_command_line_refuses_kl_cov_at_one_minibatch(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(lab)
    monkeypatch.chdir(lab.configs.parent)
    code, _, said = interplay(capsys, "plan", "one", "--scale", SCALE, "rl.method=kl_cov", "rl.minibatches=1")
    assert code == 2
    assert "write rl.minibatches: 4" in said
    assert len(said.strip().splitlines()) == 1
