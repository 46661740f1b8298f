"""The judge of questions in other formats: what counts as an answer to a choice, a cloze and a statement, and what does not."""

import pytest
from conftest import examples
from hypothesis import given, strategies as st
from reform_cases import TASK, row

from interplay.data.curate import transform_row
from interplay.tasks import qa, reformulated
from interplay.tasks.reformulated import KEYS, Form, chance, render, same_answer
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row, Verdict

ROW = next(found for place in range(99) if len((found := row(TASK, 4, place)).answer) == 2)
"""`...?..|`, with a two-digit answer below 23."""
GOLD = ROW.answer
WRONG = [str(value) for value in range(23) if str(value) != GOLD]


def form(format: str, **keys: object) -> Form:
    return Form(format, "op_dag", ROW.graph, GOLD)._replace(**keys)


def judged(made: Form, completion: str) -> Verdict:
    return reformulated.verify(reformulated.loads(reformulated.dumps(made)), completion, Verify())


def saying(said: str) -> str:
    """The gold steps, and another answer."""
    return ROW.solution.partition("#")[0] + f"#{said}"


FOUR = form("four_choice", options=(WRONG[0], GOLD, WRONG[1], WRONG[2]))


def test_a_choice_stands_in_brackets_before_the_end_of_the_prompt_and_its_solution_stays_that_of_the_open_question() -> None:
    prompt, solution, answer = render(ROW, FOUR)
    assert prompt == ROW.prompt[:-1] + f"(a){WRONG[0]}(b){GOLD}(c){WRONG[1]}(d){WRONG[2]}|"
    assert (solution, answer) == (ROW.solution, GOLD)


@pytest.mark.parametrize("said", [GOLD, "b", "(b)", f"(b){GOLD}", f"b{GOLD}"])
def test_a_choice_takes_the_value_or_its_key_or_both_where_they_agree(said: str) -> None:
    verdict = judged(FOUR, saying(said))
    assert verdict.strict
    assert verdict.answer
    assert verdict.said == said


@pytest.mark.parametrize(
    "said",
    [
        "",
        "a",
        "e",
        "ab",
        "b,a",
        "abcd",
        "(a)(b)",
        WRONG[0],
        f"(a){GOLD}",
        f"(b){WRONG[0]}",
        f"{GOLD},{WRONG[0]}",
        f"(a){WRONG[0]}(b){GOLD}(c){WRONG[1]}(d){WRONG[2]}",
        f"{GOLD}#{GOLD}",
        "#".join([GOLD] * 20),
        "b" * 20,
        f"0{GOLD}",
        str(int(GOLD) + 23),
    ],
)
def test_lists_of_keys_dumped_options_and_contradictions_are_no_answer_to_a_choice(said: str) -> None:
    verdict = judged(FOUR, saying(said))
    assert not verdict.answer
    assert not verdict.strict
    assert verdict.said == said


def test_the_right_key_without_the_steps_is_an_answer_but_not_strictly_right() -> None:
    verdict = judged(FOUR, "#b")
    assert verdict.answer
    assert not verdict.strict
    assert verdict.error == "missing_node"


def test_a_completion_without_an_answer_is_truncated() -> None:
    verdict = judged(FOUR, ROW.solution.partition("#")[0])
    assert (verdict.answer, verdict.strict, verdict.error) == (False, False, "truncated")


def test_a_cloze_shows_its_mask_and_takes_the_whole_value_only() -> None:
    cloze = form("cloze", mask=GOLD[0] + "_")
    assert render(ROW, cloze)[0] == ROW.prompt[:-1] + f"({GOLD[0]}_)|"
    assert judged(cloze, ROW.solution).strict
    assert not any(judged(cloze, saying(said)).answer for said in (cloze.mask, GOLD[1], GOLD[0], ""))


@pytest.mark.parametrize(("statement", "truth"), [(GOLD, "+"), (WRONG[0], "-")])
def test_a_statement_is_answered_by_its_truth_and_not_by_the_value(statement: str, truth: str) -> None:
    made = form("true_false", statement=statement)
    prompt, solution, answer = render(ROW, made)
    assert prompt.endswith(f"(={statement})|")
    assert answer == truth
    assert solution == saying(truth)
    assert judged(made, solution).strict
    other = {"+": "-", "-": "+"}[truth]
    assert not any(judged(made, saying(said)).answer for said in (other, "+-", GOLD, statement, ""))


@given(said=st.text(alphabet="0123456789abcd()+-,#|", max_size=12))
@examples(200)
def test_nothing_but_the_value_and_its_key_is_ever_right(said: str) -> None:
    right = said.strip() in {GOLD, "b", "(b)", f"(b){GOLD}", f"b{GOLD}"}
    assert judged(FOUR, saying(said)).answer == right


def test_guessing_is_worth_one_over_the_answers_that_a_prompt_leaves_open() -> None:
    def of(made: Form) -> float:
        return chance(transform_row(ROW, "x", family="reformulated", graph=reformulated.dumps(made)))

    assert of(FOUR) == 1 / 4
    assert of(form("true_false", statement=GOLD)) == 1 / 2
    assert of(form("ten_choice", options=(GOLD, *WRONG[:9]))) == 1 / 10
    assert of(form("cloze", gold="12", mask="1_")) == 1 / 10
    assert of(form("cloze", gold="21", mask="2_")) == 1 / 3  # 20, 21, 22: residues modulo 23
    assert chance(ROW) == 1 / 23


@pytest.mark.parametrize(
    ("one", "other", "modulus", "expected"),
    [
        ("12", "12.0", None, True),
        ("1,200", "1200", None, True),
        ("1/2", "0.5", None, True),
        ("$5", "5", None, True),
        ("12", "35", 23, True),
        ("12", "35", None, False),
        ("The Beatles", "beatles", None, True),
        ("a", "the", None, False),  # nothing is left of either
        ("12", "twelve", None, False),
        ("1e3", "1000", None, False),
    ],
)
def test_answers_are_the_same_as_numbers_or_as_normalised_words(
    one: str, other: str, modulus: int | None, expected: bool
) -> None:
    assert same_answer(one, other, modulus) is same_answer(other, one, modulus) is expected


def text_row() -> Row:
    """A question in words, judged by exact match of its box."""
    problem = qa.Problem("Who is Ann's boss?", ("Bob Day", "Robert Day"))
    prompt = "Who is Ann's boss?\nA:"
    solution = "The answer is \\boxed{Bob Day}."
    return Row(0, 0, "id", 1, "plain", prompt, solution, "Bob Day", qa.dumps(problem), "0" * 16, "qa", "a:0")


OPTIONS = ("Carl", "Bob Day", "Dan Bob", "Eve")
TEXT = [
    ("\\boxed{Bob Day}", True),
    ("\\boxed{b}", True),
    ("\\boxed{(B)}", True),
    ("\\boxed{(b) Bob Day}", True),
    ("\\boxed{b. bob day}", True),
    ("\\boxed{Robert Day}", True),  # another name for the gold that the inner family knows
    ("\\boxed{}", False),
    ("\\boxed{a}", False),
    ("\\boxed{a, b, c, d}", False),
    ("\\boxed{(a) Bob Day}", False),
    ("\\boxed{(b) Carl}", False),
    ("\\boxed{Carl, Bob Day, Dan Bob, Eve}", False),
    ("\\boxed{Bob Day or Carl}", False),
    ("\\boxed{Carl} \\boxed{Dan Bob} \\boxed{Eve} \\boxed{a} \\boxed{b}", False),
    ("Bob Day, the second", False),
]


@pytest.mark.parametrize(("completion", "right"), TEXT)
def test_a_choice_in_words_is_read_from_the_box(completion: str, right: bool) -> None:
    source = text_row()
    made = Form("four_choice", source.family, source.graph, source.answer, OPTIONS)
    prompt, solution, _ = render(source, made)
    listed = [f"({key}) {option}" for key, option in zip(KEYS, OPTIONS, strict=False)]
    assert prompt.splitlines() == ["Who is Ann's boss?", "Options:", *listed, "Answer with one of them.", "A:"]
    assert judged(made, solution).answer
    assert judged(made, completion).answer is right


@pytest.mark.parametrize("said", ["true", "Yes"])
def test_a_statement_in_words_is_answered_by_true_or_yes(said: str) -> None:
    source = text_row()
    made = Form("true_false", source.family, source.graph, source.answer, statement="Bob Day")
    assert render(source, made)[1] == "The answer is \\boxed{true}."
    assert judged(made, f"\\boxed{{{said}}}").answer
    assert not any(judged(made, f"\\boxed{{{other}}}").answer for other in ("false", "Bob Day", "true false", ""))
