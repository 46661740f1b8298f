import csv
import json
import math
import shutil
from pathlib import Path

import pytest
import report_study as study
from command_line import interplay
from conftest import ROOT, Laboratory, copy_configs

from interplay.core import metrics
from interplay.kinds.formulas import Cost
from interplay.report.inspect import chain
from interplay.report.inspect.explain import CellName, value
from interplay.report.spec import ReportSpec

SMOKE = ("--scale", "smoke")


@pytest.fixture
def here(finished: Laboratory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(finished.folder)
    return finished.folder


@pytest.fixture
def records_alone(finished: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configs and the small records: as after a clone that pulled no payload."""
    shutil.copytree(finished.folder / "configs", tmp_path / "configs")
    for path in finished.folder.glob("results/*/*/*.json"):
        if path.name in ("record.json", "telemetry.json"):
            copy = tmp_path / path.relative_to(finished.folder)
            copy.parent.mkdir(parents=True) if not copy.parent.exists() else None
            shutil.copy(path, copy)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with open(folder / f"results/by-name/quickstart.smoke/report/tables/{name}.csv") as handle:
        return [row for row in csv.DictReader(handle) if row["arm"] != "answer prior"]


def test_the_value_is_that_of_the_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for row in table(here, "main")[::7]:
        code, out, _ = interplay(capsys, "explain", "quickstart", "main", row["arm"], f"{row['column']}/{row['cell']}", *SMOKE)
        assert code == 0
        shown = f"{100 * float(row['estimate']):.1f} % [{100 * float(row['low']):.1f}, {100 * float(row['high']):.1f}]"
        assert out.split("\n")[0].endswith(shown)
        assert f"for {row['over']}; {row['n_samples']} samples of each prompt" in out


def test_a_difference_names_both_evaluations_and_both_chains(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = next(row for row in table(here, "main_differences") if row["arm"] == "rl_edge" and row["column"] == "edge")
    _, out, _ = interplay(capsys, "explain", "quickstart", "main", "rl_edge - base", "Edge", *SMOKE)
    assert out.startswith(f"rl_edge − base, edge strict pass@1: {100 * float(row['estimate']):+.1f}".replace("+0.0", "0.0"))
    assert all(digest in out.split("\n\n")[0] for digest in row["evaluations"].split(";"))
    assert "evaluate eval (of base)" in out
    assert "evaluate eval (of rl_edge)" in out
    assert out.count("\npretrain base (of base, rl_edge)\n") == 1


def test_every_stage_behind_the_cell_is_named_down_to_the_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = interplay(capsys, "explain", "quickstart", "ops", "rl_edge", "op 3", *SMOKE)
    assert [block.split()[0] for block in out.split("\n\n")[1:]] == [
        "evaluate", "rl", "pretrain", "corpus", "problems", "problems", "problems", "problems", "tokenizer",
    ]  # fmt: skip
    assert "verify.operator false" in out
    assert "0 of " in out.split("overlap")[1].split(";")[0]


def test_records_alone_give_the_same_cell_and_say_what_is_not_here(
    here: Path, records_alone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("explain", "quickstart", "main", "rl_edge", "edge", *SMOKE)
    monkeypatch.chdir(here)
    whole = interplay(capsys, *asked)[1]
    monkeypatch.chdir(records_alone)
    bare = interplay(capsys, *asked)[1]
    assert bare.split("\n")[0] == whole.split("\n")[0]
    assert [block.split("\n")[:2] for block in bare.split("\n\n")[1:-1]] == [
        block.split("\n")[:2] for block in whole.split("\n\n")[1:]
    ]
    assert "not here\n  samples of evaluation " in bare
    assert "structural overlap: it needs the problems of" in bare
    assert "not here" not in whole


def test_any_k_needs_the_samples(records_alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = interplay(capsys, "explain", "quickstart", "main", "base", "edge", "--metric", "strict_pass@3", *SMOKE)
    assert "base, edge strict pass@3: missing" in out
    assert "any k needs the samples" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mian", "base", "edge"), "no table 'mian'; did you mean 'main'?"),
        (("main", "rl_edg", "edge"), "no row 'rl_edg'; did you mean 'rl_edge'?"),
        (("main", "rl_edge", "egde"), "no column 'egde'; did you mean 'edge'?"),
        (("main", "base", "edge", "--metric", "strict@1"), "no metric 'strict@1'; did you mean"),
        (("main", "base", "edge", "--seed", "7"), "plans base at seed 0"),
        (("main_differences", "base", "edge"), "no row 'base'"),
    ],
)
def test_a_cell_that_the_table_lacks_is_refused_with_the_nearest(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    code, _, error = interplay(capsys, "explain", "quickstart", *words)
    assert code == 2
    assert message in error


def test_a_stage_that_the_seeds_share_stands_once_and_what_was_not_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    _, out, _ = interplay(capsys, "explain", "edge", "main", "rl_edge", "edge", "--scale", "laptop")
    blocks = {block.split("\n")[0]: block for block in out.split("\n\n")}
    assert out.startswith("rl_edge, edge strict pass@1: missing")
    assert len([line for line in blocks["rl"].splitlines() if " seed " in line]) == 3
    assert blocks["pretrain base"].count("seeds 0, 1, 2") == 1
    assert "not run yet" in out
    one = interplay(capsys, "explain", "edge", "main", "rl_edge", "edge", "--seed", "1", "--scale", "laptop")[1]
    assert len([line for line in one.split("\n\nrl\n")[1].split("settings")[0].splitlines() if " seed " in line]) == 1


def split(root: Path, metrics: list[dict]) -> ReportSpec:
    """An arm whose evaluation is two blocks of four samples; the records hold these metrics of the edge."""
    for digest, counts, known in zip(("first", "second"), ([4, 0], [2, 0]), metrics, strict=True):
        out = study.write_evaluation(root, digest, {4: counts})
        record = json.loads((out / "record.json").read_text())
        record["metrics"] = {"band": {"edge": {"n": 2, **known}}, "n_samples": 4}
        (out / "record.json").write_text(json.dumps(record))
    return study.spec([study.arm("base", 0, ["base:pretrain:m"], "first")], blocks={"first": ["second"]})


def test_a_cell_of_an_evaluation_in_blocks_counts_the_samples_of_all(tmp_path: Path) -> None:
    rates = [{"strict_pass@1": 0.5, "strict_pass@4": 0.5}, {"strict_pass@1": 0.25, "strict_pass@4": 0.5}]
    spec = split(tmp_path, rates)
    asked = CellName("main", "base", "", "edge", "strict_pass@8")
    found, notes = value(spec, "r", tmp_path, asked)
    assert (found.value, found.n_samples, notes) == (0.5, 8, [])
    once = asked._replace(metric="strict_pass@1")
    assert value(spec, "r", tmp_path, once)[0].value == 6 / 16
    (tmp_path / "evaluate/second/samples.parquet").unlink()
    assert value(spec, "r", tmp_path, once)[0].missing
    study.write_record(tmp_path, "r", "report", {}, {"tables": {"main": {"base/edge/strict_pass@1": [0.375, 0.1, None]}}})
    bare, notes = value(spec, "r", tmp_path, once)
    assert (bare.value, bare.low, bare.seeds) == (0.375, 0.1, ())
    assert math.isnan(bare.high)
    assert notes[0].startswith("samples of evaluation second")
    assert value(spec, "r", tmp_path, asked)[0].missing


def test_all_blocks_of_an_evaluation_stand_in_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_configs(tmp_path)
    path = tmp_path / "configs/study/quickstart.yaml"
    path.write_text(path.read_text().replace("kind: evaluate, data: test", "kind: evaluate, data: test, num_samples: 80"))
    monkeypatch.chdir(tmp_path)
    _, out, _ = interplay(capsys, "explain", "quickstart", "main", "rl_edge", "edge", *SMOKE)
    (block,) = [block for block in out.split("\n\n") if block.startswith("evaluate")]
    assert block.startswith("evaluate eval\n")
    assert block.count(" seed 0 ") == 3


def test_what_seeds_spent_stands_seed_by_seed_also_where_two_of_them_are_equal() -> None:
    def member(number: int) -> dict:
        metrics = {"steps": 4, "optimizer_steps": number, "completions": 8, "completion_tokens": 64, "prompt_tokens": 64}
        spec = {
            "method": {"allocation": {"num_generations": 8}, "loss": {"beta": 0.0, "num_iterations": 1}},
            "minibatches": 1,
            "reward": {"name": "outcome"},
        }
        return {"digest": "d", "kind": "rl", "spec": spec, "metrics": metrics}

    said = chain._spent([member(8), member(2), member(2)], {"d": Cost(parameters=100)})
    assert "optimizer_steps 8 | 2 | 2" in said
    assert "completions 8," in said, "equal for all seeds: once"


def test_a_value_of_which_nothing_would_be_seen_stands_in_quotes() -> None:
    assert [metrics.short(value) for value in ("", "\n\n", " ", "grpo", 0.5)] == ["''", r"'\n\n'", "' '", "grpo", "0.5"]
