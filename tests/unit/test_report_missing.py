"""A study that is not finished: why stages are missing, and the page that says so."""

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import report_study as study

from interplay.report.spec import ReportSpec
from interplay.report.write import page as write_page
from interplay.results import state


def stage(root: Path, kind: str, digest: str, label: str, **deps: str) -> dict[str, Any]:
    """A planned stage, written down as Snakemake's main process does."""
    planned = {"kind": kind, "digest": digest, "label": label, "spec": {}, "deps": deps, "versions": {}, "run": {"gpus": 0}}
    (root / "results" / kind / digest).mkdir(parents=True, exist_ok=True)
    (root / "results" / kind / digest / "stage.json").write_text(json.dumps(planned))
    return planned


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """One base, three arms: `good` is finished, `bad` failed, `late` was stopped. Its report was never run."""
    results = tmp_path / "results"
    stages = {"e" * 12: stage(tmp_path, "problems", "e" * 12, "data.test")}
    stages["a" * 12] = stage(tmp_path, "pretrain", "a" * 12, "base/base@0")
    for kind, digest in (("problems", "e" * 12), ("pretrain", "a" * 12)):
        finish(results, kind, digest)
    study.write_problems(tmp_path / "made", "e" * 12, [2, 2, 3, 4], ["a", "b", "c", "d"])
    (tmp_path / "made/problems" / ("e" * 12) / "problems.parquet").rename(results / "problems" / ("e" * 12) / "problems.parquet")
    for name, letter in (("good", "b"), ("bad", "c"), ("late", "d")):
        model, evaluation = letter * 12, letter.upper() * 12
        stages[model] = stage(tmp_path, "sft", model, f"{name}/sft@0", init="a" * 12)
        stages[evaluation] = stage(tmp_path, "evaluate", evaluation, f"{name}/eval@0", model=model, data="e" * 12)
    finish(results, "sft", "b" * 12)
    finish(results, "evaluate", "B" * 12)
    made = study.write_evaluation(tmp_path / "made", "B" * 12, {2: [4, 4], 3: [2], 4: [1]})
    (made / "samples.parquet").rename(results / "evaluate" / ("B" * 12) / "samples.parquet")
    (results / "sft" / ("c" * 12) / "failure.json").write_text(json.dumps({"message": "step 2 of 9: loss nan"}))
    (results / "sft" / ("d" * 12) / "telemetry.json").write_text(json.dumps({"attempts": 2}))
    (tmp_path / "logs/sft").mkdir(parents=True)
    (tmp_path / "logs/sft" / f"{'d' * 12}.log").write_text("late/sft@0\n3/9 steps\nKilled by the queue\n\n")
    return stages


def finish(results: Path, kind: str, digest: str) -> None:
    planned = json.loads((results / kind / digest / "stage.json").read_text())
    record = {key: planned[key] for key in ("kind", "digest", "versions", "spec", "deps")}
    (results / kind / digest / "record.json").write_text(json.dumps({**record, "metrics": {}, "files": {}}))


def reasons(root: Path, stages: dict[str, dict[str, Any]]) -> dict[str, str]:
    return state.missing_reasons(stages, root / "results", root / "logs")


def test_a_stage_that_failed_says_its_failure_and_what_waits_for_it_names_it(plan: dict, tmp_path: Path) -> None:
    why = reasons(tmp_path, plan)
    assert why["c" * 12] == "failed: step 2 of 9: loss nan"
    assert why["C" * 12] == f"waits for bad/sft@0 [sft {'c' * 12}], which failed: step 2 of 9: loss nan"


def test_a_stage_that_stopped_says_the_last_line_of_its_log(plan: dict, tmp_path: Path) -> None:
    why = reasons(tmp_path, plan)["d" * 12]
    assert why == "stopped before its first save; the last line of its log: Killed by the queue"


def test_a_stage_at_work_is_not_said_to_have_stopped(plan: dict, tmp_path: Path) -> None:
    with open(tmp_path / "results/sft" / ("d" * 12) / "lease", "w") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        assert reasons(tmp_path, plan)["d" * 12] == "running now"


def test_of_two_missing_inputs_the_one_that_failed_is_to_blame(plan: dict, tmp_path: Path) -> None:
    plan["9" * 12] = stage(tmp_path, "tokenizer", "9" * 12, "tokenizer")
    plan["f" * 12] = stage(tmp_path, "rl", "f" * 12, "both/rl@0", data="9" * 12, init="c" * 12)
    plan["g" * 12] = stage(tmp_path, "rl", "g" * 12, "one/rl@0", data="9" * 12)
    why = reasons(tmp_path, plan)
    assert "bad/sft@0" in why["f" * 12]
    assert why["g" * 12] == f"waits for tokenizer [tokenizer {'9' * 12}], which was not run yet"


def test_what_to_mend_first_comes_with_the_number_of_stages_behind_it(plan: dict, tmp_path: Path) -> None:
    plan["f" * 12] = stage(tmp_path, "rl", "f" * 12, "bad/rl@0", init="c" * 12)
    found = write_page.gaps(plan, reasons(tmp_path, plan))
    assert [(gap.label, gap.waiting) for gap in found] == [("bad/sft@0", 2), ("late/sft@0", 1)]


def spec() -> ReportSpec:
    arms = [study.arm(name, 0, [f"base:pretrain:{'a' * 12}", f"sft:sft:{letter * 12}"], letter.upper() * 12)
            for name, letter in (("good", "b"), ("bad", "c"), ("late", "d"))]  # fmt: skip
    claim = {
        "says": "It lifts",
        "test": {"difference": "strict_pass@1", "band": "edge", "arm": "bad", "against": "good", "at_least": 0.0},
    }
    tables = {"main": {"columns": ["id", "edge"], "cells": ["strict_pass@1"]}}
    return study.spec(arms, tables=tables, claims=[claim], figures={"ops": {"x": "op", "y": "strict_pass@1"}})


def test_the_page_of_an_unfinished_study_shows_the_arms_that_stand_and_why_the_others_are_missing(
    plan: dict, tmp_path: Path
) -> None:
    out = tmp_path / "results/by-name/toy.smoke/partial"
    (out / "tables").mkdir(parents=True)
    (out / "tables/of_an_older_plan.csv").write_text("")
    page = write_page.render_partial(spec(), plan, tmp_path / "results", out).read_text()
    assert "This page is partial:" in page
    assert "<b>bad/sft@0</b>" in page
    assert "step 2 of 9: loss nan" in page
    assert "Killed by the queue" in page
    assert "Missing: bad, late." in page
    rows = (out / "tables/main.csv").read_text().splitlines()
    assert next(row for row in rows if row.startswith("good,,edge,strict_pass@1")).split(",")[4] == "0.25"
    assert "which failed: step 2 of 9: loss nan" in next(row for row in rows if row.startswith("bad,,edge,strict_pass@1"))
    assert not (out / "tables/of_an_older_plan.csv").exists()
    (judged,) = json.loads((out / "claims.json").read_text())
    assert judged["verdict"] == "not judged"
    assert "loss nan" in judged["reason"]


def test_a_run_without_a_failure_does_not_pay_for_the_page() -> None:
    code = "import sys, interplay.run.graph; print({'pandas', 'matplotlib', 'jinja2', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
