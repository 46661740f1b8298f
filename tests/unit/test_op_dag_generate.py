"""The generator: exact op, values in range, unique answers, the same problem from the same key."""

import os
import subprocess
import sys
from collections import Counter

import pytest
import sympy
from conftest import examples
from hypothesis import given
from op_dag_cases import INTEGERS, REVERSE, case, cases, tasks

from interplay.core.model import UserError
from interplay.tasks.op_dag.dag import Problem, dumps, loads
from interplay.tasks.op_dag.dag_growth import generate
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import alphabet, render
from interplay.tasks.op_dag.terse_prompts import solve

THOROUGH = examples(400)


def ancestors(problem: Problem) -> set[int]:
    found, todo = set(), [problem.goal]
    while todo:
        place = todo.pop()
        if place not in found:
            found.add(place)
            todo += problem.nodes[place].parents
    return found


@THOROUGH
@given(cases())
def test_the_goals_ancestors_are_the_necessary_nodes_and_their_edges_are_op(case):
    _, problem = case
    assert ancestors(problem) == set(range(problem.necessary))
    edges = sum(max(1, len(n.parents) + (n.constant is not None)) for n in problem.nodes[: problem.necessary])
    assert edges == problem.op


@pytest.mark.parametrize("knobs", [{}, REVERSE_TASK := {"modes": REVERSE}, INTEGERS, {**INTEGERS, **REVERSE_TASK}])
def test_every_op_of_the_range_is_hit_exactly(knobs):
    task = OpDag.model_validate({"letters": 52, **knobs})
    low, high = task.ops()
    for op in range(low, high + 1):
        for index in range(10):
            assert generate(task, 0, index, op).op == op


@THOROUGH
@given(cases())
def test_definitions_read_distinct_earlier_nodes_and_no_necessary_one_reads_a_distractor(case):
    task, problem = case
    for place, node in enumerate(problem.nodes):
        assert len(set(node.parents)) == len(node.parents) <= task.max_parents
        assert all(parent < place for parent in node.parents)
        operands = len(node.parents) + (node.constant is not None)
        assert (node.operator == "") == (operands < 2)
        assert node.operator in task.operators
        assert node.operator != "-" or operands == 2
    assert sorted(problem.order) == list(range(len(problem.nodes)))
    assert len({node.name for node in problem.nodes}) == len(problem.nodes)


@THOROUGH
@given(cases())
def test_values_follow_from_the_definitions_and_stay_in_range(case):
    task, problem = case
    values: list[int] = []
    for place, node in enumerate(problem.nodes[: problem.necessary]):
        operands = [values[parent] for parent in node.parents] + ([] if node.constant is None else [node.constant])
        expected = problem.values[0]
        if operands:
            expected = eval(node.operator.join(str(value) for value in operands) or "0")
            expected = expected % task.modulus if task.modulus else expected
        else:
            assert place == 0
        values.append(expected)
    assert tuple(values) == problem.values
    assert all(0 <= value < task.modulus if task.modulus else 0 <= value <= task.max_value for value in values)


@examples(150)
@given(cases())
def test_the_goal_is_a_line_in_the_unknown_with_one_root_as_sympy_finds_it(case):
    task, problem = case
    if problem.mode == "forward":
        return
    unknown = sympy.Symbol("unknown")
    terms: list[sympy.Expr] = []
    for node in problem.nodes[: problem.necessary]:
        operands = [terms[parent] for parent in node.parents] + ([] if node.constant is None else [sympy.Integer(node.constant)])
        if not operands:
            terms.append(unknown)
        elif node.operator == "*":
            terms.append(sympy.prod(operands))
        elif node.operator == "-":
            terms.append(operands[0] - operands[1])
        else:
            terms.append(sum(operands, sympy.Integer(0)))
    goal = sympy.Poly(terms[-1], unknown)
    assert goal.degree() == 1
    residual = goal - problem.values[-1]
    if task.modulus:
        roots = [x for x in range(task.modulus) if residual.eval(x) % task.modulus == 0]
    else:
        roots = sympy.solve(residual.as_expr(), unknown)
    assert roots == [problem.answer]


@THOROUGH
@given(cases())
def test_a_solver_that_reads_the_prompt_alone_finds_the_gold_answer(case):
    task, problem = case
    rendered = render(problem, task)
    assert solve(rendered.prompt, task) == rendered.answer == str(problem.answer)


def test_the_solver_rejects_a_prompt_without_a_unique_answer():
    with pytest.raises(ValueError, match="unique"):
        solve("a_,b3?b=3|", OpDag(modulus=None))
    with pytest.raises(ValueError, match="invertible"):
        solve("a_,b3?b=3|", OpDag())


@THOROUGH
@given(cases())
def test_a_problem_survives_json_and_its_texts_keep_to_the_alphabet(case):
    task, problem = case
    assert loads(dumps(problem)) == problem
    rendered = render(problem, task)
    assert set(rendered.prompt + rendered.solution) <= set(alphabet(task))
    assert len(set(alphabet(task))) == len(alphabet(task))


@examples(50)
@given(tasks())
def test_distractors_fillers_and_mode_at_one_key_do_not_depend_on_op(task):
    low, high = task.ops()
    for index in range(5):
        problems = [generate(task, 3, index, op) for op in (low, (low + high) // 2, high)]
        assert len({(len(p.nodes) - p.necessary, sum(p.filler), p.mode) for p in problems}) == 1


def test_distractors_and_fillers_are_uniform_over_their_ranges():
    task = OpDag(distractors=(1, 4), filler=(0, 4))
    problems = [generate(task, 0, index, 5) for index in range(2000)]
    for counts, values in (
        (Counter(len(p.nodes) - p.necessary for p in problems), range(1, 5)),
        (Counter(sum(p.filler) for p in problems), range(5)),
    ):
        expected = 2000 / len(values)
        assert set(counts) == set(values)
        # Chi-squared with at most 4 degrees of freedom exceeds 23.5 once in ten thousand.
        assert sum((counts[value] - expected) ** 2 / expected for value in values) < 23.5


def test_modes_occur_in_their_shares():
    task = OpDag(modes={"forward": 0.25, "reverse": 0.75})
    forward = sum(generate(task, 0, index, 2).mode == "forward" for index in range(2000))
    assert 430 < forward < 570


def test_a_problem_is_the_same_alone_and_in_any_order():
    task = OpDag(modes={"forward": 0.5, "reverse": 0.5}, filler=(0, 9))
    ahead = [generate(task, 5, index, 7) for index in range(20)]
    back = [generate(task, 5, index, 7) for index in reversed(range(20))]
    assert ahead == back[::-1]
    assert len(set(ahead)) == 20
    assert generate(task, 6, 0, 7) != ahead[0]


def test_a_problem_does_not_depend_on_the_hash_seed():
    code = (
        "from interplay.tasks.op_dag.spec import OpDag\nfrom interplay.tasks.op_dag.terse_prompts import OP_DAG as o\n"
        "t = OpDag(modes={'forward': .5, 'reverse': .5}, max_parents=3)\n"
        "for i in range(30):\n p = o.generate(t, 1, i, 9); print(o.render(p, t), o.structure(p))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_an_op_outside_the_range_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"op 23 lies outside 1\.\.22"):
        generate(OpDag(), 0, 0, 23)


def test_where_copies_are_not_wanted_one_stands_only_where_the_count_needs_it():
    def copies(op: int, **knobs: object) -> int:
        problems = [case(op, index, copies=0.0, **knobs)[1] for index in range(100)]
        return sum(not n.operator and bool(n.parents) for p in problems for n in p.nodes[: p.necessary])

    assert [copies(op) for op in (1, 3, 4, 5, 6, 9, 14)] == [0] * 7
    assert copies(2) == 100
    assert copies(6, branching=0.0) == 100


def test_without_branching_there_is_one_leaf_and_with_it_there_are_many():
    def leaves(branching: float) -> float:
        problems = [case(12, index, branching=branching)[1] for index in range(100)]
        return sum(not n.parents for p in problems for n in p.nodes[: p.necessary]) / 100

    assert leaves(0.0) == 1
    assert leaves(0.3) + 1 < leaves(0.9)


def test_gold_texts_of_both_trace_orders_and_modes_are_these():
    # c = a * b with b = a + 3 and a = 6, modulo 7; s is not needed.
    graph = (
        '{"mode":"%s","modulus":7,"nodes":[["a","",[],%s],["b","+",[0],3],["c","*",[1,0],null],["s","",[],0]],"necessary":3,'
        '"values":[6,2,5],"slopes":[%s],"order":[3,0,2,1],"filler":[0,0,2,0,1]}'
    )
    forward = loads(graph % ("forward", "6", "0,0,0"))
    assert render(forward, OpDag()) == ("s0,a6..,cb*a,ba+3.?c|", "cb*a,ba+3,a6|a6,b6+3=2,c2*6=5#5", "5")
    assert render(forward, OpDag(trace="leaf_first")).solution == "a6,ba+3=6+3=2,cb*a=2*6=5#5"
    # b = 2 + x, c = b * 4, x = 6: c = 4x + 1 = 25 = 4.
    line = loads(
        '{"mode":"reverse","modulus":7,"nodes":[["a","",[],null],["b","+",[0],2],["c","*",[1],4]],"necessary":3,'
        '"values":[6,1,4],"slopes":[1,1,4],"order":[0,1,2],"filler":[0,0,0,0]}'
    )
    assert render(line, OpDag()) == ("a_,ba+2,cb*4?c=4|", "cb*4,ba+2,a_|a_,b_+2=_+2,c(_+2)*4=4_+1|4_+1=4,4_=3#6", "6")
    assert render(line, OpDag(trace="leaf_first")).solution == "a_,ba+2=_+2=_+2,cb*4=(_+2)*4=4_+1|4_+1=4,4_=3#6"
