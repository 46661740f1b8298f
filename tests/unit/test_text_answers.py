"""Answers in words: normalisation, exact match, F1 and the two-way substring with its guards."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from interplay.tasks import verdict

WORDS = st.lists(st.sampled_from(["Paris", "the", "of", "an", "Rome,", "no", "1986", "yes", "U.S.", "and", "é", "x"]), max_size=6)
TEXTS = st.one_of(WORDS.map(" ".join), st.text(max_size=20))


def squad(answer: str) -> str:
    """SQuAD's published normalisation, written out again as it stands there: white_space_fix(remove_articles(remove_punc(lower)))."""
    lowered = answer.lower()
    kept = "".join(letter for letter in lowered if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def hotpot_f1(prediction: str, gold: str) -> float:
    """HotpotQA's published f1_score."""
    left, right = squad(prediction), squad(gold)
    if left in ["yes", "no", "noanswer"] and left != right:
        return 0.0
    if right in ["yes", "no", "noanswer"] and left != right:
        return 0.0
    same = sum((Counter(left.split()) & Counter(right.split())).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(left.split()), same / len(right.split())
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("The  Quick, brown fox!", "quick brown fox"),
        ("an apple a day", "apple day"),
        ("U.S.A.", "usa"),
        ("theatre", "theatre"),
        ("the", ""),
        (" ... ", ""),
        ("Ålesund", "ålesund"),
    ],
)
def test_normalisation_lowers_drops_punctuation_and_articles_and_squeezes(given_text: str, expected: str) -> None:
    assert verdict.normalise(given_text) == expected


@given(TEXTS)
def test_normalisation_is_squads(answer: str) -> None:
    assert verdict.normalise(answer) == squad(answer)


@given(TEXTS)
def test_normalising_twice_changes_nothing_more(answer: str) -> None:
    once = verdict.normalise(answer)
    assert verdict.normalise(once) == once


@given(TEXTS, TEXTS)
def test_f1_is_hotpotqas(prediction: str, gold: str) -> None:
    assert verdict.f1(prediction, [gold]) == pytest.approx(hotpot_f1(prediction, gold))


def test_f1_on_numbers_worked_by_hand() -> None:
    assert verdict.f1("Barack Hussein Obama", ["Barack Obama"]) == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert verdict.f1("paris paris", ["Paris"]) == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert verdict.f1("no doubt", ["no"]) == 0
    assert verdict.f1("", ["Paris"]) == 0


def test_the_best_of_several_golds_counts() -> None:
    assert verdict.exact_match("NYC", ["New York City", "nyc"])
    assert verdict.f1("york", ["Rome", "New York"]) == pytest.approx(2 / 3)
    assert verdict.substring("Rome", ["Paris", "Rome"])
    assert not verdict.exact_match("Rome", [])
    assert verdict.f1("Rome", []) == 0


@pytest.mark.parametrize("said", ["", " ", "the", "a", "An", ".", "!?", "the a an"])
@pytest.mark.parametrize("gold", ["Paris", "The The", "yes"])
def test_an_answer_that_normalises_to_nothing_never_scores(said: str, gold: str) -> None:
    assert not verdict.exact_match(said, [gold])
    assert not verdict.substring(said, [gold])
    assert verdict.f1(said, [gold]) == 0


@pytest.mark.parametrize(
    ("said", "gold", "pays"),
    [
        ("Paris", "paris", True),
        ("the city of Paris", "Paris", True),
        ("Obama", "Barack Obama", True),
        ("Barack Hussein Obama", "Hussein Obama", False),  # unless the documents have it so
        ("it was Paris", "Paris", True),
        ("not Paris", "Paris", False),
        ("never in Paris", "Paris", False),
        ("Rome Paris", "Paris", False),
        ("Rome New York City Oslo", "New York City", False),
        ("Paris or Rome", "Paris", False),
        ("between 8th and", "between 8th and 10th century", False),
        ("11 November", "11 November 1918", False),
        ("November 1918", "in November 1918", True),
        ("Romeo and", "Romeo and Juliet", False),
        ("unknown", "no", False),  # `no` is inside it, letter by letter
        ("no one", "no", False),  # and as a word
        ("eyes", "yes", False),
        ("yes", "Yes.", True),
        ("42", "1942", False),
        ("19", "in 19 days", False),  # under three characters
        ("US", "US", True),
        ("cat", "category", False),  # inside a longer word
        ("concatenation", "cat", False),
        ("and", "Romeo and Juliet", False),  # a third of the gold's words
        ("Paris London Rome Berlin", "Paris", False),  # four options
        ("A. Paris B. London C. Rome D. Berlin", "Paris", False),
        ("Paris " * 20, "Paris", False),
    ],
)
def test_the_guarded_substring_pays_what_it_should(said: str, gold: str, pays: bool) -> None:
    assert verdict.substring(said, [gold]) is pays


@given(
    st.lists(st.sampled_from(["Paris", "New York", "King's Lynn", "1986", "yes", "no", "Rio"]), min_size=2, unique=True),
    st.data(),
)
def test_no_list_of_options_contains_the_answer(options: list[str], data: st.DataObject) -> None:
    gold = data.draw(st.sampled_from(options))
    separator = data.draw(st.sampled_from([" ", ", ", " or ", " and ", "\n"]))
    assert not verdict.substring(separator.join(options), [gold])


def test_words_in_addition_count_where_the_documents_have_them_so() -> None:
    known = verdict.clauses("In 2007, President Jacques Chirac left office (he was not Paris). Tika, Posi, Putu.")
    assert verdict.substring("President Jacques Chirac", ["Jacques Chirac"], known=known)
    assert not verdict.names_more("President Jacques Chirac", "Jacques Chirac", known=known)
    assert not verdict.substring("President Jacques Chirac", ["Jacques Chirac"], extra=0, known=known)
    for said, gold in [
        ("not Paris", "Paris"),
        ("Tika Posi", "Posi"),
        ("Chirac left", "Chirac of Paris"),
        ("Chirac Putu", "Chirac"),
    ]:
        assert not verdict.substring(said, [gold], known=known)


@given(TEXTS, TEXTS)
def test_the_guards_only_ever_refuse(said: str, gold: str) -> None:
    if verdict.substring(said, [gold]):
        assert verdict.substring_published(said, [gold])


@given(TEXTS, TEXTS)
def test_an_exact_match_scores_in_every_way(said: str, gold: str) -> None:
    if verdict.exact_match(said, [gold]):
        assert verdict.substring(said, [gold])
        assert verdict.f1(said, [gold]) == 1


@given(TEXTS, TEXTS)
def test_the_published_substring_is_the_released_rule(said: str, gold: str) -> None:
    assert verdict.substring_published(said, [gold]) == (squad(gold) in squad(said) or squad(said) in squad(gold))


def test_the_published_substring_pays_what_the_guards_are_for() -> None:
    for said, gold in [("the", "Paris"), ("unknown", "no"), ("Paris London Rome Berlin", "Paris"), ("and", "Romeo and Juliet")]:
        assert verdict.substring_published(said, [gold])
        assert not verdict.substring(said, [gold])
