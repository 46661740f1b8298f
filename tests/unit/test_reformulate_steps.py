"""Steps that put questions into other formats: every instance is valid, keys and truth are balanced, nothing hangs on the order of
the rows, and what has no valid instance is dropped and counted."""

from collections import Counter

import numpy as np
import pytest
from conftest import examples
from hypothesis import given, strategies as st
from pydantic import ValidationError
from reform_cases import INTEGERS, TASK, rows
from test_reformulated import text_row

from interplay.data.curate import StepInputs, transform_row
from interplay.data.steps import reformulate
from interplay.data.steps.context_spec import Choice, Cloze, Ladder, TrueFalse
from interplay.data.steps.reformulate import reformulate_rows
from interplay.tasks import reformulated
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.reformulated import Form, read_form
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row

SMALL = OpDag(modulus=5, operators="+-", letters=10, distractors=(0, 2))


def inputs(seed: int = 0) -> StepInputs:
    return StepInputs(0, {}, seed)


def forms(made: list[Row]) -> list[Form]:
    return [read_form(row.graph) for row in made]


@pytest.mark.parametrize("kind", ["same_set", "near"])
@pytest.mark.parametrize("count", [4, 10])
@given(seed=st.integers(0, 2**32), integers=st.booleans(), size=st.integers(24, 40))
@examples(8)
def test_every_choice_has_its_number_of_options_and_one_right_one(
    kind: str, count: int, seed: int, integers: bool, size: int
) -> None:
    given_rows = rows(size, INTEGERS if integers else TASK)
    made = reformulate_rows(Choice(options=count, distractors=kind), given_rows, inputs(seed))
    assert len(made.rows) + sum(made.counts.values()) == size
    assert len(made.rows) > size // 2 or kind == "same_set"
    for row, form in zip(made.rows, forms(made.rows), strict=True):
        values = [int(option) for option in form.options]
        assert len(set(values)) == len(values) == count
        assert integers or all(0 <= value < 23 for value in values)
        assert values.count(int(row.answer)) == 1
        assert form.gold == row.answer
        assert row.mode == {4: "four_choice", 10: "ten_choice"}[count]
        assert row.transforms == ("choice",)
        loaded = reformulated.loads(row.graph)
        assert reformulated.verify(loaded, row.solution, Verify()).strict
        right = [o for o in form.options if reformulated.verify(loaded, f"#{o}", Verify()).answer]
        assert right == [form.gold]


@pytest.mark.parametrize("count", [4, 10])
def test_each_key_is_right_equally_often_and_in_no_order(count: int) -> None:
    made = forms(reformulate_rows(Choice(options=count, distractors="near"), rows(203), inputs()).rows)
    keys = [form.options.index(form.gold) for form in made]
    assert len(keys) == 203
    assert set(Counter(keys).values()) <= {203 // count, 203 // count + 1}
    assert keys != sorted(keys)
    assert len({tuple(keys[i::count]) for i in range(count)}) > 1


def test_what_a_row_becomes_does_not_hang_on_the_order_of_the_rows() -> None:
    given_rows = rows(60)
    there = reformulate_rows(Choice(), given_rows, inputs()).rows
    back = reformulate_rows(Choice(distractors="near"), given_rows[::-1], inputs()).rows[::-1]
    assert reformulate_rows(Choice(distractors="near"), given_rows, inputs()).rows == back
    assert [row.origin for row in there] == [row.origin for row in given_rows]


def test_the_rank_of_the_gold_among_near_options_gives_nothing_away() -> None:
    golds = np.random.default_rng(0).integers(40, 60, size=2000)
    ranks = Counter(
        sorted([gold, *map(int, reformulate.draw_distractors("near", [], str(gold), None, 3, np.random.default_rng(i)))]).index(
            gold
        )
        for i, gold in enumerate(golds.tolist())
    )
    assert all(abs(ranks[rank] / 2000 - 1 / 4) < 0.04 for rank in range(4))


def test_the_gaps_among_near_options_give_nothing_away() -> None:
    beside, elsewhere = [], []
    for i in range(3000):
        options = sorted([50, *map(int, reformulate.draw_distractors("near", [], "50", None, 9, np.random.default_rng(i)))])
        gaps = np.diff(options)
        touching = [place for place in (options.index(50) - 1, options.index(50)) if 0 <= place < 9]
        beside += gaps[touching].tolist()
        elsewhere += np.delete(gaps, touching).tolist()
    assert abs(np.mean(beside) - 2.5) < 0.06  # gaps of 1 to 4, each as likely
    assert abs(np.mean(elsewhere) - 2.5) < 0.06


def test_every_other_residue_is_a_near_option_equally_often() -> None:
    drawn = Counter(o for i in range(3000) for o in reformulate.draw_distractors("near", [], "1", 7, 3, np.random.default_rng(i)))
    assert set(drawn) == set("023456")
    assert all(abs(count / 3000 - 3 / 6) < 0.04 for count in drawn.values())


@pytest.mark.parametrize("gold", ["20.0", "$20", "1,200", "1/2", "x"])
def test_a_gold_that_would_stand_out_among_whole_numbers_has_no_near_options(gold: str) -> None:
    assert reformulate.draw_distractors("near", [], gold, None, 3, np.random.default_rng(0)) == []


def test_distractors_of_the_same_set_are_answers_of_other_rows() -> None:
    given_rows = rows(40)
    answers = {row.answer for row in given_rows}
    assert all(set(form.options) <= answers for form in forms(reformulate_rows(Choice(), given_rows, inputs()).rows))


def test_a_modulus_with_too_few_residues_has_no_ten_options() -> None:
    made = reformulate_rows(Choice(options=10, distractors="near"), rows(12, SMALL, 2), inputs())
    assert made.rows == []
    assert made.counts == {"no_valid_ten_choice": 12}


def test_a_distractor_that_the_judge_takes_for_right_is_drawn_again_and_at_last_the_row_is_dropped() -> None:
    # The second gold is another name for the first: it must never stand beside it as a wrong option.
    row = text_row()
    others = [
        transform_row(
            row, "other", answer=answer, graph=row.graph.replace("Bob Day", answer).replace("Robert Day", answer), origin=f"o:{i}"
        )
        for i, answer in enumerate(["Robert Day", "Carl", "Dan", "Eve"])
    ]
    made = reformulate_rows(Choice(attempts=200), [row, *others], inputs())
    by_origin = {row.origin: form for row, form in zip(made.rows, forms(made.rows), strict=True)}
    assert sorted(by_origin[row.origin].options) == ["Bob Day", "Carl", "Dan", "Eve"]
    none = reformulate_rows(
        Choice(attempts=3), [row, *others[:1], *[transform_row(others[0], "x", origin=f"p:{i}") for i in range(3)]], inputs()
    )
    assert none.rows == []
    assert none.counts == {"no_valid_four_choice": 5}


def test_a_yes_or_no_is_never_among_other_answers_nor_they_beside_it() -> None:
    row = text_row()
    answers = ["yes", "No", "Carl Ott", "Dan Day", "Eve Fox", "Fay Gee", "Gus Hall"]
    given_rows = [
        transform_row(
            row, "x", answer=answer, graph=row.graph.replace("Bob Day", answer).replace("Robert Day", answer), origin=f"o:{i}"
        )
        for i, answer in enumerate(answers)
    ]
    made = reformulate_rows(Choice(), given_rows, inputs())
    assert {row.answer for row in made.rows} == set(answers[2:])
    assert made.counts == {"no_valid_four_choice": 2}
    assert not any({"yes", "No"} & set(form.options) for form in forms(made.rows))
    said = {form.gold: form.statement for form in forms(reformulate_rows(TrueFalse(), given_rows, inputs()).rows)}
    assert set(said) == set(answers)
    assert {said["yes"], said["No"]} <= {"yes", "No"}
    assert not {"yes", "No"} & {said[answer] for answer in answers[2:]}


@given(
    answer=st.text(alphabet="0123456789", min_size=1, max_size=12),
    low=st.floats(0, 1),
    high=st.floats(0.01, 1),
    seed=st.integers(0, 999),
)
@examples(200)
def test_a_mask_hides_a_share_within_bounds_and_shows_the_rest_as_it_is(answer: str, low: float, high: float, seed: int) -> None:
    low, high = min(low, high), high
    row = transform_row(text_row(), "x", answer=answer)
    made = reformulate_rows(Cloze(masked=(low, high)), [row], inputs(seed))
    possible = [n for n in range(1, len(answer)) if low <= n / len(answer) <= high]
    assert len(made.rows) == bool(possible)
    assert made.counts == ({} if possible else {"no_valid_cloze": 1})
    for form in forms(made.rows):
        assert form.mask.count("_") in possible
        assert len(form.mask) == len(answer)
        assert form.mask != answer
        assert all(shown in ("_", character) for shown, character in zip(form.mask, answer, strict=True))


def test_a_mask_that_only_one_residue_fits_is_drawn_again() -> None:
    made = forms(reformulate_rows(Cloze(attempts=50), rows(200), inputs()).rows)
    thirteen = [form.mask for form in made if form.gold in {str(value) for value in range(13, 20)}]
    assert thirteen
    assert {mask for mask in thirteen} == {"1_"}  # `_3` leaves 13 alone: 3 would be one digit, and 23 is no residue


def test_a_cloze_of_words_hides_letters_only() -> None:
    (form,) = forms(reformulate_rows(Cloze(), [text_row()], inputs()).rows)
    assert form.mask[3] == " "
    assert 3 <= form.mask.count("_") <= 4


def test_half_of_the_statements_hold_and_the_others_are_wrong() -> None:
    made = reformulate_rows(TrueFalse(distractors="near"), rows(41), inputs())
    holds = [form.statement == form.gold for form in forms(made.rows)]
    assert sorted(Counter(holds).values()) == [20, 21]
    assert [row.answer for row in made.rows] == ["+" if truth else "-" for truth in holds]
    assert all(reformulated.verify(reformulated.loads(row.graph), row.solution, Verify()).strict for row in made.rows)


def test_the_ladder_gives_each_question_in_each_valid_format_from_easy_to_hard() -> None:
    given_rows = rows(60)
    made = reformulate_rows(Ladder(distractors="near"), given_rows, inputs())
    for source in given_rows:
        mine = [row for row in made.rows if row.origin == source.origin]
        expected = ["four_choice", "ten_choice", *(["cloze"] if len(source.answer) > 1 else []), "open"]
        assert [row.mode for row in mine] == expected
        assert (mine[-1].prompt, mine[-1].family, mine[-1].graph) == (source.prompt, "op_dag", source.graph)
        assert {row.key for row in mine} == {source.key}
        assert {row.answer for row in mine} == {source.answer}
    assert made.counts["open"] == 60
    assert made.counts["cloze"] + made.counts["no_valid_cloze"] == 60


def test_a_row_that_is_no_open_question_is_dropped_and_counted() -> None:
    closed = reformulate_rows(Choice(distractors="near"), rows(8), inputs()).rows
    made = reformulate_rows(Cloze(), [*closed, transform_row(text_row(), "x", answer="")], inputs())
    assert made.rows == []
    assert made.counts == {"not_open": 9}


def test_prompts_hold_only_characters_of_the_alphabet() -> None:
    for spec in (Ladder(distractors="near"), TrueFalse(distractors="near")):
        for row in reformulate_rows(spec, rows(30), inputs()).rows:
            assert set(row.prompt + row.solution) <= set(OP_DAG.alphabet(TASK))


@pytest.mark.parametrize(
    ("masked", "message"),
    [((0.8, 0.5), r"masked\n.*must be \[low, high\] with low <= high"), ((0.0, 0.0), r"masked.1\n.*greater than 0")],
)
def test_a_mask_that_hides_nothing_or_runs_backwards_is_refused(masked: tuple[float, float], message: str) -> None:
    for spec in (Cloze, Ladder):
        with pytest.raises(ValidationError, match=message):
            spec(masked=masked)


def test_a_ladder_with_a_format_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match="each format once"):
        Ladder(formats=["open", "open"])
