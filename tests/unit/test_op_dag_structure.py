"""The structural key against networkx's isomorphism test."""

import random

import networkx as nx
from conftest import examples
from hypothesis import given, strategies as st
from op_dag_cases import cases

from interplay.tasks.op_dag.dag import Node, Problem, loads, structure
from interplay.tasks.op_dag.dag_growth import generate
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import LETTERS

TEXT = (
    '{"mode":"forward","modulus":7,"nodes":[["a","",[],4],["b","",[],4],["c","-",[0,1],null],["d","+",[0],2],["e","*",[2,3],null],'
    '["f","",[],4]],"necessary":5,"values":[4,4,0,6,0],"slopes":[0,0,0,0,0],"order":[0,1,2,3,4,5],"filler":[0,0,0,0,0,0,0]}'
)


def graph(problem: Problem) -> nx.DiGraph:
    """The problem less names, order and filler; edges know their place under a minus only."""
    made = nx.DiGraph()
    for place, node in enumerate(problem.nodes):
        goal = place == problem.goal
        given = problem.values[-1] if goal and problem.mode == "reverse" else None
        made.add_node(place, label=(node.operator, node.constant, bool(node.parents), goal, given))
        for number, parent in enumerate(node.parents):
            made.add_edge(parent, place, label=number if node.operator == "-" else 0)
    return made


def isomorphic(one: Problem, other: Problem) -> bool:
    same = (
        nx.algorithms.isomorphism.categorical_node_match("label", None),
        nx.algorithms.isomorphism.categorical_edge_match("label", None),
    )
    return nx.is_isomorphic(graph(one), graph(other), node_match=same[0], edge_match=same[1])


def disguised(problem: Problem, rng: random.Random) -> Problem:
    """The same problem under other letters, its definitions in another order (nodes too), commuting
    operands swapped, other filler."""
    places = list(range(len(problem.nodes)))
    left, order = set(places), []
    while left:  # a random topological order that keeps the necessary nodes in front and the goal last of them
        ready = [p for p in left if not left & set(problem.nodes[p].parents)]
        ready = [p for p in ready if p < problem.necessary] or ready
        place = rng.choice([p for p in ready if p != problem.goal] or ready)
        order.append(place)
        left.remove(place)
    if problem.mode == "reverse":  # the unknown is node 0
        order.remove(0)
        order.insert(0, 0)
    new = {old: number for number, old in enumerate(order)}
    names = rng.sample(LETTERS, len(order))
    nodes = []
    for name, old in zip(names, order, strict=True):
        node = problem.nodes[old]
        parents = [new[parent] for parent in node.parents]
        if node.operator in ("+", "*"):
            rng.shuffle(parents)
        nodes.append(Node(name, node.operator, tuple(parents), node.constant))
    return problem._replace(
        nodes=tuple(nodes),
        values=tuple(problem.values[old] for old in order[: problem.necessary]),
        slopes=tuple(problem.slopes[old] for old in order[: problem.necessary]),
        order=tuple(rng.sample(places, len(places))),
        filler=tuple(rng.randrange(3) for _ in range(len(places) + 1)),
    )


@examples(300)
@given(cases(), st.integers(0, 2**32))
def test_a_disguised_problem_keeps_its_key(case, seed):
    _, problem = case
    other = disguised(problem, random.Random(seed))
    assert structure(other) == structure(problem)
    assert len(structure(problem)) == 16
    assert int(structure(problem), 16) >= 0


def test_keys_are_equal_exactly_where_networkx_finds_an_isomorphism():
    # Small constants and few operators, so that many pairs are isomorphic and many more nearly so.
    task = OpDag(constants=(1, 2), operators="+-", distractors=(0, 2), max_parents=3, modes={"forward": 0.7, "reverse": 0.3})
    checked = {True: 0, False: 0}
    for op in (2, 3, 5, 7):
        problems = [generate(task, 0, index, op) for index in range(120)]
        for number, one in enumerate(problems):
            for other in problems[:number]:
                if one.mode != other.mode:
                    assert structure(one) != structure(other)
                elif len(one.nodes) == len(other.nodes):
                    same = isomorphic(one, other)
                    assert (structure(one) == structure(other)) == same
                    checked[same] += 1
    assert checked[True] > 100
    assert checked[False] > 3000


def test_any_single_edit_of_the_graph_changes_the_key():
    edits = [
        ('["f","",[],4]', '["f","",[],3]'),
        ('["c","-",[0,1]', '["c","+",[0,1]'),
        ('["d","+",[0],2]', '["d","+",[0],3]'),
        # The minus reads its two equal leaves the other way round: which of them feeds d decides.
        ('["c","-",[0,1]', '["c","-",[1,0]'),
        ('["f","",[],4]', '["f","+",[0],4]'),
    ]
    keys = {structure(loads(TEXT)), *(structure(loads(TEXT.replace(*edit))) for edit in edits)}
    assert len(keys) == 1 + len(edits)


def test_keys_are_the_same_on_every_machine_and_version_of_python():
    # Keys are stored with problem sets and compared across them; raise OpDag.VERSION when they must change.
    assert structure(loads(TEXT)) == "e405a8519ae60576"
