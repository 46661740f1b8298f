import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest

from interplay.core.execution import Run
from interplay.core.extension import Extension
from interplay.core.keys import largest_remainder
from interplay.core.model import UserError
from interplay.data import problems, sets
from interplay.data.spec import SPLITS, ProblemsSpec
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse_prompts import OP_DAG


def make_spec(**changes) -> ProblemsSpec:
    default = {
        "task": OpDag(),
        "bands": {"id": {2: 0.5, 3: 0.5}, "edge": {6: 1.0}},
        "shares": {"id": 0.75, "edge": 0.25},
        "size": 120,
        "split": "train",
    }
    return ProblemsSpec(**{**default, **changes})


def rows(out: Path) -> list[dict]:
    return sets.read_table(out).to_pylist()


def test_shares_are_met_exactly_and_rows_are_mixed(tmp_path: Path) -> None:
    metrics = problems.generate_problems(make_spec(), {}, tmp_path, Run())
    table = rows(tmp_path)
    assert Counter((row["band"], row["op"]) for row in table) == {("id", 2): 45, ("id", 3): 45, ("edge", 6): 30}
    assert metrics["size"] == 120
    assert metrics["ops"] == {"2": 45, "3": 45, "6": 30}
    assert len({row["band"] for row in table[:20]}) == 2


def test_a_row_is_the_problem_at_its_seed_index_and_op(tmp_path: Path) -> None:
    spec = make_spec(seed=5)
    problems.generate_problems(spec, {}, tmp_path, Run())
    for row in rows(tmp_path):
        problem = OP_DAG.generate(spec.task, 5, row["index"], row["op"])
        assert (row["prompt"], row["solution"], row["answer"]) == OP_DAG.render(problem, spec.task)
        assert (row["key"], row["mode"]) == (OP_DAG.structure(problem), problem.mode)
        assert OP_DAG.loads(row["graph"]) == problem
        assert row["op"] == problem.op


def test_a_split_holds_only_its_own_structures(tmp_path: Path) -> None:
    for split, own in SPLITS.items():
        problems.generate_problems(make_spec(split=split, size=40), {}, tmp_path / split, Run())
        assert {int(row["key"], 16) % 100 in own for row in rows(tmp_path / split)} == {True}


def test_no_structure_occurs_twice(tmp_path: Path) -> None:
    metrics = problems.generate_problems(make_spec(bands={"id": {1: 1.0}}, shares={"id": 1.0}, size=300), {}, tmp_path, Run())
    keys = [row["key"] for row in rows(tmp_path)]
    assert len(set(keys)) == 300
    assert metrics["dropped"]["1"] > 0
    assert metrics["duplicates"] == {}


def test_an_op_with_too_few_distinct_problems_repeats_and_says_so(tmp_path: Path) -> None:
    # Without distractors, op 1 is a single constant, and there are four of them in all splits together.
    task = OpDag(distractors=(0, 0))
    metrics = problems.generate_problems(
        make_spec(task=task, bands={"id": {1: 0.5, 6: 0.5}}, shares={"id": 1.0}), {}, tmp_path, Run()
    )
    kept = Counter(row["key"] for row in rows(tmp_path) if row["op"] == 1)
    assert 1 <= len(kept) <= 4
    assert metrics["duplicates"] == {"1": 60 - len(kept)}


def test_repeats_are_kept_where_the_spec_says_so(tmp_path: Path) -> None:
    spec = make_spec(bands={"id": {1: 1.0}}, shares={"id": 1.0}, size=300, unique=False)
    metrics = problems.generate_problems(spec, {}, tmp_path, Run())
    assert metrics["dropped"] == {}
    assert metrics["duplicates"]["1"] == 300 - len({row["key"] for row in rows(tmp_path)}) > 0


def test_an_op_without_any_problem_in_the_split_is_named(tmp_path: Path) -> None:
    task = OpDag(distractors=(0, 0), constants=(1, 1))
    spec = make_spec(task=task, bands={"id": {1: 1.0}}, shares={"id": 1.0}, split="test")
    with pytest.raises(UserError, match=r"op 1 has too few structures for split 'test'"):
        problems.generate_problems(spec, {}, tmp_path, Run())


def test_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "CHUNK", 20)
    problems.generate_problems(make_spec(), {}, tmp_path / "one", Run(threads=1))
    problems.generate_problems(make_spec(), {}, tmp_path / "two", Run(threads=2))
    assert (tmp_path / "one/problems.parquet").read_bytes() == (tmp_path / "two/problems.parquet").read_bytes()


def test_a_gold_answer_that_the_solver_does_not_confirm_stops_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "task_family", lambda task: dataclasses.replace(OP_DAG, solve=lambda prompt, task: "no"))
    with pytest.raises(RuntimeError, match="its prompt gives no"):
        problems.generate_problems(make_spec(size=3), {}, tmp_path, Run())


def test_the_studys_own_transform_maps_the_rows(tmp_path: Path) -> None:
    source = "def double(rows, mark):\n    return [{**r, 'prompt': r['prompt'] + mark} for r in rows for _ in range(2)]\n"
    transform = Extension(function="mine.py:double", source=source, options={"mark": "!"})
    metrics = problems.generate_problems(make_spec(size=10, transform=transform), {}, tmp_path, Run())
    assert metrics["size"] == 20
    assert all(row["prompt"].endswith("|!") for row in rows(tmp_path))


@pytest.mark.parametrize("body", ["return [{'prompt': 'a'}]", "return None", "return []", "return [{**rows[0], 'op': 'six'}]"])
def test_a_transform_that_returns_no_rows_is_refused_in_one_line(tmp_path: Path, body: str) -> None:
    transform = Extension(function="mine.py:broken", source=f"def broken(rows):\n    {body}\n")
    with pytest.raises(UserError, match=r"^mine.py:broken: must return [^\n]*$"):
        problems.generate_problems(make_spec(size=10, transform=transform), {}, tmp_path, Run())


def test_a_transform_that_fails_is_told_with_its_line(tmp_path: Path) -> None:
    transform = Extension(function="mine.py:broken", source="def broken(rows):\n    return rows[0]['promt']\n")
    with pytest.raises(UserError, match=r"^mine.py:broken: fails at line 2 \(KeyError: 'promt'\)$"):
        problems.generate_problems(make_spec(size=10, transform=transform), {}, tmp_path, Run())


def test_largest_remainder_on_hand_numbers() -> None:
    # 10 seats over 0.47, 0.16, 0.158, 0.12, 0.061, 0.031: floors 4, 1, 1, 1, 0, 0; largest remainders .7, .61, .6.
    assert largest_remainder([0.47, 0.16, 0.158, 0.12, 0.061, 0.031], 10) == [5, 2, 1, 1, 1, 0]
    assert largest_remainder([1 / 3, 1 / 3, 1 / 3], 10) == [4, 3, 3]


def test_a_damaged_problem_set_is_named(tmp_path: Path) -> None:
    (tmp_path / "problems.parquet").write_bytes(json.dumps({}).encode())
    with pytest.raises(UserError, match=r"problems.parquet: not readable"):
        sets.read_table(tmp_path)
