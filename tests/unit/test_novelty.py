"""Novelty of graphs: what a completion states, its similarity to others up to names, and the counts of an evaluation by band."""

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import examples
from hypothesis import given, strategies as st
from op_dag_cases import cases
from reform_cases import rows
from test_op_dag_structure import disguised

from interplay.cli import main
from interplay.core.artifact import write_json
from interplay.core.model import UserError
from interplay.data import sets
from interplay.data.similarity import Novelty, features, library, nearest, novelty_by_band, similarity
from interplay.tasks.op_dag.terse import Definition, gold_graph, render, stated_graph
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.op_dag.terse_verifier import verify
from interplay.tasks.spec import Verify


def like(one: str, other: str) -> float:
    palette: dict = {}
    return similarity(features(stated_graph(one, 23), palette), features(stated_graph(other, 23), palette))


# -- by hand ---------------------------------------------------------------------------------------------------------------------


def test_the_graph_is_what_the_definitions_say_in_either_order_and_also_where_they_are_wrong() -> None:
    graph = {
        "c": Definition(("*",), ("b",), ((0, 2),)),
        "b": Definition(("+",), ("d", "a")),
        "d": Definition(numbers=((0, 3),)),
        "a": Definition(numbers=((0, 1),)),
    }
    assert stated_graph("cb*2,bd+a,d3,a1|a1,d3,b3+1=4,c4*2=8#8", 23) == graph
    assert stated_graph("a1,d3,bd+a=3+1=4,cb*2=4*2=8#8", 23) == graph
    assert stated_graph("a1,d3,bd+a=3+1=9,cb*2=9*2=18#18", 23) == graph, "values are no part of a graph"
    assert stated_graph("cb*2,@@,c5#5", 23) == {"c": Definition(("*",), ("b",), ((0, 2),)), "b": Definition()}
    assert stated_graph("", 23) == {}


def test_similarity_is_the_jaccard_index_of_the_nodes_colours() -> None:
    """Leaf and sum: two nodes, four rounds of colours each. Without the number in common only the leaf's first colour is equal."""
    assert like("a1,ba+2=1+2=3#3", "x1,yx+2=1+2=3#3") == 1.0
    assert like("a1,ba+2=1+2=3#3", "a1,ba+3=1+3=4#4") == pytest.approx(1 / 15)
    assert like("a1#1", "a2#2") == 0.0
    assert like("", "") == 1.0


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("a1,b2,ca+b", "a1,b2,cb+a", True),  # a sum commutes
        ("a1,b2,ca-b", "a1,b2,cb-a", False),  # a difference does not
        ("a1,b2,ca+b", "a1,b2,ca*b", False),
        ("a1,ba,cb", "a1,ba,ca", False),  # a chain is no fan
        ("a1,ba+2,cb+2", "a1,ba+2,ca+2", False),
        ("a1,b1,ca+b", "a1,ca+a", False),  # two leaves are not one that is read twice
    ],
)
def test_graphs_are_equal_up_to_what_the_arithmetic_does_not_tell(one: str, other: str, equal: bool) -> None:
    assert (like(one, other) == 1.0) == equal


def test_a_graph_that_reads_itself_has_colours_too() -> None:
    assert like("ab+1,ba+1", "cd+1,dc+1") == 1.0


# -- properties --------------------------------------------------------------------------------------------------------------------


@given(cases())
@examples(200)
def test_gold_solutions_state_the_gold_graph_in_either_trace(case: tuple) -> None:
    task, problem = case
    for trace in ("goal_first", "leaf_first"):
        text = render(problem, task.model_copy(update={"trace": trace})).solution
        palette: dict = {}
        assert features(stated_graph(text, task.modulus), palette) == features(gold_graph(problem), palette)


@given(cases(), st.integers(0, 10**6))
@examples(200)
def test_names_order_and_commuted_operands_change_nothing(case: tuple, seed: int) -> None:
    _, problem = case
    palette: dict = {}
    assert features(gold_graph(disguised(problem, random.Random(seed))), palette) == features(gold_graph(problem), palette)


@given(st.lists(cases(), min_size=1, max_size=5), cases())
@examples(100)
def test_the_nearest_of_a_library_is_the_most_similar_of_its_graphs(given_cases: list[tuple], case: tuple) -> None:
    palette: dict = {}
    known = [features(gold_graph(problem), palette) for _, problem in given_cases]
    asked = features(gold_graph(case[1]), palette)
    assert nearest(asked, library(known)) == pytest.approx(max(similarity(asked, one) for one in known))
    assert nearest(known[0], library(known)) == 1.0
    assert 0 <= similarity(asked, known[0]) == similarity(known[0], asked) <= 1


# -- of an evaluation --------------------------------------------------------------------------------------------------------------


def stage(root: Path, kind: str, digest: str, **deps: str) -> Path:
    out = root / "results" / kind / digest
    out.mkdir(parents=True)
    write_json(out / "stage.json", {"kind": kind, "digest": digest, "deps": deps})
    return out


def laboratory(root: Path) -> tuple[Path, Path, Path]:
    """An evaluation on four problems of op 4 (two bands) and one of op 3, and a training set with the first two of them, renamed."""
    tested, trained = stage(root, "problems", "a" * 12), stage(root, "problems", "b" * 12)
    found = [*rows(4), *rows(1, op=3, first=9)]
    found = [replace(one, **{"band": "low" if at < 2 else "high", "index": at}) for at, one in enumerate(found)]
    sets.write_table(sets.table_of_rows(found), tested)
    twins = [disguised(OP_DAG.loads(one.graph), random.Random(1)) for one in found[:2]]
    made = [replace(one, **{"graph": OP_DAG.dumps(twin)}) for one, twin in zip(found, twins, strict=False)]
    sets.write_table(sets.table_of_rows(made), trained)
    samples = []
    for one in found:
        lucky = f"#{one.answer}"
        for number, text in enumerate([one.solution, one.solution, lucky, "#x"]):
            verdict = verify(OP_DAG.loads(one.graph), text, Verify())
            columns = {"completion": text, "strict": verdict.strict, "answer": verdict.answer}
            samples.append({"index": one.index, "sample": number, "band": one.band, "op": one.op, **columns})
    evaluation = stage(root, "evaluate", "e" * 12, data="a" * 12, model="c" * 12)
    pq.write_table(pa.Table.from_pylist(samples), evaluation / "samples.parquet")
    return evaluation, tested, trained


def test_copies_and_the_nearest_are_counted_by_band_over_the_right_samples(tmp_path: Path) -> None:
    evaluation, tested, trained = laboratory(tmp_path)
    low, high = novelty_by_band(evaluation, tested, trained)
    assert low == Novelty("low", right=4, graphs=2, copied=1.0, expected=1.0, nearest=1.0, without=0)
    assert (high.right, high.graphs, high.copied, high.expected, high.without) == (4, 2, 0.0, 0.0, 2)
    assert 0 < high.nearest < 1


def test_by_answer_lucky_samples_count_with_the_graph_that_they_state(tmp_path: Path) -> None:
    low, _ = novelty_by_band(*laboratory(tmp_path), by="answer")
    assert (low.right, low.graphs, low.copied) == (6, 3, pytest.approx(4 / 6))
    assert low.expected == 1.0, "their problems' own graphs are all in the set"


def test_a_set_of_another_family_is_refused(tmp_path: Path) -> None:
    evaluation, tested, _ = laboratory(tmp_path)
    other = stage(tmp_path, "problems", "d" * 12)
    sets.write_table(sets.table_of_rows([replace(one, **{"family": "qa"}) for one in rows(1)]), other)
    with pytest.raises(UserError, match="has no problems of op_dag"):
        novelty_by_band(evaluation, tested, other)


def test_the_command_prints_a_line_per_band(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    laboratory(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["novelty", "eeee", "--against", "bbbb"]) == 0
    head, low, high = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head[:6] == ["band", "right", "graphs", "copied", "expected", "nearest"]
    assert low == ["low", "4", "2", "100.0%", "100.0%", "1.000", "0"]
    assert (high[0], high[3]) == ("high", "0.0%")
    assert main(["novelty", "aaaa", "--against", "bbbb"]) == 2
    assert "is a problems stage; name one of kind evaluate" in capsys.readouterr().err
    next(tmp_path.rglob("samples.parquet")).unlink()  # as where the evaluation is not finished
    assert main(["novelty", "eeee", "--against", "bbbb"]) == 2
    assert "novelty: eeee has no samples here" in capsys.readouterr().err
