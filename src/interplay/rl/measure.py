"""What every RL run logs, whatever its method."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from interplay.data.pool import Pool
from interplay.rl.batch import Batch, take
from interplay.store.metrics import round_values


def measure(drawn: Batch, advantage: Tensor) -> dict[str, float]:
    """Values of one step over all that it drew and judged; `advantage` (N,): mean per row, 0 for rows that an edit dropped. An
    episode whose turns are rows of their own counts once, but for length and truncation.

    frac_all_pass, frac_all_fail: share of groups whose every reward is 1 or more, or 0 or less; effective_ratio: share of rows
    with an advantage (arXiv:2510.01135); entropy: mean of -log p over the sampled tokens, an unbiased estimate of the policy's
    entropy per token in nats; length: mean tokens of a completion; truncated: share that the limit cut."""
    alone = drawn if drawn.aside is None else take(drawn, drawn.counted().nonzero()[:, 0])
    rewards, mask = alone.rewards, drawn.mask()
    _, member, size = torch.unique(alone.groups, return_inverse=True, return_counts=True)
    passes = torch.zeros(len(size)).index_add_(0, member, (rewards >= 1).float())
    fails = torch.zeros(len(size)).index_add_(0, member, (rewards <= 0).float())
    return {
        "reward": float(rewards.mean()),
        "strict": sum(v.strict for v in alone.verdicts) / len(alone),
        "answer": sum(v.answer for v in alone.verdicts) / len(alone),
        "score": sum(v.score for v in alone.verdicts) / len(alone),
        **{f"reward/{name}": float(values.mean()) for name, values in alone.parts.items()},
        **turns(alone),
        "frac_all_pass": float((passes == size).float().mean()),
        "frac_all_fail": float((fails == size).float().mean()),
        "effective_ratio": float((advantage != 0).float().mean()),
        "entropy": float(-(drawn.logprobs * mask).sum(dtype=torch.float64) / mask.sum()),
        "length": float(drawn.written().double().mean()),
        "truncated": float(drawn.truncated.double().mean()),
        "groups": float(len(size)),
    }


def spent(drawn: Batch) -> dict[str, float]:
    """What a step sampled: rows, tokens of their prompts, tokens of the rows."""
    return {
        "completions": float(drawn.counted().sum()),
        "prompt_tokens": float(sum(map(len, drawn.prompts))),
        "completion_tokens": float(drawn.written().sum()),
    }


def turns(drawn: Batch) -> dict[str, float]:
    """Of episodes of several turns: `turns`, their mean number, and `answer_first`, share of episodes whose first turn answers
    right; nothing where there is one turn."""
    if drawn.turns is None:
        return {}
    right = sum(bool(row and row[0] is not None and row[0].answer) for row in drawn.turns)
    return {"turns": sum(map(len, drawn.turns)) / len(drawn), "answer_first": right / len(drawn)}


def shares(drawn: Batch, pool: Pool) -> dict[str, float]:
    """What the sampler chose: `drawn/<band>`, share of the step's groups, for every band of the problem sets; and `drawn_op`,
    their mean op."""
    rows = [pool.rows[i] for i in dict(zip(drawn.groups.tolist(), drawn.ids.tolist(), strict=True)).values()]
    counts = Counter(row.band for row in rows)
    each = {f"drawn/{band}": counts[band] / len(rows) for band in sorted({row.band for row in pool.rows})}
    return {**each, "drawn_op": sum(row.op for row in rows) / len(rows)}


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The record's metrics from the lines of metrics.jsonl: totals over the run, and means over its first and its last tenth."""
    totals = {name: int(sum(line[name] for line in lines)) for name in ("completions", "prompt_tokens", "completion_tokens")}
    tenth = max(1, len(lines) // 10)
    ends = {"first": lines[:tenth], "last": lines[-tenth:]}
    names = ("reward", "strict", "answer", "frac_all_pass", "frac_all_fail", "effective_ratio", "entropy", "length", "truncated")
    means = {f"{name}_{end}": sum(line[name] for line in some) / len(some) for end, some in ends.items() for name in names}
    updates = int(sum(line["optimizer_steps"] for line in lines))
    return {"steps": len(lines), "optimizer_steps": updates, **totals, **round_values(means)}
