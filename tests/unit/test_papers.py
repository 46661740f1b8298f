"""The page of papers: verdicts and numbers of committed results, and none of results that the plan has moved away from."""

import difflib
import functools
import gzip
import json
import re
import shutil
from itertools import chain
from pathlib import Path

import pytest
import report_study as study
import yaml
from conftest import ROOT

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.report.write import page, summary
from interplay.study import expand
from interplay.study.plan import Plan, Stage
from interplay.study.spec import Study
from tools.reference import __main__ as reference, committed, first_edition, lists, numbers, papers, verdicts

PAPER = lists.Paper(title="A Paper", arxiv="2512.07783", study="folder/toy", table="main", finding="It lifts.", row="rl")
OTHER = lists.Paper(title="Another", arxiv="2510.01135", study="folder/toy", table="main", finding="It does not.")
ENTRY = {
    "study": "folder/toy",
    "scale": "laptop",
    "claim": "It lifts",
    "verdict": "supported",
    "reason": "floor",
    "because": "Both arms are at 0.",
}
ALL = lists.papers(ROOT)
TEST = {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base"}
CLAIMS = [
    {
        "says": "It lifts",
        "source": "arXiv:2512.07783, Figure 1",
        "published": "+42 points",
        "scale_note": "Small",
        "test": {**TEST, "at_least": 0.1},
    },
    {"says": "It does not", "source": "arXiv:2510.01135", "test": {**TEST, "at_most": 0.0}},
]
"""Of the toy study, which has a lock and no YAML."""


def place(root: Path, *listed: lists.Paper) -> None:
    """Write docs/data/papers.yaml."""
    (root / "docs/data").mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump([paper.model_dump(exclude_defaults=True) for paper in listed])
    (root / lists.PAPERS).write_text(text)


def withdraw(root: Path, *entries: dict) -> None:
    """Write docs/data/withdrawn.yaml."""
    (root / lists.WITHDRAWN).write_text(yaml.safe_dump(list(entries)))


def test_docs_papers_is_what_locks_and_results_say() -> None:
    written, made = (ROOT / "docs/papers.md").read_text().splitlines(), papers.page(ROOT).splitlines()
    diff = "\n".join(difflib.unified_diff(written, made, "docs/papers.md", "the results", lineterm="", n=0))
    assert not diff, f"run `make docs` and commit it:\n{diff}"


def test_the_overview_of_verdicts_is_that_of_the_committed_results() -> None:
    for path, text in verdicts.picture(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, "run `make docs`"
        ends = [float(left) + float(width) for left, width in re.findall(r'<rect x="([\d.]+)"[^>]*? width="(\d+)"', text)]
        assert max(ends) < verdicts.WIDTH, "the longest row of marks fits"


def whole(root: Path) -> str:
    """The page, the claims and the sections on all papers."""
    return "\n\n".join([papers.page(root), papers.claim_page(root), *(papers.section(root, one) for one in lists.papers(root))])


@functools.cache
def at_laptop(study: str) -> Study:
    """Some studies show several papers."""
    return expand.load(ROOT / "configs", study, "laptop")[0]


@pytest.mark.parametrize("paper", ALL, ids=lambda paper: paper.title)
def test_the_table_and_the_arm_that_a_paper_names_are_in_its_study(paper: lists.Paper) -> None:
    made = at_laptop(paper.study)
    assert paper.table in made.tables
    assert not paper.row or paper.row in made.arms


OWN_QUESTIONS = (
    "interplay.sizes_nano.",
    "interplay.sizes_next.",
    "numerics.",
    "methods.engines",
    "methods.mind.",
    "methods.pipeline.",
)
"""Beginnings of the names of results that no paper is about: those of sizes, of the arithmetic and of the trainers, and two whose
papers another study shows since."""


def test_every_paper_is_placed_once_and_every_result_has_a_paper() -> None:
    assert len({(paper.arxiv, paper.study) for paper in ALL}) == len(ALL)
    known = {f"{paper.study.replace('/', '.')}.{scale}.json.gz" for paper in ALL for scale in committed.SCALES}
    known |= {f"{row.study.replace('/', '.')}.{row.ran}.json.gz" for row in chain(*lists.evidence(ROOT).values())}
    found = {path.name for path in (ROOT / "docs/results").glob("*.json.gz")}
    assert {name for name in found if not name.startswith(OWN_QUESTIONS)} <= known


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
    spec = study.spec(
        arms,
        study="folder/toy",
        scale="laptop",
        tables={"main": {"columns": ["edge"], "cells": ["strict_pass@1"], "contrast": {"against": "base", "noise": "again"}}},
        lineups={"main": {"against": "base", "contenders": contenders, "twins": {"again": "base"}}},
        claims=CLAIMS,
    )
    report = Stage.make("report", spec, {}, Run(), "report")
    plan = Plan("folder/toy", "laptop", {report.digest: report}, report.digest)
    out = study.write_record(
        tmp_path / "results", plan.report, "report", {}, page.write_report(spec, inputs, tmp_path / "made", Run())
    )
    (out / "claims.json").write_bytes((tmp_path / "made/claims.json").read_bytes())
    plan.lock_path(tmp_path / "configs").parent.mkdir(parents=True)
    plan.lock_path(tmp_path / "configs").write_text(plan.lock())
    summary.write_summary(plan, tmp_path / "results", tmp_path / "docs/results/folder.toy.laptop.json.gz")
    place(tmp_path, PAPER, OTHER)
    (tmp_path / lists.PLACES).write_text("Placement by evidence: []\n")
    return tmp_path


def test_a_claim_is_listed_with_its_verdict_and_number_under_the_paper_that_its_source_names(root: Path) -> None:
    written = whole(root)
    _, first, second = written.split("\n## ")[1:]
    assert "- **supported**: It lifts. strict pass@1 of rl − base on edge: +39.6 [" in first
    assert "- **refuted**: It does not. " in second
    assert "It does not." not in first.split("- **")[1]
    assert "| laptop: 1 supported, 1 better |" in written
    assert "- **better** (edge strict pass@1): +39.6 [" in first
    assert "noise floor 2.1, adjusted p 0.00" in first


def test_seeds_of_one_base_say_at_most_that_something_is_indicated(root: Path) -> None:
    path = root / "docs/results/folder.toy.laptop.json.gz"
    result = artifact.read_json(path)
    for bases, words in ((3, ("supported", "refuted", "better")), (1, ("indicated", "indicated against", "better here"))):
        path.write_bytes(gzip.compress(json.dumps({**result, "stages": {**result["stages"], "pretrain": bases}}).encode()))
        written = whole(root)
        assert f"- **{words[0]}**: It lifts. " in written
        assert f"- **{words[1]}**: It does not. " in written
        assert f"| laptop: 1 {words[0]}, 1 {words[2]} |" in written
        assert ("; one base for all seeds:" in written) == (bases == 1)


def test_a_withdrawn_claim_is_printed_as_withdrawn_with_its_reason_and_with_no_other_verdict(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed, "claims", lambda root, study, scale: CLAIMS)
    withdraw(root, ENTRY)
    written = whole(root)
    _, first, second = written.split("\n## ")[1:]
    assert "- **withdrawn** (was supported; floor): It lifts. strict pass@1 of rl − base on edge: +39.6 [" in first
    assert "Why it is withdrawn: Both arms are at 0." in first
    assert "**supported**" not in first
    assert "| laptop: 1 withdrawn, 1 better |" in written
    assert "- **refuted**: It does not. " in second, "only the claim that an entry names is withdrawn"
    (root / "docs/results/folder.toy.laptop.json.gz").rename(root / "docs/results/interplay.toy.laptop.json.gz")
    (root / "configs/plans/interplay").mkdir()
    (root / "configs/plans/folder/toy.laptop.lock.json").rename(root / "configs/plans/interplay/toy.laptop.lock.json")
    withdraw(root, {**ENTRY, "study": "interplay/toy"})
    (row, other) = papers.study_rows(root, "interplay/toy")
    assert row[5] == "**withdrawn** (was supported; floor): Both arms are at 0."
    assert other[5] == "**refuted**"


def test_a_claim_of_the_first_edition_stands_as_the_study_that_asked_last_says(root: Path) -> None:
    shutil.copy(root / "configs/plans/folder/toy.laptop.lock.json", root / "configs/plans/folder/again.laptop.lock.json")
    result = artifact.read_json(root / "docs/results/folder.toy.laptop.json.gz")
    lifts, does_not = result["claims"]
    claims = [{**lifts, "verdict": "no information"}, {**does_not, "says": "It lifts nothing", "verdict": "equivalent"}]
    again = {**result, "study": "folder/again", "claims": claims}
    (root / "docs/results/folder.again.laptop.json.gz").write_bytes(gzip.compress(json.dumps(again).encode()))
    entry = {"study": "folder/toy", "claims": 2}
    reworded = {**entry, "again": ["folder/again"], "says": [{"claim": "It does not", "now": "It lifts nothing"}]}
    for written, cells in (
        (entry, "| folder/toy | 2 | 1 | 1 | 0 | – |"),
        ({**entry, "again": ["folder/again"]}, "| folder/toy | 2 | 0 | 1 | 1 | folder/again |"),
        (reworded, "| folder/toy | 2 | 1 | 0 | 1 | folder/again |"),
    ):
        (root / first_edition.LIST).write_text(yaml.safe_dump([written]))
        assert cells in papers.page(root)
    other = {**claims[0], "test": {**claims[0]["test"], "difference": "answer_pass@1"}}
    (root / "docs/results/folder.again.laptop.json.gz").write_bytes(
        gzip.compress(json.dumps({**again, "claims": [other, claims[1]]}).encode())
    )
    (root / first_edition.LIST).write_text(yaml.safe_dump([{**entry, "again": ["folder/again"]}]))
    assert "| folder/toy | 2 | 1 | 1 | 0 | folder/again |" in papers.page(root), "another metric is another claim"
    for wrong, said in (
        ({**entry, "claims": 3}, "folder/toy has 2 claims in docs/results; claims is 3; correct it"),
        (
            {**reworded, "says": [{"claim": "It does not", "now": "It sinks"}]},
            "says matches no claim: 'It does not' -> 'It sinks'; correct it",
        ),
        (
            {**reworded, "says": [{"claim": "It sinks", "now": "It lifts nothing"}]},
            "says matches no claim: 'It sinks' -> 'It lifts nothing'; correct it",
        ),
        ({**entry, "study": "folder/gone"}, "folder/gone: no result of it in docs/results counts; correct the name"),
    ):
        (root / first_edition.LIST).write_text(yaml.safe_dump([wrong]))
        with pytest.raises(UserError, match=re.escape(said)):
            papers.page(root)


def test_a_result_of_an_earlier_plan_is_shown_as_one_when_it_is_listed(root: Path) -> None:
    lock = root / "configs/plans/folder/toy.laptop.lock.json"
    report = json.loads(lock.read_text())["report"]
    entry = {"date": "2026-11-25", "because": "its bases were smaller", "reports": {"folder.toy.laptop": report}}
    (root / lists.SUPERSEDED).write_text(yaml.safe_dump([entry]))
    (line,) = committed.stale(root)
    assert line == f"{lists.SUPERSEDED}: folder.toy.laptop is of the plan as it is; remove it"

    lock.write_text(lock.read_text().replace(report, "0" * 12))
    assert committed.stale(root) == []
    written = whole(root)
    assert "| laptop, an earlier plan: 1 supported, 1 better |" in written
    assert "An earlier plan: its bases were smaller. Not run again since 2026-11-25." in written
    assert "- **supported**: It lifts. " in written

    (root / lists.SUPERSEDED).write_text(yaml.safe_dump([{**entry, "reports": {"folder.toy.laptop": "1" * 12}}]))
    stale, unknown = committed.stale(root)
    assert "is of report" in stale
    assert unknown == f"{lists.SUPERSEDED}: docs/results has no folder.toy.laptop.json.gz of {'1' * 12}; remove it"
    assert committed.results(root, "folder/toy") == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"claim": "It lift"}, "folder/toy at laptop has no claim 'It lift'; did you mean 'It lifts'?"),
        ({"verdict": "refuted"}, "the claim 'It lifts' of folder/toy at laptop is supported by now and not refuted; read"),
        ({"scale": "gpu"}, "folder/toy has no result of its plan at scale gpu, so there is nothing to withdraw"),
        ({"study": "folder/gone"}, "folder/gone has no result of its plan at scale laptop"),
        ({"reason": "flor"}, "entry 1.reason = 'flor': should be 'floor', "),
        ({"becase": "x"}, "entry 1.becase: unknown key 'becase'; did you mean 'because'?"),
    ],
)
def test_an_entry_that_matches_no_claim_is_refused_in_one_line_and_nothing_is_written(
    change: dict, said: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    withdraw(root, {**ENTRY, **change})
    monkeypatch.chdir(root)
    assert said in refused("papers", lists.WITHDRAWN, capsys)


def refused(page: str, file: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line about a file of this folder's project for which its page is not made."""
    assert reference.main([page]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{file}: ")
    assert not Path(f"docs/{page}.md").exists()
    return line


def test_a_claim_is_withdrawn_once(root: Path) -> None:
    withdraw(root, ENTRY, ENTRY)
    with pytest.raises(UserError, match="has the claim 'It lifts' twice; remove one"):
        papers.page(root)


def test_no_withdrawn_claim_of_the_project_has_a_verdict_on_the_page() -> None:
    written = whole(ROOT)
    entries = lists.withdrawals(ROOT)
    assert entries
    for entry in entries:
        found = committed.results(ROOT, entry.study)[entry.scale]
        assert [claim["verdict"] for claim in found["claims"] if claim["says"] == entry.claim] == [lists.WITHDRAWN_VERDICT]
    printed = []
    for part in written.split("\n## "):
        study = re.search(r"configs/study/(\S+)\.yaml", part)
        for entry in entries if study else ():
            if entry.study == study[1]:
                verdicts = re.findall(rf"^- \*\*([a-z ]+)\*\*[^:]*: {re.escape(entry.claim)}\. ", part, re.MULTILINE)
                assert set(verdicts) <= {"withdrawn"}, entry.claim
                printed += verdicts
    assert len(printed) >= len(entries), "every entry is printed under a paper, some under two"


def test_the_note_of_a_paper_is_shown(root: Path) -> None:
    place(root, lists.Paper(**{**PAPER.model_dump(), "study": "old", "note": "Its design was changed."}))
    assert "Note: Its design was changed." in whole(root)


def test_a_result_of_another_plan_than_the_locked_one_is_not_shown(root: Path) -> None:
    lock = root / "configs/plans/folder/toy.laptop.lock.json"
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "report": "f" * 12}))
    place(root, PAPER)
    written = whole(root)
    assert written.count(committed.NOT_RUN) == 2
    assert "**supported**" not in written


def test_a_study_without_results_or_without_a_lock_was_not_run(root: Path) -> None:
    (root / "configs/plans/folder/toy.laptop.lock.json").unlink()
    assert committed.results(root, "folder/toy") == {}
    assert committed.results(root, "none") == {}


def test_the_address_of_a_paper_is_that_of_its_section() -> None:
    written = whole(ROOT)
    for paper in ALL:
        heading = f"{paper.title} ({paper.arxiv})"
        assert f"## {heading}\n" in written
        anchor = "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")
        assert papers.address(paper).endswith(f"#{anchor}")


def test_every_claim_of_the_central_paper_has_a_line_run_or_not(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = root / "configs/plans"
    monkeypatch.setattr(committed, "claims", lambda root, study, scale: CLAIMS)
    (plans / "interplay").mkdir()
    (plans / "folder/toy.laptop.lock.json").rename(plans / "interplay/toy.laptop.lock.json")
    paper = PAPER.model_copy(update={"study": "interplay/toy"})
    rows = [row.split(" | ") for row in papers.claim_table(root, (paper, OTHER)).splitlines()[2:]]
    assert [row[1] for row in rows] == [claim["says"] for claim in CLAIMS]
    assert rows[0][2:] == ["arXiv:2512.07783, Figure 1", "+42 points", committed.NOT_RUN, "–", "Small |"]
    assert rows[1][3] == "–"
    old = root / "docs/results/folder.toy.laptop.json.gz"
    old.rename(root / "docs/results/interplay.toy.laptop.json.gz")
    (first, _) = papers.study_rows(root, "interplay/toy")
    assert first[4].startswith("laptop: +39.6 [")
    assert first[4].endswith(" points for any base, any prompt (3 bases, 1 prompts)")
    assert first[5] == "**supported**"


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ({"arm": "rl", "against": "base", "band": "edge", "difference": "nll"}, "nll of rl − base on edge: -0.012 [-0.020, +0.004] nats per token over 3 seeds."),
        ({"arm": "rl", "band": "edge", "value": "score"}, "score of rl on edge: -1.2 [-2.0, 0.4] % over 3 seeds."),
        ({"arm": "rl", "against": "base", "band": "edge", "difference": "score"}, "score of rl − base on edge: -1.2 [-2.0, +0.4] points over 3 seeds."),
    ],
)  # fmt: skip
def test_a_number_has_the_unit_of_its_metric(test: dict, said: str) -> None:
    found = {"value": -0.012, "low": -0.02, "high": 0.004, "over": "3 seeds"}
    assert numbers.of_claim({"test": test, "estimate": found}) == said
    assert numbers.of_claim({"test": test, "estimate": {"value": None}}) == f"{numbers.ABSENT}."


def test_a_contrast_has_the_unit_of_its_metric() -> None:
    entry = {"difference": [-0.012, -0.02, 0.004], "floor": 0.021, "adjusted": 0.5}
    assert numbers.of_contrast("strict_pass@1", entry) == "-1.2 [-2.0, +0.4] points, noise floor 2.1, adjusted p 0.500"
    assert numbers.of_contrast("nll", entry).endswith("nats per token, noise floor 0.021, adjusted p 0.500")
