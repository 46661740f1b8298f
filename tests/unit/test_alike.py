"""Which rows are alike: near copies against brute force, copies of every kind planted and found, nothing found where there is
nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import given, strategies as st
from world import problem_set

from interplay.core.artifact import checksum, write_json
from interplay.core.execution import Run
from interplay.core.model import PermanentError
from interplay.data import curate, sets, similarity
from interplay.data.curate import StepInputs
from interplay.data.foreign import read_dataset
from interplay.data.problems import generate_problems
from interplay.data.similarity import NAME, JaccardIndex, shingle_texts
from interplay.data.spec import DatasetSpec, ProblemsSpec
from interplay.data.steps.context_spec import Choice, Cloze, Ladder, Subproblems, TrueFalse
from interplay.data.steps.filter import deduplicate, match_rows
from interplay.data.steps.reformulate import make_subproblems, reformulate_rows
from interplay.data.steps.spec import Contamination, CurateSpec, Deduplicate
from interplay.tasks import multihop, qa
from interplay.tasks.family import Item, Paragraph
from interplay.tasks.multihop import plain_problem
from interplay.tasks.op_dag import dag
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.verdict import Row

SAMPLES = ROOT.parent / "shared" / "data"
TASK = OpDag(modulus=7, letters=20, distractors=(0, 4))
WAYS = ["exact", "ngram", "renamed", "structural"]


def grams(text: list[int], n: int) -> set[tuple[int, ...]]:
    """The n-grams of a text by definition, names as places of their first appearance in each."""
    padded = text + [0] * (n - len(text))
    windows = [padded[i : i + n] for i in range(len(padded) - n + 1)]
    return {tuple(NAME + window.index(token) if token >= NAME else token for token in window) for window in windows}


@given(
    st.lists(st.lists(st.sampled_from([1, 2, 3, NAME + 1, NAME + 2, NAME + 3]), max_size=12), min_size=2, max_size=12),
    st.integers(1, 4),
    st.sampled_from([0.2, 0.5, 0.75, 0.8, 1.0]),
)
def test_near_copies_are_those_that_brute_force_finds(texts: list[list[int]], n: int, threshold: float) -> None:
    near, sets_ = JaccardIndex(shingle_texts(texts, n), threshold), [grams(text, n) for text in texts]
    for number, mine in enumerate(sets_):
        like = [at for at in range(number) if len(mine & sets_[at]) / len(mine | sets_[at]) >= threshold - 1e-9]
        assert near.find(number) == (like[0] if like else None)
        near.add(number)


def test_texts_may_be_cut_into_parts_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [[1 + (a * b) % 5 for b in range(a % 9)] for a in range(60)]
    whole = shingle_texts(texts, 3)
    monkeypatch.setattr(similarity, "CHUNK", 7)
    parts = shingle_texts(texts, 3)
    assert whole.starts.tolist() == parts.starts.tolist()
    assert whole.ranks.tolist() == parts.ranks.tolist()


# -- planted copies ----------------------------------------------------------------------------------------------------


def of_problem(problem: dag.Problem) -> Row:
    return Row(0, 0, "b", problem.op, problem.mode, *OP_DAG.render(problem, TASK), OP_DAG.dumps(problem),
               OP_DAG.structure(problem), "op_dag", "o")  # fmt: skip


def problem(index: int, seed: int = 1) -> dag.Problem:
    return OP_DAG.generate(TASK, seed, index, 8)


def renamed(one: dag.Problem) -> dag.Problem:
    """Other letters, in the same order."""
    return one._replace(nodes=tuple(node._replace(name=chr(ord("a") + (ord(node.name) - 90) % 20)) for node in one.nodes))


def reordered(one: dag.Problem) -> dag.Problem:
    """Other letters, and the definitions in the opposite order: the same structure."""
    return renamed(one)._replace(order=one.order[::-1])


ALICE = Item(
    "q", "Who is the boss of the spouse of Alice Stone?", ("Carol Reed",),
    (
        Paragraph("Alice Stone", ("Alice Stone is married to Bob Hill.", "She was born in 1950.")),
        Paragraph("Bob Hill", ("The boss of Bob Hill is Carol Reed.",)),
    ),
    ((0, 0), (1, 0)), 2, "bridge",
)  # fmt: skip


def of_item(item: Item, key: str = "00") -> Row:
    whole = plain_problem(item)
    rendered = multihop.render(whole, "published")
    return Row(0, 0, "b", 2, "plain", *rendered, multihop.dumps(whole), key, "multihop", "o")


def with_names(item: Item, names: dict[str, str]) -> Item:
    def put(text: str) -> str:
        for old, new in names.items():
            text = text.replace(old, new)
        return text

    paragraphs = tuple(Paragraph(put(p.title), tuple(map(put, p.sentences))) for p in item.paragraphs)
    return item._replace(question=put(item.question), answers=tuple(map(put, item.answers)), paragraphs=paragraphs)


OTHERS = [of_problem(problem(index, seed=2)) for index in range(40)]


@pytest.mark.parametrize(
    ("copy", "ways"),
    [
        (lambda one: one, {"exact", "ngram", "renamed", "structural"}),
        (renamed, {"renamed", "structural"}),
        (reordered, {"structural"}),
    ],
    ids=["duplicate", "renamed copy", "structural copy"],
)
def test_a_planted_copy_of_an_evaluation_problem_is_found_in_each_way_that_it_is_one(copy: object, ways: set[str]) -> None:
    tests = [of_problem(problem(index)) for index in range(30)]
    rows = [*OTHERS, of_problem(copy(problem(17))), *OTHERS]  # type: ignore[operator]
    found = {how: match_rows(Contamination(how=[how]), rows, tests) for how in WAYS}  # type: ignore[list-item]
    assert {how for how, matches in found.items() if matches} == ways
    assert all(matches == {40: (how, 17)} for how, matches in found.items() if matches)


def test_a_question_over_documents_is_known_again_in_another_context_and_with_other_names() -> None:
    extra = Paragraph("Oslo", ("Oslo is the capital of Norway.",))
    moved = ALICE._replace(paragraphs=(*ALICE.paragraphs, extra))
    other = with_names(ALICE, {"Alice Stone": "Mary Ann Lake", "Bob Hill": "Tom", "Carol Reed": "Eve Moss", "1950": "1971"})
    asked = ALICE._replace(question="Where was the spouse of the boss of Dan Ford born, and in which year did he move?")
    for item, ways in ((moved, {"exact", "ngram", "renamed"}), (other, {"renamed"}), (asked, set())):
        row = of_item(item, "11")
        assert {how for how in WAYS if match_rows(Contamination(how=[how]), [row], [of_item(ALICE)])} == ways  # type: ignore[list-item]


def test_a_near_copy_of_a_plain_question_is_found_and_one_with_other_numbers_counts_as_renamed() -> None:
    text = (
        "Anna packs 12 boxes a day and every box holds 30 lamps of glass, so how many lamps does she pack in five days of work?"
    )

    def row(prompt: str) -> Row:
        return replace(OTHERS[0], prompt=prompt, family="taxonomy", key="22")

    near, other = text.replace("of work?", "of labour?"), text.replace("12", "14").replace("Anna", "Berta")
    spec = Contamination(how=["exact", "ngram", "renamed"])
    assert match_rows(spec, [row(near), row(other)], [replace(row(text), key="0")]) == {0: ("ngram", 0), 1: ("renamed", 0)}


def test_variants_of_one_question_are_found_by_their_origin() -> None:
    first, second = replace(OTHERS[0], origin="a:1"), replace(OTHERS[1], origin="a:1")
    assert match_rows(Contamination(how=["origin"]), [second], [first]) == {0: ("origin", 0)}


def of_text(question: str, answer: str, number: int = 0) -> Row:
    problem = qa.Problem(question, (answer,))
    return Row(0, number, "b", 1, "open", *qa.render(problem), qa.dumps(problem), f"{number:02x}", "qa", f"q:{number}")


def anew(rows: list[Row], form: str) -> list[Row]:
    """The rows in a form of the question."""
    steps = {
        "choice": (reformulate_rows, Choice()),
        "cloze": (reformulate_rows, Cloze()),
        "true_false": (reformulate_rows, TrueFalse()),
        "ladder": (reformulate_rows, Ladder(formats=["four_choice", "open"])),
        "subproblems": (make_subproblems, Subproblems()),
    }
    step, spec = steps[form]
    return step(spec, rows, StepInputs(0, {}, 0)).rows  # type: ignore[operator]


@pytest.mark.parametrize("form", ["choice", "cloze", "true_false", "ladder"])
def test_a_question_in_another_form_is_alike_to_what_it_was_alike_to_in_its_own(form: str) -> None:
    words = ["lamps", "doors", "books", "ships", "crates", "stones", "coins", "pens", "chairs", "boxes"]
    asked = "Anna packs 12 {0} a day and every one of them costs 30 francs, so what does she spend on {0} in five days of work?"
    rows = [of_text(asked.format(word), str(1800 + number), number) for number, word in enumerate(words)]
    test = replace(of_text(asked.format("lamps").replace("work", "labour"), "1800"), key="ff")
    for how in ("exact", "ngram", "renamed"):
        spec = Contamination(how=[how])  # type: ignore[list-item]
        plain_problem = {rows[number].origin for number in match_rows(spec, rows, [test])}
        made = anew(rows, form)
        assert {made[number].origin for number in match_rows(spec, made, [test])} == plain_problem
        assert bool(plain_problem) == (how != "exact")
        assert {made[number].origin for number in match_rows(spec, made, anew(rows, "cloze"))} == {row.origin for row in rows}


@pytest.mark.parametrize("form", ["choice", "subproblems", "true_false"])
def test_a_terse_problem_in_another_form_is_known_again(form: str) -> None:
    own = [of_problem(problem(index)) for index in range(12)]
    own = [replace(row, origin=f"o:{number}") for number, row in enumerate(own)]
    made = anew(own, form)
    assert len(made) > 6
    for how in WAYS:
        spec = Contamination(how=[how])  # type: ignore[list-item]
        assert len(match_rows(spec, made, own)) == len(made)
        assert match_rows(spec, made, OTHERS) == {}


def test_different_questions_over_one_document_stay_apart_in_another_form() -> None:
    town = Paragraph("Lume", tuple(f"The mayor of Lume in the year {1900 + n} was Ada{n} Ford." for n in range(20)))
    rows = [
        of_item(Item("", f"Who was the mayor in {1900 + n}?", (f"Ada{n} Ford",), (town,), ((0, n),), 1, "bridge"), f"{n:02x}")
        for n in range(20)
    ]
    made = anew([replace(row, origin=f"m:{number}") for number, row in enumerate(rows)], "choice")
    assert len(made) == 20
    assert deduplicate(Deduplicate(how="ngram"), made, StepInputs(0, {}, 0)).counts == {"alike": 0}


@pytest.mark.parametrize("how", ["exact", "ngram", "renamed"])
def test_the_signs_of_arithmetic_tell_questions_apart(how: str) -> None:
    rows = [of_text(f"What is 12 {sign} 3?", "9", number) for number, sign in enumerate("+-*/^")]
    assert deduplicate(Deduplicate(how=how), rows, StepInputs(0, {}, 0)).counts == {"alike": 0}  # type: ignore[arg-type]


# -- the stage ---------------------------------------------------------------------------------------------------------


def placed(results: Path, digest: str, rows: list[Row]) -> Path:
    out = results / "problems" / digest
    sets.write_table(sets.table_of_rows(rows), out)
    write_json(out / "stage.json", {"kind": "problems", "digest": digest, "deps": {}})
    return out


def curated(tmp_path: Path, step: dict, rows: list[Row], against: list[Row] | None = None) -> tuple[dict, list[Row]]:
    inputs = {"data.0": placed(tmp_path, "a" * 12, rows)}
    if against is not None:
        inputs["against.0.0"] = placed(tmp_path, "b" * 12, against)
    out = tmp_path / "curate" / ("c" * 12)
    record = curate.curate_problems(CurateSpec(mix=[1.0], steps=[step]), inputs, out, Run())  # type: ignore[list-item]
    write_json(out / "stage.json", {"kind": "curate", "digest": "c" * 12, "deps": {}})
    return record, sets.read_rows(out, 0)


def test_a_contaminated_set_is_refused_in_one_line_that_names_both_rows(tmp_path: Path) -> None:
    tests = [of_problem(problem(index)) for index in range(30)]
    rows = [*OTHERS, of_problem(renamed(problem(17))), of_problem(problem(3))]
    with pytest.raises(PermanentError) as refused:
        curated(tmp_path, {"name": "contamination"}, rows, tests)
    said = str(refused.value)
    assert said.count("\n") == 0
    assert "2 rows of 42" in said
    assert "(exact 1, renamed 1)" in said
    assert f"{'a' * 12}:40 matches {'b' * 12}:17 (renamed)" in said or f"{'a' * 12}:41 matches {'b' * 12}:3 (exact)" in said


def test_a_contaminated_set_may_drop_what_is_alike_and_counts_it(tmp_path: Path) -> None:
    tests = [of_problem(problem(index)) for index in range(30)]
    rows = [*OTHERS, of_problem(reordered(problem(17)))]
    record, left = curated(tmp_path, {"name": "contamination", "action": "drop"}, rows, tests)
    assert record["steps"] == [
        {"step": "contamination", "given": 41, "left": 40, "exact": 0, "ngram": 0, "renamed": 0, "structural": 1}
    ]
    assert {row.prompt for row in left} == {row.prompt for row in OTHERS}


@pytest.mark.parametrize("how", WAYS)
def test_of_rows_that_are_alike_the_first_stays(tmp_path: Path, how: str) -> None:
    rows = [*OTHERS, OTHERS[5], OTHERS[9], OTHERS[5]]
    record, left = curated(tmp_path, {"name": "deduplicate", "how": how}, rows)
    assert record["steps"][0]["alike"] == 3
    assert sorted(row.prompt for row in left) == sorted(row.prompt for row in OTHERS)


@pytest.mark.parametrize("digest", ["d" * 12])
def test_two_thousand_problems_of_another_split_are_not_refused(tmp_path: Path, digest: str) -> None:
    spec = {"task": TASK, "bands": {"b": {3: 0.25, 5: 0.25, 8: 0.25, 12: 0.25}}, "shares": {"b": 1.0}}
    folders = []
    for split, size in (("train", 2000), ("test", 300)):
        out = tmp_path / "problems" / split
        generate_problems(ProblemsSpec.model_validate({**spec, "size": size, "split": split}), {}, out, Run())
        write_json(out / "stage.json", {"kind": "problems", "digest": split, "deps": {}})
        folders.append(sets.read_rows(out, 0))
    assert match_rows(Contamination(), *folders) == {}


@pytest.mark.skipif(not (SAMPLES / "hotpotqa_sample.json").exists(), reason="no real sample here")
def test_real_questions_of_one_file_are_hardly_ever_alike(tmp_path: Path) -> None:
    file = SAMPLES / "hotpotqa_sample.json"
    out = tmp_path / "dataset" / digest_of(file)
    read_dataset(DatasetSpec(format="hotpotqa", sha256=checksum(file)), {}, out, Run(path=str(file)))
    write_json(out / "stage.json", {"kind": "dataset", "digest": out.name, "deps": {}})
    rows = sets.read_rows(out, 0)
    half = len(rows) // 2
    assert half > 20
    assert match_rows(Contamination(), rows[:half], rows[half:]) == {}
    assert match_rows(Contamination(), rows, rows[:5]) == {number: ("exact", number) for number in range(5)}


def digest_of(file: Path) -> str:
    return checksum(file)[:12]


def test_the_generators_rows_keep_their_names_in_a_refusal(tmp_path: Path) -> None:
    folder = problem_set(tmp_path, "e" * 12, 20)
    row = sets.read_rows(folder, 0)[7]
    spec = CurateSpec(mix=[1.0], steps=[Contamination(how=["exact"])])
    with pytest.raises(PermanentError, match=f"{'e' * 12}:"):
        curate.curate_problems(
            spec, {"data.0": folder, "against.0.0": placed(tmp_path, "f" * 12, [row])}, tmp_path / "out", Run()
        )
