"""Bad input: one line naming file, key, value and remedy; exit code 2; no traceback, no job, nothing left behind."""

import subprocess
from pathlib import Path

import pytest
from conftest import Laboratory

from interplay.cli import main

QUICKSTART = "configs/study/quickstart.yaml"
SMOKE_SCALE = "configs/scale/smoke.yaml"


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    lines = [line for line in result.stderr.splitlines() if line.startswith("interplay: ")]
    assert result.returncode == 2, result.stderr
    assert len(lines) == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in lines[0], lines[0]


CASES = {
    "an unknown key": (
        QUICKSTART,
        "validation: held_out}",
        "validation: held_out, tokns: 3}",
        ("quickstart.yaml", "tokns", "tokens"),
    ),
    "an unknown study key": (QUICKSTART, "question:", "qestion:", ("quickstart.yaml", "qestion", "question")),
    "a mix that sums to 1.8": (QUICKSTART, "data: {corpus: 1.0}", "data: {corpus: 1.0, edge: 0.8}", ("stages.base.data", "1.8")),
    "an op outside the task": (SMOKE_SCALE, "hard: [3]", "hard: [60]", ("op 60", "outside the task's range")),
    "a band that is not there": (
        QUICKSTART,
        "edge: {band: edge, split: rl}",
        "edge: {band: egde, split: rl}",
        ("egde", "did you mean 'edge'"),
    ),
    "an arm with an unknown stage": (
        QUICKSTART,
        "base: {path: [base]}",
        "base: {path: [bsae]}",
        ("arms.base.path", "bsae", "did you mean 'base'"),
    ),
    "an unknown metric": (QUICKSTART, "cells: [strict_pass@1, answer", "cells: [strict@1, answer", ("strict@1", "strict_pass@K")),
    "a missing model folder": (
        QUICKSTART,
        "base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}",
        "base: {kind: source, path: nowhere/model}",
        ("nowhere/model", "no model there"),
    ),
    "a custom reward without its file": (
        QUICKSTART,
        "rl: {kind: rl, data: {edge: 1.0}}",
        "rl: {kind: rl, data: {edge: 1.0}, reward: {name: custom, function: 'mine.py:score'}}",
        ("mine.py:score", "no file mine.py"),
    ),
    "YAML that does not parse": (QUICKSTART, "evaluate: [eval]", "evaluate: [eval", ("quickstart.yaml",)),
    "a claim that the replicates cannot show": (
        QUICKSTART,
        "exploratory: true                        # some claims have a power below 0.8 (`interplay plan`)",
        "scales: {smoke: {pilot: {bases: 20, seeds: 5, prompts: 30, source: a guess}}}",
        ("quickstart.yaml: claims: power 0.", "RL at the edge lifts the edge", "`exploratory: true`"),
    ),
    "a number that is none": (SMOKE_SCALE, "steps: 4", "steps: many", ("steps", "'many'")),
}


@pytest.mark.parametrize("case", CASES)
def test_a_study_is_refused_in_one_line_for(
    case: str, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line plans by the same call as the Snakefile."""
    file, old, new, words = CASES[case]
    laboratory.edit(file, old, new)
    monkeypatch.chdir(laboratory.folder)
    code = main(["plan", "quickstart", "--scale", "smoke"])
    refused(subprocess.CompletedProcess("", code, "", capsys.readouterr().err), *words)


STOPPED = ("an unknown key", "a mix that sums to 1.8", "an op outside the task", "a missing model folder")


@pytest.mark.parametrize("case", [*STOPPED, "a claim that the replicates cannot show"])
def test_snakemake_starts_no_job_and_leaves_nothing_behind_for(case: str, laboratory: Laboratory) -> None:
    file, old, new, words = CASES[case]
    laboratory.edit(file, old, new)
    refused(laboratory.snakemake("study=quickstart", "scale=smoke"), *words)
    assert not (laboratory.folder / "results").exists()
    assert not (laboratory.folder / "logs").exists()


def test_an_unknown_study_or_scale_is_refused_with_the_nearest_name(laboratory: Laboratory) -> None:
    refused(laboratory.snakemake("study=quickstrat"), "did you mean 'quickstart'")
    refused(laboratory.snakemake("scale=labtop"), "did you mean 'laptop'")


def test_a_misspelt_target_or_key_of_the_configuration_is_named_without_a_traceback(laboratory: Laboratory) -> None:
    """A target is Snakemake's own, and so are the words about it."""
    refused(laboratory.snakemake("stduy=quickstart"), "stduy", "did you mean 'study'")
    unknown = laboratory.run("snakemake", "alll", "--cores", "1", "--config", "scale=smoke")
    assert unknown.returncode == 1
    assert "No rule to produce alll" in unknown.stderr
    assert "Traceback" not in unknown.stdout + unknown.stderr
    assert not (laboratory.folder / "results").exists()


def test_results_that_cannot_be_written_are_refused(laboratory: Laboratory) -> None:
    (laboratory.folder / "results").write_text("in the way")
    refused(laboratory.snakemake("scale=smoke"), "results", "not writable")


def test_a_corrupted_payload_is_named_before_any_job_and_by_the_stage_that_would_read_it(
    finished: Laboratory, tmp_path: Path
) -> None:
    copy = Laboratory(tmp_path / "copy")
    subprocess.run(["cp", "-r", str(finished.folder / "results"), str(copy.folder)], check=True)
    report = (copy.folder / "results/by-name/quickstart.smoke/report").resolve()
    (report / "record.json").unlink()
    damaged = next(copy.folder.glob("results/evaluate/*/prompts.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-7])
    refused(copy.snakemake("study=quickstart", "scale=smoke"), "prompts.parquet", "corrupted")
    refused(copy.run("python", "-m", "interplay.run.stage", "run", report.name), "prompts.parquet", "corrupted")
    assert not (report / "record.json").exists()


def test_what_is_to_come_from_outside_and_is_not_there_is_named_before_any_job(laboratory: Laboratory) -> None:
    config = ("study=smollm2/keychain_gsm8k", "scale=laptop")
    refused(laboratory.snakemake(*config), "gsm8k_train.jsonl: no such file", "source 019771a02e69", "interplay adopt")
    assert not (laboratory.folder / "results").exists()
    assert laboratory.snakemake(*config, flags=("-n",)).returncode == 0
