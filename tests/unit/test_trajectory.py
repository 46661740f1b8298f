"""Trajectories: the type and its Parquet schema, written and read in parts."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from interplay.data import trajectory
from interplay.data.trajectory import Segment, Trajectory, read_trajectories, write_trajectories
from interplay.tasks.transcripts import MARK, observations, policy_turns

small = st.integers(-(2**31), 2**31 - 1)
numbers = st.none() | st.floats(width=32, allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=MARK), max_size=6)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    tokens = draw(st.none() | st.lists(small, max_size=4))
    return Segment(
        kind=draw(st.sampled_from(["context", "action", "observation"])),
        text=draw(texts),
        turn=draw(st.integers(0, 9)),
        seat=draw(st.none() | st.integers(0, 3)),
        reward=draw(numbers),
        answer=draw(st.none() | st.booleans()),
        tool=draw(texts),
        tokens=tokens,
        logprobs=None if tokens is None else draw(st.lists(st.floats(width=32, allow_nan=False), min_size=len(tokens))),
    )


def known(kind: Any) -> Any:
    return st.none() | kind


trajectories = st.builds(
    Trajectory,
    segments=st.lists(segments(), min_size=1, max_size=5).map(tuple),
    prompt=known(texts),
    step=known(small),
    set=known(small),
    index=known(st.integers(-(2**63), 2**63 - 1)),
    sample=known(small),
    reward=numbers,
    strict=known(st.booleans()),
    answer=known(st.booleans()),
    score=numbers,
    error=known(texts),
    advantage=numbers,
    truncated=known(st.booleans()),
    length=known(small),
    more=st.fixed_dictionaries({"reward/format": numbers, "band": texts}),
)


@given(st.lists(trajectories, max_size=4))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, made: list[Trajectory]) -> None:
    path = tmp_path_factory.mktemp("written") / "rollouts.parquet"
    write_trajectories(path, made)
    assert list(read_trajectories(path)) == made
    assert pq.read_table(path)["completion"].to_pylist() == [one.completion for one in made]


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_a_transcript_has_the_turns_and_what_was_read_between_them(parts: list[tuple[str, str]]) -> None:
    made = [Segment("context", "c")]
    for turn, (said, read) in enumerate(parts):
        made += [Segment("action", said, turn), Segment("observation", read, turn)]
    text = trajectory.transcript_of(made[:-1])
    assert policy_turns(text) == [said for said, _ in parts]
    assert observations(text) == [read for _, read in parts[:-1]]
    assert trajectory.joined_text(made[:-1]) == text.replace(MARK, "")


def test_a_file_of_one_turn_has_no_segments_and_is_read_as_one_action(tmp_path: Path) -> None:
    schema = trajectory.schema_of(["step", "index", "completion", "reward", "answer", "reward/format"])
    row = {"step": 3, "index": 7, "completion": "4", "reward": 0.5, "answer": True, "reward/format": 0.25}
    trajectory.write_rows(tmp_path / "rollouts.parquet", schema, [row])
    (found,) = read_trajectories(tmp_path)
    assert found.segments == found.actions == (Segment("action", "4", reward=0.5, answer=True),)
    assert (found.step, found.index, found.strict, found.more) == (3, 7, None, {"reward/format": 0.25})
    with pytest.raises(FileNotFoundError, match=r"no rollouts.parquet or samples.parquet"):
        next(read_trajectories(tmp_path / "none"))


def test_rows_are_written_in_groups_that_are_in_memory_at_once(tmp_path: Path) -> None:
    size, taken = trajectory.ROWS_OF_SEGMENTS, 0

    def many() -> Any:
        nonlocal taken
        for taken in range(1, 2 * size + 2):
            yield Trajectory((Segment("action", str(taken), tokens=[taken], logprobs=[-0.5]),), index=taken)

    write_trajectories(tmp_path / "samples.parquet", many())
    with pq.ParquetFile(tmp_path / "samples.parquet") as file:
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert (groups, taken) == ([size, size, 1], 2 * size + 1)
    wanted = read_trajectories(tmp_path, columns=["index", "completion"])
    assert [one.index for one in wanted] == list(range(1, 2 * size + 2))
