"""Generation in prose: exact, in range, reproducible, told in the published sentences, and solvable from the prompt alone."""

import re

import pytest
from conftest import examples
from hypothesis import given, strategies as st
from op_dag_prose_cases import FORWARD, FORWARD_TEXT, OWN, REVERSE, REVERSE_TEXT, case, cases, line, small
from op_dag_prose_text import levels, read_problem

from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.data.tokenizer import character_tokenizer, word_tokenizer
from interplay.tasks.op_dag.dag import forms
from interplay.tasks.op_dag.prose import alphabet, dumps, loads, render, structure, vocabulary
from interplay.tasks.op_dag.prose_problems import generate, solve
from interplay.tasks.op_dag.prose_verifier import verify
from interplay.tasks.op_dag.spec import OpDagProse
from interplay.tasks.spec import TaskKey, Verify

EXACT = Verify(operator=True, extra_nodes="penalised")


@examples(300)
@given(cases())
def test_every_problem_keeps_to_its_task(case):
    task, problem = case
    nodes = problem.nodes[: problem.necessary]
    assert all(1 <= value <= task.max_value for value in problem.values)
    assert problem.mode in task.modes
    assert problem.theme in task.themes
    if task.depth:
        assert task.depth[0] <= levels(problem)[problem.goal] <= task.depth[1]
    if task.width:
        assert task.width[0] <= sum(not node.parents for node in nodes) <= task.width[1]
    told = [node for node in problem.nodes[problem.necessary :] if not node.total]
    assert task.distractors is None or task.distractors[0] <= len(told) <= task.distractors[1]
    assert len({node.name for node in problem.nodes}) == len(problem.nodes)
    assert max(len(node.parents) for node in nodes) <= task.max_parents


@examples(300)
@given(cases())
def test_every_necessary_node_is_read_and_stands_behind_what_it_reads(case):
    _, problem = case
    read_ = {parent for node in problem.nodes[: problem.necessary] for parent in node.parents}
    assert read_ == set(range(problem.necessary - 1))
    assert all(parent < place for place, node in enumerate(problem.nodes) for parent in node.parents)


@examples(300)
@given(cases())
def test_a_total_is_the_sum_of_all_that_the_prompt_mentions_for_its_place_and_is_never_defined(case):
    task, problem = case
    prompt = render(problem, task).prompt
    for node in problem.nodes:
        if node.total:
            here = {place for place, other in enumerate(problem.nodes) if other.place == node.place and not other.total}
            assert here == set(node.parents)
            goal = problem.mode == "reverse" and node == problem.nodes[problem.goal]
            assert prompt.count(f"The {node.name} equals") == goal


@examples(300)
@given(cases())
def test_the_solver_that_reads_the_prompt_alone_agrees_and_the_gold_is_strict(case):
    task, problem = case
    shown = render(problem, task)
    assert solve(shown.prompt, task) == shown.answer == str(problem.answer)
    verdict = verify(problem, shown.solution, EXACT)
    assert verdict.strict
    assert verdict.nodes == problem.necessary
    assert read_problem(shown.prompt.removeprefix("<question> ")).op == problem.op


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("op", range(2, 21))
def test_op_is_exact(mode, op):
    for index in range(25):
        task, problem, solution = case(op, index, modes={mode: 1.0})
        assert problem.op == op
        assert verify(problem, solution, EXACT).strict
        assert solve(render(problem, task).prompt, task) == str(problem.answer)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("op", range(2, 21))
def test_a_thousand_golds_of_each_op_are_strict_and_the_solver_agrees(mode, op):
    task = OpDagProse.model_validate({"modes": {mode: 1.0}})
    for index in range(1000):
        problem = generate(task, 5, index, op)
        shown = render(problem, task)
        assert verify(problem, shown.solution, EXACT).strict
        assert solve(shown.prompt, task) == shown.answer


def test_in_reverse_the_linear_forms_hold_and_the_goal_hangs_on_the_unknown():
    for index in range(200):
        _, problem, _ = case(9, index, **REVERSE)
        for (slope, rest), value in zip(forms(problem), problem.values, strict=True):
            assert slope * problem.answer + rest == value
        assert problem.slopes[-1]
        assert problem.answer in (1, 2, 3, 4)


def test_what_is_independent_of_op_is_the_same_at_every_op():
    knobs = {"depth": (4, 6), "width": (1, 3), "distractors": (0, 6)}
    for index in range(50):
        seen = set()
        for op in (10, 14, 18):
            task, problem, _ = case(op, index, **knobs)
            nodes = problem.nodes[: problem.necessary]
            told = sum(not node.total for node in problem.nodes[problem.necessary :])
            seen.add((problem.mode, problem.theme, levels(problem)[-1], sum(not node.parents for node in nodes), told))
        assert len(seen) == 1
    assert task.ops() == (10, 28)


def test_leaves_take_the_published_values_or_those_of_the_task():
    def share(**knobs):
        values = [case(6, index, **FORWARD, **knobs)[1].nodes[0].constant for index in range(1500)]
        return values.count(1) / len(values)

    assert share() == pytest.approx(0.125, abs=0.03)
    assert share(constants="uniform") == pytest.approx(0.25, abs=0.04)
    assert share(constants={1: 0.6, 5: 0.4}) == pytest.approx(0.6, abs=0.04)


def test_problems_are_pinned():
    task = OpDagProse()
    assert [structure(generate(task, 0, index, 7)) for index in range(3)] == PINNED
    assert generate(task, 3, 4, 9) == generate(task, 3, 4, 9) != generate(task, 3, 5, 9)


@examples(100)
@given(cases())
def test_a_problem_survives_being_written(case):
    _, problem = case
    assert loads(dumps(problem)) == problem


@examples(100)
@given(cases(), st.randoms(use_true_random=False))
def test_the_key_does_not_see_names_letters_or_the_order_of_sentences(case, rng):
    _, problem = case
    things, places = {node.thing for node in problem.nodes}, {node.place for node in problem.nodes}
    renamed = dict(zip(things | places, rng.sample([f"n{i}" for i in range(99)], len(things | places)), strict=True))
    nodes = []
    for node in problem.nodes:
        parents = node.parents if node.minus else tuple(rng.sample(node.parents, len(node.parents)))
        nodes.append(node._replace(thing=renamed[node.thing], place=renamed[node.place], parents=parents))
    other = problem._replace(nodes=tuple(nodes), order=problem.order[::-1], letters=problem.letters[::-1], theme="other")
    assert structure(other) == structure(problem)


def test_the_key_sees_constants_operators_and_the_order_of_a_difference():
    problem = small()
    place = problem.goal
    goal = problem.nodes[place]
    for change in ({"parents": goal.parents[::-1]}, {"minus": False}, {"constant": 2, "operator": "+"}):
        nodes = (*problem.nodes[:place], goal._replace(**change), *problem.nodes[place + 1 :])
        assert structure(problem._replace(nodes=nodes)) != structure(problem)
    assert structure(line()) != structure(line()._replace(values=(*line().values[:-1], 55)))


def test_the_prompt_is_published_word_for_word():
    task, problem = OpDagProse(), small()
    prompt = render(problem, task).prompt
    assert set(re.split(r"(?<=[.?]) ", FORWARD_TEXT)) == set(re.split(r"(?<=[.?]) ", prompt[11:-23]))
    assert prompt.startswith("<question> The ")
    assert prompt.endswith(" have? </question> <solution>")


def test_the_rule_stands_in_the_prompt_where_it_is_asked_for():
    task, problem, _ = case(6, note=True)
    with_rule = render(problem, task).prompt
    without = render(problem, task.model_copy(update={"note": False})).prompt
    assert with_rule.startswith("<question> Note: the total number of ")
    assert with_rule.endswith(without.removeprefix("<question> "))
    assert solve(with_rule, task) == str(problem.answer)


def test_an_own_theme_uses_its_own_nouns():
    task, problem, solution = case(8, **OWN)
    assert {node.place for node in problem.nodes} <= set(task.own["garden"].places[0])
    assert verify(problem, solution, EXACT).strict


def test_tokenizers_of_words_and_characters_read_what_they_write():
    for knobs in ({}, OWN, {"note": True}):
        task = OpDagProse.model_validate(knobs)
        for tokenizer in (word_tokenizer(vocabulary(task)), character_tokenizer(alphabet(task))):
            for index in range(20):
                for text in render(generate(task, 0, index, 8), task):
                    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_a_word_tokenizer_spells_numbers_in_digits_and_takes_nouns_whole():
    task = OpDagProse()
    tokenizer = word_tokenizer(vocabulary(task))
    assert tokenizer.encode("The number of adult blue jay in Bundle Ranch equals 384").tokens == [
        "The number of ", "adult blue jay", " in ", "Bundle Ranch", " equals ", "3", "8", "4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"themes": {"zoo": 0.5}}, "shares must be shares that sum to 1"),
        ({"themes": {"zo": 1.0}}, "no theme 'zo'; did you mean 'zoo'?"),
        ({"depth": (2, 2), "width": (1, 3)}, "no op has every depth in 2..2, width in 1..3"),
        ({"depth": (1, 2)}, "task.depth.0 = 1: should be greater than or equal to 2"),
        ({"depth": (4, 3)}, "task.depth = (4, 3): must be [low, high] with low <= high"),
        ({"constants": {0: 1.0}}, "constants must lie in 1..9"),
        ({"max_parents": 1}, "task.max_parents = 1: should be greater than or equal to 2"),
        ({"distractors": (0, 30)}, "no op has"),
        ({"own": {"zoo": OWN["own"]["garden"]}}, "own.zoo has the name of a built-in theme"),
        ({"own": {"a": {**OWN["own"]["garden"], "types": [["rose in bloom", "fern"]]}}}, "'rose in bloom' must be letters"),
        ({"own": {"a": {**OWN["own"]["garden"], "places": [["Roof"]]}}}, "two or more different nouns"),
        ({"layers": 3}, "unknown key 'layers'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(knobs, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        parse_model(TaskKey, {"task": {"name": "op_dag_prose", **knobs}}, KeyPlace("study.yaml"))
    assert "\n" not in str(error.value)


def test_an_op_that_the_task_cannot_have_is_named():
    with pytest.raises(UserError, match=r"op 3 lies outside"):
        generate(OpDagProse(depth=(4, 4)), 0, 0, 3)


@pytest.mark.parametrize("text", ["", "no question", FORWARD_TEXT.partition(" How many")[0], REVERSE_TEXT])
def test_a_text_without_an_answer_is_no_problem(text):
    with pytest.raises(ValueError, match=r"question|solution"):
        read_problem(text)
    with pytest.raises(ValueError, match=r"question|answer|solution"):
        solve(text, OpDagProse())


PINNED = ["ce65994b01228dad", "72c97bbc01d0a024", "47dd771b63afeb61"]
