"""NLPO: what is sampled and learnt lies in the nucleus of a copy that lags behind, and all of it is PPO where the nucleus is
everything."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_rl_update as toy
import torch
import world
from comma_runs import HOW, spec_of
from killed_rl import payload, run_killed
from pydantic import ValidationError
from test_rollout_engine import decoder, equal, requests, sampling
from torch import Tensor

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.model import decoder as weights, folder
from interplay.model.decoder import Decoder
from interplay.model.heads import Lagged, nucleus_mask
from interplay.optim import distributed
from interplay.rl import assembly, loop
from interplay.rl.advantage_spec import GaeAdvantage, ValueHead
from interplay.rl.assembly import lagged_policy
from interplay.rl.batch import Batch
from interplay.rl.draw import update_lagged
from interplay.rl.edit_spec import Demonstrations
from interplay.rl.loss_spec import ClippedLoss, DistilLoss
from interplay.rl.policy import copied_states, inside, scores
from interplay.rl.request_spec import FeedbackContinuation, FixedAllocation, GuideContinuation, LaggedNucleus
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import update
from interplay.rollout.engine import engine


def other(model: Decoder, seed: int = 7, spread: float = 0.03) -> Decoder:
    """The model as it might have been some steps ago."""
    made = Decoder(model.shape, model.vocab_size)
    generator = torch.Generator().manual_seed(seed)
    given = model.state_dict().items()
    made.load_state_dict({name: value + spread * torch.randn(value.shape, generator=generator) for name, value in given})
    return made.requires_grad_(False)


# --- the nucleus ---


def test_the_nucleus_by_hand() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]]).log()
    for top_p, kept in ((0.4, [1, 0, 0, 0]), (0.6, [1, 1, 0, 0]), (0.79, [1, 1, 0, 0]), (0.9, [1, 1, 1, 0]), (1.0, [1] * 4)):
        assert nucleus_mask(logits, top_p).int().tolist() == [kept, kept[::-1]]


def test_the_policy_is_renormalised_over_the_nucleus_of_the_copy() -> None:
    policy, copy = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log(), torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    lagged = Lagged(toy.decoder(), toy.decoder(1), 0.9)
    masked = lagged.logits(policy, copy).softmax(-1)
    assert masked[0].tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6, 0.0])


# --- sampling ---


def full(model: Decoder, prompt: list[int], tokens: Tensor) -> Tensor:
    """Logits (n,V) before each of the tokens (n,), by one pass."""
    ids = torch.tensor([prompt + tokens.tolist()])
    with torch.no_grad():
        return model.logits(model.hidden(ids, torch.arange(ids.shape[1])[None]))[0, len(prompt) - 1 : -1]


def test_sampled_tokens_lie_in_the_nucleus_and_their_chances_are_those_within_it() -> None:
    policy, settings, asked = decoder(), sampling(temperature=0.8), requests()
    lagged = Lagged(policy, other(policy), 0.6)
    found = engine("native", lagged, Run(engine_batch=12)).generate(asked, settings)
    free = engine("native", policy, Run(engine_batch=12)).generate(asked, settings)
    assert found.lengths.min() < 16 < found.lengths.max(), "the test wants rows that retire and rows that outlive them"
    outside = 0
    for row, request in enumerate(found.request.tolist()):
        n, prompt = int(found.lengths[row]), asked[request].prompt
        tokens = found.tokens[row, :n]
        kept = nucleus_mask(full(lagged.copy, prompt, tokens), 0.6)
        assert kept.gather(1, tokens[:, None]).all()
        logs = (full(policy, prompt, tokens) / 0.8).masked_fill(~kept, -math.inf).log_softmax(-1)
        torch.testing.assert_close(logs.exp().sum(1), torch.ones(n))
        assert (logs.exp()[~kept] == 0).all()
        torch.testing.assert_close(found.logprobs[row, :n], logs.gather(1, tokens[:, None])[:, 0], atol=1e-4, rtol=1e-4)
        n = int(free.lengths[row])
        kept = nucleus_mask(full(lagged.copy, prompt, free.tokens[row, :n]), 0.6)
        outside += int((~kept.gather(1, free.tokens[row, :n, None])).sum())
    assert outside > 20, "a policy that acts freely leaves the nucleus"


def test_a_nucleus_of_everything_masks_nothing() -> None:
    policy = decoder()
    free = engine("native", policy, Run(engine_batch=12)).generate(requests(), sampling())
    within = engine("native", Lagged(policy, other(policy), 1.0), Run(engine_batch=12)).generate(requests(), sampling())
    assert equal(free, within)


def test_other_engines_are_refused() -> None:
    with pytest.raises(UserError, match="a policy in the nucleus of another needs 'native'"):
        engine("hf", Lagged(decoder(), decoder(), 0.9), Run())


# --- learning ---


def lagged_toy(top_p: float = 0.7) -> Lagged:
    policy = toy.decoder()
    return Lagged(policy, other(policy, spread=0.1), top_p)


def drawn_within(lagged: Lagged) -> Batch:
    """A batch whose tokens lie in the nucleus."""
    batch = toy.batch_of(toy.REWARDS)
    tokens = batch.tokens.clone()
    for i in range(len(batch)):
        for place in range(int(batch.lengths[i])):
            row = replace(batch, tokens=tokens)
            kept = nucleus_mask(toy.naive_logprobs(lagged.copy, row, i)[place : place + 1], lagged.top_p)[0].nonzero()[:, 0]
            tokens[i, place] = kept[(i + place) % len(kept)]
    return replace(batch, tokens=tokens)


def naive(lagged: Lagged, model: Decoder, batch: Batch, i: int) -> Tensor:
    """Log-probabilities (n,V) of row i by itself, within the nucleus."""
    kept = nucleus_mask(toy.naive_logprobs(lagged.copy, batch, i).detach(), lagged.top_p)
    return toy.naive_logprobs(model, batch, i).masked_fill(~kept, -math.inf).log_softmax(-1)


def moved(lagged: Lagged | None, batch: Batch, tokens: int = 10**6, **loss: Any) -> tuple[Tensor, dict[str, float]]:
    policy = toy.decoder()
    learner = toy.learner(policy, tokens, **loss)
    before = torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
    own = None if lagged is None else lagged._replace(policy=policy)
    values = update(learner._replace(lagged=own), batch, toy.advantage_of(batch), 1)
    return torch.nn.utils.parameters_to_vector(policy.parameters()).detach() - before, values


def test_scores_are_those_of_each_sequence_alone_within_the_nucleus() -> None:
    lagged = lagged_toy()
    batch = drawn_within(lagged)
    got = scores(lagged.policy, batch, torch.arange(16), 1.0, torch.float32, True, lagged)
    assert got.entropy is not None
    masked = 0
    for i in range(16):
        logs, n = naive(lagged, lagged.policy, batch, i), int(batch.lengths[i])
        masked += int((logs == -math.inf).sum())
        torch.testing.assert_close(logs.exp().sum(1), torch.ones(n))
        torch.testing.assert_close(got.logp[i, :n], logs.gather(1, batch.tokens[i, :n, None])[:, 0], atol=1e-5, rtol=1e-4)
        entropy = torch.distributions.Categorical(logits=logs.clamp(min=-1e9)).entropy()
        torch.testing.assert_close(got.entropy[i, :n], entropy, atol=1e-5, rtol=1e-4)
    assert masked > 100


def test_a_token_that_was_sampled_is_in_the_nucleus_whatever_rounding_makes_of_its_border(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lagged = lagged_toy(0.3)
    batch = toy.batch_of(toy.REWARDS)  # drawn without any nucleus
    rows = torch.arange(16)
    tokens = batch.tokens[batch.mask()]
    (copied,) = copied_states(lagged, batch, rows, torch.float32)
    assert inside(lagged, copied, tokens).gather(1, tokens[:, None]).all()
    whole = scores(lagged.policy, batch, rows, 1.0, torch.float32, True, lagged)
    assert torch.isfinite(whole.logp).all()
    lagged.policy.blockwise = True
    monkeypatch.setattr(weights, "MOST_LOGITS", 3 * lagged.policy.vocab_size)
    pieces = scores(lagged.policy, batch, rows, 1.0, torch.float32, True, lagged)
    torch.testing.assert_close(pieces, whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("entropy_coef", [0.0, 0.1])
def test_a_step_is_the_gradient_within_the_nucleus_that_naive_autograd_finds(entropy_coef: float) -> None:
    lagged = lagged_toy()
    batch, policy = drawn_within(lagged), toy.decoder()
    advantage, tokens = toy.advantage_of(batch), int(batch.lengths.sum())
    total = torch.zeros(())
    for i in range(16):
        n, logs = int(batch.lengths[i]), naive(lagged, policy, batch, i)
        chosen = logs.gather(1, batch.tokens[i, :n, None])[:, 0]
        entropy = -(logs.exp() * logs.masked_fill(logs == -math.inf, 0.0)).sum()
        total = total - ((advantage[i, :n] * chosen).sum() + entropy_coef * entropy) / tokens
    total.backward()
    gradient = torch.cat([p.grad.flatten() for p in policy.parameters()])
    step, values = moved(lagged, batch, entropy_coef=entropy_coef)
    torch.testing.assert_close(step, -0.5 * gradient, atol=1e-6, rtol=1e-3)
    assert not torch.allclose(step, moved(None, batch, entropy_coef=entropy_coef)[0], atol=1e-4)
    assert values["clip_fraction"] == 0
    pieces, _ = moved(lagged, batch, 20, entropy_coef=entropy_coef)
    torch.testing.assert_close(pieces, step, atol=2e-6, rtol=1e-3)


def test_ratios_and_the_reference_are_within_the_nucleus_too() -> None:
    lagged = lagged_toy()
    batch = drawn_within(lagged)
    values = moved(lagged, batch, beta=0.1, num_iterations=3)[1]
    assert values["kl"] > 0.001
    same = toy.learner(toy.decoder(seed=1), rate=0.0, beta=0.1)._replace(lagged=lagged)
    assert update(same, batch, toy.advantage_of(batch), 1)["kl"] == pytest.approx(0, abs=1e-9)


def test_with_everything_in_the_nucleus_an_update_is_the_same_to_the_bit() -> None:
    batch = toy.batch_of(toy.REWARDS)
    for loss in ({"num_iterations": 3}, {"beta": 0.1, "entropy_coef": 0.01}, {"name": "clip_cov"}):
        free, told = moved(None, batch, **loss)
        within, again = moved(lagged_toy(1.0), batch, **loss)
        assert torch.equal(free, within)
        assert told == again


# --- the copy ---


def test_the_copy_follows_every_so_many_steps() -> None:
    spec, policy = LaggedNucleus(sync_every=3), toy.decoder()
    lagged = lagged_policy(spec, policy)
    assert lagged is not None

    def gap() -> float:
        pairs = zip(policy.parameters(), lagged.copy.parameters(), strict=True)
        return max(float((one.detach() - two).abs().max()) for one, two in pairs)

    gaps = []
    for step in range(1, 8):
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter += 1
        update_lagged(spec, lagged, step)
        gaps.append(gap())
    assert gaps == pytest.approx([1, 2, 0, 1, 2, 0, 1], abs=1e-5)
    assert not any(parameter.requires_grad for parameter in lagged.copy.parameters())
    assert lagged_policy(None, policy) is None


# --- in the loop ---

PPO: dict[str, Any] = {
    "allocation": FixedAllocation(num_generations=1),
    "advantage": GaeAdvantage(),
    "loss": ClippedLoss(num_iterations=2),
    "critic": ValueHead(learning_rate=2e-3, num_iterations=2),
}
GRPO: dict[str, Any] = {"allocation": FixedAllocation(num_generations=4)}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 40)}


@pytest.mark.parametrize("method", [PPO, GRPO], ids=["ppo", "grpo"])
def test_with_everything_in_the_nucleus_a_run_is_the_same_to_the_byte(
    method: dict[str, Any], inputs: dict[str, Path], tmp_path: Path
) -> None:
    loop.train_policy(spec_of(4, **method), inputs, tmp_path / "free", HOW)
    loop.train_policy(spec_of(4, **method, decoding=LaggedNucleus(top_p=1.0, sync_every=2)), inputs, tmp_path / "within", HOW)
    assert payload(tmp_path / "within") == payload(tmp_path / "free")


def test_engine_and_training_agree_on_what_is_in_the_nucleus(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(spec_of(6, **GRPO, decoding=LaggedNucleus(top_p=0.7, sync_every=2)), inputs, tmp_path / "within", HOW)
    loop.train_policy(spec_of(6, **GRPO), inputs, tmp_path / "free", HOW)
    within, free = read(tmp_path / "within"), read(tmp_path / "free")
    assert max(abs(line["kl_old"]) for line in within) < 1e-5
    assert within[0]["entropy"] < free[0]["entropy"] - 0.05


@pytest.mark.slow
def test_the_policy_learns_what_it_is_paid_for(inputs: dict[str, Path], tmp_path: Path) -> None:
    nlpo = {**PPO, "decoding": LaggedNucleus(sync_every=5)}
    record = loop.train_policy(spec_of(60, prompts=32, **nlpo), inputs, tmp_path, HOW)
    assert record["reward_last"] > 1.5 * record["reward_first"] > 0


def test_a_killed_run_goes_on_in_the_nucleus_that_it_had(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(14, **GRPO, decoding=LaggedNucleus(top_p=0.8, sync_every=5))
    spec = spec.model_copy(update={"checkpoints": [10]})
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    run_killed(spec, inputs, tmp_path / "killed", HOW, [(3, 0.0), (7, 0.0)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")
    _, tensors, _ = distributed.load_checkpoint(tmp_path / "whole" / "state" / "state") or pytest.fail("no state was kept")
    kept = folder.load_decoder(tmp_path / "whole" / "checkpoints" / "10" / "model").state_dict()
    copy = distributed.with_prefix(tensors, assembly.LAGGED)
    assert set(copy) == set(kept)
    assert all(torch.equal(copy[name], kept[name]) for name in kept), "what the policy was when the copy followed it last"
    assert not torch.equal(copy["model.norm.weight"], tensors["model.model.norm.weight"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"engine": "hf"}, r"engine = hf: cannot decode with method\.decoding = lagged_nucleus; write native"),
        ({"continuation": GuideContinuation()}, r"lagged_nucleus does not go with method.continuation = guide"),
        ({"edits": [Demonstrations()]}, r"lagged_nucleus does not go with method.edits: demonstrations"),
        ({"continuation": FeedbackContinuation(), "loss": DistilLoss()}, r"lagged_nucleus does not go with method.loss = distil"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], says: str) -> None:
    of_run = {"engine": given.pop("engine")} if "engine" in given else {}
    with pytest.raises(ValidationError, match=says):
        RLSpec(method=Method(paper="p", decoding=LaggedNucleus(), **given), mix=[1.0], steps=1, **of_run)
