"""Every claim of the studies of the central paper (arXiv:2512.07783) in one table: what was published, what came out here, and
where scale may explain a difference. Run or not, a claim has its line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.reference.committed import NOT_RUN, SCALES, claims, results
from tools.reference.lists import Paper
from tools.reference.numbers import estimate

FOLDER = "interplay/"
"""The studies of the central paper, and the controls that it lacks."""
HEADS = ("study", "claim", "source", "published", "here", "verdict", "where scale may explain a difference")


def table(root: Path, papers: tuple[Paper, ...]) -> str:
    """The table in Markdown, of the locks and results below `root`."""
    studies = dict.fromkeys(paper.study for paper in papers if paper.study.startswith(FOLDER))
    rows = [row for study in studies for row in of_study(root, study)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [HEADS, ["---"] * len(HEADS), *rows])


def of_study(root: Path, study: str) -> list[list[str]]:
    """A row for each claim; one that was judged at several scales has a line for each in its cells."""
    found = {scale: {one["says"]: one for one in result["claims"]} for scale, result in results(root, study).items()}
    rows = []
    for claim in claims(root, study, SCALES[0]):
        judged = {scale: of[claim["says"]] for scale, of in found.items() if claim["says"] in of}
        here = "<br>".join(f"{scale}: {estimate(one)}{_beware(one)}" for scale, one in judged.items())
        verdicts = "<br>".join(_verdict(one) for one in judged.values())
        told = (claim["source"], claim.get("published", ""), here or NOT_RUN, verdicts, claim.get("scale_note", ""))
        rows.append([study.removeprefix(FOLDER), claim["says"], *(cell or "–" for cell in told)])
    return rows


def _verdict(claim: Mapping[str, Any]) -> str:
    gone = claim.get("withdrawn")
    return f"**{claim['verdict']}**{f' (was {gone.verdict}; {gone.reason}): {gone.because}' if gone else ''}"


def _beware(claim: Mapping[str, Any]) -> str:
    return f" (beware: {claim['caveat']})" if "caveat" in claim else ""
