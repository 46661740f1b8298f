"""KeyChain's invariants, over random settings and items."""

import json
import re
from pathlib import Path

import pytest
from conftest import examples
from hypothesis import given, strategies as st
from multihop_cases import inputs, item, row_of, rows
from pydantic import ValidationError

from interplay.data.curate import StepInputs
from interplay.data.steps.chain import make_contexts
from interplay.data.steps.context_spec import Keychain, LongContext, Needle
from interplay.tasks import multihop
from interplay.tasks.multihop import Problem, document_texts, sentence_ends
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row, normalise

ROWS = rows(110)
PAIR = re.compile(r' \{"(?:[^"\\]|\\.)*": "(?:[^"\\]|\\.)*"\}\.')
PLACEMENTS = ["uniform", "gaussian", "start", "end", "spread"]
specs = st.builds(
    Keychain,
    style=st.sampled_from(["published", "terse"]),
    placement=st.sampled_from(PLACEMENTS),
    context_tokens=st.integers(2000, 2400),
    n_chains=st.integers(2, 4),
    n_hops=st.integers(1, 4),
    key_format=st.sampled_from(["uuid4", "hex8", "short"]),
    distractor_answerable=st.booleans(),
    head=st.booleans(),
)


@pytest.fixture(scope="module")
def given_inputs(tmp_path_factory: pytest.TempPathFactory) -> StepInputs:
    return inputs(tmp_path_factory.mktemp("tokenizer"))


def pairs(text: str) -> list[tuple[str, str]]:
    """The pairs of a prompt, read without the gold."""
    return [pair for found in PAIR.findall(text) for pair in json.loads(found.strip().removesuffix(".")).items()]


def made(spec: Keychain, given: StepInputs, some: list[Row]) -> list[tuple[Row, Problem]]:
    """The chained rows and their gold, of a step that is given all rows; those of `some` alone."""
    wanted = {row.origin for row in some}
    done = make_contexts(spec, ROWS, given).rows
    return [(row, multihop.loads(row.graph)) for row in done if row.origin in wanted]


@examples(6)
@given(spec=specs, seed=st.integers(0, 10**6))
def test_exactly_one_chain_of_unique_keys_reaches_the_question_which_occurs_nowhere_else(
    spec: Keychain, seed: int, given_inputs: StepInputs
) -> None:
    """In documents that are whole without the chains, and in prompts of the length that was asked for."""
    step = StepInputs(0, given_inputs.folders, seed)
    done = made(spec, step, ROWS[:5])
    assert len(done) == 5
    _one_chain_reaches_the_question(spec, done)
    _pairs_stand_at_ends_of_sentences(spec, done)
    for row, _ in done:
        assert abs(step.count_tokens(row.prompt) - spec.context_tokens) <= 0.02 * spec.context_tokens


def _one_chain_reaches_the_question(spec: Keychain, done: list[tuple[Row, Problem]]) -> None:
    """Of unique keys; the question occurs nowhere else."""
    for row, problem in done:
        found = pairs(row.prompt)
        follow = dict(found)
        assert len(follow) == len(found) == spec.chain_count * spec.n_hops
        question = problem.item.question
        assert row.prompt.count(question) == 1
        assert list(follow.values()).count(question) == 1
        heads = set(follow) - set(follow.values())
        assert len(heads) == spec.chain_count
        ends = {}
        for head in heads:
            key, length = head, 0
            while key in follow:
                key, length = follow[key], length + 1
            assert length == spec.n_hops
            ends[head] = key
        assert len(set(ends.values())) == spec.chain_count
        assert ends[problem.keys[0]] == question
        documents = " ".join(f"{document.title} {document.text}" for document in problem.documents)
        assert not any(key in documents for key in follow)
        asking = row.prompt[row.prompt.rindex('"}.') :]
        assert (problem.keys[0] in asking) == spec.head
        assert row.prompt.count(problem.keys[0]) == 1 + spec.head
        assert multihop.verify(problem, row.solution, Verify()).strict


def _pairs_stand_at_ends_of_sentences(spec: Keychain, done: list[tuple[Row, Problem]]) -> None:
    """Without them the documents are whole."""
    for row, problem in done:
        places = [(spot.document, spot.offset) for spot in problem.spots]
        assert len(set(places)) == len(places)
        assert all(offset in sentence_ends(problem.documents[number]) for number, offset in places)
        bare = PAIR.sub("", row.prompt)
        shown = "".join(document_texts(problem._replace(chains=(), spots=()), spec.style))
        assert bare.startswith(shown)
        assert all(document.text in bare for document in problem.documents)
        own = tuple(problem.documents[place] for place in problem.own)
        assert own == problem.item.paragraphs
        titles = [document.title for document in problem.documents]
        assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("tokens", [150, 333, 700])
@pytest.mark.parametrize("style", ["published", "terse"])
def test_so_are_plain_contexts_and_needles(tokens: int, style: str, given_inputs: StepInputs) -> None:
    filled = make_contexts(LongContext(style=style, context_tokens=tokens), ROWS, given_inputs)
    strewn = make_contexts(Needle(style=style, context_tokens=2 * tokens, key_format="short", n_needles=4), ROWS, given_inputs)
    for done, asked in ((filled, tokens), (strewn, 2 * tokens)):
        assert all(abs(given_inputs.count_tokens(row.prompt) - asked) <= 0.02 * asked for row in done.rows)
        assert len(done.rows) + sum(n for reason, n in done.counts.items() if reason.startswith("dropped")) == len(ROWS)
    assert style == "published" or len(strewn.rows) == len(filled.rows) == len(ROWS)


def test_a_needle_is_the_value_of_the_key_that_is_asked_for(given_inputs: StepInputs) -> None:
    for row in make_contexts(Needle(style="terse", context_tokens=400), ROWS[:50], given_inputs).rows[:10]:
        asked = row.prompt.rpartition("Value of ")[2].removesuffix("?\n")
        assert dict(pairs(row.prompt))[asked] == row.answer
        assert multihop.verify(multihop.loads(row.graph), row.solution, Verify()).strict


@pytest.mark.parametrize(
    ("asks", "says"), [("multi_value", "All values of "), ("multi_query", "Value of "), ("variables", "Variables of ")]
)
@pytest.mark.parametrize("style", ["terse", "published"])
def test_a_list_is_all_that_is_asked_for_in_any_order(asks: str, says: str, style: str, given_inputs: StepInputs) -> None:
    spec = Needle(style=style, context_tokens=900, asks=asks, n_asked=3, n_needles=3, key_format="short")
    for row in make_contexts(spec, ROWS[:30], given_inputs).rows[:8]:
        problem, found = multihop.loads(row.graph), pairs(row.prompt)
        assert row.mode == asks
        if style == "terse":
            heads = row.prompt.rpartition(says)[2].removesuffix("?\n").split(", ")
            listed = [value for key, value in found if key in heads]
            if asks == "variables":
                listed, reached = [], heads[0]
                while reached := next((key for key, value in found if value == reached), ""):
                    listed.append(reached)
            assert sorted(listed) == sorted(row.answer.split(", "))
        assert len(set(row.answer.split(", "))) == 3
        assert multihop.verify(problem, row.solution, Verify()).strict
        turned, short = ", ".join(reversed(row.answer.split(", "))), ", ".join(row.answer.split(", ")[:2])
        assert multihop.verify(problem, f"\\boxed{{{turned}}}", Verify()).strict
        part = multihop.verify(problem, f"\\boxed{{{short}}}", Verify())
        assert (part.answer, part.score) == (False, pytest.approx(0.8)), "two of three: F1 of precision 1 and recall 2/3"
        other = next(key for chain in problem.chains for key in chain.keys if key not in problem.keys)
        assert not multihop.verify(problem, f"{other}: \\boxed{{{row.answer}}}", Verify()).strict


def test_a_needle_stands_at_the_depth_that_is_asked_for(given_inputs: StepInputs) -> None:
    spec = Needle(style="terse", context_tokens=500, n_needles=3, key_format="short", depths=[0, 50, 100])
    rows = make_contexts(spec, ROWS[:30], given_inputs).rows
    assert [row.op for row in rows] == [0, 50, 100] * 10
    for row in rows:
        asked = row.prompt.rpartition("Value of ")[2].removesuffix("?\n")
        documents = row.prompt.rpartition("Value of ")[0]
        depth = documents.index(f'{{"{asked}"') / len(documents)
        assert abs(depth - row.op / 100) < 0.1, "a sentence and two other needles may stand between"


@pytest.mark.parametrize("answerable", [True, False])
def test_distractor_questions_can_be_answered_exactly_when_asked_for(answerable: bool, given_inputs: StepInputs) -> None:
    spec = Keychain(style="terse", n_chains=5, n_hops=2, context_tokens=400, distractor_answerable=answerable)
    needs = {item(i).question: {p.text for p in item(i).paragraphs} for i in range(len(ROWS))}
    for _, problem in made(spec, given_inputs, ROWS[:20]):
        shown = {document.text for document in problem.documents}
        for number, chain in enumerate(problem.chains):
            assert (needs[chain.question] <= shown) == (answerable or number == problem.true)


def test_the_head_and_its_absence_leave_all_else_as_it_is(given_inputs: StepInputs) -> None:
    spec = Keychain(style="terse", n_chains=4, n_hops=2, context_tokens=400, key_format="short")
    named, silent = (
        make_contexts(spec.model_copy(update={"head": head}), ROWS[:40], given_inputs).rows for head in (True, False)
    )
    for with_head, without in zip(named, silent, strict=True):
        problem = multihop.loads(with_head.graph)
        assert without.prompt == with_head.prompt.replace(f"Key {problem.keys[0]}?", "Key ??")
        assert given_inputs.count_tokens(without.prompt) == given_inputs.count_tokens(with_head.prompt)


def test_a_duplicate_under_another_id_never_distracts(given_inputs: StepInputs) -> None:
    asked = item(0)
    copy = asked._replace(id="another", question=asked.question.upper(), answers=("Oslo",))
    same_id = item(1)._replace(id=asked.id)
    pool = [
        row_of(asked, 0),
        *(row_of(copy, 500 + i) for i in range(30)),
        *(row_of(same_id, 600 + i) for i in range(30)),
        *ROWS[2:30],
    ]
    for answerable in (True, False):
        spec = Keychain(style="terse", n_chains=8, n_hops=1, context_tokens=900, distractor_answerable=answerable)
        for seed in range(5):
            done = make_contexts(spec, pool, StepInputs(0, given_inputs.folders, seed)).rows[0]
            problem = multihop.loads(done.graph)
            questions = [normalise(chain.question) for chain in problem.chains]
            assert problem.item.id == asked.id
            assert len(set(questions)) == 8
            assert questions.count(normalise(asked.question)) == 1
            assert normalise(same_id.question) not in questions


def test_items_without_an_id_distract_each_other(given_inputs: StepInputs) -> None:
    nameless = [row_of(item(number)._replace(id=""), number) for number in range(30)]
    done = make_contexts(Keychain(style="terse", n_chains=4, n_hops=1, context_tokens=600), nameless, given_inputs)
    assert len(done.rows) == 30


def test_no_filler_tells_of_the_items_own_people_in_another_way(given_inputs: StepInputs) -> None:
    pool = [row_of(item(i, shift), 1000 * shift + i) for i in range(60) for shift in range(3)]
    for done in make_contexts(LongContext(style="terse", context_tokens=300), pool, given_inputs).rows[:30]:
        problem = multihop.loads(done.graph)
        fillers = [d for place, d in enumerate(problem.documents) if place not in problem.own]
        own = {document.title for document in problem.item.paragraphs}
        assert fillers
        assert not own & {document.title for document in fillers}


def test_a_row_comes_out_the_same_whatever_stands_before_it(given_inputs: StepInputs) -> None:
    spec = Keychain(style="terse", n_chains=3, n_hops=2, context_tokens=300, prevalence=0.5)
    forward, backward = (
        make_contexts(spec, ROWS[:60], given_inputs).rows,
        make_contexts(spec, ROWS[:60][::-1], given_inputs).rows,
    )
    assert forward == backward[::-1] == make_contexts(spec, ROWS[:60], given_inputs).rows
    other = make_contexts(spec, ROWS[:60], StepInputs(0, given_inputs.folders, 1)).rows
    assert [row.prompt for row in other] != [row.prompt for row in forward]


def test_prevalence_leaves_a_share_of_rows_plain_in_contexts_as_long(given_inputs: StepInputs) -> None:
    spec = Keychain(style="terse", n_chains=3, n_hops=2, context_tokens=300, prevalence=0.4)
    done = make_contexts(spec, ROWS, given_inputs)
    plain = [row for row in done.rows if row.mode == "long"]
    assert done.counts["long"] == len(plain)
    assert 46 <= len(plain) <= 86  # 4 standard deviations around 60 % of 110
    assert all('{"' not in row.prompt and row.prompt.endswith(f"{multihop.loads(row.graph).item.question}\n") for row in plain)
    assert all(row.transforms == ("keychain",) and row.family == "multihop" for row in done.rows)


@pytest.mark.parametrize(
    ("chains", "tokens", "count", "form"),
    [
        ("published_4_per_1024_hex8", 16384, 64, "hex8"),
        ("published_1_per_1024_uuid4", 16384, 16, "uuid4"),
        ("published_4_per_1024_hex8", 4096, 16, "hex8"),
        ("published_1_per_1024_uuid4", 4096, 4, "uuid4"),
    ],
)
def test_the_published_numbers_of_chains_follow_from_the_length(chains: str, tokens: int, count: int, form: str) -> None:
    spec = Keychain(chains=chains, context_tokens=tokens)
    assert (spec.chain_count, spec.keys, spec.n_hops) == (count, form, 4)
    own = Keychain(chains=chains, context_tokens=tokens, n_chains=3, key_format="short")
    assert (own.chain_count, own.keys) == (3, "short")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"n_chains": 64, "context_tokens": 256}, "64 chains of 4 pairs take 1024 tokens or more"),
        ({"n_chains": 1, "distractor_answerable": True}, "needs distractor chains"),
    ],
)
def test_impossible_settings_are_refused_when_planned(keys: dict, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Keychain(**keys)


@pytest.mark.parametrize(
    ("keys", "number", "reason"),
    [
        ({"n_chains": 2, "n_hops": 10, "context_tokens": 300}, 60, "too_few_sentences"),
        ({"n_chains": 6, "n_hops": 1, "context_tokens": 300}, 5, "too_few_questions"),
        ({"n_chains": 2, "n_hops": 1, "context_tokens": 3000}, 8, "too_few_documents"),
        ({"n_chains": 2, "n_hops": 1, "context_tokens": 30, "key_format": "uuid4"}, 20, "context_too_short"),
    ],
)
def test_rows_that_cannot_be_made_are_dropped_and_counted(keys: dict, number: int, reason: str, given_inputs: StepInputs) -> None:
    done = make_contexts(Keychain(style="terse", **({"key_format": "short"} | keys)), ROWS[:number], given_inputs)
    assert not done.rows
    assert done.counts == {f"dropped_{reason}": number}


def test_rows_without_documents_are_dropped_and_counted(tmp_path: Path, given_inputs: StepInputs) -> None:
    other = ROWS[0].__class__(0, 0, "id", 2, "forward", "a", "b", "c", "{}", "0" * 16, "op_dag", "b:0")
    done = make_contexts(LongContext(style="terse", context_tokens=100), [other, *ROWS[:20]], given_inputs)
    assert done.counts["dropped_without_documents"] == 1
    assert len(done.rows) <= 20
