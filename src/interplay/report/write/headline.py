"""The top of the page, made from the judged claims: a study's answer as a sentence, what to run next, and the claims as rows of a
forest plot."""

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import metrics, model
from interplay.report import claim_spec
from interplay.report.claim_spec import Claim, Test
from interplay.report.metric_spec import measure_of, metric_heading
from interplay.report.shown_spec import SHARE, Measure
from interplay.report.spec import ReportSpec
from interplay.report.stats import confounds, contrast, estimate, frame, notes
from interplay.report.write import answers, tables, text


class Verdict(NamedTuple):
    """A verdict as the page shows it."""

    word: str
    look: str
    """Class of its chip: yes, no, open, none."""
    sign: str
    """Says the same as the colour, for those who do not see it."""


LOOKS = {
    **dict.fromkeys(claim_spec.FOR, ("yes", "✓")),
    **dict.fromkeys(claim_spec.AGAINST, ("no", "✗")),
    claim_spec.EQUIVALENT: ("yes", "="),
    claim_spec.NO_INFORMATION: ("open", "?"),
    claim_spec.INDICATED: ("open", "≈"),
    claim_spec.INDICATED_AGAINST: ("open", "≉"),
}
"""Verdict of a claim -> class of its chip and its sign; others have no colour and a dash."""
MOST_LISTED = 2
"""Claims of one verdict that the answer quotes."""


def page_verdict(item: contrast.JudgedClaim) -> Verdict:
    """A verdict with its colour and sign."""
    return Verdict(item.verdict, *LOOKS.get(item.verdict, ("none", "–")))


# The answer.


class Headline(NamedTuple):
    """The answer in sentences, the first the largest on the page."""

    lead: str
    change: str
    """From where to where, `65 % → 78 %`, or a single value; empty where nothing was measured."""
    verdict: Verdict | None
    details: str
    """What was measured, in which arms, with its interval."""
    others: list[str]
    """What the other claims came to, what did not act, and the largest difference that no claim is about."""
    claim: contrast.JudgedClaim | None
    """The claim that the lead is."""


def make_headline(made: answers.Answer) -> Headline:
    """The lead is the first claim about a difference that has a verdict, else the first that was measured, else likewise of
    claims about values, or about an arm and its repeat; without any, the widest difference of the first table."""
    ranked = sorted(made.judged, key=lambda item: _rank(made.results, item))
    lead = ranked[0] if ranked and ranked[0].estimate.seeds else None
    controls = [f"{made.controls.left}."] if made.controls else []
    said = [
        *_others(made, lead),
        *controls,
        *(f"{line}." for line in answers.implementation_lines(made.results)),
        *(f"{line}." for line in confounds.confound_lines(made.results)),
        *idle_sentences(made.results),
        *_unclaimed(made),
    ]
    if lead is None:
        return _headline_of_table(made)._replace(others=said)
    details = _details(lead, made.results.spec)
    return Headline(lead.claim.says, change_text(made.results, lead), page_verdict(lead), details, said, lead)


def _rank(results: frame.Results, item: contrast.JudgedClaim) -> tuple[bool, ...]:
    """What did not act or was not measured comes last; values, and what chance alone does, which are premises mostly, come after
    differences."""
    shown, test = page_verdict(item), item.claim.test
    chance = _is_repeated(results, test)
    decided = shown.look in ("yes", "no") or shown.word.startswith(claim_spec.INDICATED)
    return not item.estimate.seeds or shown.look == "none", test.difference is None or chance, not decided, chance


def _is_repeated(results: frame.Results, test: Test) -> bool:
    """Whether a test compares an arm with its own repeat: at each seed that both have finished they differ in seeds alone."""
    pairs = zip(*(results.spec.rows_of(arm) for arm in (test.arm, test.against)), strict=False)
    both = [[answers.settings_without(results, row.digests(), "seed") for row in pair] for pair in pairs]
    finished = [pair for pair in both if all(pair)]
    return bool(finished) and all(one == other for one, other in finished)


def change_text(results: frame.Results, item: contrast.JudgedClaim) -> str:
    """`65 % → 78 %` of a difference, else the value; with decimals where whole numbers would hide the change. Without the
    bases that failed, where the claim leaves them out."""
    results = item.failing.others(results) if item.failing else results
    test, found = item.claim.test, item.estimate
    measure = measure_of(test.metric)
    ends = [found]
    if test.against is not None:
        ends = [_value(results, test, arm) for arm in (test.against, test.arm)]
    if any(math.isnan(one.value) for one in ends):
        return f"{measure.shown(found.value, test.against is not None)} {measure.unit_of(test.against is not None)}".strip()
    numbers = [one.value * measure.factor for one in ends]
    coarse = measure is SHARE and (len(ends) == 1 or abs(numbers[1] - numbers[0]) >= 2) and min(numbers) >= 1
    texts = [f"{number:.0f}" if coarse else measure.shown(one.value) for number, one in zip(numbers, ends, strict=True)]
    return " → ".join(f"{text} {measure.unit if measure is SHARE else ''}".strip() for text in texts)


def _value(results: frame.Results, test: Test, arm: str) -> estimate.Estimate:
    return contrast.estimate_of(results, test, test.metric, arm)


def place_text(test: Test, spec: ReportSpec) -> str:
    """`strict pass@1 on edge, base → rl_edge`: what is measured, where, of whom."""
    where = (
        f"{test.metric} of stage {test.recorded}"
        if test.recorded
        else f"{metric_heading(test.metric)} on {tables.column_label(test.band)}"
    )
    return f"{where}, {f'{spec.label_of(test.against)} → ' if test.against else ''}{spec.label_of(test.arm)}"


def _details(item: contrast.JudgedClaim, spec: ReportSpec) -> str:
    test, found = item.claim.test, item.estimate
    measure, signed = measure_of(test.metric), test.difference is not None
    low, high = (measure.shown(end, signed) for end in (found.low, found.high))
    interval = f", {_interval_name(item)} {low} to {high} for {found.over}" if not math.isnan(found.low) else ""
    value = f"{measure.shown(found.value, signed)} {measure.unit_of(signed)}".strip() if signed or interval else ""
    return f"{place_text(test, spec)}: {value}{interval}." if value else f"{place_text(test, spec)}."


def _interval_name(item: contrast.JudgedClaim) -> str:
    return "repeated confidence interval" if item.look else "95 % interval"


def _others(made: answers.Answer, lead: contrast.JudgedClaim | None) -> list[str]:
    """A sentence for each verdict: supported claims are counted, with the first about another arm; of the others the first are
    quoted."""
    groups: dict[str, list[contrast.JudgedClaim]] = {}
    for item in made.judged:
        groups.setdefault(page_verdict(item).word, []).append(item)
    said = []
    for word, items in groups.items():
        rest = [item for item in items if item is not lead]
        if word == claim_spec.SUPPORTED and rest:
            count = f"{len(items)} of {model.plural(len(made.judged), 'claim')} {'is' if len(items) == 1 else 'are'} supported"
            arms = {lead.claim.test.arm if lead else "", None}
            other = next((item for item in rest if item.claim.test.difference and item.claim.test.arm not in arms), None)
            also = f", also “{other.claim.says}”: {change_text(made.results, other)}" if other else ""
            said.append(f"{count}{also}.")
        elif rest:
            more = f" and {len(rest) - MOST_LISTED} more" if len(rest) > MOST_LISTED else ""
            quoted = "; ".join(f"“{item.claim.says}”" for item in rest[:MOST_LISTED])
            said.append(f"{word[:1].upper()}{word[1:]}: {quoted}{more}.")
    return said


def idle_sentences(results: frame.Results) -> list[str]:
    """`Stage rl of rl_hard did not change the model: every reward was 0.`: training that changed nothing, one sentence for
    arms with the same reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for arm, stages in notes.idle_stages(results, results.spec.arm_names()).items():
        for name, digests in stages.items():
            lines = [line for digest in digests.values() for line in metrics.read(results.folders[digest])]
            rewards = [line["reward"] for line in lines if "reward" in line]
            why = f": every reward was {rewards[0]:g}" if rewards and len(set(rewards)) == 1 else ""
            found.setdefault((name, why), []).append(results.spec.label_of(arm))
    return [f"Stage {name} of {', '.join(arms)} did not change the model{why}." for (name, why), arms in found.items()]


def _unclaimed(made: answers.Answer) -> list[str]:
    """The largest difference of a table whose interval leaves 0 out and that no claim is about; said to be chosen afterwards."""
    claimed = {frozenset((item.claim.test.arm, item.claim.test.against, item.claim.test.band)) for item in made.judged}
    cells = [cell for grid in made.grids.values() for cell in grid.cells.values() if cell.against and cell.estimate.seeds]
    cells = [cell for cell in cells if cell.metric == "strict_pass@1" and not cell.column.startswith("op:")]
    tried = [cell for cell in cells if frozenset((cell.arm, cell.against, cell.column)) not in claimed]
    found = [cell for cell in tried if cell.estimate.low > 0 or cell.estimate.high < 0]
    if not found or not made.judged:
        return []
    best = max(found, key=lambda cell: abs(cell.estimate.value))
    number, interval = SHARE.shown(best.estimate.value, True), text.interval_text(best.estimate, True, best.metric, False)
    where = f"{metric_heading(best.metric)} on {tables.column_label(best.column)}"
    which = f"the largest of {len(tried)} differences" if len(tried) > 1 else "the only difference"
    said = f"Outside the claims, {which}, chosen after the fact"
    row = tables.row_label(*map(made.results.spec.label_of, (best.arm, best.against)))
    return [f"{said}: {row}, {where}, {number} points {interval}."]


def _headline_of_table(made: answers.Answer) -> Headline:
    """The column of the first table on which its arms differ most, as its lowest and its highest arm."""
    for grid in made.grids.values():
        spread: list[tuple[float, tables.Cell, tables.Cell]] = []
        for column in grid.columns:
            key = [(row, column, grid.metrics[0]) for row in grid.rows]
            cells = sorted(
                (grid.cells[k] for k in key if k in grid.cells and grid.cells[k].estimate.seeds), key=lambda c: c.estimate.value
            )
            if cells and not cells[0].against:
                spread.append((cells[-1].estimate.value - cells[0].estimate.value, cells[0], cells[-1]))
        if spread:
            _, low, high = max(spread, key=lambda one: one[0])
            unit, where = measure_of(high.metric), tables.column_label(high.column, high.metric)
            ends = [
                f"{grid.label(cell.arm)} {unit.shown(cell.estimate.value)} {unit.unit}" for cell in dict.fromkeys((low, high))
            ]
            lead = "No claim could be tested so far" if made.judged else "The study makes no claim"
            return Headline(
                f"Largest difference on {where}",
                " → ".join(ends),
                None,
                f"{lead}; this is the largest difference of the first table.",
                [],
                None,
            )
    return Headline("No evaluation is finished yet", "", None, "", [], None)


# What to run next.


def next_commands(
    made: answers.Answer, pair: tuple[str, str, str | None] | None, gaps: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """(command, what it does): to finish what is missing, `gaps` as (label, digest), else to look behind the
    numbers of the `pair` of arms that the page leads with, and to go on from here."""
    spec = made.results.spec
    scale = f"--scale {shlex.quote(spec.scale)}"
    again = f"interplay run {shlex.quote(spec.study)} {scale}"
    if gaps:
        failed = [(f"interplay show {digest}", f"what became of {label}, with the end of its log") for label, digest in gaps[:1]]
        return [*failed, (again, "goes on; what is finished is not computed again")]
    found = []
    if pair is not None and made.results.prompts:
        before, after, column = pair
        arms = shlex.join([f"{spec.study}/{before}", f"{spec.study}/{after}"])
        only = f" --column {shlex.quote(column)}" if column else ""
        found.append(
            (
                f"interplay compare {arms} {scale}{only}",
                f"{before} and {after} side by side: settings, scores, the problems that flipped",
            )
        )
        cells = [(name, cell) for name, grid in made.grids.items() for cell in grid.cells.values() if cell.estimate.seeds]
        cells = [(name, cell) for name, cell in cells if cell.arm == after and not cell.against and column in (None, cell.column)]
        found += [(explain_command(spec, *cells[0]), "from one number of the table down to its data")] if cells else []
    own = f"my_{Path(spec.study).name}"
    new = f"interplay new {own} --from {spec.study} {scale}"
    return [*found, (new, "a study of your own that extends this one: a commented YAML, and its plan")]


def explain_command(spec: ReportSpec, table: str, cell: tables.Cell) -> str:
    """The command line that prints the same chain."""
    words = [spec.study, table, cell.row.replace("−", "-"), f"{cell.column}/{cell.metric}"]
    return f"interplay explain {shlex.join(words)} --scale {shlex.quote(spec.scale)}"


# Claims as rows of a forest plot.


def forest_rows(made: answers.Answer) -> list[dict[str, Any]]:
    """What the page shows of each claim, in text that is rounded and signed, with its picture. Pictures of differences in one
    unit share their scale, so that rows can be compared."""
    reach: dict[Measure, float] = {}
    for item in made.judged:
        if item.claim.test.difference is not None and item.estimate.seeds:
            measure = measure_of(item.claim.test.metric)
            reach[measure] = max(reach.get(measure, 0.02), _reach(item, measure))
    return [_row(made.results, item, reach) for item in made.judged]


def _reach(item: contrast.JudgedClaim, measure: Measure) -> float:
    """How far from 0 a picture of the claim has to go."""
    found = item.estimate
    ends = [abs(number) for number in (found.low, found.high, found.value, *item.claim.bounds) if math.isfinite(number)]
    return min(measure.support_of_differences[1], 1.15 * max([0.02, *ends]))


def _row(results: frame.Results, item: contrast.JudgedClaim, reach: Mapping[Measure, float]) -> dict[str, Any]:
    test, found = item.claim.test, item.estimate
    signed, measure = test.difference is not None, measure_of(test.metric)
    unit, claimed = measure.unit_of(signed), item.claim.bounds
    shown = bool(found.seeds)
    scale = (-reach[measure], reach[measure]) if signed and shown else (0.0, 1.0)
    if not signed and measure.support != SHARE.support:
        far = _reach(item, measure)
        scale = (-far if any(-math.inf < end < 0 for end in (found.low, found.value, *claimed)) else 0.0, far)
    interval = text.interval_text(found, signed, test.metric, False) if shown and not math.isnan(found.low) else ""
    published = _published(item.claim, unit)
    tie = f", equal within {measure.factor * (test.margin or 0):g}" if test.margin and math.inf in map(abs, claimed) else ""
    asserted = f"claimed {_range(*claimed, measure, unit)}{tie}" if item.claim.effect is None else f"published {published}"
    number = measure.shown(found.value, signed) if shown else ""
    return {
        "claim": item.claim,
        "published": published,
        "verdict": page_verdict(item),
        "place": place_text(test, results.spec),
        "change": change_text(results, item) if shown and signed else "",
        "claimed": asserted,
        "picture": forest_svg(found, claimed, scale, signed, measure) if shown else "",
        "said": f"{number} {unit}{f', {_interval_name(item)} {interval}' if interval else ''}; {asserted}",
        "number": number,
        "unit": unit,
        "interval": interval[1:-1].replace(", ", " to "),
        "per_seed": text.per_seed(found, signed, test.metric),
        "detectable": "" if math.isnan(found.detectable) else f"{measure.shown(found.detectable)} {unit}".rstrip(),
        "n": text.counted(found),
        "reason": item.reason,
        "caveat": item.caveat,
        "changed": [f"{answers.CHANGED}: {one}" for one in item.changed],
        "forecast": answers.forecast_text(item),
        "look": answers.look_text(item),
        "digests": found.digests,
    }


def _published(claim: Claim, unit: str) -> str:
    if isinstance(claim.published, str):
        return claim.published
    return f"{claim.published.effect:+g} {unit}{f' ({claim.published.source})' if claim.published.source else ''}"


def _range(low: float, high: float, measure: Measure, unit: str) -> str:
    ends = [minus(f"{measure.factor * end + 0.0:.6g}") for end in (low, high)]  # as written, unlike what was measured
    said = f"at least {ends[0]}" if math.isinf(high) else f"at most {ends[1]}" if math.isinf(low) else " to ".join(ends)
    return f"{said} {unit}".rstrip()


def minus(text: str) -> str:
    """Negative numbers with the sign that is as wide as a plus; hyphens stay."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


WIDTH, HEIGHT, MIDDLE, DIGIT = 260, 34, 10, 6.5
"""Pixels; the last is what a character of a number takes."""


def forest_svg(
    found: estimate.Estimate,
    claimed: tuple[float, float],
    scale: tuple[float, float],
    signed: bool,
    measure: Measure = SHARE,
) -> str:
    """The interval over the shaded range that the claim asserts, on a `scale` from one number to another."""
    low, high = scale

    def at(number: float) -> float:
        return round(4 + (WIDTH - 8) * (min(max(number, low), high) - low) / (high - low), 1)

    left, right = at(claimed[0]), at(claimed[1])
    ends = (0.0, 1.0) if scale == SHARE.support else (0.0,)
    marks = list(dict.fromkeys(number for number in (*claimed, *ends) if math.isfinite(number)))
    bar = (
        []
        if math.isnan(found.low)
        else [f'<line class="interval" x1="{at(found.low)}" x2="{at(found.high)}" y1="{MIDDLE}" y2="{MIDDLE}"/>']
    )
    parts = [
        f'<svg class="forest" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f'<rect class="claimed" x="{left}" y="1" width="{max(right - left, 1.0):.1f}" height="18" rx="2"/>',
        f'<line class="axis" x1="4" x2="{WIDTH - 4}" y1="{MIDDLE + 9}" y2="{MIDDLE + 9}"/>',
        *(f'<line class="mark" x1="{at(mark)}" x2="{at(mark)}" y1="1" y2="22"/>' for mark in marks),
        *bar,
        f'<circle class="estimate" cx="{at(found.value)}" cy="{MIDDLE}" r="4.5"/>',
        *_labels(marks, at, lambda mark: _tick(mark, signed, measure)),
        "</svg>",
    ]
    return "".join(parts)


def _labels(marks: Iterable[float], at: Callable[[float], float], written: Callable[[float], str]) -> list[str]:
    """The number of every mark, shifted where it would overlap the next."""
    shown = {written(mark): at(mark) for mark in sorted(marks)}
    halves = [(DIGIT * len(text) + 4) / 2 for text in shown]
    places, end = [], 0.0
    for x, half in zip(shown.values(), halves, strict=True):
        places.append(max(x, end + half))
        end = places[-1] + half
    end = float(WIDTH)
    for number in reversed(range(len(places))):
        places[number] = min(places[number], end - halves[number])
        end = places[number] - halves[number]
    return [f'<text x="{x:.1f}" y="32" text-anchor="middle">{text}</text>' for x, text in zip(places, shown, strict=True)]


def _tick(mark: float, signed: bool, measure: Measure) -> str:
    shown = round(measure.factor * mark, measure.decimals) + 0.0
    return f"+{shown:g}" if signed and shown > 0 else f"{shown:g}".replace("-", "−")
