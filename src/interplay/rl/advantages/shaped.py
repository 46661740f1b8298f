"""Group advantages that look at more than the reward: agreement of answers, likelihood, entropy."""

from collections import Counter

import torch
from torch import Tensor

from interplay.rl.advantages.group import EPSILON, compared, means, over_tokens, spread, standardised
from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.schema.advantage import EntropyAdvantage, GlobalAdvantage, GroupAdvantage, SharpenedAdvantage


def answer_entropy(batch: Batch) -> Tensor:
    """(N,) float64, in nats: of the answers that the group's completions gave; no answer counts as one."""
    said: dict[int, Counter[str]] = {}
    for group, verdict in zip(batch.groups.tolist(), batch.verdicts, strict=True):
        said.setdefault(group, Counter())[verdict.said] += 1
    found = {}
    for group, counts in said.items():
        shares = torch.tensor(list(counts.values()), dtype=torch.float64) / counts.total()
        found[group] = float(-(shares * shares.log()).sum())
    return torch.tensor([found[group] for group in batch.groups.tolist()], dtype=torch.float64)


def copo(spec: GlobalAdvantage, batch: Batch, now: Now) -> Tensor:
    """w A + (1 - w) G, w = sigmoid(k (H - b)): A the group's advantage; G the prompt's reward, mean r (1 - lambda H),
    standardised over the step's prompts (COPO, arXiv:2508.04138)."""
    counted, disagreement = batch.counted(), answer_entropy(batch)
    local = compared(GroupAdvantage(), batch.rewards, batch.groups, counted)
    of_prompt = means(batch.rewards, batch.groups, counted) * (1 - spec.consistency * disagreement)
    first = torch.tensor(list({group: row for row, group in reversed(list(enumerate(batch.groups.tolist())))}.values()))
    each = of_prompt[first] if len(batch) else of_prompt
    deviation = spread(each)
    prompts = (of_prompt - each.mean()) / (deviation + EPSILON) if deviation > 0 else torch.zeros_like(of_prompt)
    w = torch.sigmoid(spec.steepness * (disagreement - spec.threshold))
    if spec.blend == "soft_forced":
        w = torch.where(local == 0, 0.0, w)
    elif spec.blend != "soft":
        w = torch.full_like(w, float(spec.blend == "no_global"))
    return over_tokens(w * local + (1 - w) * prompts, batch)


def xrpo(spec: SharpenedAdvantage, batch: Batch, now: Now) -> Tensor:
    """A + min(max(lambda (1 - eta), 0), kappa A) where A > 0, eta = exp(s - mean s over the group), s the mean log-probability of
    the completion's tokens when it was sampled (XRPO, arXiv:2510.06672)."""
    plain = compared(GroupAdvantage(), batch.rewards, batch.groups, batch.counted())
    s = (batch.logprobs * batch.mask()).sum(1).double() / batch.mask().sum(1).clamp(min=1)
    eta = (s - means(s, batch.groups, batch.counted())).exp()
    bonus = torch.minimum((spec.scale * (1 - eta)).clamp(min=0), spec.cap * plain)
    return over_tokens(torch.where(plain > 0, plain + bonus, plain), batch)


def gtpo_entropy(spec: EntropyAdvantage, batch: Batch, now: Now) -> Tensor:
    """Rewards are 1 and -1. Right completions gain b2 times their entropy over the mean of the group's right ones, wrong ones
    lose b2 times its inverse over the mean inverse of the wrong ones. Then less the group's mean, over its deviation. At level
    `token` all that is done for each place by itself, among the completions that reach it (GTPO and GRPO-S, arXiv:2508.04349)."""
    mask = batch.mask()
    entropy = now.entropy(batch).double().clamp(*spec.entropy_range)
    if spec.level == "sequence":
        mean = (entropy * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        return over_tokens(_shaped(spec, batch, mean[:, 0], torch.ones(len(batch), dtype=torch.bool)), batch)
    found = torch.zeros(mask.shape, dtype=torch.float64)
    for place in range(mask.shape[1]):
        found[:, place] = _shaped(spec, batch, entropy[:, place], mask[:, place])
    return (found * mask).float()


def _shaped(spec: EntropyAdvantage, batch: Batch, entropy: Tensor, alive: Tensor) -> Tensor:
    """(N,) advantages of rewards shaped by (N,) entropies, among the rows that are `alive` (N,) bool."""
    right, counted = batch.rewards > 0, alive & batch.counted()
    rewards = torch.where(right, 1.0, -1.0).double()
    for among, weight, sign in ((right, entropy, 1.0), (~right, 1 / entropy.clamp(min=1e-6), -1.0)):
        if sign > 0 or spec.wrong:
            here = counted & among
            share = torch.where(here, weight / means(weight, batch.groups, here).clamp(min=1e-12), 0.0)
            rewards = rewards + sign * spec.bonus * share
    centred, deviation = standardised(rewards, batch.groups, counted)
    kinds = means(right.double(), batch.groups, counted)
    mixed = (kinds > 0) & (kinds < 1)  # among completions of one kind entropy alone would decide
    return torch.where(alive & mixed, centred / (deviation + EPSILON), 0.0)
