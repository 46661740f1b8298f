"""Samples as rows of `samples.parquet`: what was written, how it was judged, and of episodes of several turns how far each
came."""

from collections import Counter
from typing import Any

import pyarrow as pa

from interplay.data import pool as pools
from interplay.data import tokenizer as text
from interplay.evaluate.units import with_caps
from interplay.rollout.episodes.play import Played
from interplay.rollout.request import Rollouts
from interplay.schema.evaluate import EvaluateSpec
from interplay.store.metrics import round_significant
from interplay.tasks.row import Row
from interplay.tasks.turns import UNANSWERED
from interplay.tasks.verdict import Verdict

COLUMNS = pa.schema(
    [
        ("index", pa.int64()),
        ("sample", pa.int32()),
        ("band", pa.string()),
        ("op", pa.int32()),
        ("mode", pa.string()),
        ("strict", pa.bool_()),
        ("answer", pa.bool_()),
        ("score", pa.float32()),
        ("error", pa.string()),
        ("length", pa.int32()),
        ("truncated", pa.bool_()),
        ("completion", pa.string()),
    ]
)
NATS = "nats"
"""Column beside these where the spec asks for entropy: what the tokens of the sample cost, end token included, float32."""
TURNS = "answer_by_turn"
"""Column beside these where episodes have several turns."""


def judge(spec: EvaluateSpec, pool: pools.Pool, ids: list[int], rollouts: Rollouts, tokenizer: text.Tokenizer) -> pa.Table:
    """Rows of `samples.parquet` for the rollouts of the problems `ids`, by problem and then by sample."""
    of_row = [ids[request] for request in rollouts.request.tolist()]
    lengths = rollouts.lengths.tolist()
    completions = tokenizer.decode_batch([tokens[:n] for tokens, n in zip(rollouts.tokens.tolist(), lengths, strict=True)])
    verdicts = pools.verify(pool, of_row, completions, spec.verify)
    rows = [pool.rows[i] for i in of_row]
    table = _table(rows, rollouts, verdicts, lengths, completions)
    if spec.unit_caps:
        table = with_caps(table, rows, completions, spec)
    if spec.entropy:
        table = table.append_column(NATS, pa.array((-rollouts.logprobs.double().sum(1)).tolist(), pa.float32()))
    return table


def judged(pool: pools.Pool, ids: list[int], played: Played) -> pa.Table:
    """The same for episodes of several turns: one row for each, with its transcript, the verdict of its last turn, and in the
    column TURNS whether its answer was right after each turn."""
    made, turns, transcripts = played.rollouts, played.turns or [], played.transcripts or []
    whole = [i for i in range(len(turns)) if played.aside is None or not played.aside[i]]
    kept = made._replace(**{name: getattr(made, name)[whole] for name in ("request", "sample", "truncated")})
    verdicts = [turns[i][-1].verdict or UNANSWERED for i in whole]
    own = (made.lengths if played.observed is None else made.lengths - played.observed.sum(1)).tolist()
    written: Counter[tuple[int, int]] = Counter()
    for request, sample, tokens in zip(made.request.tolist(), made.sample.tolist(), own, strict=True):
        written[request, sample] += tokens
    lengths = [written[pair] for pair in zip(kept.request.tolist(), kept.sample.tolist(), strict=True)]
    rows = [pool.rows[ids[request]] for request in kept.request.tolist()]
    table = _table(rows, kept, verdicts, lengths, [transcripts[i] for i in whole])
    right = [[bool(turn.verdict and turn.verdict.answer) for turn in turns[i]] for i in whole]
    return table.append_column(TURNS, pa.array(right, pa.list_(pa.bool_())))


def _table(rows: list[Row], rollouts: Rollouts, verdicts: list[Verdict], lengths: list[int], completions: list[str]) -> pa.Table:
    columns = {
        **{name: [getattr(row, name) for row in rows] for name in ("index", "band", "op", "mode")},
        "sample": rollouts.sample.tolist(),
        **{name: [getattr(verdict, name) for verdict in verdicts] for name in ("strict", "answer", "score", "error")},
        "length": lengths,
        "truncated": rollouts.truncated.tolist(),
        "completion": completions,
    }
    return pa.table(columns, schema=COLUMNS)


def by_turn(table: pa.Table, most: int) -> dict[str, Any]:
    """Of samples of several turns, `most` at most, `turns`: their mean number, and for each number t the share of
    samples whose answer is right after t turns, or was when they ended before; nothing where there is one turn."""
    if TURNS not in table.column_names:
        return {}
    each = table[TURNS].to_pylist()
    right = {str(t): sum(row[min(t, len(row)) - 1] for row in each) / len(each) for t in range(1, most + 1)}
    return {
        "turns": {
            "mean": round_significant(sum(map(len, each)) / len(each)),
            "answer": {t: round_significant(v) for t, v in right.items()},
        }
    }
