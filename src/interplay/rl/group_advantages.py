"""Advantages that compare completions of one prompt: group statistics, other baselines, shaped group advantages."""

import math
from collections import Counter

import torch
from torch import Tensor

from interplay.kernels import exact
from interplay.rl import advantage_spec as specs
from interplay.rl.batch import Batch, StepContext

# Advantages that compare whole completions of one prompt with each other.


EPSILON = 1e-4
"""Added to a standard deviation before dividing, as TRL does, where a member has no option for it."""


def group(spec: specs.GroupAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """Reward less its group's mean, over a standard deviation (GRPO, arXiv:2402.03300, eq. 3; "batch": arXiv:2508.08221;
    "none": arXiv:2503.20783)."""
    values = compared(spec, batch.rewards.double(), batch.groups, batch.baseline_mask(), now.by)
    if spec.accurate_gradient:
        differing = torch.isin(batch.groups, batch.groups[values != 0])
        values = values * len(batch) / differing.sum().clamp(min=1)
    return over_tokens(values, batch)


def compared(
    spec: specs.GroupAdvantage, rewards: Tensor, groups: Tensor, counted: Tensor | None = None, by: exact.Functions = exact.FAST
) -> Tensor:
    """The same for (N,) float64 rewards of rows in groups (N,); statistics are those of the rows that are `counted` (N,) bool."""
    centred, deviation = standardised(rewards, groups, counted)
    if spec.scale_rewards == "none":
        return centred
    if spec.scale_rewards == "batch":
        deviation = spread(rewards if counted is None else rewards[counted], by)
    return scaled(centred, deviation, spec.std_epsilon)


def scaled(centred: Tensor, deviation: Tensor, epsilon: float = EPSILON) -> Tensor:
    """Values over their deviation. Where that is 0 they stay as they are: 0, but for rows that are not counted, which `epsilon`
    would blow up."""
    return centred / torch.where(deviation == 0, 1.0, deviation + epsilon)


def over_tokens(values: Tensor, batch: Batch) -> Tensor:
    """(N,) values of rows as (N,T) float32 advantages: the same for each token of a completion, 0 past it."""
    return (values[:, None] * batch.mask()).float()


def means(values: Tensor, groups: Tensor, counted: Tensor | None = None, total: bool = False) -> Tensor:
    """(N,) float64: of each row its group's mean (or `total`) of the (N,) values of the rows that are `counted` (N,) bool; 0 of
    none."""
    counted = torch.ones(len(values), dtype=torch.bool) if counted is None else counted
    found, member = torch.unique(groups, return_inverse=True)
    empty, inside = torch.zeros(len(found), dtype=torch.float64), member[counted]
    sums = empty.index_add(0, inside, values[counted].double())
    sizes = empty.index_add(0, inside, torch.ones(len(inside), dtype=torch.float64))
    return (sums if total else sums / sizes.clamp(min=1))[member]


def spread(values: Tensor, by: exact.Functions = exact.FAST) -> Tensor:
    """Standard deviation of (M,) float64 values, Bessel-corrected; 0 of a single one."""
    if len(values) < 2:
        return torch.zeros((), dtype=torch.float64)
    return exact.root(by.variance(values)) if by.exact else values.std()


def standardised(values: Tensor, groups: Tensor, counted: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(M,) float64 values less their group's mean, and their group's standard deviation, Bessel-corrected as in TRL. Both are
    taken over the members that are `counted` (M,) bool; a group without any has mean and deviation 0.

    Equal values of a group get exactly zero: in floating point their mean may miss them by a rounding error, which the division
    by EPSILON would blow up."""
    counted = torch.ones(len(values), dtype=torch.bool) if counted is None else counted
    _, member = torch.unique(groups, return_inverse=True)
    groups_here = int(member.max()) + 1 if len(member) else 0
    empty, inside = torch.zeros(groups_here, dtype=torch.float64), member[counted]
    size = empty.index_add(0, inside, torch.ones(len(inside), dtype=torch.float64))
    mean = empty.index_add(0, inside, values[counted]) / size.clamp(min=1)
    low = torch.full_like(empty, torch.inf).scatter_reduce_(0, inside, values[counted], "amin")
    high = torch.full_like(empty, -torch.inf).scatter_reduce_(0, inside, values[counted], "amax")
    mean = torch.where(low == high, low, mean)
    centred = values - mean[member]
    variance = empty.index_add(0, inside, centred[counted] ** 2) / (size - 1).clamp(min=1)
    return centred, exact.root(variance)[member]


# Advantages with another baseline than the group's plain mean.


def leave_one_out(spec: specs.LeaveOneOutAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """r_i - mean of r_j, j != i, of the group (RLOO, arXiv:2402.14740, eq. 7): n / (n - 1) times what is above the mean; 0 alone.
    An excluded row is compared with all rows of the baseline."""
    counted = batch.baseline_mask()
    found = left_out(batch.rewards, batch.groups, counted)
    return over_tokens(over_batch(found, counted, now.by) if spec.normalize_advantages else found, batch)


def over_batch(values: Tensor, counted: Tensor, by: exact.Functions) -> Tensor:
    """(N,) float64 values less their mean and over their deviation, of the rows that are `counted` (N,) bool; unchanged where
    none is."""
    if not counted.any():
        return values
    return scaled(values - by.mean(values[counted]), spread(values[counted], by))


def left_out(rewards: Tensor, groups: Tensor, counted: Tensor) -> Tensor:
    """The same for (N,) float64 rewards of rows in groups (N,), of which those count that are `counted` (N,) bool: (N,)."""
    centred, _ = standardised(rewards, groups, counted)
    size = means(counted, groups, total=True)
    own = torch.where(counted, size / (size - 1).clamp(min=1), 1.0)
    return centred * own


def whitened(spec: specs.WhitenedAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """(r - baseline), less its mean over all tokens of the batch and over its deviation over them (REINFORCE++,
    arXiv:2501.03262). Deviations are Bessel-corrected; to the variance 1e-8 is added, as in verl."""
    if spec.baseline == "none":
        paid = earned(batch, now.by, spec.rewards)
        return whitened_over(returns(paid, batch.mask(), spec.gamma), batch.mask(), now.by).float()
    values = standardised(batch.rewards, batch.groups, batch.baseline_mask())[0]
    return whitened_over(values[:, None].expand(batch.tokens.shape), batch.mask(), now.by).float()


def earned(batch: Batch, by: exact.Functions, rewards: specs.Rewarded = "outcome") -> Tensor:
    """(N,T) float64: what each token earns. The reward of a row, or those of its spans or turns, come with their last tokens;
    terms of shapings where they belong. A row that goes on in a later step has no reward yet, and earns the terms alone."""
    last, rows = batch.last(), torch.arange(len(batch))
    found = torch.zeros(batch.tokens.shape, dtype=torch.float64) if batch.shaped is None else batch.shaped.double()
    if rewards == "outcome":
        before = by.summed(found, 1) - found[rows, last]
        found = found.clone()
        found[rows, last] = torch.where(batch.finished(), batch.rewards - before, found[rows, last])
        return found * batch.mask()
    assert batch.spans is not None
    whole = found.clone()
    for row, spans in enumerate(batch.spans):
        for span in spans:
            end = min(span.end, int(last[row]) + 1)
            if end > span.start:
                known = by.summed(found[row, span.start : end], 0) if batch.turns is not None else 0.0
                whole[row, end - 1] += span.value - known
    return whole * batch.mask()


def returns(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """(N,T) float64: sum over k >= t of gamma^(k - t) r_k, places outside the mask passed over."""
    found, running = torch.zeros_like(rewards), torch.zeros(len(rewards), dtype=rewards.dtype)
    for t in reversed(range(rewards.shape[1])):
        running = torch.where(mask[:, t], rewards[:, t] + gamma * running, running)
        found[:, t] = running
    return found * mask


def whitened_over(values: Tensor, mask: Tensor, by: exact.Functions) -> Tensor:
    """(N,T) float64 values less their mean over the mask (N,T) bool and over their deviation over it; 0 outside, and everywhere
    where all are equal."""
    inside, tokens = values[mask], mask.sum()
    if not len(inside) or inside.min() == inside.max():  # their mean may miss them by a rounding error
        return values.new_zeros(values.shape)
    mean = by.summed((values * mask).flatten(), 0) / tokens
    variance = by.summed(((values - mean) ** 2 * mask).flatten(), 0) / (tokens - 1)
    return torch.where(mask, (values - mean) / exact.root(variance + 1e-8), 0.0)


def length_baseline(spec: specs.LengthBaselineAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """r - sum l r / sum l over the group, l the length of each completion (OPO, arXiv:2505.23585, eq. 7)."""
    weights = batch.num_action_tokens() * batch.baseline_mask()
    total = means(weights.double(), batch.groups, total=True).clamp(min=1)
    baseline = means(weights * batch.rewards, batch.groups, total=True) / total
    equal = standardised(batch.rewards, batch.groups, batch.baseline_mask())[1] == 0
    return over_tokens(torch.where(equal & batch.baseline_mask(), 0.0, batch.rewards - baseline), batch)


def remax(spec: specs.RemaxAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """sum over k >= t of r_k, less the reward of the greedy completion (ReMax, arXiv:2310.10505)."""
    first: dict[int, int] = {}
    for row, i in enumerate(batch.ids.tolist()):
        first.setdefault(i, row)
    greedy = dict(zip(first, now.continued(batch, [(row, 0) for row in first.values()], 0).tolist(), strict=True))
    baseline = torch.tensor([greedy[i] for i in batch.ids.tolist()], dtype=torch.float64)
    mask = batch.mask()
    paid = returns(earned(batch, now.by), mask, 1.0)
    return ((paid - baseline[:, None]) * mask).float()


def gdpo(spec: specs.DecoupledAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """sum_k w_k (r_k - mean r_k) / (sd r_k + EPSILON) over the parts k of the reward, means and deviations of the group; less its
    mean and over its deviation over the batch (GDPO, arXiv:2601.05242)."""
    counted, mask = batch.baseline_mask(), batch.mask()
    total = torch.zeros(len(batch), dtype=torch.float64)
    for name, weight in spec.rewards.items():
        total += weight * compared(specs.GroupAdvantage(), batch.parts[name].double(), batch.groups, counted)
    if spec.whiten == "tokens":
        return whitened_over(total[:, None].expand(mask.shape), mask, now.by).float()
    return over_tokens(over_batch(total, counted, now.by) if spec.whiten == "completions" else total, batch)


def grpo_passk(spec: specs.MaximumAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """r_max - r_second for the best completion of a group, 0 for the others and where two are best (arXiv:2503.19595); over the
    group's deviation."""
    counted = batch.baseline_mask()
    _, deviation = standardised(batch.rewards, batch.groups, counted)
    found = torch.zeros(len(batch), dtype=torch.float64)
    for group in batch.groups.unique():
        here = ((batch.groups == group) & counted).nonzero()[:, 0]
        if len(here) > 1:
            best, second = batch.rewards[here].topk(2).values
            found[here[batch.rewards[here].argmax()]] = best - second
    return over_tokens(found / (deviation + EPSILON) if spec.scale_rewards == "group" else found, batch)


def optimal_token_baseline(spec: specs.TokenBaselineAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """G_t - sum_i G_t W_t / sum_i W_t over the rows i of the group that have a token at t, G the return and W_t = sum over j <=
    t of 1 - 2 pi_j + sum_v pi_j(v)^2, the squared norms of the gradients of the logits (verl; its epsilon 1e-8)."""
    mask, counted = batch.mask(), batch.baseline_mask()[:, None]
    paid = returns(earned(batch, now.by), mask, 1.0)
    weight = ((1 - 2 * now.by.exp(batch.logprobs.double()) + now.collisions(batch).double()) * mask).cumsum(1) * mask
    baseline = torch.zeros_like(paid)
    for group in batch.groups.unique():
        here = batch.groups == group
        among = here[:, None] & counted & mask
        baseline[here] = now.by.summed(paid * weight * among, 0) / (now.by.summed(weight * among, 0) + 1e-8)
        if spec.handle_zero_tail:
            baseline[here] *= among.sum(0) > 1
    return ((paid - baseline) * mask).float()


def pass_k(spec: specs.PassKAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """With R = 1 - C(wrong, k) / C(n, k), the pass@k of the group, and s = sqrt(R (1 - R)): (1 - R) / s for right completions
    and (1 - R - C(wrong - 1, k - 1) / C(n - 1, k - 1)) / s for wrong ones (arXiv:2508.10751, eq. 9 to 15); 0 where s is. Rows
    excluded get what their kind does."""
    right, counted = batch.right, batch.baseline_mask()
    found = torch.zeros(len(batch), dtype=torch.float64)
    for group in batch.groups.unique():
        here = batch.groups == group
        n, wrong = int((here & counted).sum()), int((here & counted & ~right).sum())
        k = min(spec.k, n)
        rate = 1 - math.comb(wrong, k) / math.comb(n, k)
        deviation = math.sqrt(rate * (1 - rate))
        if deviation:
            found[here & right] = (1 - rate) / deviation
            found[here & ~right] = (1 - rate - math.comb(wrong - 1, k - 1) / math.comb(n - 1, k - 1)) / deviation
    return over_tokens(found, batch)


def a_grae(spec: specs.GraeAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """(w / 2) A / sqrt(p) + ((1 - w) / 2) A / sqrt(1 - p), A the group's advantage, p its mean reward and w the batch's, both cut
    to [0, 1]; then min(1, w^alpha) times what is positive (A-GRAE, arXiv:2602.05548). 0 where p is 0 or 1."""
    counted = batch.baseline_mask()
    rate = means(batch.rewards, batch.groups, counted).clamp(0, 1)
    w = float(now.by.mean(batch.rewards[counted]).clamp(0, 1)) if counted.any() else 0.0
    plain = compared(specs.GroupAdvantage(), batch.rewards, batch.groups, counted)
    inside = (rate > 0) & (rate < 1)
    p = torch.where(inside, rate, 0.5)
    found = torch.where(inside, plain / 2 * (w / exact.root(p) + (1 - w) / exact.root(1 - p)), 0.0)
    return over_tokens(torch.where(found > 0, found * min(1.0, now.by.power(w, spec.alpha)), found), batch)


def tracked(spec: specs.TrackedAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """r - v, centred and scaled over the batch (arXiv:2509.13232, section 3.2), v the sampler's estimate before this step. Raises
    ValueError where the sampler makes none."""
    if batch.expected is None:
        raise ValueError("the advantage `tracked` needs a sampler that expects a pass rate of each prompt")
    values, counted = batch.rewards - batch.expected, batch.baseline_mask()
    if not counted.any():
        return over_tokens(torch.zeros_like(values), batch)
    deviation = spread(values[counted], now.by)
    centred = (values - now.by.mean(values[counted])) / (deviation + spec.std_epsilon)
    return over_tokens(centred if deviation > 0 else torch.zeros_like(values), batch)


# Group advantages that look at more than the reward: agreement of answers, likelihood, entropy.


LN2 = 0.6931471805599453


def answer_entropy(batch: Batch, by: exact.Functions = exact.FAST) -> Tensor:
    """(N,) float64, in bits: of the answers that the group's completions gave; no answer counts as one."""
    said: dict[int, Counter[str]] = {}
    for group, verdict in zip(batch.groups.tolist(), batch.verdicts, strict=True):
        said.setdefault(group, Counter())[verdict.said] += 1
    found = {}
    for group, counts in said.items():
        shares = torch.tensor(list(counts.values()), dtype=torch.float64) / counts.total()
        found[group] = float(-by.summed(shares * (by.log(shares) / LN2 if by.exact else shares.log2()), 0))
    return torch.tensor([found[group] for group in batch.groups.tolist()], dtype=torch.float64)


def copo(spec: specs.GlobalAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """w A + (1 - w) G, w = sigmoid(k (H - b)): A the group's advantage; G the prompt's reward, mean r (1 - lambda H),
    standardised over the step's prompts (COPO, arXiv:2508.04138)."""
    counted, disagreement = batch.baseline_mask(), answer_entropy(batch, now.by)
    local = compared(specs.GroupAdvantage(), batch.rewards, batch.groups, counted)
    of_prompt = means(batch.rewards, batch.groups, counted) * (1 - spec.consistency * disagreement)
    first = torch.tensor(list({group: row for row, group in reversed(list(enumerate(batch.groups.tolist())))}.values()))
    each = of_prompt[first] if len(batch) else of_prompt
    deviation = spread(each, now.by)
    prompts = (of_prompt - now.by.mean(each)) / (deviation + EPSILON) if deviation > 0 else torch.zeros_like(of_prompt)
    w = now.by.sigmoid(spec.steepness * (disagreement - spec.threshold))
    if spec.blend == "soft_zero":
        w = torch.where(batch.rewards == 0, 0.0, w)
    elif spec.blend == "soft_forced":
        w = torch.where(local == 0, 0.0, w)
    elif spec.blend != "soft":
        w = torch.full_like(w, float(spec.blend == "no_global"))
    return over_tokens(w * local + (1 - w) * prompts, batch)


def xrpo(spec: specs.SharpenedAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """A + min(max(lambda (1 - eta), 0), kappa A) for right completions with A > 0, eta = exp(s - mean s over the group), s the
    mean log-probability of the completion's tokens when it was sampled (XRPO, arXiv:2510.06672)."""
    plain = compared(specs.GroupAdvantage(), batch.rewards, batch.groups, batch.baseline_mask())
    s = now.by.summed(batch.logprobs * batch.mask(), 1).double() / batch.mask().sum(1).clamp(min=1)
    eta = now.by.exp(s - means(s, batch.groups, batch.baseline_mask()))
    bonus = torch.minimum((spec.scale * (1 - eta)).clamp(min=0), spec.cap * plain)
    return over_tokens(torch.where(batch.right & (plain > 0), plain + bonus, plain), batch)


def gtpo_entropy(spec: specs.EntropyAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """Rewards are 1 where right and else -1. Right completions gain b2 times their entropy over the mean of the group's right
    ones, wrong ones lose b2 times its inverse over the mean inverse of the wrong ones. Then less the mean, over the deviation.
    At level `token` all that is done for each place by itself, among the completions that reach it (GTPO and GRPO-S,
    arXiv:2508.04349)."""
    mask = batch.mask()
    entropy = now.entropy(batch).double().clamp(*spec.entropy_range)
    if spec.level == "sequence":
        mean = now.by.summed(entropy * mask, 1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        return over_tokens(_shaped(spec, batch, mean[:, 0], torch.ones(len(batch), dtype=torch.bool)), batch)
    found = torch.zeros(mask.shape, dtype=torch.float64)
    for place in range(mask.shape[1]):
        found[:, place] = _shaped(spec, batch, entropy[:, place], mask[:, place])
    return (found * mask).float()


def _shaped(spec: specs.EntropyAdvantage, batch: Batch, entropy: Tensor, alive: Tensor) -> Tensor:
    """(N,) advantages of rewards shaped by (N,) entropies, among the rows that are `alive` (N,) bool."""
    right, counted = batch.right, alive & batch.baseline_mask()
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
