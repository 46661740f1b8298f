"""The verifier: gold passes, each single fault gets its error class, nothing cheap passes, no text makes it raise."""

import re
from itertools import groupby, pairwise

import pytest
from conftest import examples
from hypothesis import given, strategies as st
from op_dag_cases import INTEGERS, REVERSE, case, cases, consistent, judged as verify

from interplay.tasks.op_dag.dag import Problem, dumps, loads
from interplay.tasks.op_dag.dag_growth import generate
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import gold_sentences, parse_step, render
from interplay.tasks.op_dag.terse_prompts import parse_prompt
from interplay.tasks.op_dag.terse_verifier import gold, judge_step
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

PLAIN = Verify()
EXACT = Verify(operator=True, extra_nodes="penalised")
KNOBS = [{}, {"modes": REVERSE}, {"trace": "leaf_first"}, {"trace": "leaf_first", "modes": REVERSE}, INTEGERS]

# d = c - b, c = a * b, b = a + 3, a = 6, modulo 7: b = 2, c = 5, d = 3. s = 4 and t = s + a are not needed.
GRAPH = (
    '{"mode":"forward","modulus":7,"nodes":[["a","",[],6],["b","+",[0],3],["c","*",[0,1],null],["d","-",[2,1],null],'
    '["s","",[],4],["t","+",[4,0],null]],"necessary":4,"values":[6,2,5,3],"slopes":[0,0,0,0],"order":[0,1,2,3,4,5],'
    '"filler":[0,0,0,0,0,0,0]}'
)
SMALL = loads(GRAPH)
GOLD = "dc-b,ca*b,ba+3,a6|a6,b6+3=2,c6*2=5,d5-2=3#3"
WIDE = loads(
    '{"mode":"forward","modulus":null,"nodes":[["a","",[],1],["b","",[],2],["c","",[],4],["d","+",[0,1,2],null],["e","*",[3],2]],'
    '"necessary":5,"values":[1,2,4,7,14],"slopes":[0,0,0,0,0],"order":[0,1,2,3,4],"filler":[0,0,0,0,0,0]}'
)
LINE = loads(
    '{"mode":"reverse","modulus":7,"nodes":[["a","",[],null],["b","+",[0],2],["c","*",[1],4]],"necessary":3,'
    '"values":[6,1,4],"slopes":[1,1,4],"order":[0,1,2],"filler":[0,0,0,0]}'
)


def error(completion: str, problem: Problem = SMALL, options: Verify = PLAIN) -> str:
    return verify(problem, completion, options).error


@examples(400)
@given(cases())
def test_gold_is_strict_under_every_option(case):
    task, problem = case
    solution = render(problem, task).solution
    assert verify(problem, solution, EXACT) == Verdict(
        True, True, 1.0, "none", 0, 0, 0, 0, problem.necessary, str(problem.answer)
    )


@examples(300)
@given(cases())
def test_the_gold_sentences_known_beforehand_are_judged_as_the_parser_judges_them(case):
    _, problem = case
    truth = gold(Problem(*problem))  # of a problem that has not been seen
    for text, effect in truth.effects.items():
        step = parse_step(text, problem.modulus)
        assert step is not None
        assert judge_step(truth, step) == effect
    known = gold_sentences(problem)
    own = [*known.definitions[: problem.necessary], *known.evaluations, *known.whole, *known.equations]
    assert truth.effects.keys() == set(own)


@examples(300)
@given(cases(), st.text(max_size=60), st.integers(0, 100), st.integers(0, 100))
def test_no_text_makes_it_raise_and_only_right_answers_are_strict(case, noise, start, length):
    task, problem = case
    solution = render(problem, task).solution
    for text in (noise, solution[:start] + noise + solution[start + length :]):
        consistent(verify(problem, text, PLAIN))


@examples(300)
@given(st.text(alphabet="abcdqxyz0123456789+-*=,|#_().", max_size=120))
def test_no_text_of_the_alphabet_makes_it_raise(text):
    for problem in (SMALL, WIDE, LINE):
        assert verify(problem, text, EXACT).nodes == problem.necessary


@pytest.mark.parametrize(
    "text", ["(" * 5000, "a" + "+a" * 5000, "qq+q," * 2000 + "dq#3", "a" + "9" * 10_000 + "#3", "#" + "9" * 10_000, "٣=٣#٣"]
)
def test_long_and_odd_texts_are_judged_quickly_and_are_wrong(text):
    assert not verify(SMALL, text, PLAIN).strict


def test_a_chain_of_many_intermediates_ends_in_a_verdict():
    names = "efghijklmnopqruvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    steps = [f"{one}{other}+{other}" for one, other in pairwise(names)]
    assert error(",".join([*steps, "dc-e"]) + "|" + GOLD) == "dependency"


@pytest.mark.parametrize("knobs", KNOBS)
def test_a_wrong_value_is_a_value_error_at_that_node(knobs):
    for index in range(30):
        _, problem, solution = case(7, index, **knobs)
        goal = problem.nodes[problem.goal].name
        body, _, tail = solution.rpartition(f"{goal}")
        chain, mark, rest = re.fullmatch(r"([^,|#]*=)?[^,|#=]*([,|#])(.*)", tail).groups()
        wrong = "1" if problem.mode == "reverse" or problem.values[-1] != 1 else "2"
        verdict = verify(problem, f"{body}{goal}{chain or ''}{wrong}{mark}{rest}", PLAIN)
        assert (verdict.error, verdict.value_mismatches, verdict.missing) == ("value", 1, 0)
        assert verdict.score == pytest.approx(1 - 1 / problem.necessary)
        assert verdict.answer


@pytest.mark.parametrize("knobs", KNOBS)
def test_a_dropped_node_is_missing(knobs):
    for index in range(30):
        _, problem, solution = case(7, index, **knobs)
        name = problem.nodes[problem.goal - 1].name
        head, mark, answer = solution.partition("#")
        sections = [",".join(step for step in section.split(",") if step[0] != name) for section in head.split("|")]
        verdict = verify(problem, "|".join(sections) + mark + answer, PLAIN)
        assert verdict.error == "missing_node"
        assert verdict.missing == 1
        assert verdict.score < 1


@pytest.mark.parametrize("knobs", KNOBS)
def test_a_wrong_parent_is_a_dependency_error(knobs):
    for index in range(30):
        _, problem, solution = case(7, index, distractors=(1, 4), **knobs)
        goal, extra = problem.nodes[problem.goal], problem.nodes[-1].name
        parent = problem.nodes[goal.parents[0]].name
        pattern = rf"(^|[,|])({goal.name}[^=,|]*?){parent}"
        wrong, edits = re.subn(pattern, rf"\1\2{extra}", solution, count=1)
        assert edits == 1
        verdict = verify(problem, wrong, PLAIN)
        assert (verdict.error, verdict.dependency_mismatches) == ("dependency", 1)


@pytest.mark.parametrize("knobs", KNOBS)
def test_a_swapped_operator_is_an_operator_error_where_operators_are_judged(knobs):
    for index in range(30):
        _, problem, solution = case(7, index, **knobs)
        node = [node for node in problem.nodes[: problem.necessary] if node.operator][-1]
        letters = [problem.nodes[parent].name for parent in node.parents]
        text = node.name + node.operator.join(letters + ([] if node.constant is None else [str(node.constant)]))
        assert text in solution
        wrong = solution.replace(text, text.replace(node.operator, "-" if node.operator != "-" else "+"), 1)
        assert verify(problem, wrong, EXACT).error == "operator"
        assert verify(problem, wrong, PLAIN).strict


@pytest.mark.parametrize("knobs", KNOBS)
def test_a_wrong_answer_after_right_steps_is_an_answer_error(knobs):
    for index in range(30):
        _, problem, solution = case(7, index, **knobs)
        verdict = verify(problem, f"{solution.partition('#')[0]}#{problem.answer + 1}", PLAIN)
        assert (verdict.error, verdict.answer, verdict.score) == ("answer", False, 1.0)


@pytest.mark.parametrize("knobs", KNOBS)
def test_nothing_cheap_is_strict(knobs):
    for index in range(30):
        task, problem, solution = case(7, index, **knobs)
        answer = problem.answer
        values = ",".join(f"{node.name}{value}" for node, value in zip(problem.nodes, problem.values, strict=False))
        definitions = render(problem, task).prompt.split("?")[0]
        body = solution.partition("#")[0]
        assert verify(problem, "", PLAIN).error == "truncated"
        assert verify(problem, f"#{answer}", PLAIN).error == "missing_node"
        assert verify(problem, definitions + f"#{answer}", PLAIN).error == "missing_node"
        assert not verify(problem, f"{values}#{answer}", PLAIN).strict
        assert verify(problem, body, PLAIN)[:4] == (False, False, 1.0, "truncated")
        if problem.mode == "forward":
            verdict = verify(problem, f"{values}#{answer}", PLAIN)
            assert verdict.error == "dependency"
            assert verdict.dependency_mismatches == sum(bool(node.parents) for node in problem.nodes[: problem.necessary])


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        (GOLD, "none"),
        ("a6,ba+3=6+3=2,ca*b=6*2=5,dc-b=5-2=3#3", "none"),
        ("dc-b,ca*b,ba+3,a6|b6+3=2,c2*6=5,d3#3", "none"),  # a value alone, since the unfolding names its parents
        ("a=6,b=a+3=6+3=9=2,c=a*b=5,d=c-b=3#3", "none"),
        ("a6,b6+3=2,c6*2=5,d5-2=3#3", "dependency"),  # parents named nowhere
        ("dc-b,ca*b,ba+3,a6|a6,c6*2=5,b6+3=2,d5-2=3#3", "dependency"),  # c before b, which it reads
        ("a6,ba+3=9,ca*b=5,dc-b=3#3", "value"),  # 9 is no residue
        ("a6,ba+3=02,ca*b=5,dc-b=3#3", "parse"),  # numbers are written without leading zeros
        ("a6,ba+3=5+4=2,ca*b=5,dc-b=3#3", "value"),  # right value from numbers that are not the parents'
        ("a6,ba+3=6+3=2,ca*b=6*2=4=5,dc-b=3#3", "value"),  # 12 is not 4
        ("a6,ba+4=2,ca*b=5,dc-b=3#3", "value"),  # the constant misread
        ("a6,a5,ba+3=2,ca*b=5,dc-b=3#3", "value"),  # a node said to be two things
        ("a6,ba+3=2,ca*b=5,dc-b=3,da-b=3#3", "dependency"),  # a real node defined again, otherwise
        ("a6,ba+3=2,ca*b=5,dc-b-a=3#3", "dependency"),  # all parents, and a node that is none
        ("a6,ba+3=2,ca*b=5,dc-b#3", "missing_node"),
        ("a6,ba+3=2,ca*b=5,dc-b=5-2#3", "missing_node"),  # never worked out
        ("a6,ba+3=2,ca*b=5,dc-b=3,!#3", "parse"),
        ("a6,ba+3=2,ca*b=5,d__import__('os')=3#3", "parse"),
        (GOLD + "#3", "answer"),
        (GOLD[:-1] + "03", "answer"),
        (GOLD[:-2], "truncated"),
    ],
)
def test_hand_written_completions_get_their_class(completion, expected):
    assert error(completion) == expected


def test_a_chain_of_equals_may_fold_three_operands_step_by_step():
    leaves = "a1,b2,c4,"
    assert error(leaves + "da+b+c=1+2+4=3+4=7,ed*2=7*2=14#14", WIDE, EXACT) == "none"
    assert error(leaves + "da+b+c=1+2+4=4+4=7,ed*2=7*2=14#14", WIDE) == "value"


def test_a_name_of_its_own_may_hold_an_intermediate_result():
    leaves, last = "a1,b2,c4,", ",ed*2=7*2=14#14"
    assert error(leaves + "qa+b=1+2=3,dq+c=3+4=7" + last, WIDE, EXACT) == "none"
    assert error("ed*2,dq+c,qa+b,a1,b2,c4|q1+2=3,d3+4=7,e7*2=14#14", WIDE, EXACT) == "none"
    assert error(leaves + "qa+b=1+2=3,dq+a=3+4=7" + last, WIDE) == "dependency"
    assert error(leaves + "qa+b=1+2=4,dq+c=4+4=7" + last, WIDE) == "value"
    assert error(leaves + "qa+b=1+2=3,dq+c=4+3=8" + last, WIDE) == "value"
    assert error(leaves + "qa*b=1*2=2,dq+c=2+4=7" + last, WIDE) == "value"
    assert error(leaves + "qa*b,dq+c=7" + last, WIDE, EXACT) == "operator"
    assert error(leaves + "dq+c=3+4=7" + last, WIDE) == "dependency"
    assert error("qa+b=1+2=3," + leaves + "dq+c=3+4=7" + last, WIDE) == "dependency"  # worked out before a and b are


def test_a_wrong_intermediate_is_charged_to_the_node_that_goes_through_it():
    verdict = verify(WIDE, "a1,b2,c4,qa+b=1+2=4,dq+c=3+4=7,ed*2=7*2=14#14", PLAIN)
    assert (verdict.error, verdict.value_mismatches, verdict.score) == ("value", 1, 0.8)


def test_a_name_of_its_own_may_be_bound_again_later():
    # d = a + b + c through q, then e = d * 2 through q again: what q meant before does not leak into e.
    steps = "a1,b2,c4,qa+b=1+2=3,dq+c=3+4=7,qd=7,eq*2=7*2=14#14"
    assert error(steps, WIDE) == "none"
    assert error(steps.replace("eq*2", "ea*2"), WIDE) == "dependency"


def test_steps_that_the_goal_does_not_need_are_free_or_penalised():
    extra = GOLD.replace("|a6,", "|a6,s4,t4+6=3,")
    assert verify(SMALL, extra, PLAIN) == Verdict(True, True, 1.0, "none", 0, 0, 0, 2, 4, str(SMALL.answer))
    assert verify(SMALL, extra, EXACT) == Verdict(False, True, 1.0, "extra_node", 0, 0, 0, 2, 4, str(SMALL.answer))
    unused = GOLD.replace("|a6,", "|a6,zb+a,")
    assert verify(SMALL, unused, PLAIN).extra == 1
    assert error(unused, SMALL, EXACT) == "extra_node"


def test_a_node_may_be_charged_for_its_value_and_for_its_parents():
    verdict = verify(SMALL, "dc-b,cs*b,ba+3,a6|a6,b6+3=2,c4*2=1,d1-2=6#6", PLAIN)
    assert verdict == Verdict(False, False, 0.5, "dependency", 2, 1, 0, 0, 4, "6")


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c(_+2)*4=4_+1|4_+1=4,4_=3#6", "none"),
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c4*(2+_)=4_+1|4_+1=4#6", "none"),
        ("cb*4,ba+2,a_|a_,b2+_,c1+4_|4=1+4_#6", "none"),
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c4*(2+_)=4_+1#6", "value"),  # no equation
        ("cb*4,ba+2,a_|a_,b2+_,c1+4_|_=6#6", "value"),  # not the goal's
        ("cb*4,ba+2,a6|a6,b6+2=1,c1*4=4#6", "value"),  # the answer guessed and carried forward
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c(_+2)*4=4_+2|4_+2=4,4_=2#6", "value"),
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c_+2*4=_+1#6", "value"),  # brackets forgotten
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c(_+2)*4=4_+1|4_=2#6", "value"),  # an equation that does not hold
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c(_+2)*4=4_+1|4_+1=4,4_=3#5", "answer"),
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c(_+2)*4=4_+1|_*_=1#6", "parse"),  # not linear
    ],
)
def test_reverse_steps_are_judged_as_linear_forms(completion, expected):
    assert error(completion, LINE) == expected


def test_the_verdict_does_not_depend_on_what_was_judged_before():
    task = OpDag()
    problems = [generate(task, 0, index, 6) for index in range(20)]
    texts = [render(problem, task).solution for problem in problems]
    texts += [text.replace("2", "3") for text in texts] + [text.replace("a", "q") for text in texts] + [GOLD, "!"]
    warm = [verify(problem, text, EXACT) for problem in problems for text in texts]
    assert warm == [verify(Problem(*problem), text, EXACT) for problem in problems for text in texts]  # each time a new one


@given(cases(), st.integers(0, 10**6))
def test_a_value_without_its_arithmetic_passes_unless_it_is_asked_for(case: tuple[OpDag, Problem], which: int) -> None:
    task, problem = case
    texts, gold = gold_sentences(problem, problem.necessary), render(problem, task).solution
    assert verify(problem, gold, Verify(arithmetic=True)).strict
    worked = [place for place in range(problem.necessary) if problem.nodes[place].operator]
    if worked:
        place = worked[which % len(worked)]
        shown = texts.whole[place] if task.trace == "leaf_first" else texts.evaluations[place]
        value = shown.rpartition("=")[2]
        bare = f"{texts.definitions[place]}={value}" if task.trace == "leaf_first" else problem.nodes[place].name + value
        body, mark, answer = gold.partition("#")
        steps = ["|".join(bare if step == shown else step for step in part.split("|")) for part in body.split(",")]
        spoilt = ",".join(steps) + mark + answer
        assert verify(problem, spoilt, PLAIN).strict
        assert verify(problem, spoilt, Verify(arithmetic=True)).error == "value"


@given(cases(), st.integers(0, 300), st.integers(0, 40), st.booleans())
def test_a_length_repeats_true_steps_and_nothing_else(case: tuple[OpDag, Problem], low: int, more: int, asks: bool) -> None:
    task, problem = case
    plain = render(problem, task)
    asked = task.model_copy(update={"length": (low, low + more), "asks_length": asks})
    longer = render(problem, asked)
    steps, before = (re.split("[,|]", made.solution.partition("#")[0]) for made in (longer, plain))
    dots = asks * (len(steps) - len(before))
    assert (longer.prompt, longer.answer) == (f"{plain.prompt[:-1]}{'.' * dots}|", plain.answer)
    assert [step for step, _ in groupby(steps)] == [step for step, _ in groupby(before)]
    shortest = min(len(step) for step in before[-problem.necessary :]) + 1
    assert longer == plain or low - shortest < len(longer.solution) <= low + more
    assert len(plain.solution) <= len(longer.solution)
    assert verify(problem, longer.solution, EXACT).strict
    assert render(loads(dumps(problem)), asked) == longer
    if not any(problem.filler):
        posed = parse_prompt(longer.prompt, asked)
        assert isinstance(posed, str) or posed.answer == problem.answer
        assert asks or posed == parse_prompt(plain.prompt, task)


def test_with_a_length_that_of_a_solution_is_no_function_of_op() -> None:
    def lengths(op: int, **knobs: object) -> set[int]:
        return {len(case(op, index, **knobs)[2]) for index in range(40)}

    assert [lengths(op) for op in (3, 6)] == [{19}, {37}]
    drawn = [lengths(op, length=(37, 60)) for op in (3, 6)]
    assert all(35 <= min(of) <= 37 < 55 < max(of) <= 60 for of in drawn)
    assert lengths(3, length=(37, 37)) <= {35, 36, 37}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("dc-b,ca*b,ba+3,a6|a6,b6+3=2,b6+3=2,c6*2=5,a6,d5-2=3,b6+3=2#3", "none"),
        ("dc-b,ca*b,ba+3,a6|a6,b6+3=2,b6+3=3,c6*2=5,d5-2=3#3", "value"),  # a false one, behind the true one
        ("dc-b,ca*b,ba+3,a6|a6,b6+3=3,b6+3=2,c6*2=5,d5-2=3#3", "value"),  # and before it
        ("dc-b,ca*b,ba+3,a6|a6,b6+3=2,a5,c6*2=5,d5-2=3#3", "value"),  # of a leaf
        ("dc-b,ca*b,ba+3,bc+3,a6|a6,b6+3=2,c6*2=5,d5-2=3#3", "dependency"),  # of a definition
        ("dc-b,ca*b,ba+3,a6|a6,c6*2=5,b6+3=2,c6*2=5,d5-2=3#3", "dependency"),  # the repetition comes in time, the first did not
        ("d3,d3,d3,d3#3", "missing_node"),  # the answer alone
        ("a6,a6,a6,a6#3", "missing_node"),
        ("dc-b,ca*b,ba+3,a6|a6,b6+3=2,c6*2=5,d5-2=3" + ",a6" * 200, "truncated"),  # without an end
        ("dc-b,ca*b,ba+3,a6|a6,b6+3=2,c6*2=5,d5-2=3#3,d5-2=3#3", "answer"),
        ("dc-b,ca*b,ba+3,a6|a6,s4,b6+3=2,s4,c6*2=5,d5-2=3#3", "extra_node"),  # of what the goal does not need
    ],
)
def test_repetitions_are_judged_as_what_they_say(said: str, why: str) -> None:
    assert verify(SMALL, said, EXACT).error == why


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("cb*4,ba+2,a_|a_,a_,b_+2=_+2,a_,c(_+2)*4=4_+1,b_+2=_+2|4_+1=4,4_=3#6", "none"),
        ("cb*4,ba+2,a_|a_,b_+2=_+2,a6,c(_+2)*4=4_+1|4_+1=4,4_=3#6", "value"),  # the unknown's value, guessed in between
        ("a_,a_,a_,a_#6", "missing_node"),
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c(_+2)*4=4_+1,c(_+2)*4=4_+1#6", "value"),  # the form of the goal again is no equation
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c(_+2)*4=4_+1|4_+1=4,4_+1=4,4_=3,4_=3#6", "none"),
        ("cb*4,ba+2,a_|a_,b_+2=_+2,c(_+2)*4=4_+1|4_+1=4,4_+1=5,4_=3#6", "value"),
    ],
)
def test_repetitions_of_the_unknown_are_judged_as_what_they_say(said: str, why: str) -> None:
    assert verify(LINE, said, EXACT).error == why
