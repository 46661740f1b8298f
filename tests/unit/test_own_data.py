"""Data of one's own, as JSONL, Parquet, CSV, chats or a file of the hub, with fields of any names; and rewards in TRL's form."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from huggingface_hub import constants
from lab import Lab, of_kind

from interplay.core.digest import hashed
from interplay.core.execution import Run
from interplay.core.extension import Extension
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.data import sets
from interplay.data.foreign import read_dataset
from interplay.data.spec import DatasetSpec
from interplay.kinds.extensions import check_extensions
from interplay.rl.custom import own_reward
from interplay.rl.spec import RLSpec
from interplay.study.files import fill_extensions
from interplay.tasks.verdict import Row, Verdict

ROWS = [{"prompt": "What is 2 + 3?", "target": "5", "n": 1}, {"prompt": "What is 4 + 5?", "target": "9", "n": 2}]
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 3?"}]
FIELDS = "fields: {question: prompt, answer: target}"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".parquet":
            pd.DataFrame(rows).to_parquet(path)
        case ".csv":
            pd.DataFrame(rows).to_csv(path, index=False)
        case _:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(tmp_path)
    monkeypatch.chdir(tmp_path)
    return made


def planned(lab: Lab, data: str) -> tuple[DatasetSpec, Run]:
    """The set `own` of a study that evaluates on it."""
    lab.edit(
        "study/quickstart.yaml",
        "  test: {bands: [id, edge, beyond, hard], split: test}",
        f"  test: {{bands: [id, edge, beyond, hard], split: test}}\n  own: {{{data}}}",
    )
    lab.edit("study/quickstart.yaml", "evaluate: [eval] ", "evaluate: [eval, owned] ")
    lab.edit(
        "study/quickstart.yaml",
        "  eval: {kind: evaluate, data: test}",
        "  eval: {kind: evaluate, data: test}\n  owned: {kind: evaluate, data: own}",
    )
    [stage] = of_kind(lab.plan(), "dataset")
    assert isinstance(stage.spec, DatasetSpec)
    return stage.spec, stage.run


def problems(spec: DatasetSpec, run: Run, out: Path) -> list[tuple[str, str]]:
    read_dataset(spec, {}, out, run)
    rows = sets.read_table(out).to_pylist()
    return sorted((row["prompt"].splitlines()[0], row["answer"]) for row in rows)


@pytest.mark.parametrize("file", ["own.jsonl", "own.parquet", "own.csv"])
def test_a_file_is_read_by_its_ending_with_the_names_that_it_has(lab: Lab, file: str) -> None:
    write_rows(Path("data") / file, ROWS)
    spec, run = planned(lab, f"file: data/{file}, {FIELDS}")
    assert problems(spec, run, Path("out")) == [("What is 2 + 3?", "5"), ("What is 4 + 5?", "9")]


@pytest.mark.parametrize("reply", ["2 + 3 = 5, so \\boxed{5}", "It is five.\n#### 5", "5"])
def test_the_answer_of_a_chat_is_in_its_box_behind_its_mark_or_all_of_it(lab: Lab, reply: str) -> None:
    write_rows(Path("data/chat.jsonl"), [{"messages": [*CHAT, {"role": "assistant", "content": reply}]}])
    spec, run = planned(lab, "file: data/chat.jsonl, format: messages")
    assert problems(spec, run, Path("out")) == [("What is 2 + 3?", "5")]


def test_a_sharp_in_a_chat_is_no_mark_of_an_answer(lab: Lab) -> None:
    reply = "It is C# 5"
    write_rows(Path("data/chat.jsonl"), [{"messages": [*CHAT, {"role": "assistant", "content": reply}]}])
    spec, run = planned(lab, "file: data/chat.jsonl, format: messages")
    assert problems(spec, run, Path("out")) == [("What is 2 + 3?", reply)]


def test_the_question_of_a_chat_is_the_one_that_was_answered_and_its_answer_may_be_zero(lab: Lab) -> None:
    said = [{"role": "assistant", "content": "Nothing is left."}, {"role": "user", "content": "And then?"}]
    write_rows(Path("data/chat.jsonl"), [{"messages": [*CHAT, *said], "answer": 0}])
    spec, run = planned(lab, "file: data/chat.jsonl, format: messages")
    assert problems(spec, run, Path("out")) == [("What is 2 + 3?", "0")]


def test_a_solution_of_math_without_a_box_has_no_answer(lab: Lab) -> None:
    write_rows(Path("data/math.jsonl"), [{"problem": "How many?", "level": "Level 1", "solution": "It is # 5."}])
    with pytest.raises(UserError, match="answer is missing, and the solution has none in a box"):
        planned(lab, "file: data/math.jsonl, format: math")


def test_a_question_may_be_a_chat(lab: Lab) -> None:
    write_rows(Path("data/own.jsonl"), [{"prompt": CHAT, "answer": 5}])
    spec, run = planned(lab, "file: data/own.jsonl, fields: {question: prompt}")
    assert problems(spec, run, Path("out")) == [("What is 2 + 3?", "5")]


@pytest.mark.parametrize("file", ["own.jsonl", "own.parquet"])
def test_a_dot_leads_into_an_object_as_in_files_of_verl(lab: Lab, file: str) -> None:
    rows = [{"prompt": CHAT, "reward_model": {"ground_truth": "5", "style": "rule"}}]
    write_rows(Path("data") / file, rows)
    spec, run = planned(lab, f"file: data/{file}, fields: {{question: prompt, answer: reward_model.ground_truth}}")
    assert problems(spec, run, Path("out")) == [("What is 2 + 3?", "5")]


def test_fields_that_are_not_named_leave_the_digest() -> None:
    spec = DatasetSpec.model_validate({"format": "jsonl", "sha256": "0" * 64})
    assert "fields" not in hashed(spec)
    assert hashed(spec.model_copy(update={"fields": {"question": "prompt"}}))["fields"] == {"question": "prompt"}


@pytest.mark.parametrize(
    ("rows", "data", "said"),
    [
        (ROWS, "file: data/own.jsonl", "line 1: question is missing (there are prompt, target, n); name the file's own in fields, such as {answer: target}"),
        (ROWS, "file: data/own.csv, fields: {question: promt, answer: target}", "line 2: question should be in 'promt', which is missing; did you mean 'prompt'?"),
        ([{"prompt": "1 + 1?", "scored": {"gold": "2"}}], "file: data/own.jsonl, fields: {question: prompt, answer: scored.truth}", "line 1: answer should be in 'scored.truth', which is missing"),
        (ROWS, "file: data/own.parquet, fields: {question: prompt}", "row 1: answer is missing (there are prompt, target, n, question)"),
        ([{"question": "1 + 1?", "answer": "\\boxed{2}"}], "file: data/own.jsonl", "line 1: answer is '\\\\boxed{2}': write it without the box"),
        ([{"messages": ["Hi", {"role": "assistant", "content": "Ho"}]}], "file: data/own.jsonl, format: chats, licence: x, origin: y", "line 1: a chat should hold objects with role and content"),
        ([{"messages": CHAT}], "file: data/own.jsonl, format: messages", "line 1: a chat without a message of the assistant"),
        (ROWS, "file: data/own.jsonl, format: gsm8k, fields: {question: prompt}", "fields: gsm8k has fields of its own; take them away"),
        (ROWS, "file: data/own.txt", "format is missing; name the format of the file"),
        (ROWS, "file: data/own.csv, format: parquet", "not readable as Parquet"),
        (ROWS, "file: data/own.jsonl, hub: a/b@c/d.jsonl", "file and hub both name a file; keep one of them"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_data_is_said_when_the_study_is_planned(
    lab: Lab, rows: list[dict[str, Any]], data: str, said: str
) -> None:
    write_rows(Path(data.split(",")[0].removeprefix("file: ")), rows)
    with pytest.raises(UserError) as error:
        planned(lab, data)
    assert str(error.value).startswith("configs/study/quickstart.yaml:")
    assert said in str(error.value)


def test_a_file_of_the_hub_comes_from_its_cache_at_the_revision(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = lab.folder / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    write_rows(cache / "datasets--lab--sums" / "snapshots" / REVISION / "main/train.parquet", ROWS)
    spec, run = planned(lab, f"hub: lab/sums@{REVISION}/main/train.parquet, {FIELDS}")
    assert run.path == f"hub://lab/sums@{REVISION}/main/train.parquet"
    assert problems(spec, run, Path("out")) == [("What is 2 + 3?", "5"), ("What is 4 + 5?", "9")]
    lab.edit("study/quickstart.yaml", "main/train.parquet", "main/absent.parquet")
    with pytest.raises(
        UserError, match=r"data\.own\.hub = 'lab/sums@.*absent\.parquet'.*download it elsewhere, and name it as file"
    ):
        lab.plan()


# -- rewards in TRL's form ----------------------------------------------------------------------------------------------------


def reward(code: str, folder: Path, **options: Any) -> Extension:
    (folder / "mine.py").write_text(code)
    given = {"method": {"paper": "p"}, "mix": [1.0], "steps": 2, "reward": {"name": "mine.py:f", **options}}
    here = KeyPlace("here")
    made = parse_model(RLSpec, fill_extensions(given, folder, here), here)
    check_extensions(made, here)
    assert isinstance(made.reward, Extension)
    return made.reward


@pytest.mark.parametrize(
    ("code", "paid"),
    [
        ("def f(completions, answer, **kwargs):\n    return [float(a in c) for c, a in zip(completions, answer)]", [1.0, 0.0]),
        ("def f(completions, **kwargs):\n    return [float(v.strict) for v in kwargs['verdicts']]", [1.0, 0.0]),
        ("def f(prompts, completions, bonus=0.5):\n    return [bonus * len(p) for p in prompts]", [1.5, 1.5]),
    ],
)
def test_a_reward_in_trls_form_gets_the_columns_that_it_names(code: str, paid: list[float], tmp_path: Path) -> None:
    row = Row(0, 0, "edge", 2, "open", "2+3", "", "5", "", "", "qa", "")
    verdicts = [Verdict(True, True, 1.0, "none"), Verdict(False, False, 0.0, "answer")]
    assert own_reward(reward(code, tmp_path), [row, row], ["it is 5", "it is 6"], verdicts) == paid


@pytest.mark.parametrize(
    ("code", "options", "said"),
    [
        ("def f(completions, answers): ...", {}, "f takes 'answers', and a batch has columns completions, prompts, answer, .*; did you mean 'answer'"),
        ("def f(completions, trainer_state): ...", {}, "f takes 'trainer_state', and a batch has columns"),
        ("def f(completions, bonus=1): ...", {"bonos": 2}, "takes no option 'bonos'; did you mean 'bonus'"),
    ],
)  # fmt: skip
def test_a_column_that_no_batch_has_is_refused_when_the_study_is_planned(
    code: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        reward(code, tmp_path, **options)
