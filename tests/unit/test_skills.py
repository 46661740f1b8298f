"""Mano, Depo and counts of words: by hand, and as their released generators draw."""

from collections import Counter

import pytest
from pydantic import ValidationError

from interplay.core.random import stream
from interplay.tasks.skills import DEPO, LISTED, MANO, NOISE, WORD_COUNTS, drawn_size, value_of
from interplay.tasks.spec import Depo, Mano, Verify, WordCounts


@pytest.mark.parametrize(
    ("tokens", "value"),
    [("5", 5), ("- 3 5", 21), ("+ * 4 6 22", 0), ("* + 1 2 - 3 4", 20), ("- - 1 2 3", 19), ("- 1 - 2 3", 2)],
)
def test_expressions_are_worked_out_from_the_left_in_prefix_notation(tokens: str, value: int) -> None:
    assert value_of(tokens.split(), 23) == value


def test_an_expression_has_op_operators_and_every_split_of_the_rest_occurs() -> None:
    task, lefts = Mano(), Counter()
    for index in range(400):
        problem = MANO.generate(task, 0, index, 3)
        tokens = problem.prompt.partition(":")[2].removesuffix("=").split(" ")
        assert sum(token in "+-*" for token in tokens) == 3
        assert len(tokens) == 7
        depth, used = 1, 0
        for token in tokens[1:]:  # the first operand ends where as many operands as operators have come
            depth += 1 if token in "+-*" else -1
            used += token in "+-*"
            if depth == 0:
                break
        lefts[used] += 1
        assert MANO.answer(task, problem, problem.prompt) == problem.answer
    assert set(lefts) == {0, 1, 2}
    assert min(lefts.values()) > 90, "each with a third"


def test_the_answer_of_a_cycle_is_op_hops_on() -> None:
    task = Depo(nodes=(4, 4), letters=2, word=(3, 3))
    problem = DEPO.generate(task, 0, 0, 4)
    asked = problem.prompt.rpartition("?")[2].removesuffix("=")
    assert problem.answer == asked, "a cycle of four"
    for op in range(1, 9):
        problem = DEPO.generate(Depo(), 1, op, op)
        assert DEPO.answer(Depo(), problem, problem.prompt) == problem.answer
        assert DEPO.verify(problem, problem.answer, Verify()).strict
        assert DEPO.verify(problem, f"{problem.answer} {problem.answer}", Verify()).error == "answer"
        assert DEPO.verify(problem, "", Verify()).error == "truncated"


def test_sizes_have_the_weights_of_the_released_generator() -> None:
    task, draw = Depo(nodes=(3, 9)), stream("test")
    counts = Counter(drawn_size(task, draw) for _ in range(20_000))
    weights = {n: 1 / (n + 3) for n in range(3, 10)}
    for n, weight in weights.items():
        assert counts[n] / 20_000 == pytest.approx(weight / sum(weights.values()), abs=0.012)


def test_a_cycle_without_enough_words_is_refused() -> None:
    with pytest.raises(ValidationError, match="there are 4 words; raise letters or word"):
        Depo(letters=2, word=(2, 2))
    with pytest.raises(ValidationError, match="write the smaller first"):
        Depo(nodes=(9, 3))


def test_common_words_occur_as_often_as_asked_and_all_others_less() -> None:
    task = WordCounts(repeats=(6, 2), others=7)
    problem = WORD_COUNTS.generate(task, 0, 0, 3)
    counts = Counter(LISTED.findall(problem.prompt.split("\n")[1]))
    assert sorted(counts.values()) == [2] * 7 + [6] * 3
    assert {word for word, n in counts.items() if n == 6} == set(problem.answer.split())
    assert problem.prompt.count("\n") == 3
    assert f" {6 * 3 + 2 * 7}. " in problem.prompt, "the list is numbered"


def test_frequent_words_have_the_counts_of_rulers_generator() -> None:
    """By hand: floor(400 k^-2 / zeta(2)), of which the first is noise."""
    task = WordCounts(counts="frequent", words=400)
    assert task.ranks()[:9] == [243, 60, 27, 15, 9, 6, 4, 3, 3]
    assert task.ops() == (1, 6)
    assert WordCounts(counts="frequent", words=60).ops() == (1, 3)
    problem = WORD_COUNTS.generate(task, 0, 0, 3)
    counts = Counter(LISTED.findall(problem.prompt.split("\n")[1]))
    assert counts[NOISE] == 243
    assert [counts[word] for word in problem.answer.split()] == [60, 27, 15]


@pytest.mark.parametrize("counts", ["common", "frequent"])
@pytest.mark.parametrize("style", ["prose", "terse"])
def test_lists_are_right_in_any_order_and_lose_by_what_is_added(counts: str, style: str) -> None:
    task = WordCounts(counts=counts, style=style, letters=4, length=5, words=90)
    for op in range(1, task.ops()[1] + 1):
        problem = WORD_COUNTS.generate(task, 1, op, op)
        words = problem.answer.split()
        assert len(set(words)) == op
        assert WORD_COUNTS.answer(task, problem, problem.prompt) == problem.answer
        assert set(problem.prompt) <= set("".join(WORD_COUNTS.vocabulary(task)))
        assert WORD_COUNTS.verify(problem, " ".join(reversed(words)), Verify()).strict
        assert WORD_COUNTS.verify(problem, f"They are \\boxed{{{', '.join(words)}}}.", Verify()).strict
        more = WORD_COUNTS.verify(problem, f"{problem.answer} zzzzz", Verify())
        assert (more.error, more.score) == ("answer", pytest.approx(2 * op / (2 * op + 1)))
        assert WORD_COUNTS.verify(problem, problem.prompt, Verify()).error == "answer", "everything is listed"
    assert WORD_COUNTS.verify(problem, "7.", Verify()).error == "truncated"


def test_lists_that_cannot_be_asked_about_are_refused() -> None:
    with pytest.raises(ValidationError, match="asked words occur more often than others"):
        WordCounts(repeats=(3, 3))
    with pytest.raises(ValidationError, match="there are 4 words; raise letters or length"):
        WordCounts(letters=2, length=2)
