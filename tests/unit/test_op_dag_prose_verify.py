"""The verifier in prose: gold passes whatever its letters, each fault gets its class, nothing cheap passes, no text makes it raise."""

import re
from itertools import groupby

import pytest
from conftest import examples
from hypothesis import given, strategies as st
from op_dag_cases import consistent
from op_dag_prose_cases import FORWARD, FORWARD_GOLD, LINE_GOLD, REVERSE, case, cases, judged as verify, line, small

from interplay.tasks.op_dag.prose import Problem, render
from interplay.tasks.spec import Verify

PLAIN = Verify()
EXACT = Verify(operator=True, extra_nodes="penalised")
SMALL, LINE = small(), line()
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
MODES = [FORWARD, REVERSE]


def error(completion: str, problem: Problem = SMALL, options: Verify = PLAIN) -> str:
    return verify(problem, completion, options).error


def relettered(solution: str, letters: str, kept: str = "") -> str:
    """The solution with its letters taken from `letters`, in order of their appearance."""
    free = iter([letter for letter in letters if letter not in kept])
    known = {letter: letter for letter in kept}
    return re.sub(
        r"(?<![\w'-])[A-Za-z](?![\w'-])", lambda m: known.setdefault(m[0], m[0] if m[0] in known else next(free)), solution
    )


@examples(200)
@given(cases(), st.permutations(LETTERS))
def test_renaming_letters_never_changes_the_verdict(case, letters):
    task, problem = case
    solution = render(problem, task).solution
    other = relettered(solution, "".join(letters))
    assert verify(problem, other, EXACT).strict
    spoilt = solution.replace(" = 1", " = 2", 1)
    assert verify(problem, relettered(spoilt, "".join(letters)), EXACT) == verify(problem, spoilt, EXACT)


@examples(300)
@given(cases(), st.text(max_size=60), st.integers(0, 400), st.integers(0, 100))
def test_no_text_makes_it_raise_and_only_right_answers_are_strict(case, noise, start, length):
    task, problem = case
    solution = render(problem, task).solution
    for text in (noise, solution[:start] + noise + solution[start + length :]):
        consistent(verify(problem, text, PLAIN))


PIECES = st.sampled_from(
    ["Define ", "adult fox in Pine Ridge", "total number of adult animals in Pine Ridge", " as ", "Q", "x", "; ", "so ", " = ", "3", "7",
     " + ", " - ", " * ", "(", ")", ". ", "We know ", ": ", " / ", "0", "we don't know its value yet but will find it out later",
     "Answer: ", "<answer> ", " </answer>", "-", "12345678901"]
)  # fmt: skip


@examples(300)
@given(st.lists(PIECES, max_size=40))
def test_no_text_of_its_own_pieces_makes_it_raise(pieces):
    for problem in (SMALL, LINE):
        assert verify(problem, "".join(pieces), EXACT).nodes == problem.necessary


@pytest.mark.parametrize(
    "text",
    [
        "Define adult fox in Pine Ridge as Q; so Q = " + "(" * 5000,
        "Define adult fox in Pine Ridge as Q; so Q = 2" + " * 9" * 5000,
        "Define adult fox in Pine Ridge as a; " + "a = 9 * 9; " + "a = a * a; " * 3000,
        "Define adult fox in Pine Ridge as a; " + "a = a + a; " * 3000,
        "Define " * 5000,
        "We know " + "q = " * 5000,
        " = 3." * 5000,
        "Define adult fox in Pine Ridge as ٣; so ٣ = ٣. Answer: ٣.",
        "Answer: " + "9" * 10_000 + ".",
    ],
)
def test_long_and_odd_texts_are_judged_quickly_and_are_wrong(text):
    assert not verify(SMALL, text, PLAIN).strict
    assert not verify(LINE, text, PLAIN).strict


def test_published_texts_written_by_hand_are_strict():
    body = "</solution> <answer> 33 </answer>"
    assert error(FORWARD_GOLD, SMALL, EXACT) == "none"
    assert error(FORWARD_GOLD.replace("Answer: 33.", body), SMALL, EXACT) == "none"
    assert error(LINE_GOLD, LINE, EXACT) == "none"
    assert verify(SMALL, FORWARD_GOLD, PLAIN).nodes == 6


@pytest.mark.parametrize(
    ("old", "new", "plain", "exact"),
    [
        ("R = Q = 3; so a = 4 + R = 4 + 3 = 7", "so a = 4 + Q = 4 + 3 = 7", "none", "none"),  # no letter in between
        ("so Q = 3.", "Q = 3.", "none", "none"),
        ("h = b + Q = 10 + 3 = 13; so t = h + a = 13 + 7 = 20", "so t = a + Q + b = 7 + 3 + 10 = 20", "none", "none"),
        ("so b = Q + a = 3 + 7 = 10", "so b = a + Q = 3 + 7 = 10", "none", "none"),
        ("W = t = 20; so o = 2 * W = 2 * 20 = 40", "so o = t + t = 20 + 20 = 40", "none", "none"),  # algebra is no operator error
        ("W = t = 20; so o = 2 * W", "V = t = 20; so o = 2 * W", "dependency", "dependency"),
        ("W = t = 20; so o = 2 * W", "W = b = 20; so o = 2 * W", "dependency", "dependency"),
        ("so b = Q + a = 3 + 7 = 10", "so b = Q + a = 3 + 7 = 11", "value", "value"),
        ("so b = Q + a = 3 + 7 = 10", "so b = Q + a = 4 + 6 = 10", "value", "value"),  # numbers that are not the parents'
        ("so b = Q + a = 3 + 7 = 10", "so b = Q + a = 3 + 7 = 11 = 10", "value", "value"),
        ("so b = Q + a = 3 + 7 = 10", "so b = Q + a = 10", "none", "none"),
        ("so b = Q + a = 3 + 7 = 10", "so b = Q + a = 3 + 7", "missing_node", "missing_node"),  # never worked out
        ("so b = Q + a = 3 + 7 = 10", "so b = 10", "dependency", "dependency"),  # operands named nowhere
        ("so b = Q + a = 3 + 7 = 10", "so b = 3 + 7 = 10", "dependency", "dependency"),
        ("so b = Q + a = 3 + 7 = 10", "so b = Q * a = 10", "none", "operator"),  # as published: the operator is not looked at
        ("so C = o - a = 40 - 7 = 33", "so C = a - o = 40 - 7 = 33", "none", "operator"),
        ("so C = o - a = 40 - 7 = 33", "so C = o - R = 40 - 3 = 37", "dependency", "dependency"),
        ("so C = o - a = 40 - 7 = 33", "so C = o - z = 40 - 7 = 33", "dependency", "dependency"),  # z is bound to nothing
        ("R = Q = 3; so a = 4 + R = 4 + 3 = 7", "R = Q = 4; so a = 3 + R = 3 + 4 = 7", "value", "value"),
        ("so a = 4 + R = 4 + 3 = 7", "so a = 5 + R = 7", "value", "value"),  # the constant misread
        ("h = b + Q = 10 + 3 = 13", "h = b + Q = 10 + 3 = 12", "value", "value"),
        ("so Q = 3.", "so Q = 3. Define adult fox in Pine Ridge as Q; so Q = 4.", "value", "value"),  # said to be two things
        ("so Q = 3.", "so Q = 3; so Q = 4.", "value", "value"),
        ("so Q = 3.", "so Q = 3. Define adult fox in Pine Ridge as Q; so Q = 3.", "none", "none"),
        ("so Q = 3.", "so Q = 3. Define adult owl in South Zoo as s; so s = 1.", "none", "extra_node"),
        ("so Q = 3.", "so Q = 3. Define adult elk in Old Town as s; so s = 9.", "none", "extra_node"),
        ("so Q = 3.", "so Q = 3. Let us go on slowly.", "none", "none"),
        ("so Q = 3.", "so Q = 3. Q = 4.", "value", "value"),  # a claim that does not hold
        ("so Q = 3.", "so Q = 3. Q = 3.", "none", "none"),
        ("so Q = 3.", "so Q = three.", "parse", "parse"),
        ("so Q = 3.", "so Q = 03.", "parse", "parse"),
        ("so Q = 3.", "so Q = __import__('os').", "parse", "parse"),
        ("adult wolf in Pine Ridge as b", "adult wolf in Maple Creek as b", "missing_node", "missing_node"),
        ("Answer: 33.", "Answer: 34.", "answer", "answer"),
        ("Answer: 33.", "Answer: 033.", "answer", "answer"),
        ("Answer: 33.", "", "truncated", "truncated"),
        ("Answer: 33.", "</solution> <answer> 33", "truncated", "truncated"),
        ("Answer: 33.", "Answer: 34. </solution> <answer> 33 </answer>", "none", "none"),  # the tags decide where they are
    ],
)  # fmt: skip
def test_each_fault_has_its_class(old, new, plain, exact):
    assert old in FORWARD_GOLD
    text = FORWARD_GOLD.replace(old, new)
    assert error(text) == plain
    assert error(text, SMALL, EXACT) == exact


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("so k = 3 + E = 3 + x = x + 3", "so k = x + 3", "none"),
        ("so k = 3 + E = 3 + x = x + 3", "so k = 3 + E = 3 + x = 3 + x", "none"),
        ("so k = 3 + E = 3 + x = x + 3", "so k = 3 + E = 3 + x = x + 4", "value"),
        ("s = k + x = x + 3 + x = 2*x + 3", "s = x + k = 2*x + 3", "none"),
        ("s = k + x = x + 3 + x = 2*x + 3; so P = 4 * s = (4) * (2*x + 3)", "so P = 4 * (k + x) = 4 * (2*x + 3)", "none"),
        ("so P = 4 * s = (4) * (2*x + 3) = 8*x + 12", "so P = 4 * s = 4 * 2*x + 3 = 8*x + 3", "value"),  # brackets forgotten
        ("so D = P - x = (8*x + 12) - (x) = 7*x + 12", "so D = x - P = (8*x + 12) - (x) = 7*x + 12", "operator"),
        ("so D = P - x = (8*x + 12) - (x) = 7*x + 12", "so D = P - k = (8*x + 12) - (x) = 7*x + 12", "dependency"),
        ("we don't know its value yet but will find it out later", "so x = 2", "missing_node"),  # then forms in x say nothing
        ("Isolate the term with x: 15*x = 30.", "Isolate the term with x: 15*x = 54.", "value"),  # an equation that does not hold
        ("Isolate the term with x: 15*x = 30.", "", "none"),
        ("x = 30 / 15", "x = 31 / 15", "value"),
        ("Simplifying the equation: 15*x + 24 = 54.", "Simplifying the equation: x*x = 54.", "value"),  # not linear
        ("so T = D + P = 7*x + 12 + 8*x + 12 = 15*x + 24", "so T = D + P = 26 + 28 = 54", "value"),
        ("Answer: 2.", "Answer: 3.", "answer"),
    ],
)
def test_reverse_steps_are_judged_as_linear_forms(old, new, expected):
    assert old in LINE_GOLD
    assert error(LINE_GOLD.replace(old, new), LINE, EXACT) == expected


def test_a_guessed_answer_carried_forward_is_no_solution():
    guessed = (
        "Define elementary school in Brightford as x; so x = 2. Define culinarian school in Brightford as k; E = x = 2; so k = 3 + E = "
        "3 + 2 = 5. Define public highschool in Ruby Bay as P; s = k + x = 5 + 2 = 7; so P = 4 * s = 4 * 7 = 28. Define culinarian "
        "school in Ruby Bay as D; so D = P - x = 28 - 2 = 26. Define total number of schools in Ruby Bay as T; so T = D + P = 26 + 28 "
        "= 54. Answer: 2."
    )
    verdict = verify(LINE, guessed, PLAIN)
    assert (verdict.error, verdict.answer, verdict.value_mismatches, verdict.dependency_mismatches) == ("value", True, 5, 0)


def test_the_unknown_may_have_any_letter_and_letters_may_be_used_again():
    assert error(relettered(LINE_GOLD, "qwertyuiopasdfghjkl"), LINE, EXACT) == "none"
    assert error(FORWARD_GOLD.replace("W = t", "R = t").replace("2 * W", "2 * R"), SMALL, EXACT) == "none"
    again = FORWARD_GOLD.replace(" as C; so C", " as Q; so Q")
    assert error(again, SMALL, EXACT) == "none"
    wrong = FORWARD_GOLD.replace("bear in Pine Ridge as a", "bear in Pine Ridge as Q").replace("so a =", "so Q =")
    assert error(wrong) == "dependency"  # Q is the bear from there on, and a is nothing
    assert error(LINE_GOLD.replace(" as k; E", " as x; E").replace("so k =", "so x ="), LINE) != "none"


def test_a_letter_may_gather_a_sum_step_by_step():
    steps = "t = b + Q = 10 + 3 = 13; so t = t + a = 13 + 7 = 20"
    assert error(FORWARD_GOLD.replace("h = b + Q = 10 + 3 = 13; so t = h + a = 13 + 7 = 20", steps), SMALL, EXACT) == "none"
    assert (
        error(FORWARD_GOLD.replace("h = b + Q = 10 + 3 = 13; so t = h + a = 13 + 7 = 20", steps.replace("13;", "12;"))) == "value"
    )


@pytest.mark.parametrize("knobs", MODES)
def test_a_dropped_sentence_is_a_missing_node(knobs):
    for index in range(30):
        _, problem, solution = case(9, index, **knobs)
        name = problem.nodes[problem.goal - 1].name
        wrong = re.sub(rf" Define {re.escape(name)} as [^.]*\.", "", solution)
        assert wrong != solution
        verdict = verify(problem, wrong, PLAIN)
        assert (verdict.error, verdict.missing, verdict.strict) == ("missing_node", 1, False)


@pytest.mark.parametrize("knobs", MODES)
def test_sentences_before_what_they_read_are_wrong_and_any_other_order_is_right(knobs):
    for index in range(30):
        _, problem, solution = case(9, index, width=(2, 2), **knobs)
        first = solution.index("Define")
        end = solution.index(".", solution.rindex("Define"))
        sentences = solution[first:end].split(". ")
        turned = solution[:first] + ". ".join(sentences[::-1]) + solution[end:]
        # In reverse mode forms in an unknown that is not yet named are no values.
        assert verify(problem, turned, PLAIN).error == ("dependency" if problem.mode == "forward" else "missing_node")
        leaves = [place for place, node in enumerate(problem.nodes[: problem.necessary]) if not node.parents]
        leaf_first = [sentences[place] for place in leaves] + [
            text for place, text in enumerate(sentences) if place not in leaves
        ]
        assert verify(problem, solution[:first] + ". ".join(leaf_first) + solution[end:], EXACT).strict


@pytest.mark.parametrize("knobs", MODES)
def test_a_wrong_value_is_charged_to_its_node_alone(knobs):
    for index in range(30):
        _, problem, solution = case(7, index, **knobs)
        name = re.escape(problem.nodes[problem.goal].name)
        wrong = re.sub(rf"(Define {name} as [^.]* = )[^.=]*\.", r"\g<1>999.", solution)
        verdict = verify(problem, wrong, PLAIN)
        assert (verdict.error, verdict.value_mismatches, verdict.dependency_mismatches) == ("value", 1, 0)
        assert verdict.answer
        assert verdict.score == pytest.approx(1 - 1 / problem.necessary)


@pytest.mark.parametrize("knobs", MODES)
def test_nothing_cheap_is_strict(knobs):
    for index in range(20):
        _, problem, solution = case(7, index, **knobs)
        answer = f"<answer> {problem.answer} </answer>"
        values = zip(problem.nodes, problem.values, LETTERS, strict=False)
        listed = "".join(f"Define {node.name} as {letter}; so {letter} = {value}. " for node, value, letter in values)
        assert error("", problem) == "truncated"
        assert error(answer, problem) == "missing_node"
        assert not verify(problem, listed + answer, PLAIN).strict
        body = solution.partition(" </solution>")[0]
        assert verify(problem, body, PLAIN)[:4] == (False, False, 1.0, "truncated")


@examples(100)
@given(cases(), st.integers(0, 3000), st.integers(0, 200))
def test_a_length_repeats_true_sentences_and_nothing_else(case, low, more):
    task, problem = case
    plain, longer = (render(problem, task.model_copy(update={"length": length})) for length in (None, (low, low + more)))
    assert (longer.prompt, longer.answer) == (plain.prompt, plain.answer)
    assert [text for text, _ in groupby(longer.solution.strip().split(". "))] == plain.solution.strip().split(". ")
    shortest = min(len(text) for text in re.findall("Define [^.]*[.]", plain.solution)) + 1
    assert longer == plain or low - shortest < len(longer.solution) <= low + more
    assert verify(problem, longer.solution, Verify(operator=True, extra_nodes="penalised")).strict


@pytest.mark.parametrize(
    ("again", "why"),
    [
        ("Define adult bear in Pine Ridge as a; R = Q = 3; so a = 4 + R = 4 + 3 = 7. ", "none"),
        ("Define adult bear in Pine Ridge as a; R = Q = 3; so a = 4 + R = 4 + 3 = 8. ", "value"),
        ("Define adult bear in Pine Ridge as a; so a = Q + Q = 7. ", "value"),
        ("Define adult bear in Pine Ridge as z; so z = b - Q = 10 - 3 = 7. ", "dependency"),
        ("Define adult crow in Maple Creek as C; so C = o - a = 40 - 7 = 33. " * 2, "none"),
    ],
)
def test_repetitions_are_judged_as_what_they_say(again, why):
    before, answer, after = FORWARD_GOLD.partition("Answer")
    assert error(f"{before}{again}{answer}{after}") == why


def test_a_repeated_answer_is_no_process():
    assert error("Define adult crow in Maple Creek as C; so C = 33. " * 9 + "Answer: 33.") == "missing_node"


def test_what_was_judged_before_does_not_alter_a_verdict():
    texts = [FORWARD_GOLD, LINE_GOLD, FORWARD_GOLD.replace("3", "4"), LINE_GOLD.replace("x + 3", "x")]
    once = [verify(problem, text, EXACT) for problem in (SMALL, LINE) for text in texts]
    assert [verify(problem, text, EXACT) for problem in (SMALL, LINE) for text in texts] == once


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("R = Q = 3; so a = 4 + R", "9 = Q = 3; so a = 4 + 9", "parse"),  # a number is no letter
        ("R = Q = 3; so a = 4 + R", "Q = Q = 3; so a = 4 + Q", "none"),  # bound again to the same
        ("Define adult fox in Pine Ridge as Q; so Q = 3. ", "", "missing_node"),
        ("as b; so b = Q + a", "as b; so c = Q + a", "missing_node"),
    ],
)
def test_letters_bind_what_their_clauses_say(old, new, expected):
    assert error(FORWARD_GOLD.replace(old, new), SMALL, EXACT) == expected


def test_a_spoilt_sentence_is_never_strict():
    _, problem, solution = case(12, 3, **FORWARD)
    leaf = problem.nodes[0]
    for old, new in ((f"= {leaf.constant}.", "= 9."), (f"= {leaf.constant}.", "= what."), ("; so", "; q = q = 1; so")):
        assert not verify(problem, solution.replace(old, new, 1), EXACT).strict


def test_a_second_name_for_the_unknown_takes_its_place_whatever_the_letters():
    name = "Define elementary school in Brightford as {}; we don't know its value yet but will find it out later. "
    again = LINE_GOLD.replace(" Define culinarian school in Bright", f" {name.format('z')}Define culinarian school in Bright", 1)
    for text in (again, relettered(again, "kluwtabcdefghij", kept="x")):
        assert error(text, LINE) == "missing_node"  # forms in x are no values then
    assert error(LINE_GOLD.replace("find it out later. ", "find it out later. " + name.format("x")), LINE) == "none"
