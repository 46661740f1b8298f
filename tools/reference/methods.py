"""`docs/methods.md`, the table of RL methods, and for the site a page for each: the whole method with its members, its equation
test, the studies that use it, and what they found."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from interplay.core.model import Model, plural
from interplay.rl.sampler_spec import PclSampler
from interplay.rl.spec import SEAMS, Method
from interplay.study.choices import names
from tools.reference import cards, lists, pages, papers
from tools.reference.cards import Evidence
from tools.reference.cells import cell, first_sentence
from tools.reference.numbers import of_contrast

COLUMNS = ("method", "what it does", "seams", "evidence")
MOST_ROWS = 12
"""Comparisons that a page shows."""


def table(root: Path) -> str:
    """docs/methods.md, which is committed."""
    found, checked = cards.read(root), lists.conformance(root)
    rows = [_row(root, found, name, checked.get(name)) for name in found.methods]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in [COLUMNS, ["---"] * len(COLUMNS), *rows])
    return "\n\n".join([*lists.TEXTS["methods"], lines]) + "\n"


def files(root: Path) -> dict[Path, str]:
    """A page for each method, as it would lie below docs/methods."""
    found, users = cards.read(root), studies(root)
    return {root / "docs" / "methods" / f"{name}.md": _page(root, found, name, users.get(name, [])) for name in found.methods}


def studies(root: Path) -> dict[str, list[str]]:
    """Method -> the studies whose YAML takes it in or names it, alone or in a list."""
    folder, known = root / "configs" / "study", names(root / "configs" / "method")
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.yaml")):
        chosen = re.findall(r"\bmethod(?:@[\w.]+)?: (\[[^\]]*\]|\w+)", path.read_text(encoding="utf-8"))
        for name in (name for name in dict.fromkeys(re.findall(r"\w+", " ".join(chosen))) if name in known):
            found.setdefault(name, []).append(path.relative_to(folder).with_suffix("").as_posix())
    return found


def _row(root: Path, found: Evidence, name: str, checked: Mapping[str, Any] | None) -> list[str]:
    method, mark = found.methods[name], found.marks[name]
    evidence = f"[{mark.evidence}]({source(checked['release'])})" if checked else mark.evidence
    seams = lists.differing(method, found.methods["grpo"])
    link = f"[`{name}`](../configs/method/{name}.yaml)"
    about = cell(f"{first_sentence(_about(root, name))}. *{method.paper}*")
    compared = [evidence, mark.oracle, *([counted(checked)] if checked else [])]
    return [link, about, ", ".join(seams) or "-", "; ".join(compared)]


def source(release: Mapping[str, Any]) -> str:
    """Address of the lines of a released function."""
    first, last = release["lines"]
    return f"{release['repository']}/blob/{release['commit']}/{release['file']}#L{first}-L{last}"


def counted(checked: Mapping[str, Any]) -> str:
    """How much of a method is compared with its release."""
    numbers, constants = len(checked["numbers"]), len(checked.get("launch", {}).get("constants", {}))
    counts = ((numbers, "step"), (constants, "constant"), (len(checked["departures"]), "departure"))
    return ", ".join(plural(n, what) for n, what in counts if n)


def _release(checked: Mapping[str, Any] | None) -> Iterator[str]:
    """What a page says of the release that its method was compared with."""
    if checked is None:
        return
    yield f"- release: [{checked['release']['file']}]({source(checked['release'])}); compared: {counted(checked)}"
    if more := checked["release"].get("with"):
        yield f"- with {more}"
    for key, (theirs, ours, reason) in checked["departures"].items():
        yield f"- departs from it: `{key}` is {theirs} there, {ours} here: {reason}"
    yield from (f"- {note}" for note in checked.get("notes", []))


def _about(root: Path, name: str) -> str:
    """The comment at the head of the method's file, without the line that names its schema."""
    lines = (root / "configs" / "method" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[1:]
    return " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))


def _page(root: Path, found: Evidence, name: str, users: list[str]) -> str:
    text = (root / "configs" / "method" / f"{name}.yaml").read_text(encoding="utf-8")
    yaml = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    method, mark = found.methods[name], found.marks[name]
    facts = [
        f"- paper: {method.paper}",
        f"- equation: read in the {mark.evidence}" if mark.evidence != "inferred" else "- equation: part of it is inferred",
        f"- test: `tests/unit/{mark.test.replace('.py:', '.py`, `')}`, checked against: {mark.oracle}",
        *_release(lists.conformance(root).get(name)),
        f"- studies: {cards.studies_line(found, users)}",
        *(f"- see [{paper.title}]({papers.address(paper)})" for paper in lists.papers(root) if paper.row == name),
    ]
    parts = [f"# {name}", _about(root, name), "\n".join(facts), f"```yaml\n{yaml}\n```", _seams(method, pages.member_links(root))]
    if rows := list(_comparisons(found, name, users)):
        parts += ["## Comparisons", "\n".join(rows[:MOST_ROWS])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _seams(method: Method, links: Mapping[str, str]) -> str:
    """What the method does at each seam, by the first sentence on each member."""
    rows = []
    for key in (key for key in Method.model_fields if key != "paper"):
        value = getattr(method, key)
        if isinstance(value, int):
            rows.append(
                f"| {key} | {value} | Optimiser steps per pass over a batch, where neither scale nor stage says another number |"
            )
            continue
        for one in value if isinstance(value, list | tuple) else [value] if value is not None else []:
            address = links.get(f"{key}: {one.name}", "")
            about = first_sentence(str(type(one).__doc__))
            rows.append(f"| {key} | [{one.name}](../{address}) | {cell(about)} |")
    return "\n".join(["| seam | member | what it does |", "| --- | --- | --- |", *rows])


def _comparisons(found: Evidence, name: str, users: list[str]) -> Iterator[str]:
    """The contrasts of committed results whose row is named like the method."""
    for study in users:
        for scale, result in found.results.get(study, {}).items():
            for title, fight in result.get("contrasts", {}).items():
                for key, entry in fight.items():
                    row, *place, metric = key.split("/")
                    if row.partition("[")[0] == name:
                        where = f"{metric.replace('_', ' ')} of {' '.join(place)}" if place else metric.replace("_", " ")
                        yield f"- **{entry['verdict']}**, {where}: {of_contrast(metric, entry)} (`{study}` at {scale}, `{title}`)"


# What numerics: exact covers, a section of docs/numerics.md.


MEMBERS_TITLE = "## Members of RL"


def exact_page(root: Path) -> Mapping[Path, str]:
    """docs/numerics.md, whose section on members is made of their specs."""
    path = root / "docs" / "numerics.md"
    before, _, rest = path.read_text(encoding="utf-8").partition(f"{MEMBERS_TITLE}\n")
    rows = ["| seam | covered | refused, and why |", "| --- | --- | --- |"]
    for seam, classes in SEAMS.items():
        known = {one: one().inexact() if one is PclSampler else one.INEXACT for one in classes}
        covered = ", ".join(f"`{_name_of(one)}`" for one, why in known.items() if not why)
        refused = "; ".join(f"`{_name_of(one)}`: {why}" for one, why in known.items() if why)
        rows.append(f"| {seam.removeprefix('method.')} | {covered} | {refused} |")
    _, found, behind = rest.partition("\n## ")
    return {path: "\n".join([before + MEMBERS_TITLE, "", *rows, ""]) + found + behind}


def _name_of(member: type[Model]) -> str:
    return str(member.model_fields["name"].default)
