"""Steps that choose and label rows, each on rows whose right choice is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.core.model import PermanentError, UserError
from interplay.data import curate, sets, tokenizer
from interplay.data.spec import TokenizerSpec
from interplay.data.steps.filter import rank_shares
from interplay.data.steps.spec import CurateSpec
from interplay.tasks.op_dag.dag import Node, Problem
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.verdict import Row

GRAPH = OP_DAG.dumps(Problem("forward", 7, (Node("a", "", (), 3),), 1, (3,), (0,), (0,), (0, 0)))
ROW = Row(0, 0, "b", 2, "forward", "a3?a|", "a3#3", "3", GRAPH, "00", "op_dag", "")
RIGHT = [0, 1, 3, 6, 7, 8]
"""Right samples of row 0, 1, ... among its first 8."""


def placed(results: Path, digest: str, rows: list[Row]) -> Path:
    out = results / "problems" / digest
    sets.write_table(sets.table_of_rows(rows), out)
    write_json(out / "stage.json", {"kind": "problems", "digest": digest, "deps": {}})
    return out


def sampled(results: Path, name: str, right: list[list[bool]], first: int = 0) -> Path:
    """Samples of an evaluation: strict as told, and the answer right in all."""
    out = results / "evaluate" / name
    out.mkdir(parents=True)
    rows = [
        {"index": index, "sample": first + number, "strict": strict, "answer": True}
        for index, row in enumerate(right)
        for number, strict in enumerate(row)
    ]
    pq.write_table(pa.Table.from_pylist(rows), out / "samples.parquet")
    return out


def numbered(count: int) -> list[Row]:
    return [replace(ROW, op=number + 1, prompt=f"a{number}?a|") for number in range(count)]


def run(tmp_path: Path, rows: list[Row], *steps: dict[str, Any], **more: Path) -> tuple[dict[str, Any], list[Row]]:
    inputs = {"data.0": placed(tmp_path, "a" * 12, rows), **{role.replace("_", "."): folder for role, folder in more.items()}}
    out = tmp_path / "out"
    record = curate.curate_problems(CurateSpec.model_validate({"mix": [1.0], "steps": steps}), inputs, out, Run())
    write_json(out / "stage.json", {"kind": "curate", "digest": "c" * 12, "deps": {}})
    return record, sorted(sets.read_rows(out, 0), key=lambda row: row.op)


def judged(of: int = 8, right: list[int] | None = None) -> list[list[bool]]:
    return [[number < n for number in range(of)] for n in right or RIGHT]


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        ({"rule": "loongrl"}, [1, 3, 6]),
        ({"low": 0, "high": 0, "of": 8}, [0]),
        ({"low": 7, "high": 8, "of": 8}, [7, 8]),
        ({"low": 4, "high": 4, "of": 4}, [6, 7, 8]),
        ({"low": 8, "high": 8, "of": 8, "by": "answer"}, RIGHT),
    ],
)
def test_rows_stay_whose_right_samples_lie_in_the_band(tmp_path: Path, step: dict[str, Any], kept: list[int]) -> None:
    samples = sampled(tmp_path, "e", judged())
    record, left = run(tmp_path, numbered(6), {"name": "pass_rate", **step}, samples_0_0_0=samples)
    assert [RIGHT[row.op - 1] for row in left] == kept
    done = record["steps"][0]
    assert done["given"] == 6
    assert done["left"] == len(kept)
    assert done["too_hard"] + done["too_easy"] == 6 - len(kept)


def test_the_rule_of_cog_drift_keeps_what_64_samples_never_solve_over_blocks_of_32(tmp_path: Path) -> None:
    never, late = [False] * 32, [False] * 31 + [True]
    first, second = sampled(tmp_path, "e", [never, never, late]), sampled(tmp_path, "f", [never, late, never], first=32)
    step = {"name": "pass_rate", "rule": "cog_drift"}
    _, left = run(tmp_path, numbered(3), step, samples_0_0_0=first, samples_0_0_1=second)
    assert [row.op for row in left] == [1]


def test_the_samples_that_count_are_the_first_whatever_order_their_blocks_are_named_in(tmp_path: Path) -> None:
    blocks = {f"samples.0.0.{b}": sampled(tmp_path, f"e{b}", [[b >= 2]], first=b) for b in range(12)}
    inputs = {"data.0": placed(tmp_path, "a" * 12, numbered(1)), **dict(sorted(blocks.items()))}
    spec = {"mix": [1.0], "steps": [{"name": "pass_rate", "low": 1, "high": 1, "of": 3}]}
    assert curate.curate_problems(CurateSpec.model_validate(spec), inputs, tmp_path / "out", Run())["size"] == 1


def test_a_row_with_fewer_samples_than_are_counted_is_refused_by_name(tmp_path: Path) -> None:
    step = {"name": "pass_rate", "low": 0, "high": 9, "of": 9}
    with pytest.raises(PermanentError, match=rf"row {'a' * 12}:\d has 8 samples of the 9"):
        run(tmp_path, numbered(6), step, samples_0_0_0=sampled(tmp_path, "e", judged()))
    with pytest.raises(PermanentError, match=f"row {'a' * 12}:6 has 0 samples of the 8"):
        run(tmp_path, numbered(7), {**step, "of": 8, "high": 8}, samples_0_0_0=sampled(tmp_path, "f", judged()))


def test_the_shares_of_two_sets_are_filtered_by_the_samples_of_each(tmp_path: Path) -> None:
    one, two = numbered(4), [replace(row, op=row.op + 10) for row in numbered(4)]
    inputs = {
        "data.0": placed(tmp_path, "a" * 12, one),
        "data.1": placed(tmp_path, "b" * 12, two),
        "samples.0.0.0": sampled(tmp_path, "e", judged(2, [0, 1, 2, 0])),
        "samples.0.1.0": sampled(tmp_path, "f", judged(2, [1, 0, 0, 0])),
    }
    spec = {"mix": [0.5, 0.5], "steps": [{"name": "pass_rate", "low": 1, "high": 1, "of": 2}]}
    curate.curate_problems(CurateSpec.model_validate(spec), inputs, tmp_path / "curate" / "x", Run())
    write_json(tmp_path / "curate/x/stage.json", {"digest": "x"})
    left = sets.read_rows(tmp_path / "curate" / "x", 0)
    assert sorted(row.op for row in left) == [2, 11]
    assert sorted(row.origin for row in left) == [f"{'a' * 12}:1", f"{'b' * 12}:0"]


# -- labels ------------------------------------------------------------------------------------------------------------


def test_difficulty_is_the_share_of_right_samples_and_edges_belong_to_the_first_band_that_has_them(tmp_path: Path) -> None:
    bands = {"hard": [0.0, 0.125], "edge": [0.125, 0.75], "easy": [0.875, 0.875]}
    record, left = run(
        tmp_path, numbered(6), {"name": "difficulty", "bands": bands}, samples_0_0_0=sampled(tmp_path, "e", judged())
    )
    assert [row.band for row in left] == ["hard", "hard", "edge", "edge", "easy", "b"]
    assert record["steps"][0] | {"given": 0, "left": 0} == {
        "step": "difficulty", "given": 0, "left": 0, "band hard": 2, "band edge": 2, "band easy": 1, "in no band": 1
    }  # fmt: skip


def test_quantiles_cut_the_rows_in_equal_parts_and_equal_values_stay_together(tmp_path: Path) -> None:
    thirds = {"low": [0.0, 0.3333], "mid": [0.3333, 0.6667], "high": [0.6667, 1.0]}
    _, left = run(tmp_path, numbered(9), {"name": "label", "by": "op", "edges": "quantile", "bands": thirds})
    assert [row.band for row in left] == ["low"] * 3 + ["mid"] * 3 + ["high"] * 3
    assert rank_shares([5, 5, 5, 5]) == [0.5] * 4


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_a_quantile_place_is_the_share_of_smaller_values_and_half_of_the_equal_ones(values: list[int]) -> None:
    expected = [(sum(v < x for v in values) + sum(v == x for v in values) / 2) / len(values) for x in values]
    assert rank_shares(values) == pytest.approx(expected)


def test_length_counts_tokens_of_what_it_is_told_to(tmp_path: Path) -> None:
    out = tmp_path / "tokenizer" / "t"
    tokenizer.build_tokenizer(TokenizerSpec(task=OpDag(letters=10)), {}, out, Run())
    rows = [replace(ROW, op=n, prompt="a" * n + "|", solution="b" * (10 - n)) for n in range(1, 7)]
    for part, low, high, kept in (
        ("prompt", 3, 5, [2, 3, 4]),
        ("solution", 4, 6, [4, 5, 6]),
        ("both", 11, 11, [1, 2, 3, 4, 5, 6]),
    ):
        step = {"name": "length", "part": part, "low": low, "high": high}
        record, left = run(tmp_path, rows, step, tokenizer=out)
        assert [row.op for row in left] == kept
        assert record["steps"][0]["too_short"] + record["steps"][0]["too_long"] == 6 - len(kept)


# -- a step of one's own -----------------------------------------------------------------------------------------------

SOURCE = """
def odd(rows, least):
    return [{**row, "prompt": row["prompt"] + "!"} if row["op"] == 5 else row for row in rows if row["op"] % 2 and row["op"] >= least]
def broken(rows):
    return [{"prompt": "x"}]
def foreign(rows):
    return [{**rows[0], "index": 99}]
"""


def custom(function: str, **options: Any) -> dict[str, Any]:
    return {"name": "custom", "function": f"own.py:{function}", "source": SOURCE, "options": options}


def test_a_step_of_ones_own_chooses_and_changes_rows_and_those_that_it_changed_say_so(tmp_path: Path) -> None:
    record, left = run(tmp_path, numbered(8), custom("odd", least=3))
    assert [(row.op, row.transforms) for row in left] == [(3, ()), (5, ("custom:odd",)), (7, ())]
    assert left[1].prompt.endswith("!")
    assert left[1].origin == f"{'a' * 12}:4"
    assert record["steps"] == [{"step": "custom", "given": 8, "left": 3, "changed": 1}]


@pytest.mark.parametrize("function", ["broken", "foreign"])
def test_a_step_of_ones_own_that_returns_no_rows_of_the_set_is_refused(tmp_path: Path, function: str) -> None:
    with pytest.raises(UserError, match=f"own.py:{function}: must return a list of rows with the columns set, index"):
        run(tmp_path, numbered(3), custom(function))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[{**rows[0], 'answer': 3}]", r"set and index as they were \(answer is int\)"),
        ("[{**rows[0], 'op': '2'}]", r"\(op is str\)"),
        ("[{**rows[0], 'transforms': 'text'}]", r"\(transforms is str\)"),
        ("[{**rows[0], 'prompt': None}]", r"\(prompt is NoneType\)"),
        ("[list(rows[0])]", r"\(TypeError: "),
        ("None", r"\(not NoneType\)"),
        ("rows[0]", r"\(not dict\)"),
        ("[{**rows[0], 'family': 'op_dog'}]", "family = 'op_dog' of row 0 has no verifier; did you mean 'op_dag'"),
        ("[{**rows[0], 'graph': 'x'}]", "graph or key of row 0 does not parse as op_dag"),
        ("[{**rows[0], 'key': 'x'}]", "graph or key of row 0 does not parse as op_dag"),
        ("1 // 0", r"own.py:made: fails at line 1 \(ZeroDivisionError: "),
    ],
)
def test_whatever_is_wrong_with_a_step_of_ones_own_is_one_line(tmp_path: Path, returned: str, message: str) -> None:
    step = {**custom("made"), "source": f"def made(rows): return {returned}"}
    with pytest.raises(UserError, match=message) as caught:
        run(tmp_path, numbered(3), step)
    assert "\n" not in str(caught.value)


# -- what a schema refuses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"name": "pass_rate"}, "give low, high and of, or a rule"),
        ({"name": "pass_rate", "rule": "loongrl", "of": 4}, "rule loongrl fixes low, high and of"),
        ({"name": "pass_rate", "low": 3, "high": 2, "of": 8}, "low <= high <= of"),
        ({"name": "pass_rate", "low": 0, "high": 9, "of": 8}, "low <= high <= of"),
        ({"name": "length", "low": 9, "high": 8}, "low <= high"),
        ({"name": "label", "bands": {"a": [2, 1]}}, r"bands.a\n.*must be \[low, high\] with low <= high"),
        ({"name": "label", "edges": "quantile", "bands": {"a": [0, 2]}}, "quantiles lie in"),
        ({"name": "deduplicate", "how": "ngram", "threshold": 0}, "greater than 0"),
        ({"name": "poison", "kind": "answer", "ratio": 1.5}, "less than or equal to 1"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused_before_anything_runs(step: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CurateSpec.model_validate({"mix": [1.0], "steps": [step]})


def test_samples_of_rows_that_an_earlier_step_changed_are_not_taken_for_theirs() -> None:
    poison, rate = {"name": "poison", "kind": "answer", "ratio": 0.5}, {"name": "pass_rate", "rule": "loongrl"}
    CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": "take", "size": 3}, rate, poison]})
    with pytest.raises(ValidationError, match=r"steps.1 \(pass_rate\) reads samples of the input rows; put it before poison"):
        CurateSpec.model_validate({"mix": [1.0], "steps": [poison, rate]})


@pytest.mark.parametrize(
    "step", ["choice", "cloze", "true_false", "ladder", "keychain", "needle", "long_context", "citation", "subproblems", "atoms"]
)
def test_a_step_that_would_undo_an_earlier_one_is_refused(step: str) -> None:
    poison = {"name": "poison", "kind": "conflict", "ratio": 0.5}
    for edit in ({"name": "chat_template"}, poison, {"name": "intervention"}):
        with pytest.raises(
            ValidationError,
            match=rf"steps.2 \({step}\) rewrites prompts or solutions, which would undo {edit['name']}; put it",
        ):
            CurateSpec.model_validate({"mix": [1.0], "steps": [edit, {"name": "take", "size": 3}, {"name": step}]})
    CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": step}, poison, {"name": "chat_template"}]})
    CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": "intervention", "suffix": True}, {"name": step}]})
