"""Several references in the KL term: what it and its gradient are, that one alone is the usual one, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import test_rl_loop as loops
import torch
import world
from conftest import copy_configs
from hypothesis import given, strategies as st
from pydantic import ValidationError

from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.rl import loop
from interplay.rl.batch import MicroBatch
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.losses import token_losses
from interplay.rl.policy import kl_estimate, weighted_sum
from interplay.rl.spec import RLSpec
from interplay.study.expand import plan_study

logps = st.lists(st.floats(-4, -0.1), min_size=3, max_size=3)


@given(policy=logps, one=logps, other=logps, share=st.floats(0.1, 0.9), estimator=st.sampled_from(["k1", "k2", "k3", "k3+"]))
def test_the_term_is_the_weighted_sum_of_the_divergences(
    policy: list[float], one: list[float], other: list[float], share: float, estimator: Any
) -> None:
    """And so is its gradient; with k1, which is linear, the divergence from the weighted geometric mean (arXiv:2502.01203)."""
    old, first, second = (torch.tensor([values], dtype=torch.float64) for values in (policy, one, other))
    spec = ClippedLoss(beta=0.5, kl_estimator=estimator)
    mask, parts = torch.ones(1, 3, dtype=torch.bool), [(share, first), (1 - share, second)]
    mean = weighted_sum(parts)

    def of(**references: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logp = old.clone().requires_grad_(True)
        loss = token_losses(spec, MicroBatch(logp, old, torch.zeros_like(old), mask, **references))[0]
        (slope,) = torch.autograd.grad(loss.sum(), logp)
        return loss.detach(), slope

    both, alone = of(reference=mean, references=parts), [of(reference=value) for _, value in parts]
    for made, each in zip(both, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(made, share * each[0] + (1 - share) * each[1])
    if estimator == "k1":
        torch.testing.assert_close(both[0], 0.5 * kl_estimate("k1", mean - old))


def spec_of(**more: Any) -> RLSpec:
    return loops.spec_of(steps=2, method={"loss": ClippedLoss(beta=0.3)}, mix=[1.0], **more)


def test_the_model_that_rl_starts_from_as_the_only_reference_changes_no_byte_and_another_one_does(tmp_path: Path) -> None:
    init, other = world.model(tmp_path, "m" * 12), world.model(tmp_path, "n" * 12, seed=1)
    roles = {"init": init, "data.0": world.problem_set(tmp_path, "a" * 12, 30)}
    runs = {
        "usual": (None, {}),
        "alone": ({"reference.0": 1.0}, {"reference.0": init}),
        "both": ({"reference.0": 0.5, "reference.1": 0.5}, {"reference.0": init, "reference.1": other}),
    }
    made = {}
    for name, (weights, models) in runs.items():
        loop.train_policy(spec_of(references=weights), {**roles, **models}, tmp_path / name, loops.HOW)
        made[name] = (tmp_path / name / "model" / "model.safetensors").read_bytes()
    assert made["usual"] == made["alone"] != made["both"]
    first = {name: read(tmp_path / name)[0]["kl"] for name in runs}
    assert first["usual"] < 1e-6 < 1e-3 < first["both"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"references": {"base": 0.5, "sft": 0.6}, "method": {"loss": {"name": "clipped", "beta": 0.1}}}, "these sum to 1.1"),
        ({"references": {"base": 1.0}}, "no KL term reads them; write method.loss.beta"),
        (
            {"references": {"base": 1.0}, "method": {"shaping": [{"name": "kl", "kl_estimator": "k3"}]}},
            "takes several with kl_estimator: k1",
        ),
    ],
)
def test_references_that_mean_nothing_are_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RLSpec(**{"mix": [1.0], "steps": 1, **more, "method": {"paper": "p", **more.get("method", {})}})


def test_arms_become_dependencies_of_the_same_seed(tmp_path: Path) -> None:
    configs = copy_configs(tmp_path)
    path = configs / "study" / "coffee.yaml"
    edit = "  anchored: {<<: *edit, control: grpo, set: {rl.method.loss.beta: 0.1, rl.references: {base: 0.25, grpo: 0.75}}}\n"
    text = path.read_text()
    path.write_text(text.replace("  answer: {", f"{edit}  answer: {{", 1))
    plan = plan_study(configs, "coffee", "coffee")
    rows = {(row.arm, row.seed): row for row in plan.stages[plan.report].spec.arms}
    for seed in (0, 3):
        stage = plan.stages[rows["anchored", seed].path[-1].digest]
        ends = {rows[arm, seed].path[-1].digest: weight for arm, weight in (("base", 0.25), ("grpo", 0.75))}
        assert {stage.deps[role]: weight for role, weight in stage.spec.references.items()} == ends
    path.write_text(text.replace("  answer: {", f"{edit.replace('grpo: 0.75', 'gpro: 0.75')}  answer: {{", 1))
    with pytest.raises(UserError, match="references = 'gpro': no such arm"):
        plan_study(configs, "coffee", "coffee")
