"""What a run records in addition to the model: step metrics, completions that later steps see again, a sample of its rollouts,
and the success history of each prompt."""

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from interplay.core import artifact, execution, metrics, random
from interplay.data import trajectory
from interplay.data.sets import Pool
from interplay.data.trajectory import Segment
from interplay.kernels import exact
from interplay.rl import rewards
from interplay.rl.batch import Batch, Span, StepContext, take
from interplay.rl.spec import RLSpec
from interplay.tasks.verdict import Verdict

# What every RL run logs with any method.


def measure_step(drawn: Batch, advantage: torch.Tensor, by: exact.Functions = exact.FAST) -> dict[str, float]:
    """Values of one step over all that it drew and judged; `advantage` (N,): mean per row, 0 for rows that an edit dropped. An
    episode whose turns are rows of their own counts once, but for length and truncation.

    frac_all_pass, frac_all_fail: share of groups whose every completion is right, or wrong, by the verdict that the reward is
    about, whatever shaping adds or takes; effective_ratio: share of rows with an advantage (arXiv:2510.01135); entropy:
    mean of -log p over the sampled tokens, an unbiased estimate of the policy's entropy per token in nats; length: mean tokens of
    a completion; truncated: share that the limit cut."""
    alone = _counted(drawn)
    mask, right = drawn.mask(), alone.right.float()
    _, member, size = torch.unique(alone.groups, return_inverse=True, return_counts=True)
    passes = torch.zeros(len(size)).index_add_(0, member, right)
    return {
        "reward": float(by.mean(alone.rewards)),
        "strict": sum(v.strict for v in alone.verdicts) / len(alone),
        "answer": sum(v.answer for v in alone.verdicts) / len(alone),
        "score": random.sum_in_order(v.score for v in alone.verdicts) / len(alone),
        **{f"reward/{name}": float(by.mean(values)) for name, values in alone.parts.items()},
        **turn_metrics(alone),
        "frac_all_pass": float((passes == size).float().mean()),
        "frac_all_fail": float((passes == 0).float().mean()),
        "effective_ratio": float((advantage != 0).float().mean()),
        "entropy": float(-_all(drawn.logprobs * mask, by) / mask.sum()),
        "length": float(drawn.num_action_tokens().double().mean()),
        "truncated": float(drawn.truncated.double().mean()),
        "groups": float(len(size)),
    }


def _counted(drawn: Batch) -> Batch:
    """The rows that count in statistics."""
    return drawn if drawn.excluded is None else take(drawn, drawn.baseline_mask().nonzero()[:, 0])


def _all(values: torch.Tensor, by: exact.Functions) -> torch.Tensor:
    return by.summed(values.double().flatten()) if by.exact else values.sum(dtype=torch.float64)


def sampled_counts(drawn: Batch) -> dict[str, float]:
    """What a step sampled: rows, tokens of their prompts, tokens of the rows."""
    return {
        "completions": float(drawn.baseline_mask().sum()),
        "prompt_tokens": float(sum(map(len, drawn.prompts))),
        "completion_tokens": float(drawn.num_action_tokens().sum()),
    }


def turn_metrics(drawn: Batch) -> dict[str, float]:
    """Of episodes of several turns: `turns`, their mean number, and `answer_first`, share of episodes whose first turn answers
    right; nothing where there is one turn."""
    if drawn.turns is None:
        return {}
    right = sum(bool(row and row[0] is not None and row[0].answer) for row in drawn.turns)
    return {"turns": sum(map(len, drawn.turns)) / len(drawn), "answer_first": right / len(drawn)}


MOST_TURNS = 4
"""Turns whose advantages are logged by number; the last number stands for all from there on."""


def credit_metrics(batch: Batch, advantage: torch.Tensor) -> dict[str, float]:
    """Of the (N,T) advantages of a step whose episodes have turns: `credit/turns`, the share of turns with an advantage, and
    `credit/mean_1` to `credit/mean_4`, the mean advantage of the turns of each number, from the fourth on as one, 0 of none.
    Nothing where episodes have one turn."""
    if batch.turns is None or batch.spans is None:
        return {}
    found: dict[int, list[float]] = {n: [] for n in range(1, MOST_TURNS + 1)}
    for row, spans in enumerate(batch.spans):
        for span in spans:
            if span.end > span.start:
                found[min(span.position + 1, MOST_TURNS)].append(float(advantage[row, span.start]))
    every = [value for values in found.values() for value in values]
    means = {f"credit/mean_{n}": math.fsum(values) / max(len(values), 1) for n, values in found.items()}
    return {"credit/turns": sum(value != 0 for value in every) / max(len(every), 1), **means}


def drawn_shares(drawn: Batch, pool: Pool) -> dict[str, float]:
    """What the sampler chose: `drawn/<band>`, share of the step's groups, for every band of the problem sets; and `drawn_op`,
    their mean op."""
    rows = [pool.rows[i] for i in dict(zip(drawn.groups.tolist(), drawn.ids.tolist(), strict=True)).values()]
    counts = Counter(row.band for row in rows)
    each = {f"drawn/{band}": counts[band] / len(rows) for band in sorted({row.band for row in pool.rows})}
    return {**each, "drawn_op": sum(row.op for row in rows) / len(rows)}


def rank_steps(batch: Batch, advantage: torch.Tensor, now: StepContext) -> dict[str, float]:
    """How well the advantages (N,T) of a step separate right steps from wrong ones: `credit/auc`, over pairs of a completion's
    first wrong step w and a right step j of the same number in another completion of its group, the mean of 1[A_j > A_w] +
    1[A_j = A_w] / 2, A the mean over a step's tokens, and 1/2 where there is no pair; `credit/pairs`, their number.

    Where a strictly right process is paid, the state behind a wrong step is worth 0, so that the advantage of w is -V of the
    state before it, the least that a step there has. Later steps of such a completion are worth 0 and enter no pair. Steps of
    one number are compared, since an advantage that merely falls along a completion would else rank them. GRPO's, one for a
    completion, has (1 + the share of pairs in which the completion of j is right) / 2: what the outcome alone gives."""
    places: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
    written = batch.written()
    for i in batch.sampled_now().nonzero()[:, 0].tolist():
        steps = rewards.judged_steps(now.rows[int(batch.ids[i])], batch.completions[i]) or []
        starts = now.offsets(written[i], batch.completions[i])
        values = advantage[i].tolist()
        for step in steps:
            inside = [value for value, start in zip(values, starts, strict=False) if step.start <= start < step.end]
            wrong_right = places.setdefault((int(batch.groups[i]), step.position), ([], []))
            wrong_right[int(step.value)].append(math.fsum(inside) / max(len(inside), 1))
            if not step.value:
                break
    pairs = [(good, bad) for wrong, right in places.values() for good in right for bad in wrong]
    wins = sum((good > bad) + (good == bad) / 2 for good, bad in pairs)
    return {"credit/auc": wins / len(pairs) if pairs else 0.5, "credit/pairs": float(len(pairs))}


def summarise_run(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The record's metrics from the lines of metrics.jsonl: totals over the run, and means over its first and its last tenth."""
    names = [*RLSpec.MEANS, *(name for name in RLSpec.CREDIT if name in lines[0])]
    return {"steps": len(lines), **total_values(lines, RLSpec.TOTALS), **mean_of_ends(lines, names)}


def total_values(lines: list[dict[str, Any]], names: Sequence[str]) -> dict[str, int]:
    """Sums over the run."""
    return {name: int(sum(line[name] for line in lines)) for name in names}


def mean_of_ends(lines: list[dict[str, Any]], names: Sequence[str]) -> dict[str, float]:
    """Means over the first and over the last tenth of the run, `NAME_first` and `NAME_last`."""
    tenth = max(1, len(lines) // 10)
    ends = {"first": lines[:tenth], "last": lines[-tenth:]}
    means = {
        f"{name}_{end}": random.sum_in_order(line[name] for line in some) / len(some)
        for end, some in ends.items()
        for name in names
    }
    return metrics.round_values(means)


# Completions as JSON in a run's memory, from which later steps add them to their batches.


def row_note(batch: Batch, i: int) -> dict[str, Any]:
    """A completion as JSON, for a step that adds it again."""
    n = int(batch.lengths[i])
    return {
        "tokens": batch.tokens[i, :n].tolist(),
        "logprobs": batch.logprobs[i, :n].tolist(),
        "truncated": bool(batch.truncated[i]),
        "completion": batch.completions[i],
        "verdict": [*batch.verdicts[i][:-1]],
        "reward": float(batch.rewards[i]),
        "parts": {name: float(values[i]) for name, values in batch.parts.items()},
        **_episode_note(batch, i, n),
    }


def _episode_note(batch: Batch, i: int, n: int) -> dict[str, Any]:
    """What else a row of several turns has, as JSON; the tokens of its segments are those of the row."""
    if batch.turns is None or batch.spans is None or batch.segments is None:
        return {}
    plain = (one._replace(tokens=None, logprobs=None) for one in batch.segments[i])
    return {
        "prompt": batch.prompts[i],
        "spans": [[*span] for span in batch.spans[i]],
        "turns": [verdict and [*verdict[:-1]] for verdict in batch.turns[i]],
        "observed": [] if batch.observed is None else batch.observed[i, :n].tolist(),
        "segments": [[*one] for one in plain],
    }


def episode_of(note: dict[str, Any]) -> dict[str, Any]:
    """The fields of a batch of one row that `_episode_note` kept."""
    if "turns" not in note:
        return {}
    return {
        "prompts": [note["prompt"]],
        "spans": [[Span(*span) for span in note["spans"]]],
        "turns": [[Verdict(*verdict) if verdict else None for verdict in note["turns"]]],
        "observed": torch.tensor([note["observed"]], dtype=torch.bool) if note["observed"] else None,
        "segments": [tuple(Segment(*one) for one in note["segments"])],
    }


# What a run leaves in addition to the model: a sample of its rollouts and the success history of its prompts.
#
# Each step writes one small file to `resume/steps/`; at the end they become `rollouts.parquet` and `history.parquet`. A step
# that is done again after a kill replaces its file by an equal one.


ROLLOUTS = [
    *("step", "set", "index", "prompt", "completion", "reward", "strict", "answer", "score", "error"),
    *("advantage", "truncated", "length"),
]
"""`set`: number of the `data.<i>` role, `index`: the problem's index in it; advantage: mean over the completion's tokens, 0
where an edit dropped the row. Then `turns`, where episodes may have several, `segments`, there and with `keep_tokens`, and one
column `reward/<part>` for each part of the reward."""
HISTORY = [("step", pa.int32()), ("set", pa.int32()), ("index", pa.int64()), ("n", pa.int32()), ("passes", pa.int32())]
"""Per group: completions and strictly right ones."""


def write_step(
    out: Path, step: int, spec: RLSpec, pool: Pool, drawn: Batch, advantage: torch.Tensor, decode: trajectory.Decode
) -> None:
    """Keep some rows of what the step drew, chosen by (seed, step), and the results of every group. `advantage` (N,): mean per
    row."""
    kept = []
    for i in kept_rows(spec.seed, step, len(drawn), spec.keep_rollouts):
        segments = _segments(drawn, i, decode if spec.keep_tokens else None)
        own = {trajectory.SEGMENTS: trajectory.segment_rows(segments, spec.keep_tokens)} if segments else {}
        kept.append({**_rollout(step, pool, drawn, advantage, i), **own})
    save_step(out, step, {"rollouts": kept, "history": history(step, pool, drawn)})


def _segments(drawn: Batch, i: int, decode: trajectory.Decode | None) -> tuple[Segment, ...]:
    """The segments of a row, each turn with what it earned; with `decode` also their tokens, and what all follow as a context.
    None of a completion of one turn whose tokens are not kept."""
    if drawn.segments is None or drawn.turns is None or drawn.spans is None:
        if decode is None:
            return ()
        count = int(drawn.lengths[i])
        tokens, chances = drawn.tokens[i, :count].tolist(), drawn.logprobs[i, :count].tolist()
        right = bool(drawn.verdicts[i].answer)
        made = [Segment("action", decode([tokens])[0], 0, None, float(drawn.rewards[i]), right, "", tokens, chances)]
    else:
        paid = {
            span.position: float(span.value)
            for span, verdict in zip(drawn.spans[i], drawn.turns[i], strict=True)
            if verdict is not None or span.value
        }
        made = [one._replace(reward=paid.get(one.turn, one.reward)) if one.kind == "action" else one for one in drawn.segments[i]]
    if decode is not None and made[0].kind != "context":
        made.insert(0, Segment("context", decode([drawn.prompts[i]])[0], tokens=drawn.prompts[i]))
    return tuple(made)


def kept_rows(seed: int, step: int, count: int, keep: int) -> list[int]:
    """Numbers of the rows that are kept of the `count` rows of a step, sorted."""
    return sorted(random.generator(seed, "keep", step).permutation(count)[:keep].tolist())


def save_step(out: Path, step: int, value: Any) -> None:
    """Write the file of a step (JSON data)."""
    artifact.write_atomic(out / "resume" / "steps" / f"{step}.json", json.dumps(value).encode())


def read_steps(out: Path, steps: int) -> Iterator[Any]:
    """The files of all steps, one after the other."""
    return (artifact.read_json(out / "resume" / "steps" / f"{step}.json") for step in range(1, steps + 1))


def _rollout(step: int, pool: Pool, drawn: Batch, advantage: torch.Tensor, i: int) -> dict[str, Any]:
    row, verdict = pool.rows[int(drawn.ids[i])], drawn.verdicts[i]
    return {
        "step": step,
        "set": row.set,
        "index": row.index,
        "prompt": row.prompt,
        "completion": drawn.completions[i],
        "reward": float(drawn.rewards[i]),
        "strict": bool(verdict.strict),
        "answer": bool(verdict.answer),
        "score": float(verdict.score),
        "error": verdict.error,
        "advantage": float(advantage[i]),
        "truncated": bool(drawn.truncated[i]),
        "length": int(drawn.num_action_tokens()[i]),
        **({"turns": len(drawn.turns[i])} if drawn.turns is not None else {}),
        **{f"reward/{name}": float(values[i]) for name, values in drawn.parts.items()},
    }


def history(step: int, pool: Pool, drawn: Batch) -> list[dict[str, int]]:
    """One entry per group, in the order drawn."""
    entries: dict[int, dict[str, int]] = {}
    counted = _counted(drawn)
    for group, prompt, verdict in zip(counted.groups.tolist(), counted.ids.tolist(), counted.verdicts, strict=True):
        row = pool.rows[prompt]
        entry = entries.setdefault(group, {"step": step, "set": row.set, "index": row.index, "n": 0, "passes": 0})
        entry["n"] += 1
        entry["passes"] += bool(verdict.strict)
    return list(entries.values())


def finish(out: Path, steps: int) -> None:
    """Join the steps' files into the two tables. Of several processes of a stage the first alone does, here and in `keep`."""
    if not execution.is_first_rank():
        return
    first, parts = dict[str, Any](), set[str]()
    for file in read_steps(out, steps):
        first = first or next(iter(file["rollouts"]), {})
        parts |= {name for row in file["rollouts"] for name in row if name.startswith("reward/")}
    columns = [*ROLLOUTS, *(name for name in ("turns", trajectory.SEGMENTS) if name in first), *sorted(parts)]
    for name, schema in (("rollouts", trajectory.schema_of(columns)), ("history", pa.schema(HISTORY))):
        rows = (row for file in read_steps(out, steps) for row in file[name])
        trajectory.write_rows(out / f"{name}.parquet", schema, rows)


def keep(out: Path) -> None:
    """Put the steps' files next to the final state: a longer run's tables begin with them."""
    if execution.is_first_rank():
        shutil.copytree(out / "resume" / "steps", out / "state" / "steps", dirs_exist_ok=True)
