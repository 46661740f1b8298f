"""The paper of a study: tables in LaTeX that fit, figures at their width, BibTeX of what is used, and a file that compiles."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import report_study as study
from command_line import interplay
from conftest import ROOT

from interplay.report.display_spec import Contrast
from interplay.report.spec import Lineup
from interplay.report.stats import contrast, frame
from interplay.report.stats.estimate import Estimate
from interplay.report.write import answers, export, latex, tables, text

SUMMARY = ROOT / "docs" / "results" / "interplay.budget_split.laptop.json.gz"
"""Eleven arms, two grids of axes, names of more than twenty characters."""
ROOM = latex.Room(234, 486)
latex_here = pytest.mark.skipif(not (shutil.which("pdflatex") and shutil.which("bibtex")), reason="no LaTeX here")


def grid(rows: list[str], columns: list[str], metrics: list[str]) -> tables.Grid:
    """Every cell 50 [40.0, 60.0] %."""
    found = Estimate(0.5, 0.4, 0.6, "3 seeds", 60, 16, (0, 1, 2), (0.4, 0.5, 0.6), 3)
    cells = {(r, c, m): tables.Cell(r, "", c, m, found, "") for r in rows for c in columns for m in metrics}
    return tables.Grid(rows, columns, metrics, cells, {})


def test_a_small_table_stays_in_its_column_with_intervals_within_the_line() -> None:
    said = latex.table_latex(latex.grid_float("main", grid(["base", "rl"], ["id", "edge"], ["strict_pass@1"])), ROOM)
    assert r"\begin{table}" in said
    assert r"\multicolumn{2}{c}{strict pass@1}" in said
    assert r"\cmidrule(lr){2-3}" in said
    assert r"rl & \ci{50.0}{40.0}{60.0} & \ci{50.0}{40.0}{60.0} \\" in said
    assert "Problems: 60 each; 16 samples of each." in said
    assert r"\label{tab:main}" in said


def test_what_does_not_fit_goes_beneath_then_across_the_page_then_into_panels_and_floats() -> None:
    bands, metrics = ["id", "edge", "beyond"], ["strict_pass@1", "answer_pass@1"]
    said = latex.table_latex(latex.grid_float("main", grid(["base"], [*bands, "hard"], metrics[:1])), ROOM)
    assert r"\begin{table}" in said
    assert r"\cistacked{50.0}" in said
    said = latex.table_latex(latex.grid_float("main", grid(["base"], bands, metrics)), ROOM)
    assert r"\begin{table*}" in said
    assert r"\ci{50.0}" in said
    ops = [f"op:{op}" for op in range(2, 22)]
    said = latex.table_latex(latex.grid_float("ops", grid([f"arm{n}" for n in range(40)], ops, metrics)), ROOM)
    assert said.count(r"\begin{table*}") > 1
    assert said.count("continued") == said.count(r"\begin{table*}") - 1
    assert all(said.count(rf"arm{n} & ") == said.count("arm0 & ") for n in range(40))


def test_a_table_of_which_nothing_is_finished_is_a_comment() -> None:
    assert (
        latex.table_latex(latex.grid_float("main", grid([], ["id"], ["strict_pass@1"])), ROOM)
        == "% main: no row of it is there.\n"
    )


def test_arms_of_a_grid_stand_under_its_name() -> None:
    said = latex.table_latex(latex.grid_float("main", grid(["kl[beta=0.1]", "kl[beta=1]", "one[a=1]"], ["id"], ["nll"])), ROOM)
    lines = said.splitlines()
    assert lines[lines.index(r"kl \\") + 1].startswith(r"\quad beta 0.1 & ")
    assert any(one.startswith("one: a 1 & ") for one in lines)


@pytest.mark.parametrize(
    ("said", "expected"),
    [("a_b & 5 %", r"a\_b \& 5 \%"), ("β=0.1", r"$\beta$=0.1"), ("≥ −3", r"$\geq$ $-$3"), ("中", "[U+4E2D]"), ("naïve", "naïve")],
)
def test_names_are_escaped_for_pdflatex(said: str, expected: str) -> None:
    assert text.latex_text(said) == expected


def compared(**verdicts: str) -> contrast.ComparisonBlock:
    found = Estimate(0.5, seeds=(0, 1), per_seed=(0.5, 0.5), models=2)
    rows = [
        contrast.ComparisonRow(contrast.ChosenArm(name, name, "", ()), found, found, np.nan, np.nan, verdict)
        for name, verdict in {"grpo": contrast.COMPARED, **verdicts}.items()
    ]
    return contrast.ComparisonBlock("edge", "strict_pass@1", contrast.NoiseFloor("", "", Estimate(), np.nan, 0), rows)


def test_bold_is_what_the_contrast_found_best_and_nothing_where_it_found_no_difference() -> None:
    assert contrast.leading_rows(compared(a="better", b="no information")) == {"a"}
    assert contrast.leading_rows(compared(a="worse", b="no information")) == {"grpo", "b"}
    assert contrast.leading_rows(compared(a="no information", b="missing")) == set()
    made = contrast.Comparison(
        Contrast(against="grpo", noise=["again"]), Lineup(against="grpo", contenders=[], twins={}), [compared(a="better")], 1
    )
    said = latex.table_latex(latex.contrast_float("fight", made), ROOM)
    assert r"a & \best{50.0} & \better{+50.0}" in said
    assert "Bold:" in said


def test_every_method_and_every_source_of_a_study_has_an_entry_with_title_and_authors() -> None:
    texts = [path.read_text() for folder in ("method", "study") for path in (ROOT / "configs" / folder).rglob("*.yaml")]
    stated = [line for text in texts for line in text.splitlines() if re.match(r"(paper|source): ", line)]
    used = sorted({one for line in stated for one in export.IDS.findall(line)})
    entries = export.bibliography(used)
    assert not [one for one in used if "author = " not in entries[one][1]]
    keys = [key for key, _ in entries.values()]
    assert len(set(keys)) == len(used) > 60
    assert export.bibliography(["2999.12345"])["2999.12345"][1].startswith("@misc{arxiv2999.12345,")


def test_an_entry_agrees_with_itself_and_is_of_a_paper_that_something_here_names() -> None:
    """Identifier, year and key; the file has no paper that no method, study, list or source of code names."""
    named = set()
    for folder in ("configs/method", "configs/study", "docs/data", "src"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".yaml", ".py"):
                named |= set(export.IDS.findall(path.read_text()))
    entries = (export.style.TEMPLATES / "references.bib").read_text().split("@misc")[1:]
    found = [dict(re.findall(r"\n  (\w+) = \{(.*)\},", entry)) | {"key": entry[1 : entry.index(",")]} for entry in entries]
    assert len(found) == len({one["eprint"] for one in found}) == len({one["key"] for one in found})
    for one in found:
        first = re.sub(r"[^a-z]", "", one["author"].split(" and ")[0].split(",")[0].split()[0].lower())
        assert re.fullmatch(rf"{first}{one['year']}\w+", one["key"]), one
        assert (one["howpublished"], one["year"]) == (f"arXiv:{one['eprint']}", f"20{one['eprint'][:2]}")
        assert one["eprint"] in named, one["key"]
    texts = [path.read_text() for path in (ROOT / "configs/method").glob("*.yaml")]
    short = [pair for text in texts for pair in re.findall(r"paper: arXiv:(\S+) \(([^,)]+)", text)]
    assert len(short) > 10
    for identifier, name in short:  # a method that a title names has that title
        holders = {one["eprint"] for one in found if re.search(rf"\b{re.escape(name)}[:,]? ", one["title"])}
        assert not holders or identifier in holders, (identifier, name)


def test_the_text_begins_with_the_answer_and_names_what_the_study_builds_on(tmp_path: Path) -> None:
    inputs = {"e0": study.write_evaluation(tmp_path, "e0", {2: [4, 3], 4: [1, 0] * 12})}
    inputs["e1"] = study.write_evaluation(tmp_path, "e1", {2: [4, 2], 4: [3, 4] * 12}, model="n")
    rows = [
        study.arm("base", 0, ["base:pretrain:m"], "e0"),
        study.arm("rl_edge", 0, ["base:pretrain:m", "rl:rl:n"], "e1", "base"),
    ]
    test = {"difference": "strict_pass@1", "band": "edge", "arm": "rl_edge", "against": "base", "at_least": 0.1}
    spec = study.spec(
        rows,
        tables={"main": {"columns": ["id", "edge"], "cells": ["strict_pass@1"]}},
        figures={"by_op": {"x": "op", "y": "strict_pass@1"}},
        claims=[{"says": "RL lifts the edge", "source": "arXiv:2512.07783", "test": test}],
    )
    made = answers.answer_study(frame.read_results(spec, inputs))
    export.fill_paper(tmp_path / "out", made, answers.claims_json(made.judged), ["2402.03300"], export.Look())
    said = (tmp_path / "out/paper.tex").read_text()
    assert r"RL lifts the edge (indicated): strict pass@1 on edge, base $\to$ rl\_edge: +75.0 points" in said
    assert r"builds on \cite{shao2024grpo}" in said
    assert r"rl\_edge (base $\to$ rl)" in said
    assert r"RL lifts the edge~\cite{zhang2025interplay}" in (tmp_path / "out/tables/claims.tex").read_text()
    assert r"\includegraphics{by_op.pdf}" in (tmp_path / "out/figures/by_op.tex").read_text()
    assert (tmp_path / "out/references.bib").read_text().count("@misc{") == 2


@latex_here
@pytest.mark.parametrize(("width", "font"), [("column", "times"), ("text", "DejaVu Sans")])
def test_the_paper_of_committed_results_compiles_without_a_complaint(
    width: str, font: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "paper"
    code, said, wrong = interplay(capsys, "export", "--from", SUMMARY, "--paper", "--width", width, "--font", font, "-o", out)
    assert (code, said) == (0, f"export: {out / 'paper.tex'}\n"), wrong
    inches = {"column": 6.75, "text": 5.5}[width]
    assert f"/MediaBox [ 0 0 {72 * inches:g} ".encode() in (out / "figures" / "by_op.pdf").read_bytes()
    for command in ("pdflatex", "bibtex", "pdflatex", "pdflatex"):
        options = ["-interaction=nonstopmode", "-halt-on-error"] if command == "pdflatex" else []
        ran = subprocess.run([command, *options, "paper"], cwd=out, capture_output=True, text=True, errors="replace", check=False)
        assert ran.returncode == 0, ran.stdout[-2000:]
    log = (out / "paper.log").read_text(errors="replace")
    assert not re.findall(r"Overfull \\hbox|undefined|multiply|Float too large|Missing character", log)
    pgf = (out / "paper.tex").read_text().replace("{graphicx}", "{graphicx,pgf}").replace("{array,", "{pgf,array,")
    (out / "pgf.tex").write_text(re.sub(r"\\input\{(tables/\w+)\}", "", pgf))
    for figure in (out / "figures").glob("*.tex"):
        figure.write_text(
            figure.read_text().replace(rf"\includegraphics{{{figure.stem}.pdf}}", rf"\input{{figures/{figure.stem}.pgf}}")
        )
    ran = subprocess.run(["pdflatex", *options, "pgf"], cwd=out, capture_output=True, text=True, errors="replace", check=False)
    assert ran.returncode == 0, ran.stdout[-2000:]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--width", "text"], "export: --width belongs to --paper; add --paper or leave it out"),
        (["--font", "times"], "export: --font belongs to --paper; add --paper or leave it out"),
        (["--paper", "--font", "Tymes"], "--font = 'Tymes': no such font here"),
    ],
)
def test_what_a_paper_cannot_be_is_refused(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    code, _, said = interplay(capsys, "export", "--from", SUMMARY, "-o", tmp_path / "x", *words)
    assert code == 2
    assert expected in said
    assert not (tmp_path / "x").exists()
