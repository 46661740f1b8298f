"""The `prefer` stage: a policy learns from pairs to find the chosen completion likelier than the rejected one.

A step sees `pairs_per_step` pairs, in an order drawn from the seed, in passes of `micro_batch_tokens`; its loss is the mean over
them, whatever the passes. The two completions of a pair share one pass of their prompt."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from interplay.core.execution import Run
from interplay.core.metrics import round_values
from interplay.data import batches, tokenizer
from interplay.data import pairs as paired
from interplay.data.pairs import Pairs
from interplay.model import device, folder
from interplay.model.decoder import Decoder
from interplay.model.device import place_decoder
from interplay.model.shared_prompts import token_logps
from interplay.optim import distributed, optimizer
from interplay.train import loop
from interplay.train.loop import Job
from interplay.train.preference import Logps, losses, rewards
from interplay.train.spec import REFERENCE_FREE, PreferSpec


class Course(NamedTuple):
    """What is fixed before the first step."""

    spec: PreferSpec
    pairs: Pairs
    policy: Decoder
    reference: Decoder | None
    """Frozen; None where the loss has none."""
    pass_tokens: int
    dtype: torch.dtype


def run(spec: PreferSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Train and write `model/`, `metrics.jsonl` and `checkpoints/<step>/`, going on from `out/resume` where there is one.

    Roles: see PreferSpec. Raises UserError where a set holds no pairs or one is too long, PermanentError at the first loss or
    gradient that is not finite."""
    torch.set_num_threads(how.threads)
    torch.manual_seed(spec.seed)  # nothing here draws from torch's own stream, but it is saved, and starts at random otherwise
    init = inputs["init"]
    sets = [inputs[f"data.{i}"] for i in range(len(spec.mix))]
    policy = distributed.shard_model(place_decoder(folder.load_decoder(init / "model"), how), how)
    course = Course(
        spec=spec,
        pairs=paired.load_pairs(sets, spec.mix, init, spec.seed, spec.max_length, "prefer", spec.few_shot),
        policy=policy,
        reference=None
        if spec.loss_type in REFERENCE_FREE
        else place_decoder(folder.load_decoder(init / "model"), how).requires_grad_(False),
        pass_tokens=how.micro_batch_tokens,
        dtype=getattr(torch, spec.dtype),
    )
    held_out = None
    if "validation" in inputs:
        held_out = paired.load_pairs([inputs["validation"]], [1.0], init, spec.seed, spec.max_length, "prefer", spec.few_shot)

    def measure() -> dict[str, float]:
        assert held_out is not None
        return {f"eval_{name}": value for name, value in by_rater(course._replace(pairs=held_out)).items()}

    def save(path: Path) -> None:
        folder.save_decoder(policy, path, tokenizer.tokenizer_folder(init))

    job = Job(
        model=policy,
        optimizers=optimizer.build_optimizers(spec.optimizer, policy.named_parameters()),
        steps=spec.steps,
        schedule=spec.schedule,
        max_grad_norm=spec.optimizer.max_grad_norm,
        learn=lambda step: learn(course, step),
        save=save,
        checkpoints=spec.checkpoints,
        measure=measure if held_out else None,
    )
    ended = loop.train(job, out, how)
    save(out / "model")
    loop.tell_pace(out, ended, policy, course.dtype)
    parameters = sum(p.numel() for p in policy.parameters())
    counts = {"pairs": len(course.pairs.prompts), "parameters": parameters}
    return {"steps": spec.steps, "tokens": ended.tokens, **counts, **round_values(ended.measured)}


def learn(course: Course, step: int) -> dict[str, float]:
    """The gradient of step `step` of 1..steps. Returns loss, TRL's rewards/* and logps/* over the pairs of the step, and
    tokens of this step."""
    spec, size = course.spec, course.spec.pairs_per_step
    places = batches.rows_between(len(course.pairs.prompts), spec.seed, (step - 1) * size, step * size)
    return {**judged(course, places, learn=True), "tokens": course.pairs.count_tokens(places)}


def by_rater(course: Course) -> dict[str, float]:
    """What `judged` says of all pairs, and where they have raters the accuracy of each, `rewards/accuracies/<rater>`."""
    raters = np.array([row.rater for row in course.pairs.rows])
    each = {name: np.flatnonzero(raters == name) for name in sorted(set(raters.tolist()) - {""})}
    accuracy = "rewards/accuracies"
    return {
        **judged(course, np.arange(len(raters))),
        **{f"{accuracy}/{name}": judged(course, places)[accuracy] for name, places in each.items()},
    }


def judged(course: Course, places: np.ndarray, learn: bool = False) -> dict[str, float]:
    """Means over the pairs `places` (N,): loss; rewards/chosen, rewards/rejected and their rewards/margins, in beta times nats;
    rewards/accuracies, the share whose chosen completion has the greater reward; logps/chosen and logps/rejected, in nats per
    completion. With `learn` the gradient of the loss is added to the policy's."""
    mean_tokens = float(np.mean([len(course.pairs.chosen[i]) for i in places]))
    distributed.gather_parameters(course.policy)
    kl = torch.zeros(())
    sums: dict[str, float] = defaultdict(float)

    def one_pass(piece: np.ndarray) -> dict[str, Tensor]:
        with torch.set_grad_enabled(learn):
            logps = score(course, piece, mean_tokens, kl)
            of_pairs = losses(course.spec, logps)
        if learn:
            (of_pairs.sum() / len(places)).backward()
        return told(course.spec, of_pairs, logps)

    def attempt(tokens: int) -> None:
        one_pass(paired.micro_batches(course.pairs, places, tokens)[0])

    with (
        distributed.accumulate_gradient(course.policy) if learn else nullcontext(),
        device.report_out_of_memory("micro_batch_tokens", course.pass_tokens, attempt),
    ):
        if course.spec.loss_type == "kto":
            kl = divergence(course, places)
        for piece in dealt(course.pairs, places, course.pass_tokens):
            for name, value in one_pass(piece).items():
                sums[name] += value.detach().double().sum().item()
    means = {name: total / len(places) for name, total in distributed.all_reduce_dict(sums).items()}
    return {**means, "kl": kl.item()} if course.spec.loss_type == "kto" else means


def dealt(pairs: Pairs, places: np.ndarray, pass_tokens: int) -> Sequence[np.ndarray]:
    """Those of the `pieces` that fall to this process."""
    return distributed.shard_micro_batches(partial(paired.micro_batches, pairs, places), pass_tokens, len(places))


def told(spec: PreferSpec, of_pairs: Tensor, logps: Logps) -> dict[str, Tensor]:
    """What is logged of n pairs with these losses, each (n,)."""
    chosen, rejected = rewards(spec, logps)
    return {
        "loss": of_pairs,
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/margins": chosen - rejected,
        "rewards/accuracies": (chosen > rejected).float(),
        "logps/chosen": logps.chosen,
        "logps/rejected": logps.rejected,
    }


def score(course: Course, piece: np.ndarray, mean_tokens: float, kl: Tensor) -> Logps:
    """What policy and reference say of the pairs `piece` (n,)."""
    pairs, chosen_of = course.pairs, piece.tolist()
    prompts = [pairs.prompts[i] for i in chosen_of] * 2
    completions = [pairs.chosen[i] for i in chosen_of] + [pairs.rejected[i] for i in chosen_of]
    own = totals(course.policy, prompts, completions, course.dtype)
    other = torch.zeros_like(own)
    if course.reference is not None:
        with torch.no_grad():
            other = totals(course.reference, prompts, completions, course.dtype)
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


def totals(decoder: Decoder, prompts: list[list[int]], completions: list[list[int]], dtype: torch.dtype) -> Tensor:
    """The log-probability (n,) float32 of each whole completion after its prompt, in nats."""
    tokens, lengths = paired.pad_completions(completions, decoder.head().device)
    return token_logps(decoder, prompts, tokens, lengths, dtype).sum(1)


@torch.no_grad()
def divergence(course: Course, places: np.ndarray) -> Tensor:
    """kto's reference point, () float32 and at least 0: the mean log ratio of completions that belong to other prompts of the
    step (arXiv:2402.01306, section 4.1); each prompt is given the two of the pair before it."""
    pairs, total, shifted = course.pairs, torch.zeros(()), np.roll(places, 1).tolist()
    moved = Pairs(
        prompts=[pairs.prompts[i] for i in places],
        chosen=[pairs.chosen[i] for i in shifted],
        rejected=[pairs.rejected[i] for i in shifted],
        rows=[],
    )
    whole = course._replace(pairs=moved)
    for piece in dealt(moved, np.arange(len(places)), course.pass_tokens):
        chosen, rejected = score(whole, piece, 1.0, total).ratios()
        total = total + (chosen.sum() + rejected.sum()).cpu()
    return (distributed.all_reduce_sum(total) / (2 * len(places))).clamp(min=0).to(course.policy.head().device)
