"""Trajectories: the type and its Parquet schema, written and read in parts."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from interplay.core.model import UserError
from interplay.data import trajectory
from interplay.data.foreign import read_foreign
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


# --- rollouts of other trainers ---


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


CALL = {"id": "1", "type": "function", "function": {"name": "calc", "arguments": '{"x": "3+4"}'}}
CHAT = [
    {"role": "assistant", "content": "I add.", "tool_calls": [CALL]},
    {"role": "tool", "name": "calc", "content": "7"},
    {"role": "assistant", "content": [{"type": "text", "text": "It is 7."}]},
]
SEGMENTS = (
    Segment("action", 'I add.\ncalc({"x": "3+4"})', 0, tool="calc"),
    Segment("observation", "7", 0, tool="calc"),
    Segment("action", "It is 7.", 1),
)


def test_completions_that_trl_logs_are_read(tmp_path: Path) -> None:
    for step in (2, 10):
        rows = pd.DataFrame(
            {
                "step": [step] * 2,
                "prompt": ["2+2?"] * 2,
                "completion": ["4", "5"],
                "exact": [1.0, 0.0],
                "format": [0.5, None],
                "tries": [3, 4],
                "note": ["long", "short"],
                "seconds": [2.5, 2.5],
                "advantage": [0.7, -0.7],
            }
        )
        (tmp_path / "completions").mkdir(exist_ok=True)
        rows.to_parquet(tmp_path / "completions" / f"completions_{step:05d}.parquet")
    found = list(read_foreign(tmp_path))
    assert [(one.step, one.index, one.sample, one.completion, one.reward) for one in found] == [
        (step, 0, number, text, paid) for step in (2, 10) for number, text, paid in ((0, "4", 1.5), (1, "5", 0.0))
    ]
    assert (found[0].prompt, found[0].advantage) == ("2+2?", 0.7)
    logged = {"info/tries": 3.0, "info/note": "long", "info/seconds": 2.5}
    assert found[0].more == {"reward/exact": 1.0, "reward/format": 0.5, **logged}
    write_trajectories(tmp_path / "rollouts.parquet", found)
    assert [one.completion for one in read_trajectories(tmp_path)] == ["4", "5", "4", "5"]


def test_generations_that_verl_dumps_are_read(tmp_path: Path) -> None:
    for step in (1, 12):
        row = {"input": "user\n2+2?", "output": "4", "gts": "4", "score": 1.0, "step": step, "acc": True}
        lines(tmp_path / f"{step}.jsonl", [row, {**row, "output": "5", "score": 0.0, "acc": False}])
    found = list(read_foreign(tmp_path))
    assert [(one.step, one.sample, one.completion, one.reward) for one in found[1:3]] == [(1, 1, "5", 0.0), (12, 0, "4", 1.0)]
    assert found[0].more == {"info/gts": "4", "info/acc": 1.0}


def test_messages_of_verifiers_become_segments_with_their_tools(tmp_path: Path) -> None:
    row = {
        "example_id": 4,
        "prompt": [{"role": "user", "content": "3+4?"}],
        "completion": CHAT,
        "reward": 0.5,
        "is_truncated": False,
    }
    (found,) = read_foreign(lines(tmp_path / "results.jsonl", [{**row, "answer": "7", "metrics": {"x": 1}}]))
    assert found.segments == (Segment("context", "3+4?"), *SEGMENTS)
    assert (found.prompt, found.reward, found.truncated, found.strict) == ("3+4?", 0.5, False, None)
    assert found.more == {"info/example_id": 4.0, "info/answer": "7", "info/is_truncated": 0.0}
    text = json.loads(json.dumps(CHAT))
    text[0]["tool_calls"] = [json.dumps(CALL)]
    (same,) = read_foreign(lines(tmp_path / "other.jsonl", [{**row, "completion": text}]))
    assert same.segments == found.segments


@given(st.lists(st.tuples(st.sampled_from(["assistant", "tool", "user"]), texts), max_size=6))
def test_a_chat_keeps_every_text_in_its_order(tmp_path_factory: pytest.TempPathFactory, chat: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("chat") / "results.jsonl"
    written = [{"role": role, "content": text} for role, text in chat]
    (found,) = read_foreign(lines(path, [{"prompt": "q", "completion": written, "reward": 1}]))
    kinds = {"assistant": "action", "tool": "observation", "user": "observation"}
    assert [(one.kind, one.text) for one in found.segments] == [(kinds[role], text) for role, text in chat]
    assert [one.turn for one in found.actions] == list(range(len(found.actions)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", r"results.jsonl: line 1: not JSON"),
        ('{"prompt": "a"}', r"results.jsonl: line 1: no rollout of TRL \(prompt, completion, advantage\), verl or verifiers"),
        ('{"prompt": "a", "completion": [3], "reward": 1}', r"results.jsonl: line 1: a message should be an object with role"),
        ('{"input": "a", "output": "b", "score": "high"}', r"results.jsonl: line 1: could not convert"),
        ('{"input": {}, "output": "b", "score": 1}', r"results.jsonl: line 1: prompt and completion should be text"),
        ('{"prompt": "a", "completion": 3, "reward": 1}', r"results.jsonl: line 1: prompt and completion should be text"),
        ('{"prompt": "a", "completion": "b", "reward": "x"}', r"line 1: step, reward and advantage should be numbers"),
        ('{"prompt": "a", "completion": "b", "reward": 1, "step": NaN}', r"line 1: step should be a whole number below"),
        ('{"prompt": "a", "completion": "b", "reward": 1, "step": true}', r"line 1: step should be a whole number below"),
        ('{"prompt": "a", "completion": "b", "reward": 1, "step": 3000000000}', r"line 1: step should be a whole number below"),
        ('{"prompt": "a", "completion": "b", "reward": 1, "step": 1.5}', r"line 1: step should be a whole number below"),
        (
            '{"prompt": "a", "completion": "b", "reward": 1, "is_truncated": "yes"}',
            r"line 1: is_truncated should be true or false",
        ),
        ('{"prompt": "a\\ud800", "completion": "b", "reward": 1}', r"line 1: 'utf-8' codec can't encode character"),
        (
            '{"prompt": "a", "completion": [{"role": "tool", "content": "7", "name": 3}], "reward": 1}',
            r"line 1: prompt and completion should be text, and names of tools too",
        ),
        (f'{{"prompt": "a", "completion": "b", "reward": 1, "note": 1{"0" * 400}}}', r"line 1: int too large"),
    ],
)
def test_what_is_no_rollout_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "results.jsonl").write_text(text + "\n")
    with pytest.raises(UserError, match=said) as caught:
        list(read_foreign(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_whole_number_of_any_size_is_a_reward(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "completion": "b", "reward": 2**60 + 1}]
    write_trajectories(tmp_path / "rollouts.parquet", read_foreign(lines(tmp_path / "results.jsonl", rows)))
    assert [one.reward for one in read_trajectories(tmp_path)] == [2.0**60]
    with pytest.raises(UserError, match=r"no \.parquet and no \.jsonl in it"):
        list(read_foreign(tmp_path / "none"))


def test_what_rollouts_have_in_addition_may_be_a_text_here_and_a_number_there(tmp_path: Path) -> None:
    said = [{"answer": "7", "hops": 2}, {"answer": 7, "hops": "two"}, {"answer": None}]
    path = lines(tmp_path / "results.jsonl", [{"prompt": "p", "completion": "c", "reward": 1, **one} for one in said])
    write_trajectories(tmp_path / "kept.parquet", read_foreign(path))
    found = [(one.more["info/answer"], one.more["info/hops"]) for one in read_trajectories(tmp_path / "kept.parquet")]
    assert found == [("7", 2.0), ("7.0", None), (None, None)]


def test_samples_of_episodes_are_read_as_the_transcripts_that_solutions_are(tmp_path: Path) -> None:
    made = [Trajectory(SEGMENTS, index=3, sample=1), Trajectory(SEGMENTS[2:], index=4)]
    write_trajectories(tmp_path / "samples.parquet", made)
    rows = list(trajectory.read_samples(tmp_path, ["index", "completion"]))
    assert [(row["index"], row["completion"]) for row in rows] == [
        (3, MARK.join(one.text for one in SEGMENTS)),
        (4, "It is 7."),
    ]
