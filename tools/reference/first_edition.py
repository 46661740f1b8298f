"""How many claims of the first edition are decided over bases, by the study itself or by one that asks them again."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core.model import Model, UserError
from interplay.report.claim_spec import AGAINST, FOR
from tools.reference import committed, lists

LIST = "docs/data/first_edition.yaml"
HEADING = "The claims of the first edition"


class Reworded(Model):
    """A claim that is asked again in other words."""

    claim: str
    """As it was."""
    now: str


class Answer(NamedTuple):
    """The verdict of a claim."""

    verdict: str
    outcome: str
    """The metric. Claims of the same words about another one are other claims."""


class Asked(Model):
    """A study of the first edition."""

    study: str
    claims: int
    """How many it had."""
    again: tuple[str, ...] = ()
    """Studies that ask them again, in that order."""
    says: tuple[Reworded, ...] = ()
    """Claims whose words are others in a study of `again`."""


def section(root: Path) -> list[str]:
    """The part of docs/papers.md, as paragraphs; none where the list is missing."""
    if not (root / LIST).exists():
        return []
    asked = lists.entries(root, LIST, Asked)
    counts = {entry.study: _counts(root, entry) for entry in asked}
    total = sum(counts.values(), Counter[str]())
    rows = [_row(entry, counts[entry.study]) for entry in asked]
    head = "| study | claims | held | not held | open | asked again by |\n| --- | --- | --- | --- | --- | --- |"
    decided = total["held"] + total["failed"]
    counted = (
        f"Of {total.total()} claims {decided} are decided over three bases or more: {total['held']} held (supported, reproduced, "
        f"of the published sign, or equivalent within their margin) and {total['failed']} did not (refuted or contradicted). "
        f"{total['open']} are open: {lists.TEXTS['first_edition']}"
    )
    return [f"## {HEADING}", counted, "\n".join([head, *rows])]


def _counts(root: Path, entry: Asked) -> Counter[str]:
    """Claims that held, that did not, and that are open. Raises UserError where entry and committed results do not match."""
    own = _verdicts(root, entry.study)
    if len(own) != entry.claims:
        raise UserError(f"{LIST}: {entry.study} has {len(own)} claims in docs/results; claims is {entry.claims}; correct it")
    others = [_verdicts(root, study) for study in entry.again]
    now = {one.claim: one.now for one in entry.says}
    for old, new in now.items():
        if old not in own or not any(new in other for other in others):
            raise UserError(f"{LIST}: {entry.study}: says matches no claim: '{old}' -> '{new}'; correct it")
    answers = {
        says: [found, *(other[now.get(says, says)] for other in others if now.get(says, says) in other)]
        for says, found in own.items()
    }
    return Counter(
        _last([answer.verdict for answer in found if says in now or answer.outcome == own[says].outcome])
        for says, found in answers.items()
    )


def _last(verdicts: list[str]) -> str:
    """By the verdict of the study that asked last."""
    last = verdicts[-1]
    return "held" if last in FOR else "failed" if last in AGAINST else "open"


def _verdicts(root: Path, study: str) -> dict[str, Answer]:
    """Words of a claim -> how it was answered, of the first scale at which the study has a result."""
    found: list[Mapping[str, Any]] = [*committed.results(root, study).values()]
    if not found:
        raise UserError(f"{LIST}: {study}: no result of it in docs/results counts; correct the name")
    return {
        claim["says"]: Answer(claim["verdict"], claim["test"].get("difference") or claim["test"].get("value", ""))
        for claim in found[0]["claims"]
    }


def _row(entry: Asked, counts: Counter[str]) -> str:
    cells = [entry.study, entry.claims, counts["held"], counts["failed"], counts["open"], ", ".join(entry.again) or "–"]
    return f"| {' | '.join(map(str, cells))} |"
