"""What else may explain a result: the controls of a study, and confounds that its records show."""

import math
from typing import NamedTuple

from interplay.core.model import plural
from interplay.report.stats.contrast import lacks_bases
from interplay.report.stats.estimate import Estimate, difference, estimate_json, value, weighted
from interplay.report.stats.frame import Results
from interplay.report.write.tables import baseline_score

# Controls: arms that gain without what the gain is claimed to be of (report.spec.Controls).


NAMES = {
    "random": ("RL paid by chance", "the gain is not of the reward"),
    "format": ("RL paid for format only", "the form of the answers explains it"),
    "labels": ("RL on shuffled labels", "it needs no right answers"),
    "prior": ("answers without reading", "its answers are right no more often than answers drawn without reading the problem"),
    "none": ("no update", "drawing other samples explains it"),
    "sft": ("gold SFT at equal tokens", "it needs no RL"),
}
"""Kind of a control -> what it is called, and what is left where it gains as much."""
EXPLAINS, RULED_OUT, PART, OPEN, ABSENT = "explains it", "ruled out", "a part at most", "open", "missing"


class ControlRow(NamedTuple):
    """One control next to the arm whose gain is to be explained."""

    kind: str
    name: str
    arm: str
    """Empty of the answer prior, which is no model."""
    gain: Estimate
    """Over the same start."""
    rest: Estimate
    """What the arm gains beyond the control."""
    word: str
    """EXPLAINS: it gains more than half of what the arm gains; RULED_OUT: less than half, and less than the arm; PART: less than
    the arm; each where a 95 % interval says so, paired by base and prompt. Else OPEN, or ABSENT."""
    says: str


class Controlled(NamedTuple):
    """A gain with its controls."""

    gain: Estimate
    rows: list[ControlRow]
    left: str
    """What explains the gain, as far as they show."""


def judge_controls(results: Results) -> Controlled:
    """Of a study that has controls."""
    asked = results.spec.controls
    assert asked is not None
    gain = difference(results, asked.of, asked.against, asked.band, asked.value)
    rows = [_control(results, kind, asked.arms.get(kind, "")) for kind in asked.among]
    return Controlled(gain, rows, _left(results, gain, rows))


def _control(results: Results, kind: str, arm: str) -> ControlRow:
    asked, (name, left) = results.spec.controls, NAMES[kind]
    assert asked is not None
    if not arm:
        metric = "answer_pass@1"
        found, level = value(results, asked.of, asked.band, metric), baseline_score(results, asked.band, metric)
        shift = {key: getattr(found, key) - level for key in ("value", "low", "high")}
        rest = found._replace(**shift)
        if found.missing or math.isnan(level):
            return ControlRow(kind, name, "", Estimate(), rest, ABSENT, "; ".join(found.missing) or "no answer prior is recorded")
        word = RULED_OUT if rest.low > 0 else EXPLAINS if rest.high <= 0 else OPEN
        says = left if word == EXPLAINS else f"{100 * level:.1f} % of such are right, {100 * found.value:.1f} % of its own"
        return ControlRow(kind, name, "", Estimate(), rest, word, says)
    gain, rest = (difference(results, *pair, asked.band, asked.value) for pair in ((arm, asked.against), (asked.of, arm)))
    half = weighted(results, {arm: 1.0, asked.of: -0.5, asked.against: -0.5}, asked.band, asked.value)
    if gain.missing or rest.missing:
        return ControlRow(kind, name, arm, gain, rest, ABSENT, "; ".join(dict.fromkeys((*gain.missing, *rest.missing))))
    if half.low > 0:
        more = "more" if rest.high < 0 else "more than half as much"
        return ControlRow(kind, name, arm, gain, rest, EXPLAINS, f"gains {more}: {left}")
    if rest.low > 0:
        word, how = (RULED_OUT, "less than half as much") if half.high < 0 else (PART, "less")
        return ControlRow(kind, name, arm, gain, rest, word, f"gains {how}")
    return ControlRow(kind, name, arm, gain, rest, OPEN, "whether it gains as much is not decided")


def _left(results: Results, gain: Estimate, rows: list[ControlRow]) -> str:
    asked = results.spec.controls
    assert asked is not None
    what = f"the gain of {results.spec.label_of(asked.of)} over {results.spec.label_of(asked.against)} on {asked.band}"
    if gain.missing:
        return f"Controls: {what} is not measured yet"
    if not gain.low > 0:
        return f"Controls: there is no gain to explain, since the interval of {what} reaches 0"
    here = ", for these bases alone" if lacks_bases(gain) else ""
    by = {word: [row for row in rows if row.word == word] for word in (EXPLAINS, PART, OPEN, ABSENT, RULED_OUT)}
    if by[EXPLAINS]:
        said = "; ".join(f"{row.name} {row.says}" for row in by[EXPLAINS])
        return f"Controls of {what}{here}: {said} ({len(by[RULED_OUT])} of {len(rows)} explanations ruled out)"
    left = [f"{row.name} ({row.word})" for word in (PART, OPEN, ABSENT) for row in by[word]]
    ruled = f"{plural(len(by[RULED_OUT]), 'other explanation')} ruled out{here}"
    return f"Controls of {what}: {ruled}; left {'are' if left else 'is'} {', '.join(['the reward', *left])}"


def controls_json(made: Controlled) -> dict[str, object]:
    """The content of controls.json."""
    rows = [{**row._asdict(), "gain": estimate_json(row.gain), "rest": estimate_json(row.rest)} for row in made.rows]
    return {"gain": estimate_json(made.gain), "left": made.left, "controls": rows}
