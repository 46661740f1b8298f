"""The reward for answers in words, through the seam: what it pays, and what tries to be paid in vain."""

import pytest

from interplay.rl.reward_spec import OutcomeReward, TextReward
from interplay.rl.rewards import score_completions
from interplay.tasks import multihop, qa
from interplay.tasks.families import judge_family, multihop_item
from interplay.tasks.family import Item, Paragraph
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row

PARAGRAPHS = (
    Paragraph("Seine", ("The Seine flows through Paris.", "President Jacques Chirac swam there.")),
    Paragraph("Paris", ("Paris is in France.",)),
)
FORMS = ("exact", "f1", "substring")


def asked(*answers: str) -> Row:
    """A multi-hop row with these acceptable answers."""
    problem = multihop.plain_problem(Item("q", "Where?", answers, PARAGRAPHS, ((0, 0), (1, 0)), 2, "bridge"))
    prompt, solution, answer = multihop.render(problem, "published")
    return Row(0, 0, "all", 2, "plain", prompt, solution, answer, multihop.dumps(problem), "0" * 16, "multihop", "d:0")


def sum_of(answer: str) -> Row:
    problem = qa.Problem("How many?", (answer,))
    return Row(0, 1, "all", 1, "open", *qa.render(problem), qa.dumps(problem), "1" * 16, "qa", "d:1")


def paid(row: Row, completion: str, **spec) -> float:
    module = judge_family(row.family)
    verdict = module.verify(module.loads(row.graph), completion, Verify())
    return score_completions(TextReward(**spec), [row], [completion], [verdict]).sequence[0]


def test_the_forms_on_an_answer_worked_by_hand() -> None:
    row, completion = asked("Jacques Chirac"), "\\boxed{President Jacques Chirac}"
    assert paid(row, completion, form="exact") == 0
    assert paid(row, completion, form="f1") == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert paid(row, completion, form="substring") == 1
    assert paid(row, completion, form="substring", extra_words=0) == 0
    assert paid(row, completion, form="f1", extra_words=0) == 0
    assert [paid(row, row.solution, form=form) for form in FORMS] == [1, 1, 1]


def test_an_alias_is_paid() -> None:
    assert [paid(asked("New York City", "NYC"), "\\boxed{nyc}", form=form) for form in FORMS] == [1, 1, 1]


def test_exact_match_and_f1_are_kept_for_the_record() -> None:
    row = asked("Jacques Chirac")
    completions = ["\\boxed{Jacques Chirac}", "\\boxed{Chirac}", "none"]
    verdicts = [multihop.verify(multihop.loads(row.graph), completion, Verify()) for completion in completions]
    rewards = score_completions(TextReward(), [row] * 3, completions, verdicts)
    assert rewards.sequence == [1, 1, 0]
    assert rewards.parts == {"exact": [1, 0, 0], "f1": [1, pytest.approx(2 / 3), 0]}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("gold", "hack"),
    [
        ("Paris", "\\boxed{}"),
        ("Paris", "\\boxed{ }"),
        ("Paris", "\\boxed{the}"),
        ("Paris", "\\boxed{...}"),
        ("Paris", "no box, but Paris"),
        ("Paris", ""),
        ("Paris", "\\boxed{Paris, London, Rome, Berlin}"),
        ("Paris", "\\boxed{A. Paris B. London C. Rome D. Berlin}"),
        ("New York City", "\\boxed{New York City or Rome or London or Paris or Oslo}"),
        ("yes", "\\boxed{yes no}"),
        ("Posi", "\\boxed{Tika Posi Putu}"),
        ("Posi", "\\boxed{not Posi}"),
        ("Paris", "\\boxed{London Paris}"),
        ("Paris", "\\boxed{anything but Paris}"),
        ("New York City", "\\boxed{Rome New York City Oslo}"),
        ("no", "\\boxed{unknown}"),
        ("no", "\\boxed{yes or no}"),
        ("Paris", "\\boxed{Paris}" * 20),
        ("Paris", "\\boxed{" + "Paris " * 20 + "}"),
        ("Paris", "".join(f"\\boxed{{{city}}}" for city in ("London", "Rome", "Berlin", "Oslo", "Paris"))),
        ("cat", "\\boxed{concatenation}"),
        ("concatenation", "\\boxed{cat}"),
        ("Romeo and Juliet", "\\boxed{or}"),
        ("12", "\\boxed{1912}"),
    ],
)
def test_no_hack_is_paid_by_a_guarded_form(form: str, gold: str, hack: str) -> None:
    assert paid(asked(gold), hack, form=form) == 0


def test_the_published_substring_pays_hacks_that_the_guards_refuse() -> None:
    hacks = [
        ("Paris", "\\boxed{}"),
        ("Paris", "\\boxed{the}"),
        ("no", "\\boxed{unknown}"),
        ("Paris", "\\boxed{Paris, London, Rome, Oslo}"),
    ]
    for gold, hack in hacks:
        assert paid(asked(gold), hack, form="substring_published") == 1
        assert paid(asked(gold), hack, form="substring") == 0
    assert paid(asked("Paris"), "no box", form="substring_published") == 0


@pytest.mark.parametrize("form", [*FORMS, "f1_published", "substring_published"])
def test_arithmetic_in_the_same_mix_is_paid_for_its_value_and_not_its_letters(form: str) -> None:
    assert multihop_item(sum_of("-3.5")) is None
    assert paid(sum_of("-3.5"), "\\boxed{-\\frac{7}{2}}", form=form) == 1
    assert paid(sum_of("-3.5"), "\\boxed{35}", form=form) == 0
    assert paid(sum_of("-3.5"), "\\boxed{3.5}", form=form) == 0


@pytest.mark.parametrize(
    "hack", ["\\boxed{}", "\\boxed{41 42 43}", "\\boxed{41, 42}", "\\boxed{42}" * 20, "42 " * 20, "\\boxed{the}"]
)
def test_no_hack_of_arithmetic_is_paid_by_the_outcome(hack: str) -> None:
    row = sum_of("42")
    verdict = qa.verify(qa.loads(row.graph), hack, Verify())
    assert score_completions(OutcomeReward(), [row], [hack], [verdict]).sequence == [0]


def test_the_item_behind_a_row_is_found_where_there_is_one() -> None:
    found = multihop_item(asked("Paris", "Lutetia"))
    assert found is not None
    assert (found.answers, found.paragraphs) == (("Paris", "Lutetia"), PARAGRAPHS)
