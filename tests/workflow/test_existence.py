"""Law 2: what exists leaves the graph."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, Laboratory, kill_group, saves, wait_for

SMOKE = ("study=quickstart", "scale=smoke")


def attempts(laboratory: Laboratory) -> dict[str, list[int]]:
    """How often the stages of each kind were started."""
    found: dict[str, list[int]] = {}
    for path in laboratory.folder.glob("results/*/*/telemetry.json"):
        found.setdefault(path.parent.parent.name, []).append(json.loads(path.read_text())["attempts"])
    return found


def test_the_smoke_study_ends_with_a_report_its_tables_and_figures(finished: Laboratory) -> None:
    report = finished.folder / "results/by-name/quickstart.smoke/report"
    assert (report / "report.html").stat().st_size > 10_000
    assert {p.suffix for p in (report / "tables").iterdir()} == {".csv", ".md", ".tex"}
    assert {p.suffix for p in (report / "figures").iterdir()} == {".png", ".svg"}


def test_a_forced_run_does_nothing(finished: Laboratory) -> None:
    before = {name: (finished.folder / name).stat().st_mtime_ns for name in finished.records()}
    assert len(before) == 14
    for flags in (("-F",), ("--forcerun", "pretrain")):
        result = finished.snakemake(*SMOKE, flags=flags)
        assert result.returncode == 0, result.stderr
    assert {name: (finished.folder / name).stat().st_mtime_ns for name in finished.records()} == before


def test_nothing_is_redone_after_a_clone_without_snakemakes_memory(finished: Laboratory, tmp_path: Path) -> None:
    copy = Laboratory(tmp_path)
    shutil.copytree(finished.folder / "results", tmp_path / "results", symlinks=True)
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path)
    result = copy.snakemake(*SMOKE)
    assert result.returncode == 0
    assert "python -m interplay.run.stage" not in result.stderr
    assert copy.records() == finished.records()


def test_killing_snakemake_with_its_children_needs_no_unlock_and_goes_on_from_what_was_saved(
    finished: Laboratory, laboratory: Laboratory
) -> None:
    """While an evaluation is made; `test_rl_loop` kills RL, `test_forkserver` and `test_kills` the training of a base."""
    laboratory.take_data(finished, "pretrain", "rl")
    laboratory.edit("configs/scale/smoke.yaml", "evaluate: {", "evaluate: {run: {save_minutes: 0.0}, ")
    process = laboratory.start(*SMOKE)
    folders = (laboratory.folder / "results/evaluate").glob
    wait_for(lambda: any(saves(out) for out in folders("*")))
    kill_group(process)
    digest, shards = next((out.name, saves(out)) for out in folders("*") if saves(out))
    done = laboratory.records()
    result = laboratory.snakemake(*SMOKE, flags=("--until", "evaluate"))
    assert result.returncode == 0, result.stderr
    assert laboratory.records() == {path: record for path, record in finished.records().items() if "/report/" not in path}
    assert done.items() <= finished.records().items()
    log = (laboratory.folder / "logs/evaluate" / f"{digest}.log").read_text()
    assert any(f"going on from {number}/" in log for number in range(shards, shards + 2))


def test_an_orphan_of_a_killed_snakemake_is_waited_for_and_not_doubled(finished: Laboratory, laboratory: Laboratory) -> None:
    laboratory.take_data(finished)
    process = laboratory.start(*SMOKE)
    wait_for(lambda: any(laboratory.folder.glob("results/pretrain/*/metrics.jsonl")))
    process.kill()
    result = laboratory.snakemake(*SMOKE, flags=("--until", "pretrain"))
    assert result.returncode == 0, result.stderr
    assert any("/pretrain/" in path for path in laboratory.records())
    assert laboratory.records().items() <= finished.records().items()
    assert attempts(laboratory)["pretrain"] == [1]


@pytest.mark.slow
def test_two_snakemakes_at_once_compute_each_stage_once_and_get_the_bytes_of_another_place(
    finished: Laboratory, laboratory: Laboratory
) -> None:
    laboratory.take_data(finished)
    processes = [laboratory.start(*SMOKE), laboratory.start(*SMOKE)]
    assert [process.wait() for process in processes] == [0, 0]
    assert laboratory.records() == finished.records()
    tables = "results/by-name/quickstart.smoke/report/tables/main.csv"
    assert (laboratory.folder / tables).read_bytes() == (finished.folder / tables).read_bytes()
    assert {number for numbers in attempts(laboratory).values() for number in numbers} == {1}
    assert "holds its lease; waiting for the record" in "".join(p.read_text() for p in laboratory.folder.glob("logs/*/*.log"))


@pytest.mark.slow
def test_two_studies_at_once_make_what_they_share_once(laboratory: Laboratory) -> None:
    processes = [laboratory.start(*SMOKE), laboratory.start("study=edge", "scale=smoke")]
    assert [process.wait(900) for process in processes] == [0, 0]
    assert len(laboratory.records()) == 46 + 1
    assert {number for numbers in attempts(laboratory).values() for number in numbers} == {1}


def test_the_slurm_profile_plans_as_typed_and_writes_nothing(laboratory: Laboratory) -> None:
    result = laboratory.run("snakemake", "--profile", "slurm", "-n", "all")
    assert result.returncode == 0, result.stderr
    assert not (laboratory.folder / "results").exists()


def test_planning_imports_no_torch(laboratory: Laboratory) -> None:
    code = (
        "import sys; from pathlib import Path; from interplay.study.expand import plan_study; "
        "plan_study(Path('configs'), 'edge', 'laptop'); sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'pandas')))"
    )
    assert subprocess.run(["python", "-c", code], cwd=laboratory.folder, env=laboratory.env, check=False).returncode == 0


def test_a_report_of_snakemake_shows_finished_stages_with_runtimes_figures_and_tables(finished: Laboratory) -> None:
    made = finished.run(
        "snakemake", "all", "--report", "report.html", "--config", "study=quickstart", "scale=smoke", "finished=true"
    )
    assert made.returncode == 0, made.stderr
    text = (finished.folder / "report.html").read_text()
    assert len(re.findall('"starttime": "20', text)) >= 10
    assert "reward.svg" in text
    assert "main.csv" in text
    (finished.folder / "report.html").unlink()
    refused = finished.snakemake("study=quickstart", "scale=smoke", "finished=true")
    assert refused.returncode != 0
    assert "only for `snakemake --report FILE`" in refused.stderr
    assert "Finished jobid" not in refused.stderr


def test_the_entry_of_the_workflow_catalog_keeps_its_rules() -> None:
    """Those of snakemake/snakemake-workflow-catalog that need no network; the linter and the formatter have tests of their own."""
    readme = (ROOT / "README.md").read_text().lower()
    assert "snakemake" in readme
    assert "workflow" in readme
    assert (ROOT / "config/README.md").exists()
    assert list((ROOT / "rules").glob("*.smk"))
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage.keys() == {"mandatory-flags", "software-stack-deployment", "report"}
