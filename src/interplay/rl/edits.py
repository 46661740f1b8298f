"""Edits of a batch before it is trained on: rows added or dropped, tokens masked."""

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from interplay.core.model import Curve
from interplay.kernels import exact
from interplay.rl import custom, edit_spec as specs, losses
from interplay.rl.advantages import advantages
from interplay.rl.batch import Batch, StepContext, join, take
from interplay.rl.records import episode_of, row_note
from interplay.tasks.transcripts import BROKEN
from interplay.tasks.verdict import Verdict

# Rows added or dropped.


# Edits that add rows: past completions of the same prompt, and gold solutions.


Edited = tuple[Batch, Tensor, Tensor]
"""A batch, its advantages (N,T), and which tokens bear loss (N,T) bool."""
BUFFER = "replay"
"""Name in the memory: `<id>.<1 or 0>` -> past rows of a prompt that passed or failed, latest last."""
GOLD = Verdict(True, True, 1.0, "none")


def replay(spec: specs.Replay, batch: Batch, now: StepContext) -> Batch:
    """Groups of one kind with up to `rows` past rows of the other kind (R3, section 3.1); the completions that were sampled now
    are remembered."""
    buffer = now.memory.notes.setdefault(BUFFER, {})
    more = []
    for group in batch.groups.unique().tolist():
        here = (batch.groups == group).nonzero()[:, 0]
        kinds = set(batch.right[here].tolist())
        if len(kinds) == 1:
            other = not kinds.pop()
            past = buffer.get(f"{int(batch.ids[here[0]])}.{int(other)}", [])
            more += [_row(batch, int(here[0]), old, other, off_policy=torch.tensor([True])) for old in past[-spec.rows :]]
    for i in (batch.row >= 0).nonzero()[:, 0].tolist():
        kept = buffer.setdefault(f"{int(batch.ids[i])}.{int(batch.right[i])}", [])
        kept.append(row_note(batch, i))
        del kept[: -spec.keep]
    return join([batch, *more], now.pad, same_groups=True)


def replayed(spec: specs.Replay, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """Advantages of rows off policy times `scale`."""
    if batch.off_policy is None:
        return batch, advantage, bears
    return batch, torch.where(batch.off_policy[:, None], spec.scale * advantage, advantage), bears


def demonstrations(spec: specs.Demonstrations, batch: Batch, now: StepContext) -> Batch:
    """Groups with at most `switch_gate` successes give way to one row, the gold solution; excluded from the baseline, since it is
    compared with nothing (HPT, eq. 8)."""
    kept, gold = [], []
    for group in batch.groups.unique().tolist():
        here = (batch.groups == group).nonzero()[:, 0]
        if int(batch.right[here].sum()) > spec.switch_gate:
            kept.append(here)
        else:
            gold.append(_gold(batch, int(here[0]), now))
    rows = torch.cat(kept) if kept else torch.zeros(0, dtype=torch.int64)
    return join([take(batch, rows), *gold], now.pad, same_groups=True)


def demonstrated(spec: specs.Demonstrations, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """The advantage of gold solutions is `sft_loss_coef` at each token: at ratio 1 the gradient of their log-likelihood; with
    `own_mean` times the limit over their length."""
    if batch.excluded is None:
        return batch, advantage, bears
    scale = now.max_completion_length / batch.lengths if spec.own_mean else torch.ones(len(batch))
    gold = (spec.sft_loss_coef * scale)[:, None].to(advantage.dtype)
    theirs = batch.excluded & (batch.row < 0)  # a continuation's own rows may be excluded, too
    return batch, torch.where(theirs[:, None] & batch.mask(), gold, advantage), bears


def _row(batch: Batch, like: int, note: dict[str, Any], right: bool, **marks: Any) -> Batch:
    """A completion that was not sampled in this step as a row of the group of the row `like`: its `row` is -1. `marks` are
    `off_policy` or `excluded`."""
    one = take(batch, torch.tensor([like]))
    marks = {"prompts": one.prompts, **episode_of(note), **marks}
    return Batch(
        row=torch.tensor([-1]),
        ids=one.ids,
        groups=one.groups,
        expected=one.expected,
        tokens=torch.tensor([note["tokens"]]),
        lengths=torch.tensor([len(note["tokens"])]),
        logprobs=torch.tensor([note["logprobs"]]),
        truncated=torch.tensor([note["truncated"]]),
        completions=[note["completion"]],
        verdicts=[Verdict(*note["verdict"])],
        right=torch.tensor([right]),
        rewards=torch.tensor([note["reward"]], dtype=torch.float64),
        parts={name: torch.tensor([value], dtype=torch.float64) for name, value in note["parts"].items()},
        **marks,
    )


def _gold(batch: Batch, like: int, now: StepContext) -> Batch:
    """The gold solution as a row in place of the group of the row `like`."""
    text, tokens = now.gold(int(batch.ids[like]))
    note = {
        "tokens": tokens,
        "logprobs": [0.0] * len(tokens),
        "truncated": False,
        "completion": text,
        "verdict": GOLD,
        "reward": 1.0,
        "parts": dict.fromkeys(batch.parts, 1.0),
    }
    return _row(batch, like, note, True, excluded=torch.tensor([True]))


# Groups that tell nothing are dropped, and fresh ones drawn (DAPO, arXiv:2503.14476).


def informative(spec: specs.DynamicSampling, batch: Batch, now: StepContext) -> Tensor:
    """(N,) bool: rows of groups from which the policy would learn, since some token has an advantage. Completions with equal
    rewards have none, unless the advantage is of spans: these may differ where their means agree. By `acc`: rows of groups with
    right and wrong completions."""
    if spec.metric == "acc":
        return torch.isin(batch.groups, batch.groups[batch.right]) & torch.isin(batch.groups, batch.groups[~batch.right])
    found = advantages(now.method.advantage, batch, now)
    return torch.isin(batch.groups, batch.groups[(found != 0).any(1)])


def dynamic_sampling(spec: specs.DynamicSampling, batch: Batch, now: StepContext) -> Batch:
    """Keep informative groups only and draw as many fresh prompts as groups were lost, until the batch is full again or
    `max_num_gen_batches` rounds (the first one included) are spent (DAPO, arXiv:2503.14476, section 3.2)."""
    wanted = len(batch.groups.unique())
    kept = take(batch, informative(spec, batch, now).nonzero()[:, 0])
    left = math.inf if spec.max_num_gen_batches is None else spec.max_num_gen_batches - 1
    while left > 0 and (missing := wanted - len(kept.groups.unique())) > 0:  # a prompt may have several groups
        left -= 1
        fresh = now.draw(missing)
        kept = join([kept, take(fresh, informative(spec, fresh, now).nonzero()[:, 0])], now.pad)
    return kept


# Edits that choose or weigh tokens by entropy, by agreement, by what they say, or by a budget.


def token_budget(spec: specs.TokenBudget, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """The rows (in their order) that come first in an order drawn by seed and step, until their tokens that bear loss reach the
    budget (C3PO)."""
    order = torch.from_numpy(now.random("token_budget").permutation(len(batch)))
    sizes = bears.sum(1)[order]
    enough = int((sizes.cumsum(0) - sizes < spec.tokens).sum())
    rows = order[:enough].sort().values
    return take(batch, rows), advantage[rows], bears[rows]


def top_entropy(spec: specs.TopEntropy, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """Advantages of tokens below the quantile of entropy over those that bear loss become 0 (arXiv:2506.01939, eq. 5)."""
    if not bears.any():
        return batch, advantage, bears
    entropy = now.entropy(batch)
    least = now.by.quantile(entropy[bears].double(), 1 - spec.top_entropy_quantile)
    return batch, advantage * (entropy.double() >= least), bears


def uncertain_tokens(spec: specs.UncertainTokens, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """Only tokens that the sampling policy gave less than the threshold bear loss (SPO, arXiv:2505.23564)."""
    return batch, advantage, bears & (now.by.exp(batch.logprobs) < spec.threshold)


def information_mask(spec: specs.InformationMask, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """Tokens that begin behind `begin` and up to `end`, that included, bear no loss (SSRL, arXiv:2508.10874)."""
    information = re.compile(f"(?<={re.escape(spec.begin)}).*?(?:{re.escape(spec.end)}|\\Z)", re.DOTALL)
    bears = bears.clone()
    for row, (tokens, text) in enumerate(zip(batch.written(), batch.completions, strict=True)):
        starts = now.offsets(tokens, text)
        found = [match.span() for match in information.finditer(text)]
        inside = [place for place, start in enumerate(starts) if any(low <= start < high for low, high in found)]
        bears[row, inside] = False
    return batch, advantage, bears


def gtpo_conflict(spec: specs.ConflictTokens, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """Advantages less the price of entropy, times `positive` or `negative` at conflict tokens, twice where both ends make a token
    one (arXiv:2508.03772); rows above the entropy limit are dropped."""
    mean = now.by.summed(advantage, 1) / batch.mask().sum(1).clamp(min=1)
    times, weight = conflicts(batch, mean), torch.where(mean > 0, spec.positive, spec.negative)[:, None]
    weight = torch.where(times == 0, 1.0, torch.where(times == 1, weight, weight * weight))
    if spec.entropy_limit is not None:
        uncertain = now.by.summed(now.entropy(batch) * batch.mask(), 1) / batch.mask().sum(1).clamp(min=1)
        advantage = (advantage - spec.entropy_price * uncertain[:, None]) * (advantage != 0)
        rows = (uncertain < spec.entropy_limit).nonzero()[:, 0]
    else:
        rows = torch.arange(len(batch))
    return take(batch, rows), (advantage * weight)[rows], bears[rows]


def conflicts(batch: Batch, advantage: Tensor) -> Tensor:
    """(N,T) int64: from how many ends, start and end, a token of a completion with an advantage (N,) other than 0 is at the same
    place in one of the other sign of its group, as long as every place before (after) it is such a token, too."""
    found = torch.zeros(batch.tokens.shape, dtype=torch.int64)
    tokens = batch.written()
    for group in batch.groups.unique():
        here = (batch.groups == group).nonzero()[:, 0].tolist()
        sides = {sign: [i for i in here if float(advantage[i]) * sign > 0] for sign in (1, -1)}
        for sign, rows in sides.items():
            others = [tokens[i] for i in sides[-sign]]
            for i in rows:
                head = _run(tokens[i], others)
                tail = _run(tokens[i][::-1], [other[::-1] for other in others])
                found[i, :head] += 1
                found[i, len(tokens[i]) - tail : len(tokens[i])] += 1
    return found


def _run(tokens: list[int], others: list[list[int]]) -> int:
    """How many tokens from the start are each at their place in one of the others."""
    for place, token in enumerate(tokens):
        if not any(place < len(other) and other[place] == token for other in others):
            return place
    return len(tokens) if others else 0


# Episodes of several turns: those from which nothing is learnt, and what they read.


def _left_out(spec: specs.TurnFilter, batch: Batch, now: StepContext) -> Tensor:
    """(N,) bool: rows of episodes that the filter drops."""
    assert batch.segments is not None
    assert batch.spans is not None
    cut, void = list[bool](), list[bool]()
    for short, spans, segments in zip(batch.truncated.tolist(), batch.spans, batch.segments, strict=True):
        cut.append(short and spans[-1].end - spans[-1].start >= now.max_completion_length)
        unread = any(one.call == "" or (one.kind == "observation" and one.text == BROKEN) for one in segments)
        void.append(cut[-1] or unread)
    found = torch.tensor(void, dtype=torch.bool) & spec.void
    found |= batch.truncated & ~torch.tensor(cut, dtype=torch.bool) & spec.overrun
    return found | (~torch.isin(batch.groups, batch.groups[batch.right]) & spec.hopeless)


def turn_filter(spec: specs.TurnFilter, batch: Batch, now: StepContext) -> Batch:
    """Without the rows that are dropped, where these do not count."""
    return batch if spec.count else take(batch, (~_left_out(spec, batch, now)).nonzero()[:, 0])


def turns_filtered(spec: specs.TurnFilter, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """The same once advantages are known, where they count."""
    rows = (~_left_out(spec, batch, now)).nonzero()[:, 0] if spec.count else torch.arange(len(batch))
    return take(batch, rows), advantage[rows], bears[rows]


def observations(spec: specs.Observations, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """Tokens that were read bear loss, with the weight as their advantage; not of rows that bear none else."""
    if batch.observed is None or not spec.weight:
        return batch, advantage, bears
    read = batch.observed & bears.any(1)[:, None] & (torch.arange(bears.shape[1]) < batch.lengths[:, None])
    return batch, torch.where(read, torch.tensor(spec.weight, dtype=advantage.dtype), advantage), bears | read


# Down-sampling of rows by the variance of their advantages and of tokens by |advantage| * entropy (specs.D3S, arXiv:2509.22115).


def largest_variance(values: Tensor, count: int, by: exact.Functions = exact.FAST) -> Tensor:
    """Places (count,) of those among `values` (N,) whose variance no other `count` of them exceeds, smallest values first; equal
    values in the order given.

    They are the lowest few and the highest few: of values in order, exchanging an inner one for one further out never lowers the
    variance (PODS, arXiv:2504.13818). So count + 1 ways to split them are tried."""
    order = torch.argsort(values, stable=True)
    ordered = values[order].double() - by.mean(values.double())
    none, low = torch.zeros(1, dtype=torch.float64), torch.arange(count + 1)
    first = len(values) - count + low  # where the highest count - low begin
    sums, squares = (torch.cat((none, part.cumsum(0))) for part in (ordered, ordered**2))
    total, total_squares = (part[low] + part[-1] - part[first] for part in (sums, squares))
    lowest = int((total_squares - total**2 / max(count, 1)).argmax())
    return torch.cat((order[:lowest], order[len(order) - (count - lowest) :]))


def kept_rows(spec: specs.D3S, values: Tensor, groups: Tensor, share: float, by: exact.Functions = exact.FAST) -> Tensor:
    """Rows (M,) int64 in rising order, a `share` of all (of each group's), rounded up. values, groups (N,)."""
    blocks = [torch.arange(len(values))]
    if spec.scope == "group":
        blocks = [(groups == group).nonzero()[:, 0] for group in groups.unique()]
    chosen = [block[largest_variance(values[block], math.ceil(share * len(block)), by)] for block in blocks]
    return torch.cat(chosen).sort().values


def kept_tokens(score: Tensor, bears: Tensor, share: float) -> Tensor:
    """(N,T) bool: the `share` of the tokens in `bears` (N,T) that have the largest scores (N,T), rounded up; earlier ones among
    equals."""
    return losses.first(score, bears, math.ceil(share * int(bears.sum())))


def d3s(spec: specs.D3S, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """The rows kept, their advantages and which of their tokens bear loss, both (M,T). A row's advantage is the mean over its
    tokens; rows none of whose tokens bear loss are dropped before shares are taken."""
    rows = bears.any(1).nonzero()[:, 0]
    # Rows of equal advantage are in the order of their places in their groups, so that no prompt gives all or none of its own.
    rows = rows[torch.argsort(_places(batch.groups)[rows], stable=True)]
    values = now.by.summed(advantage[rows].double(), 1) / batch.num_action_tokens()[rows].clamp(min=1)
    if len(rows):
        rows = (
            rows[kept_rows(spec, values, batch.groups[rows], Curve.through(spec.samples).at(now.progress), now.by)].sort().values
        )
    batch, advantage, bears = take(batch, rows), advantage[rows], bears[rows]
    share = Curve.through(spec.tokens).at(now.progress)
    if share < 1 and len(rows):
        bears = kept_tokens(advantage.abs() * now.entropy(batch), bears, share)
    return batch, advantage, bears


def _places(groups: Tensor) -> Tensor:
    """(N,) number of each row within its group."""
    seen: Counter[int] = Counter()
    places = []
    for group in groups.tolist():
        places.append(seen[group])
        seen[group] += 1
    return torch.tensor(places, dtype=torch.int64)


# The tables of edits, by the `name` of their spec. An edit acts before advantages are known or after.
#
# Before: `(spec, batch, now) -> batch`: it may drop rows, and add rows with `now.draw(m)`.
#
# After: `(spec, batch, advantage, bears, now) -> (batch, advantage, bears)`: it may drop rows, change advantages (N,T) and say
# which tokens bear loss (N,T) bool; those that do not are in no mean of the loss either.


BEFORE: dict[str, Callable[..., Batch]] = {
    "dynamic_sampling": dynamic_sampling,
    "replay": replay,
    "demonstrations": demonstrations,
    "turn_filter": turn_filter,
}
AFTER: dict[str, Callable[..., Edited]] = {
    "d3s": d3s,
    "token_budget": token_budget,
    "top_entropy": top_entropy,
    "uncertain_tokens": uncertain_tokens,
    "information_mask": information_mask,
    "gtpo_conflict": gtpo_conflict,
    "replay": replayed,
    "demonstrations": demonstrated,
    "turn_filter": turns_filtered,
    "observations": observations,
}


def edits_before_advantage(batch: Batch, now: StepContext) -> Batch:
    """The edits of the method that act on the batch as it was drawn, in order."""
    for spec in now.method.edits:
        if isinstance(spec, specs.OwnEdit):
            batch = custom.own_edit(spec, batch, now) if custom.acts_before(spec) else batch
        elif spec.name in BEFORE:
            batch = BEFORE[spec.name](spec, batch, now)
    return batch


def edits_after_advantage(batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> Edited:
    """The edits of the method that act on a batch with its advantages, in order."""
    for spec in now.method.edits:
        if isinstance(spec, specs.OwnEdit):
            if not custom.acts_before(spec):
                batch, advantage, bears = custom.own_edit(spec, batch, advantage, bears, now)
        elif spec.name in AFTER:
            batch, advantage, bears = AFTER[spec.name](spec, batch, advantage, bears, now)
    return batch, advantage, bears
