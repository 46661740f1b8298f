"""Verdicts on multi-hop questions, and what citations are worth, on hand-computed numbers; and that nothing cheap pays."""

import dataclasses
from pathlib import Path

import pytest
from multihop_cases import inputs, item, row_of, rows

from interplay.data.steps.chain import make_contexts
from interplay.data.steps.context_spec import Citation
from interplay.rl import rewards as reward
from interplay.rl.reward_spec import CitationReward
from interplay.tasks import multihop
from interplay.tasks.family import Paragraph
from interplay.tasks.multihop import NO_CHUNK, Chain, Problem, Spot, cited_chunks, f_beta, sentence_ends
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row, Verdict

ITEM = item(0)  # Ada's boss is Bea. Bea's city is Rome.
STEPS = "Ada's boss is Bea. Bea's city is Rome. "
CHAINED = Problem(
    "keychain", ITEM, ITEM.paragraphs, (0, 1), (Chain(("K7", "M2"), ITEM.question), Chain(("B1", "C3"), "Who is it?")), 0,
    (Spot(0, 18, 0, 0), Spot(0, 42, 1, 1), Spot(1, 19, 1, 0), Spot(1, 33, 0, 1)),
)  # fmt: skip


def judged(problem: Problem, completion: str) -> Verdict:
    return multihop.verify(problem, completion, Verify())


@pytest.mark.parametrize(
    ("completion", "error"),
    [
        (f"K7>M2: {STEPS}\\boxed{{Rome}}", "none"),
        (f"First K7, then M2, and K7 again; M2 asks. {STEPS}\\boxed{{the Rome.}}", "none"),
        (f"K7>M2: {STEPS}", "truncated"),
        (f"M2>K7: {STEPS}\\boxed{{Rome}}", "chain"),
        (f"K7: {STEPS}\\boxed{{Rome}}", "chain"),
        (f"K7>M2>B1>C3: {STEPS}\\boxed{{Rome}}", "chain"),
        (f"{STEPS}\\boxed{{Rome}} K7>M2", "chain"),
        ("K7>M2: Ada's boss is Bea. \\boxed{Rome}", "step"),
        ("K7>M2: Ada's boss is Cid. Bea's city is Rome. \\boxed{Rome}", "step"),
        (f"K7>M2: {STEPS} Ada's boss is Cid. \\boxed{{Rome}}", "step"),
        ("K7>M2: Ada's boss is Beatrix. Bea's city is Rome. \\boxed{Rome}", "step"),
        (f"K7>M2: {STEPS}\\boxed{{Oslo}}", "answer"),
        (f"K7>M2: {STEPS}\\boxed{{}}", "answer"),
        (f"K7>M2: {STEPS}\\boxed{{Rome Oslo Lima Cairo Paris}}", "answer"),
    ],
)
def test_a_verdict_names_the_first_thing_that_is_wrong(completion: str, error: str) -> None:
    verdict = judged(CHAINED, completion)
    assert verdict.error == error
    assert verdict.strict == (error == "none")
    assert verdict.answer == (error not in ("truncated", "answer"))


def test_an_answer_in_more_than_four_boxes_is_none() -> None:
    verdict = judged(CHAINED, f"K7>M2: {STEPS}" + "\\boxed{Rome}" * 20)
    assert (verdict.strict, verdict.answer, verdict.score) == (False, False, 0.0)


def test_reasoning_whose_sentences_begin_alike_does_not_contradict_itself() -> None:
    steps = ("What is the boss of Ada? Bea.", "What is the city of Bea: Rome.")
    asked = multihop.plain_problem(ITEM._replace(steps=steps))
    assert judged(asked, f"{steps[0]} {steps[1]} \\boxed{{Rome}}").strict
    assert judged(asked, f"{steps[0]} What is the city of Bea: Oslo. \\boxed{{Rome}}").error == "step"


def test_the_score_of_an_answer_in_words_is_its_f1() -> None:
    assert judged(CHAINED, "\\boxed{Rome}").score == 1
    assert judged(CHAINED, "\\boxed{old Rome}").score == pytest.approx(2 / 3)
    assert judged(CHAINED, "\\boxed{the}").score == 0
    assert judged(CHAINED, "\\boxed{old Rome}").said == "old Rome"


@pytest.mark.parametrize("style", ["published", "terse"])
@pytest.mark.parametrize("mode", ["plain", "long", "keychain", "citation"])
def test_gold_solutions_are_strictly_right_and_problems_survive_writing(mode: str, style: str) -> None:
    problem = CHAINED._replace(mode=mode) if mode == "keychain" else multihop.plain_problem(ITEM)._replace(mode=mode)
    shown = multihop.render(problem, style)
    assert judged(problem, shown.solution).strict
    assert shown.answer == "Rome"
    assert multihop.loads(multihop.dumps(problem)) == problem
    assert (ITEM.question in shown.prompt.rpartition('"}.')[2]) == (mode != "keychain")


@pytest.mark.parametrize(
    ("said", "useful", "worth"),
    [
        ([3, 7], [3, 7], 1.0),
        ([3], [3, 7], 5 * 1 * 0.5 / (4 * 1 + 0.5)),  # P 1, R 1/2: 0.5556
        ([3, 7, 1, 2], [3, 7], 5 * 0.5 * 1 / (4 * 0.5 + 1)),  # P 1/2, R 1: 0.8333
        ([3, 3, 3, 7], [3, 7], 5 * 0.5 * 1 / (4 * 0.5 + 1)),  # the list counts in precision, the set in recall
        (list(range(16)), [3, 7], 5 * 0.125 / (4 * 0.125 + 1)),  # P 2/16, R 1: 0.4167
        ([1, 2], [3, 7], 0.0),
        ([], [3, 7], 0.0),
    ],
)
def test_f_beta_weighs_recall_by_the_set_and_precision_by_the_list(said: list, useful: list, worth: float) -> None:
    assert f_beta(said, useful) == pytest.approx(worth)


def test_f_one_is_the_harmonic_mean() -> None:
    assert f_beta([3, 1], [3, 7, 8], beta=1) == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))


OPEN, CLOSE = "<useful_chunks>", "</useful_chunks>"


@pytest.mark.parametrize(
    ("completion", "found"),
    [
        (f"{OPEN}<chunk_3><chunk_7>{CLOSE} \\boxed{{a}}", [3, 7]),
        (f"{OPEN}3, 7, 7{CLOSE}\\boxed{{a}}", [3, 7, 7]),
        (f"{OPEN}{CLOSE}\\boxed{{a}}", []),
        (f"{OPEN}3, {'1' * 5000}, {'2' * 5000}, 0{'0' * 5000}7{CLOSE}\\boxed{{a}}", [3, NO_CHUNK, NO_CHUNK, 7]),
        (f"{OPEN}3{CLOSE}", None),
        ("3, 7 \\boxed{a}", None),
        (f"{OPEN}3{CLOSE}{OPEN}7{CLOSE}\\boxed{{a}}", None),
        (f"{OPEN}3{CLOSE}\\boxed{{a}}\\boxed{{b}}", None),
        (f"{CLOSE}3{OPEN}\\boxed{{a}}", None),
        (f"\\boxed{{a}}{OPEN}3{CLOSE}", None),
    ],
)
def test_each_tag_must_stand_once_and_in_order(completion: str, found: list[int] | None) -> None:
    assert cited_chunks(completion) == found


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Row:
    """A question over 16 chunks, two of them useful."""
    step = inputs(tmp_path_factory.mktemp("tokenizer"))
    return make_contexts(Citation(style="terse", n_chunks=16), rows(30), step).rows[0]


def paid(spec: CitationReward, tagged: Row, completion: str) -> float:
    verdict = judged(multihop.loads(tagged.graph), completion)
    return reward.citation(spec, [tagged], [completion], [verdict]).sequence[0]


def test_the_published_reward_on_hand_computed_cases(tagged: Row) -> None:
    problem = multihop.loads(tagged.graph)
    one, two = problem.useful
    answer = f"\\boxed{{{problem.item.answers[0]}}}"
    spec, half = CitationReward(), 5 * 0.5 / 4.5
    assert paid(spec, tagged, f"{OPEN}{one} {two}{CLOSE}{answer}") == pytest.approx(1 + 0.1 + 0.9)
    assert paid(spec, tagged, f"{OPEN}{two}{CLOSE}{answer}") == pytest.approx(1 + 0.1 * half + 0.9 * half)
    assert paid(spec, tagged, f"{OPEN}{one} {two}{CLOSE}\\boxed{{nobody}}") == pytest.approx(0.1)
    assert paid(spec, tagged, f"{OPEN}{CLOSE}{answer}") == 1
    assert paid(CitationReward(eta=0), tagged, f"{OPEN}{one} {two}{CLOSE}\\boxed{{nobody}}") == 0
    assert paid(CitationReward(eta=1), tagged, f"{OPEN}{one} {two}{CLOSE}\\boxed{{nobody}}") == 1
    assert paid(CitationReward(beta=1), tagged, f"{OPEN}{two}{CLOSE}{answer}") == pytest.approx(1 + 2 / 3)


def test_citing_all_chunks_pays_the_baseline_and_less_than_citing_the_useful_ones(tagged: Row) -> None:
    problem = multihop.loads(tagged.graph)
    everything = " ".join(map(str, range(16)))
    verdict = judged(problem, f"{OPEN}{everything}{CLOSE}\\boxed{{nobody}}")
    assert verdict.score == multihop.trivial_score(problem) == pytest.approx(5 * 0.125 / 1.5)
    assert not verdict.strict
    assert paid(CitationReward(), tagged, f"{OPEN}{everything}{CLOSE}\\boxed{{nobody}}") == pytest.approx(0.1 * 0.125 * 5 / 1.5)
    assert multihop.trivial_score(multihop.plain_problem(ITEM)) == 0


@pytest.mark.parametrize(
    "template",
    [
        "{open}{ids}{close}",
        "{open}{ids}{close}{answer}{answer}",
        "{open}{ids}{close}{open}{ids}{close}{answer}",
        "{answer}" * 20,
        "{open}{ids}{close}\\boxed{{}}\\boxed{{}}",
    ],
    ids=["no box", "two boxes", "two lists", "answer dumped twenty times", "empty boxes"],
)
def test_broken_formats_earn_nothing(template: str, tagged: Row) -> None:
    problem = multihop.loads(tagged.graph)
    ids, answer = " ".join(map(str, problem.useful)), f"\\boxed{{{problem.item.answers[0]}}}"
    completion = template.format(open=OPEN, close=CLOSE, ids=ids, answer=answer)
    assert paid(CitationReward(), tagged, completion) == 0
    assert not judged(problem, completion).answer


def test_steps_with_the_tags_of_their_chunks_are_right_and_change_nothing_that_is_read(tagged: Row, tmp_path: Path) -> None:
    spec = Citation(style="terse", n_chunks=16, tagged_steps=True)
    made = make_contexts(spec, rows(30), inputs(tmp_path)).rows[0]
    problem = multihop.loads(made.graph)
    first, second = problem.useful
    assert (made.prompt, made.graph) == (tagged.prompt, tagged.graph)
    assert made.solution.startswith(f"{problem.steps[0]}<chunk_{first}> {problem.steps[1]}<chunk_{second}> {OPEN}")
    assert judged(problem, made.solution).strict
    assert judged(problem, made.solution.replace(problem.steps[1], "It is so.")).error == "step"


def test_repeated_ids_cost(tagged: Row) -> None:
    one, two = multihop.loads(tagged.graph).useful
    once, often = (f"{OPEN}{' '.join([str(one), str(two)] * n)}{CLOSE}\\boxed{{x}}" for n in (1, 10))
    assert paid(CitationReward(), tagged, often) < paid(CitationReward(), tagged, once)


def test_a_row_that_asks_for_no_citations_earns_its_answer() -> None:
    plain = dataclasses.replace(row_of(ITEM, 0))
    right, wrong = f"{STEPS}\\boxed{{Rome}}", "\\boxed{Oslo}"
    verdicts = [judged(multihop.plain_problem(ITEM), completion) for completion in (right, wrong)]
    assert reward.citation(CitationReward(), [plain, plain], [right, wrong], verdicts).sequence == [1, 0]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("Mr. Lee met J. R. Smith. He paid 3.14 dollars! Why? Nobody knows.", [24, 46, 51, 65]),
        ("It is. and was. But then?", [15, 25]),
        ("No stop here", []),
    ],
)
def test_sentences_end_at_stops_before_something_that_begins_one(text: str, ends: list[int]) -> None:
    assert sentence_ends(Paragraph("", (text,))) == ends


def test_given_sentences_end_where_the_source_says_if_in_a_stop() -> None:
    document = Paragraph("", ("St. Louis lies there.", "A heading", "It ends 'so.'"))
    assert [document.text[:end] for end in sentence_ends(document)] == ["St. Louis lies there.", document.text]
