"""A failed arm leaves the others standing."""

import json
import shutil

import browser
from conftest import Laboratory

SMOKE = ("study=quickstart", "scale=smoke")
STUDY = "configs/study/quickstart.yaml"
STAGE = ("  eval: {kind", "  gold: {kind: sft, data: {edge: 1.0}, validation: held_out}\n  eval: {kind")
ARM = (
    "evaluate: [eval]",
    "  broken: {path: [base, gold], control: base, set: {gold.optimizer.learning_rate: 1.0e+30}}\nevaluate: [eval]",
)


def test_the_page_shows_what_is_there_and_names_what_failed_and_why(finished: Laboratory, laboratory: Laboratory) -> None:
    shutil.copytree(finished.folder / "results", laboratory.folder / "results", symlinks=True)
    sound = (laboratory.folder / STUDY).read_text()
    for old, new in (STAGE, ARM):
        laboratory.edit(STUDY, old, new)
    result = laboratory.run("interplay", "run", "quickstart", "--scale", "smoke", "--cores", "2")
    partial = laboratory.folder / "results/by-name/quickstart.smoke/partial"
    assert result.returncode == 1
    *_, cause, command = result.stdout.splitlines()
    assert cause.startswith("quickstart.smoke/broken/gold@0 failed: step 2 of 22: loss")
    assert command.startswith("next: `interplay debug quickstart.smoke/broken/gold@0` makes it again")
    assert "no backup found" not in result.stderr
    again = laboratory.snakemake(*SMOKE)
    assert again.returncode == 1
    assert again.stderr.splitlines()[-2:] == [cause, command], "Snakemake's own words come before them"
    assert "partial report: results/by-name/quickstart.smoke/partial/report.html" in result.stdout + result.stderr
    assert finished.records().items() <= laboratory.records().items()
    page = (partial / "report.html").read_text()
    assert "This page is partial:" in page
    assert "<b>broken/gold@0</b>" in page
    assert "lower the learning rate" in page
    cells = browser.read_provenance(page)["cells"]
    sound_table = finished.folder / "results/by-name/quickstart.smoke/report/tables/main.csv"
    assert set(sound_table.read_text().splitlines()) <= set((partial / "tables/main.csv").read_text().splitlines())
    assert "lower the learning rate" in cells["main/broken/edge/strict_pass@1"]["missing"][0]

    shutil.rmtree(partial)
    asked = laboratory.run("interplay", "report", "quickstart", "--scale", "smoke")
    assert (asked.returncode, asked.stdout) == (0, "partial report: results/by-name/quickstart.smoke/partial/report.html\n")
    assert (partial / "report.html").exists()

    (laboratory.folder / STUDY).write_text(sound)
    result = laboratory.run("interplay", "run", STUDY, "--scale", "smoke", "--cores", "2")
    assert result.returncode == 0, result.stderr
    assert " RL at the edge lifts the edge\n" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("report: results/report/")
    assert not partial.exists()
    assert (partial.parent / "report/report.html").exists()


def test_the_page_is_made_again_where_it_is_not_there(finished: Laboratory, laboratory: Laboratory) -> None:
    shutil.copytree(finished.folder / "results", laboratory.folder / "results", symlinks=True)
    page = laboratory.folder / "results/by-name/quickstart.smoke/report/report.html"
    record = (page.parent / "record.json").read_bytes()
    assert "report.html" not in json.loads(record)["files"]
    page.unlink()
    asked = laboratory.run("interplay", "report", "quickstart", "--scale", "smoke")
    assert asked.returncode == 0, asked.stderr
    assert "for this base, any prompt (1 run, " in page.read_text()
    assert (page.parent / "record.json").read_bytes() == record


def test_a_study_of_which_nothing_was_run_has_no_page_and_the_command_says_what_to_do(laboratory: Laboratory) -> None:
    asked = laboratory.run("interplay", "report", "quickstart", "--scale", "smoke")
    assert asked.returncode == 2
    assert "run `interplay run quickstart --scale smoke`" in asked.stderr
    assert not (laboratory.folder / "results").exists()
