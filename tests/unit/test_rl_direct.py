"""Direct advantage policy optimisation: steps by their separator, the regression by hand and by finite differences, and the loop."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_rl_update as toy
import torch
import world
from comma_runs import HOW, spec_of
from pydantic import ValidationError
from rl_cases import batch_of, now_of
from test_rl_loss import Example, example
from torch import Tensor

from interplay.core.metrics import read
from interplay.data import tokenizer as text
from interplay.rl import loop
from interplay.rl.advantage_spec import SegmentAdvantage
from interplay.rl.advantages import advantages, cut_segments, ends
from interplay.rl.batch import offsets
from interplay.rl.loss_spec import DirectAdvantageLoss
from interplay.rl.losses import STEPS, MicroBatch, token_losses
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import token_weights, update

SPEC = DirectAdvantageLoss(direct_beta=0.5)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 40)}


# --- steps ---


def test_a_step_ends_with_the_token_in_which_its_separator_ends() -> None:
    assert ends([0, 1, 2, 3, 4], "ab,cd", ",") == [0, 3]
    assert ends([0, 2, 5], "ab,cd", ",") == [0, 2], "a token of two characters holds it: the next one begins the step"
    assert ends([0, 1, 2, 3], "a, b", ", ") == [0, 3]
    assert ends([0, 1, 2], "a,", ",") == [0, 2], "the end token, which stands behind the text"
    assert ends([0, 1], "a,", ",") == [0]
    assert ends([0, 1, 2, 3], ",,ab", ",") == [0, 1, 2]
    assert ends([], "", ",") == [0]


def test_steps_are_worth_what_they_add_and_are_numbered(inputs: dict[str, Path]) -> None:
    """`a1,b2` and its end token, of two steps, worth 0.5 and 0.25 at their starts and 1 at the end; `c`, of one."""
    known = text.load(inputs["init"])
    rows = [known.encode(written).ids for written in ("a1,b2", "c")]
    tokens = torch.tensor([[*rows[0], 1], [*rows[1], 1, 0, 0, 0, 0]])
    given = batch_of([1.0, 0.0], [0, 0], [6, 2], tokens=tokens, completions=["a1,b2", "c"])
    worth = {(0, 0): 0.5, (0, 3): 0.25, (1, 0): 0.5}
    now = now_of(
        continued=lambda batch, places, n: torch.tensor([worth[place] for place in places]),
        offsets=lambda tokens, written: offsets(known, tokens, written),
    )
    spec = SegmentAdvantage(separator=",")
    assert advantages(spec, given, now).tolist() == [[-0.25] * 3 + [0.75] * 3, [-0.5] * 2 + [0] * 4]
    steps = cut_segments(spec, given, now).steps
    assert steps is not None
    assert steps[0].tolist() == [0, 0, 0, 1, 1, 1]
    assert steps[1, :2].tolist() == [0, 0]
    assert cut_segments(now.method.advantage, given, now) is given, "a group has no steps"


# --- the regression ---


def seen_of(e: Example, steps: Tensor, reference: Tensor, logp: Tensor | None = None) -> MicroBatch:
    return MicroBatch(e.logp if logp is None else logp, e.old, e.advantage, e.mask, reference, {STEPS: steps})


def loss_of(e: Example, steps: Tensor, reference: Tensor, logp: Tensor | None = None) -> Tensor:
    per_token, _ = token_losses(SPEC, seen_of(e, steps, reference, logp))
    return (per_token * token_weights(SPEC.loss_type, e.mask, int(e.mask.sum()), 1, 10)).sum()


def test_a_step_is_pulled_to_the_log_ratio_of_its_gain_by_hand() -> None:
    """Row 0: steps of two tokens and of one; log ratios 0.2 + 0.4 and -1, gains 1 and -0.25: errors (0.3 - 1)^2 = 0.49 and
    (-0.5 + 0.25)^2 = 0.0625. Row 1: one step, whose second token bears no loss: log ratio 2, no gain: 1. Mean over rows."""
    logp = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -1.0, 0.0]], dtype=torch.float64)
    reference = logp - torch.tensor([[0.2, 0.4, -1.0], [2.0, 7.0, 0.0]], dtype=torch.float64)
    gains = torch.tensor([[1.0, 1.0, -0.25], [0.0, 0.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    e = Example(logp=logp, old=logp, advantage=gains, mask=mask)
    steps = torch.tensor([[0, 0, 1], [0, 0, 0]])
    assert float(loss_of(e, steps, reference)) == pytest.approx((0.49 + 0.0625 + 1) / 2)
    moving = logp.clone().requires_grad_()
    loss_of(e, steps, reference, moving).backward()
    # 2 * 0.5 * (0.5 s - A) / 2 rows
    assert moving.grad is not None
    assert moving.grad.tolist() == [pytest.approx([-0.35, -0.35, -0.125]), pytest.approx([0.5, 0, 0])]
    _, sums = token_losses(SPEC, seen_of(e, steps, reference))
    assert float(sums["step_error"]) == pytest.approx(2 * 0.49 + 0.0625 + 1)


def test_tokens_before_the_first_cut_point_do_not_thin_out_its_segment() -> None:
    sure = torch.log(torch.tensor([[0.99, 0.5, 0.99, 0.4]]))
    given = batch_of([1.0], [0], [4], logprobs=sure)
    spec = SegmentAdvantage(cutpoint_interval=1)
    assert cut_segments(spec, given, now_of()).steps.tolist() == [[0, 1, 1, 2]]


def test_its_gradient_is_that_of_finite_differences() -> None:
    e = example()
    steps = (torch.rand(e.logp.shape, generator=torch.Generator().manual_seed(3)) < 0.4).long().cumsum(1)
    reference = e.old - 0.3 * torch.rand(e.logp.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    moving = e.logp.clone().requires_grad_()
    loss_of(e, steps, reference, moving).backward()
    assert moving.grad is not None
    for place in e.mask.nonzero().tolist():
        bump = torch.zeros_like(e.logp)
        bump[tuple(place)] = 1e-5
        up, down = (float(loss_of(e, steps, reference, e.logp + sign * bump)) for sign in (1, -1))
        assert float(moving.grad[tuple(place)]) == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-9)
    assert (moving.grad[~e.mask] == 0).all()


def test_equal_neighbours_are_two_steps_and_not_one() -> None:
    e = example(rows=1)
    e.mask[:] = True
    e.advantage[:] = 0.5
    one, two = torch.zeros(1, 6, dtype=torch.int64), torch.tensor([[0, 0, 0, 1, 1, 1]])
    assert not torch.allclose(loss_of(e, one, e.old), loss_of(e, two, e.old))


def moved(
    batch: Any, advantage: Tensor, tokens: int = 10**6, passes: int = 1, rate: float = 0.5
) -> tuple[Tensor, dict[str, float]]:
    policy = toy.decoder()
    learner = toy.learner(policy, tokens, rate)
    loss = SPEC.model_copy(update={"num_iterations": passes})
    method = Method(paper="p", advantage=SegmentAdvantage(separator=","), loss=loss)
    spec = learner.spec.model_copy(update={"method": method})
    before = torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
    values = update(learner._replace(spec=spec, references=((1.0, toy.decoder(seed=1)),)), batch, advantage, 1)
    return torch.nn.utils.parameters_to_vector(policy.parameters()).detach() - before, values


def test_an_optimiser_step_is_the_gradient_of_naive_regression_however_it_is_cut() -> None:
    steps = torch.arange(toy.LONGEST).expand(16, -1) // 3
    batch = replace(toy.batch_of(toy.REWARDS), steps=steps)
    advantage = torch.randn(16, 3, generator=torch.Generator().manual_seed(6)).repeat_interleave(3, 1)[:, : toy.LONGEST]
    policy, reference = toy.decoder(), toy.decoder(seed=1)
    total = torch.zeros(())
    for i in range(16):
        n = int(batch.lengths[i])
        logs, known = (
            toy.naive_logprobs(model, batch, i).gather(1, batch.tokens[i, :n, None])[:, 0] for model in (policy, reference)
        )
        ratio = logs - known.detach()
        for step in range(int(steps[i, n - 1]) + 1):
            here = steps[i, :n] == step
            total = total + (0.5 * ratio[here].sum() - advantage[i, :n][here][0]) ** 2 / 16
    total.backward()
    gradient = torch.cat([p.grad.flatten() for p in policy.parameters()])
    whole, values = moved(batch, advantage * batch.mask())
    torch.testing.assert_close(whole, -0.5 * gradient, atol=1e-6, rtol=1e-3)
    assert values["loss"] == pytest.approx(float(total.detach()), rel=1e-4)
    pieces, again = moved(batch, advantage * batch.mask(), 20)
    torch.testing.assert_close(pieces, whole, atol=2e-6, rtol=1e-3)
    assert again == pytest.approx(values, abs=1e-5)


def test_further_passes_come_nearer_to_the_gains() -> None:
    batch = replace(toy.batch_of(toy.REWARDS), steps=torch.arange(toy.LONGEST).expand(16, -1) // 3)
    advantage = 0.3 * toy.advantage_of(batch)
    errors = [moved(batch, advantage, passes=passes, rate=0.01)[1]["step_error"] for passes in (1, 2, 6)]
    assert errors[0] > errors[1] > errors[2]


# --- in the loop ---

METHOD: dict[str, Any] = {
    "allocation": FixedAllocation(num_generations=4),
    "advantage": SegmentAdvantage(samples=2, separator=","),
    "loss": DirectAdvantageLoss(num_iterations=3),
}


def test_the_policy_learns_what_it_is_paid_for_the_same_each_time(inputs: dict[str, Path], tmp_path: Path) -> None:
    for out in ("one", "two"):
        record = loop.train_policy(spec_of(12, **METHOD), inputs, tmp_path / out, HOW)
    assert record["reward_last"] > 1.5 * record["reward_first"] > 0
    weights = [(tmp_path / out / "model" / "model.safetensors").read_bytes() for out in ("one", "two")]
    assert weights[0] == weights[1]
    lines = read(tmp_path / "one")
    assert lines[-1]["kl"] > lines[0]["kl"] >= 0
    assert Counter("step_error" in line for line in lines) == {True: 12}


def test_a_loss_of_steps_without_steps_is_refused() -> None:
    says = r"loss = direct_advantage needs .*; write method.advantage = segments"
    with pytest.raises(ValidationError, match=says):
        RLSpec(method=Method(paper="p", loss=SPEC), mix=[1.0], steps=1)
