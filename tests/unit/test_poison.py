"""Spoiled rows: as many as asked, marked, wrong in just the way that is declared, and judged by an untouched truth."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import interplay
from test_alike import ALICE, OTHERS, TASK, of_item, of_text, placed, with_names

from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.core.model import PermanentError
from interplay.data import curate, sets
from interplay.data.steps import conflict
from interplay.data.steps.spec import CurateSpec
from interplay.tasks import qa
from interplay.tasks.families import judge_family
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row, extract_answer

NAMES = [
    {"Alice Stone": f"Alice{n} Stone{n}", "Bob Hill": f"Bob{n} Hill{n}", "Carol Reed": f"Carol{n} Reed{n}", "1950": f"19{n}0"}
    for n in range(10, 22)
]
TEXTS = [of_item(with_names(ALICE, names), f"{n:02d}") for n, names in enumerate(NAMES)]


def poisoned(tmp_path: Path, rows: list[Row], **step: object) -> tuple[dict, dict[str, Row], dict[str, Row]]:
    """The record's line, and rows by origin before and after."""
    source = placed(tmp_path, "a" * 12, [replace(row, origin="") for row in rows])
    out = tmp_path / "curate" / "x"
    spec = CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": "poison", **step}]})
    record = curate.curate_problems(spec, {"data.0": source}, out, Run())
    write_json(out / "stage.json", {"digest": "x"})
    before = {row.origin: row for row in sets.read_rows(source, 0)}
    return record["steps"][0], before, {row.origin: row for row in sets.read_rows(out, 0)}


def readings(prompt: str, first: bool) -> str:
    """The prompt with one definition of each letter, the first or the last one."""
    body, _, question = prompt.replace(".", "").rpartition("?")
    kept: dict[str, str] = {}
    for text in body.split(","):
        if not first or text[0] not in kept:
            kept[text[0]] = text
    return ",".join(kept.values()) + "?" + question


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["answer", "conflict", "irrelevant"])
@pytest.mark.parametrize("rows", [OTHERS, TEXTS], ids=["op_dag", "documents"])
def test_just_the_share_asked_for_is_spoiled_and_says_so_and_the_gold_stays(
    tmp_path: Path, rows: list[Row], kind: str, ratio: float
) -> None:
    line, before, after = poisoned(tmp_path, rows, kind=kind, ratio=ratio)
    changed = {origin for origin, row in after.items() if row.transforms == (f"poison:{kind}",)}
    assert len(changed) == line["poisoned"] == round(ratio * len(rows))
    for origin, row in after.items():
        column = "solution" if kind == "answer" else "prompt"
        assert (getattr(row, column) != getattr(before[origin], column)) == (origin in changed)
        assert (row.graph, row.answer, row.key) == (before[origin].graph, before[origin].answer, before[origin].key)


@pytest.mark.parametrize("rows", [OTHERS, TEXTS], ids=["op_dag", "documents"])
def test_a_poisoned_answer_is_wrong_and_all_before_it_is_as_it_was(tmp_path: Path, rows: list[Row]) -> None:
    _, before, after = poisoned(tmp_path, rows, kind="answer", ratio=1.0)
    for origin, row in after.items():
        said, module = extract_answer(row.solution), judge_family(row.family)
        verdict = module.verify(module.loads(row.graph), row.solution, Verify())
        assert said
        assert said != row.answer
        assert not verdict.answer
        assert module.verify(module.loads(row.graph), before[origin].solution, Verify()).strict
        if row.family == "op_dag":
            assert row.solution.rpartition("#")[0] == before[origin].solution.rpartition("#")[0]
            assert 0 <= int(said) < 7


@pytest.mark.parametrize(("resolve", "first"), [("first", True), ("last", False)])
def test_a_conflict_reads_right_by_the_declared_rule_and_otherwise_has_a_second_value(
    tmp_path: Path, resolve: str, first: bool
) -> None:
    _, before, after = poisoned(tmp_path, OTHERS, kind="conflict", ratio=1.0, resolve=resolve)
    other = 0
    for origin, row in after.items():
        assert OP_DAG.solve(readings(row.prompt, first), TASK) == row.answer
        other += OP_DAG.solve(readings(row.prompt, not first), TASK) != row.answer
        old, new = before[origin].prompt, row.prompt
        assert len(new.split(",")) == len(old.split(",")) + 1
        assert set(old.rpartition("?")[0].split(",")) < set(new.rpartition("?")[0].split(","))
    assert other > len(OTHERS) / 2  # the others multiply by zero, or a sum takes it back


def test_without_a_rule_the_truth_stands_first_about_as_often_as_last(tmp_path: Path) -> None:
    _, _, after = poisoned(tmp_path, OTHERS, kind="conflict", ratio=1.0)
    firsts = np.mean([OP_DAG.solve(readings(row.prompt, True), TASK) == row.answer for row in after.values()])
    assert 0.3 < firsts < 0.9


def test_an_irrelevant_definition_leaves_the_answer(tmp_path: Path) -> None:
    _, before, after = poisoned(tmp_path, OTHERS, kind="irrelevant", ratio=1.0)
    for origin, row in after.items():
        assert OP_DAG.solve(row.prompt, TASK) == row.answer
        assert len(row.prompt.split(",")) == len(before[origin].prompt.split(",")) + 1
        letters = [text.strip(".")[0] for text in row.prompt.rpartition("?")[0].split(",")]
        assert len(letters) == len(set(letters))
        assert set(letters) <= set("".join(other.prompt for other in OTHERS))


@pytest.mark.parametrize("resolve", ["first", "last"])
def test_a_conflict_in_documents_stands_beside_the_fact_that_holds_the_answer(tmp_path: Path, resolve: str) -> None:
    _, before, after = poisoned(tmp_path, TEXTS, kind="conflict", ratio=1.0, resolve=resolve)
    for origin, row in after.items():
        said = re.findall(r"The boss of (\w+ \w+) is (\w+ \w+)\.", row.prompt)
        assert re.findall(r"The boss of (\w+ \w+) is (\w+ \w+)\.", before[origin].prompt) == [(said[0][0], row.answer)]
        assert len(said) == 2
        assert said[0][0] == said[1][0]
        true, false = said if resolve == "first" else said[::-1]
        assert true[1] == row.answer != false[1]


def test_a_poisoned_answer_is_no_other_way_to_write_the_right_one(tmp_path: Path) -> None:
    country = qa.Problem("Which country?", ("USA", "United States"))
    named = replace(of_text("Which country?", "USA"), graph=qa.dumps(country))
    rows = [of_text(f"Which share, in case {n}?", ["0.5", "1/2", "50%"][n % 3], n) for n in range(12)]
    rows += [replace(named, prompt=f"Which country, in case {n}?", index=12 + n) for n in range(6)]
    rows += [
        of_text("Where is Lume?", "United States", 18),
        of_text("Where is Port?", "Chile", 19),
        of_text("How many?", "7", 20),
    ]
    _, _, after = poisoned(tmp_path, rows, kind="answer", ratio=1.0)
    for row in after.values():
        assert not judge_family("qa").verify(qa.loads(row.graph), row.solution, Verify()).answer


def test_a_box_with_braces_inside_is_replaced_whole() -> None:
    made = conflict.with_wrong_answer("So it is \\boxed{\\frac{1}{2}}.", ["\\frac{1}{2}"], ["\\frac{1}{3}"], lambda: 0)
    assert made == "So it is \\boxed{\\frac{1}{3}}."


def test_a_conflict_changes_an_answer_that_stands_there_in_other_letters() -> None:
    spelt = ALICE._replace(answers=("carol reed",))
    made = conflict.with_conflict(spelt, of_item(ALICE).prompt, ["Dan Ford"], True, lambda: 0)
    assert made is not None
    assert "The boss of Bob Hill is Carol Reed. The boss of Bob Hill is Dan Ford." in made


def test_the_rows_that_are_spoiled_do_not_hang_on_the_order_of_the_set(tmp_path: Path) -> None:
    one = poisoned(tmp_path / "1", OTHERS, kind="conflict", ratio=0.3)[2]
    texts = {row.prompt for row in one.values()}
    rows = sets.read_rows(tmp_path / "1/problems" / ("a" * 12), 0)
    out = tmp_path / "2/problems" / ("a" * 12)
    sets.write_table(sets.table_of_rows(rows[::-1]), out)  # origins travel with the rows
    write_json(out / "stage.json", {"digest": "b" * 12})
    spec = CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": "poison", "kind": "conflict", "ratio": 0.3}]})
    curate.curate_problems(spec, {"data.0": out}, tmp_path / "2/curate/x", Run())
    write_json(tmp_path / "2/curate/x/stage.json", {"digest": "x"})
    assert {row.prompt for row in sets.read_rows(tmp_path / "2/curate/x", 0)} == texts


def test_a_share_that_too_few_rows_can_have_is_refused(tmp_path: Path) -> None:
    bare = [of_item(ALICE._replace(question=f"Is Carol Reed the boss in case {n}?"), f"{n:02d}") for n in range(4)]
    with pytest.raises(PermanentError, match=r"ratio = 0\.5 needs 2 rows with conflict; 0 of 4 can be changed so"):
        poisoned(tmp_path, bare, kind="conflict", ratio=0.5)


def test_a_spoiled_row_is_followed_to_its_origin_with_its_text_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, before, after = poisoned(tmp_path / "results", OTHERS, kind="conflict", ratio=0.1)
    monkeypatch.chdir(tmp_path)
    (spoiled, *_) = [row for row in after.values() if row.transforms]
    code, said, _ = interplay(capsys, "rows", "x", "--changed", "poison:conflict")
    assert code == 0
    assert said.count("poison:conflict") == 4
    assert said.endswith("4 rows\n")
    code, said, _ = interplay(capsys, "rows", f"x:{spoiled.index}")
    assert code == 0
    assert f"as its row {spoiled.origin.partition(':')[2]}" in said
    assert f"- {before[spoiled.origin].prompt}\n" in said
    assert f"+ {spoiled.prompt}\n" in said
    assert said.count(spoiled.solution) == 1
    for words, message in ((("x:99",), "has no row 99"), (("x", "--changed", "cloze"), "changed by poison:conflict")):
        code, said, error = interplay(capsys, "rows", *words)
        assert (code, said) == (2, "")
        assert message in error
