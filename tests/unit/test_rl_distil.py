"""Distillation of what the policy says once it has read feedback: divergences by hand, gradients against naive autograd, what the
teacher reads, and the loop around it."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_rl_update as toy
import torch
import world
from comma_runs import HOW, spec_of
from pydantic import ValidationError
from rl_cases import RIGHT, WRONG, batch_of, now_of
from test_intervention import GOLD, PROBLEM
from torch import Tensor

from interplay.core.metrics import read
from interplay.model import decoder as decoders
from interplay.model.decoder import Decoder
from interplay.rl import loop, policy as passes
from interplay.rl.batch import Batch, has_teacher, join, take
from interplay.rl.continuation import kept_rollouts
from interplay.rl.edit_spec import Replay
from interplay.rl.loss_spec import DistilLoss
from interplay.rl.policy import DIVERGENCES, scores
from interplay.rl.request_spec import FeedbackContinuation, FixedAllocation
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import Learner, update
from interplay.rollout.spec import RetryEpisode
from interplay.tasks.op_dag.terse_prompts import OP_DAG

# --- divergences ---


def test_the_divergences_by_hand() -> None:
    """Teacher (3/4, 1/4), policy (1/2, 1/2); their mean is (5/8, 3/8)."""
    p, q = torch.tensor([[0.75, 0.25]]).log(), torch.tensor([[0.5, 0.5]]).log()
    found = {name: float(one(p, q)) for name, one in DIVERGENCES.items()}
    js = 0.5 * (0.75 * math.log(6 / 5) + 0.25 * math.log(2 / 3)) + 0.5 * (0.5 * math.log(4 / 5) + 0.5 * math.log(4 / 3))
    assert found == pytest.approx({"fwd_ce": math.log(2), "rev_kl": 0.5 * math.log(2 / 3) + 0.5 * math.log(2), "js": js})


def drawn(seed: int, spread: float = 2.0) -> Tensor:
    return torch.randn(7, 11, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread


def test_the_forward_cross_entropy_is_torchs_with_soft_targets() -> None:
    logits, targets = drawn(0).requires_grad_(), drawn(1).softmax(-1)
    ours = DIVERGENCES["fwd_ce"](targets.log(), logits.log_softmax(-1))
    torch.testing.assert_close(ours, torch.nn.functional.cross_entropy(logits, targets, reduction="none"))
    (gradient,) = torch.autograd.grad(ours.sum(), logits)
    torch.testing.assert_close(gradient, logits.softmax(-1).detach() - targets)


def test_jensen_shannon_is_symmetric_and_at_most_ln_2() -> None:
    p, q = drawn(2, 30.0).log_softmax(-1), drawn(3, 30.0).log_softmax(-1)
    js = DIVERGENCES["js"]
    torch.testing.assert_close(js(p, q), js(q, p))
    assert (js(p, q) <= math.log(2)).all()
    assert (js(p, q) > 0).all()
    torch.testing.assert_close(js(p, p), torch.zeros(7, dtype=torch.float64), atol=1e-12, rtol=0)
    apart = torch.tensor([[0.0, -200.0], [-200.0, 0.0]])
    assert float(js(apart[:1], apart[1:])) == pytest.approx(math.log(2))


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_policy_that_agrees_with_its_teacher_has_no_gradient(name: str) -> None:
    logits = drawn(4).requires_grad_()
    DIVERGENCES[name](logits.detach().log_softmax(-1), logits.log_softmax(-1)).sum().backward()
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), atol=1e-12, rtol=0)


# --- one step ---

ADVICE = [[9, 8], [], [7], [9, 8, 7, 6]]
"""What a teacher reads before the prompts of four groups; nothing of the second."""


def batch(rewards: list[float] = toy.REWARDS) -> Batch:
    found = toy.batch_of(rewards)
    return replace(found, teacher=[ADVICE[i // 4] + prompt for i, prompt in enumerate(found.prompts)])


def moved(given: Batch, policy: Decoder | None = None, tokens: int = 10**6, **loss: Any) -> tuple[Tensor, dict[str, float]]:
    policy = policy or toy.decoder()
    method = Method(paper="p", continuation=FeedbackContinuation(), loss=DistilLoss(**loss))
    spec = RLSpec(method=method, mix=[1.0], steps=3, prompts_per_step=4, max_completion_length=toy.LONGEST)
    spec = spec.model_copy(update={"optimizer": spec.optimizer.model_copy(update={"max_grad_norm": 0.0})})
    learner = Learner(spec, policy, (), [torch.optim.SGD(policy.parameters(), lr=0.5)], tokens)
    before = torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
    values = update(learner, given, toy.advantage_of(given), 1)
    return torch.nn.utils.parameters_to_vector(policy.parameters()).detach() - before, values


def naive(given: Batch, divergence: Callable[[Tensor, Tensor], Tensor], mix: float) -> tuple[Tensor, float]:
    """The same step of plain gradient descent, and its divergence, the mean over the rows of which the teacher speaks: each sequence
    alone and unpadded, all logits at once, and the teacher a copy of the weights."""
    policy, copy = toy.decoder(), toy.decoder()
    advantage, tokens = toy.advantage_of(given), int(given.lengths.sum())
    total, apart = torch.zeros(()), torch.zeros(())
    for i in range(len(given)):
        n = int(given.lengths[i])
        logs = toy.naive_logprobs(policy, given, i)
        assert given.teacher is not None
        said = toy.naive_logprobs(copy, replace(given, prompts=given.teacher), i).detach()
        if given.teacher[i] != given.prompts[i]:
            apart = apart + divergence(said, logs).sum() / tokens
        total = total - mix * (advantage[i, :n] * logs.gather(1, given.tokens[i, :n, None])[:, 0]).sum() / tokens
    (total + apart).backward()
    heard = int(given.lengths[has_teacher(given)].sum())
    return -0.5 * torch.cat([p.grad.flatten() for p in policy.parameters()]), float(apart.detach()) * tokens / heard


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("mix", [0.0, 0.7])
def test_a_step_is_the_gradient_that_naive_autograd_finds(name: Any, mix: float) -> None:
    step, values = moved(batch(), divergence=name, mix_rlvr=mix)
    expected, apart = naive(batch(), DIVERGENCES[name], mix)
    torch.testing.assert_close(step, expected, atol=1e-6, rtol=1e-3)
    assert values["divergence"] == pytest.approx(apart, rel=1e-4)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_pieces_of_the_vocabulary_and_of_the_batch_change_nothing(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, values = moved(batch(), divergence=name, mix_rlvr=0.3, entropy_coef=0.01)
    monkeypatch.setattr(decoders, "MOST_LOGITS", 3 * toy.VOCABULARY)
    for tokens in (10**6, 30):
        pieces, again = moved(batch(), tokens=tokens, divergence=name, mix_rlvr=0.3, entropy_coef=0.01)
        torch.testing.assert_close(pieces, whole, atol=2e-6, rtol=1e-3)
        assert again == pytest.approx(values, abs=1e-5)


def test_of_several_pieces_no_logits_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary of 5000 in pieces of two tokens: nothing kept for the backward pass is as large as the logits of all tokens."""
    given, policy = batch(), Decoder(toy.SHAPE, 5000)
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    monkeypatch.setattr(decoders, "MOST_LOGITS", 10_000)
    parameters = {parameter.data_ptr() for parameter in policy.parameters()}
    kept: list[int] = []

    def pack(value: Tensor) -> Tensor:
        if value.untyped_storage().data_ptr() not in parameters:
            kept.append(value.numel())
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        found = passes.compared(policy, given, torch.arange(16), 1.0, torch.float32, DIVERGENCES["js"], 10**6)
    assert found.divergence is not None
    assert max(kept) <= policy.head().numel() < 5000 * int(given.lengths.sum())


def test_the_teacher_receives_no_gradient() -> None:
    """Tokens that its context alone holds: their embedding, tied to nothing, stays as it is."""
    shape = toy.SHAPE.model_copy(update={"tie_word_embeddings": False})
    policy = Decoder(shape, toy.VOCABULARY + 2)
    policy.load_state_dict({name: torch.randn(value.shape) * 0.3 for name, value in policy.state_dict().items()})
    given = batch()
    secret = replace(given, teacher=[[toy.VOCABULARY, toy.VOCABULARY + 1, *prompt] for prompt in given.prompts])
    before = policy.model.embed_tokens.weight.detach().clone()
    moved(secret, policy)
    change = (policy.model.embed_tokens.weight.detach() - before).abs().sum(1)
    assert change[toy.VOCABULARY :].tolist() == [0, 0]
    assert (change[: toy.VOCABULARY] > 0).any()


def test_groups_that_all_failed_are_learnt_from_where_grpo_stands_still() -> None:
    failed = batch([0.0] * 16)
    assert moved(failed)[0].norm() > 1e-3
    assert moved(replace(failed, teacher=failed.prompts), mix_rlvr=1.0)[1]["optimizer_steps"] == 0
    still = Learner(*toy.learner(toy.decoder()))
    assert update(still, failed, toy.advantage_of(failed), 1)["optimizer_steps"] == 0


def test_rows_of_which_nothing_is_said_are_learnt_from_by_their_advantage_alone() -> None:
    silent = replace(batch(), teacher=batch().prompts)
    assert moved(silent)[1]["optimizer_steps"] == 0
    clipped, _ = toy.moved(batch())
    torch.testing.assert_close(moved(silent, mix_rlvr=1.0)[0], clipped, atol=1e-7, rtol=1e-4)


def test_the_policy_comes_nearer_to_its_teacher() -> None:
    policy, given = toy.decoder(), batch()
    with torch.no_grad():
        gaps = []
        for _ in range(2):
            rows = torch.arange(len(given))
            found = passes.compared(policy, given, rows, 1.0, torch.float32, DIVERGENCES["rev_kl"], 10**6)
            torch.testing.assert_close(found.logp, scores(policy, given, rows, 1.0, torch.float32).logp)
            gaps.append(float(found.divergence.sum()))
            with torch.enable_grad():
                moved(given, policy, divergence="rev_kl")
    assert gaps[1] < gaps[0]


# --- what the teacher reads ---

ROW: Any = SimpleNamespace(prompt="q|", solution=GOLD, family="op_dag", graph=OP_DAG.dumps(PROBLEM), set=0, index=0)
OTHER: Any = SimpleNamespace(prompt="r|", solution="gold", family="kuhn", graph="", set=0, index=1)
TEXTS = [GOLD, "cb*2,bd+a,d3,a1|a1,d3,b3+1=5,c5*2=10#10", "cb*2,bd+a,d3,a1|a1,d3,b3+1=4,c4*2=8#9", "x"]


@pytest.mark.parametrize(
    ("feedback", "expected"),
    [
        ("gold", [f"{GOLD}q|", f"{GOLD}q|", f"{GOLD}q|", "goldr|"]),
        # Right: nothing; the first wrong step, put right; right steps and a wrong answer, or another family: the gold solution.
        ("step", [None, "cb*2,bd+a,d3,a1|a1,d3,b3+1=4q|", f"{GOLD}q|", "goldr|"]),
    ],
)
def test_the_teacher_reads_what_is_known_of_a_completion_once_it_is_judged(feedback: Any, expected: list[str | None]) -> None:
    given = batch_of([1, 0, 0, 0], [0, 0, 0, 1], completions=TEXTS, verdicts=[RIGHT, WRONG, WRONG, WRONG])
    now = now_of(
        continuation=FeedbackContinuation(feedback=feedback), rows=[ROW, OTHER], encode=lambda text: [ord(c) for c in text]
    )
    found = kept_rollouts(given, now)
    assert found.teacher is not None
    texts = ["".join(map(chr, tokens)) if said else None for tokens, said in zip(found.teacher, has_teacher(found), strict=True)]
    assert texts == expected
    assert take(found, torch.tensor([3])).teacher == found.teacher[3:]
    assert join([found, found], 0).teacher == 2 * found.teacher


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"loss": DistilLoss()}, r"loss = distil needs .*; write method.continuation = feedback"),
        ({"continuation": FeedbackContinuation()}, r"continuation = feedback needs .*; write method.loss = distil"),
        (
            {"continuation": FeedbackContinuation(), "loss": DistilLoss(), "edits": [Replay()]},
            r"continuation = feedback does not go with method.edits: replay",
        ),
        (
            {"continuation": FeedbackContinuation(), "loss": DistilLoss(), "episode": RetryEpisode()},
            r"episode = retry needs .*; write method.continuation = none",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        RLSpec(method=Method(paper="p", **given), mix=[1.0], steps=1)


def test_a_template_must_hold_both_texts() -> None:
    with pytest.raises(ValidationError, match=r"must hold \{feedback\} and \{prompt\} once each"):
        FeedbackContinuation(template="{prompt}")


# --- in the loop ---


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 40)}


@pytest.mark.parametrize("feedback", ["gold", "step"])
def test_a_run_without_any_reward_learns_from_feedback_the_same_each_time(
    feedback: Any, inputs: dict[str, Path], tmp_path: Path
) -> None:
    never = "def never(problems, completions, verdicts):\n    return [0.0] * len(completions)\n"
    spec = spec_of(
        4,
        allocation=FixedAllocation(num_generations=4),
        continuation=FeedbackContinuation(feedback=feedback),
        loss=DistilLoss(num_iterations=2),
    )
    spec = spec.model_copy(update={"reward": OwnReward(function="mine.py:never", source=never)})
    for out in ("one", "two"):
        record = loop.train_policy(spec, inputs, tmp_path / out, HOW)
    assert record["optimizer_steps"] == 8
    weights = [(tmp_path / out / "model" / "model.safetensors").read_bytes() for out in ("one", "two")]
    assert weights[0] == weights[1] != (inputs["init"] / "model" / "model.safetensors").read_bytes()
    assert all(line["divergence"] > 0 for line in read(tmp_path / "one"))


def test_feedback_requests_what_grpo_requests() -> None:
    rows = [ROW, OTHER]
    from interplay.rl.continuation import first_requests

    assert first_requests(rows, now_of(continuation=FeedbackContinuation())) == first_requests(
        rows, now_of(allocation=FixedAllocation())
    )
