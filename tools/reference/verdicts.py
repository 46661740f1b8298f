"""The picture of docs/findings.md and docs/papers.md: a mark for every claim in the committed results, a row for each study."""

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from interplay.core import artifact
from interplay.report import claim_spec as words
from tools.reference import committed
from tools.reference.lists import WITHDRAWN_VERDICT

PICTURE = "docs/images/verdicts.svg"
WIDTH, MARKS, ROW, PITCH, SIDE = 500, 262, 15, 13, 9
INK, FAINT = "#1f2933", "#8a94a0"
BLUE, ORANGE = "#1d4f7c", "#c2550a"
LOOKS = {
    **dict.fromkeys(words.FOR, (BLUE, BLUE)),
    words.INDICATED: ("#a9cbe8", BLUE),
    words.INDICATED_AGAINST: ("#f7cfa8", ORANGE),
    **dict.fromkeys(words.AGAINST, (ORANGE, ORANGE)),
    words.NO_INFORMATION: ("#ffffff", FAINT),
    words.NOT_TESTED: ("#ffffff", FAINT),
    words.NOT_JUDGED: ("#ffffff", FAINT),
    WITHDRAWN_VERDICT: ("#d5dae1", "#d5dae1"),
}
"""Verdict -> fill and outline of its mark, in the order of the marks in a row."""
LEGEND = {
    "supported, reproduced, same sign or equivalent": words.FOR,
    "indicated: so, on one base or two": (words.INDICATED,),
    "indicated against: not so, on one base or two": (words.INDICATED_AGAINST,),
    "refuted or contradicted": words.AGAINST,
    "no information, not tested or not judged": (words.NO_INFORMATION, words.NOT_TESTED, words.NOT_JUDGED),
    "withdrawn, with a reason": (WITHDRAWN_VERDICT,),
}
GROUPS = ("Three bases or more", "One base, or two: indicated at most")


def picture(root: Path) -> Mapping[Path, str]:
    """The file. Studies with most verdicts for their claims come first."""
    groups: dict[str, list[tuple[str, Counter[str]]]] = {group: [] for group in GROUPS}
    for result in _every(root):
        scale = "" if result["scale"] == committed.SCALES[0] else f" ({result['scale']})"
        counts = Counter(claim["verdict"] for claim in result["claims"])
        groups[GROUPS[committed.has_one_base(result)]].append((f"{result['study']}{scale}", counts))
    total = sum((counts for rows in groups.values() for _, counts in rows), Counter[str]())
    studies = sum(map(len, groups.values()))
    marks, top = [text(8, 18, f"{total.total()} claims in the results of {studies} studies", 14, 600)], 40
    for said, verdicts in LEGEND.items():
        marks += [_mark(12, top - SIDE, verdicts[0]), text(28, top, f"{sum(total[one] for one in verdicts)} {said}", 12)]
        top += 18
    for group, rows in groups.items():
        top += 22
        marks.append(text(8, top, group, 13, 600))
        for name, counts in sorted(rows, key=_place):
            top += ROW
            marks.append(text(MARKS - 10, top, name, 11, anchor="end"))
            placed = [verdict for verdict in LOOKS for _ in range(counts[verdict])]
            marks += [_mark(MARKS + PITCH * place, top - SIDE, verdict) for place, verdict in enumerate(placed)]
    return {root / PICTURE: drawn(top + 12, marks)}


def drawn(height: int, marks: Sequence[str]) -> str:
    """The file of a picture WIDTH wide."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    ground = f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    return f'{head} font-family="system-ui, sans-serif">{ground}{"".join(marks)}</svg>\n'


def _place(row: tuple[str, Counter[str]]) -> tuple[list[int], str]:
    name, counts = row
    return [-sum(counts[verdict] for verdict in verdicts) for verdicts in LEGEND.values()], name


def _every(root: Path) -> Iterator[dict[str, Any]]:
    """Committed results that count, as the pages show them."""
    studies = {artifact.read_json(path)["study"] for path in (root / "docs" / "results").glob("*.json.gz")}
    for study in sorted(studies):
        yield from (result for result in committed.results(root, study).values() if result["claims"])


def _mark(x: int, y: int, verdict: str) -> str:
    fill, line = LOOKS[verdict]
    return f'<rect x="{x + 0.5}" y="{y + 0.5}" width="{SIDE}" height="{SIDE}" fill="{fill}" stroke="{line}"/>'


def text(x: float, y: float, said: str, size: int, weight: int = 400, anchor: str = "start") -> str:
    """One line in the ink of these pictures."""
    looks = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{INK}"'
    return f'<text x="{x}" y="{y}" {looks}>{html.escape(said)}</text>'
