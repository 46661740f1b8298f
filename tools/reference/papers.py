"""`docs/papers.md`, and for the site the sections on papers: paper -> study -> what holds here and what does not. Verdicts and
numbers come from `docs/results/`, which `interplay export STUDY --scale SCALE -o docs/results/STUDY.SCALE.json.gz` writes; none
is typed. What docs/data/withdrawn.yaml
withdraws is printed so, with its reason. A result counts as long as its report is the one of the committed lock; else the study
was not run at this commit, and the page says that instead."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interplay.study.plan import flat_name
from tools.reference import committed, first_edition, lists, pages
from tools.reference.committed import NOT_RUN, SCALES, check_withdrawn, results
from tools.reference.lists import Evidence, Paper
from tools.reference.numbers import estimate, of_claim, of_contrast

CLAIMS = "The interplay of the stages, claim by claim"
ID = re.compile(r"\d{4}\.\d{5}")
FOLDER = "interplay/"
"""The studies of the central paper, and the controls that it lacks."""
HEADS = ("study", "claim", "source", "published", "here", "verdict", "where scale may explain a difference")


def claim_page(root: Path) -> str:
    """The page with every claim of the central paper's studies."""
    return "\n\n".join([f"# {CLAIMS}", lists.TEXTS["claims"], claim_table(root, lists.papers(root))]) + "\n"


def page(root: Path) -> str:
    """The page, of the lists, locks and results below `root`: a line a paper, and where each paper has its place."""
    check_withdrawn(root)
    lines = "\n".join(["| paper | study | here |", "| --- | --- | --- |", *(_line(root, paper) for paper in lists.papers(root))])
    parts = [*lists.TEXTS["papers"], *lists.TEXTS["papers_reading"], lines, *first_edition.section(root), *evidence_section(root)]
    return "\n\n".join(parts) + "\n"


def claims(paper: Paper, result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The claims of a study that are about the paper: those whose source names it, and those that name no paper."""
    return [claim for claim in result["claims"] if paper.arxiv in (ID.findall(claim["source"]) or [paper.arxiv])]


def _line(root: Path, paper: Paper) -> str:
    said = []
    for scale, result in results(root, paper.study).items():
        verdicts = [claim["verdict"] for claim in claims(paper, result)]
        verdicts += [entry["verdict"] for *_, entry in _fights(paper, result)]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
        said.append(f"{scale}{', an earlier plan' if 'superseded' in result else ''}: {counts or 'nothing is claimed of it'}")
    link = f"[{paper.title}](https://arxiv.org/abs/{paper.arxiv})"
    return f"| {link} | [{paper.study}](../configs/study/{paper.study}.yaml) | {'; '.join(said) or NOT_RUN} |"


def address(paper: Paper) -> str:
    """Of its section, in the study's page of the gallery, from a page of another folder."""
    return f"../gallery/{page_name(paper.study)}.md#{pages.anchor(_heading(paper))}"


def page_name(study: str) -> str:
    """Of a study's page in the gallery, without its ending."""
    return study.replace("/", "_")


def _heading(paper: Paper) -> str:
    return f"{paper.title} ({paper.arxiv})"


def section(root: Path, paper: Paper) -> str:
    """What a paper published and what its study found, with links from docs/."""
    lines = [f"## {_heading(paper)}", "", f"Published: {paper.finding}", ""]
    lines.append(f"Study `configs/study/{paper.study}.yaml`, table `{paper.table}`{f', row `{paper.row}`' if paper.row else ''}.")
    if paper.note:
        lines += ["", f"Note: {paper.note}"]
    found = results(root, paper.study)
    for scale, result in found.items():
        file = f"results/{flat_name(paper.study, scale)}.json.gz"
        lines += [
            "",
            f"At scale {scale} (report `{result['report']}`; [numbers]({file})){_shared(result)}:",
            *_superseded(result),
            "",
        ]
        lines += [_claim(claim) for claim in claims(paper, result)]
        lines += [
            f"- **{entry['verdict']}** ({column} {metric.replace('_', ' ')}): {of_contrast(metric, entry)}"
            for column, metric, entry in _fights(paper, result)
        ]
    if not found:
        lines += ["", f"Here: {NOT_RUN}."]
    return "\n".join(lines)


def _claim(claim: Mapping[str, Any]) -> str:
    gone = claim.get("withdrawn")
    was = f" (was {gone.verdict}; {gone.reason})" if gone else ""
    why = f" Why it is withdrawn: {gone.because}" if gone else ""
    return f"- **{claim['verdict']}**{was}: {claim['says']}. {of_claim(claim)}{why}"


def _shared(result: Mapping[str, Any]) -> str:
    return "; one base for all seeds" if committed.has_one_base(dict(result)) and len(result["seeds"]) > 1 else ""


def _superseded(result: Mapping[str, Any]) -> list[str]:
    """A line where the numbers are of an earlier plan."""
    older = result.get("superseded")
    return ["", f"An earlier plan: {older.because}. Not run again since {older.date}."] if older else []


def _fights(paper: Paper, result: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """(column, metric, entry) of the paper's row in each contrast of the study."""
    return [
        (*key.split("/")[-2:], entry)
        for fight in result.get("contrasts", {}).values()
        for key, entry in fight.items()
        if paper.row and re.match(rf"{re.escape(paper.row)}(\[[^/]*\])?/", key)
    ]


def claim_table(root: Path, papers: tuple[Paper, ...]) -> str:
    """The table in Markdown, of the locks and results below `root`."""
    studies = dict.fromkeys(paper.study for paper in papers if paper.study.startswith(FOLDER))
    rows = [row for study in studies for row in study_rows(root, study)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [HEADS, ["---"] * len(HEADS), *rows])


def study_rows(root: Path, study: str) -> list[list[str]]:
    """A row for each claim; one that was judged at several scales has a line for each in its cells."""
    found = {scale: {one["says"]: one for one in result["claims"]} for scale, result in results(root, study).items()}
    rows = []
    for claim in committed.claims(root, study, SCALES[0]):
        judged = {scale: of[claim["says"]] for scale, of in found.items() if claim["says"] in of}
        here = "<br>".join(f"{scale}: {estimate(one)}{_beware(one)}" for scale, one in judged.items())
        verdicts = "<br>".join(_claim_verdict(one) for one in judged.values())
        cells = (claim["source"], _published(claim), here or NOT_RUN, verdicts, claim.get("scale_note", ""))
        rows.append([study.removeprefix(FOLDER), claim["says"], *(cell or "–" for cell in cells)])
    return rows


def _published(claim: Mapping[str, Any]) -> str:
    found = claim.get("published", "")
    return str(found) if isinstance(found, str) else f"{found['effect']:+g} ({found.get('source') or claim.get('source')})"


def _claim_verdict(claim: Mapping[str, Any]) -> str:
    gone = claim.get("withdrawn")
    return f"**{claim['verdict']}**{f' (was {gone.verdict}; {gone.reason}): {gone.because}' if gone else ''}"


def _beware(claim: Mapping[str, Any]) -> str:
    return f" (beware: {claim['caveat']})" if "caveat" in claim else ""


def evidence_section(root: Path) -> list[str]:
    """The papers under each heading, each with the contrast that shows that its method acts here, or what is missing."""
    parts: list[str] = []
    for heading, rows in lists.evidence(root).items():
        counts = Counter(row.status for row in rows)
        head = "| paper | status | study: arm against control | what differs | ran at | test | missing |"
        table = [head, f"|{' --- |' * 7}", *(f"| {' | '.join(_evidence_cells(row))} |" for row in rows)]
        counted = f"Of {len(rows)} papers {counts['works']} work, {counts['partial']} are partial, {counts['out']} out."
        parts += [f"## {heading}", f"{counted} {lists.TEXTS['evidence'][heading]}", "\n".join(table)]
    return parts


def _evidence_cells(row: Evidence) -> list[str]:
    contrast = f"`{row.study}`: `{row.arm}` against `{row.control}`" if row.study else ""
    shown = [f"`{one}`" if one else "" for one in (row.key, row.test.replace(":", "` `"))]
    return [row.paper, f"**{row.status}**", contrast, shown[0], row.ran, shown[1], row.missing]
