"""Interventions (InT) and atoms: the first wrong step by the gold graph, the right one in its place, unfinished solutions without an
end token, and single steps as problems."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import examples
from hypothesis import given, strategies as st
from op_dag_cases import cases
from reform_cases import INTEGERS, TASK, row, rows

from interplay.core.execution import Run
from interplay.data import corpus, sets, tokenizer
from interplay.data.curate import StepInputs
from interplay.data.spec import CorpusSpec, TokenizerSpec, split_of
from interplay.data.steps.context_spec import Atoms, Intervention
from interplay.data.steps.reformulate import make_atoms, make_interventions
from interplay.tasks.op_dag.dag import Node, Problem
from interplay.tasks.op_dag.terse import gold_sentences, render
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.op_dag.terse_variants import Repair, first_wrong, repair
from interplay.tasks.op_dag.terse_verifier import verify
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import UNFINISHED, Row

# cb*2 over bd+a, a1, d3: `a1,d3,bd+a,cb*2?c|`, modulo 23.
NODES = (Node("a", "", (), 1), Node("d", "", (), 3), Node("b", "+", (1, 0), None), Node("c", "*", (2,), 2))
PROBLEM = Problem("forward", 23, (*NODES, Node("e", "", (), 5)), 4, (1, 3, 4, 8), (0,) * 4, (0, 1, 2, 3, 4), (0,) * 6)
GOLD = "cb*2,bd+a,d3,a1|a1,d3,b3+1=4,c4*2=8#8"
WHOLE = "a1,d3,bd+a=3+1=4,cb*2=4*2=8#8"


def test_the_gold_of_the_example_is_as_the_tests_below_have_it() -> None:
    assert render(PROBLEM, TASK).solution == GOLD
    assert render(PROBLEM, TASK.model_copy(update={"trace": "leaf_first"})).solution == WHOLE


@pytest.mark.parametrize(
    ("completion", "prefix", "step"),
    [
        ("cb*2,bd+a,d3,a1|a1,d3,b3+1=5,c5*2=10#10", "cb*2,bd+a,d3,a1|a1,d3,", "b3+1=4"),  # a wrong value
        ("cb*2,bd+a,d4,a1|a1,d4#9", "cb*2,bd+a,", "d3"),  # a wrong leaf
        ("cb*2,bd+e,d3,a1|a1#2", "cb*2,", "bd+a"),  # wrong parents
        ("cb*2,bd+a,e5,d3,a1|a1#2", "cb*2,bd+a,", "d3"),  # a node that is not needed: the next gold step
        ("cb*2,bd+a,d3,a1|a1,c4*2=8#8", "cb*2,bd+a,d3,a1|a1,", "d3"),  # valued before its parents
        ("cb*2,bd+a|b3+1=4,c8#8", "cb*2,bd+a,", "d3"),  # on to the values before all is unfolded: the sign is mended, too
        ("cb*2,bd+a,d3,a1,b3+1=4#4", "cb*2,bd+a,d3,a1|", "a1"),  # the next section is due
        ("cb*2,cb*2#1", "cb*2,", "bd+a"),  # said twice
        ("@@@", "", "cb*2"),  # unreadable from the start
        ("cb*2,b1+3,d3,a1|a1#1", "cb*2,", "bd+a"),  # worked where the parents are due
    ],
)
def test_the_first_wrong_step_is_replaced_by_the_right_one(completion: str, prefix: str, step: str) -> None:
    made = repair(PROBLEM, completion, goal_first=True)
    assert made is not None
    assert (made.prefix, made.step, made.answers) == (prefix, step, False)
    assert verify(PROBLEM, made.prefix + made.step + made.suffix, Verify()).strict


def test_a_leaf_first_solution_is_mended_in_its_own_order() -> None:
    made = repair(PROBLEM, "a1,d3,bd+a=3+1=5,cb*2=5*2=10#10", goal_first=False)
    assert made == Repair("a1,d3,", "bd+a=3+1=4", ",cb*2=4*2=8#8", False)


@pytest.mark.parametrize("step", ["b4", "b3+1=4", "b=4"])
def test_a_leaf_first_step_that_does_not_name_its_parents_is_wrong(step: str) -> None:
    """As the verifier has it: the parents are named once."""
    completion = f"a1,d3,{step},cb*2=4*2=8#8"
    assert verify(PROBLEM, completion, Verify()).error == "dependency"
    assert repair(PROBLEM, completion, goal_first=False) == Repair("a1,d3,", "bd+a=3+1=4", ",cb*2=4*2=8#8", False)


def test_a_right_step_that_gives_the_goal_its_value_gives_the_answer() -> None:
    made = repair(PROBLEM, "cb*2,bd+a,d3,a1|a1,d3,b3+1=4,c4*2=9#9", goal_first=True)
    assert made is not None
    assert made.answers
    assert made.step == "c4*2=8"


@pytest.mark.parametrize("completion", [GOLD, GOLD[:-1] + "9", GOLD[:9], "", "#8", "cb*2,bq+a,qd#1"])
def test_where_no_step_is_wrong_or_names_of_its_own_come_first_there_is_no_repair(completion: str) -> None:
    assert repair(PROBLEM, completion, goal_first=True) is None


@given(cases(), st.integers(0, 10**6), st.text(alphabet="abcz+*=,|#0123456789@", max_size=6))
@examples(300)
def test_prefix_intervention_and_suffix_are_strictly_right_whatever_was_spoilt(case: tuple, place: int, spoil: str) -> None:
    task, problem = case
    solution = render(problem, task).solution
    cut = place % (len(solution) + 1)
    made = repair(problem, solution[:cut] + spoil + solution[cut + 1 :], task.trace == "goal_first")
    if made is not None:
        assert problem.mode == "forward"
        found = verify(problem, made.prefix + made.step + made.suffix, Verify(extra_nodes="penalised"))
        assert found.strict
        assert made.answers == (not made.suffix.startswith((",", "|")))


@given(cases(), st.data())
@examples(200)
def test_a_solution_with_a_step_for_each_of_the_golds_none_of_them_wrong_is_strictly_right(
    case: tuple, data: st.DataObject
) -> None:
    """Each step in one of the three wordings: what `first_wrong` passes the verifier passes."""
    task, problem = case
    texts, gold = gold_sentences(problem, problem.necessary), render(problem, task)
    wordings = {each[0][0]: each for each in zip(texts.definitions, texts.evaluations, texts.whole, strict=True)}
    steps = gold.solution.partition("#")[0].replace("|", ",").split(",")
    if problem.mode == "forward":
        for place in data.draw(st.lists(st.integers(0, len(steps) - 1), max_size=3)):
            steps[place] = data.draw(st.sampled_from(wordings[steps[place][0]]))
        completion = ",".join(steps) + f"#{gold.answer}"
        if first_wrong(problem, completion, task.trace == "goal_first") is None:
            assert verify(problem, completion, Verify(extra_nodes="penalised")).strict


# --- the step ---


def inputs(folder: Path, samples: dict[int, list[str]], given_rows: list[Row]) -> StepInputs:
    """StepInputs with an evaluation of set 0 that has these completions by index."""
    entries = []
    for index, completions in samples.items():
        problem = OP_DAG.loads(given_rows[index].graph)
        for number, completion in enumerate(completions):
            answer = verify(problem, completion, Verify()).answer
            entries.append({"index": index, "sample": number, "completion": completion, "answer": answer, "strict": answer})
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(entries), folder / "samples.parquet")
    return StepInputs(0, {"samples.0.0.0": folder}, 0)


def source(index: int = 0) -> Row:
    made = render(PROBLEM, TASK)
    base = row(TASK, 4, index, index)
    columns = {"prompt": made.prompt, "solution": made.solution, "answer": made.answer, "graph": OP_DAG.dumps(PROBLEM)}
    return base.__class__(**{name: getattr(base, name) for name in base.__slots__} | columns)


VALUE, LEAF = "cb*2,bd+a,d3,a1|a1,d3,b3+1=5,c5*2=10#10", "cb*2,bd+a,d4,a1|a1,d4#9"
LAST, LATE = "cb*2,bd+a,d3,a1|a1,d3,b3+1=4,c4*2=9#9", GOLD[:-1] + "9"


def test_wrong_samples_become_unfinished_solutions_and_every_other_is_counted(tmp_path: Path) -> None:
    given_rows = [source(0), source(1), source(2)]
    samples = {0: [GOLD, LAST, LATE, VALUE, LEAF], 1: [GOLD, GOLD]}
    made = make_interventions(Intervention(), given_rows, inputs(tmp_path, samples, given_rows))
    assert [(one.solution, one.mode, one.origin) for one in made.rows] == [
        ("cb*2,bd+a,d3,a1|a1,d3,b3+1=4", UNFINISHED, given_rows[0].origin)
    ]
    assert made.rows[0].transforms == ("intervention",)
    assert made.counts == {"wrong_samples": 4, "gives_the_answer": 1, "no_wrong_step": 1, "without_intervention": 2}


@pytest.mark.parametrize(
    ("spec", "solutions", "mode"),
    [
        (Intervention(per_problem=3), ["cb*2,bd+a,d3,a1|a1,d3,b3+1=4", "cb*2,bd+a,d3"], UNFINISHED),
        (Intervention(prefix=False), ["b3+1=4"], UNFINISHED),
        (Intervention(suffix=True), [GOLD], "forward"),
    ],
)
def test_prefix_suffix_and_number_are_as_asked(spec: Intervention, solutions: list[str], mode: str, tmp_path: Path) -> None:
    given_rows = [source()]
    made = make_interventions(spec, given_rows, inputs(tmp_path, {0: [VALUE, VALUE, LEAF]}, given_rows))
    assert [(one.solution, one.mode) for one in made.rows] == [(solution, mode) for solution in solutions]


def test_an_unfinished_solution_is_trained_without_an_end_token_and_others_with_one(tmp_path: Path) -> None:
    given_rows = [source()]
    unfinished = make_interventions(Intervention(), given_rows, inputs(tmp_path / "samples", {0: [VALUE]}, given_rows)).rows
    sets.write_table(sets.table_of_rows([*unfinished, *given_rows]), tmp_path / "data")
    tokenizer.build_tokenizer(TokenizerSpec(task=TASK), {}, tmp_path / "tokenizer", Run())
    encoded = corpus.encode_problems(tmp_path / "data", tmp_path / "tokenizer")
    eos, encoder = tokenizer.special(tmp_path / "tokenizer").eos, tokenizer.load(tmp_path / "tokenizer")
    first, second = np.split(encoded.tokens, [int(encoded.lengths[0])])
    assert encoder.decode(first.tolist()) == given_rows[0].prompt + unfinished[0].solution
    assert eos not in first
    assert second[-1] == eos
    assert list(second).count(eos) == 1
    corpus.build_corpus(
        CorpusSpec(mix=[1.0], sequence_length=96), {"tokenizer": tmp_path / "tokenizer", "data.0": tmp_path / "data"},
        tmp_path / "corpus", Run(),
    )  # fmt: skip
    packed = corpus.load_rows([tmp_path / "corpus"])
    assert int(packed.loss.sum()) == len(unfinished[0].solution) + len(given_rows[0].solution) + 1


# --- atoms ---


def test_each_step_becomes_a_problem_that_gives_what_it_reads() -> None:
    parents = [replace(source(), key=key) for key in ("32", "0f")]  # of train and of rl, as the two atoms are
    made = [one for parent in parents for one in make_atoms(Atoms(), [parent], StepInputs(0, {}, 0)).rows]
    assert sorted("".join(sorted(one.prompt)) for one in made) == sorted(
        "".join(sorted(t)) for t in ("d3,a1,bd+a?b|", "b4,cb*2?c|")
    )
    assert {one.answer for one in made} == {"4", "8"}
    assert {one.op for one in made} == {4, 3}


@pytest.mark.parametrize("task", [TASK, INTEGERS])
def test_atoms_are_problems_that_their_solver_and_their_judge_agree_on(task) -> None:
    given_rows = rows(20, task, 6)
    made = make_atoms(Atoms(), given_rows, StepInputs(0, {}, 0))
    assert len({one.key for one in made.rows}) == len(made.rows)
    for one in made.rows:
        problem = OP_DAG.loads(one.graph)
        assert OP_DAG.solve(one.prompt, task) == one.answer == str(problem.answer)
        assert verify(problem, one.solution, Verify()).strict
        assert one.op == problem.op
        assert one.origin in {given.origin for given in given_rows}
    splits = {given.origin: split_of(given.key) for given in given_rows}
    assert all(split_of(one.key) == splits[one.origin] for one in made.rows)
    steps = sum(bool(node.parents) for given in given_rows for node in _necessary(given))
    assert len(made.rows) + made.counts.get("repeats", 0) + made.counts["other_split"] == steps
    repeating = make_atoms(Atoms(unique=False), given_rows, StepInputs(0, {}, 0))
    assert len(repeating.rows) + repeating.counts["other_split"] == steps


def _necessary(given: Row) -> tuple[Node, ...]:
    problem = OP_DAG.loads(given.graph)
    return problem.nodes[: problem.necessary]
