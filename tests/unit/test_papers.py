"""The page of papers: verdicts and numbers of committed results, and none of results that the plan has moved away from."""

import difflib
import json
from pathlib import Path

import pytest
import report_study as study
import yaml
from conftest import ROOT, Laboratory

from interplay.reference import committed, papers, published
from interplay.report import page, summary
from interplay.schema.base import UserError
from interplay.schema.run import Run
from interplay.study.graph import plan_study
from interplay.study.plan import Plan, Stage

PAPER = published.Paper("A Paper", "2512.07783", "folder/toy", "main", "It lifts.", "rl")
OTHER = published.Paper("Another", "2510.01135", "folder/toy", "main", "It does not.")


def test_docs_papers_is_what_locks_and_results_say() -> None:
    written, made = (ROOT / "docs/papers.md").read_text().splitlines(), papers.page(ROOT).splitlines()
    diff = "\n".join(difflib.unified_diff(written, made, "docs/papers.md", "the results", lineterm="", n=0))
    assert not diff, f"run `make docs` and commit it:\n{diff}"


@pytest.mark.parametrize("paper", published.PAPERS, ids=lambda paper: paper.title)
def test_the_table_and_the_arm_that_a_paper_names_are_in_its_study(paper: published.Paper) -> None:
    made = yaml.safe_load((ROOT / "configs" / "study" / f"{paper.study}.yaml").read_text())
    assert paper.table in made["tables"]
    assert not paper.row or paper.row in made["arms"]


def test_every_paper_is_placed_once_and_every_result_has_a_paper() -> None:
    assert len({(paper.arxiv, paper.study) for paper in published.PAPERS}) == len(published.PAPERS)
    known = {f"{paper.study.replace('/', '.')}.{scale}.json" for paper in published.PAPERS for scale in committed.SCALES}
    assert {path.name for path in (ROOT / "docs/results").glob("*.json")} <= known


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one finished study of two claims and a contrast, its lock, and its committed summary."""
    inputs, arms = {}, []
    for name, rights in {"base": [4, 5, 6], "rl": [10, 11, 13], "again": [4, 5, 7]}.items():
        for seed, right in enumerate(rights):
            digest = f"{name}{seed}"
            inputs[digest] = study.write_evaluation(tmp_path / "results", digest, {2: [8], 4: [right]}, n=16)
            arms.append(study.arm(name, seed, [f"rl:rl:m{digest}"], digest))
    contenders = [{"name": name, "tries": [{"arm": name}]} for name in ("base", "rl")]
    test = {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base"}
    spec = study.spec(
        arms,
        study="folder/toy",
        scale="laptop",
        tables={"main": {"columns": ["edge"], "cells": ["strict_pass@1"], "contrast": {"against": "base", "noise": "again"}}},
        lineups={"main": {"against": "base", "contenders": contenders, "twins": {"again": "base"}}},
        claims=[
            {"says": "It lifts", "source": "arXiv:2512.07783, Figure 1", "test": {**test, "at_least": 0.1}},
            {"says": "It does not", "source": "arXiv:2510.01135", "test": {**test, "at_most": 0.0}},
        ],
    )
    plan = Plan("folder/toy", "laptop")
    plan.report = plan.add(Stage.make("report", spec, {}, Run(), "report"))
    out = study.write_record(tmp_path / "results", plan.report, "report", {}, page.run(spec, inputs, tmp_path / "made", Run()))
    (out / "claims.json").write_bytes((tmp_path / "made/claims.json").read_bytes())
    plan.lock_path(tmp_path / "configs").parent.mkdir(parents=True)
    plan.lock_path(tmp_path / "configs").write_text(plan.lock())
    summary.write(plan, tmp_path / "results", tmp_path / "docs/results/folder.toy.laptop.json")
    return tmp_path


def test_a_claim_stands_with_its_verdict_and_number_under_the_paper_that_its_source_names(root: Path) -> None:
    written = papers.page(root, (PAPER, OTHER))
    first, second = written.split("\n## ")[1:]
    assert "- **supported**: It lifts. strict pass@1 of rl − base on edge: +39.6 [" in first
    assert "- **refuted**: It does not. " in second
    assert "It does not." not in first.split("- **")[1]
    assert "| laptop: 1 supported, 1 better |" in written
    assert "- **better** (edge strict pass@1): +39.6 [" in first
    assert "noise floor 2.1, adjusted p 0.00" in first


def test_a_result_of_another_plan_than_the_locked_one_is_not_shown(root: Path) -> None:
    lock = root / "configs/plans/folder/toy.laptop.lock.json"
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "report": "f" * 12}))
    written = papers.page(root, (PAPER,))
    assert written.count(committed.NOT_RUN) == 2
    assert "supported" not in written


def test_a_study_without_results_or_without_a_lock_was_not_run(root: Path) -> None:
    (root / "configs/plans/folder/toy.laptop.lock.json").unlink()
    assert committed.results(root, "folder/toy") == {}
    assert committed.results(root, "none") == {}


def test_links_lead_to_the_sections_of_the_page() -> None:
    written = papers.page(ROOT)
    for paper in published.PAPERS:
        heading = f"{paper.title} ({paper.arxiv})"
        assert f"## {heading}\n" in written
        anchor = "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")
        assert f"](#{anchor})" in written


def test_a_finished_study_is_exported_as_one_file_that_its_report_alone_determines(finished: Laboratory, tmp_path: Path) -> None:
    out = tmp_path / "quickstart.smoke.json"
    done = finished.run("interplay", "export", "quickstart", "--scale", "smoke", "-o", str(out))
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    plan = plan_study(finished.folder / "configs", "quickstart", "smoke")
    assert (found["report"], found["scale"], len(found["claims"])) == (plan.report, "smoke", 3)


def test_an_unfinished_study_is_refused_with_the_command_that_finishes_it(tmp_path: Path) -> None:
    plan = plan_study(ROOT / "configs", "quickstart", "smoke")
    with pytest.raises(UserError, match="quickstart is not finished; run `snakemake all --config study=quickstart scale=smoke`"):
        summary.write(plan, tmp_path, tmp_path / "x.json")
