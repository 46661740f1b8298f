"""Mano, Depo, Brevo, Lano, Capo and counts of words: by hand, and as their released generators draw."""

import math
from collections import Counter
from itertools import product

import pytest
from pydantic import ValidationError

from interplay.core.random import stream
from interplay.tasks.facts.questions import CAPO
from interplay.tasks.facts.spec import Capo
from interplay.tasks.qa import LISTED, NOISE, WORD_COUNTS
from interplay.tasks.skills import (
    BREVO,
    DEPO,
    LANO,
    MANO,
    Asked,
    Sentence,
    derives,
    drawn_graph,
    drawn_sentence,
    drawn_size,
    grammar_of,
    value_of,
)
from interplay.tasks.spec import Brevo, Depo, Lano, Mano, Verify, WordCounts


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


@pytest.mark.parametrize(
    ("said", "error", "score"),
    [
        ("12 3 7 5", "none", 1.0),
        ("3 12 7 5", "none", 1.0),
        ("3 7 12 5", "order", 0.25),  # 7 needs 12
        ("3 12 12 7 5", "order", 0.5),  # twice
        ("3 12 7", "missing_node", 0.75),
        ("12 2 3 7 5", "extra_node", 0.25),  # 2 is needed by nothing that is needed
        ("3 12 07 5", "extra_node", 0.5),
        (" ", "truncated", 0.0),
    ],
)
def test_ancestors_are_right_in_any_order_that_their_graph_allows(said: str, error: str, score: float) -> None:
    found = BREVO.verify(Asked("brevo", "3 7|12 7|7 5|12 2?5=", "12 3 7 5"), said, Verify())
    assert (found.error, found.score, found.strict) == (error, score, error == "none")


def test_graphs_have_the_degrees_of_the_released_generator() -> None:
    """Leaves first, at most (n - 1) // 4 + 1; all others depend on one to four earlier nodes, and at most four on each."""
    leaves, degrees = Counter[int](), Counter[int]()
    for index in range(300):
        graph = drawn_graph(13, stream("graph", index))
        leaves[sum(not needs for needs in graph)] += 1
        degrees.update(len(needs) for needs in graph if needs)
        assert all(len(set(needs)) == len(needs) and max(needs, default=-1) < node for node, needs in enumerate(graph))
        assert max(Counter(one for needs in graph for one in needs).values()) <= 4
    assert set(leaves) == {1, 2, 3, 4}
    assert min(leaves.values()) > 45, "each with a quarter"
    assert set(degrees) == {1, 2, 3, 4}


@pytest.mark.parametrize("labels", ["numbers", "words"])
def test_questions_are_about_the_last_node_and_their_solutions_follow_every_pair(labels: str) -> None:
    task = Brevo(nodes=12, labels=labels)
    for op in range(3, 13):
        problem = BREVO.generate(task, 0, op, op)
        pairs, _, asked = problem.prompt.removesuffix("=").partition("?")
        place = {node: at for at, node in enumerate(problem.answer.split())}
        assert place[asked] == len(place) - 1
        split = [pair.split() for pair in pairs.split("|")]
        assert all(place[one] < place[node] for one, node in split if node in place)
        assert not any(one == asked for one, _ in split)
        assert BREVO.verify(problem, problem.answer, Verify()).strict
        assert set(problem.prompt + problem.answer) <= set("".join(BREVO.vocabulary(task)))


@pytest.mark.parametrize(("depth", "longest"), [(2, 3), (3, 2)])
def test_the_check_of_sentences_is_that_of_an_enumeration(depth: int, longest: int) -> None:
    """By an independent way: all sentences of a small grammar, of four to nine letters, written out."""
    levels = grammar_of(3, depth, 2, 2, 2, 2, longest, 1)

    def written(level: int, symbol: int) -> set[tuple[int, ...]]:
        if level == len(levels):
            return {(symbol,)}
        found: set[tuple[int, ...]] = set()
        for side in levels[level][symbol]:
            found |= {sum(parts, ()) for parts in product(*(written(level + 1, one) for one in side))}
        return found

    texts = [text for size in range(4, 10) for text in product(range(2), repeat=size)]
    right = {text for text in texts if derives(levels, text)}
    assert right == written(0, 0)
    assert 8 <= len(right) < len(texts) / 4


def test_grammars_are_drawn_as_the_released_ones_were() -> None:
    """cfg3f: six levels, three or four rules of a symbol, two or three symbols each, no two rules of a level alike."""
    counts, sizes = Counter[int](), Counter[int]()
    for key in range(60):
        levels = grammar_of(key, 6, 3, 3, 4, 2, 3, 1)
        assert [len(level) for level in levels] == [1, 3, 3, 3, 3, 3]
        for level in levels:
            sides = [side for symbol in level for side in symbol]
            assert len(set(sides)) == len(sides)
            counts.update(len(symbol) for symbol in level)
            sizes.update(map(len, sides))
    assert set(counts) == {3, 4}
    assert set(sizes) == {2, 3}
    plain = grammar_of(0, 6, 3, 2, 2, 2, 3, 0)
    assert all(len(set(side)) == len(side) for level in plain for symbol in level for side in symbol), "cfg3b repeats no symbol"


def test_a_rest_is_right_that_makes_any_sentence_of_what_is_given() -> None:
    task = Lano(depth=4)
    for op in range(2, 5):
        problem = LANO.generate(task, 0, 7, op)
        given = problem.prompt.partition(":")[2]
        assert problem.prompt.startswith(f"{op}:")
        assert len(given) == (len(given) + len(problem.answer)) // 2
        assert LANO.verify(problem, problem.answer, Verify()).strict
        assert LANO.verify(problem, problem.answer + "d", Verify()).error == "parse"
        assert LANO.verify(problem, "", Verify()).error == "truncated"
        assert LANO.verify(problem, problem.answer * 2, Verify()).error == "answer"
    levels = grammar_of(*problem.grammar)[-2:]
    other = "".join("abc"[one] for one in drawn_sentence(levels, 0, stream("other")))
    posed = Sentence("lano", f"2:{other[:1]}", "", problem.grammar, 2)
    assert LANO.verify(posed, other[1:], Verify()).strict, "no other gold is asked for"


def test_grammars_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValidationError, match="a level may need 12 rules and 6 differ; raise length or symbols"):
        Lano(length=(2, 2), repeats=False)
    with pytest.raises(ValidationError, match="without repeats at most 3 symbols; raise symbols"):
        Lano(length=(2, 4), repeats=False)


def test_a_biography_has_a_name_of_its_own_and_is_asked_for_from_any_part_on() -> None:
    task = Capo(people=50)
    texts = {CAPO.generate(task, 0, index, 7).answer for index in range(100)}
    assert len(texts) == len({text.partition("=")[0] for text in texts}) == 50
    assert {len(text) for text in texts} == {len(next(iter(texts)))}, (
        "so that the sum of a solution's nll is its mean times a constant"
    )
    asked = [CAPO.generate(task, seed, 3, op) for op, seed in zip(range(1, 8), range(7), strict=True)]
    assert len({problem.prompt + problem.answer for problem in asked}) == 1, "the same in every set"
    assert [len(problem.answer.split(";")) for problem in asked] == [1, 2, 3, 4, 5, 6, 6]
    assert asked[6].prompt == "@"
    name, *parts = asked[6].answer.removesuffix(".").replace("=", ";").split(";")
    wrong = f"{name}={';'.join(parts[:-1])};e999."
    assert CAPO.verify(asked[6], wrong, Verify()).score == pytest.approx(6 / 7)
    assert CAPO.verify(asked[6], asked[6].answer.removesuffix("."), Verify()).error == "truncated"
    assert CAPO.verify(asked[6], wrong, Verify()).error == "answer"


def test_fields_of_a_biography_have_the_entropy_of_the_published_ones_and_the_city_of_work_adds_none() -> None:
    """2 * 12 * 28 * 200 * 200 * 300 * 100 * 263 values and 400 * 400 * 1000 names (arXiv:2404.05405)."""
    task = Capo()
    assert math.log2(2 * math.prod(task.values)) == pytest.approx(47.6, abs=0.05)
    assert math.log2(math.prod(task.names)) == pytest.approx(27.3, abs=0.05)
    few = Capo(people=4000, names=(10, 40, 40), values=(3, 4, 5, 6, 7, 8, 9))
    seen: dict[str, set[str]] = {}
    places: dict[str, set[str]] = {}
    for index in range(1000):
        parts = CAPO.generate(few, 0, index, 7).answer.removesuffix(".").replace("=", ";").split(";")
        for at, part in enumerate(parts):
            seen.setdefault(f"{at}{part[0] if at == 2 else ''}", set()).add(part[1:] if at == 2 else part)
        places.setdefault(parts[6], set()).add(parts[5])
    assert [len(seen[key]) for key in ("1", "2h", "2s", "3", "4", "6")] == [60, 6, 6, 7, 8, 9]
    assert all(len(cities) == 1 for cities in places.values())


def test_more_people_than_names_are_refused() -> None:
    with pytest.raises(ValidationError, match="there are 8 names; raise names or take fewer people"):
        Capo(people=5, names=(2, 2, 2))


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
