"""Credit of the turns of an episode: the sources that pay turns, and propagation, baseline, scale and mix with the outcome of the
advantage `turns`, and of its shorter forms `turn_returns` and `igpo`."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice, pairwise

import torch
from torch import Tensor

from interplay.core import random
from interplay.data.trajectory import joined_text
from interplay.rl import group_advantages, turn_credit_spec as specs
from interplay.rl.batch import Batch, Span, StepContext
from interplay.rollout.calls import matched, read_call
from interplay.tasks.transcripts import policy_turns

Paid = list[list[float | None]]
"""For each row what each of its turns is paid; None: the turn is not paid, and is not compared with those that are."""


def of_turns(batch: Batch) -> list[list[Span]]:
    """The spans of each row's turns, of episodes that have several."""
    assert batch.spans is not None
    return batch.spans


# Sources: what pays each turn, before it is propagated and compared.


def _reward(source: specs.RewardSource, batch: Batch, now: StepContext) -> Paid:
    return [[span.value for span in row] for row in of_turns(batch)]


def _environment(source: specs.PaidSource, batch: Batch, now: StepContext) -> Paid:
    assert batch.segments is not None
    paid: Paid = []
    for spans, segments in zip(of_turns(batch), batch.segments, strict=True):
        given = {one.turn: one.reward or 0.0 for one in segments if one.kind == "action"}
        paid.append([given.get(span.position, 0.0) for span in spans])
    return paid if source.last else [[*row[:-1], None] if row else [] for row in paid]


def _outcome(source: specs.OutcomeSource, batch: Batch, now: StepContext) -> Paid:
    rows = zip(of_turns(batch), batch.rewards.tolist(), strict=True)
    return [[*[None] * (len(spans) - 1), reward] if spans else [] for spans, reward in rows]


def _gain(source: specs.GainSource, batch: Batch, now: StepContext) -> Paid:
    """s_k - s_(k-1), s_k the mean log-probability of the gold answer after all text before turn k + 1."""
    asked = []
    for row, spans in enumerate(of_turns(batch)):
        answer = source.template.replace("{answer}", now.rows[int(batch.ids[row])].answer)
        asked.append((answer, [span.start for span in spans] if len(spans) > 1 else []))
    known = _appended(batch, now, asked, source.space)
    return [
        [*[after - before for before, after in pairwise(row)], *[None] * bool(spans)]
        for spans, row in zip(of_turns(batch), known, strict=True)
    ]


def _agreement(source: specs.AgreementSource, batch: Batch, now: StepContext) -> Paid:
    """q (s_k - s_(k-1)), s_k the mean log-probability of the row's own answer after turn k, s_0 after the prompt, q the share of
    the group's answers that are this one; and (1 - mix) q more for the last turn."""
    said = [verdict.said for verdict in batch.verdicts]
    counts: dict[int, Counter[str]] = {}
    for group, answer, counted in zip(batch.groups.tolist(), said, batch.baseline_mask().tolist(), strict=True):
        if answer and counted:
            counts.setdefault(group, Counter())[answer] += 1
    asked, shares = [], []
    for row, spans in enumerate(of_turns(batch)):
        given = counts.get(int(batch.groups[row]), Counter())
        shares.append(given[said[row]] / given.total() if given[said[row]] else 0.0)
        places = [0, *(span.end for span in spans)] if shares[-1] and len(spans) > 1 else []
        asked.append((source.template.replace("{answer}", said[row]), places))
    paid: Paid = []
    known = _appended(batch, now, asked)
    for spans, share, likelihoods in zip(of_turns(batch), shares, known, strict=True):
        gains = [share * (after - before) for before, after in pairwise(likelihoods)] or [0.0] * len(spans)
        paid.append([*gains[:-1], gains[-1] + (1 - source.mix) * share] if gains else [])
    return paid


def _appended(
    batch: Batch, now: StepContext, asked: Sequence[tuple[str, Sequence[int]]], space: str = "logprob"
) -> list[list[float]]:
    """Of each row's text the mean log-probability, or its exponential, behind its prompt and as many of its tokens as each of the
    places says."""
    contexts: list[list[int]] = []
    texts: list[list[int]] = []
    for row, (text, places) in enumerate(asked):
        written, tokens = batch.tokens[row].tolist(), now.encode(text) if places else []
        contexts += [[*batch.prompts[row], *written[:place]] for place in places]
        texts += [tokens] * len(places)
    known = now.likelihood(contexts, texts) if contexts else []
    values = iter(now.by.exp(torch.tensor(known, dtype=torch.float64)).tolist() if space == "prob" else known)
    return [list(islice(values, len(places))) for _, places in asked]


def _feedback(source: specs.FeedbackSource, batch: Batch, now: StepContext) -> Paid:
    """log p(next turn | what was read) - log p(next turn | placeholder), means over its tokens."""
    filler = now.encode(source.placeholder)
    contexts, texts = [], []
    for row, spans in enumerate(of_turns(batch)):
        prompt, written = batch.prompts[row], batch.tokens[row].tolist()
        for span, following in pairwise(spans):
            read = following.start - span.end
            instead = (filler + [filler[-1]] * read)[:read]
            before = [*prompt, *written[: span.end]]
            contexts += [[*before, *written[span.end : following.start]], [*before, *instead]]
            texts += [written[following.start : following.end]] * 2
    known = iter(now.likelihood(contexts, texts) if contexts else [])
    return [[*[next(known) - next(known) for _ in spans[1:]], *[None] * bool(spans)] for spans in of_turns(batch)]


def _calls(source: specs.CallsSource, batch: Batch, now: StepContext) -> Paid:
    assert batch.segments is not None
    paid: Paid = []
    for row, (spans, segments) in enumerate(zip(of_turns(batch), batch.segments, strict=True)):
        acted = {one.turn: one.text if one.call is None else one.call for one in segments if one.kind == "action"}
        calls = [read_call(acted.get(span.position, "")) for span in spans]
        golds = [read_call(turn) for turn in policy_turns(now.rows[int(batch.ids[row])].solution)]
        found = iter(matched([*filter(None, calls)], [*filter(None, golds)], source.assignment == "soft", now.by))
        each: list[float | None] = [next(found) if call else 0.0 for call in calls]
        paid.append([*each[:-1], None] if calls and calls[-1] is None else each)
    return paid


def _judged(source: specs.JudgeSource, batch: Batch, now: StepContext) -> Paid:
    assert batch.segments is not None
    rows, texts = [], []
    for row, (spans, segments) in enumerate(zip(of_turns(batch), batch.segments, strict=True)):
        for span in spans:
            before = [one for one in segments if (one.turn, one.kind == "observation") <= (span.position, False)]
            rows.append(now.rows[int(batch.ids[row])])
            texts.append(joined_text(before))
    scores = iter(now.judge(source.judge, rows, texts) if texts else [])
    return [list(islice(scores, len(spans))) for spans in of_turns(batch)]


SOURCES: dict[str, Callable[..., Paid]] = {
    "reward": _reward,
    "environment": _environment,
    "outcome": _outcome,
    "information_gain": _gain,
    "agreement": _agreement,
    "feedback": _feedback,
    "gold_calls": _calls,
    "judge": _judged,
}


def paid_by(source: specs.Source, batch: Batch, now: StepContext) -> Paid:
    """What a source pays, but for its weight; 0 where its gate is closed."""
    paid = SOURCES[source.name](source, batch, now)
    if source.gate is None:
        return paid
    opened = [reward >= source.gate for reward in batch.rewards.tolist()]
    return [[value if is_open or value is None else 0.0 for value in row] for is_open, row in zip(opened, paid, strict=True)]


def added(sources: Sequence[specs.Source], each: Sequence[Paid]) -> Paid:
    """The weighted sum; None where no source pays a turn."""
    total: Paid = []
    for rows in zip(*each, strict=True):
        total.append([])
        for values in zip(*rows, strict=True):
            known = [source.weight * value for source, value in zip(sources, values, strict=True) if value is not None]
            total[-1].append(random.sum_in_order(known) if known else None)
    return total


# Propagation.


def returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """R_t = sum over k >= t of gamma^(k - t) r_k."""
    found: list[float] = []
    total = 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        found.append(total)
    return found[::-1]


def estimates(rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float) -> list[float]:
    """sum_l (gamma lam)^l delta_(t+l), delta_t = r_t + gamma V_(t+1) - V_t, V 0 behind the last turn."""
    deltas = [r + gamma * later - v for r, v, later in zip(rewards, values, [*values[1:], 0.0], strict=True)]
    return returns(deltas, gamma * lam)


def propagated(how: specs.Propagation, paid: Paid, batch: Batch) -> Paid:
    """The values of turns; of `broadcast` one for each row."""
    if isinstance(how, specs.Alone):
        return paid
    each = [[value or 0.0 for value in row] for row in paid]
    if isinstance(how, specs.Broadcast):
        return [[math.fsum(row)] * bool(row) for row in each]
    if isinstance(how, specs.TurnGae):
        rows = zip(each, turn_values(batch), strict=True)
        return [list(estimates(row, values, how.gamma, how.lam)) for row, values in rows]
    found = [returns(row, how.gamma) for row in each]
    if how.rescale == "none":
        return [list(row) for row in found]
    return [[value / math.sqrt(len(row) - t) for t, value in enumerate(row)] for row in found]


def turn_values(batch: Batch) -> list[list[float]]:
    """The critic's value of the state before each turn."""
    assert batch.values is not None
    return [[float(batch.values[row, span.start]) for span in spans] for row, spans in enumerate(of_turns(batch))]


# Baseline and scale.


def compared(
    batch: Batch,
    values: Sequence[Sequence[float | None]],
    numbers: Sequence[Sequence[int]] | None = None,
    scale: str = "deviation",
    *,
    baseline: str = "group",
    leave_one_out: bool = False,
    epsilon: float = group_advantages.EPSILON,
) -> list[list[float]]:
    """Each value less the mean (of the others, if `leave_one_out`) of its set, over the set's spread: the values of its group, or
    of its group and number; of its seat; of the batch. 0 where there is none. Rows that do not count are compared with those that
    do. With baseline none only scaled, over the batch."""
    places = [(row, i) for row, of_row in enumerate(values) for i, value in enumerate(of_row) if value is not None]
    found = [[0.0] * len(of_row) for of_row in values]
    if not places:
        return found
    rows = torch.tensor([row for row, _ in places])
    flat = torch.tensor([values[row][i] for row, i in places], dtype=torch.float64)
    number = torch.tensor([numbers[row][i] for row, i in places]) if numbers else torch.zeros_like(rows)
    member = batch.groups[rows] * (number.max() + 1) + number
    if baseline in ("batch", "none"):
        member = torch.zeros_like(rows)
    elif baseline == "seat":
        assert batch.seats is not None
        member = batch.seats[rows]
    counted = batch.baseline_mask()[rows]
    centred, deviation = group_advantages.standardised(flat, member, counted)
    if leave_one_out:
        centred = group_advantages.left_out(flat, member, counted)
    if baseline == "none":
        centred = flat
    if scale == "max_abs":
        _, which = torch.unique(member, return_inverse=True)
        sizes = torch.zeros(int(which.max()) + 1, dtype=torch.float64)
        deviation = sizes.scatter_reduce(0, which[counted], centred[counted].abs(), "amax")[which]
    if scale != "none":
        centred = group_advantages.scaled(centred, deviation, epsilon)
    for (row, i), value in zip(places, centred.tolist(), strict=True):
        found[row][i] = value
    return found


def _compared(spec: specs.TurnsAdvantage, batch: Batch, values: Paid) -> list[list[float]]:
    numbers = None
    if spec.baseline == "position":
        numbers = [[span.position for span in row] for row in of_turns(batch)]
    elif spec.baseline == "state":
        known: dict[str, int] = {}
        numbers = [[known.setdefault(text, len(known)) for text in row] for row in states(batch)]
    return compared(
        batch, values, numbers, spec.scale, baseline=spec.baseline, leave_one_out=spec.leave_one_out, epsilon=spec.std_epsilon
    )


def states(batch: Batch) -> list[list[str]]:
    """What was read last before each turn; nothing before the first one, which is the same for all of a group."""
    assert batch.segments is not None
    found = []
    for spans, segments in zip(of_turns(batch), batch.segments, strict=True):
        read: dict[int, str] = {}
        for one in segments:
            if one.kind == "observation":
                read[one.turn + 1] = read.get(one.turn + 1, "") + one.text
        found.append([read.get(span.position, "") for span in spans])
    return found


def kept(values: Sequence[Sequence[float]], paid: Paid) -> Paid:
    """The values of the turns that are paid."""
    rows = zip(values, paid, strict=True)
    return [[None if old is None else new for new, old in zip(*row, strict=True)] for row in rows]


# All of it.


def earned(spec: specs.TurnsAdvantage, batch: Batch, now: StepContext) -> Paid:
    """What the turns are paid, each source compared by itself where the spec says so."""
    each = [paid_by(source, batch, now) for source in spec.sources]
    if spec.compare == "sources":
        each = [kept(_compared(spec, batch, paid), paid) for paid in each]
    return added(spec.sources, each)


def credit(spec: specs.TurnsAdvantage, batch: Batch, paid: Paid) -> list[list[float]]:
    """The advantage of each turn of each row, from what `earned` says that turns are paid."""
    before: Paid = [list(row) for row in _compared(spec, batch, paid)] if spec.compare == "paid" else paid
    values = propagated(spec.propagation, before, batch)
    found = _compared(spec, batch, values) if spec.compare == "propagated" else [[v or 0.0 for v in row] for row in values]
    if isinstance(spec.propagation, specs.Broadcast):
        found = [row * len(spans) for row, spans in zip(found, of_turns(batch), strict=True)]
    return found if spec.outcome is None else mixed(spec, spec.outcome, batch, found, paid)


def mixed(
    spec: specs.TurnsAdvantage, how: specs.OutcomeMix, batch: Batch, turns: list[list[float]], paid: Paid
) -> list[list[float]]:
    """The turns' advantages with that of their episode."""
    worth = batch.rewards.tolist() if how.of == "reward" else [math.fsum(v or 0.0 for v in row) for row in paid]
    alone = [[value] for value in worth]
    found = compared(batch, alone, None, how.scale, leave_one_out=spec.leave_one_out, epsilon=spec.std_epsilon)
    episodes = [value for (value,) in found]
    if how.mix == "sum":
        return [[how.weight * e + how.turns * t for t in row] for e, row in zip(episodes, turns, strict=True)]
    signs = [math.copysign(1.0, e) for e in episodes]
    return [
        [how.weight * e * max(0.0, 1 + how.turns * sign * t) for t in row]
        for e, sign, row in zip(episodes, signs, turns, strict=True)
    ]


def by_turns(spec: specs.TurnsAdvantage | specs.TurnAdvantage | specs.GainAdvantage, batch: Batch, now: StepContext) -> Tensor:
    """(N,T) float32: tokens of a turn get its advantage."""
    whole = spec if isinstance(spec, specs.TurnsAdvantage) else spec.as_turns()
    return placed(batch, credit(whole, batch, earned(whole, batch, now)))


def placed(batch: Batch, values: Sequence[Sequence[float]], following: bool = False) -> Tensor:
    """A value for each span as (N,T) float32: that of every token of the span, 0 elsewhere; or with `following` for each token
    the sum over the spans that end behind it."""
    found = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    for row, (spans, of_row) in enumerate(zip(of_turns(batch), values, strict=True)):
        for span, value in zip(spans, of_row, strict=True):
            if following:
                found[row, : span.end] += value
            else:
                found[row, span.start : span.end] = value
    return (found * batch.mask()).float()


def critic_targets(batch: Batch, paid: Paid, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """What a critic of turns learns of what they are paid: (N,T) float64 lambda-returns, at the first token of each turn, and
    which tokens those are."""
    mask = torch.zeros(batch.tokens.shape, dtype=torch.bool)
    targets = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    each = [[value or 0.0 for value in row] for row in paid]
    for row, (spans, rewards, values) in enumerate(zip(of_turns(batch), each, turn_values(batch), strict=True)):
        for span, value, gain in zip(spans, values, estimates(rewards, values, gamma, lam), strict=True):
            mask[row, span.start] = True
            targets[row, span.start] = value + gain
    return targets, mask
