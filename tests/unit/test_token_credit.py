"""What single tokens earn, how that becomes advantages and losses: numbers worked out by hand, and those of verl's functions
(golden/verl.json: source and inputs are in it)."""

import json
import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import test_rl_update as toy
import torch
import world
from comma_runs import HOW, spec_of
from pydantic import TypeAdapter, ValidationError
from rl_cases import batch_of, now_of
from torch import Tensor

from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.kernels import exact
from interplay.model.trainer_spec import AGGREGATED, AggMode
from interplay.rl import loop
from interplay.rl.advantage_spec import Advantage, GaeAdvantage, ValueHead, WhitenedAdvantage
from interplay.rl.advantages import advantages, by_critic, gae, value_loss
from interplay.rl.batch import Batch, Memory, MicroBatch, Span
from interplay.rl.edit_spec import KlShaping, OverlongShaping, OwnShaping
from interplay.rl.group_advantages import earned, returns
from interplay.rl.loss_spec import ClippedLoss, Loss
from interplay.rl.losses import token_losses
from interplay.rl.policy import kl_estimate
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.reward_spec import ProcessReward
from interplay.rl.shaping import KL, shape_rewards
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import _weights, collisions_of, token_weights

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


def chosen(name: str, **options: Any) -> Advantage:
    """An advantage by its name."""
    spec: Advantage = TypeAdapter(Advantage).validate_python({"name": name, **options})
    return spec


def close(found: Tensor, expected: Any, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(found.double(), torch.tensor(expected).double(), rtol=tolerance, atol=tolerance)


# What tokens earn, by hand.


def test_the_reward_comes_with_the_last_token_and_terms_of_tokens_where_they_belong() -> None:
    shaped = torch.tensor([[-0.1, -0.2, 0.0], [0.0, 0.0, -0.5]], dtype=torch.float64)
    batch = batch_of([0.7, 0.5], [0, 0], [2, 3], shaped=shaped)
    close(earned(batch, exact.FAST), [[-0.1, 0.8, 0.0], [0.0, 0.0, 0.5]])
    close(returns(earned(batch, exact.FAST), batch.mask(), 0.5), [[0.3, 0.8, 0.0], [0.125, 0.25, 0.5]])


def test_spans_pay_with_their_last_tokens_and_empty_ones_pay_nobody() -> None:
    spans = [[Span(0, 2, 0, 1.0), Span(2, 3, 1, 0.5), Span(0, 0, 2, 9.0)]]
    close(earned(batch_of([0.75], [0], [3], spans=spans), exact.FAST, "spans"), [[0.0, 1.0, 0.5]])


def test_turns_pay_what_they_are_worth_with_the_penalty_token_by_token() -> None:
    """Two turns of tokens 0, 1 and 3 (token 2 was read), worth 0 and 1; each token costs 0.1."""
    spans, observed = [[Span(0, 2, 0, 0.0), Span(3, 4, 1, 1.0)]], torch.tensor([[False, False, True, False]])
    batch = batch_of([1.0], [0], [4], spans=spans, turns=[[None, None]], observed=observed, logprobs=torch.full((1, 4), -1.0))
    now = now_of(shaping=[KlShaping(kl_coef=0.1)], reference=lambda batch: batch.logprobs - 1.0)
    found = shape_rewards(batch, now)
    assert [span.value for span in (found.spans or [[]])[0]] == pytest.approx([-0.2, 0.9])
    close(found.rewards, [0.7])
    close(earned(found, exact.FAST, "turns"), [[-0.1, -0.1, 0.0, 0.9]])
    close(earned(found, exact.FAST), [[-0.1, -0.1, 0.0, 0.9]])


def test_a_row_that_goes_on_earns_no_reward_yet() -> None:
    shaped = torch.tensor([[-0.1, -0.2]], dtype=torch.float64)
    batch = batch_of([0.7], [0], [2], shaped=shaped, unfinished=torch.tensor([True]))
    close(earned(batch, exact.FAST), [[-0.1, -0.2]])


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
    close(earned(found, exact.FAST), [[-0.05, 1 + 0.025 - 1.0], [-0.6, 0.0]])


DENSE = """
def first(batch, now, worth=0.5):
    found = batch.logprobs.double() * 0
    found[:, 0] = worth
    return found if worth else found[:, :1]
"""


def test_a_shaping_of_the_users_own_may_pay_single_tokens() -> None:
    spec = OwnShaping(function="mine.py:first", source=DENSE)
    found = shape_rewards(batch_of([1.0, 0.0], [0, 0], [2, 1]), now_of(shaping=[spec]))
    close(found.rewards, [1.5, 0.5])
    close(earned(found, exact.FAST), [[0.5, 1.0], [0.5, 0.0]])
    wrong = OwnShaping(function="mine.py:first", source=DENSE, options={"worth": 0.0})
    with pytest.raises(UserError, match="must return a tensor of shape"):
        shape_rewards(batch_of([1.0, 0.0], [0, 0], [2, 1]), now_of(shaping=[wrong]))


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
    batch = golden_batch(logprobs=given("old").float())
    now = now_of(shaping=[KlShaping(kl_coef=0.05)], reference=lambda _: given("reference"))
    close(advantages(chosen("leave_one_out"), shape_rewards(batch, now), now), GOLDEN["advantages"]["rloo/kl"], 1e-5)


def test_advantages_of_the_others_are_normalised_over_the_batch_on_demand() -> None:
    """TRL's normalize_advantages: 2 (r - mean) of each pair, mean 0 and deviation sqrt(4 / 3)."""
    found = advantages(chosen("leave_one_out", normalize_advantages=True), batch_of([1.0, 0.0, 0.0, 1.0], [0, 0, 1, 1]), now_of())
    close(found[:, 0], [1 / ((4 / 3) ** 0.5 + 1e-4) * sign for sign in (1, -1, -1, 1)])


def test_returns_less_the_greedy_completions_reward_are_verls() -> None:
    """The three groups' greedy completions earn 0.5, 0 and 1; each prompt is asked once."""
    asked = []

    def greedy(batch: Batch, places: list[tuple[int, int]], n: int) -> Tensor:
        asked.append((places, n))
        return torch.tensor([[0.5, 0.0, 1.0][int(batch.ids[row])] for row, _ in places])

    found = advantages(chosen("remax"), golden_batch(), now_of(continued=greedy))
    close(found, GOLDEN["advantages"]["remax"])
    assert asked == [([(0, 0), (3, 0), (6, 0)], 0)]


@pytest.mark.parametrize("scale", ["group", "none"])
def test_the_best_completion_alone_is_paid_as_in_verl(scale: str) -> None:
    name = {"group": "std", "none": "none"}[scale]
    close(
        advantages(chosen("grpo_passk", scale_rewards=scale), golden_batch(), now_of()),
        GOLDEN["advantages"][f"grpo_passk/{name}"],
        1e-3,
    )


def test_two_best_completions_earn_nothing_and_a_lone_group_neither() -> None:
    found = advantages(chosen("grpo_passk", scale_rewards="none"), batch_of([1, 1, 0, 0.7, 0.2], [0, 0, 0, 1, 1]), now_of())
    close(found[:, 0], [0, 0, 0, 0.5, 0])


@pytest.mark.parametrize("tail", [True, False])
def test_the_baseline_of_each_token_is_that_of_verl(tail: bool) -> None:
    batch = golden_batch(dense=True, logprobs=given("old").float())
    now = now_of(collisions=lambda _: given("sum_pi_squared"))
    found = advantages(chosen("optimal_token_baseline", handle_zero_tail=tail), batch, now)
    close(found, GOLDEN["advantages"][f"optimal_token_baseline/{tail}"], 1e-5)


def test_two_draws_agree_with_the_sum_of_squared_probabilities() -> None:
    """Against the softmax of each row by itself."""
    policy, batch = toy.decoder(), toy.batch_of([1.0, 0.0, 0.0, 1.0])
    found = collisions_of(toy.learner(policy), batch)
    for row, length in enumerate(batch.lengths.tolist()):
        expected = toy.naive_logprobs(policy, batch, row).exp().square().sum(-1)
        close(found[row, :length], expected.tolist(), 1e-5)
        assert (found[row, length:] == 0).all()


def parted(whiten: str) -> Tensor:
    first, second = given("parts")
    batch = golden_batch(parts={"a": first, "b": second})
    return advantages(chosen("gdpo", rewards={"a": 1.0, "b": 0.5}, whiten=whiten), batch, now_of())


def test_decoupled_rewards_are_verls_over_tokens_and_trls_over_completions() -> None:
    """verl adds 1e-6 to a deviation where we and TRL add 1e-4."""
    close(parted("tokens"), GOLDEN["advantages"]["gdpo"], 2e-3)
    plain, found = parted("none")[:, 0].double(), parted("completions")[:, 0]
    close(found, ((plain - plain.mean()) / (plain.std() + 1e-4)).tolist(), 1e-5)


def test_a_part_with_a_small_deviation_counts_as_much_as_one_with_a_large_one() -> None:
    """Groups of two: each part is 1 / sqrt(2) or its negative whatever its size."""
    parts = {"large": torch.tensor([1.0, 0.0]), "small": torch.tensor([0.0, 0.1])}
    batch = batch_of([1.0, 0.1], [0, 0], parts=parts)
    found = advantages(chosen("gdpo", rewards={"large": 1.0, "small": 1.0}, whiten="none"), batch, now_of())
    close(found[:, 0], [0.0, 0.0], 2e-3)


# Losses.

OF_VERL = {
    "dppo_tv": {"name": "dppo", "epsilon": 0.05, "epsilon_high": 0.08, "ratio_cap": 1.5},
    "dppo_kl": {"name": "dppo", "divergence": "kl", "epsilon": 0.02, "epsilon_high": 0.03, "ratio_cap": 1.5},
    "dro": {"name": "dro", "dro_beta": 0.3},
    "cispo": {"name": "clipped", "loss_type": "cispo", "epsilon_high": 1.28, "cispo_epsilon_low": 0.2},
    "gpg": {"name": "gpg"},
    "geo_mean": {"name": "geo_mean"},
    "vanilla": {"name": "clipped", "epsilon": 0.2, "epsilon_high": 0.28},
}


@pytest.mark.parametrize("case", GOLDEN["losses"])
def test_losses_and_gradients_are_those_of_verl(case: str) -> None:
    """With advantages of rows or of tokens, with the engine's weights or without, by two means over tokens."""
    name, kind, engine, mode = case.split("/")
    options = {**OF_VERL[name], "vllm_importance_sampling_clip_max": 2.0 if engine == "engine" else None}
    if name != "geo_mean":
        options["loss_agg_mode"] = mode
    spec: Loss = TypeAdapter(Loss).validate_python(options)
    mask = torch.arange(6) < given("lengths")[:, None]
    logp = given("logp").requires_grad_()
    advantage = given(f"{kind}_advantage") * mask
    per_token, _ = token_losses(spec, MicroBatch(logp, given("old"), advantage, mask, sampled=given("engine")))
    weights = token_weights(spec.loss_agg_mode or spec.loss_type, mask, int(mask.sum()), 1, 6)
    loss = (per_token * weights).sum()
    loss.backward()
    assert logp.grad is not None
    close(loss.detach(), GOLDEN["losses"][case]["loss"])
    close(logp.grad * mask, GOLDEN["losses"][case]["gradient"])


def test_a_token_keeps_its_gradient_unless_it_is_driven_beyond_the_bound_by_hand() -> None:
    """p goes from 0.5 to 0.7 (bound 0.15, ratio 1.4): held where it is to rise, free where it is to fall."""
    logp, old = torch.tensor([[0.7, 0.7, 0.6]]).log(), torch.tensor([[0.5, 0.5, 0.5]]).log()
    advantage = torch.tensor([[1.0, -1.0, 1.0]])
    spec = TypeAdapter(Loss).validate_python({"name": "dppo"})
    per_token, sums = token_losses(spec, MicroBatch(logp, old, advantage, torch.ones(1, 3, dtype=torch.bool)))
    close(per_token, [[0.0, 1.4 * math.log(0.7), -1.2 * math.log(0.6)]])
    assert float(sums["clip_fraction"]) == 1


@pytest.mark.parametrize("threshold", [0.01, 0.1])
def test_rows_too_far_off_policy_bear_no_loss_as_in_trl(threshold: float) -> None:
    from trl import GRPOTrainer

    mask = torch.arange(6) < given("lengths")[:, None]
    advantage = given("row_advantage") * mask
    seen = MicroBatch(given("logp"), given("old"), advantage, mask, sampled=given("engine"))
    free, held = (
        TypeAdapter(Loss).validate_python({"name": "clipped", "off_policy_mask_threshold": x}) for x in (None, threshold)
    )
    kept = GRPOTrainer.get_off_policy_mask(advantage, given("logp"), given("engine"), mask.double(), threshold)
    close(token_losses(held, seen)[0], (token_losses(free, seen)[0] * kept).tolist())
    assert 0 < kept.sum() < kept.numel()


def test_the_clip_of_the_product_of_ratios_is_that_of_trls_rloo() -> None:
    from collections import defaultdict
    from types import SimpleNamespace

    from trl import RLOOTrainer

    mask, theirs, ours = (
        torch.arange(6) < given("lengths")[:, None],
        given("logp").requires_grad_(),
        given("logp").requires_grad_(),
    )
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (theirs, torch.zeros_like(theirs), None),
        aux_loss_enabled=False,
        epsilon_low=0.2,
        epsilon_high=0.28,
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(gather=lambda x: x, reduce=lambda x, reduction: x),
        _metrics={"train": defaultdict(list)},
    )
    ids = torch.zeros(8, 6, dtype=torch.int64)
    named = {"prompt_ids": ids, "prompt_mask": ids, "completion_ids": ids, "completion_mask": mask.double()}
    named |= {"old_logps": (given("old") * mask).sum(1), "advantages": given("row_advantage")[:, 0]}
    expected = RLOOTrainer._compute_loss(trainer, None, named)
    expected.backward()
    options = {"name": "clipped", "loss_type": "grpo", "importance_sampling_level": "product", "epsilon_high": 0.28}
    spec: Loss = TypeAdapter(Loss).validate_python(options)
    per_token, _ = token_losses(spec, MicroBatch(ours, given("old"), given("row_advantage") * mask, mask))
    loss = (per_token * token_weights("grpo", mask, int(mask.sum()), 1, 6)).sum()
    loss.backward()
    close(loss.detach(), float(expected.detach()))
    assert theirs.grad is not None
    assert ours.grad is not None
    close(ours.grad, (theirs.grad * mask).tolist())


# How tokens are weighed.


@pytest.mark.parametrize("mode", get_args(AggMode))
def test_each_weighing_of_tokens_is_that_of_verl(mode: str) -> None:
    """Of the loss by its gradient, of the critic's loss and the entropy bonus by their values."""
    mask = torch.arange(6) < given("lengths")[:, None]
    weights = token_weights(mode, mask, int(mask.sum()), 1, 6)
    close(weights, GOLDEN["aggregation"][mode])
    values = given("values")
    losses = value_loss(values + 0.3 * given("dense"), values, earned(golden_batch(dense=True), exact.FAST), 0.05)
    close((losses * weights).sum()[None], GOLDEN["aggregation"]["value/" + mode])
    close((given("entropy") * weights).sum()[None], GOLDEN["aggregation"]["entropy/" + mode])


@pytest.mark.parametrize(("mode", "loss_type"), list(AGGREGATED.items()))
def test_a_mode_stands_in_place_of_the_loss_type_for_loss_entropy_and_critic(mode: str, loss_type: str) -> None:
    """Two completions of one and three tokens: what a step, its entropy bonus and its critic weigh them by."""
    mask = torch.tensor([[True, False, False], [True, True, True]])
    spec = RLSpec(method=Method(paper="p", loss=ClippedLoss(loss_agg_mode=mode)), mix=[1.0], steps=1, max_completion_length=3)
    wanted = {"bnpo": [0.25, 0.25], "luspo": [0.5, 0.5], "grpo": [0.5, 1 / 6], "dr_grpo": [1 / 6, 1 / 6]}[loss_type]
    close(_weights(spec, mask, 4)[:, 0], wanted)


def test_losses_whose_equation_fixes_the_weights_take_no_mode() -> None:
    for name in ("geo_mean", "disco", "direct_advantage"):
        with pytest.raises(ValidationError, match="loss_agg_mode"):
            TypeAdapter(Loss).validate_python({"name": name, "loss_agg_mode": "token-mean"})


# What does not fit, and runs.


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ({"advantage": {"name": "whitened", "gamma": 0.9}}, "write baseline: none"),
        ({"advantage": {"name": "whitened", "baseline": "none", "rewards": "spans"}}, "needs a member that judges parts"),
        ({"advantage": {"name": "whitened", "baseline": "none", "rewards": "turns"}}, "needs a member that has several turns"),
        ({"loss": {"name": "clipped", "loss_agg_mode": "token-mean", "loss_denominator": 9}}, "give one of them"),
        ({"advantage": {"name": "gdpo", "rewards": {"style": 1.0}}}, "style: the parts are outcome, steps"),
        ({"shaping": [{"name": "kl"}], "edits": [{"name": "replay"}]}, "adds completions that were not sampled"),
    ],
)
def test_what_does_not_fit_is_refused(method: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        RLSpec.model_validate({"method": {"paper": "p", **method}, "mix": [1.0], "steps": 1})


def test_steps_of_a_solution_pay_a_critic_or_returns() -> None:
    method = Method(paper="p", advantage=WhitenedAdvantage(baseline="none", rewards="spans"))
    assert RLSpec(method=method, reward={"name": "steps"}, mix=[1.0], steps=1).reward != ProcessReward()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 40)}


def test_against_the_greedy_completion_one_of_a_prompt_is_enough_to_learn(inputs: dict[str, Path], tmp_path: Path) -> None:
    """Steps with two passes, so that the bound on probabilities has something to hold."""
    loss: Loss = TypeAdapter(Loss).validate_python({"name": "dppo", "epsilon": 0.01, "num_iterations": 2})
    spec = spec_of(16, prompts=24, allocation=FixedAllocation(num_generations=1), advantage=chosen("remax"), loss=loss)
    record = loop.train_policy(spec, inputs, tmp_path, HOW)
    assert record["reward_last"] > 1.5 * record["reward_first"]
    assert max(line["clip_fraction"] for line in read(tmp_path)) > 0


def test_a_penalty_in_the_reward_grows_as_the_policy_leaves_its_reference(inputs: dict[str, Path], tmp_path: Path) -> None:
    loss = ClippedLoss(loss_agg_mode="seq-mean-token-sum", entropy_coef=0.01)
    asked = {
        "allocation": FixedAllocation(num_generations=1),
        "advantage": GaeAdvantage(),
        "critic": ValueHead(learning_rate=2e-3),
    }
    loop.train_policy(spec_of(4, prompts=24, loss=loss, shaping=[KlShaping(kl_coef=0.5)], **asked), inputs, tmp_path / "out", HOW)
    lines = read(tmp_path / "out")
    assert lines[0]["reward/kl"] == pytest.approx(0.0, abs=1e-4), "the policy is the reference"
    assert lines[-1]["reward/kl"] < -1e-4
    assert "kl" not in lines[0], "the loss has no KL term"
