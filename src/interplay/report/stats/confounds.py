"""What else may explain a result: the controls of a study, and confounds that its records show."""

import itertools
import math
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import NamedTuple

import numpy as np

from interplay.core import artifact, metrics
from interplay.core.model import plural
from interplay.kinds.table import SETS
from interplay.report.claim_spec import Claim
from interplay.report.metric_spec import measure_of
from interplay.report.shown_spec import SHARE
from interplay.report.spec import ReportArm
from interplay.report.stats import budget, frame, notes
from interplay.report.stats.contrast import lacks_bases
from interplay.report.stats.estimate import Estimate, difference, estimate_json, value, weighted
from interplay.report.stats.frame import Results
from interplay.report.stats.intervals import crossed_spread, t_interval
from interplay.report.write import tables

# Controls: arms that gain without what the gain is claimed to be of (`report.spec.Controls`).


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
    return Controlled(gain, rows, _controls_summary(results, gain, rows))


def _control(results: Results, kind: str, arm: str) -> ControlRow:
    asked, (name, left) = results.spec.controls, NAMES[kind]
    assert asked is not None
    if not arm:
        metric = "answer_pass@1"
        found, level = value(results, asked.of, asked.band, metric), tables.baseline_score(results, asked.band, metric)
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


def _controls_summary(results: Results, gain: Estimate, rows: list[ControlRow]) -> str:
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


# Confounds: what the records show that may be behind a result in place of what its claim says.


FAR, LEAST_FAR = 3.0, 0.10
"""A base is far from its siblings where it lies further from the nearest than FAR times their range, and than LEAST_FAR: one of
26, 4.7 and 4.7 % carried 16 of 26 results (docs/log/studies-of-the-central-paper.md)."""
MOST_LEAKED = 0.01
"""Share of test problems whose structure may be in training sets: the splits share none."""
LOST = ((0.2, 0.5, "more than half"), (0.8, 0.75, "more than a quarter"))
"""An arm is broken where its start scores at least the first on a band and it keeps less than the second, as a share of that."""
WINDOW, LEAST_RISE = 5, 0.05
"""Steps at either end of RL that are compared, and the rise of reward that counts; the verdict has to keep half of it."""
EXPLAINED = 0.5
"""Share of a gain, from which on fewer truncated completions explain it."""
LENGTH_GAP = 0.15
"""Relative difference of the mean lengths of two bands below which they are equal, and above which they are not."""
LOW, HIGH = 0.05, 0.95
"""Both arms below or above: no room to differ."""


class Confound(NamedTuple):
    """One confound of one claim, or of several."""

    name: str
    says: str
    claims: tuple[str, ...]
    """Their sentences."""


def find_confounds(results: Results) -> list[Confound]:
    """Those of all claims, in the order of DETECTORS; what is said of several claims is said once."""
    found: dict[tuple[str, str], list[str]] = {}
    results = results._replace(kept=dict(results.kept or {}))  # several detectors ask for the same estimates
    for name, detect in DETECTORS.items():
        for claim in results.spec.claims:
            if claim.test.recorded is None:
                for said in detect(results, claim):
                    found.setdefault((name, said), []).append(claim.says)
    return [Confound(*key, tuple(claims)) for key, claims in found.items()]


def confound_lines(results: Results) -> list[str]:
    """`Confound, lucky base: ...`: a line each."""
    return [f"Confound, {one.name}: {one.says}" for one in find_confounds(results)]


def _no_steps(results: Results, claim: Claim) -> Iterator[str]:
    """Reads the checksums of weights and the optimizer steps in records."""
    for arm in claim.test.arms:
        if idle := notes.idle_note(results, arm):
            yield f"{arm}: {idle}"


def _leaked(results: Results, claim: Claim) -> Iterator[str]:
    """Reads structural keys of the problem sets that an arm was trained on, and of the one that it is tested on."""
    deps = {digest: record["deps"].values() for digest, record in results.records.items()}
    for arm in claim.test.arms:
        row = results.spec.rows_of(arm)[0]
        behind = artifact.closure([stage.digest for stage in row.path], lambda digest: deps.get(digest, ()))
        trained = [one for one in behind if one in results.records and results.records[one]["kind"] in SETS]
        tested = {results.records[one]["deps"]["data"] for one in row.evaluations.values() if one in results.records}
        for digest in sorted(tested & results.folders.keys()):
            keys = frame.key_set(results.folders[digest])
            share = len(keys & {key for one in trained for key in frame.key_set(results.folders[one])}) / max(1, len(keys))
            if share > MOST_LEAKED:
                yield f"{100 * share:.0f} % of the structures that {arm} is tested on are in its training sets"


def _lucky(results: Results, claim: Claim) -> Iterator[str]:
    """Reads the score of each base on the band of the test."""
    start, test = claim.test.arms[-1], claim.test
    found = value(results, start, test.band, test.metric)
    if lacks_bases(found._replace(missing=())):
        if not found.missing:  # else more of them are to come
            yield f"{start} has {plural(found.bases, 'base')}: whether others do the same is not known"
        return
    for seed, number in zip(found.seeds, found.per_seed, strict=True):
        others = [other for at, other in zip(found.seeds, found.per_seed, strict=True) if at != seed]
        away = min(abs(number - other) for other in others)
        if away > max(
            FAR * (max(others) - min(others)), LEAST_FAR if measure_of(test.metric).bounded else LEAST_FAR * found.value
        ):
            near, far = (measure_of(test.metric).shown(one) for one in (fmean(others), number))
            yield f"base {seed} of {start} scores {far} on {test.band}, the others {near} in the mean"


def _broken(results: Results, claim: Claim) -> Iterator[str]:
    """Reads the scores of an arm and of the one that it starts from, on every band."""
    pairs = dict(reversed(tables.difference_pairs(results)))  # the start of an arm comes before its control
    for arm in [arm for arm in claim.test.arms if arm in pairs]:
        start = pairs[arm]
        for band in frame.bands(results):
            before = value(results, start, band, "strict_pass@1")
            kept = ((words, {arm: 1.0, start: -share}) for least, share, words in LOST if before.low >= least)
            lost = next((words for words, weights in kept if weighted(results, weights, band, "strict_pass@1").high < 0), None)
            if lost:
                after = value(results, arm, band, "strict_pass@1").value
                yield f"{arm} lost {lost} of what {start} scores on {band}: {100 * before.value:.0f} → {100 * after:.0f} %"


def _hacked(results: Results, claim: Claim) -> Iterator[str]:
    """Reads reward and verdicts of the completions of RL, first and last steps."""
    for arm in claim.test.arms:
        rises = [rise for row in results.spec.rows_of(arm) for rise in _rises(results, row)]
        if len(rises) < 2:
            continue
        reward, right = np.array(rises).T
        paid, kept = (crossed_spread(one[:, None]).t_interval((-math.inf, math.inf)) for one in (reward, right - reward / 2))
        if paid[0] > 0 and reward.mean() > LEAST_RISE and kept[1] < 0:
            ends = f"its reward rises by {reward.mean():.2f}, the share of right answers by {right.mean():+.2f}"
            yield f"RL of {arm} is paid for something else: {ends}"


def _rises(results: Results, row: ReportArm) -> Iterator[tuple[float, float]]:
    """(Rise of the reward, rise of the share that the verdict calls right) of each RL stage of a path."""
    for stage in row.path:
        lines = metrics.read(results.folders[stage.digest]) if stage.digest in results.folders else []
        lines = [line for line in lines if "reward" in line and "answer" in line]
        if stage.kind == "rl" and len(lines) > 1:
            size = min(WINDOW, len(lines) // 2)
            first, last = (
                [fmean(line[key] for line in part) for key in ("reward", "answer", "strict")]
                for part in (lines[:size], lines[-size:])
            )
            reward, *right = (after - before for before, after in zip(first, last, strict=True))
            yield reward, max(right)


def _length(results: Results, claim: Claim) -> Iterator[str]:
    """Reads the shares of truncated completions on the band, and their lengths; and, where there are bands of fewer ops with
    completions as long, and bands of the same ops with others, the gains on these."""
    test = claim.test
    if test.against is None:
        return
    gain = difference(results, test.arm, test.against, test.band, test.metric)
    cut, length = (
        [frame.recorded_mean(results, arm, test.band, key) for arm in (test.arm, test.against)] for key in ("truncated", "length")
    )
    if gain.low > 0 and cut[1] - cut[0] > max(EXPLAINED * gain.value, 0.02):
        less = f"{100 * cut[1]:.0f} → {100 * cut[0]:.0f} % of completions are cut off on {test.band}"
        yield f"{less}, at {length[1]:.0f} → {length[0]:.0f} tokens: most of the gain of {test.arm} may be room and not depth"
    if gain.low > 0 and len(gain.per_seed) > 1:
        yield from _follows_length(results, claim, gain)


def _follows_length(results: Results, claim: Claim, gain: Estimate) -> Iterator[str]:
    """A line where problems of fewer ops but equal length gain at least half as much, and problems of equal ops but another
    length gain less than half, each by a t interval over the seeds."""
    test, own = claim.test, frame.ops_of(results, claim.test.band)
    long = {band: frame.recorded_mean(results, test.arm, band, "length") for band in frame.bands(results)}
    near = {band: abs(one / long.get(test.band, math.nan) - 1) for band, one in long.items() if one and band != test.band}
    ops = {band: frame.ops_of(results, band) for band in near}
    as_long = [band for band, away in near.items() if away < LENGTH_GAP and ops[band] and own and max(ops[band]) < min(own)]
    as_deep = [band for band, away in near.items() if away > LENGTH_GAP and ops[band] == own]
    for band, other in itertools.product(as_long, as_deep):
        found = [difference(results, test.arm, test.against or "", one, test.metric) for one in (band, other)]
        if all(one.seeds == gain.seeds for one in found):
            (least, _), (_, most) = (
                t_interval(np.array(one.per_seed) - EXPLAINED * np.array(gain.per_seed), (-math.inf, math.inf)) for one in found
            )
            if least > 0 > most:
                shown, *there = (measure_of(test.metric).shown(one.value, signed=True) for one in (gain, *found))
                said = (
                    f"{test.arm} gains {shown} on {test.band}, {there[0]} on {band}, of fewer ops and as long, and {there[1]} on "
                )
                said += f"{other}, of its ops at {long[other]:.0f} in place of {long[test.band]:.0f} tokens"
                yield f"{said}: the gain follows length and not op"


def _compute(results: Results, claim: Claim) -> Iterator[str]:
    """Reads what training took, of two arms that train in the same kinds of stages."""
    yield from budget.unequal_compute(results, claim.test)


def _tuned(results: Results, claim: Claim) -> Iterator[str]:
    """Reads the arms and the claims: one value of several that is claimed alone was chosen."""
    test = claim.test
    if test.against is None:
        return
    claimed = {one.test.arm for one in results.spec.claims if (one.test.metric, one.test.band) == (test.metric, test.band)}
    yield from frame.unequal_tries(results.spec, [test.arm, test.against], claimed)


def _changed(results: Results, claim: Claim) -> Iterator[str]:
    """Reads the registration."""
    yield from results.spec.changes_of(claim)


def _machines(results: Results, claim: Claim) -> Iterator[str]:
    """Reads the processor in the telemetry, and whether stages ran in a stack."""
    test = claim.test
    if test.against is None:
        return
    made: dict[str, dict[str, set[str]]] = {}
    for arm in claim.test.arms:
        for row in results.spec.rows_of(arm):
            for digest in row.digests():
                if (record := results.records.get(digest)) and "dtype" in record["spec"]:
                    cpu = metrics.read_telemetry(results.folders[digest]).get("environment", {}).get("cpu")
                    how = ", ".join(filter(None, [cpu, artifact.numerics_of(record)]))
                    made.setdefault(record["kind"], {}).setdefault(arm, set()).add(how)
    for kind, by in made.items():
        if len(by) > 1 and by[test.arm] != by[test.against]:
            each = [f"{arm} on {' and '.join(sorted(how))}" for arm, how in by.items()]
            yield f"stages of kind {kind}: {'; '.join(each)}"


def _ceiling(results: Results, claim: Claim) -> Iterator[str]:
    """Reads the scores of both arms; a claim that nothing is lost needs no room above."""
    rises = claim.test.at_least is None or claim.test.at_least >= 0
    found = _shares(results, claim) if rises else []
    if found and all(one.low > HIGH for one in found):
        yield f"both arms are above {100 * HIGH:.0f} % on {claim.test.band}, so that neither can show more"


def _floor(results: Results, claim: Claim) -> Iterator[str]:
    """Reads the scores of both arms."""
    found = _shares(results, claim)
    if found and all(one.high < LOW for one in found):
        yield f"both arms are below {100 * LOW:.0f} % on {claim.test.band}, so that neither can show less"


def _shares(results: Results, claim: Claim) -> list[Estimate]:
    """The scores of both arms of a difference of shares; none of other claims."""
    test = claim.test
    compared = test.against is not None and measure_of(test.metric).support == SHARE.support
    return [value(results, arm, test.band, test.metric) for arm in claim.test.arms] if compared else []


DETECTORS: dict[str, Callable[[Results, Claim], Iterator[str]]] = {
    "no steps": _no_steps,
    "leaked answers": _leaked,
    "lucky base": _lucky,
    "broken arm": _broken,
    "reward hack": _hacked,
    "length for depth": _length,
    "unequal compute": _compute,
    "tuned contender": _tuned,
    "changed threshold": _changed,
    "mixed machines": _machines,
    "ceiling": _ceiling,
    "floor": _floor,
}
"""Name -> what finds it in the records of a claim's arms."""
