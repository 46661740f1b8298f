"""The `reward_model` stage: a decoder with heads trained on pairs (Bradley-Terry); mixture of raters with routing."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.core import execution, metrics, random
from interplay.core.model import UserError
from interplay.data import batches, sets, tokenizer
from interplay.model import device, folder, heads
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row
from interplay.train import loop
from interplay.train.spec import RewardModelSpec, Routing

# Losses of pairs.


def log_win_probability(chosen: Tensor, rejected: Tensor, weights: Tensor, margin: Tensor) -> Tensor:
    """log P (n,) that the chosen completions are preferred: log sum_k w_k sigmoid(r_k(chosen) - r_k(rejected) - margin), of
    rewards (n, K), logarithms of weights (n, K) and margins (n,). With one head that of Bradley and Terry (arXiv:2203.02155, eq.
    1); with more the mixture of MiCRo (arXiv:2505.24846), whose weights are a function of the prompt."""
    return (weights + F.logsigmoid(chosen - rejected - margin[:, None])).logsumexp(-1)


def bradley_terry_losses(spec: RewardModelSpec, chosen: Tensor, rejected: Tensor, weights: Tensor, margin: Tensor) -> Tensor:
    """The loss of each pair, (n,); see `log_win_probability`."""
    centred = spec.center_rewards_coefficient * (chosen + rejected).square().mean(-1)
    return centred - log_win_probability(chosen, rejected, weights, margin)


GOALS = 16
"""States that are drawn of each completion, as released."""


def goal_contrast(chosen: Tensor, rejected: Tensor, ends: Tensor, drawn: Tensor) -> Tensor:
    """-log mean sigmoid(cos(s, g)) - log(1 - mean sigmoid(cos(s', g'))) of each pair, (n,): sources s and later goals g of the
    chosen completion, sources s' of it and goals g' of the rejected one, over all pairs of a source and a goal (arXiv:2407.13887,
    as released: openrlhf/models/loss.py, ContrastiveGoalLoss). chosen, rejected (n, T + 1, D): states before and after their
    tokens; ends (2, n): tokens of each; drawn (n, 4, S) in [0, 1): places of s, g, s' and g' in their completion."""
    early = drawn[:, :2].sort(1).values
    rows = torch.arange(len(chosen), device=chosen.device)[:, None]

    def states(of: Tensor, length: Tensor, share: Tensor) -> Tensor:
        return of[rows, 1 + (share * length[:, None]).long().clamp(max=length[:, None] - 1)].float()

    def resembles(source: Tensor, goal: Tensor) -> Tensor:
        return F.cosine_similarity(source[:, :, None], goal[:, None], dim=3).sigmoid().mean((1, 2))

    near = resembles(states(chosen, ends[0], early[:, 0]), states(chosen, ends[0], early[:, 1]))
    far = resembles(states(chosen, ends[0], drawn[:, 2]), states(rejected, ends[1], drawn[:, 3]))
    return -near.log() - (1 - far).log()


# Routing: weights of the heads from a few labelled pairs of a rater (MiCRo's second stage, arXiv:2505.24846).


def route_heads(gate: Tensor, log_wins: Tensor, shots: Sequence[Sequence[int]], eta: float) -> Tensor:
    """Log weights (P, K) of the heads for each pair after Hedge on the labelled pairs `shots` of its rater: starting from the
    gate at its prompt, w_k <- w_k exp(-eta l_k) with losses l_k = -log sigmoid(r_k(chosen) - r_k(rejected)), normalised. With
    eta 1 this is Bayes' rule. `gate` (P, K): log weights of the gate; `log_wins` (P, K): -l_k of every pair."""
    seen = torch.stack([log_wins[list(of_pair)].sum(0) for of_pair in shots])
    return (gate + eta * seen).log_softmax(-1)


def accuracy_by_rater(rows: Sequence[Row], log_wins: Tensor, weights: Tensor, name: str) -> dict[str, float]:
    """Share of pairs with a predicted win of the chosen completion, as `name`, and of each rater as `name/<rater>`."""
    right = ((weights + log_wins).logsumexp(-1).exp() > 0.5).double()
    of_rater: dict[str, list[float]] = defaultdict(list)
    for row, one in zip(rows, right.tolist(), strict=True):
        of_rater[row.rater].append(one)
    each = {f"{name}/{rater}": sum(found) / len(found) for rater, found in sorted(of_rater.items()) if rater}
    return {name: float(right.mean()), **each}


# The stage.


class Setup(NamedTuple):
    """Constants of a run."""

    spec: RewardModelSpec
    pairs: batches.Pairs
    margins: Tensor
    """(P,) float32: margin between the rewards of each pair."""
    model: heads.RewardModel
    pass_tokens: int
    dtype: torch.dtype


def train_reward_model(
    spec: RewardModelSpec, inputs: dict[str, Path], out: Path, how: execution.Run, run: loop.Runner = loop.run_training
) -> dict[str, Any]:
    """Train and write `model/`, `metrics.jsonl` and `checkpoints/<step>/`, resuming from `out/resume` where there is one. Returns
    accuracy and nll on the held-out pairs and, where there are samples, `best_of`.

    Roles: see RewardModelSpec. Raises UserError where a set holds no pairs or one is too long, PermanentError at the first loss
    or gradient that is not finite."""
    loop.seed_torch(how, spec.seed)
    at, found = device.pick_device(how), inputs["init"]
    decoder = device.place_decoder(folder.load_decoder(found / "model"), how, blockwise=spec.blockwise)
    model = heads.init_reward_model(decoder, spec.heads, spec.seed).to(at)

    def setup_of(roles: list[Path], mix: list[float]) -> Setup:
        pairs = batches.load_pairs(roles, mix, found, spec.seed, spec.max_length, "reward_model")
        return Setup(spec, pairs, pair_margins(spec, pairs).to(at), model, how.micro_batch_tokens, getattr(torch, spec.dtype))

    setup = setup_of([inputs[f"data.{i}"] for i in range(len(spec.mix))], spec.mix)
    if (count := len(setup.pairs.prompts)) < spec.length_stages:
        raise UserError(f"reward_model: length_stages = {spec.length_stages}: there are {count} pairs; write at most that")
    held_out = setup_of([inputs["validation"]], [1.0])
    files = tokenizer.tokenizer_folder(found)

    def evaluate() -> dict[str, float]:
        values = pair_metrics(held_out, np.arange(len(held_out.pairs.prompts)))
        return {f"eval_{name}": values[name] for name in ("accuracy", "nll", "margin")}

    job = loop.TrainingJob(
        spec,
        model,
        spec.steps,
        step_gradient=lambda step: step_gradient(setup, step),
        save=lambda path: heads.save_reward_model(model, path, files),
        evaluate=evaluate,
        eval_every=spec.eval_every,
        setup=setup,
    )
    result = run(job, out, how)
    heads.save_reward_model(model, out / "model", files)
    loop.write_throughput(out, result, model.decoder, setup.dtype)
    counts = {"pairs": count, "parameters": sum(p.numel() for p in model.decoder.parameters())}
    if spec.routing:
        result.evaluated.update(routed_accuracy(held_out, spec.routing))
    picked = {"best_of": best_of_n(setup, inputs)} if "prompts" in inputs else {}
    return {"steps": spec.steps, "tokens": result.tokens, **counts, **metrics.round_values(result.evaluated), **picked}


def pair_margins(spec: RewardModelSpec, pairs: batches.Pairs) -> Tensor:
    """Margins (P,) float32: 0, or the difference of the verifier's scores of both completions."""
    if spec.margin == "none":
        return torch.zeros(len(pairs.rows))
    good, bad = (
        sets.judge_completions(pairs.rows, [getattr(row, name) for row in pairs.rows], Verify())
        for name in ("solution", "rejected")
    )
    return torch.tensor([a.score - b.score for a, b in zip(good, bad, strict=True)], dtype=torch.float32)


def step_gradient(setup: Setup, step: int) -> dict[str, float]:
    """Accumulate the gradient of step `step` of 1..steps. Returns loss, accuracy, nll and margin over the pairs of the step
    before the update, and tokens of this step."""
    places = step_pairs(setup.spec, setup.pairs, step)
    return {**pair_metrics(setup, places, backward=True), "tokens": setup.pairs.count_tokens(places)}


def step_pairs(spec: RewardModelSpec, pairs: batches.Pairs, step: int) -> np.ndarray:
    """Numbers (pairs_per_step,) of the pairs of step `step` of 1..steps: of all, or of those of its stage of length."""
    size = spec.pairs_per_step
    if spec.length_stages == 1:
        return batches.rows_between(len(pairs.prompts), spec.seed, (step - 1) * size, step * size)
    lengths = [len(p) + len(c) + len(r) for p, c, r in zip(*pairs[:3], strict=True)]
    parts = np.array_split(np.argsort(lengths, kind="stable"), spec.length_stages)
    part = parts[(step - 1) * spec.length_stages // spec.steps]
    return part[batches.rows_between(len(part), spec.seed, (step - 1) * size, step * size)]


def pair_metrics(setup: Setup, places: np.ndarray, backward: bool = False) -> dict[str, float]:
    """Means over the pairs `places` (N,): loss; accuracy, the share with a predicted win of the chosen completion; nll of that
    win, in nats and without margins; margin of the rewards. With `backward` the gradient of the loss is accumulated on the
    model."""
    values = partial(pair_values, setup)
    return loop.mean_over_pairs(setup.model, setup.pairs, places, setup.pass_tokens, values, backward)


def pair_values(setup: Setup, piece: np.ndarray) -> dict[str, Tensor]:
    """The same of each pair of `piece` (n,), each (n,)."""
    prompts, chosen, rejected = ([each[i] for i in piece] for each in setup.pairs[:3])
    rewards, weights, states = setup.model.read_states(prompts * 2, chosen + rejected, setup.dtype)
    (better, worse), (gate, _) = rewards.chunk(2), weights.chunk(2)
    losses = bradley_terry_losses(setup.spec, better, worse, gate, setup.margins[piece])
    if setup.spec.contrastive_weight:
        ends = torch.tensor([[len(one) for one in each] for each in (chosen, rejected)], device=states.device)
        drawn = np.stack([random.generator("goals", setup.spec.seed, i).random((4, GOALS), np.float32) for i in piece.tolist()])
        good, bad = states.chunk(2)
        contrast = goal_contrast(good, bad, ends, torch.from_numpy(drawn).to(states.device))
        losses = losses + setup.spec.contrastive_weight * contrast
    wins = log_win_probability(better, worse, gate, torch.zeros_like(losses)).detach()
    gap = heads.weighted_reward(better, gate) - heads.weighted_reward(worse, gate)
    return {"loss": losses, "accuracy": (wins.exp() > 0.5).float(), "nll": -wins, "margin": gap}


@torch.no_grad()
def routed_accuracy(setup: Setup, spec: Routing) -> dict[str, float]:
    """Accuracy on all pairs with heads weighted by the gate, `eval_gated_accuracy`, and by `spec.pairs` pairs of the rater,
    `eval_routed_accuracy`, both also by rater; and the difference, `eval_routing_gain`."""
    count = len(setup.pairs.prompts)
    log_wins, gates = (torch.zeros(count, setup.spec.heads) for _ in range(2))
    for piece in batches.micro_batches(setup.pairs, np.arange(count), setup.pass_tokens):
        prompts, chosen, rejected = ([each[i] for i in piece] for each in setup.pairs[:3])
        rewards, weights = setup.model.read(prompts * 2, chosen + rejected, setup.dtype)
        better, worse = rewards.chunk(2)
        log_wins[piece], gates[piece] = F.logsigmoid(better - worse).cpu(), weights[: len(prompts)].cpu()
    shots = batches.draw_shots(setup.pairs.rows, spec.pairs, setup.spec.seed, "reward_model")
    gated = accuracy_by_rater(setup.pairs.rows, log_wins, gates, "eval_gated_accuracy")
    routed = accuracy_by_rater(setup.pairs.rows, log_wins, route_heads(gates, log_wins, shots, spec.eta), "eval_routed_accuracy")
    gain = routed["eval_routed_accuracy"] - gated["eval_gated_accuracy"]
    return {**gated, **routed, "eval_routing_gain": gain}


@torch.no_grad()
def best_of_n(setup: Setup, inputs: dict[str, Path]) -> dict[str, dict[str, float]]:
    """Best-of-n for n = 1, 2, 4, ...: strict and answer, the share of prompts of an evaluation whose sample of the largest reward
    among the first n is right; and the upper bounds strict_pass and answer_pass, the share with a right sample among them."""
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
        rated = heads.weighted_reward(*setup.model.read([prompts[index]] * len(ended), ended, setup.dtype)).cpu()
        for n in counts:
            best = samples[int(rated[:n].argmax())]
            for word in ("strict", "answer"):
                right[n][word] += best[word]
                right[n][f"{word}_pass"] += any(sample[word] for sample in samples[:n])
    return {str(n): metrics.round_values({word: count / len(drawn) for word, count in right[n].items()}) for n in counts}
