"""What single tokens earn, how that becomes advantages and losses: numbers worked out by hand, and those of verl's functions
(golden/verl.json: source and inputs are in it)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import world
from comma_runs import HOW, spec_of
from pydantic import TypeAdapter, ValidationError
from rl_cases import batch_of, now_of
from torch import Tensor

from interplay.core.metrics import read
from interplay.rl import loop
from interplay.rl.advantage_spec import Advantage, GaeAdvantage, ValueHead, WhitenedAdvantage
from interplay.rl.advantages import advantages, by_critic, gae
from interplay.rl.batch import Batch, Memory, Span
from interplay.rl.group_advantages import earned, returns
from interplay.rl.policy import kl_estimate
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.reward_spec import KlShaping, OverlongShaping, ProcessReward
from interplay.rl.shaping import KL, shape_rewards
from interplay.rl.spec import Method, RLSpec

GOLDEN = json.loads((Path(__file__).parent / "golden" / "verl.json").read_text())


def given(name: str) -> Tensor:
    """An input of the golden numbers."""
    return torch.from_numpy(np.array(GOLDEN["inputs"][name]))


def golden_batch(mask: str = "plain", dense: bool = False, **more: Any) -> Batch:
    """The batch that they are of; `dense`: tokens earn something of their own."""
    shaped = given("dense")
    rewards = given("rewards")
    if mask == "hole":
        inside = torch.arange(shaped.shape[1]) < given("lengths")[:, None]
        more["observed"] = inside & ~given("hole").bool()
        shaped = shaped * given("hole")
    if dense:
        more["shaped"] = shaped
        rewards = rewards + shaped.sum(1)
    return batch_of(rewards.tolist(), given("groups").tolist(), given("lengths").tolist(), **more)


def close(found: Tensor, expected: Any, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(found.double(), torch.tensor(expected).double(), rtol=tolerance, atol=tolerance)


# What tokens earn, by hand.


def test_the_reward_comes_with_the_last_token_and_terms_of_tokens_where_they_belong() -> None:
    shaped = torch.tensor([[-0.1, -0.2, 0.0], [0.0, 0.0, -0.5]], dtype=torch.float64)
    batch = batch_of([0.7, 0.5], [0, 0], [2, 3], shaped=shaped)
    close(earned(batch), [[-0.1, 0.8, 0.0], [0.0, 0.0, 0.5]])
    close(returns(earned(batch), batch.mask(), 0.5), [[0.3, 0.8, 0.0], [0.125, 0.25, 0.5]])


def test_spans_pay_with_their_last_tokens_and_empty_ones_pay_nobody() -> None:
    spans = [[Span(0, 2, 0, 1.0), Span(2, 3, 1, 0.5), Span(0, 0, 2, 9.0)]]
    close(earned(batch_of([0.75], [0], [3], spans=spans), "spans"), [[0.0, 1.0, 0.5]])


def test_turns_pay_what_they_are_worth_with_the_penalty_token_by_token() -> None:
    """Two turns of tokens 0, 1 and 3 (token 2 was read), worth 0 and 1; each token costs 0.1."""
    spans, observed = [[Span(0, 2, 0, 0.0), Span(3, 4, 1, 1.0)]], torch.tensor([[False, False, True, False]])
    batch = batch_of([1.0], [0], [4], spans=spans, turns=[[None, None]], observed=observed, logprobs=torch.full((1, 4), -1.0))
    now = now_of(shaping=[KlShaping(kl_coef=0.1)], reference=lambda batch: batch.logprobs - 1.0)
    found = shape_rewards(batch, now)
    assert [span.value for span in (found.spans or [[]])[0]] == pytest.approx([-0.2, 0.9])
    close(found.rewards, [0.7])
    close(earned(found, "turns"), [[-0.1, -0.1, 0.0, 0.9]])
    close(earned(found), [[-0.1, -0.1, 0.0, 0.9]])


def test_a_row_that_goes_on_earns_no_reward_yet() -> None:
    shaped = torch.tensor([[-0.1, -0.2]], dtype=torch.float64)
    batch = batch_of([0.7], [0], [2], shaped=shaped, unfinished=torch.tensor([True]))
    close(earned(batch), [[-0.1, 0.0]])


# The penalty in the reward.


def test_the_penalty_is_charged_by_token_next_to_terms_of_whole_completions() -> None:
    """log pi - log pi_ref = 0.5, -0.25 and 1: k1 costs them times 0.1; the second completion has no room left."""
    batch = batch_of([1.0, 0.0], [0, 0], [2, 1], logprobs=torch.tensor([[-1.0, -2.0], [-1.0, 0.0]]))
    reference = torch.tensor([[-1.5, -1.75], [-2.0, 0.0]])
    now = now_of(
        shaping=[KlShaping(kl_coef=0.1), OverlongShaping(cache=2)], reference=lambda _: reference, max_completion_length=2
    )
    found = shape_rewards(batch, now)
    close(found.parts["kl"], [-0.025, -0.1])
    close(found.rewards, [1 - 0.025 - 1.0, -0.1 - 0.5])
    close(earned(found), [[-0.05, 1 + 0.025 - 1.0], [-0.6, 0.0]])


def test_the_coefficient_is_steered_towards_the_target() -> None:
    """The divergence is 1, twice the target: 100 completions over a horizon of 1,000 raise the coefficient by 0.2 * 0.1."""
    batch = batch_of([0.0] * 100, [0] * 100, logprobs=torch.zeros(100, 1))
    memory = Memory(1)
    now = now_of(memory=memory, shaping=[KlShaping(kl_coef=0.1, target_kl=0.5, horizon=1000)], reference=lambda b: b.logprobs - 1)
    close(shape_rewards(batch, now).rewards[:1], [-0.1])
    assert memory.notes[KL] == pytest.approx(0.102)
    close(shape_rewards(batch, now).rewards[:1], [-0.102])


@pytest.mark.parametrize("name", ["k1", "abs", "k2", "k3", "k1+", "k3+"])
def test_estimates_of_the_divergence_and_their_gradients_are_those_of_verl(name: str) -> None:
    logp = given("logp").requires_grad_()
    found = kl_estimate(name, given("reference") - logp)
    found.sum().backward()
    assert logp.grad is not None
    mask = torch.arange(logp.shape[1]) < given("lengths")[:, None]
    close(found.detach() * mask, GOLDEN["kl"][name]["value"])
    close(logp.grad * mask, GOLDEN["kl"][name]["gradient"])


# Advantages.


@pytest.mark.parametrize("case", [name for name in GOLDEN["advantages"] if name.startswith("reinforce_plus_plus/")])
def test_whitened_returns_are_those_of_verl(case: str) -> None:
    _, mask, gamma, source = case.split("/")
    batch = golden_batch(mask, source == "dense")
    found = advantages(WhitenedAdvantage(baseline="none", gamma=float(gamma)), batch, now_of())
    close(found, GOLDEN["advantages"][case], 1e-5)


@pytest.mark.parametrize("case", [name for name in GOLDEN["advantages"] if name.startswith("gae/")])
def test_estimates_from_a_critic_with_rewards_of_tokens_are_those_of_verl(case: str) -> None:
    _, mask, gamma, source = case.split("/")
    batch = golden_batch(mask, source == "dense", values=given("values").float())
    close(by_critic(GaeAdvantage(gamma=float(gamma), lam=0.8), batch, now_of()), GOLDEN["advantages"][case], 1e-5)
    values = given("values") * batch.mask()
    found = (gae(values, batch, float(gamma), 0.8) + values) * batch.mask()
    close(found, GOLDEN["advantages"][case.replace("gae", "returns")])


def test_leaving_itself_out_after_the_penalty_is_verls() -> None:
    spec = TypeAdapter(Advantage).validate_python({"name": "leave_one_out"})
    batch = golden_batch(logprobs=given("old").float())
    now = now_of(shaping=[KlShaping(kl_coef=0.05)], reference=lambda _: given("reference"))
    close(advantages(spec, shape_rewards(batch, now), now), GOLDEN["advantages"]["rloo/kl"], 1e-5)


def test_advantages_of_the_others_are_normalised_over_the_batch_on_demand() -> None:
    """TRL's normalize_advantages: 2 (r - mean) of each pair, mean 0 and deviation sqrt(4 / 3)."""
    spec = TypeAdapter(Advantage).validate_python({"name": "leave_one_out", "normalize_advantages": True})
    found = advantages(spec, batch_of([1.0, 0.0, 0.0, 1.0], [0, 0, 1, 1]), now_of())
    close(found[:, 0], [1 / ((4 / 3) ** 0.5 + 1e-4) * sign for sign in (1, -1, -1, 1)])


# What does not fit, and runs.


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ({"advantage": {"name": "whitened", "gamma": 0.9}}, "write baseline: none"),
        ({"advantage": {"name": "whitened", "baseline": "none", "rewards": "spans"}}, "needs a member that judges parts"),
        ({"advantage": {"name": "whitened", "baseline": "none", "rewards": "turns"}}, "needs a member that has several turns"),
        ({"shaping": [{"name": "kl"}], "edits": [{"name": "replay"}]}, "adds completions that were not sampled"),
    ],
)
def test_what_does_not_fit_is_refused(method: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        RLSpec.model_validate({"method": {"paper": "p", **method}, "mix": [1.0], "steps": 1})


def test_steps_of_a_solution_pay_a_critic_or_returns() -> None:
    method = Method(paper="p", advantage=WhitenedAdvantage(baseline="none", rewards="spans"))
    assert RLSpec(method=method, reward={"name": "steps"}, mix=[1.0], steps=1).reward != ProcessReward()


def test_a_penalty_in_the_reward_grows_as_the_policy_leaves_its_reference(tmp_path: Path) -> None:
    inputs = {
        "init": world.model(tmp_path / "results", "m" * 12),
        "data.0": world.problem_set(tmp_path / "results", "a" * 12, 40),
    }
    asked = {
        "allocation": FixedAllocation(num_generations=1),
        "advantage": GaeAdvantage(),
        "critic": ValueHead(learning_rate=2e-3),
    }
    loop.train_policy(spec_of(4, prompts=24, shaping=[KlShaping(kl_coef=0.5)], **asked), inputs, tmp_path / "out", HOW)
    lines = read(tmp_path / "out")
    assert lines[0]["reward/kl"] == pytest.approx(0.0, abs=1e-4), "the policy is the reference"
    assert lines[-1]["reward/kl"] < -1e-4
    assert "kl" not in lines[0], "the loss has no KL term"
