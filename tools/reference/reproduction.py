"""`docs/reproduction.md` and its pictures: each figure of the central paper, with what was published next to what was measured
here. Published numbers are those of docs/data/published.csv, docs/data/reproduction.yaml says which figure is answered by which
arm, and ours are read from committed scores and results (`measured`): no number of ours is typed."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from interplay.core.model import UserError
from interplay.report import claim_spec
from interplay.report.claim_spec import Claim
from interplay.report.metric_spec import measure_of
from interplay.report.stats.estimate import Estimate
from tools.reference import lists, measured, overlays, pages, published
from tools.reference.measured import Measured
from tools.reference.overlays import Point
from tools.reference.published import FIGURES, MARKS, MINUS, NOT_READ, NUMBERS, Figure, Published, Settings

PICTURES = "docs/images/reproduction"
NOT_RUN, LARGEST, RISE = "not run", 128, "reward, last step less first"
METRICS = {
    "pass@1": "strict_pass@1",
    "dependency mismatches": "error:dependency",
    "missing nodes": "error:missing_node",
    "right answers by a wrong process": "hacked",
    "NLL of gold solutions": "nll",
    "reward at the first step": "reward_first",
    "reward at the last step": "reward_last",
    RISE: "reward_last - reward_first",
}
"""Published quantity -> our metric; pass@k and pass@128 have the k that both have, or our largest one."""


class Answer(NamedTuple):
    """What is measured here for a published row."""

    source: Measured
    band: str
    metric: str
    found: Estimate
    word: str
    reason: str
    signed: bool
    """Whether it is a difference."""


def files(root: Path) -> dict[Path, str]:
    """The page and its pictures."""
    figures, settings, numbers = published.read(root)
    studies = dict.fromkeys(study for one in figures for of in one.arms.values() for study in of)
    known = {study: list(measured.of_study(root, study)) for study in studies}
    texts = lists.TEXTS["reproduction"]
    sections, lines, pictures = [], ["| figure | claimed | here |", "| --- | --- | --- |"], dict[Path, str]()
    for figure in figures:
        rows = [row for row in numbers if row.figure == figure.figure]
        answers = {row: list(_answers(figure, row, known)) for row in rows}
        drawn = dict(_pictures(root, figure, answers))
        pictures |= {path: text for path, (text, _) in drawn.items()}
        sections.append(_section(root, figure, answers, known, [(path, alt) for path, (_, alt) in drawn.items()]))
        lines.append(
            f"| [{figure.heading.partition(':')[0]}](#{pages.anchor(figure.heading)}) | {figure.claim} | {_counts(answers)} |"
        )
    trend, shown = _trend(root, figures, numbers, known)
    pictures |= {path: text for path, (text, _) in shown.items()}
    marks = ", ".join(f"**{mark}** {meaning}" for mark, meaning in MARKS.items())
    earlier = dict.fromkeys(one.earlier for of in known.values() for one in of if one.earlier)
    parts = [
        *texts["head"],
        f"{texts['marks']} {marks}.",
        *(f"{texts['earlier']} {why}." for why in earlier),
        "\n".join(lines),
        *sections,
        "## Sizes",
        texts["sizes"],
        *trend,
        "## Settings",
        texts["settings"],
        _settings(root, settings, numbers),
        "## Table 3: budgets",
        texts["table_3"],
        published.by_panel(numbers, "table 3"),
    ]
    return {root / "docs/reproduction.md": "\n\n".join(part.strip() for part in parts) + "\n", **pictures}


# What is ours next to a published row.


def _answers(figure: Figure, row: Published, known: Mapping[str, list[Measured]]) -> Iterator[Answer]:
    """Of each study and scale that has all arms of the row's curve."""
    for study, arms in _arms(figure, row.curve).items():
        for source in known[study]:
            metric, band = _metric(row, source), _band(figure, row, study)
            asked = (arms[0], arms[1] if len(arms) > 1 else "", band, metric)
            found = source.estimate(*asked) if metric else Estimate()
            if band and found.seeds and not math.isnan(found.value):
                yield Answer(source, band, metric, found, *_verdict(figure, row, source, asked), bool(asked[1]))


def _arms(figure: Figure, curve: str) -> dict[str, list[str]]:
    """Study -> the arm of a curve, or the two of a difference."""
    sides = [figure.arms.get(side, {}) for side in curve.split(MINUS)]
    return {study: [side[study] for side in sides] for study in sides[0] if all(study in side for side in sides)}


def _band(figure: Figure, row: Published, study: str) -> str:
    keys = (f"{row.panel}: {row.quantity}", row.x, row.panel)
    band = next((figure.bands[key] for key in keys if key in figure.bands), row.panel)
    return band if isinstance(band, str) else band.get(study, band["other"])


def _metric(row: Published, source: Measured) -> str:
    """Ours, or nothing where there is none."""
    if row.quantity in METRICS:
        return METRICS[row.quantity]
    k = {"pass@k": row.x, f"pass@{LARGEST}": str(LARGEST)}.get(row.quantity)
    if not k or (source.most == 1 and int(k) > 1):  # what one sample reaches is no answer to what many do
        return ""
    return f"strict_pass@{min(int(k), source.most)}"


def _verdict(figure: Figure, row: Published, source: Measured, asked: tuple[str, str, str, str]) -> tuple[str, str]:
    """By the published effect; where that is none, or not known, by the threshold of the study's own claim, if it has one."""
    arm, against, band, metric = asked
    own = source.own_claim(*asked)
    keys = (row.curve, f"{row.panel}: {row.curve}", f"{row.panel}: {row.quantity}")
    by_claim = not against or row.value is None or any(key in figure.no_effect for key in keys)
    level = not against and row.quantity != RISE
    if (by_claim and own is None) or (level and row.bound != "at most about" and row.value is not None):
        return "", ""
    if against and (full := _no_room(row, source, asked)):
        return claim_spec.NOT_TESTED, full
    if own is None or (own.effect is None and not by_claim):
        place = "recorded" if row.at == "step" else "band"
        test = {"difference": metric, "arm": arm, "against": against, place: band}
        requires = own.requires if own else []
        own = Claim.model_validate({"says": row.curve, "published": {"effect": row.value}, "test": test, "requires": requires})
    word, reason = source.judge(own)
    if word == claim_spec.NOT_TESTED:
        return word, reason
    if word == lists.WITHDRAWN_VERDICT:
        return word, reason.partition(":")[0]
    return word, f"asked: {_threshold(own)}" if by_claim else ""


def _no_room(row: Published, source: Measured, asked: tuple[str, str, str, str]) -> str:
    """Why half of a published effect could not have been found: both arms are at the floor, or what is compared with lies too
    near to an end; empty where it could."""
    arm, against, band, metric = asked
    start, end = (source.estimate(one, "", band, metric).value for one in (against, arm))
    measure = measure_of(metric)
    if not measure.bounded or math.isnan(start):
        return ""
    half = abs(row.value or 0.0) / 2 / measure.factor
    room = start if (row.value or 0.0) < 0 else 1 - start
    return (
        "both arms are at 0" if start == end == 0 else f"no room: {against} is at {measure.shown(start)} %" if room < half else ""
    )


def _threshold(own: Claim) -> str:
    """What the study asks for, in words."""
    low, high = (measure_of(own.test.metric).shown(end, own.test.against is not None) for end in own.bounds)
    least, most = map(math.isinf, own.bounds)
    return f"at least {low}" if most else f"at most {high}" if least else f"{low} to {high}"


def _counts(answers: Mapping[Published, Sequence[Answer]]) -> str:
    """Verdicts by their number; or that there are none, and why."""
    words = Counter(answer.word for of in answers.values() for answer in of if answer.word)
    said = ", ".join(f"{count} {word}" for word, count in words.most_common())
    if not any(answers.values()):
        return NOT_RUN if any(row.value is not None for row in answers) else f"{NOT_READ}, {NOT_RUN}"
    most = max(answer.found.bases for of in answers.values() for answer in of)
    alone = "" if most >= claim_spec.LEAST_BASES else f"; {_bases(most)}"
    return f"{said or 'numbers side by side, no verdict'}{alone}"


# The page.


def _section(
    root: Path,
    figure: Figure,
    answers: Mapping[Published, Sequence[Answer]],
    known: Mapping[str, list[Measured]],
    pictures: Sequence[tuple[Path, str]],
) -> str:
    studies = dict.fromkeys(study for row in answers for study in _arms(figure, row.curve))
    absent = [_study(root, study) for study in studies if not known[study]]
    there = [_study(root, study) for study in studies if known[study]]
    asks = f"Asked by {', '.join(there)}." if there else "No study here that was run asks this."
    parts = [
        f"## {figure.heading}",
        f"Claimed: {figure.claim}",
        asks + (f" Not run: {', '.join(absent)}." if absent else ""),
        f"What differs: {figure.differs}",
        " ".join(f"![{alt}]({path.relative_to(root / 'docs').as_posix()})" for path, alt in pictures),
        "\n".join(["| what | published | here | verdict |", "| --- | --- | --- | --- |", *_table(root, figure, answers, known)]),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(
    root: Path, figure: Figure, answers: Mapping[Published, Sequence[Answer]], known: Mapping[str, list[Measured]]
) -> Iterator[str]:
    """A line for each answer; what was published is in the first."""
    panels = len({row.panel for row in answers}) > 1
    merged: dict[tuple[str, ...], list[Published]] = {}
    for row in sorted(answers, key=lambda one: MINUS not in one.curve):  # what has a verdict first
        merged.setdefault((row.panel, row.curve, row.what), []).append(row)
    for (panel, curve, what), rows in merged.items():
        said = f"{f'{panel}: ' if panels and panel else ''}{f'{curve}, ' if curve else ''}{what}"
        here = [(_cell(root, rows[0], one), _word(one)) for one in answers[rows[0]]]
        studies = [study for study in _arms(figure, curve) if _band(figure, rows[0], study)]
        absent = [_study(root, study) for study in studies if not known[study]] if MINUS in curve or not here else []
        here += [(f"{NOT_RUN} ({', '.join(absent)})", "")] if absent else []
        here = here or [("no such number is committed" if studies else "–", "")]
        stated = f"{said} | {'; '.join(row.shown() for row in rows)}"
        for cells in here:
            yield f"| {stated} | {' | '.join(cells)} |"
            stated = " | "


def _cell(root: Path, row: Published, answer: Answer) -> str:
    """`pass@32 on op 9: 77.8 [73.0, 82.6] %, one base (interplay/budget_split, laptop, an earlier plan)`"""
    found, unit, signed = answer.found, measure_of(answer.metric), answer.signed
    k = answer.metric.removeprefix("strict_")
    other = k if k.startswith("pass@") and k != row.what.partition(",")[0] else ""
    other += f" on {answer.band.replace(':', ' ')}" if answer.band != row.panel and row.at != "step" else ""
    ends = f" [{unit.shown(found.low, signed)}, {unit.shown(found.high, signed)}]" if math.isfinite(found.low) else ""
    numerics = answer.source.numerics(found)
    how = f"{answer.source.scale}{f', {numerics}' if numerics else ''}{', an earlier plan' if answer.source.earlier else ''}"
    value = f"{unit.shown(found.value, signed)}{ends} {unit.unit_of(signed)}".rstrip()
    return f"{f'{other.strip()}: ' if other else ''}{value}, {_bases(found.bases)} ({_study(root, answer.source.study)}, {how})"


def _bases(count: int) -> str:
    return "one base" if count == 1 else f"{count} bases"


def _word(answer: Answer) -> str:
    because = f" ({answer.reason})" if answer.reason else ""
    return f"**{answer.word}**{because}" if answer.word else "–" if answer.signed else ""


def _study(root: Path, study: str) -> str:
    """A link to the study, which leads to its page on the site."""
    return f"[{study}](../configs/study/{study}.yaml)" if (root / "configs/study" / f"{study}.yaml").exists() else f"`{study}`"


# Pictures.


def _pictures(
    root: Path, figure: Figure, answers: Mapping[Published, Sequence[Answer]]
) -> Iterator[tuple[Path, tuple[str, str]]]:
    """Path -> (file, alternative text), of each panel by its first study, and by the first over enough bases."""
    for plot in figure.plots:
        rows = [row for row in answers if row.panel == plot.panel]
        if plot.form == "rows":
            units = Counter(row.unit for row in rows if row.value is not None)
            rows = [row for row in rows if row.unit == units.most_common(1)[0][0]]
        for name, source in _sources(rows, answers).items():
            bases = max(answer.found.bases for row in rows for answer in answers[row] if answer.source is source)
            title = f"{plot.title}: {source.study}, {source.scale}, {_bases(bases)}"
            path = root / PICTURES / f"{figure.figure}-{plot.panel}-{name}.svg".replace(" ", "_")
            text = _curves(figure, rows, source, title) if plot.form == "curves" else _rows(rows, answers, source, title)
            yield path, text


def _sources(rows: Sequence[Published], answers: Mapping[Published, Sequence[Answer]]) -> dict[str, Measured]:
    both = [answer for row in rows if row.value is not None for answer in answers[row]]
    wide = [answer for answer in both if answer.found.bases >= claim_spec.LEAST_BASES]
    return {answer.source.name: answer.source for answer in (*both[:1], *wide[:1])}


def _curves(figure: Figure, rows: Sequence[Published], source: Measured, title: str) -> tuple[str, str]:
    series: dict[str, list[Point]] = {}
    for row in rows:
        if MINUS not in row.curve and row.unit == "%":
            series.setdefault(row.curve, [])
            series[row.curve] += [Point(float(row.x), row.value)] if row.value is not None else []
    for curve, points in series.items():
        arms, band = _arms(figure, curve).get(source.study, []), _band(figure, rows[0], source.study)
        for k in (2**power for power in range(8)) if arms and not source.is_idle(arms[0]) else ():
            found = source.estimate(arms[0], "", band, f"strict_pass@{k}") if k <= source.most else Estimate()
            if found.seeds:
                points.append(_ours(k, found, "strict_pass@1"))
    text = overlays.curves(
        title.partition(":")[0], {k: of for k, of in series.items() if of}, "%", f"k of pass@k; {title.partition(': ')[2]}"
    )
    said = "; ".join(f"{curve}: {_spoken(points)}" for curve, points in series.items() if points)
    return text, f"{figure.heading.partition(':')[0]}, {title}. Pass@k in percent. {said}"


def _spoken(points: Sequence[Point]) -> str:
    """The ends of both curves, in words."""
    parts = []
    for ours, name in ((False, "published"), (True, "here")):
        of = sorted(point for point in points if point.ours == ours)
        ends = dict.fromkeys((of[0], of[-1])) if of else {}
        if ends:
            parts.append(f"{name} {', '.join(f'{point.value:.1f} at k = {point.x:g}' for point in ends)}")
    return ", ".join(parts)


def _ours(x: float, found: Estimate, metric: str, name: str = "") -> Point:
    factor = measure_of(metric).factor
    return Point(x, factor * found.value, True, factor * found.low, factor * found.high, name)


def _rows(
    rows: Sequence[Published], answers: Mapping[Published, Sequence[Answer]], source: Measured, title: str
) -> tuple[str, str]:
    points: dict[str, list[Point]] = {}
    for row in rows:
        ours = [_ours(0, one.found, one.metric) for one in answers[row] if one.source is source]
        name = f"{row.curve.replace('RL after ', 'pre-training with ').partition(' − base of')[0]}, {row.what}"
        if row.value is not None:
            points.setdefault(name, []).extend([Point(0, row.value), *ours])
    unit = next(row.unit for row in rows if row.value is not None)
    here = {one.metric.removeprefix("strict_") for row in rows for one in answers[row] if one.source is source}
    text = overlays.rows(title.partition(":")[0], points, f"{unit}; here {' and '.join(sorted(here))}", title.partition(": ")[2])
    said = "; ".join(f"{name}: {', '.join(_of_row(point) for point in of)}" for name, of in points.items())
    return text, f"Figure {rows[0].figure}, {title}. In {'percent' if unit == '%' else unit}. {said}"


def _of_row(point: Point) -> str:
    return f"here {point.value:.1f}" if point.ours else f"published {point.value:g}"


# Sizes and settings.


def _trend(
    root: Path, figures: Iterable[Figure], numbers: Sequence[Published], known: Mapping[str, list[Measured]]
) -> tuple[list[str], dict[Path, tuple[str, str]]]:
    """The table, and the picture where two sizes of ours have numbers."""
    head = ["| parameters | where | base, pass@1 | RL at the edge, pass@1 | gain | verdict |", "| ---: " + "| --- " * 5 + "|"]
    lines, points = [], []
    size = next(row.value for row in numbers if (row.figure, row.quantity) == ("table 1", "parameters"))
    for figure in figures:
        if not figure.trend:
            continue
        gain, *levels = (next(r for r in numbers if (r.figure, r.curve, r.x) == (figure.figure, of, "1")) for of in figure.trend)
        found = sorted(_answers(figure, gain, known), key=lambda one: (one.source.parameters, one.source.name))
        for one in found:
            levels_here = [next((a for a in _answers(figure, row, known) if a.source is one.source), None) for row in levels]
            cells = [_value(a.found, a.metric, False) if a else "–" for a in levels_here]
            where = f"{_study(root, one.source.study)}, {one.source.scale}, {_bases(one.found.bases)}"
            where += ", an earlier plan" if one.source.earlier else ""
            cells += [_value(one.found, one.metric, True), _word(one)]
            lines.append(f"| {one.source.parameters / 1e6:.2f}M | {where} | {' | '.join(cells)} |")
            name = f"{one.source.study}, {_bases(one.found.bases)}"
            points.append(_ours(float(f"{one.source.parameters:.2g}"), one.found, one.metric, name))
        lines.append(f"| {size:g}M | the paper | {levels[0].shown()} | {levels[1].shown()} | {gain.shown()} | – |")
        points.append(Point((size or 1) * 1e6, gain.value or 0.0))
    table = "\n".join([*head, *lines])
    if len({point.x for point in points if point.ours}) < 2:
        return [table, lists.TEXTS["reproduction"]["one_size"]], {}
    path = root / PICTURES / "sizes.svg"
    text = overlays.sizes("Gain by RL at the edge, by size", points, "points", "parameters; pass@1 of RL minus its base")
    said = "; ".join(f"{p.x / 1e6:.3g}M {p.name or 'published'}: {p.value:+.1f}" for p in points)
    alt = f"Gain in pass@1 at the edge by number of parameters, in points. {said}"
    return [f"![{alt}](images/reproduction/sizes.svg)", table], {path: (text, alt)}


def _value(found: Estimate, metric: str, signed: bool) -> str:
    unit = measure_of(metric)
    value, low, high = (unit.shown(number, signed) for number in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def _settings(root: Path, of: Settings, numbers: Sequence[Published]) -> str:
    made = {scale: measured.settings(root, of.study, scale) for scale in of.scales}
    lines = [f"| setting | published | {' | '.join(of.scales)} |", "| --- | --- |" + " --- |" * len(of.scales)]
    for row in of.rows:
        there = [one for one in numbers if (one.figure, one.panel, one.quantity) == (row.figure, row.panel, row.quantity)]
        if not there:
            raise UserError(f"{FIGURES}: settings: {NUMBERS} has no row of {row.figure}, {row.panel}, {row.quantity}")
        kind, _, key = row.key.partition(" ")
        cells = [_plain(made[scale].get(kind, {}).get(key)) for scale in of.scales]
        lines.append(f"| {row.panel}: {row.quantity} | {'; '.join(one.shown() for one in there)} | {' | '.join(cells)} |")
    listed = {(row.figure, row.panel, row.quantity) for row in of.rows}
    more = [one for one in numbers if one.figure in published.TABLES and one.figure != "table 3"]
    for one in more:
        if (one.figure, one.panel, one.quantity) not in listed:
            lines.append(f"| {one.panel}: {one.quantity} | {one.shown()} |{' – |' * len(of.scales)}")
    return "\n".join(lines)


def _plain(value: object) -> str:
    if not isinstance(value, int | float):
        return "–" if value is None else str(value)
    return f"{int(value):,}" if value >= 1000 else f"{value:.4g}"
