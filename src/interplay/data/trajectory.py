"""Trajectories: what a policy read and wrote in an episode, segment by segment, and what it was worth; their one Parquet schema,
which rl stages write as `rollouts.parquet`, evaluate and generate stages as `samples.parquet`; read and written in parts."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interplay.core import metrics
from interplay.data import sets
from interplay.tasks.transcripts import join_turns, observations, policy_turns

Kind = Literal["context", "action", "observation"]
Decode = Callable[[list[list[int]]], list[str]]
"""Tokens as texts, without special ones."""


class Segment(NamedTuple):
    """A part of an episode that one side wrote."""

    kind: Kind
    """`context`: read before the first turn, where that is not the prompt of the row alone; `action`: written by the policy;
    `observation`: read after a turn, from an environment, a tool, another seat, or feedback."""
    text: str
    """Without special tokens."""
    turn: int = 0
    """Of an action its number in the episode, from 0; of an observation that of the action before it; of a context 0."""
    seat: int | None = None
    """Who wrote it, in an episode of several seats; None: an environment, a tool, or the one seat that there is."""
    reward: float | None = None
    """Of an action: what the turn was paid, by the run's reward or else by the environment; None: nothing by itself."""
    answer: bool | None = None
    """Of an action: whether it answers right; None: it answers nothing, or that is not known."""
    tool: str = ""
    """The tool that an action calls, or whose result an observation is."""
    tokens: Sequence[int] | None = None
    """The end token included; None: not kept."""
    logprobs: Sequence[float] | None = None
    """Of the tokens of an action, under the policy that sampled them at its temperature; None: not kept."""
    call: str | None = None
    """Of an action: what the environment got, where that is not the whole text; empty: nothing, since no call could be read."""
    info: str = ""
    """What the environment recorded of an action, a JSON object; empty: nothing."""


@dataclass(frozen=True)
class Trajectory:
    """One episode of one seat, or one completion: a row of `rollouts.parquet` or `samples.parquet`. None: not known."""

    segments: tuple[Segment, ...]
    prompt: str | None = None
    step: int | None = None
    """Of training."""
    set: int | None = None
    """Number of the problem set among those that the stage reads."""
    index: int | None = None
    """Of the problem in its set; in files of other trainers the number of the distinct prompt."""
    sample: int | None = None
    """Among those of the problem."""
    reward: float | None = None
    strict: bool | None = None
    answer: bool | None = None
    score: float | None = None
    error: str | None = None
    """Class of error; `none` where it is strictly right."""
    advantage: float | None = None
    """Mean over the tokens of the policy."""
    truncated: bool | None = None
    length: int | None = None
    """Tokens of the policy."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """The other columns of its file by name."""

    @property
    def completion(self) -> str:
        """All that follows the prompt, as the policy read it."""
        return joined_text(self.segments)

    @property
    def actions(self) -> tuple[Segment, ...]:
        """What the policy wrote, turn by turn."""
        return tuple(one for one in self.segments if one.kind == "action")


# The Parquet schema.


SEGMENT = pa.struct(
    [
        ("kind", pa.string()),
        ("text", pa.string()),
        ("turn", pa.int32()),
        ("seat", pa.int32()),
        ("reward", pa.float32()),
        ("answer", pa.bool_()),
        ("tool", pa.string()),
        ("tokens", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("call", pa.string()),
        ("info", pa.string()),
    ]
)
SEGMENTS = "segments"
"""Column of an episode's segments. A file of completions of one turn whose tokens are not kept has none: their text is all."""
SEAT = "seat"
"""Column of samples with the name of the seat that the model played, in episodes of several."""
TYPES: dict[str, pa.DataType] = {
    "step": pa.int32(),
    "set": pa.int32(),
    "index": pa.int64(),
    "sample": pa.int32(),
    "band": pa.string(),
    "op": pa.int32(),
    "mode": pa.string(),
    "prompt": pa.string(),
    "completion": pa.string(),
    "reward": pa.float32(),
    "strict": pa.bool_(),
    "answer": pa.bool_(),
    "score": pa.float32(),
    "error": pa.string(),
    "advantage": pa.float32(),
    "truncated": pa.bool_(),
    "length": pa.int32(),
    "turns": pa.int32(),
    SEAT: pa.string(),
    SEGMENTS: pa.list_(SEGMENT),
}
"""The columns that a file of trajectories may have. Further ones, such as parts of a reward, are float32, or texts."""
OWN = tuple(one.name for one in fields(Trajectory) if one.name not in (SEGMENTS, "more"))
"""Fields of a trajectory that are columns of the same name."""


def schema_of(names: Iterable[str]) -> pa.Schema:
    """The schema of a file with these columns, in their order."""
    return pa.schema([(name, TYPES.get(name, pa.float32())) for name in names])


def joined_text(segments: Iterable[Segment]) -> str:
    """The column `completion`: what follows the prompt, as the policy read and wrote it."""
    return "".join(one.text for one in segments if one.kind != "context")


def transcript_of(segments: Iterable[Segment], calls: bool = False) -> str:
    """The text that problem sets keep as a solution: turns and observations, separated. With `calls` what environments judge: of
    each turn its call, and turns without a readable one, with what was read after them, left out."""
    if calls:
        kept = [one for one in segments if one.kind != "context"]
        unread = {one.turn for one in kept if one.kind == "action" and one.call == ""}
        segments = [one if one.call is None else one._replace(text=one.call) for one in kept if one.turn not in unread]
    turns, observed = list[str](), [""]
    for one in segments:
        if one.kind == "action":
            turns.append(one.text)
            observed.append("")
        elif one.kind == "observation":
            observed[-1] += one.text
    return join_turns(turns, observed[1:-1]) if turns else ""


def labelled_lines(segments: Iterable[Segment]) -> list[str]:
    """An episode for people: a line for each segment, with who wrote it where not the one policy did, and what it was paid."""
    lines = []
    for one in segments:
        wrote = "" if one.kind == "action" else f"{one.tool} gives" if one.tool else one.kind
        seat = "" if one.seat is None else f"seat {one.seat}"
        paid = "" if one.reward is None else f"reward {one.reward:.4g}"
        said = ", ".join(filter(None, [wrote, seat, paid]))
        lines.append(f"[{said}] {one.text.strip()}" if said else one.text.strip())
    return lines


def shown_text(row: Mapping[str, Any], labels: bool = True) -> str:
    """The completion of a row for people; of an episode of several segments a line for each."""
    segments = [one for one in segments_of(row) if one.kind != "context" or one.seat is not None]
    if len(segments) == 1:
        return str(row["completion"])
    return "\n".join(labelled_lines(segments) if labels else [one.text.strip() for one in segments])


def gold_text(solution: str, row: Mapping[str, Any]) -> str:
    """A gold solution next to `shown_text` of a row; a transcript in lines, as the row is shown."""
    turns, replies = policy_turns(solution), [*observations(solution), ""]
    tool = next((one.tool for one in segments_of(row) if one.kind == "observation"), "")
    pairs = zip(turns, replies, strict=True)
    made = [one for turn, read in pairs for one in (Segment("action", turn), Segment("observation", read, tool=tool))][:-1]
    return solution if len(made) == 1 else "\n".join(labelled_lines(made))


def segment_rows(segments: Iterable[Segment], tokens: bool = True) -> list[dict[str, Any]]:
    """Segments as the column SEGMENTS holds them, with their tokens or without."""
    return [(one if tokens else one._replace(tokens=None, logprobs=None))._asdict() for one in segments]


def with_segments(rows: pa.Table, each: Iterable[Iterable[Segment]], tokens: bool) -> pa.Table:
    """Rows with the segments of each."""
    return rows.append_column(SEGMENTS, pa.array([segment_rows(one, tokens) for one in each], TYPES[SEGMENTS]))


def segments_of(row: Mapping[str, Any]) -> tuple[Segment, ...]:
    """The segments of a row of a file; of a completion of one turn that one."""
    if row.get(SEGMENTS) is None:
        return (Segment("action", row["completion"], reward=row.get("reward"), answer=row.get("answer")),)
    return tuple(Segment(**one) for one in row[SEGMENTS])


def row_of(one: Trajectory) -> dict[str, Any]:
    """A trajectory as a row of a file."""
    flat = {name: value for name in OWN if (value := getattr(one, name)) is not None}
    return {**flat, **one.more, "completion": one.completion, SEGMENTS: segment_rows(one.segments)}


def trajectory_of(row: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a row of a file."""
    more = {name: value for name, value in row.items() if name not in OWN and name not in ("completion", SEGMENTS)}
    return Trajectory(segments_of(row), **{name: row[name] for name in OWN if name in row}, more=more)


# Files, written and read in parts.


ROWS, ROWS_OF_SEGMENTS = 1 << 16, 1 << 12
"""Rows of a row group, which are in memory at once as it is written; fewer where they have segments."""


def write_rows(path: Path | pa.NativeFile, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows, a row group in memory at once."""
    size = ROWS_OF_SEGMENTS if SEGMENTS in schema.names else ROWS
    rows = iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        count = size
        while count == size:
            some = pa.Table.from_pylist(list(itertools.islice(rows, size)), schema=schema)
            writer.write_table(some)
            count = len(some)


def write_trajectories(path: Path | pa.NativeFile, found: Iterable[Trajectory]) -> None:
    """Write trajectories of any origin in the schema of this module. The first has all further columns, and says which are texts;
    a text in a column of numbers is left out."""
    found = iter(found)
    some = list(itertools.islice(found, 1))
    more = {
        name: pa.string() if isinstance(value, str) else TYPES.get(name, pa.float32())
        for one in some
        for name, value in one.more.items()
    }
    schema = schema_of([*OWN, "completion", SEGMENTS])
    for name, kind in more.items():
        schema = schema.append(pa.field(name, kind))

    def typed(name: str, value: Any) -> Any:
        if more[name] == pa.string():
            return None if value is None else str(value)
        return None if isinstance(value, str) else value

    rows = map(row_of, itertools.chain(some, found))
    write_rows(path, schema, (row | {name: typed(name, row.get(name)) for name in more} for row in rows))


def read_trajectories(path: Path, columns: Sequence[str] | None = None) -> Iterator[Trajectory]:
    """The trajectories of a file, or of the artifact of an rl, evaluate or generate stage, in their order; of `columns` alone, or
    of all. Raises FileNotFoundError where there are none."""
    file = pq.ParquetFile(path) if path.is_file() else sets.open_kept(path)
    if file is None:
        raise FileNotFoundError(f"{path}: no {' or '.join(sets.FILES)}")
    with file:
        for part in file.iter_batches(ROWS_OF_SEGMENTS, columns=columns and [*columns]):
            yield from map(trajectory_of, part.to_pylist())


def read_samples(folder: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of an evaluation's samples, of `columns` or all; of an episode the completion as its transcript, which is what
    problem sets hold, as `judged` what verifiers judge, and as `paid` what its turns were paid."""
    with pq.ParquetFile(folder / "samples.parquet") as file:
        has = SEGMENTS in file.schema_arrow.names
        names = None if columns is None else [*columns, *([SEGMENTS] if has else [])]
        for part in file.iter_batches(ROWS_OF_SEGMENTS if has else sets.PART, columns=names):
            for row in part.to_pylist():
                if has:
                    parts = segments_of(row)
                    row |= {"completion": transcript_of(parts), "judged": transcript_of(parts, calls=True)}
                    row["paid"] = math.fsum(one.reward or 0.0 for one in parts)
                yield row


def answers_by_turn(table: pa.Table, max_turns: int) -> dict[str, Any]:
    """`turns` of samples of up to `max_turns` turns: their mean number, and for each t the share of samples whose answer is right
    after t turns (after the last turn, where a sample has fewer); empty for single turns."""
    if max_turns == 1 or SEGMENTS not in table.column_names:
        return {}
    each = [answers for answers, _ in _actions(table)]
    right = {str(t): sum(row[min(t, len(row)) - 1] for row in each if row) / len(each) for t in range(1, max_turns + 1)}
    return {
        "turns": {
            "mean": metrics.round_significant(sum(map(len, each)) / len(each)),
            "answer": {t: metrics.round_significant(v) for t, v in right.items()},
        }
    }


def results_by_seat(table: pa.Table) -> dict[str, Any]:
    """`seats` of samples of several seats: for each that the model played the number of episodes, and of these the shares that it
    won (a score above 1/2) and drew (1/2), and the mean score; empty for others."""
    if SEAT not in table.column_names:
        return {}
    played, scores = table[SEAT].to_pylist(), table["score"].to_numpy()
    found = {}
    for seat in sorted(set(played)):
        own = scores[[name == seat for name in played]]
        shares = {"win": own > 0.5, "draw": own == 0.5, "score": own}
        found[seat] = {"n": len(own)} | {name: metrics.round_significant(float(np.mean(one))) for name, one in shares.items()}
    return {"seats": found}


def count_turns(table: pa.Table, max_turns: int) -> pa.Table:
    """Samples with the number of turns of each, of its calls of tools, and `answer_turn@K`: whether its answer is right after K
    turns, or after the last one of fewer."""
    each = list(_actions(table))
    for name, counts in (("turns", [len(row) for row, _ in each]), ("calls", [calls for _, calls in each])):
        table = table.append_column(name, pa.array(counts, pa.int32()))
    for k in range(1, max_turns + 1):
        right = [bool(row) and row[min(k, len(row)) - 1] for row, _ in each]
        table = table.append_column(f"answer_turn@{k}", pa.array(right, pa.bool_()))
    return table


def _actions(table: pa.Table) -> Iterator[tuple[list[bool], int]]:
    """Of each sample whether each turn answers right, and how many turns call a tool."""
    column = table[SEGMENTS].combine_chunks()
    flat, ends = pc.list_flatten(column), np.cumsum(pc.list_value_length(column))[:-1]
    answers = pc.fill_null(pc.struct_field(flat, "answer"), False).to_numpy(False)
    own = pc.equal(pc.struct_field(flat, "kind"), "action").to_numpy(False)
    called = own & pc.not_equal(pc.fill_null(pc.struct_field(flat, "tool"), ""), "").to_numpy(False)
    for right, mine, calls in zip(*(np.split(values, ends) for values in (answers, own, called)), strict=True):
        yield right[mine].tolist(), int(calls.sum())
