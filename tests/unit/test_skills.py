"""Mano and Depo: by hand, and as their released generators draw."""

from collections import Counter

import pytest
from pydantic import ValidationError

from interplay.core.random import stream
from interplay.tasks.skills import DEPO, MANO, drawn_size, value_of
from interplay.tasks.spec import Depo, Mano, Verify


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
