"""Kind `dataset`: files in published formats, their defects, and the rows that come of them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from interplay.core.artifact import checksum, write_json
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import foreign, sets
from interplay.data.foreign import FORMATS
from interplay.data.spec import SPLITS, DatasetSpec, Defects
from interplay.tasks import qa
from interplay.tasks.families import judge_family, multihop_item
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row

FIXTURES = ROOT / "data" / "fixtures"
SAMPLES = ROOT.parent / "shared" / "data"
SKIP_ALL = Defects(broken="skip", missing_field="skip", unanswerable="skip", duplicate_id="skip")


def fixture(name: str) -> Path:
    return next(FIXTURES.glob(f"{name}.json*"))


def made(path: Path, out: Path, **spec: Any) -> tuple[dict[str, Any], list[Row]]:
    """Metrics and rows of a stage."""
    metrics = foreign.read_dataset(DatasetSpec(sha256=checksum(path), **spec), {}, out, Run(path=str(path)))
    write_json(out / "stage.json", {"digest": "d" * 12})
    return metrics, sets.read_rows(out, 0)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "given.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path: Path, out: Path, **spec: Any) -> str:
    """The one line with which a file is refused; nothing may be left of it."""
    with pytest.raises(UserError) as caught:
        made(path, out, **spec)
    assert not list(out.glob("*.parquet"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("hotpotqa", {2: 6}),
        ("2wikimultihopqa", {2: 4, 4: 1}),
        ("musique", {2: 3, 3: 1, 4: 1}),
        ("gsm8k", {2: 5, 3: 1}),
        ("jsonl", {1: 4, 2: 1}),
        ("math", {1: 1, 3: 1, 5: 1}),
        ("longbench", {1: 2}),
        ("programs", {2: 3, 5: 2}),
    ],
)
def test_each_format_loads_and_its_gold_solutions_are_strictly_right(name: str, ops: dict[int, int], tmp_path: Path) -> None:
    metrics, rows = made(fixture(name), tmp_path, format=name, band="own")
    assert metrics == {
        "read": len(rows) + sum(metrics["skipped"].values()), "kept": len(rows), "skipped": metrics["skipped"], "size": len(rows), "ops": {str(op): n for op, n in ops.items()},
    }  # fmt: skip
    assert Counter(row.op for row in rows) == ops
    for number, row in enumerate(rows):
        assert (row.index, row.band, row.family, row.origin) == (number, "own", FORMATS[name].family, f"{'d' * 12}:{number}")
        assert row.mode == ("open" if row.family in ("qa", "programs") else "plain")
        verdict = judge_family(row.family).verify(judge_family(row.family).loads(row.graph), row.solution, Verify())
        assert verdict.strict, row.solution
        assert (
            not judge_family(row.family)
            .verify(judge_family(row.family).loads(row.graph), "\\boxed{something else}", Verify())
            .answer
        )


def test_a_hotpotqa_row_holds_the_items_documents_question_and_facts(tmp_path: Path) -> None:
    _, rows = made(fixture("hotpotqa"), tmp_path, format="hotpotqa")
    row = next(row for row in rows if row.answer == "Harrow Bay")
    found = multihop_item(row)
    assert found is not None
    assert (found.id, found.type, found.hops, found.answers) == ("fixh0002", "bridge", 2, ("Harrow Bay",))
    assert [paragraph.title for paragraph in found.paragraphs] == ["Tessa Quill", "Port Lume", "Olm Bridge", "Glass Meadow"]
    facts = [found.paragraphs[paragraph].sentences[sentence].strip() for paragraph, sentence in found.supporting]
    assert facts == ["It was designed by Tessa Quill in 1871.", "Tessa Quill was an engineer born in Harrow Bay."]
    assert "Port Lume is a city on the southern coast of Ostland." in row.prompt
    assert row.prompt.index("Glass Meadow is a 1951 film") < row.prompt.index(found.question)


def test_2wikis_reasoning_is_its_evidences(tmp_path: Path) -> None:
    _, rows = made(fixture("2wikimultihopqa"), tmp_path, format="2wikimultihopqa")
    steps = {found.id: found.steps for found in map(multihop_item, rows) if found}
    assert steps["fixw0001"] == ("Olm Bridge, designer: Tessa Quill.", "Tessa Quill, place of birth: Harrow Bay.")
    assert len(steps["fixw0004"]) == 4


def test_musiques_reasoning_is_its_single_hop_questions_with_earlier_answers_filled_in(tmp_path: Path) -> None:
    _, rows = made(fixture("musique"), tmp_path, format="musique")
    found = next(found for found in map(multihop_item, rows) if found and found.id == "3hop1__fix_3")
    assert found.steps == (
        "Olm Bridge, designer: Tessa Quill.", "Tessa Quill, place of birth: Harrow Bay.", "When was the lighthouse of Harrow Bay lit? 1880.",
    )  # fmt: skip
    assert found.answers == ("1880", "in 1880")
    assert [found.paragraphs[paragraph].title for paragraph, _ in found.supporting] == ["Olm Bridge", "Tessa Quill", "Harrow Bay"]


def test_gsm8ks_marks_and_final_line_become_a_box(tmp_path: Path) -> None:
    _, rows = made(fixture("gsm8k"), tmp_path, format="gsm8k")
    row = next(row for row in rows if row.answer == "1200")
    assert row.solution == "The joiner buys 250*6=1500 nails.\nThere are 1500-300=1,200 nails left.\nThe answer is \\boxed{1200}."
    assert qa.loads(row.graph).id == "line 2"
    assert {row.answer for row in rows} == {"48", "1200", "14", "28", "-7", "12"}


def test_maths_answer_is_in_the_last_box_of_its_solution_and_aimes_is_its_own(tmp_path: Path) -> None:
    _, rows = made(fixture("math"), tmp_path, format="math")
    assert {row.op: row.answer for row in rows} == {5: "\\frac{3}{4}", 3: "[2,5)", 1: "204"}
    assert {qa.loads(row.graph).id for row in rows} == {"2031-I-1", "test/fixture/7.json", "line 1"}


def test_a_part_of_longbench_is_one_document_and_those_with_other_scores_are_left_out(tmp_path: Path) -> None:
    metrics, rows = made(fixture("longbench"), tmp_path, format="longbench")
    assert metrics["skipped"] == {"unanswerable": 1}
    found = next(found for found in map(multihop_item, rows) if found and found.type == "hotpotqa")
    assert found.answers == ("Harrow Bay", "the town of Harrow Bay")
    assert [len(found.paragraphs), found.id] == [1, "fixlb1"]


REFUSALS = [
    ("hotpotqa", "broken", "item 2: not JSON (Expecting ':' delimiter, line 3, column 110)"),
    ("hotpotqa", "missing_field", "item 3 (id 'fixh0103'): answer is missing"),
    ("hotpotqa", "unanswerable", "item 4 (id 'fixh0104'): supporting fact ['Lark Street', 7] is not in the context"),
    ("hotpotqa", "duplicate_id", "item 5 (id 'fixh0001'): item 1 has the same id"),
    ("2wikimultihopqa", "broken", "item 2: not JSON (Expecting value, line 3, column"),
    ("2wikimultihopqa", "missing_field", "item 3 (id 'fixw0103'): context is missing"),
    ("2wikimultihopqa", "unanswerable", "item 4 (id 'fixw0104'): supporting fact ['Ruben Asch', 1] is not in the context"),
    ("2wikimultihopqa", "duplicate_id", "item 5 (id 'fixw0001'): item 1 has the same id"),
    ("musique", "broken", "line 2: not JSON ("),
    ("musique", "missing_field", "line 3 (id '2hop__fix_103'): question is empty"),
    ("musique", "unanswerable", "line 4 (id '3hop1__fix_104'): it is declared not answerable"),
    ("musique", "duplicate_id", "line 5 (id '2hop__fix_1'): line 1 has the same id"),
    ("gsm8k", "broken", "line 2: not JSON (Invalid control character at, column 42)"),
    ("gsm8k", "missing_field", "line 3: answer has no final line '#### <number>'"),
    ("gsm8k", "duplicate_id", "): line 1 has the same id"),
    ("jsonl", "broken", "line 2: is a list and should be an object"),
    ("jsonl", "missing_field", "line 3 (id 'j6'): answer is missing"),
    ("jsonl", "duplicate_id", "line 4 (id 'j1'): line 1 has the same id"),
    ("programs", "duplicate_id", "line 2 (id 'd1'): line 1 has the same id"),
    ("programs", "missing_field", "line 3 (id 'd2'): tests is missing"),
    ("programs", "broken", "line 4 (id 'd3'): tests: 'assert add(1, 2)' is no `assert EXPRESSION == VALUE`"),
]


@pytest.mark.parametrize(("name", "reason", "expected"), REFUSALS)
def test_each_defect_is_refused_in_one_line_that_names_file_place_id_and_remedy(
    name: str, reason: str, expected: str, tmp_path: Path
) -> None:
    path = fixture(f"{name}_defects")
    message = refused(path, tmp_path, format=name, defects=SKIP_ALL.model_copy(update={reason: "refuse"}))
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert f"declare defects: {{{reason}: skip}}" in message


@pytest.mark.parametrize("name", sorted({name for name, *_ in REFUSALS}))
def test_each_defect_is_skipped_where_declared_and_counted(name: str, tmp_path: Path) -> None:
    metrics, rows = made(fixture(f"{name}_defects"), tmp_path, format=name, defects=SKIP_ALL)
    reasons = sorted(reason for format_name, reason, _ in REFUSALS if format_name == name)
    assert metrics["skipped"] == dict.fromkeys(reasons, 1)
    assert (metrics["read"], metrics["kept"], len(rows)) == (2 + len(reasons), 2, 2)


def test_by_default_only_the_unanswerable_are_skipped() -> None:
    assert Defects() == Defects(broken="refuse", missing_field="refuse", unanswerable="skip", duplicate_id="refuse")


def test_an_unanswerable_twin_does_not_take_its_answerable_ones_id(tmp_path: Path) -> None:
    first = json.loads(fixture("musique").read_text().splitlines()[0])
    text = "".join(json.dumps({**first, "answerable": answerable}) + "\n" for answerable in (False, True))
    metrics, _ = made(written(tmp_path, text), tmp_path / "out", format="musique")
    assert (metrics["kept"], metrics["skipped"]) == (1, {"unanswerable": 1})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"question": "  ?! "}, "question is '?!': without articles and punctuation, as scorers compare, nothing is left"),
        ({"answer": "A"}, "answer is 'A': without articles"),
        ({"answer": "  "}, "answer is empty"),
        ({"question": None}, "question is missing"),
        ({"question": 3.5, "answer": ["a"]}, "answer is a list and should be text"),
        ({"context": "text"}, "context is text and should be a list"),
        ({"context": [["title", "text"]]}, "context should hold [title, [sentence, ...]] pairs"),
        ({"context": []}, "context is empty"),
        ({"supporting_facts": [["Olm Bridge"]]}, "supporting_facts should hold [title, sentence number] pairs"),
        ({"supporting_facts": [["Olm Bridge", -1]]}, "supporting_facts should hold"),
        ({"supporting_facts": [["Olm Bridge", 99]]}, "supporting fact ['Olm Bridge', 99] is not in the context"),
        ({"supporting_facts": []}, "supporting_facts is empty"),
        ({"answer": "\ud800"}, "half of a character"),
        ({"evidences": 3}, "evidences is a number and should be a list"),
        ({"evidences": [["one", "two"]]}, "evidences should hold [subject, relation, object] triples"),
    ],
)
def test_an_item_that_is_not_of_the_format_is_refused(change: dict[str, Any], expected: str, tmp_path: Path) -> None:
    first = json.loads(fixture("2wikimultihopqa").read_text())[0]
    path = written(tmp_path, json.dumps([{**first, **change}]))
    refuse_all = Defects(unanswerable="refuse")
    assert expected in refused(path, tmp_path / "out", format="2wikimultihopqa", defects=refuse_all)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1, column 1: should be a JSON list that starts with '['"),
        ('{"data": []}', "line 1, column 1: should be a JSON list that starts with '['"),
        ('[\n{"question": "never', "item 1: not JSON (Unterminated string starting at, line 2, column 14); it is not closed"),
        ('[{"a": 1}\n{"a": 2}]', "line 2, column 1: after item 1 should be ',' or ']'"),
        ('[{"a": 1}', "line 1, column 10: after item 1 should be ',' or ']'"),
        ('[] []', "text after the end of the list"),
        ("[]", "the file has 0 items in all"),
        ("[" + "[" * 100_000 + "]" * 100_000 + "]", "item 1"),
        (b"[\xff]", "not text in UTF-8 (byte 1)"),
        ('[1, 2]', "item 1: is a number and should be an object"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_list_is_refused_with_line_and_column(text: str | bytes, expected: str, tmp_path: Path) -> None:
    defects = SKIP_ALL.model_copy(update={"broken": "refuse"})
    assert expected in refused(written(tmp_path, text), tmp_path / "out", format="hotpotqa", defects=defects)


@pytest.mark.parametrize("line", [b"\xff\xfe", b"[" * 100_000, b"null", b'"text"', b'{"question": "a"', b"1" * 10_000])
def test_a_broken_line_leaves_the_others_readable(line: bytes, tmp_path: Path) -> None:
    good = fixture("gsm8k").read_bytes()
    path = written(tmp_path, b"\xef\xbb\xbf" + good + b"\n" + line + b"\n\n" + b'{"question": "One more?", "answer": "#### 1"}')
    metrics, _ = made(path, tmp_path / "out", format="gsm8k", defects=SKIP_ALL)
    assert (metrics["kept"], metrics["skipped"]) == (7, {"broken": 1})


def test_splits_share_no_question_and_hold_all(tmp_path: Path) -> None:
    lines = [json.dumps({"question": f"What is {n}?", "answer": n}) for n in range(300)]
    lines += [json.dumps({"question": f"what  is {n}.", "answer": n}) for n in range(300)]  # the same questions, spelt otherwise
    path = written(tmp_path, "\n".join(lines))
    keys = {}
    for split, own in SPLITS.items():
        _, rows = made(path, tmp_path / split, format="jsonl", split=split)
        keys[split] = {row.key for row in rows}
        assert {int(row.key, 16) % 100 in own for row in rows} == {True}
        assert all(len(row.key) == 16 for row in rows)
        assert len(rows) == 2 * len(keys[split])
    assert len(set().union(*keys.values())) == sum(map(len, keys.values())) == 300


def test_questions_that_differ_in_a_sign_have_keys_of_their_own_and_spellings_of_one_do_not(tmp_path: Path) -> None:
    apart = ["12 + 3", "12 - 3", "12 * 3", "12 / 3", "1.2 + 3", "(1,2)", "12", "5!", "5", "2^3", "23"]
    spellings = ['Who\'s "Ann", really?', "who's Ann really?", " Whos  ann really. "]
    lines = [*(f"What is {one}?" for one in apart), *spellings, "It costs 1,200.", "It costs 1200"]
    path = written(tmp_path, "\n".join(json.dumps({"question": line, "answer": 1, "id": line}) for line in lines))
    keys = {qa.loads(row.graph).question: row.key for row in made(path, tmp_path / "out", format="jsonl")[1]}
    assert len({keys[f"What is {one}?"] for one in apart}) == len(apart)
    assert len({keys[line.strip()] for line in spellings}) == 1
    assert keys["It costs 1,200."] == keys["It costs 1200"]
    assert len(set(keys.values())) == len(apart) + 2


@pytest.mark.parametrize("answer", ["A", "+"])
def test_a_plain_answer_that_the_judge_takes_is_kept_whatever_it_is_made_of(answer: str, tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"question": "Which?", "answer": answer}))
    (row,) = made(path, tmp_path / "out", format="jsonl")[1]
    assert judge_family(row.family).verify(judge_family(row.family).loads(row.graph), f"\\boxed{{{answer}}}", Verify()).strict


@pytest.mark.parametrize("answer", ["An", "the A"])
def test_words_of_which_the_judge_compares_nothing_are_no_answer(answer: str, tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"question": "Which?", "answer": answer}))
    assert f"answer is '{answer}': without articles" in refused(path, tmp_path / "out", format="jsonl")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"answer_aliases": 5}, "answer_aliases is a number and should be a list of texts"),
        ({"answer_aliases": "one"}, "answer_aliases is text and should be a list of texts"),
        ({"idx": [1]}, "idx is a list and should be a number"),
        ({"paragraph_support_idx": [1]}, "paragraph_support_idx is a list and should be a number"),
    ],
)
def test_a_musique_item_with_a_field_of_another_kind_is_refused(change: dict[str, Any], expected: str, tmp_path: Path) -> None:
    first = json.loads(fixture("musique").read_text().splitlines()[0])
    for key, value in change.items():
        inner = {"idx": "paragraphs", "paragraph_support_idx": "question_decomposition"}.get(key)
        (first[inner][0] if inner else first)[key] = value
    assert expected in refused(written(tmp_path, json.dumps(first)), tmp_path / "out", format="musique")


def test_size_and_seed_choose_and_order_and_the_same_spec_gives_the_same_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, "\n".join(json.dumps({"question": f"What is {n}?", "answer": n}) for n in range(100)))

    def answers(name: str, **spec: Any) -> list[str]:
        return [row.answer for row in made(path, tmp_path / name, format="jsonl", **spec)[1]]

    everything = answers("all")
    assert sorted(map(int, everything)) == list(range(100))
    assert answers("ten", size=10) == everything[:10]
    assert answers("other", seed=1) != everything
    assert sorted(answers("other", seed=1)) == sorted(everything)
    answers("again")
    assert (tmp_path / "all/problems.parquet").read_bytes() == (tmp_path / "again/problems.parquet").read_bytes()


def test_more_items_than_the_file_has_are_refused(tmp_path: Path) -> None:
    message = refused(fixture("gsm8k"), tmp_path, format="gsm8k", size=7)
    assert "size = 7: the file has 6 items in all" in message


def test_a_missing_file_is_asked_for_by_checksum_and_place(tmp_path: Path) -> None:
    spec = DatasetSpec(format="gsm8k", sha256="e" * 64)
    with pytest.raises(UserError, match=f"nowhere.jsonl: no such file; put the gsm8k file with sha256 {'e' * 64} there"):
        foreign.read_dataset(spec, {}, tmp_path / "out", Run(path=str(tmp_path / "nowhere.jsonl")))
    with pytest.raises(UserError, match=f"the gsm8k file with sha256 {'e' * 64} has no path"):
        foreign.read_dataset(spec, {}, tmp_path / "out", Run())


def test_a_file_that_changed_since_the_plan_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, fixture("gsm8k").read_bytes())
    spec = DatasetSpec(format="gsm8k", sha256=checksum(path))
    path.write_text(path.read_text().replace("48", "49"))
    with pytest.raises(UserError, match=f"has sha256 {checksum(path)}; put the gsm8k file with sha256 {spec.sha256} there"):
        foreign.read_dataset(spec, {}, tmp_path / "out", Run(path=str(path)))
    assert not (tmp_path / "out").exists()


REAL = [
    ("hotpotqa", "hotpotqa_sample.json", {2: 300}),
    ("2wikimultihopqa", "2wikimultihopqa_sample.json", {2: 248, 3: 2, 4: 50}),
    ("musique", "musique_sample.jsonl", {2: 170, 3: 99, 4: 31}),
    ("gsm8k", "gsm8k_train_sample.jsonl", {2: 228, 3: 223, 4: 182, 5: 90, 6: 41, 7: 30, 8: 6}),
]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no sample of the published data sets beside the project")
@pytest.mark.parametrize(("name", "file", "ops"), REAL)
def test_the_real_files_load_whole_and_every_gold_answer_is_right(
    name: str, file: str, ops: dict[int, int], tmp_path: Path
) -> None:
    refuse_all = Defects(unanswerable="refuse")
    metrics, rows = made(SAMPLES / file, tmp_path, format=name, defects=refuse_all)
    assert (metrics["kept"], metrics["skipped"]) == (sum(ops.values()), {})
    assert Counter(row.op for row in rows) == ops
    for row in rows:
        verdict = judge_family(row.family).verify(judge_family(row.family).loads(row.graph), row.solution, Verify())
        assert verdict.answer, row.solution


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no sample of the published data sets beside the project")
@pytest.mark.parametrize(("name", "file"), [pair[:2] for pair in REAL[:3]])
def test_every_supporting_fact_of_the_real_files_is_found(name: str, file: str, tmp_path: Path) -> None:
    text = (SAMPLES / file).read_text()
    raws = [json.loads(line) for line in text.splitlines()] if name == "musique" else json.loads(text)
    by_id = {raw.get("_id", raw.get("id")): raw for raw in raws}
    _, rows = made(SAMPLES / file, tmp_path, format=name)
    for found in map(multihop_item, rows):
        assert found is not None
        raw = by_id[found.id]
        ours = {(found.paragraphs[p].title, found.paragraphs[p].sentences[s]) for p, s in found.supporting}
        if name == "musique":
            theirs = {(part["title"], part["paragraph_text"]) for part in raw["paragraphs"] if part["is_supporting"]}
        else:
            context = dict(reversed([(title, sentences) for title, sentences in raw["context"]]))
            theirs = {(title, context[title][number]) for title, number in raw["supporting_facts"]}
        assert ours == theirs


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no sample of the published data sets beside the project")
def test_no_text_of_the_samples_is_in_the_fixtures() -> None:
    ours = "".join(path.read_text() for path in FIXTURES.glob("*.json*"))
    questions = [json.loads(line)["question"] for line in (SAMPLES / "musique_sample.jsonl").read_text().splitlines()]
    questions += [raw["question"] for raw in json.loads((SAMPLES / "hotpotqa_sample.json").read_text())]
    assert not [question for question in questions if question in ours]
