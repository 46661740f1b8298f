"""Bad input: one line naming file, key, value and remedy; exit code 2; no traceback, no job, nothing left behind."""

import subprocess
from pathlib import Path

import pytest
from conftest import Laboratory

QUICKSTART = "configs/study/quickstart.yaml"
SMOKE_SCALE = "configs/scale/smoke.yaml"


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    lines = [line for line in result.stderr.splitlines() if line.startswith("interplay: ")]
    assert result.returncode == 2, result.stderr
    assert len(lines) == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in lines[0], lines[0]


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        (SMOKE_SCALE, "hard: [3]", "hard: [60]", ("op 60", "outside the task's range")),
        (
            QUICKSTART,
            "exploratory: true                        # some claims have a power below 0.8 (`interplay plan`)",
            "scales: {smoke: {pilot: {bases: 20, seeds: 5, prompts: 30, source: a guess}}}",
            ("quickstart.yaml: claims: power 0.", "RL at the edge lifts the edge", "`exploratory: true`"),
        ),
    ],
    ids=["an op outside the task", "a claim that the replicates cannot show"],
)
def test_snakemake_starts_no_job_and_leaves_nothing_behind_for(
    laboratory: Laboratory, file: str, old: str, new: str, words: tuple[str, ...]
) -> None:
    """It plans by the same call as the command line, which `test_wrong_inputs` gives many more."""
    laboratory.edit(file, old, new)
    refused(laboratory.snakemake("study=quickstart", "scale=smoke"), *words)
    assert not (laboratory.folder / "results").exists()
    assert not (laboratory.folder / "logs").exists()


def test_a_misspelt_target_or_word_of_the_configuration_is_named_without_a_traceback(laboratory: Laboratory) -> None:
    """A target is Snakemake's own, and so are the words about it."""
    refused(laboratory.snakemake("stduy=quickstart"), "stduy", "did you mean 'study'")
    refused(laboratory.snakemake("scale=labtop"), "did you mean 'laptop'")
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
