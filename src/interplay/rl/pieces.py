"""Continuation of completions that are sampled in pieces: trees of segments, and windows over several steps."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from interplay.rl import request_spec as specs
from interplay.rl.batch import Batch, StepContext
from interplay.rl.first_requests import Requests, SamplingRequest
from interplay.tasks.verdict import Row

# Trees of segments (SPO-tree, arXiv:2505.23564).


def tree_begun(spec: specs.TreeContinuation, requests: Requests, rows: Sequence[Row], now: StepContext) -> Requests:
    """The first segments of every prompt."""
    first = len(spec.branches) > 1
    limit = spec.segment if first else None
    return [request._replace(n=spec.branches[0], limit=limit, goes_on=first) for request in requests]


def tree_follow(spec: specs.TreeContinuation, rows: Sequence[Row], batch: Batch, rounds: int, now: StepContext) -> Requests:
    """The children of the segments that came last and did not end: a group for each, with a negative number."""
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
