"""What a reader of a table must know first: sampling engines, numerics, training that changed no weight."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from interplay.core import artifact, model
from interplay.core.metrics import number_ranges, round_significant, seeds_text
from interplay.report.claim_spec import Claim, Failing
from interplay.report.metric_spec import measure_of
from interplay.report.spec import ReportArm, ReportStage
from interplay.report.stats.estimate import Estimate
from interplay.report.stats.frame import Results, audit_notes, has_curve, lacked_band, of_seeds, seeds as seeds_of
from interplay.report.stats.intervals import share_interval

# What a reader of a table must know before its differences: who sampled it, and where training changed nothing.


def caveats_of(results: Results, arms: Iterable[str]) -> tuple[str, ...]:
    """Lines on these arms; none where there is no caveat."""
    chosen = list(arms)
    said = (*idle_notes(results, chosen), *sampling_notes(results, chosen), *numerics_notes(results, chosen))
    return (*calibration_notes(results, chosen), *audit_notes(results, chosen), *said)


# Bands that were chosen for each base: which ops they are, and which bases have none.


def calibration_notes(results: Results, arms: list[str]) -> tuple[str, ...]:
    """A line on each calibrated band of these arms: its ops, and at which seeds; and on those that are pinned."""
    found: dict[str, dict[str, dict[int, None]]] = {}
    for row in [row for row in results.spec.rows_of(*arms) if row.calibration in results.records]:
        chosen = results.records[row.calibration]["metrics"]
        for band, ops in chosen["bands"].items():
            said = "no op, left out" if band in chosen["lacking"] else f"op {number_ranges(ops)}"
            found.setdefault(band, {}).setdefault(said, {})[row.seed] = None
    lines = []
    for band, by in found.items():
        each = "; ".join(f"{ops} ({seeds_text([*at])})" for ops, at in by.items())
        lines.append(f"{band}, chosen for each base on held-out prompts: {each}.")
    pinned = {band: ops for band, ops in results.spec.bands.items() if ops} if found else {}
    return (*lines, *(f"{band}, the same for every base: op {number_ranges(ops)}." for band, ops in pinned.items()))


def lacking_bands(results: Results, arms: list[str], column: str) -> str:
    """`the bases of seeds 1, 3 have no edge: no candidate op has strict_pass@1 in [0.05, 0.5]`; empty where all bases have the
    bands that the column and the arms are about."""
    lacking: dict[str, dict[int, str]] = {}
    for row in results.spec.rows_of(*arms):
        if band := lacked_band(results, row.arm, row.seed, column):
            lacking.setdefault(band, {})[row.seed] = row.calibration
    said = []
    for band, at in lacking.items():
        rule = results.records[next(iter(at.values()))]["spec"]["bands"][band]
        needed = " and ".join(f"{name} in {ends}" for name, ends in rule.items())
        said.append(f"no {band} at {seeds_text(sorted(at))}: no candidate op has {needed}")
    return "; ".join(said)


# Sampling engines and precisions, reported where they differ within a table, since they alter samples.


def sampling_notes(results: Results, arms: list[str]) -> tuple[str, ...]:
    """A line on evaluations and one on RL, each only where these arms differ in it; of finished stages alone."""
    chosen = results.spec.rows_of(*arms)
    evaluations = [(row.arm, digest) for row in chosen for digest in row.evaluations.values()]
    trained = [(row.arm, stage.digest) for row in chosen for stage in row.path]
    lines = []
    for what, stages in (("Evaluations", evaluations), ("RL", trained)):
        groups = _groups(results, stages)
        if len(groups) > 1:
            each = "; ".join(f"{how}: {', '.join(names)}" for how, names in groups.items())
            lines.append(f"{what} sampled by different engines, to which differences may be due: {each}.")
    return tuple(lines)


def _groups(results: Results, stages: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Ways of sampling, such as `vllm in float32` -> arms of (arm, stage); an arm with several ways is a group of its own."""
    ways: dict[str, set[str]] = {}
    for arm, digest in stages:
        spec = results.records[digest]["spec"] if digest in results.records else {}
        if "engine" in spec:
            ways.setdefault(arm, set()).add(f"{spec['engine']} in {spec['dtype']}")
    groups: dict[str, list[str]] = {}
    for arm, own in ways.items():
        groups.setdefault(" and ".join(sorted(own)), []).append(arm)
    return groups


# Numerics, which rounding depends on, reported where stages of one kind differ in them.


def numerics_notes(results: Results, arms: list[str]) -> tuple[str, ...]:
    """A line for each kind of which some finished stages of these arms were made in a stack (`run.stack`) and others alone."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for row in results.spec.rows_of(*arms):
        for digest in row.digests():
            if record := results.records.get(digest):
                how = found.setdefault(record["kind"], {}).setdefault(artifact.numerics_of(record), {})
                how[f"{row.arm} seed {row.seed}"] = None
    return tuple(
        f"Stages of kind {kind} with different numerics, to which small differences may be due: "
        + "; ".join(f"{how}: {', '.join(rows)}" for how, rows in sorted(by.items()))
        + "."
        for kind, by in found.items()
        if len(by) > 1
    )


# Where training changed nothing: stages that left the weights as they were, and arms that ended with the same ones.
#
# A difference of zero between such arms is no finding about the setting in which they differ: it had no effect, for example since
# the learning rate is 0, all rewards of a group are equal, or a method that remembers prompts saw each prompt once.


class Failures(NamedTuple):
    """What a claim about bases that do not fail leaves out."""

    failed: dict[int, str]
    """Seed -> why its run failed."""
    lost: int
    """Bases on which a run failed; where all seeds share one base, runs."""
    bases: int
    kept: list[int]
    """Seeds of the others."""
    share: tuple[float, float]
    """Interval of the share that fails, at the level of the claim's."""
    said: str

    def others(self, results: Results) -> Results:
        """The results of the bases that did not fail."""
        return of_seeds(results, self.kept) if self.failed else results

    def as_json(self) -> dict[str, Any]:
        """For claims.json."""
        why = {str(seed): reason for seed, reason in self.failed.items()}
        return {"failed": why, "lost": self.lost, "bases": self.bases, "share": list(map(round_significant, self.share))}


def find_failures(results: Results, claim: Claim, whole: Estimate, level: float) -> Failures | str:
    """The failed bases among those of an estimate over all, or why that is not known."""
    test, fails = claim.test, claim.fails
    assert fails is not None
    sides = [{row.seed: row for row in results.spec.rows_of(arm) if row.seed in whole.seeds} for arm in test.arms]
    bases = min(({seed: row.path[0].digest for seed, row in of.items()} for of in sides), key=lambda of: len({*of.values()}))
    if whole.bases < 2:  # the replicates are runs
        bases = {seed: str(seed) for seed in bases}
    failed: dict[int, str] = {}
    for row in [row for of in sides for row in of.values()]:
        try:
            if why := _why_failed(results, row, fails):
                failed[row.seed] = why
        except LookupError as absent:
            return str(absent.args[0])
    lost, every = {bases[seed] for seed in failed}, {*bases.values()}
    kept = [seed for seed in whole.seeds if bases[seed] not in lost]
    share = share_interval(len(lost), len(every), level)
    measure, signed = measure_of(test.metric), test.against is not None
    values = dict(zip(whole.seeds, whole.per_seed, strict=True))
    listed = "; ".join(f"seed {seed}: {measure.shown(values[seed], signed)}, {why}" for seed, why in failed.items())
    what = model.plural(len(every), "base" if whole.bases > 1 else "run")
    said = f"{len(lost)} of {what} failed{f' ({listed})' if failed else ''}"
    said += f", a share of {100 * share[0]:.0f} to {100 * share[1]:.0f} %"
    low, high = (measure.shown(end, signed) for end in (whole.low, whole.high))
    over = f"over all {measure.shown(whole.value, signed)} [{low}, {high}] {measure.unit_of(signed)}".rstrip()
    return Failures(failed, len(lost), len(every), kept, share, f"{said}; {over}")


def _why_failed(results: Results, row: ReportArm, fails: Failing) -> str:
    """Why a run failed by the rule; empty where it did not, or its arm has no such stage. LookupError with what is missing."""
    for digest in [stage.digest for stage in row.path if stage.name == fails.recorded]:
        found = results.records.get(digest, {}).get("metrics", {})
        bound, side = (fails.below, "below") if fails.above is None else (fails.above, "above")
        for key in [key for key in (fails.value, bound) if isinstance(key, str) and key not in found]:
            raise LookupError(f"the record of {fails.recorded} {digest} has no '{key}'{model.nearest_name(key, found)}")
        value, limit = (found[key] if isinstance(key, str) else key for key in (fails.value, bound))
        if fails.recorded in _ending(results, row).idle:
            return f"{fails.recorded} of {row.arm} left the weights as they were"
        if value is None or limit is None or not math.isfinite(value):
            return f"{fails.value} of {row.arm} is no finite number"
        if value < limit if side == "below" else value > limit:
            return f"{fails.value} of {row.arm} {value:.3g}, {side} {f'{bound} ' if isinstance(bound, str) else ''}{limit:.3g}"
    return ""


END = "model/"
SUFFIX = ".safetensors"
HALF = 0.5
"""Share of the seeds from which on an arm that left its weights as they were there is said not to have acted."""

Weights = frozenset[tuple[str, str]]
"""File in the model's folder -> SHA-256, as pairs; empty where no record has it."""


class Ending(NamedTuple):
    """How the path of an arm ends at one seed."""

    since: str
    """Digest, with its checkpoint if any, of the first stage of the path that already had these weights."""
    weights: Weights
    idle: tuple[str, ...]
    """Names of the stages that left the weights as they were."""


def idle_notes(results: Results, arms: list[str]) -> tuple[str, ...]:
    """A line on idle stages and one on arms with equal final weights, each only where there are such among these arms."""
    endings = {(row.arm, row.seed): _ending(results, row) for row in results.spec.rows_of(*arms)}
    idle: dict[str, list[int]] = {}
    same: dict[tuple[str, ...], list[int]] = {}
    for (arm, seed), ending in endings.items():
        for stage in ending.idle:
            idle.setdefault(f"{stage} of {results.spec.label_of(arm)}", []).append(seed)
    for seed in sorted({seed for _, seed in endings}):
        for group in _same_weights_groups({arm: ending for (arm, of), ending in endings.items() if of == seed}):
            same.setdefault(group, []).append(seed)
    lines = []
    if idle:
        each = "; ".join(f"{what} ({seeds_text(seeds)})" for what, seeds in idle.items())
        lines.append(f"Left the weights as they were: {each}.")
    if same:
        each = "; ".join(f"{', '.join(group)} ({seeds_text(seeds)})" for group, seeds in same.items())
        lines.append(f"Ended with the same weights, so the settings in which these arms differ had no effect: {each}.")
    return tuple(lines)


def idle_stages(results: Results, arms: Iterable[str], share: float = 1.0) -> dict[str, dict[str, dict[int, str]]]:
    """Arm -> name of a stage that left the weights as they were at that share of the finished seeds or more -> digest by seed,
    of those seeds."""
    found: dict[str, dict[str, dict[int, str]]] = {}
    for arm in arms:
        rows = [row for row in results.spec.rows_of(arm) if row.path and row.path[-1].digest in results.records]
        idle: dict[str, dict[int, str]] = {}
        for row in rows:
            still = _ending(results, row).idle
            for stage in row.path:
                if stage.name in still:
                    idle.setdefault(stage.name, {})[row.seed] = stage.digest
        if kept := {name: at for name, at in idle.items() if len(at) >= share * len(rows)}:
            found[arm] = kept
    return found


def idle_note(results: Results, arm: str, share: float = HALF) -> str:
    """`rl left the weights as they were`, with the seeds unless it did at all; empty where no stage did at that share."""
    lines, planned = [], seeds_of(results.spec, arm)
    for name, idle in idle_stages(results, [arm], share).get(arm, {}).items():
        where = "" if sorted(idle) == planned else f" at {seeds_text(sorted(idle))}"
        lines.append(f"{name} left the weights as they were{where}")
    return "; ".join(lines)


def same_weights(results: Results, arm: str, against: str) -> list[int]:
    """Seeds at which two arms ended with the same weights although they are not one model by plan."""
    rows = {(row.arm, row.seed): row for row in results.spec.rows_of(arm, against)}
    seeds = []
    for seed in sorted({seed for _, seed in rows}):
        one, other = rows.get((arm, seed)), rows.get((against, seed))
        if one and other and _last(one) != _last(other):
            weights = _ending(results, one).weights
            seeds += [seed] if weights and weights == _ending(results, other).weights else []
    return seeds


def same_weights_note(results: Results, arm: str, against: str) -> str:
    """`x and y ended with the same weights at seeds 0 and 1`; empty where they did at none."""
    seeds = same_weights(results, arm, against)
    return f"{arm} and {against} ended with the same weights at {seeds_text(seeds)}" if seeds else ""


def inaction_note(results: Results, arm: str, share: float = HALF) -> str:
    """`x did not act: rl left the weights as they were`; empty where it acted."""
    said = idle_note(results, arm, share)
    return f"{arm} did not act: {said}" if said else ""


def inaction_notes(results: Results, arm: str, against: str | None, share: float = HALF) -> Iterator[str]:
    """That an arm, or what it is compared with, left the weights as they were at that share of the seeds or more, or that both
    ended with the same; empty where they acted."""
    yield inaction_note(results, arm, share)
    if against is None:
        return
    yield inaction_note(results, against, share)
    if same_weights(results, arm, against) == seeds_of(results.spec, arm):
        yield same_weights_note(results, arm, against)


def _same_weights_groups(endings: Mapping[str, Ending]) -> list[tuple[str, ...]]:
    """Arms whose weights are the same although different stages made them. An arm whose last stages were idle counts by the
    stage before, so that it is not reported twice."""
    by_weights: dict[Weights, dict[str, str]] = {}
    for arm, ending in endings.items():
        if ending.weights:
            by_weights.setdefault(ending.weights, {})[arm] = ending.since
    return [tuple(arms) for arms in by_weights.values() if len(set(arms.values())) > 1]


def _ending(results: Results, row: ReportArm) -> Ending:
    path = [(stage, _weights(results.records, stage)) for stage in row.path]
    if not path:
        return Ending("", frozenset(), ())
    idle, since = [], path[0][0]
    for (_, before), (stage, weights) in pairwise(path):
        if (weights and weights == before) or _took_no_step(results.records, stage):
            idle += [stage.name] if has_curve(stage.kind) else []
        else:
            since = stage
    return Ending(since.ref(), path[-1][1], tuple(idle))


def _took_no_step(records: Mapping[str, Mapping[str, Any]], stage: ReportStage) -> bool:
    """Whether the record says that the optimiser made no step, as where RL is never paid. Checksums do not show it after a base
    whose weights are kept in bfloat16: RL keeps the same values in float32."""
    return records.get(stage.digest, {}).get("metrics", {}).get("optimizer_steps") == 0


def _weights(records: Mapping[str, Mapping[str, Any]], stage: ReportStage) -> Weights:
    """The files of the model with which the path goes on."""
    prefix = END if stage.step is None else f"checkpoints/{stage.step}/{END}"
    files = records.get(stage.digest, {}).get("files", {})
    own = {name: sha for name, (_, sha) in files.items() if name.startswith(prefix) and name.endswith(SUFFIX)}
    return frozenset((name.removeprefix(prefix), sha) for name, sha in own.items())


def _last(row: ReportArm) -> str:
    return row.path[-1].ref() if row.path else ""
