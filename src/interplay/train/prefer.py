"""The `prefer` stage: preference optimisation on pairs (DPO and related losses).

A step trains on `pairs_per_step` pairs, in an order drawn from the seed, in micro-batches of `micro_batch_tokens`; its loss is
the mean over the pairs, independent of micro-batches. Both completions of a pair share one pass over their prompt."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from interplay.core import execution, metrics
from interplay.data import batches, tokenizer
from interplay.kernels.exact import functions, in_order
from interplay.model import device, folder, shared_prompts
from interplay.model.decoder import Decoder
from interplay.model.spec import Lora
from interplay.optim import distributed
from interplay.train import loop
from interplay.train.spec import REFERENCE_FREE, PreferSpec

# Losses of pairs, given log-probabilities. Formulas are TRL's, which cites the papers (see PreferSpec.loss_type); `simpo` and
# `cpo` are those of TRL's CPOTrainer, `orpo` that of its ORPOTrainer.


class Logps(NamedTuple):
    """Log-probabilities of n pairs in nats, summed over the tokens of a completion, each (n,) float32."""

    chosen: Tensor
    rejected: Tensor
    ref_chosen: Tensor
    """Under the reference; 0 for losses without one."""
    ref_rejected: Tensor
    chosen_tokens: Tensor
    """(n,) tokens of the chosen completions, end included."""
    rejected_tokens: Tensor
    mean_tokens: float
    """Mean length of the chosen completions of the whole step, which turns sums into a mean over its tokens."""
    kl: Tensor
    """() float32: kto's estimate of the KL divergence from the reference, at least 0; 0 for other losses."""

    def ratios(self) -> tuple[Tensor, Tensor]:
        """log(policy / reference) (n,) of the chosen and the rejected completions."""
        return self.chosen - self.ref_chosen, self.rejected - self.ref_rejected

    def means(self) -> tuple[Tensor, Tensor]:
        """Log-probability per token (n,) of the chosen and the rejected completions."""
        return self.chosen / self.chosen_tokens, self.rejected / self.rejected_tokens


def preference_losses(spec: PreferSpec, logps: Logps, of_lists: Tensor | None = None) -> Tensor:
    """The loss of each pair, (n,); `of_lists`: what irpo gives of ranked lists, in place of that of their first two."""
    own = LOSSES[spec.loss_type](spec, logps) if of_lists is None else of_lists
    return own + spec.rpo_alpha * _likelihood(logps) if spec.rpo_alpha else own


def implicit_rewards(spec: PreferSpec, logps: Logps) -> tuple[Tensor, Tensor]:
    """The implicit rewards (n,) of the chosen and the rejected completions, in beta times nats: log ratios to the reference, or
    log-probabilities (cpo) or their means over tokens (simpo, orpo) for losses without one."""
    if spec.loss_type not in REFERENCE_FREE:
        chosen, rejected = logps.ratios()
    elif spec.loss_type == "cpo":
        chosen, rejected = logps.chosen, logps.rejected
    else:
        chosen, rejected = logps.means()
    return spec.beta * chosen, spec.beta * rejected


def _likelihood(logps: Logps) -> Tensor:
    """-log p of the chosen completions (n,), scaled so that the mean over the pairs of a step is the mean over their tokens."""
    return -logps.chosen / logps.mean_tokens


def _smoothed(spec: PreferSpec, margin: Tensor) -> Tensor:
    """-log sigmoid of a margin (n,) with label smoothing: a share of the labels is assumed wrong (cDPO)."""
    logsigmoid, smoothing = functions(spec.numerics).logsigmoid, spec.label_smoothing
    return -(1 - smoothing) * logsigmoid(margin) - smoothing * logsigmoid(-margin)


def _margin(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = logps.ratios()
    return spec.beta * (chosen - rejected)


def _ipo(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = logps.ratios()
    return (chosen / logps.chosen_tokens - rejected / logps.rejected_tokens - 1 / (2 * spec.beta)) ** 2


def _robust(spec: PreferSpec, logps: Logps) -> Tensor:
    margin, wrong, by = _margin(spec, logps), spec.label_smoothing, functions(spec.numerics)
    return (-(1 - wrong) * by.logsigmoid(margin) + wrong * by.logsigmoid(-margin)) / (1 - 2 * wrong)


def _sppo_hard(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = logps.ratios()
    return (chosen - 0.5 / spec.beta) ** 2 + (rejected + 0.5 / spec.beta) ** 2


def _nca_pair(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = implicit_rewards(spec, logps)
    by = functions(spec.numerics)
    return -by.logsigmoid(chosen) - 0.5 * by.logsigmoid(-chosen) - 0.5 * by.logsigmoid(-rejected)


def _apo_zero(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = implicit_rewards(spec, logps)
    by = functions(spec.numerics)
    return 1 - by.sigmoid(chosen) + by.sigmoid(rejected)


def _apo_down(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = implicit_rewards(spec, logps)
    by = functions(spec.numerics)
    return by.sigmoid(chosen) + 1 - by.sigmoid(chosen - rejected)


def _kto(spec: PreferSpec, logps: Logps) -> Tensor:
    """Chosen and rejected completions count separately; the mean over 2 n completions is the mean of this over n pairs."""
    (chosen, rejected), by = logps.ratios(), functions(spec.numerics)
    good = spec.desirable_weight * (1 - by.sigmoid(spec.beta * (chosen - logps.kl)))
    bad = spec.undesirable_weight * (1 - by.sigmoid(spec.beta * (logps.kl - rejected)))
    return (good + bad) / 2


def _simpo(spec: PreferSpec, logps: Logps) -> Tensor:
    chosen, rejected = logps.means()
    return _smoothed(spec, spec.beta * (chosen - rejected) - spec.simpo_gamma)


def _cpo(spec: PreferSpec, logps: Logps) -> Tensor:
    margin = spec.beta * (logps.chosen - logps.rejected)
    return _smoothed(spec, margin) + spec.cpo_alpha * _likelihood(logps)


def _orpo(spec: PreferSpec, logps: Logps) -> Tensor:
    (chosen, rejected), by = logps.means(), functions(spec.numerics)
    # Of log(1 - exp(x)), x is clamped to -eps, since the odds of a completion of probability 1 are infinite.
    unlikely = [by.log_rest(x.clamp(max=-torch.finfo(x.dtype).eps)) for x in (chosen, rejected)]
    log_odds = chosen - rejected - (unlikely[0] - unlikely[1])
    return _likelihood(logps) - spec.beta * by.logsigmoid(log_odds)


def ranked_losses(beta: float, ratios: Tensor) -> Tensor:
    """IRPO (arXiv:2504.15477, as released: trainers.py, rdpo_loss) of lists of K completions, best first, whose log ratios to the
    reference are r (n, K): (n,), the mean over i of -w_i log sigmoid(-log mean_{j != i} exp(beta (r_j - r_i))), with the weights
    of NDCG, w_i = (2^y_i - 1) / log2(1 + i), i counted from 1, for relevances y from K - 1 down to 0."""
    count = ratios.shape[1]
    place = torch.arange(count, dtype=ratios.dtype, device=ratios.device)
    weights = (2 ** (count - 1 - place) - 1) / (2 + place).log2()
    ahead = beta * (ratios[:, None] - ratios[:, :, None])
    itself = torch.eye(count, dtype=torch.bool, device=ratios.device)
    beaten = ahead.masked_fill(itself, -torch.inf).logsumexp(2) - math.log(count - 1)
    return -(weights * F.logsigmoid(-beaten)).mean(1)


LOSSES: dict[str, Callable[[PreferSpec, Logps], Tensor]] = {
    "sigmoid": lambda spec, logps: _smoothed(spec, _margin(spec, logps)),
    "hinge": lambda spec, logps: F.relu(1 - _margin(spec, logps)),
    "ipo": _ipo,
    "robust": _robust,
    "sppo_hard": _sppo_hard,
    "nca_pair": _nca_pair,
    "apo_zero": _apo_zero,
    "apo_down": _apo_down,
    "kto": _kto,
    "simpo": _simpo,
    "cpo": _cpo,
    "orpo": _orpo,
    "irpo": lambda spec, logps: ranked_losses(spec.beta, torch.stack(logps.ratios(), 1)),
}


# The stage.


class Setup(NamedTuple):
    """Constants of a run."""

    spec: PreferSpec
    pairs: batches.Pairs
    policy: Decoder
    reference: Decoder | None
    """Frozen; None for losses without one."""
    pass_tokens: int
    dtype: torch.dtype


def train_preferences(
    spec: PreferSpec, inputs: dict[str, Path], out: Path, how: execution.Run, run: loop.Runner = loop.run_training
) -> dict[str, Any]:
    """Train and write `model/`, `metrics.jsonl` and `checkpoints/<step>/`, resuming from `out/resume` where there is one.

    Roles: see PreferSpec. Raises UserError where a set holds no pairs or one is too long, PermanentError at the first loss or
    gradient that is not finite."""
    loop.seed_torch(how, spec.seed)
    init = inputs["init"]
    sets = [inputs[f"data.{i}"] for i in range(len(spec.mix))]

    def loaded(lora: Lora | None = None) -> Decoder:
        return device.place_decoder(folder.load_decoder(init / "model", lora, spec.seed), how, spec.numerics, spec.blockwise)

    def pairs_of(roles: list[Path], mix: list[float], single: bool) -> batches.Pairs:
        lists = spec.loss_type == "irpo"
        return batches.load_pairs(roles, mix, init, spec.seed, spec.max_length, "prefer", spec.few_shot, lists, single)

    policy = loaded(spec.lora)
    setup = Setup(
        spec=spec,
        pairs=pairs_of(sets, spec.mix, bool(spec.retain_weight)),
        policy=policy,
        reference=None if spec.loss_type in REFERENCE_FREE else loaded().requires_grad_(False),
        pass_tokens=how.micro_batch_tokens,
        dtype=getattr(torch, spec.dtype),
    )
    held_out = None
    if "validation" in inputs:
        held_out = pairs_of([inputs["validation"]], [1.0], False)

    def evaluate() -> dict[str, float]:
        assert held_out is not None
        return {f"eval_{name}": value for name, value in metrics_by_rater(setup._replace(pairs=held_out)).items()}

    def save(path: Path) -> None:
        folder.save_decoder(policy, path, tokenizer.tokenizer_folder(init))

    job = loop.TrainingJob(
        spec,
        policy,
        spec.steps,
        step_gradient=lambda step: step_gradient(setup, step),
        save=save,
        evaluate=evaluate if held_out else None,
        setup=setup,
    )
    result = run(job, out, how)
    save(out / "model")
    loop.write_throughput(out, result, policy, setup.dtype)
    parameters = sum(p.numel() for p in policy.parameters())
    counts = {"pairs": len(setup.pairs.prompts), "parameters": parameters}
    return {"steps": spec.steps, "tokens": result.tokens, **counts, **metrics.round_values(result.evaluated)}


def step_gradient(setup: Setup, step: int) -> dict[str, float]:
    """Accumulate the gradient of step `step` of 1..steps. Returns loss, TRL's rewards/* and logps/* over the pairs of the step,
    and tokens of this step."""
    spec, size = setup.spec, setup.spec.pairs_per_step
    places = batches.rows_between(len(setup.pairs.prompts), spec.seed, (step - 1) * size, step * size)
    return {**pair_metrics(setup, places, backward=True), "tokens": setup.pairs.count_tokens(places)}


def metrics_by_rater(setup: Setup) -> dict[str, float]:
    """`pair_metrics` of all pairs, and where they have raters the accuracy of each, `rewards/accuracies/<rater>`."""
    raters = np.array([row.rater for row in setup.pairs.rows])
    each = {name: np.flatnonzero(raters == name) for name in sorted(set(raters.tolist()) - {""})}
    accuracy = "rewards/accuracies"
    return {
        **pair_metrics(setup, np.arange(len(raters))),
        **{f"{accuracy}/{name}": pair_metrics(setup, places)[accuracy] for name, places in each.items()},
    }


def pair_metrics(setup: Setup, places: np.ndarray, backward: bool = False) -> dict[str, float]:
    """Means over the pairs `places` (N,): loss; rewards/chosen, rewards/rejected and their rewards/margins, in beta times nats;
    rewards/accuracies, the share whose chosen completion has the greater reward; logps/chosen and logps/rejected, in nats per
    completion; of the rows with one completion retain_nll, in nats per token. With `backward` the gradient of the loss is
    accumulated on the policy."""
    mean_tokens = float(np.mean([len(setup.pairs.chosen[i]) for i in places]))
    is_kto, kl = setup.spec.loss_type == "kto", torch.zeros(())
    paired = sum(bool(setup.pairs.rows[i].rejected) for i in places.tolist())

    def values(piece: np.ndarray) -> dict[str, Tensor]:
        logps = pair_logps(setup, piece, mean_tokens, kl)
        of_lists = list_losses(setup, piece) if any(map(setup.pairs.behind, piece)) else None
        losses = preference_losses(setup.spec, logps, of_lists)
        found = logged_values(setup.spec, losses, logps)
        return retained_values(setup, piece, found, logps, (paired, len(places))) if setup.spec.retain_weight else found

    def estimate_kl() -> None:
        nonlocal kl
        kl = kto_reference_point(setup, places) if is_kto else kl

    means = loop.mean_over_pairs(setup.policy, setup.pairs, places, setup.pass_tokens, values, backward, estimate_kl)
    return {**means, "kl": kl.item()} if is_kto else means


def logged_values(spec: PreferSpec, of_pairs: Tensor, logps: Logps) -> dict[str, Tensor]:
    """Logged values of n pairs with these losses, each (n,)."""
    chosen, rejected = implicit_rewards(spec, logps)
    return {
        "loss": of_pairs,
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/margins": chosen - rejected,
        "rewards/accuracies": (chosen > rejected).float(),
        "logps/chosen": logps.chosen,
        "logps/rejected": logps.rejected,
    }


def retained_values(
    setup: Setup, piece: np.ndarray, found: dict[str, Tensor], logps: Logps, counts: tuple[int, int]
) -> dict[str, Tensor]:
    """The same where some of the rows have one completion: their loss is its likelihood, and no other value counts them.
    `counts`: pairs of the step, and rows; values are scaled so that their mean over rows is the mean over those that they are
    of."""
    (paired, rows), nll = counts, -logps.chosen / logps.chosen_tokens
    kept = torch.tensor([not setup.pairs.rows[i].rejected for i in piece.tolist()], device=nll.device)
    scaled = {name: torch.where(kept, 0.0, value) * (rows / max(paired, 1)) for name, value in found.items()}
    loss = torch.where(kept, setup.spec.retain_weight * nll, found["loss"])
    return {**scaled, "loss": loss, "retain_nll": torch.where(kept, nll, 0.0) * (rows / max(rows - paired, 1))}


def list_losses(setup: Setup, piece: np.ndarray) -> Tensor:
    """IRPO's loss of each ranked list of `piece`, (n,)."""
    pairs, places = setup.pairs, piece.tolist()
    lists = [[pairs.chosen[i], pairs.rejected[i], *pairs.behind(i)] for i in places]
    given = [pairs.prompts[i] for i, one in zip(places, lists, strict=True) for _ in one], [text for one in lists for text in one]
    assert setup.reference is not None
    with torch.no_grad():
        before = completion_logps(setup.reference, *given, setup.dtype)
    ratios = completion_logps(setup.policy, *given, setup.dtype) - before
    each = ratios.split([len(one) for one in lists])
    return torch.cat([ranked_losses(setup.spec.beta, of_list[None]) for of_list in each])


def pair_logps(setup: Setup, piece: np.ndarray, mean_tokens: float, kl: Tensor) -> Logps:
    """Log-probabilities of the pairs `piece` (n,) under policy and reference."""
    pairs, chosen_of = setup.pairs, piece.tolist()
    prompts = [pairs.prompts[i] for i in chosen_of] * 2
    completions = [pairs.chosen[i] for i in chosen_of] + [pairs.rejected[i] for i in chosen_of]
    own = completion_logps(setup.policy, prompts, completions, setup.dtype)
    other = torch.zeros_like(own)
    if setup.reference is not None:
        with torch.no_grad():
            other = completion_logps(setup.reference, prompts, completions, setup.dtype)
    lengths = torch.tensor([len(tokens) for tokens in completions], dtype=torch.float32, device=own.device)
    count = len(chosen_of)
    return Logps(
        chosen=own[:count],
        rejected=own[count:],
        ref_chosen=other[:count],
        ref_rejected=other[count:],
        chosen_tokens=lengths[:count],
        rejected_tokens=lengths[count:],
        mean_tokens=mean_tokens,
        kl=kl,
    )


def completion_logps(decoder: Decoder, prompts: list[list[int]], completions: list[list[int]], dtype: torch.dtype) -> Tensor:
    """The log-probability (2 n,) float32 of each whole completion after its prompt, in nats; row i and row n + i are a pair."""
    tokens, lengths = batches.pad_completions(completions, decoder.head().device)
    if decoder.sums is None:
        return shared_prompts.token_logps(decoder, prompts, tokens, lengths, dtype).sum(1)
    order = torch.arange(len(prompts)).view(2, -1).T.flatten()
    given = [prompts[i] for i in order.tolist()], tokens[order], lengths[order]
    found = shared_prompts.token_logps(decoder, *given, dtype, [2] * (len(order) // 2))
    return in_order(found, 1).view(-1, 2).T.flatten()


@torch.no_grad()
def kto_reference_point(setup: Setup, places: np.ndarray) -> Tensor:
    """kto's reference point, () float32 and at least 0: the mean log ratio of mismatched completions (arXiv:2402.01306, section
    4.1); each prompt of the step gets the two completions of the pair before it. Rows with one completion are left out."""
    by, pairs, total = functions(setup.spec.numerics), setup.pairs, torch.zeros(())
    places = places[[bool(pairs.rows[i].rejected) for i in places.tolist()]]
    shifted = np.roll(places, 1).tolist()
    moved = batches.Pairs(
        prompts=[pairs.prompts[i] for i in places],
        chosen=[pairs.chosen[i] for i in shifted],
        rejected=[pairs.rejected[i] for i in shifted],
        rows=[],
    )
    mismatched = setup._replace(pairs=moved)
    split = partial(batches.micro_batches, moved, np.arange(len(places)))
    for piece in distributed.shard_micro_batches(split, setup.pass_tokens, len(places)):
        chosen, rejected = pair_logps(mismatched, piece, 1.0, total).ratios()
        total = total + (by.total(chosen) + by.total(rejected)).cpu()
    return (distributed.all_reduce_sum(total) / max(2 * len(places), 1)).clamp(min=0).float().to(setup.policy.head().device)
