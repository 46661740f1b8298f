"""What a stage's spec says reaches the function that needs it: recorders at the function's door call through, and the values that
arrive are compared with the spec. Formulas have tests of their own; here it is the lines between spec and formula."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import world
from recorded import Call, recorded
from rl_cases import batch_of
from test_prefer import pair_set

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.data import batches, corpus
from interplay.data.spec import CorpusSpec
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.kernels import library
from interplay.model import folder
from interplay.model.decoder import Decoder
from interplay.model.trainer_spec import Schedule, TuneOptimizer, TuneSchedule
from interplay.optim import optimizer
from interplay.rl import continuation, edits, loop, losses, requests, update
from interplay.rl.batch import Memory
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.request_spec import AdaptiveTemperature, AnnealedShotsPrompting, FixedAllocation, ReflectionContinuation
from interplay.rl.reward_spec import OwnReward
from interplay.rl.sampler import Sampler
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import Learner
from interplay.rollout import native
from interplay.train import lm, prefer, reward_model, unlearn
from interplay.train.spec import MidtrainSpec, PreferSpec, RewardModelSpec, SftSpec, UnlearnSpec

Record = Callable[..., list[Call]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    model = world.model(results, "m" * 12)
    problems = world.problem_set(results, "a" * 12, 40)
    corpus.build_corpus(
        CorpusSpec(mix=[1.0], sequence_length=64), {"tokenizer": model, "data.0": problems}, results / "corpus", Run()
    )
    return {"init": model, "model": model, "data": problems, "problems": problems, "corpus": results / "corpus"} | {
        "pairs": pair_set(results, "b" * 12)
    }


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    return lambda owner, name, **more: recorded(monkeypatch, owner, name, **more)


# -- the learning rate -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "steps", "expected"),
    [
        # Warm-up of 2 of 10 steps, hold, decay over the last 4.
        (Schedule(name="linear", warmup_ratio=0.2, decay_ratio=0.4), 10, [0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0]),
        (Schedule(name="linear", warmup_ratio=0.2, decay_ratio=0.4, min_ratio=0.2), 10, [0.5, *[1] * 5, 0.8, 0.6, 0.4, 0.2]),
        (Schedule(name="cosine", warmup_ratio=0.0, decay_ratio=1.0), 4, [(1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2, 0]),
        (Schedule(name="constant", warmup_ratio=0.5, decay_ratio=0.5), 8, [0.25, 0.5, 0.75, *[1] * 5]),
        # A decay longer than what the warm-up leaves begins where the warm-up ends.
        (Schedule(name="linear", warmup_ratio=0.5, decay_ratio=1.0), 4, [0.5, 1, 0.5, 0]),
        (Schedule(name="linear", warmup_ratio=0.0, decay_ratio=0.0), 3, [1, 1, 1]),
    ],
    ids=["linear", "min_ratio", "cosine", "constant", "long_decay", "none"],
)
def test_factor_of_the_learning_rate_by_hand(spec: Schedule, steps: int, expected: list[float]) -> None:
    assert [optimizer.lr_factor(spec, step, steps) for step in range(1, steps + 1)] == pytest.approx(expected)


# -- the order of data -----------------------------------------------------------------------------------------------


def test_each_epoch_and_each_seed_has_an_order_of_its_own() -> None:
    orders = {(seed, epoch): batches.epoch_order(50, seed, epoch).tolist() for seed in (0, 1) for epoch in (0, 1)}
    assert all(sorted(order) == list(range(50)) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) == 4
    assert batches.rows_between(50, 1, 45, 55).tolist() == orders[1, 0][45:] + orders[1, 1][:5]


def by_seed(calls: list[Call], run: Callable[[int], Any], seen: Callable[[Call], Any]) -> list[list[Any]]:
    """What `seen` reads of the calls of a run with seed 0, again with seed 0, and with seed 1."""
    found = []
    for seed in (0, 0, 1):
        calls.clear()
        run(seed)
        found.append([seen(call) for call in calls])
    return found


@pytest.mark.parametrize("spec_class", [MidtrainSpec, SftSpec])
def test_the_order_of_a_language_models_rows_follows_the_seed(
    spec_class: type, inputs: dict[str, Path], record: Record, tmp_path: Path
) -> None:
    counts = Counter[int]()

    def run(seed: int) -> None:
        counts[seed] += 1
        spec = spec_class(tokens=1500, batch_tokens=256, dtype="float32", seed=seed)
        lm.train_language_model(spec, inputs, tmp_path / f"{seed}.{counts[seed]}", Run())

    calls = record(batches, "batch_of_rows")
    first, again, other = by_seed(calls, run, lambda call: call.given["rows"].tolist())
    assert first == again != other


SMALL_RL = {"method": {"paper": "arXiv:2402.03300"}, "mix": [1.0], "steps": 1, "prompts_per_step": 4, "max_completion_length": 5}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_products_take_the_dtype_of_the_spec(dtype: str, inputs: dict[str, Path], record: Record, tmp_path: Path) -> None:
    weights, iterations, kernels = record(Decoder, "weights"), record(optimizer, "orthogonalise"), record(library, "call")
    muon = {"name": "muon"}
    tuned = SftSpec.model_validate({"tokens": 1000, "batch_tokens": 256, "dtype": dtype, "optimizer": muon})
    lm.train_language_model(tuned, inputs, tmp_path / "sft", Run())
    learnt = RLSpec.model_validate({**SMALL_RL, "dtype": dtype, "optimizer": muon})
    loop.train_policy(learnt, {"init": inputs["init"], "data.0": inputs["problems"]}, tmp_path / "rl", Run())
    sampled = EvaluateSpec.model_validate({"num_samples": 1, "max_completion_length": 5, "dtype": dtype})
    sampling.evaluate_model(sampled, inputs, tmp_path / "evaluate", Run(engine_batch=128))
    assert {call.given["dtype"] for call in weights} == {getattr(torch, dtype)}
    integers = {torch.int8 for call in kernels if call.given["name"] == "muon_step"}
    assert {call.given["arithmetic"] for call in iterations} | integers == {getattr(torch, dtype)}


@pytest.mark.parametrize(
    ("stage", "train", "spec_class"),
    [(prefer, prefer.train_preferences, PreferSpec), (reward_model, reward_model.train_reward_model, RewardModelSpec)],
    ids=["prefer", "rm"],
)
def test_the_order_of_pairs_follows_the_seed(
    stage: Any, train: Any, spec_class: type, inputs: dict[str, Path], record: Record, tmp_path: Path
) -> None:
    roles = {"init": inputs["init"], "data.0": inputs["pairs"]}
    roles |= {"validation": inputs["pairs"]} if stage is reward_model else {}
    counts = Counter[int]()

    def run(seed: int) -> None:
        counts[seed] += 1
        spec = spec_class(mix=[1.0], steps=2, pairs_per_step=6, max_length=128, seed=seed)
        train(spec, roles, tmp_path / f"{seed}.{counts[seed]}", Run())

    calls = record(stage, "pair_metrics")
    first, again, other = by_seed(calls, run, lambda call: call.given["places"].tolist() if call.given["backward"] else [])
    assert first == again != other
    assert len(set(first[0] + first[1])) == 12, "a step must go on where the one before ended"


def test_the_order_of_what_is_unlearnt_follows_the_seed(inputs: dict[str, Path], record: Record, tmp_path: Path) -> None:
    roles = {"init": inputs["init"], "forget.0": inputs["problems"], "retain.0": inputs["problems"]}
    counts = Counter[int]()

    def run(seed: int) -> None:
        counts[seed] += 1
        spec = UnlearnSpec(forget_mix=[1.0], retain_mix=[1.0], steps=2, problems_per_step=4, max_length=128, seed=seed)
        unlearn.train_unlearning(spec, roles, tmp_path / f"{seed}.{counts[seed]}", Run())

    calls = record(unlearn, "draw_problems")
    first, again, other = by_seed(calls, run, lambda call: call.returned.tokens.tolist())
    assert first == again != other


# -- evaluation ------------------------------------------------------------------------------------------------------

CHOICES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.7},
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 3},
    "max_completion_length": {"max_completion_length": 7},
    "seed": {"seed": 11},
}


@pytest.mark.parametrize("given", CHOICES.values(), ids=CHOICES)
def test_how_an_evaluation_samples_reaches_the_draw(
    given: dict[str, Any], inputs: dict[str, Path], record: Record, tmp_path: Path
) -> None:
    calls, noise = record(native, "draw_tokens"), record(native, "uniform_noise")
    spec = EvaluateSpec(**{"num_samples": 2, "max_completion_length": 5, **given})
    sampling.evaluate_model(spec, inputs, tmp_path, Run(engine_batch=128))
    assert calls
    for call in calls:
        options = call.given["sampling"]
        assert (options.temperature, options.top_p, options.top_k) == (spec.temperature, spec.top_p, spec.top_k)
        if spec.temperature == 0:
            assert torch.equal(call.returned[0], call.given["logits"].argmax(-1))
    assert {call.given["seed"] for call in noise} == {spec.seed}
    assert {call.given["positions"] for call in noise} == {spec.max_completion_length}
    assert max(pq.read_table(tmp_path / "samples.parquet")["length"].to_pylist()) == spec.max_completion_length


def test_a_block_of_samples_begins_at_its_first_one(inputs: dict[str, Path], record: Record, tmp_path: Path) -> None:
    noise = record(native, "uniform_noise")
    spec = EvaluateSpec(num_samples=3, first_sample=6, max_completion_length=4)
    sampling.evaluate_model(spec, inputs, tmp_path / "block", Run(engine_batch=60))
    assert {sample for call in noise for sample in call.given["samples"]} == {6, 7, 8}
    block = pq.read_table(tmp_path / "block" / "samples.parquet")
    assert block["sample"].to_pylist()[:6] == [6, 7, 8, 6, 7, 8]
    sampling.evaluate_model(
        spec.model_copy(update={"first_sample": 0, "num_samples": 9}), inputs, tmp_path / "whole", Run(engine_batch=180)
    )
    whole = pq.read_table(tmp_path / "whole" / "samples.parquet").to_pylist()
    assert block["completion"].to_pylist() == [row["completion"] for row in whole if row["sample"] >= 6]


def test_noise_follows_the_text_of_a_prompt_and_not_its_number(inputs: dict[str, Path], tmp_path: Path) -> None:
    moved = tmp_path / "results" / "problems" / "moved"
    moved.mkdir(parents=True)
    table = pq.read_table(inputs["data"] / "problems.parquet")
    other = table.take(list(range(len(table) - 1, -1, -1)))
    other = other.set_column(other.column_names.index("index"), "index", [range(100, 100 + len(table))])
    pq.write_table(other, moved / "problems.parquet")
    (moved / "stage.json").write_bytes((inputs["data"] / "stage.json").read_bytes())
    spec, found = EvaluateSpec(num_samples=2, max_completion_length=6), []
    for name, data in (("here", inputs["data"]), ("moved", moved)):
        sampling.evaluate_model(spec, {**inputs, "data": data}, tmp_path / name, Run(engine_batch=80))
        prompts = pq.read_table(data / "problems.parquet")["prompt"].to_pylist()
        completions = pq.read_table(tmp_path / name / "samples.parquet")["completion"].to_pylist()
        found.append({prompt: completions[2 * i : 2 * i + 2] for i, prompt in enumerate(prompts)})
    assert found[0] == found[1]


# -- RL: the optimiser steps of a batch ------------------------------------------------------------------------------


def learner_of(inputs: dict[str, Path], loss: ClippedLoss, **more: Any) -> Learner:
    """A tiny policy with plain gradient descent."""
    policy = folder.load_decoder(inputs["init"] / "model")
    method = Method(paper="test", loss=loss)
    spec = RLSpec(**{"method": method, "mix": [1.0], "steps": 4, "prompts_per_step": 4, "max_completion_length": 5, **more})
    references = ((1.0, folder.load_decoder(inputs["init"] / "model")),) if loss.refers() else ()
    return Learner(spec, policy, references, [torch.optim.SGD(policy.parameters(), lr=0.5)], 10**6)


def unequal() -> tuple[Any, torch.Tensor]:
    """Four groups of 2, 3, 5 and 6 rows, as edits leave them, and an advantage for every token."""
    groups = [0] * 2 + [1] * 3 + [2] * 5 + [3] * 6
    batch = batch_of([1.0, 0.0] * 8, groups, [1 + i % 4 for i in range(16)])
    return batch, torch.linspace(-1, 1, 16)[:, None].expand(batch.tokens.shape).clone()


def test_a_minibatch_holds_whole_groups_of_whatever_size(inputs: dict[str, Path], record: Record) -> None:
    calls, (batch, advantage) = record(losses, "token_losses"), unequal()
    update.update(learner_of(inputs, ClippedLoss(), minibatches=2), batch, advantage, 1)
    seen = [sorted(call.given["seen"].advantage[:, 0].tolist()) for call in calls]
    assert seen == [advantage[:5, 0].tolist(), advantage[5:, 0].tolist()]


@pytest.mark.parametrize("minibatches", [1, 2, 4])
@pytest.mark.parametrize("num_iterations", [1, 3])
def test_as_many_optimiser_steps_as_minibatches_times_iterations(
    minibatches: int, num_iterations: int, inputs: dict[str, Path], record: Record
) -> None:
    calls, (batch, advantage) = record(optimizer, "apply_gradients"), unequal()
    learner = learner_of(inputs, ClippedLoss(num_iterations=num_iterations), minibatches=minibatches)
    values = update.update(learner, batch, advantage, 1)
    assert len(calls) == values["optimizer_steps"] == minibatches * num_iterations


def test_later_optimiser_steps_take_their_ratios_to_the_policy_before_the_first(inputs: dict[str, Path], record: Record) -> None:
    calls, (batch, advantage) = record(losses, "token_losses"), unequal()
    update.update(learner_of(inputs, ClippedLoss(num_iterations=2)), batch, advantage, 1)
    first, second = (call.given["seen"] for call in calls)
    torch.testing.assert_close(first.logp.detach(), first.old_logp)
    assert torch.equal(first.old_logp, second.old_logp)
    assert not torch.allclose(second.logp.detach(), second.old_logp)


@pytest.mark.parametrize("num_iterations", [1, 2])
def test_rows_off_policy_take_their_ratios_to_what_made_them(
    num_iterations: int, inputs: dict[str, Path], record: Record
) -> None:
    calls, (batch, advantage) = record(losses, "token_losses"), unequal()
    off = torch.arange(16) % 3 == 0
    batch = replace(batch, off_policy=off, logprobs=torch.full(batch.tokens.shape, -0.125))
    update.update(learner_of(inputs, ClippedLoss(num_iterations=num_iterations)), batch, advantage, 1)
    for call in calls:
        seen = call.given["seen"]
        theirs = torch.isin(seen.advantage[:, 0], advantage[off, 0])
        assert (seen.old_logp[theirs] == -0.125).all()
        assert not (seen.old_logp[~theirs] == -0.125).any()


def test_the_clip_has_the_bounds_of_the_loss(inputs: dict[str, Path], record: Record) -> None:
    calls, (batch, advantage) = record(losses, "clip"), unequal()
    update.update(learner_of(inputs, ClippedLoss(epsilon=0.1, epsilon_high=0.3, delta=4.0)), batch, advantage, 1)
    update.update(learner_of(inputs, ClippedLoss(epsilon=0.15)), batch, advantage, 1)
    assert [tuple(call.given[name] for name in ("low", "high", "delta")) for call in calls] == [
        (0.1, 0.3, 4.0),
        (0.15, 0.15, None),
    ]


@pytest.mark.parametrize("beta", [0.0, 0.25])
def test_the_divergence_counts_by_beta_and_is_from_the_first_weights(
    beta: float, inputs: dict[str, Path], record: Record
) -> None:
    calls, (batch, advantage) = record(losses, "token_losses"), unequal()
    learner = learner_of(inputs, ClippedLoss(beta=beta, num_iterations=2))
    update.update(learner, batch, advantage, 1)
    plain = [losses.MEMBERS["clipped"].loss(call.given["spec"], call.given["seen"])[0] for call in calls]
    for call, alone in zip(calls, plain, strict=True):
        seen = call.given["seen"]
        assert (seen.reference is None) == (beta == 0)
        if seen.reference is not None:
            torch.testing.assert_close(seen.reference, calls[0].given["seen"].old_logp)
            ratio = seen.reference - seen.logp
            torch.testing.assert_close(call.returned[0] - alone, beta * (ratio.exp() - 1 - ratio), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo", "luspo"])
def test_tokens_are_weighed_as_the_loss_type_says(loss_type: str, inputs: dict[str, Path], record: Record) -> None:
    calls, (batch, advantage) = record(update, "token_weights"), unequal()
    update.update(learner_of(inputs, ClippedLoss(loss_type=loss_type), minibatches=2), batch, advantage, 1)
    assert len(calls) == 2
    for call in calls:
        given = call.given
        assert (given["loss_type"], given["minibatches"], given["max_completion_length"]) == (loss_type, 2, 5)
        assert given["batch_tokens"] == int(batch.lengths.sum())


# -- RL: a run -------------------------------------------------------------------------------------------------------

SCORE = "def commas(problems, completions, verdicts):\n    return [c.count(',') / max(len(c), 1) for c in completions]\n"
HOW = Run(engine_batch=32, micro_batch_tokens=400, save_minutes=0.0)


def rl_spec(method: dict[str, Any] | None = None, **more: Any) -> RLSpec:
    given: dict[str, Any] = {
        "method": Method(paper="test", **{"allocation": FixedAllocation(num_generations=3), **(method or {})}),
        "reward": OwnReward(function="mine.py:commas", source=SCORE),
        "mix": [1.0],
        "steps": 3,
        "prompts_per_step": 4,
        "max_completion_length": 6,
        "optimizer": TuneOptimizer(learning_rate=1e-2),
    }
    return RLSpec(**{**given, **more})


def rl_run(spec: RLSpec, inputs: dict[str, Path], out: Path) -> None:
    loop.train_policy(spec, {"init": inputs["init"], "data.0": inputs["problems"]}, out, HOW)


def rates(given: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(group, params=None) for one in given["optimizers"] for group in one.param_groups]


def test_rate_and_its_schedule_reach_every_optimiser_step_of_rl(inputs: dict[str, Path], record: Record, tmp_path: Path) -> None:
    calls = record(optimizer, "apply_gradients", note=rates)
    falling = TuneSchedule(name="linear", warmup_ratio=0.5, decay_ratio=0.5)
    rl_run(rl_spec(steps=4, schedule=falling), inputs, tmp_path)
    assert [{group["lr"] for group in call.note} for call in calls] == [{0.005}, {0.01}, {0.005}, {0.0}]
    assert [line["lr"] for line in read(tmp_path)] == [0.005, 0.01, 0.005, 0.0]


def test_betas_decay_and_clipping_reach_the_optimiser(inputs: dict[str, Path], record: Record, tmp_path: Path) -> None:
    calls = record(optimizer, "apply_gradients", note=rates)
    clips = record(torch.nn.utils, "clip_grad_norm_")
    own = TuneOptimizer(learning_rate=1e-2, weight_decay=0.25, adam_beta1=0.5, adam_beta2=0.75, max_grad_norm=0.125)
    rl_run(rl_spec(optimizer=own), inputs, tmp_path)
    assert {group["betas"] for call in calls for group in call.note} == {(0.5, 0.75)}
    assert [group["weight_decay"] for group in calls[0].note] == [0.25, 0.0], "norms and biases are not pulled on"
    assert {call.given["max_norm"] for call in clips} == {0.125}


def test_a_group_has_as_many_samples_as_the_allocation_says(inputs: dict[str, Path], record: Record, tmp_path: Path) -> None:
    calls = record(native.Native, "generate")
    rl_run(rl_spec({"allocation": FixedAllocation(num_generations=5)}, temperature=0.5, seed=4), inputs, tmp_path)
    assert [[request.count for request in call.given["requests"]] for call in calls] == [[5] * 4] * 3
    assert {call.given["sampling"].temperature for call in calls} == {0.5}
    assert len({call.given["sampling"].seed for call in calls}) == 3, "each step has noise of its own"


def test_members_know_where_the_run_stands(inputs: dict[str, Path], record: Record, tmp_path: Path) -> None:
    calls = record(edits, "edits_before_advantage")
    rl_run(rl_spec(), inputs, tmp_path)
    assert [(call.given["now"].step, call.given["now"].progress) for call in calls] == [(1, 0.0), (2, 0.5), (3, 1.0)]


def test_the_sampler_learns_once_a_step_after_the_update(inputs: dict[str, Path], record: Record, tmp_path: Path) -> None:
    events: list[tuple[str, int]] = []
    record(loop, "update", note=lambda given: events.append(("update", given["step"])))
    record(Sampler, "learn", note=lambda given: events.append(("learn", given["step"])))
    rl_run(rl_spec(), inputs, tmp_path)
    assert events == [(name, step) for step in (1, 2, 3) for name in ("update", "learn")]


class StoppedError(Exception):
    """The machine went away."""


def test_a_resumed_run_remembers_what_its_members_and_its_sampler_kept(
    inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = rl_spec({"decoding": AdaptiveTemperature()}, steps=4)
    real, seen = loop.one_step, []

    def watched(world: Any, learner: Any, out: Path, step: int, seconds: dict[str, float]) -> dict[str, float]:
        memory: Memory = world.memory
        seen.append((step, {name: value.tolist() for name, value in memory.tensors.items()}, world.sampler.state_dict()))
        if out.name == "broken" and step == 3 and len(seen) == 3:
            raise StoppedError
        return real(world, learner, out, step, seconds)

    monkeypatch.setattr(loop, "one_step", watched)
    with pytest.raises(StoppedError):
        rl_run(spec, inputs, tmp_path / "broken")
    rl_run(spec, inputs, tmp_path / "broken")
    resumed, seen = seen[3:], []
    rl_run(spec, inputs, tmp_path / "whole")
    assert resumed == seen[2:]
    assert resumed[0][1], "nothing was remembered: this test tests nothing"
    weights = "model/model.safetensors"
    assert (tmp_path / "broken" / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()


# What allocation, prompting and continuation are given, in the order of the calls: (seam, hook, step or None, values).
Seen = list[tuple[Any, ...]]


def record_requests(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Recording members at the three seams of requests: `fixed`, `annealed_shots` and `reflection`."""
    seen: Seen = []
    allocation, prompting = requests.ALLOCATION["fixed"], requests.PROMPTING["annealed_shots"]
    member = continuation.CONTINUATION["reflection"]
    assert member.begin
    assert member.keep
    begin, keep = member.begin, member.keep

    def first(spec: Any, prompts: int) -> list[int]:
        seen.append(("allocation", "first", spec.num_generations, prompts))
        return allocation.first(spec, prompts)

    def prompted(spec: Any, row: Any, slot: int, n: int, now: Any) -> Any:
        seen.append(("prompting", "requests", spec.schedule, row.index, slot, n, now.step, now.progress))
        return prompting.requests(spec, row, slot, n, now)

    def begun(spec: Any, asked: Any, rows: Any, now: Any) -> Any:
        remembered = sorted(now.memory.notes.get("reflection", {}))
        indices = [row.index for row in rows]
        seen.append(("continuation", "begin", spec.threshold, list(asked), indices, now.step, remembered))
        return begin(spec, asked, rows, now)

    def kept(spec: Any, batch: Any, now: Any) -> Any:
        seen.append(("continuation", "keep", batch.completions, batch.groups.tolist(), batch.rewards.tolist(), now.step))
        return keep(spec, batch, now)

    monkeypatch.setitem(requests.ALLOCATION, "fixed", allocation._replace(first=first))
    monkeypatch.setitem(requests.PROMPTING, "annealed_shots", prompting._replace(requests=prompted))
    monkeypatch.setitem(continuation.CONTINUATION, "reflection", member._replace(begin=begun, keep=kept))
    return seen


def test_the_seams_of_requests_are_given_each_step_and_its_prompts(
    inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = record_requests(monkeypatch)
    spec = rl_spec({"allocation": FixedAllocation(num_generations=2), "prompting": AnnealedShotsPrompting(schedule=[1, 0])})
    rl_run(spec, inputs, tmp_path)
    assert [call[2:] for call in seen if call[0] == "allocation"] == [(2, 4)] * 3
    texts = [call[2:] for call in seen if call[0] == "prompting"]
    assert [(slot, n, step, progress) for _, _, slot, n, step, progress in texts] == [
        (slot, 2, step, progress) for step, progress in ((1, 0.0), (2, 0.5), (3, 1.0)) for slot in range(4)
    ]
    assert len({index for _, index, *_ in texts}) == 12, "each step samples the prompts that the sampler chose for it"
    assert all(schedule == [1, 0] for schedule, *_ in texts)


def test_the_continuation_is_given_what_was_sampled_and_after_a_resume_what_it_remembers(
    inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = record_requests(monkeypatch)
    follow = {"allocation": FixedAllocation(num_generations=2), "continuation": ReflectionContinuation(threshold=1.0)}
    spec = rl_spec(follow, steps=4, prompts_per_step=20, max_completion_length=3)
    rl_run(spec, inputs, tmp_path / "whole")
    begun = [call for call in seen if call[1] == "begin"]
    kept = [call for call in seen if call[1] == "keep"]
    assert [call[5] for call in begun] == [call[5] for call in kept] == [1, 2, 3, 4]
    assert [len(call[6]) for call in begun] == [0, 20, 40, 40], "every prompt is remembered once it was sampled"
    for first, last in zip(begun, kept, strict=True):
        assert [(one.slot, one.n) for one in first[3]] == [(slot, 2) for slot in range(20)]
        assert len(last[2]) >= 40
    assert len(kept[2][2]) > 40, "prompts of the third step failed before and enter with a group of their own"
    whole, real = list(seen), loop.one_step

    def stopped(world: Any, learner: Any, out: Path, step: int, seconds: dict[str, float]) -> dict[str, float]:
        if step == 3:
            raise StoppedError
        return real(world, learner, out, step, seconds)

    seen.clear()
    monkeypatch.setattr(loop, "one_step", stopped)
    with pytest.raises(StoppedError):
        rl_run(spec, inputs, tmp_path / "broken")
    monkeypatch.setattr(loop, "one_step", real)
    rl_run(spec, inputs, tmp_path / "broken")
    assert seen == whole, "the steps after a resume are given what those of an uninterrupted run are given"


def test_the_tokens_that_bear_loss_are_those_of_the_corpus(inputs: dict[str, Path]) -> None:
    rows = corpus.load_rows([inputs["corpus"]])
    batch = batches.batch_of_rows(rows, np.arange(6), torch.device("cpu"))
    assert len(batch.targets) == int((np.asarray(rows.loss[np.arange(6)]) != 0).sum())
    assert torch.equal(batch.ids[batch.before + 1], batch.targets)
