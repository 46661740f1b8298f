"""Optimiser steps on a real (tiny) decoder: what is learnt must not depend on how a step is cut, and only on rows that inform."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from interplay.core.model import PermanentError
from interplay.model.decoder import Decoder
from interplay.model.spec import Shape
from interplay.rl.advantages import advantages
from interplay.rl.batch import Batch, Memory, StepContext, seams_of, take
from interplay.rl.loss_spec import Loss
from interplay.rl.policy import micro_batches, scores
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import Learner, update
from interplay.tasks.verdict import Verdict

SHAPE = Shape(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24)
VOCABULARY = 11
LONGEST = 7


def decoder(seed: int = 0) -> Decoder:
    model = Decoder(SHAPE, VOCABULARY)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        torch.nn.init.ones_(parameter) if "norm" in name else torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return model


def batch_of(rewards: list[float], size: int = 4) -> Batch:
    """Groups of `size` rows with prompts and completions of random lengths."""
    g = torch.Generator().manual_seed(5)
    n = len(rewards)
    lengths = torch.randint(1, LONGEST + 1, (n,), generator=g)
    prompt_of = [torch.randint(0, VOCABULARY, (3 + 2 * (group % 3),), generator=g).tolist() for group in range(n // size)]
    return Batch(
        row=torch.arange(n),
        ids=torch.arange(n) // size,
        groups=torch.arange(n) // size,
        prompts=[prompt_of[i // size] for i in range(n)],
        tokens=torch.randint(0, VOCABULARY, (n, LONGEST), generator=g),
        lengths=lengths,
        logprobs=-torch.rand(n, LONGEST, generator=g),
        truncated=lengths == LONGEST,
        completions=[""] * n,
        verdicts=[Verdict(False, False, 0.0, "value", 0, 0, 0, 0, 1)] * n,
        right=torch.tensor(rewards) > 0,
        rewards=torch.tensor(rewards, dtype=torch.float64),
        parts={},
    )


REWARDS = [1.0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
"""Four groups of four; the second and the last do not inform."""


def learner(policy: Decoder, tokens: int = 10**6, rate: float = 0.5, steps: dict[str, Any] | None = None, **loss: Any) -> Learner:
    """Plain gradient descent, so that parameters move by the gradient itself."""
    method = Method(paper="test", loss=TypeAdapter(Loss).validate_python({"name": "clipped", **loss}))
    spec = RLSpec(method=method, mix=[1.0], steps=3, prompts_per_step=4, max_completion_length=LONGEST, **(steps or {}))
    spec = spec.model_copy(update={"optimizer": spec.optimizer.model_copy(update={"max_grad_norm": 0.0})})
    references = ((1.0, decoder(seed=1)),) if loss.get("beta") else ()
    return Learner(spec, policy, references, [torch.optim.SGD(policy.parameters(), lr=rate)], tokens)


def advantage_of(batch: Batch) -> Tensor:
    method = Method(paper="test")
    return advantages(method.advantage, batch, StepContext(seams_of(method), Memory(len(batch))))


def moved(batch: Batch, tokens: int = 10**6, steps: dict[str, Any] | None = None, **loss: Any) -> tuple[Tensor, dict[str, float]]:
    """How far an update moves the parameters, as one vector, and the values it reports."""
    policy = decoder()
    before = torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
    values = update(learner(policy, tokens, steps=steps, **loss), batch, advantage_of(batch), step=1)
    return torch.nn.utils.parameters_to_vector(policy.parameters()).detach() - before, values


def naive_logprobs(policy: Decoder, batch: Batch, i: int) -> Tensor:
    """Row i alone, unpadded: log-probabilities (length, vocabulary) at the places of its completion."""
    prompt, completion = batch.prompts[i], batch.tokens[i, : batch.lengths[i]].tolist()
    ids = torch.tensor([prompt + completion])
    logits = policy.logits(policy.hidden(ids, torch.arange(ids.shape[1])[None]))[0]
    return logits[len(prompt) - 1 : -1].log_softmax(-1)


def test_scores_are_those_of_each_sequence_alone() -> None:
    policy, batch = decoder(), batch_of(REWARDS)
    got = scores(policy, batch, torch.arange(len(batch)), 1.0, torch.float32, with_entropy=True)
    for i in range(len(batch)):
        logs, n = naive_logprobs(policy, batch, i), int(batch.lengths[i])
        torch.testing.assert_close(got.logp[i, :n], logs.gather(1, batch.tokens[i, :n, None])[:, 0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(got.entropy[i, :n], -(logs.exp() * logs).sum(1), atol=1e-5, rtol=1e-4)
        assert got.logp[i, n:].tolist() == [0] * (LONGEST - n)


def test_a_large_vocabulary_in_int8_has_one_log_probability_with_and_without_entropies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first ratio of a step with an entropy bonus would not be 1: its old log-probabilities come without entropies."""
    monkeypatch.setattr("interplay.model.decoder.LARGE_VOCABULARY", VOCABULARY)
    policy, batch = decoder(), batch_of(REWARDS)
    alone, with_entropies = (
        scores(policy, batch, torch.arange(len(batch)), 1.0, torch.int8, entropy).logp for entropy in (False, True)
    )
    assert torch.equal(alone, with_entropies)


def test_temperature_divides_the_logits() -> None:
    policy, batch = decoder(), batch_of(REWARDS)
    got = scores(policy, batch, torch.tensor([0]), 2.0, torch.float32).logp[0, 0]
    expected = (naive_logprobs(policy, batch, 0)[0] / 2).log_softmax(-1)[batch.tokens[0, 0]]
    assert got.item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("share", [True, False])
def test_micro_batches_hold_every_row_once_within_their_tokens(share: bool) -> None:
    batch, policy = batch_of(REWARDS), decoder()
    policy.share_prompts = share
    rows = torch.tensor([0, 1, 3, 4, 7, 9, 12, 13])

    def cost(piece: list[int]) -> int:
        prompts = [tuple(batch.prompts[i]) for i in piece]
        return len(set(prompts) if share else prompts) * max(map(len, prompts)) + len(piece) * max(
            int(batch.lengths[i]) for i in piece
        )

    for tokens, pieces in ((10**6, 1), (40, None), (1, 8)):
        cut = [piece.tolist() for piece in micro_batches(policy, batch, rows, tokens)]
        assert sorted(i for piece in cut for i in piece) == rows.tolist()
        assert pieces in (None, len(cut))
        assert all(cost(piece) <= tokens or len(piece) == 1 for piece in cut)


def test_prompts_that_pass_once_or_before_each_completion_give_one_update() -> None:
    batch, found = batch_of(REWARDS), {}
    for share in (True, False):
        policy = decoder()
        policy.share_prompts = share
        values = update(learner(policy), batch, advantage_of(batch), 1)
        found[share] = values["loss"], values["grad_norm"], torch.cat([p.detach().flatten() for p in policy.parameters()])
    assert found[True][:2] == pytest.approx(found[False][:2], rel=1e-5)
    torch.testing.assert_close(found[True][2], found[False][2], atol=1e-5, rtol=1e-4)


def test_one_step_is_the_gradient_of_the_advantage_weighted_log_likelihood() -> None:
    batch, policy = batch_of(REWARDS), decoder()
    advantage, tokens = advantage_of(batch), int(batch.lengths.sum())
    total = torch.zeros(())
    for i in range(len(batch)):
        n = int(batch.lengths[i])
        chosen = naive_logprobs(policy, batch, i).gather(1, batch.tokens[i, :n, None])[:, 0]
        total = total - (advantage[i, :n] * chosen).sum() / tokens
    total.backward()
    gradient = torch.cat([p.grad.flatten() for p in policy.parameters()])
    step, values = moved(batch, loss_type="dapo")
    torch.testing.assert_close(step, -0.5 * gradient, atol=1e-6, rtol=1e-3)
    assert values["grad_norm"] == pytest.approx(gradient.norm().item(), rel=1e-4)
    assert values["clip_fraction"] == 0


CASES: list[dict[str, Any]] = [
    {"loss_type": "grpo"},
    {"loss_type": "bnpo"},
    {"loss_type": "dr_grpo"},
    {"loss_type": "dapo", "beta": 0.1},
    {"loss_type": "cispo", "epsilon_high": 5.0},
    {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    {"loss_type": "dapo", "entropy_coef": 0.01, "mask_truncated_completions": True},
    {"name": "clip_cov", "clip_cov_ratio": 0.2, "clip_cov_lb": 0.0},
    {"name": "kl_cov", "kl_cov_ratio": 0.2, "num_iterations": 2},
    {"name": "disco", "tau": 1.0},
    {"name": "hapo_token", "num_iterations": 2},
    {"name": "vespo", "num_iterations": 2},
    {"name": "geo_mean", "num_iterations": 2},
]


@pytest.mark.parametrize("loss", CASES, ids=lambda c: "-".join(str(v) for v in c.values()))
@pytest.mark.parametrize("steps", [{}, {"minibatches": 2}], ids=["one_step", "two_steps"])
def test_the_size_of_micro_batches_does_not_change_what_is_learnt(loss: dict[str, Any], steps: dict[str, Any]) -> None:
    whole, values = moved(batch_of(REWARDS), 10**6, steps, **loss)
    pieces, again = moved(batch_of(REWARDS), 20, steps, **loss)
    assert whole.norm() > 1e-3
    torch.testing.assert_close(pieces, whole, atol=2e-6, rtol=1e-3)
    assert again == pytest.approx(values, abs=1e-5)


@pytest.mark.parametrize("loss", CASES[:3], ids=lambda c: c["loss_type"])
def test_leaving_out_rows_without_advantage_changes_nothing(loss: dict[str, Any]) -> None:
    left_out, _ = moved(batch_of(REWARDS), **loss)
    forwarded, _ = moved(batch_of(REWARDS), **loss, entropy_coef=1e-12)
    torch.testing.assert_close(left_out, forwarded, atol=1e-6, rtol=1e-3)


def test_rows_without_advantage_still_count_in_the_mean() -> None:
    with_idle, _ = moved(batch_of(REWARDS), loss_type="grpo")
    informative, _ = moved(take(batch_of(REWARDS), torch.tensor([0, 1, 2, 3, 8, 9, 10, 11])), loss_type="grpo")
    torch.testing.assert_close(2 * with_idle, informative, atol=1e-6, rtol=1e-3)


def test_a_batch_in_which_no_group_informs_makes_no_step_even_with_a_kl_term() -> None:
    step, values = moved(batch_of([1.0] * 8 + [0.0] * 8), loss_type="dapo", beta=0.1)
    assert step.abs().max() == 0
    assert values["optimizer_steps"] == 0


def test_an_empty_batch_makes_no_step() -> None:
    step, values = moved(take(batch_of(REWARDS), torch.tensor([], dtype=torch.int64)), loss_type="dr_grpo")
    assert (step.abs().max(), values["optimizer_steps"]) == (0, 0)


def test_a_minibatch_in_which_no_group_informs_makes_no_step() -> None:
    _, values = moved(batch_of([1.0, 0, 0, 0] * 2 + [0.0] * 8), steps={"minibatches": 2}, num_iterations=3)
    assert values["optimizer_steps"] == 3


def test_truncated_completions_are_left_out_of_the_loss_when_masked() -> None:
    batch = batch_of(REWARDS)
    cut = replace(batch, truncated=torch.tensor([i % 3 == 0 for i in range(len(batch))]))
    masked, _ = moved(cut, mask_truncated_completions=True)
    changed_tokens = torch.where(cut.truncated[:, None], (batch.tokens + 1) % VOCABULARY, batch.tokens)
    other, _ = moved(replace(cut, tokens=changed_tokens), mask_truncated_completions=True)
    assert torch.equal(masked, other)
    assert not torch.equal(masked, moved(cut)[0])


def test_before_the_first_update_of_a_batch_all_ratios_are_one() -> None:
    policy = decoder()
    values = update(
        learner(policy, rate=0.0, steps={"minibatches": 2}, num_iterations=2),
        batch_of(REWARDS),
        advantage_of(batch_of(REWARDS)),
        1,
    )
    assert values["clip_fraction"] == 0
    assert values["optimizer_steps"] == 4


def test_further_passes_over_a_batch_are_clipped() -> None:
    policy, batch = decoder(), batch_of(REWARDS)
    values = update(learner(policy, rate=5.0, num_iterations=4), batch, advantage_of(batch), 1)
    assert values["clip_fraction"] > 0.05


def test_kl_from_the_sampling_policy_is_the_k3_estimate() -> None:
    policy, batch = decoder(), batch_of(REWARDS)
    rows = torch.arange(len(batch))
    exact = replace(batch, logprobs=scores(policy, batch, rows, 1.0, torch.float32).logp.detach())
    assert update(learner(copy.deepcopy(policy)), exact, advantage_of(batch), 1)["kl_old"] == pytest.approx(0, abs=1e-9)
    off = replace(exact, logprobs=exact.logprobs - 0.1)
    expected = math.expm1(0.1) - 0.1
    assert update(learner(copy.deepcopy(policy)), off, advantage_of(batch), 1)["kl_old"] == pytest.approx(expected, rel=1e-3)


def test_rows_that_the_policy_did_not_write_now_are_not_in_the_kl_from_the_sampling_policy() -> None:
    batch = batch_of(REWARDS)
    exact = replace(batch, logprobs=scores(decoder(), batch, torch.arange(len(batch)), 1.0, torch.float32).logp.detach())
    foreign = torch.tensor([i < 4 for i in range(len(batch))])
    off = replace(exact, logprobs=exact.logprobs - foreign[:, None].float())
    assert update(learner(decoder()), off, advantage_of(batch), 1)["kl_old"] > 0.01
    for told in (replace(off, off_policy=foreign), replace(off, row=torch.where(foreign, -1, off.row))):
        assert update(learner(decoder()), told, advantage_of(batch), 1)["kl_old"] == pytest.approx(0, abs=1e-9)


TOLD = "sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max", "sampling/importance_sampling_ratio/max"


@pytest.mark.parametrize("steps", [{}, {"minibatches": 2}], ids=["one_step", "two_steps"])
def test_how_far_the_engine_is_from_training_is_told_of_the_tokens_trained_on(steps: dict[str, Any]) -> None:
    policy, batch = decoder(), batch_of(REWARDS)
    exact = replace(batch, logprobs=scores(policy, batch, torch.arange(len(batch)), 1.0, torch.float32).logp.detach())
    values = update(learner(copy.deepcopy(policy), steps=steps), exact, advantage_of(batch), 1)
    assert [values[name] for name in TOLD] == pytest.approx([0, 0, 1], abs=1e-5)
    apart = torch.full_like(exact.logprobs, 0.1)
    apart[0, 0], apart[8, 0] = -0.5, 0.3  # the engine found the first token likelier than training does
    apart[4:8], apart[12:] = 9.0, 9.0  # groups that do not inform are not trained on
    values = update(
        learner(copy.deepcopy(policy), steps=steps), replace(exact, logprobs=exact.logprobs - apart), advantage_of(batch), 1
    )
    tokens = int(batch.lengths[:4].sum() + batch.lengths[8:12].sum())
    mean = (0.1 * (tokens - 2) + 0.5 + 0.3) / tokens
    assert [values[name] for name in TOLD] == pytest.approx([mean, 0.5, math.exp(0.3)], rel=1e-4)


def test_the_first_step_of_a_batch_is_weighed_by_truncated_importance_sampling() -> None:
    policy, batch = decoder(), batch_of(REWARDS)
    exact = replace(batch, logprobs=scores(policy, batch, torch.arange(len(batch)), 1.0, torch.float32).logp.detach())
    cap = {"vllm_importance_sampling_clip_max": 2.0}
    plain, _ = moved(exact)
    same, _ = moved(exact, **cap)
    torch.testing.assert_close(same, plain, atol=1e-6, rtol=1e-4)
    halved, _ = moved(replace(exact, logprobs=exact.logprobs + math.log(2)), **cap)  # all tokens twice as likely to the engine
    torch.testing.assert_close(halved, plain / 2, atol=1e-6, rtol=1e-3)
    capped, _ = moved(replace(exact, logprobs=exact.logprobs - math.log(4)), **cap)
    torch.testing.assert_close(capped, plain * 2, atol=1e-6, rtol=1e-3)


def test_rows_off_policy_are_not_weighed_for_the_engine() -> None:
    batch = batch_of(REWARDS)
    foreign = torch.tensor([i in (0, 9) for i in range(len(batch))])
    logprobs = scores(decoder(), batch, torch.arange(len(batch)), 1.0, torch.float32).logp.detach()
    off = replace(batch, logprobs=logprobs - foreign[:, None].float(), off_policy=foreign)
    plain, _ = moved(off)
    weighed, _ = moved(off, vllm_importance_sampling_clip_max=2.0)
    torch.testing.assert_close(weighed, plain, atol=1e-6, rtol=1e-4)


def test_kl_from_the_reference_is_zero_for_the_reference_itself() -> None:
    policy, batch = decoder(seed=1), batch_of(REWARDS)
    assert update(learner(policy, rate=0.0, beta=0.1), batch, advantage_of(batch), 1)["kl"] == pytest.approx(0, abs=1e-9)
    assert moved(batch, beta=0.1)[1]["kl"] > 0.01


def test_the_entropy_bonus_raises_entropy() -> None:
    batch, rows = batch_of(REWARDS), torch.arange(len(REWARDS))

    def entropy_after(coefficient: float) -> float:
        policy = decoder()
        update(learner(policy, rate=0.05, entropy_coef=coefficient), batch, advantage_of(batch), 1)
        return scores(policy, batch, rows, 1.0, torch.float32, with_entropy=True).entropy.sum().item()

    assert entropy_after(1.0) > entropy_after(0.0) > entropy_after(-1.0)


def test_a_loss_that_is_not_finite_is_a_permanent_failure_naming_the_step() -> None:
    policy, batch = decoder(), batch_of(REWARDS)
    with torch.no_grad():
        policy.model.norm.weight[0] = math.nan
    with pytest.raises(PermanentError, match="step 2 of 3: loss nan"):
        update(learner(policy), batch, advantage_of(batch), 2)
