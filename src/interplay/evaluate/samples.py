"""Samples as rows of `samples.parquet`, in shards that a killed stage does not lose."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interplay.core.artifact import write_atomic
from interplay.core.metrics import round_significant
from interplay.data import sets
from interplay.data import tokenizer as text
from interplay.evaluate.passk import with_caps
from interplay.evaluate.spec import EvaluateSpec
from interplay.rollout.play import Played
from interplay.rollout.request import Rollouts
from interplay.tasks.environments.transcript import UNANSWERED
from interplay.tasks.verdict import Row, Verdict

# Samples as rows of `samples.parquet`: what was written, how it was judged, and of episodes of several turns how far each came.


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


def judge(spec: EvaluateSpec, pool: sets.Pool, ids: list[int], rollouts: Rollouts, tokenizer: text.Tokenizer) -> pa.Table:
    """Rows of `samples.parquet` for the rollouts of the problems `ids`, by problem and then by sample."""
    of_row = [ids[request] for request in rollouts.request.tolist()]
    lengths = rollouts.lengths.tolist()
    completions = tokenizer.decode_batch([tokens[:n] for tokens, n in zip(rollouts.tokens.tolist(), lengths, strict=True)])
    verdicts = sets.judge_completions(pool, of_row, completions, spec.verify)
    rows = [pool.rows[i] for i in of_row]
    table = _table(rows, rollouts, verdicts, lengths, completions)
    if spec.unit_caps:
        table = with_caps(table, rows, completions, spec)
    if spec.entropy:
        table = table.append_column(NATS, pa.array((-rollouts.logprobs.double().sum(1)).tolist(), pa.float32()))
    return table


def judged(pool: sets.Pool, ids: list[int], played: Played) -> pa.Table:
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


# The shards of an evaluation: runs of problems whose samples are made and judged together, each in a file of its own, so that a
# killed evaluation does not make them again, with whatever batches and however many processes it goes on.
#
# A file `<start>-<stop>.parquet` holds the samples of the problems start..stop-1 of the set.


def finished_shards(folder: Path) -> list[range]:
    """The shards that lie in the folder, in the order of their problems."""
    names = (file.stem.split("-") for file in folder.glob("*-*.parquet"))
    return sorted((range(int(start), int(stop)) for start, stop in names), key=lambda shard: shard.start)


def remaining_shards(folder: Path, problems: int, size: int) -> list[range]:
    """Shards of at most `size` problems for those of the set's `problems` that no shard in the folder holds."""
    gaps, start = [], 0
    for shard in [*finished_shards(folder), range(problems, problems)]:
        gaps += [range(first, min(first + size, shard.start)) for first in range(start, shard.start, size)]
        start = shard.stop
    return gaps


def write_shard(folder: Path, shard: range, samples: pa.Table) -> None:
    """Keep a shard's samples, whichever process of the stage made them."""
    sink = pa.BufferOutputStream()
    pq.write_table(samples, sink)
    write_atomic(_file(folder, shard), sink.getvalue().to_pybytes(), every_worker=True)


def read_shards(folder: Path) -> pa.Table:
    """The samples of all shards, in the order of their problems."""
    return pa.concat_tables([pq.read_table(_file(folder, shard)) for shard in finished_shards(folder)]).combine_chunks()


class Tally:
    """The share of right samples in all shards of a folder, whichever attempt or process made them; each is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.right: dict[range, int] = {}
        self.samples: dict[range, int] = {}

    def strict(self) -> float:
        """Of the samples so far; nan where there is none."""
        for shard in finished_shards(self.folder):
            if shard not in self.right:
                column = pq.read_table(_file(self.folder, shard), columns=["strict"])["strict"]
                self.right[shard], self.samples[shard] = pc.sum(column).as_py() or 0, len(column)
        samples = sum(self.samples.values())
        return sum(self.right.values()) / samples if samples else math.nan


def _file(folder: Path, shard: range) -> Path:
    return folder / f"{shard.start}-{shard.stop}.parquet"
