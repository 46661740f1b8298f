"""Graphs that prose solutions state, and their likeness up to names, also to those of the terse surface."""

from conftest import examples
from hypothesis import given
from op_dag_prose_cases import FORWARD_GOLD, FORWARD_TEXT, REVERSE_GOLD, REVERSE_TEXT, cases
from op_dag_prose_text import read_problem

from interplay.data.similarity import Palette, features, similarity
from interplay.tasks.op_dag import terse
from interplay.tasks.op_dag.prose import Problem, render
from interplay.tasks.op_dag.prose_parser import gold_graph, stated_graph
from interplay.tasks.op_dag.spec import OpDagProse
from interplay.tasks.op_dag.terse import Definition

FOX, BEAR, WOLF = "adult fox in Pine Ridge", "adult bear in Pine Ridge", "adult wolf in Pine Ridge"
TOTAL, OWL, CROW = "total number of adult animals in Pine Ridge", "adult owl in Maple Creek", "adult crow in Maple Creek"
GRAPH = {
    FOX: Definition(numbers=((0, 3),)),
    BEAR: Definition(("+",), (FOX,), ((0, 4),)),
    WOLF: Definition(("+",), (FOX, BEAR)),
    TOTAL: Definition(("+",), (WOLF, FOX, BEAR)),
    OWL: Definition(("*",), (TOTAL,), ((0, 2),)),
    CROW: Definition(("-",), (OWL, BEAR)),
}


def like(one: terse.Graph, other: terse.Graph) -> float:
    palette: Palette = {}
    return similarity(features(one, palette), features(other, palette))


def test_the_graph_is_what_the_definitions_say_with_intermediate_results_taken_apart() -> None:
    assert stated_graph(FORWARD_GOLD) == GRAPH
    assert like(gold_graph(read_problem(FORWARD_TEXT)), GRAPH) == 1.0
    assert stated_graph(FORWARD_GOLD.replace("= 33", "= 34")) == GRAPH, "values are no part of a graph"
    assert stated_graph("") == {}
    assert stated_graph("Nothing. Define adult fox in Pine Ridge as Q; so Q = A + 1.")[FOX] == Definition(
        ("+",), ("A",), ((0, 1),)
    )


def test_the_unknown_of_a_reverse_problem_is_a_leaf_of_its_own_kind() -> None:
    graph = stated_graph(REVERSE_GOLD)
    assert graph["elementary school in Brightford"] == Definition(numbers=((1, 0),))
    assert like(graph, gold_graph(read_problem(REVERSE_TEXT.replace("equals 38", "equals 39")))) == 1.0, "39 has a whole root"


def test_another_operator_parent_or_number_is_another_graph() -> None:
    for old, new in (("C = o - a", "C = o + a"), ("C = o - a", "C = o - Q"), ("a = 4 + R", "a = 5 + R")):
        assert 0 < like(stated_graph(FORWARD_GOLD.replace(old, new)), GRAPH) < 1
    assert like(stated_graph(FORWARD_GOLD.replace("C = o - a", "C = a - o")), GRAPH) < 1, "a difference does not commute"
    assert like(stated_graph(FORWARD_GOLD.replace("b = Q + a", "b = a + Q")), GRAPH) == 1


@examples(150)
@given(case=cases())
def test_a_gold_solution_states_the_gold_graph(case: tuple[OpDagProse, Problem]) -> None:
    task, problem = case
    assert like(stated_graph(render(problem, task).solution), gold_graph(problem)) == 1.0


def test_one_measure_reads_both_surfaces() -> None:
    """The same sum, said with letters and with names."""
    prose = "Define fox in A as Q; so Q = 3. Define owl in A as R; so R = 2 + Q = 2 + 3 = 5. Answer: 5."
    assert like(stated_graph(prose), terse.stated_graph("a3,ba+2=3+2=5#5", None)) == 1.0
