"""First requests of a step: how many completions each prompt gets (allocation) and from which text (prompting)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy import special

from interplay.core import extension, model
from interplay.core.keys import filled
from interplay.core.model import Curve
from interplay.core.random import sum_in_order
from interplay.kernels import exact
from interplay.rl import request_spec as specs
from interplay.rl.batch import Batch, StepContext, take
from interplay.tasks.transcripts import MARK
from interplay.tasks.verdict import Row


class SamplingRequest(NamedTuple):
    """Completions to sample of one prompt."""

    slot: int
    """Place of the prompt among those drawn."""
    n: int
    sampling: str
    """Text that the completions are sampled from."""
    training: str
    """Text that they are credited to. Where it is another, the rows are off policy."""
    given: str = ""
    """What a completion begins with when it is judged, but not when it is learnt; both texts end with it."""
    group: int | None = None
    """Number of its group; None: that of the slot. Requests of one number make one group."""
    own: bool = False
    """Whether the policy itself wrote what is given, so that the completion measures the policy on the bare prompt."""
    limit: int | None = None
    """Tokens after which these completions are cut; None: the run's limit. The requests of a round have one limit."""
    goes_on: bool = False
    """Whether what is cut is continued later, so that its reward is not known yet."""
    shown: float | None = None
    """Reward of the last own attempt in the texts; None: they hold none."""


Requests = list[SamplingRequest]
"""What is sampled in one round."""


def plain_request(slot: int, n: int, text: str) -> SamplingRequest:
    """Completions sampled from the text that they are credited to."""
    return SamplingRequest(slot, n, text, text)


# Allocation: how many completions of each prompt, by slot.


def fixed(spec: specs.FixedAllocation, prompts: int) -> list[int]:
    """The same group size for every prompt."""
    return [spec.num_generations] * prompts


def xrpo(spec: specs.XrpoAllocation, prompts: int) -> list[int]:
    """The first completions, equally many for all prompts."""
    return [spec.first] * prompts


def priority(spec: specs.XrpoAllocation, n: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """(P,) t_{n-1} s (1 / sqrt(n) - 1 / sqrt(n + 1)) + exploration sqrt(ln T / n): n (P,) completions so far, s (P,) the
    Bessel-corrected deviation of their rewards, T their total."""
    quantile = special.stdtrit(n - 1, (1 + spec.confidence) / 2)  # of Student's t; scipy.stats costs each stage half a second
    drop = quantile * deviation * (1 / np.sqrt(n) - 1 / np.sqrt(n + 1))
    return drop + spec.exploration * np.sqrt(math.log(n.sum()) / n)


def xrpo_again(spec: specs.XrpoAllocation, batch: Batch, prompts: int, rounds: int) -> list[int]:
    """This round's even share of what is left of the budget, one by one to the prompt of highest priority, whose count rises at
    once while its deviation stays."""
    counted = batch.baseline_mask()  # an episode whose turns are rows of their own counts once
    groups, rewards = batch.groups[counted].numpy(), batch.rewards[counted].numpy()
    n = np.array([(groups == slot).sum() for slot in range(prompts)], dtype=float)
    left = spec.num_generations * prompts - int(n.sum())
    more = np.zeros(prompts, dtype=int)
    if rounds >= spec.rounds or left <= 0:
        return more.tolist()
    deviation = np.array([rewards[groups == slot].std(ddof=1) for slot in range(prompts)])
    for _ in range(-(-left // (spec.rounds - rounds))):
        more[int(priority(spec, n + more, deviation).argmax())] += 1
    return more.tolist()


def own_counts(spec: specs.OwnAllocation, batch: Batch | None, prompts: int, rounds: int) -> list[int]:
    """Of the user's function; in the first round there is no batch yet. Raises UserError when they are not one count for each
    prompt."""
    made = extension.call(spec, spec.num_generations, prompts, batch, rounds)
    if not isinstance(made, list) or len(made) != prompts or not all(isinstance(n, int) and n >= 0 for n in made):
        raise model.UserError(f"{spec.function}: must return {prompts} counts, not {made!r:.60}")
    if batch is None and not any(made):
        raise model.UserError(f"{spec.function}: asks for no completion in the first round of a step; return a count above 0")
    return made


class AllocationMember(NamedTuple):
    """An allocation."""

    first: Callable[..., list[int]]
    """`(spec, prompts)`: completions of each prompt in the first round."""
    again: Callable[..., list[int]] = lambda spec, batch, prompts, rounds: []
    """`(spec, batch, prompts, rounds)`: completions of each in the next round, given what was sampled so far in how many further
    rounds; none, or all zeros: no further round."""


ALLOCATION: dict[str, AllocationMember] = {
    "fixed": AllocationMember(fixed),
    "xrpo": AllocationMember(xrpo, xrpo_again),
    "custom": AllocationMember(lambda spec, prompts: own_counts(spec, None, prompts, 0), own_counts),
}

# Prompting: the texts of n completions of a prompt.


def plain(spec: specs.PlainPrompting, row: Row, slot: int, n: int, now: StepContext) -> Requests:
    """From the prompt's own text."""
    return [plain_request(slot, n, row.prompt)]


def first_steps(spec: specs.Hint, solution: str) -> str:
    """The first steps of a solution with their last separator; empty where it has a single one."""
    steps = solution.split(spec.separator)
    kept = min(max(1, int(spec.share * len(steps))), len(steps) - 1)
    return "".join(step + spec.separator for step in steps[:kept])


def hinted_prompt(spec: specs.Hint, row: Row) -> str:
    """The prompt with its hint."""
    return filled(spec.template, {"hint": first_steps(spec, row.solution), "prompt": row.prompt})


def prefix(spec: specs.PrefixPrompting, row: Row, slot: int, n: int, now: StepContext) -> Requests:
    """`started` (1 - progress) n of them, rounded down, from the first steps of the gold solution."""
    started = int(spec.started * (1 - now.progress) * n)
    text = hinted_prompt(spec.hint, row)
    requests = [SamplingRequest(slot, started, text, text, first_steps(spec.hint, row.solution))] if started else []
    return requests + ([plain_request(slot, n - started, row.prompt)] if started < n else [])


def with_shots(spec: specs.Shots, row: Row, count: int, slot: int, now: StepContext) -> str:
    """The prompt after `count` solved problems of its own set, drawn by seed, step and slot; itself never among them. Of a set of
    transcripts each turn of a policy ends in the end token, as in an episode (data.tokenizer.encode_turns)."""
    others = [other for other in now.rows if other.set == row.set and other.key != row.key]
    stream = now.random(f"shots {slot}")
    chosen = stream.permutation(len(others))[:count]
    edge = MARK if any(MARK in other.solution for other in others) else ""
    shown = (f"{others[i].prompt}{edge}{others[i].solution}{edge}{spec.between}" for i in chosen)
    return "".join(shown) + row.prompt


def icpo(spec: specs.IcpoPrompting, row: Row, slot: int, n: int, now: StepContext) -> Requests:
    """`steered` completions after solved problems, credited to the bare prompt; the rest from it."""
    steered = with_shots(spec.examples, row, spec.shots, slot, now)
    return [plain_request(slot, n - spec.steered, row.prompt), SamplingRequest(slot, spec.steered, steered, row.prompt)]


def icpo_kept(spec: specs.IcpoPrompting, batch: Batch, now: StepContext) -> Batch:
    """Without steered completions below the floor; with the bonus, b (1 - progress), for the others."""
    if batch.off_policy is None:
        return batch
    kept = take(batch, (~batch.off_policy | (batch.rewards >= spec.floor)).nonzero()[:, 0])
    assert kept.off_policy is not None
    return replace(kept, rewards=kept.rewards + spec.bonus * (1 - now.progress) * kept.off_policy)


def annealed_shots(spec: specs.AnnealedShotsPrompting, row: Row, slot: int, n: int, now: StepContext) -> Requests:
    """As many solved problems as the phase says, in what is sampled from and what is learnt."""
    count = int(Curve.phases(spec.schedule).at(now.progress))
    return [plain_request(slot, n, with_shots(spec.examples, row, count, slot, now))]


def own_prompting(spec: specs.OwnPrompting, row: Row, slot: int, n: int, now: StepContext) -> Requests:
    """From the text of the user's function. Raises UserError when it returns no text."""
    made = extension.call(spec, row, n, now)
    sampling, training = made if isinstance(made, tuple) and len(made) == 2 else (made, made)
    if not isinstance(sampling, str) or not isinstance(training, str):
        raise model.UserError(f"{spec.function}: must return a text or two, not {made!r:.60}")
    return [SamplingRequest(slot, n, sampling, training)]


class PromptingMember(NamedTuple):
    """A prompting."""

    requests: Callable[..., Requests]
    """`(spec, row, slot, n, now)`: n completions of a prompt, as requests."""
    keep: Callable[..., Batch] = lambda spec, batch, now: batch
    """`(spec, batch, now) -> batch`: which of the rows are kept, and with which rewards."""


PROMPTING: dict[str, PromptingMember] = {
    "plain": PromptingMember(plain),
    "prefix": PromptingMember(prefix),
    "icpo": PromptingMember(icpo, icpo_kept),
    "annealed_shots": PromptingMember(annealed_shots),
    "custom": PromptingMember(own_prompting),
}


# Continuation of completions that are sampled in pieces: trees of segments, and windows over several steps.


# Trees of segments (SPO-tree, arXiv:2505.23564).


def tree_begun(spec: specs.TreeContinuation, requests: Requests, rows: Sequence[Row], now: StepContext) -> Requests:
    """The first segments of every prompt."""
    first = len(spec.branches) > 1
    limit = spec.segment if first else None
    return [request._replace(n=spec.branches[0], limit=limit, goes_on=first) for request in requests]


def tree_follow(spec: specs.TreeContinuation, rows: Sequence[Row], batch: Batch, rounds: int, now: StepContext) -> Requests:
    """The children of the segments that came last and did not end: a group for each, with a negative number."""
    if spec.expansions:
        return frontier_follow(spec, rows, batch, rounds, now)
    if rounds + 1 >= len(spec.branches) or batch.unfinished is None:
        return []
    parents, last = parents_of(batch), rounds + 2 == len(spec.branches)
    left = now.max_completion_length - spec.segment * (rounds + 1)
    asks = []
    for row in batch.unfinished.nonzero()[:, 0].tolist():
        if (batch.groups == _children(row)).any() or left <= 0:
            continue
        root = row
        while parents[root] >= 0:
            root = parents[root]
        slot, text = int(batch.groups[root]), batch.completions[row]
        whole = rows[slot].prompt + text
        limit = left if last else min(left, spec.segment)
        asks.append(
            SamplingRequest(slot, spec.branches[rounds + 1], whole, whole, text, _children(row), True, limit, goes_on=not last)
        )
    return asks


def frontier_follow(spec: specs.TreeContinuation, rows: Sequence[Row], batch: Batch, rounds: int, now: StepContext) -> Requests:
    """The children of one segment of each prompt's tree (global frontier of DeepSearch, arXiv:2509.25454)."""
    if rounds >= spec.expansions or batch.unfinished is None:
        return []
    deepest, asks = now.max_completion_length // spec.segment, []
    tree = Tree(batch, now.by)
    for slot, row in enumerate(rows):
        chosen = tree.next_segment(slot, deepest)
        if chosen is not None:
            text = batch.completions[chosen]
            whole = row.prompt + text
            further = SamplingRequest(
                slot, spec.branches[1], whole, whole, text, _children(chosen), True, spec.segment, goes_on=True
            )
            asks.append(further)
    return asks


FRONTIER = (0.4, 0.4, 0.01)
"""Weights in the priority of a segment: of tanh of the mean value, 1 or -1, of what ended below its parent, of its mean
-log-probability, and of sqrt(depth / greatest depth) (deepsearch/utils/mcts.py, select_global_best_node)."""


class Tree:
    """The trees of a step's prompts: of each row its parent, the prompt's slot and its depth, from 1."""

    def __init__(self, batch: Batch, by: exact.Functions) -> None:
        self.batch, self.by, self.parents = batch, by, parents_of(batch)
        self.slots: list[int] = []
        self.depths: list[int] = []
        for row, parent in enumerate(self.parents):  # children come after their parents
            self.slots.append(int(batch.groups[row]) if parent < 0 else self.slots[parent])
            self.depths.append(1 if parent < 0 else self.depths[parent] + 1)
        open_rows = torch.zeros(len(batch), dtype=torch.bool) if batch.unfinished is None else batch.unfinished
        self.ended = (~open_rows).tolist()
        self.surprise = (-by.summed(batch.logprobs * batch.mask(), 1) / batch.num_action_tokens().clamp(min=1)).tolist()

    def next_segment(self, slot: int, deepest: int) -> int | None:
        """The row that is continued next; None where nothing can be."""
        mine = [row for row, of in enumerate(self.slots) if of == slot]
        expanded = {self.parents[row] for row in mine}
        able = [row for row in mine if not self.ended[row] and row not in expanded and self.depths[row] < deepest]
        last = [row for row in mine if self.parents[row] == self.parents[mine[-1]]]
        if not any(self.ended[row] for row in last) and (onward := [row for row in able if row in last]):
            return min(onward, key=lambda row: self.surprise[row])
        quality = {parent: self.value_below(parent, mine) for parent in expanded}

        def priority(row: int) -> float:
            parts = quality[self.parents[row]], self.surprise[row], math.sqrt(self.depths[row] / deepest)
            return sum_in_order(weight * part for weight, part in zip(FRONTIER, parts, strict=True))

        return max(able, key=priority, default=None)

    def value_below(self, parent: int, mine: Sequence[int]) -> float:
        """tanh of the mean of 1 for a completion that was paid and -1 for one that was not, of those that ended below a row (-1:
        the prompt); 0 of none."""
        found = [1.0 if self.batch.rewards[row] > 0 else -1.0 for row in mine if self.ended[row] and self._is_below(row, parent)]
        mean = sum(found) / len(found) if found else 0.0
        return float(self.by.tanh(torch.tensor(mean, dtype=torch.float64))) if self.by.exact else math.tanh(mean)

    def _is_below(self, row: int, parent: int) -> bool:
        while row >= 0:
            row = self.parents[row]
            if row == parent:
                return True
        return False


def tree_kept(spec: specs.TreeContinuation, batch: Batch, now: StepContext) -> Batch:
    """A row for each segment, whose reward is that of its completion or the mean over its children; siblings make a group
    (SPO-tree, arXiv:2505.23564)."""
    parents = parents_of(batch)
    sums, counts = torch.zeros(len(batch), dtype=torch.float64), torch.zeros(len(batch), dtype=torch.float64)
    rewards = batch.rewards.clone()
    for row in range(len(batch) - 1, -1, -1):  # children come after their parents
        if counts[row]:
            rewards[row] = sums[row] / counts[row]
        if parents[row] >= 0:
            sums[parents[row]] += rewards[row]
            counts[parents[row]] += 1
    whole = counts == 0
    groups = torch.unique(batch.groups, return_inverse=True)[1]
    return replace(batch, rewards=rewards, groups=groups, truncated=batch.truncated & whole, unfinished=None)


def parents_of(batch: Batch) -> list[int]:
    """For each row the row whose segment it continues; -1: none."""
    return [-group - 1 if group < 0 else -1 for group in batch.groups.tolist()]


def _children(row: int) -> int:
    """The number of the group that continues the segment of a row."""
    return -(row + 1)


# Completions a window at a time, over several steps (T-PPO, arXiv:2506.15050).


WINDOWS = "windows"
"""Name in the memory: completions to continue, {id, text, tokens} each."""


def windows_carried(spec: specs.WindowContinuation, now: StepContext, prompts: int) -> list[int]:
    """The prompts whose completions did not end in the last step."""
    return [kept["id"] for kept in now.memory.notes.get(WINDOWS, [])]


def windows_begun(spec: specs.WindowContinuation, requests: Requests, rows: Sequence[Row], now: StepContext) -> Requests:
    """A further window of each completion that did not end, and the first window of the others."""
    kept = now.memory.notes.get(WINDOWS, [])
    begun = []
    for request in requests:
        written, tokens = (kept[request.slot]["text"], kept[request.slot]["tokens"]) if request.slot < len(kept) else ("", 0)
        text, left = request.sampling + written, now.max_completion_length - tokens
        more = SamplingRequest(request.slot, request.n, text, text, written, own=True, limit=min(spec.window, left))
        begun.append(more._replace(goes_on=left > spec.window))
    return begun


def windows_kept(spec: specs.WindowContinuation, batch: Batch, now: StepContext) -> Batch:
    """All of it; what did not end is gone on with in the next step."""
    going = torch.zeros(0, dtype=torch.int64) if batch.unfinished is None else batch.unfinished.nonzero()[:, 0]
    before = now.memory.notes.get(WINDOWS, [])
    now.memory.notes[WINDOWS] = [_kept(batch, row, before) for row in going.tolist()]
    return batch


def _kept(batch: Batch, row: int, before: list[dict]) -> dict:
    slot = int(batch.groups[row])
    tokens = before[slot]["tokens"] if slot < len(before) else 0
    return {"id": int(batch.ids[row]), "text": batch.completions[row], "tokens": tokens + int(batch.lengths[row])}
