"""What a model or the author of a data file wrote is read on a terminal, and not obeyed by it."""

import json
from pathlib import Path

import pandas as pd
import pytest
from command_line import interplay
from lab import Lab, of_kind

from interplay.core.model import UserError, escape_control
from interplay.run.stage import main as stage_main, run_stage
from interplay.study.plan import Stage

HOSTILE = "fine\x1b[2J\x1b]0;pwned\x07 \x9b31m\r\u202eback\tend"
SHOWN = "fine\\x1b[2J\\x1b]0;pwned\\x07 \\x9b31m\\r\\u202eback\tend"


def clean(text: str) -> bool:
    """Whether a terminal would show all of it."""
    return all(character.isprintable() or character in "\t\n" for character in text)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The quickstart with a hostile file in the place of one set."""
    made = Lab(tmp_path)
    items = [{"question": f"What is {n}? {HOSTILE}", "answer": f"{HOSTILE} {n}"} for n in range(3)]
    (tmp_path / "items.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items))
    made.edit("study/quickstart.yaml", "hard: {band: hard, split: rl}", "hard: {file: items.jsonl, format: jsonl}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return made


def dataset(lab: Lab) -> Stage:
    """The stage of the file, made."""
    (stage,) = of_kind(lab.lock(), "dataset")
    run_stage(lab.start(stage))
    return stage


def evaluation(lab: Lab, digest: str, right: int, data: str) -> None:
    """Four samples of each of three prompts, in hostile words; `right` of them are right."""
    out = lab.results / "evaluate" / digest
    out.mkdir(parents=True)
    stage = {"kind": "evaluate", "digest": digest, "versions": {"": 1}, "spec": {"num_samples": 4}, "deps": {"data": data}}
    (out / "record.json").write_text(json.dumps({**stage, "metrics": {"n_samples": 4}, "files": {}}))
    (out / "stage.json").write_text(json.dumps({**stage, "run": {}, "label": f"arm {HOSTILE}/eval@0"}))
    place = {"band": "all", "op": 1, "mode": "open", "error": f"none {HOSTILE}"}
    rows = [
        {"index": i, "sample": s, **place, "completion": HOSTILE, **dict.fromkeys(("strict", "answer"), s < right), "score": float(s < right)}
        for i in range(3)
        for s in range(4)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(out / "samples.parquet")


def test_what_a_terminal_obeys_is_written_out_and_lines_and_tabs_stay() -> None:
    assert escape_control("a\x1b[2J\x07\n\tb") == "a\\x1b[2J\\x07\n\tb"
    assert escape_control(HOSTILE) == SHOWN
    assert escape_control("x = 3 × 4 – ‘größer’ 数 🙂") == "x = 3 × 4 – ‘größer’ 数 🙂"


def test_every_character_that_is_not_printed_is_written_out_so_that_any_stream_takes_it() -> None:
    orders = [chr(code) for code in (*range(32), *range(127, 160), 0x2028, 0x2029, *range(0xD800, 0xE000)) if code not in (9, 10)]
    for character in orders:
        shown = escape_control(f"<{character}>")
        assert shown.isascii()
        assert shown.isprintable()
        assert shown.startswith("<\\")


def test_completions_are_shown_and_not_obeyed(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    data = dataset(lab).digest
    evaluation(lab, "aaaaaaaaaaaa", 1, data)
    evaluation(lab, "bbbbbbbbbbbb", 3, data)
    for words in (("rollouts", "aaaaaaaaaaaa"), ("compare", "aaaaaaaaaaaa", "bbbbbbbbbbbb")):
        code, said, _ = interplay(capsys, *words)
        assert code == 0
        assert f"{SHOWN}\n" in said
        assert clean(said)


def test_rows_of_a_file_are_shown_and_not_obeyed(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    digest = dataset(lab).digest
    for words in (("rows", digest), ("rows", f"{digest}:0")):
        code, said, _ = interplay(capsys, *words)
        assert code == 0
        assert "fine\\x1b[2J\\x1b]0;pwned\\x07" in said
        assert clean(said)


def test_labels_failures_and_logs_are_shown_and_not_obeyed(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    rl = of_kind(lab.lock(), "rl")[0]
    out = lab.start(rl)
    (out / "failure.json").write_text(json.dumps({"message": f"the reward fails on {HOSTILE}"}))
    log = lab.folder / "logs/rl" / f"{out.name}.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"interplay: {HOSTILE}\n")
    for words in (("show", rl.digest), ("watch", "quickstart", "--scale", "smoke", "--once")):
        code, said, _ = interplay(capsys, *words)
        assert code == 0
        assert f"the reward fails on {SHOWN}"[:60] in said
        assert clean(said)
    label = f"arm {HOSTILE}"
    (out / "stage.json").write_text(json.dumps({**rl.as_json(), "label": label}))
    (lab.configs / "plans").rename(lab.configs / "elsewhere")
    code, said, _ = interplay(capsys, "show", rl.digest)
    assert code == 0
    assert escape_control(label)[:20] in said
    assert clean(said)


def test_an_error_is_one_line_that_can_be_printed() -> None:
    assert str(UserError(f"samples: {HOSTILE}")) == "samples: fine\\x1b[2J\\x1b]0;pwned\\x07 \\x9b31m \\u202eback end"


@pytest.mark.parametrize("fault", [RuntimeError(HOSTILE), OSError(28, HOSTILE, f"samples {HOSTILE}")])
def test_the_runner_tells_an_error_in_others_words_without_obeying_them(
    lab: Lab, fault: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault of the disk or of the code, whose words hold a completion, in a stage that is really run."""
    (stage,) = of_kind(lab.plan(), "dataset")
    lab.start(stage)

    def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr("interplay.data.foreign.read_items", broken)
    assert stage_main(["run", stage.digest]) == 1
    said = capsys.readouterr().err
    assert "\\x1b]0;pwned\\x07" in said
    assert clean(said)
