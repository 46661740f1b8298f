"""Shaping: terms added to the rewards of a step's completions, by content, length or turns; the table of shapings."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from interplay.core.extension import Extension
from interplay.core.random import sum_in_order
from interplay.rl import custom, edit_spec as specs, group_advantages
from interplay.rl.batch import Batch, StepContext, take
from interplay.rl.policy import kl_estimate

# Terms that look at what completions say: loops, auxiliary devices, uncertainty.


def loop_share(tokens: list[int]) -> float:
    """Share of a completion from the start of the loop that it ends in: a phrase whose exact copies, two or more, tile its end.
    Of several such phrases the one that covers most counts; 0 where there is none."""
    n, best = len(tokens), 0
    for length in range(1, n // 2 + 1):
        phrase, start = tokens[n - length :], n - length
        while start >= length and tokens[start - length : start] == phrase:
            start -= length
        if n - start >= 2 * length:
            best = max(best, n - start)
    return best / n if n else 0.0


def repetition(spec: specs.RepetitionShaping, batch: Batch, now: StepContext) -> torch.Tensor:
    """-weight times the share, or -weight for a truncated completion that loops (CAMPO, arXiv:2507.14683)."""
    written = [tokens[mine].tolist() for tokens, mine in zip(batch.tokens, batch.mask(), strict=True)]
    share = torch.tensor([loop_share(tokens) for tokens in written], dtype=torch.float64)
    return -spec.weight * (share if spec.mode == "share" else ((share > 0) & batch.truncated).double())


def gcpo(spec: specs.ContrastShaping, batch: Batch, now: StepContext) -> torch.Tensor:
    """bonus times the sign of (mean reward with the device - mean reward without) of the group, for completions that have it; 0
    within the margin and where a group has one kind only (GCPO, arXiv:2506.07160). Plus `length` l / limit."""
    uses = torch.tensor([spec.marker in text for text in batch.completions], dtype=torch.bool)
    with_it, without = (group_advantages.means(batch.rewards, batch.groups, rows) for rows in (uses, ~uses))
    difference, share = with_it - without, group_advantages.means(uses, batch.groups)
    clear = (share > 0) & (share < 1) & (difference.abs() > spec.margin)
    term = torch.where(uses & clear, spec.bonus * difference.sign(), 0.0)
    return term + spec.length * batch.num_action_tokens().double() / now.max_completion_length


def gap(spec: specs.GapShaping, batch: Batch, now: StepContext) -> torch.Tensor:
    """-r(y_ref), the reward of the attempt that the prompt shows; 0 where it shows none (PIT, arXiv:2310.00898)."""
    return torch.zeros(len(batch), dtype=torch.float64) if batch.shown is None else -batch.shown.nan_to_num(0.0)


def entropy_rank(spec: specs.RankShaping, batch: Batch, now: StepContext) -> torch.Tensor:
    """Among the truncated completions of a group in which none is right: `most` (1 - k / (K - 1)), k the place by how
    many of them a completion exceeds both in mean entropy and in the mean of its highest (R3, arXiv:2601.19620); equals share
    their mean place."""
    found = torch.zeros(len(batch), dtype=torch.float64)
    failed = group_advantages.means(batch.right, batch.groups) == 0
    rows = (failed & batch.truncated).nonzero()[:, 0]
    if not len(rows):
        return found
    entropy = now.entropy(take(batch, rows)).double()
    of_rows = [values[mine] for values, mine in zip(entropy, batch.mask()[rows], strict=True)]
    whole = torch.stack([now.by.mean(values) for values in of_rows])
    peak = torch.stack([now.by.mean(values.topk(max(1, int(spec.peak * len(values)))).values) for values in of_rows])
    groups = batch.groups[rows]
    for group in groups.unique():
        here = (groups == group).nonzero()[:, 0]
        if len(here) > 1:
            beats = (whole[here, None] > whole[here]) & (peak[here, None] > peak[here])
            score = beats.sum(1)
            place = (score[None] > score[:, None]).sum(1) + ((score[None] == score[:, None]).sum(1) - 1) / 2
            found[rows[here]] = spec.most * (1 - place / (len(here) - 1)).double()
    return found


# Terms that pay for or charge length.


SHORTEST = "hapo_length.shortest"
"""Name in the memory: tokens of each prompt's shortest right completion so far; infinite before there is one."""


def overlong(spec: specs.OverlongShaping, batch: Batch, now: StepContext) -> torch.Tensor:
    """0 up to limit - cache tokens, then falling in a line to -weight at the limit (DAPO, arXiv:2503.14476, eq. 13)."""
    cache = spec.cache if spec.cache_share is None else max(1, round(spec.cache_share * now.max_completion_length))
    over = (batch.lengths - (now.max_completion_length - cache)).clamp(0, cache)
    return -spec.weight * over.double() / cache


def hapo_length(spec: specs.HistoryLengthShaping, batch: Batch, now: StepContext) -> torch.Tensor:
    """With h the shortest right completion of the prompt in earlier steps and c = cos(min(l / h, 2) pi / 2): max(c, -0.7) for
    right completions, min(c, 0) for wrong ones, 0 while h is unknown; times w (arXiv:2505.11225). Updates h."""
    shortest = now.memory.per_prompt(SHORTEST, math.inf)
    h, length, good = shortest[batch.ids], batch.num_action_tokens().double(), batch.right
    c = now.by.cos((length / h).clamp(max=2) * math.pi / 2)
    term = torch.where(good, c.clamp(min=-0.7), c.clamp(max=0))
    shortest.scatter_reduce_(0, batch.ids[good], length[good], "amin")
    return spec.weight * torch.where(h.isinf(), 0.0, term)


def kimi_length(spec: specs.KimiLengthShaping, batch: Batch, now: StepContext) -> torch.Tensor:
    """lambda = 0.5 - (l - min) / (max - min) over the group for right completions, min(0, lambda) for wrong ones, 0 where all
    are of one length (arXiv:2501.12599, section 2.3.3)."""
    if now.progress < spec.warmup:
        return torch.zeros(len(batch), dtype=torch.float64)
    _, member = torch.unique(batch.groups, return_inverse=True)
    length, groups = batch.num_action_tokens().double(), int(member.max()) + 1 if len(batch) else 0
    least = torch.full((groups,), math.inf, dtype=torch.float64).scatter_reduce_(0, member, length, "amin")[member]
    most = torch.zeros(groups, dtype=torch.float64).scatter_reduce_(0, member, length, "amax")[member]
    term = 0.5 - (length - least) / (most - least).clamp(min=1)
    term = torch.where(batch.right, term, term.clamp(max=0))
    return spec.weight * torch.where(most == least, 0.0, term)


def length_units(spec: specs.TurnsShaping, batch: Batch, now: StepContext) -> torch.Tensor:
    """-weight for each unit beyond the first of a right completion."""
    further = torch.tensor([max(text.count(spec.marker) - 1, 0) for text in batch.completions], dtype=torch.float64)
    return -spec.weight * torch.where(batch.right, further, 0.0)


# A term of every token.


KL = "kl.coef"
"""Name in the memory: the coefficient as it is by now."""


def kl(spec: specs.KlShaping, batch: Batch, now: StepContext) -> torch.Tensor:
    """(N,T): -kl_coef times the estimate at each token; log pi is the engine's. Steers the coefficient."""
    mask, coefficient = batch.mask(), now.memory.notes.get(KL, spec.kl_coef)
    estimate = kl_estimate(spec.kl_estimator, now.reference(batch).double() - batch.logprobs.double(), now.by) * mask
    if spec.target_kl is not None and len(batch):
        mean = float(now.by.mean(now.by.summed(estimate, 1) / mask.sum(1).clamp(min=1)))
        error = min(max(mean / spec.target_kl - 1, -0.2), 0.2)
        now.memory.notes[KL] = coefficient * (1 + error * len(batch) / spec.horizon)
    return -coefficient * estimate


# Terms that look at the turns of an episode. They are paid turn by turn: each member gives for every row a term for each of its
# turns.


def attempts(spec: specs.AttemptsShaping, batch: Batch, now: StepContext) -> list[list[float]]:
    """At the last of n turns r (gamma^(n - 1) - 1) - repeats (1 - different answers / n), r being its reward (UFO,
    arXiv:2507.14295)."""
    terms = []
    for verdicts, spans in zip(batch.turns or [], batch.spans or [], strict=True):
        n = len(spans)
        given = {"".join(verdict.said.lower().split()) if verdict else "" for verdict in verdicts}
        last = spans[-1].value * (now.by.power(spec.gamma, n - 1) - 1) - spec.repeats * (1 - len(given) / n) if n else 0.0
        terms.append([0.0] * (n - 1) + [last] * (n > 0))
    return terms


def improvement(spec: specs.ImprovementShaping, batch: Batch, now: StepContext) -> list[list[float]]:
    """(first - 1) r1 at the first turn and alpha (r2 - r1) at the second (SCoRe, arXiv:2409.12917); 0 where there is one."""
    terms = []
    for spans in batch.spans or []:
        values = [span.value for span in spans]
        made = [(spec.first - 1) * value for value in values[:1]]
        terms.append([*made, *(spec.alpha * (value - values[0]) for value in values[1:])])
    return terms


# The tables of shapings, by the `name` of their spec: `(spec, batch, now) -> float64`, what is added to the rewards, (N,), or to
# what tokens earn, (N,T); or, of the turns of an episode, a term for each turn of each row. All read the rewards as they were; a
# member may write to `now.memory`.


MEMBERS: dict[str, Callable[..., torch.Tensor]] = {
    "overlong": overlong,
    "repetition": repetition,
    "hapo_length": hapo_length,
    "kimi_length": kimi_length,
    "gcpo": gcpo,
    "units": length_units,
    "entropy_rank": entropy_rank,
    "gap": gap,
    "kl": kl,
    "custom": custom.own_shaping,
}
OF_TURNS: dict[str, Callable[..., list[list[float]]]] = {"attempts": attempts, "improvement": improvement}


def shape_rewards(batch: Batch, now: StepContext) -> Batch:
    """The batch with the terms of the method's shapings added to its rewards, and each kept among their parts. Where episodes
    have turns, a turn earns its own terms, and the last one those of the whole episode, too."""
    if not now.method.shaping:
        return batch
    terms: dict[str, torch.Tensor] = {}
    of_turns: list[list[list[float]]] = []
    shaped = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    for spec in now.method.shaping:
        label = spec.function if isinstance(spec, Extension) else spec.name
        if label in OF_TURNS:
            turns = OF_TURNS[label](spec, batch, now)
            terms[label], each = torch.tensor([sum_in_order(row) for row in turns], dtype=torch.float64), at_turns(turns, batch)
        elif (made := MEMBERS[spec.name](spec, batch, now)).dim() == 2:
            by = now.by.summed
            each, terms[label] = made, by(made, 1)
            turns = [[float(by(each[row, s.start : s.end], 0)) for s in spans] for row, spans in enumerate(batch.spans or [])]
        else:
            terms[label] = made
            each = torch.zeros_like(shaped).scatter_(1, batch.last()[:, None], terms[label][:, None])
            at_the_end = zip(terms[label].tolist(), batch.turns or [], strict=False)
            turns = [[0.0] * (len(row) - 1) + [term] for term, row in at_the_end]
        of_turns.append(turns)
        shaped += each
    rewards = batch.rewards + now.by.summed(torch.stack(list(terms.values())), 0)
    found = replace(batch, rewards=rewards, parts={**batch.parts, **terms}, shaped=shaped)
    if batch.turns is None or batch.spans is None:
        return found
    paid = [
        [span._replace(value=span.value + sum_in_order(each)) for span, *each in zip(spans, *rows, strict=True)]
        for spans, *rows in zip(batch.spans, *of_turns, strict=True)
    ]
    return replace(found, spans=paid)


def at_turns(values: list[list[float]], batch: Batch) -> torch.Tensor:
    """(N,T): the term of each turn at its last token; of a turn that a row does not hold nothing."""
    found = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    for row, (spans, terms) in enumerate(zip(batch.spans or [], values, strict=True)):
        for span, term in zip(spans, terms, strict=True):
            if span.end > span.start:
                found[row, span.end - 1] += term
    return found
