"""The `reward_model` stage: a decoder with heads learns from pairs; mixture of raters with routing."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.core.execution import Run
from interplay.core.metrics import round_values
from interplay.data import batches, sets, tokenizer
from interplay.data import pairs as paired
from interplay.data.pairs import Pairs
from interplay.model import device, folder, heads
from interplay.model.device import pick_device, place_decoder
from interplay.model.heads import RewardModel
from interplay.model.shared_prompts import distinct_prompts
from interplay.optim import distributed, optimizer
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row
from interplay.train import loop, preference
from interplay.train.loop import Job
from interplay.train.spec import RewardModelSpec, Routing

# A mixture of raters told by a few labelled pairs which of its heads to trust (MiCRo's second stage, arXiv:2505.24846).


def route_heads(gate: Tensor, told: Tensor, shots: Sequence[Sequence[int]], eta: float) -> Tensor:
    """Logarithms (P, K) of the heads' weights for each pair after Hedge has seen the labelled pairs `shots` of its rater: from
    the gate's at its prompt, w_k <- w_k exp(-eta l_k) over their losses l_k = -log sigmoid(r_k(chosen) - r_k(rejected)),
    normalised. With eta 1 that is Bayes' rule. `gate` (P, K): logarithms of the gate's weights; `told` (P, K): -l_k of every
    pair."""
    seen = torch.stack([told[list(of_pair)].sum(0) for of_pair in shots])
    return (gate + eta * seen).log_softmax(-1)


def accuracies(rows: Sequence[Row], told: Tensor, weights: Tensor, name: str) -> dict[str, float]:
    """Share of pairs whose chosen completion is expected to win, under `name`, and under `name/<rater>` that of each rater."""
    right = ((weights + told).logsumexp(-1).exp() > 0.5).double()
    of_rater: dict[str, list[float]] = defaultdict(list)
    for row, one in zip(rows, right.tolist(), strict=True):
        of_rater[row.rater].append(one)
    each = {f"{name}/{rater}": sum(found) / len(found) for rater, found in sorted(of_rater.items()) if rater}
    return {name: float(right.mean()), **each}


# The `reward_model` stage: a model with a head learns from pairs to judge completions, and is asked to pick among samples.


class Course(NamedTuple):
    """What is fixed before the first step."""

    spec: RewardModelSpec
    pairs: Pairs
    margins: Tensor
    """(P,) float32: by how much the reward of each chosen completion should exceed the other."""
    model: RewardModel
    pass_tokens: int
    dtype: torch.dtype


def run(spec: RewardModelSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Train and write `model/`, `metrics.jsonl` and `checkpoints/<step>/`, going on from `out/resume` where there is one. Returns
    accuracy and nll on the held-out pairs and, where there are samples, `best_of`.

    Roles: see RewardModelSpec. Raises UserError where a set holds no pairs or one is too long, PermanentError at the first loss
    or gradient that is not finite."""
    torch.set_num_threads(how.threads)
    torch.manual_seed(spec.seed)  # nothing here draws from torch's own stream, but it is saved, and starts at random otherwise
    at, found = pick_device(how), inputs["init"]
    model = heads.init_reward_model(place_decoder(folder.load_decoder(found / "model"), how), spec.heads, spec.seed).to(at)

    def course_of(roles: list[Path], mix: list[float]) -> Course:
        pairs = paired.load_pairs(roles, mix, found, spec.seed, spec.max_length, "reward_model")
        return Course(spec, pairs, margins(spec, pairs).to(at), model, how.micro_batch_tokens, getattr(torch, spec.dtype))

    course = course_of([inputs[f"data.{i}"] for i in range(len(spec.mix))], spec.mix)
    held_out = course_of([inputs["validation"]], [1.0])
    files = tokenizer.tokenizer_folder(found)

    def measure() -> dict[str, float]:
        values = judged(held_out, np.arange(len(held_out.pairs.prompts)))
        return {f"eval_{name}": values[name] for name in ("accuracy", "nll", "margin")}

    job = Job(
        model=model,
        optimizers=optimizer.build_optimizers(spec.optimizer, model.named_parameters()),
        steps=spec.steps,
        schedule=spec.schedule,
        max_grad_norm=spec.optimizer.max_grad_norm,
        learn=lambda step: learn(course, step),
        save=lambda path: heads.save_reward_model(model, path, files),
        checkpoints=spec.checkpoints,
        measure=measure,
        eval_every=spec.eval_every,
    )
    ended = loop.train(job, out, how)
    heads.save_reward_model(model, out / "model", files)
    loop.tell_pace(out, ended, model.decoder, course.dtype)
    counts = {"pairs": len(course.pairs.prompts), "parameters": sum(p.numel() for p in model.decoder.parameters())}
    if spec.routing:
        ended.measured.update(routed(held_out, spec.routing))
    picked = {"best_of": best_of(course, inputs)} if "prompts" in inputs else {}
    return {"steps": spec.steps, "tokens": ended.tokens, **counts, **round_values(ended.measured), **picked}


def margins(spec: RewardModelSpec, pairs: Pairs) -> Tensor:
    """(P,) float32: 0, or the difference of the verifier's scores of both completions."""
    if spec.margin == "none":
        return torch.zeros(len(pairs.rows))
    ids = list(range(len(pairs.rows)))
    everything = sets.Pool(pairs.rows, [len(ids)])
    good, bad = (
        sets.judge_completions(everything, ids, [getattr(row, name) for row in pairs.rows], Verify())
        for name in ("solution", "rejected")
    )
    return torch.tensor([a.score - b.score for a, b in zip(good, bad, strict=True)], dtype=torch.float32)


def learn(course: Course, step: int) -> dict[str, float]:
    """The gradient of step `step` of 1..steps. Returns loss, accuracy, nll and margin over the pairs of the step before the
    update, and tokens of this step."""
    spec, size = course.spec, course.spec.pairs_per_step
    places = batches.rows_between(len(course.pairs.prompts), spec.seed, (step - 1) * size, step * size)
    return {**judged(course, places, learn=True), "tokens": course.pairs.count_tokens(places)}


def judged(course: Course, places: np.ndarray, learn: bool = False) -> dict[str, float]:
    """Means over the pairs `places` (N,): loss; accuracy, the share whose chosen completion is expected to win; nll, of that it
    wins, in nats and without margins; margin of the rewards. With `learn` the gradient of the loss is added to the model's."""
    sums: dict[str, float] = defaultdict(float)
    cut = partial(paired.micro_batches, course.pairs, places)

    def one_pass(piece: np.ndarray) -> dict[str, Tensor]:
        with torch.set_grad_enabled(learn):
            values = of_pairs(course, piece)
        if learn:
            (values["loss"].sum() / len(places)).backward()
        return values

    def attempt(tokens: int) -> None:
        one_pass(cut(tokens)[0])

    with (
        distributed.accumulate_gradient(course.model) if learn else nullcontext(),
        device.report_out_of_memory("micro_batch_tokens", course.pass_tokens, attempt),
    ):
        for piece in distributed.shard_micro_batches(cut, course.pass_tokens, len(places)):
            for name, value in one_pass(piece).items():
                sums[name] += value.detach().double().sum().item()
    return {name: total / len(places) for name, total in distributed.all_reduce_dict(sums).items()}


def of_pairs(course: Course, piece: np.ndarray) -> dict[str, Tensor]:
    """The same of each of the pairs `piece` (n,), each (n,)."""
    prompts, chosen, rejected = ([each[i] for i in piece] for each in course.pairs[:3])
    rewards, weights = rate(course, prompts * 2, chosen + rejected)
    (better, worse), (gate, _) = rewards.chunk(2), weights.chunk(2)
    losses = preference.bradley_terry_losses(course.spec, better, worse, gate, course.margins[piece])
    wins = preference.log_chance(better, worse, gate, torch.zeros_like(losses)).detach()
    gap = preference.bradley_terry_reward(better, gate) - preference.bradley_terry_reward(worse, gate)
    return {"loss": losses, "accuracy": (wins.exp() > 0.5).float(), "nll": -wins, "margin": gap}


def rate(course: Course, prompts: list[list[int]], completions: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Rewards (n, K) of completions, and logarithms of the heads' weights (n, K)."""
    tokens, ends = paired.pad_completions(completions, course.model.score.device)
    few, lengths, group = (part.to(tokens.device) for part in distinct_prompts(prompts, course.model.decoder.share_prompts))
    rewards, weights = course.model(few, lengths, group, tokens, ends.to(tokens.device), course.dtype)
    return rewards, weights


@torch.no_grad()
def routed(course: Course, spec: Routing) -> dict[str, float]:
    """Accuracy on all pairs as the gate weighs the heads, `eval_gated_accuracy`, and as `spec.pairs` pairs of the rater do,
    `eval_routed_accuracy`, both also by rater; and the difference, `eval_routing_gain`."""
    count = len(course.pairs.prompts)
    told, gates = (torch.zeros(count, course.spec.heads) for _ in range(2))
    for piece in paired.micro_batches(course.pairs, np.arange(count), course.pass_tokens):
        prompts, chosen, rejected = ([each[i] for i in piece] for each in course.pairs[:3])
        rewards, weights = rate(course, prompts * 2, chosen + rejected)
        better, worse = rewards.chunk(2)
        told[piece], gates[piece] = F.logsigmoid(better - worse).cpu(), weights[: len(prompts)].cpu()
    shots = paired.draw_shots(course.pairs.rows, spec.pairs, course.spec.seed, "reward_model")
    plain = accuracies(course.pairs.rows, told, gates, "eval_gated_accuracy")
    weighed = accuracies(course.pairs.rows, told, route_heads(gates, told, shots, spec.eta), "eval_routed_accuracy")
    gain = weighed["eval_routed_accuracy"] - plain["eval_gated_accuracy"]
    return {**plain, **weighed, "eval_routing_gain": gain}


@torch.no_grad()
def best_of(course: Course, inputs: dict[str, Path]) -> dict[str, dict[str, float]]:
    """For n = 1, 2, 4, ...: strict and answer, the share of prompts of an evaluation whose sample of the greatest reward among
    the first n is right, and the shares strict_pass and answer_pass of those that have a right one among them, which no judge can
    exceed."""
    rows = sets.read_rows(inputs["prompts"], 0)
    drawn: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for role in sorted((role for role in inputs if role.startswith("samples.")), key=lambda role: int(role.split(".")[1])):
        for sample in pq.read_table(inputs[role] / "samples.parquet").to_pylist():
            drawn[sample["index"]].append(sample)
    encoder, eos = tokenizer.load(inputs["init"]), tokenizer.special(inputs["init"]).eos
    prompts = dict(zip((row.index for row in rows), tokenizer.encode_texts(encoder, [row.prompt for row in rows]), strict=True))
    least = min(map(len, drawn.values()))
    counts = [1 << power for power in range(least.bit_length())]
    right: dict[int, dict[str, int]] = {n: defaultdict(int) for n in counts}
    for index, samples in sorted(drawn.items()):
        samples.sort(key=lambda sample: sample["sample"])
        texts = tokenizer.encode_texts(encoder, [sample["completion"] for sample in samples])
        ended = [ids + ([] if s["truncated"] or eos is None else [eos]) for ids, s in zip(texts, samples, strict=True)]
        rated = preference.bradley_terry_reward(*rate(course, [prompts[index]] * len(ended), ended)).cpu()
        for n in counts:
            best = samples[int(rated[:n].argmax())]
            for word in ("strict", "answer"):
                right[n][word] += best[word]
                right[n][f"{word}_pass"] += any(sample[word] for sample in samples[:n])
    return {str(n): round_values({word: count / len(drawn) for word, count in right[n].items()}) for n in counts}
