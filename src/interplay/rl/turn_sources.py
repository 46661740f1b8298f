"""Sources of the credit of turns: what pays each turn of an episode, before it is propagated and compared (rl/turn_credit.py)."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from interplay.core import random
from interplay.data.trajectory import joined_text
from interplay.kernels import exact
from interplay.rl import turn_credit_spec as specs
from interplay.rl.batch import Batch, Span, StepContext
from interplay.tasks.transcripts import policy_turns
from interplay.tasks.verdict import BOX

Paid = list[list[float | None]]
"""For each row what each of its turns is paid; None: the turn is not paid, and is not compared with those that are."""


def of_turns(batch: Batch) -> list[list[Span]]:
    """The spans of each row's turns, of episodes that have several."""
    assert batch.spans is not None
    return batch.spans


# Sources.


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


class Called(NamedTuple):
    """A call: its name, and its parameters by name, or by place where they have none."""

    name: str
    given: dict[str, str]


CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)


def read_call(action: str) -> Called | None:
    """`name(a, b=c)`, or words, of which the first is the name; None: an answer, or nothing."""
    if BOX in action or not action.strip():
        return None
    found = CALL.fullmatch(action)
    name, *words = [found[1], *re.split(r",(?![^()\[\]{}]*[)\]}])", found[2])] if found else action.split()
    pairs = [word.partition("=") if found and re.match(r"\s*\w+=", word) else (str(i), "", word) for i, word in enumerate(words)]
    return Called(name, {key.strip(): value.strip() for key, _, value in pairs if value.strip()})


def similarity(call: Called, gold: Called) -> float:
    """0 for another name; else 1, plus the Jaccard index of the parameters' names, plus how many values are equal, over the most
    that this can be (MatchTIR's released `tool_similarity`)."""
    if call.name.lower() != gold.name.lower():
        return 0.0
    shared, both = call.given.keys() & gold.given.keys(), call.given.keys() | gold.given.keys()
    names = len(shared) / len(both) if both else 1.0
    equal = sum(call.given[key] == gold.given[key] for key in shared)
    return (1.0 + names + equal) / (2.0 + len(gold.given))


def matched(calls: Sequence[Called], golds: Sequence[Called], soft: bool, by: exact.Functions) -> list[float]:
    """What each call is worth against the gold calls."""
    if not (calls and golds):
        return [0.0] * len(calls)
    scores = [[similarity(call, gold) for gold in golds] for call in calls]
    if soft:
        table = torch.tensor(scores, dtype=torch.float64)
        return by.summed(transported(table, 0.1, by) * table, 1).tolist()
    found, taken = [0.0] * len(calls), set[int]()
    pairs = sorted((-scores[i][j], i, j) for i in range(len(calls)) for j in range(len(golds)))
    for score, i, j in pairs:
        if score and not found[i] and j not in taken:
            found[i] = -score
            taken.add(j)
    return found


def transported(scores: Tensor, regularisation: float, by: exact.Functions) -> Tensor:
    """(P,G) mass between P calls and G gold calls of equal masses that transports most similarity, with entropic regularisation
    (Sinkhorn's algorithm, 1,000 rounds at most)."""
    kernel = by.exp(scores / regularisation)
    rows, columns = (torch.full((n,), 1.0 / n, dtype=torch.float64) for n in scores.shape)
    left, right = torch.ones_like(rows), torch.ones_like(columns)
    for _ in range(1000):
        before = left
        right = columns / by.summed(kernel * left[:, None], 0)
        left = rows / by.summed(kernel * right, 1)
        if bool(((left - before).abs() <= 1e-12 * left).all()):
            break
    return left[:, None] * kernel * right


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
