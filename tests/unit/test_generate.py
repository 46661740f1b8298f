"""Kind `generate`: what a model wrote is parsed, filtered and becomes rows, each with its provenance; killed stages go on."""

import json
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import world
from conftest import examples
from forked import Script
from hypothesis import given, strategies as st
from lab import Lab, of_kind
from pydantic import ValidationError
from reform_cases import TASK, row

from interplay.core.artifact import finish, write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.core.model import PermanentError, UserError
from interplay.data import sets
from interplay.data.spec import split_of
from interplay.data.trajectory import read_trajectories
from interplay.evaluate import generate
from interplay.evaluate.generate_spec import GenerateSpec
from interplay.report.inspect.stage_view import browse_rollouts, show_rollouts
from interplay.report.stats import frame
from interplay.report.write import examples as examples_of
from interplay.results.check import contradictions
from interplay.tasks import qa, reformulated
from interplay.tasks.families import judge_family
from interplay.tasks.verdict import Row

SUM = qa.Problem("What is 2 + 3?", ("5",))
QUESTION = Row(0, 0, "all", 1, "open", *qa.render(SUM), qa.dumps(SUM), "aa", "qa", "d" * 12 + ":0")
OTHER = replace(QUESTION, index=1, graph=qa.dumps(qa.Problem("What is 4 + 4?", ("8",))), answer="8")
POOL = [QUESTION, OTHER]


def samples(*each: list[str], cut: tuple[tuple[int, int], ...] = ()) -> pa.Table:
    """Samples of the rows of POOL, judged by the verifier itself."""
    found = []
    for place, texts in enumerate(each):
        for number, said in enumerate(texts):
            verdict = sets.judge_completion(GenerateSpec().verify, POOL[place], said)
            columns = {"strict": verdict.strict, "answer": verdict.answer, "said": verdict.said}
            found.append({"index": place, "sample": number, "completion": said, "truncated": (place, number) in cut, **columns})
    return pa.Table.from_pylist(found)


def written(spec: GenerateSpec, table: pa.Table) -> tuple[list[generate.Item], list[Row]]:
    items = generate.filter_items(spec, POOL, generate.items_of(spec, POOL, table))
    return items, generate.write_items(spec, POOL, items)


def dropped(spec: GenerateSpec, *each: list[str], **more: Any) -> list[str]:
    """Why each item was dropped."""
    return [item.dropped for item in written(spec, samples(*each, **more))[0]]


BOXED = ["So \\boxed{5}", "So \\boxed{6}", "no answer", "So \\boxed{5.0}", "So  \\boxed{5}"]


def test_the_verifier_filters_by_process_by_answer_and_by_wrong_answers() -> None:
    keep = {keep: dropped(GenerateSpec(filters=[{"name": "verdict", "keep": keep}]), BOXED) for keep in ("strict", "wrong")}
    assert keep["strict"] == ["", "0 verdict", "0 verdict", "", ""]
    assert keep["wrong"] == ["0 verdict", "", "0 verdict", "0 verdict", "0 verdict"]


def test_votes_are_counted_among_the_items_of_a_row_and_a_tie_keeps_none() -> None:
    spec = GenerateSpec(filters=[{"name": "votes", "share": 0.5}])
    items, _ = written(spec, samples(BOXED, ["\\boxed{8}", "\\boxed{9}"]))
    assert [item.dropped for item in items] == ["", "0 votes", "0 votes", "", "", "0 votes", "0 votes"]
    assert [item.votes for item in items] == [(3, 4), (1, 4), (0, 0), (3, 4), (3, 4), (1, 2), (1, 2)]
    assert dropped(GenerateSpec(filters=[{"name": "votes", "share": 0.8}]), BOXED) == ["0 votes"] * 5


def test_a_winner_with_just_the_least_share_is_kept() -> None:
    spec = GenerateSpec(filters=[{"name": "votes", "share": 0.56}])
    assert dropped(spec, ["\\boxed{5}"] * 14 + ["\\boxed{6}"] * 11) == [""] * 14 + ["0 votes"] * 11, "14 of 25 are 0.56"


def test_fields_that_a_model_names_may_have_any_name() -> None:
    said = ['{"q": "Why?", "row": 1, "template": "x", "self": 2}']
    assert dropped(GenerateSpec(parse="json", text="{q}"), said) == [""]
    assert dropped(GenerateSpec(parse="pattern", pattern=r"(?P<row>\w+)", text="{row}"), said) == [""] * 8


def test_an_object_with_half_of_a_character_does_not_parse() -> None:
    said = ['{"q": "\\ud83d"}', '{"\\ude00": 1, "q": "x"}', '{"q": "\\ud83d\\ude00"}']
    assert dropped(GenerateSpec(parse="json", text="{q}"), said) == ["unparsed", "unparsed", ""]


def test_the_winner_may_have_to_be_the_label() -> None:
    spec = GenerateSpec(filters=[{"name": "votes", "label": True}])
    assert dropped(spec, ["\\boxed{6}"] * 3, ["\\boxed{8}"]) == ["0 votes"] * 3 + [""]


def test_filters_follow_one_another_and_votes_count_what_is_left() -> None:
    spec = GenerateSpec(filters=[{"name": "distinct"}, {"name": "length", "high": 12}, {"name": "votes", "share": 0.9}])
    assert dropped(spec, BOXED) == ["2 votes", "2 votes", "2 votes", "1 length", "0 distinct"]
    assert dropped(GenerateSpec(filters=[{"name": "distinct", "among": "all"}]), ["a"], ["a", "b"]) == ["", "0 distinct", ""]


def test_what_was_cut_is_dropped_and_what_does_not_parse_too() -> None:
    spec = GenerateSpec(parse="json", text="{hint}", writes="prompt")
    said = ['{"hint": "think"}', "none", '{"other": 1}', '{"hint": " "}', '{"hint": "late"}']
    assert dropped(spec, said, cut=((0, 4),)) == ["", "unparsed", "unparsed", "empty", "truncated"]


def test_a_template_never_takes_a_field_of_the_source_row_from_the_sample() -> None:
    spec = GenerateSpec(parse="json", text="{hint} {answer}", writes="prompt")
    _, rows = written(spec, samples(['{"hint": "add", "answer": "9"}', '{"hint": "add"}'], []))
    assert [one.prompt for one in rows] == ["add 5", "add 5"]


def test_a_judge_keeps_rows_by_what_it_says() -> None:
    spec = GenerateSpec(
        parse="pattern", pattern=r"Verdict: (?P<verdict>\w+)", filters=[{"name": "field", "field": "verdict", "equals": ["yes"]}],
        writes="band", text="good",
    )  # fmt: skip
    items, rows = written(spec, samples(["Fine. Verdict: Yes", "Verdict: no", "?"], ["Verdict: yes"]))
    assert [item.dropped for item in items] == ["", "0 field", "unparsed", ""]
    assert [(one.band, one.prompt, one.answer) for one in rows] == [("good", QUESTION.prompt, "5"), ("good", OTHER.prompt, "8")]


def test_lines_are_items_and_a_row_gives_at_most_so_many_rows() -> None:
    spec = GenerateSpec(parse="lines", writes="prompt", text="{prompt}Hint: {text}\n", per_row=2)
    items, rows = written(spec, samples(["one\n\n two \nthree"], ["four"]))
    assert [item.dropped for item in items] == ["", "", "per_row", ""]
    assert [one.prompt.splitlines()[-1] for one in rows] == ["Hint: one", "Hint: two", "Hint: four"]
    assert all(sets.judge_completion(spec.verify, one, f"\\boxed{{{one.answer}}}").strict for one in rows)


def test_questions_of_its_own_are_judged_and_are_none_that_models_are_tested_on() -> None:
    spec = GenerateSpec(parse="json", writes="question", text="{question}", answer="{result}")
    said = [json.dumps({"question": f"What is {n} + 1?", "result": n + 1}) for n in range(200)]
    items, rows = written(spec, samples(said, []))
    assert {split_of(one.key) for one in rows} == {"train", "rl"}
    assert sum(item.dropped == "held_out" for item in items) == 200 - len(rows) > 5
    assert all(sets.judge_completion(spec.verify, one, one.solution).strict and one.family == "qa" for one in rows)


def test_a_critique_is_learnt_from_what_the_model_read_and_asks_nothing() -> None:
    spec = GenerateSpec(template="{prompt}Answer: {answer}\nCritique:", writes="response")
    _, rows = written(spec, samples(["Well done."], []))
    assert (rows[0].prompt, rows[0].solution) == (f"{QUESTION.prompt}Answer: 5\nCritique:", "Well done.")
    assert not judge_family(rows[0].family).verify(None, "Well done.", spec.verify).answer


def test_wrong_answers_become_options_the_most_frequent_first() -> None:
    pool = [row(TASK, 4, index, index) for index in range(8)]
    spec = GenerateSpec(writes="choice", text="{said}")
    wrong = [[str((int(one.answer) + gap) % 23) for gap in (1, 1, 2, 3, 3, 3, 4, 0)] for one in pool]
    wrong[7] = wrong[7][:3]
    items = [
        generate.Item(place, n, 0, (False, False), {"text": "", "said": said})
        for place, each in enumerate(wrong)
        for n, said in enumerate(each)
    ]
    rows = generate.write_items(spec, pool, items)
    assert [one.origin for one in rows] == [one.origin for one in pool[:7]]
    keys = []
    for number, one in enumerate(rows):
        form = reformulated.read_form(one.graph)
        gold = int(form.gold)
        assert sorted(form.options) == sorted(str((gold + gap) % 23) for gap in (0, 1, 2, 3))
        assert sets.judge_completion(spec.verify, one, one.solution).strict
        used = {item.fields["said"] for item in items if number in item.rows}
        assert used == {*form.options} - {form.gold}
        keys.append(form.options.index(form.gold))
    assert max(map(keys.count, range(4))) <= 2
    assert [item.dropped for item in items[-3:]] == ["too_few_options"] * 3
    assert {item.dropped for item in items[:8] if not item.rows} == {"not_an_option"}


WRITES = st.sampled_from(["solution", "prompt", "response", "band"])


@examples(40)
@given(
    texts=st.lists(st.lists(st.sampled_from([*BOXED, "5", "x\ny"]), max_size=5), min_size=2, max_size=2),
    writes=WRITES,
    parse=st.sampled_from(["whole", "lines"]),
    filters=st.lists(
        st.sampled_from(
            [
                {"name": "verdict", "keep": "answer"},
                {"name": "votes", "share": 0.4},
                {"name": "length", "high": 9},
                {"name": "distinct"},
            ]
        ),
        max_size=3,
    ),
    per_row=st.none() | st.integers(1, 2),
)
def test_no_row_is_without_provenance_and_no_item_without_a_fate(
    texts: list[list[str]], writes: str, parse: str, filters: list[dict[str, Any]], per_row: int | None
) -> None:
    spec = GenerateSpec(writes=writes, parse=parse, filters=filters, per_row=per_row)
    if not any(texts):
        return
    items, rows = written(spec, samples(*texts))
    table = generate.items_table(spec, "d" * 12, POOL, items).to_pylist()
    assert sorted(number for one in table for number in one["rows"]) == list(range(len(rows)))
    assert all(bool(one["dropped"]) != bool(one["rows"]) for one in table)
    for one in table:
        for number in one["rows"]:
            place = int(one["source"].partition(":")[2])
            said = texts[place][one["sample"]]
            assert json.loads(one["fields"])["text"] in said
            assert rows[number].transforms[-1:] == ("generate",)
            assert rows[number].origin == POOL[place].origin


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"template": "{completion}"}, "template: no field 'completion'; known: prompt"),
        ({"template": "{prompt.__class__}"}, "template: 'prompt.__class__' in braces is no plain field; write {{ and }}"),
        ({"text": "{text} }"}, "text: Single '}' encountered in format string; write {{ and }}"),
        ({"text": "{hint}"}, "text: no field 'hint'; known: prompt, solution, answer, band, op, text, said"),
        ({"parse": "pattern"}, "pattern: goes with parse: pattern"),
        ({"parse": "pattern", "pattern": "("}, "is no regular expression"),
        ({"writes": "question"}, "answer: goes with writes: question"),
        ({"filters": [{"name": "field", "field": "verdict", "equals": ["yes"]}]}, "filters.0: no field 'verdict'"),
        ({"filters": [{"name": "votes", "field": "answer"}]}, "no field 'answer' of a sample; known: text, said"),
        ({"parse": "json", "filters": [{"name": "votes", "field": "answer"}]}, "known: text, said, other keys of the object"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        GenerateSpec(**given)


# The stage.


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"model": world.model(results, "m" * 12), "data.0": world.problem_set(results, "d" * 12, 41, split="rl")}


SPEC = GenerateSpec(writes="response", num_samples=4, max_completion_length=60, seed=5, filters=[{"name": "distinct"}])
HOW = Run(engine_batch=4)
RUNNER = """
import json, sys
from pathlib import Path
from interplay.evaluate import generate
from interplay.evaluate.generate_spec import GenerateSpec
from interplay.core.execution import Run
spec, inputs, out, how = (json.loads(a) for a in sys.argv[1:])
print(json.dumps(generate.generate_rows(GenerateSpec(**spec), {k: Path(v) for k, v in inputs.items()}, Path(out), Run(**how))))
"""
FILES = ("problems.parquet", "keys.parquet", "samples.parquet", "items.parquet")


def test_a_killed_stage_goes_on_from_its_samples_to_the_same_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    expected = generate.generate_rows(SPEC, inputs, tmp_path / "whole", HOW)
    assert (expected["sources"], expected["samples"]) == (41, 164)
    assert expected["items"] - sum(expected["dropped"].values()) == expected["size"] > 20
    out = tmp_path / "killed"
    arguments: list[Any] = [SPEC.model_dump(), {role: str(path) for role, path in inputs.items()}, str(out), HOW.model_dump()]
    process = Script(RUNNER, *map(json.dumps, arguments))
    while process.poll() is None and len(list(out.glob("resume/shards/*.parquet"))) < 2:
        time.sleep(0.002)
    assert process.kill() == -signal.SIGKILL
    stamps = {file: file.stat().st_mtime_ns for file in out.glob("resume/shards/*.parquet")}
    assert 2 <= len(stamps) < 11
    again = Script(RUNNER, *map(json.dumps, arguments))
    assert again.wait() == 0, again.errors.read_text()
    assert json.loads(again.output.read_text()) == expected
    for name in FILES:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert {file: file.stat().st_mtime_ns for file in stamps} == stamps, "a finished shard was done again"


def test_rows_can_be_read_sampled_again_and_traced_to_what_the_model_read(inputs: dict[str, Path], tmp_path: Path) -> None:
    generate.generate_rows(SPEC, inputs, tmp_path, HOW)
    write_json(tmp_path / "stage.json", {"digest": "e" * 12})
    found, items = sets.read_rows(tmp_path, 0), pq.read_table(tmp_path / "items.parquet").to_pylist()
    source = {f"{'d' * 12}:{one.index}": one for one in sets.read_rows(inputs["data.0"], 0)}
    said = {(one["index"], one["sample"]): one for one in pq.read_table(tmp_path / "samples.parquet").to_pylist()}
    for one in items:
        for number in one["rows"]:
            sample = said[source[one["source"]].index, one["sample"]]
            assert (found[number].prompt, found[number].solution) == (sample["prompt"], sample["completion"])
            assert found[number].origin == one["source"]


def test_what_the_model_wrote_is_shown_beside_the_source_rows(inputs: dict[str, Path]) -> None:
    out = inputs["model"].parent.parent / "generate" / ("e" * 12)
    generate.generate_rows(SPEC, inputs, out, HOW)
    stage = {"kind": "generate", "digest": "e" * 12, "deps": {"data.0": "d" * 12}}
    write_json(out / "stage.json", {**stage, "label": "data.said"})
    [sample, *_] = read_trajectories(out)
    source = next(one for one in sets.read_rows(inputs["data.0"], 0) if one.index == sample.index)
    said = show_rollouts(out, None, 164)
    assert f"  prompt {sample.prompt}\n" in said
    assert f"  gold   {source.solution}" in said
    assert browse_rollouts(out, sets.Choice())["total"] == 164
    results = frame.Results(SimpleNamespace(arms=[], arm_names=list), {}, {"e" * 12: stage}, {"e" * 12: out})
    on_page = examples_of.rollouts(SimpleNamespace(results=results), ())
    assert {one["arm"] for one in on_page} == {"data.said"}
    assert {one["error"] for one in on_page} == set(pq.read_table(out / "samples.parquet")["error"].to_pylist())
    assert all(one["problem"].asks or one["problem"].given for one in on_page)


def test_rows_that_do_not_follow_from_the_samples_are_found(inputs: dict[str, Path], tmp_path: Path) -> None:
    metrics = generate.generate_rows(SPEC, inputs, tmp_path, HOW)
    write_json(tmp_path / "stage.json", {"digest": "e" * 12})
    finish(tmp_path, {"kind": "generate", "digest": "e" * 12, "spec": canonical(SPEC), "deps": {}}, metrics)
    assert list(contradictions(tmp_path, inputs)) == []
    rows = pq.read_table(tmp_path / "problems.parquet")
    altered = ["better", *rows["solution"].to_pylist()[1:]]
    place = rows.column_names.index("solution")
    pq.write_table(rows.set_column(place, "solution", pa.array(altered)), tmp_path / "problems.parquet")
    [said] = contradictions(tmp_path, inputs)
    assert "row 0, column solution is 'better', by samples.parquet" in said


def test_a_stage_without_a_row_says_what_its_filters_dropped(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"writes": "solution", "filters": GenerateSpec(filters=[{"name": "verdict"}]).filters})
    with pytest.raises(PermanentError, match=r"generate: \d+ items of 164 samples give no row: .*'0 verdict'"):
        generate.generate_rows(spec, inputs, tmp_path, HOW)


# Planning.


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made, end = Lab(tmp_path), "  test: {bands: [id, edge, beyond, hard], split: test}"
    made.edit("study/quickstart.yaml", end, f"{end}\n  written: {{generate: write, arm: base, of: edge}}")
    stage = "  eval: {kind: evaluate, data: test}"
    made.edit("study/quickstart.yaml", stage, f"{stage}\n  write: {{kind: generate, filters: [{{name: verdict}}]}}")
    made.edit("study/quickstart.yaml", "rl.data: {hard: 1.0}", "rl.data: {written: 1.0}")
    return made


def test_a_set_that_a_model_writes_depends_on_that_model_and_on_its_source(lab: Lab) -> None:
    plan = lab.plan()
    [stage] = of_kind(plan, "generate")
    [base] = of_kind(plan, "pretrain")
    assert stage.deps["model"] == base.digest
    assert plan.stages[stage.deps["data.0"]].spec.split == "rl"
    assert [one.deps["data.0"] for one in of_kind(plan, "rl")].count(stage.digest) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("generate: write,", "generate: eval,", "data.written.generate = 'eval': is a evaluate stage; name one of kind generate"),
        ("generate: write,", "generate: wrote,", "data.written.generate = 'wrote': no such stage; did you mean 'write'"),
        ("of: edge}", "of: egde}", "data.written.of = 'egde': no such problem set; did you mean 'edge'"),
        ("arm: base, of", "arm: rl_hard, of", "data.written.arm = 'rl_hard': that arm is itself trained on this set"),
        (", of: edge}", "}", "of is missing; name the source set"),
        ("of: edge}", "of: test}", "which nothing is trained on"),
        ("{name: verdict}", "{name: verdikt}", "verdikt"),
        ("path: [base, rl], control: rl_edge", "path: [base, write, rl], control: rl_edge", "write"),
    ],
)
def test_what_a_model_cannot_write_is_refused_at_planning(lab: Lab, old: str, new: str, said: str) -> None:
    lab.edit("study/quickstart.yaml", old, new)
    with pytest.raises(UserError) as caught:
        lab.plan()
    assert said in str(caught.value)
