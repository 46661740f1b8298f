"""Two stages or two arms side by side: differences of their specs and of their results, paired by prompt and seed."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyarrow import parquet

from interplay.core import artifact, metrics as core_metrics
from interplay.core.model import UserError, nearest_name, plural
from interplay.data.sets import read_problems
from interplay.data.trajectory import SEGMENTS, shown_text
from interplay.kinds.stages import flat_leaves, leaf_differences
from interplay.kinds.table import SETS, is_trainer, makes
from interplay.report.draw.diagram import MODEL_ROLES, stage_name
from interplay.report.inspect import chain
from interplay.report.metric_spec import METRICS, check_metric, lower_is_better, measure_of, metric_row
from interplay.report.shown_spec import SHARE
from interplay.report.spec import ReportArm, ReportSpec, ReportStage
from interplay.report.stats import estimate, frame
from interplay.report.write import text

# Prompts on which two evaluations part: how many, and the ones that changed most with what both wrote and what was right.


Pairs = list[tuple[int, str, str]]
"""(seed, evaluation of a, evaluation of b)."""


class Flip(NamedTuple):
    """One prompt at one seed: strictly right samples of a and of b, of n each."""

    seed: int
    prompt: int
    """Its index in the problem set."""
    digests: tuple[str, str]
    right: tuple[int, int]
    n: tuple[int, int]

    @property
    def change(self) -> float:
        """Rate of b minus that of a."""
        return self.right[1] / self.n[1] - self.right[0] / self.n[0]

    @property
    def majority(self) -> bool:
        """Whether most samples are right on one side and most are wrong on the other."""
        rates = [right / n for right, n in zip(self.right, self.n, strict=True)]
        return (rates[0] - 0.5) * (rates[1] - 0.5) < 0


def count_flips(read: frame.Results, pairs: Pairs, column: str | None, metric: str) -> tuple[int, int, int]:
    """(Prompt, seed) pairs on which b scores better, worse and the same."""
    changes = []
    for _, *two in pairs:
        one, other = (frame.prompt_scores(frame.of_column(read.prompts[d], column, read.by_ops), metric) for d in two)
        changes.append(one - other if lower_is_better(metric) else other - one)
    change = pd.concat(changes)
    return int((change > 0).sum()), int((change < 0).sum()), int((change == 0).sum())


def flipped_items(
    read: frame.Results, pairs: Pairs, folders: dict[str, Path], results: Path, column: str | None, number: int
) -> list[list[str]]:
    """Blocks of text: the count of flips, then the `number` largest gains and losses, at most one seed of a prompt."""
    found = [flip for seed, a, b in pairs for flip in prompt_pairs(read, seed, a, b, column)]
    gains, losses = (sum(flip.majority and sign * flip.change > 0 for flip in found) for sign in (1, -1))
    head = [f"flipped, most samples wrong in a and right in b: {gains}; right in a and wrong in b: {losses}"]
    blocks = [head]
    for name, sign in (("gain", 1), ("loss", -1)):
        ordered = sorted((flip for flip in found if sign * flip.change > 0), key=lambda f: (-sign * f.change, f.prompt, f.seed))
        largest = list({flip.prompt: flip for flip in reversed(ordered)}.values())[::-1][:number]
        largest.sort(key=lambda f: (-sign * f.change, f.prompt))
        blocks += [_flip_lines(flip, name, read, folders, results) for flip in largest]
    return blocks


def prompt_pairs(read: frame.Results, seed: int, a: str, b: str, column: str | None) -> list[Flip]:
    """Every prompt of a column that the evaluations `a` and `b` have in common."""
    one, other = (frame.of_column(read.prompts[digest], column, read.by_ops) for digest in (a, b))
    both = one[["strict", "n"]].join(other[["strict", "n"]], rsuffix="_b", how="inner")
    return [Flip(seed, int(i), (a, b), (int(s), int(t)), (int(n), int(m))) for i, s, n, t, m in both.itertuples()]


def _flip_lines(flip: Flip, what: str, read: frame.Results, folders: dict[str, Path], results: Path) -> list[str]:
    row = read.prompts[flip.digests[0]].loc[flip.prompt]
    rates = " -> ".join(f"{right} of {n}" for right, n in zip(flip.right, flip.n, strict=True))
    lines = [f"{what}: problem {flip.prompt}, {row['band']}, op {row['op']}, seed {flip.seed}: {rates} strictly right"]
    sets = (artifact.folder(results, kind, read.records[flip.digests[0]]["deps"]["data"]) for kind in SETS)
    shown = ("prompt", "solution")
    problem = next((known[flip.prompt] for folder in sets if (known := read_problems(folder, [flip.prompt], shown))), None)
    lines += [f"  {'prompt':7}{problem['prompt']}"] if problem else []
    for side, digest in zip("ab", flip.digests, strict=True):
        completion, count, error = typical_completion([folders[block] for block in read.spec.blocks_of(digest)], flip.prompt)
        judged = "right" if error == "none" else error
        lines.append(f"  {side:7}{completion}  ({count}x, {judged})")
    return [*lines, f"  {'gold':7}{problem['solution'] if problem else 'not here: the problem set has no payload'}"]


def typical_completion(blocks: list[Path], index: int) -> tuple[str, int, str]:
    """The completion that most samples of the prompt share, how many do, and its error class; of all blocks of samples."""
    columns, only = ["index", "completion", "error"], [("index", "==", index)]
    rows: list[dict[str, Any]] = []
    for path in (folder / "samples.parquet" for folder in blocks):
        more = [name for name in parquet.read_schema(path).names if name == SEGMENTS]
        rows += parquet.read_table(path, columns=[*columns, *more], filters=only).to_pylist()
    counted = Counter((shown_text(row, False), row["error"]) for row in rows)
    (completion, error), count = counted.most_common(1)[0]
    return str(completion), count, str(error)


MOST = 14
"""Fields of one stage that are listed."""

Stages = Mapping[str, Mapping[str, Any]]


class Side(NamedTuple):
    """One of the two. A stage has no seeds: its evaluation counts as seed 0."""

    name: str
    """As on the command line."""
    steps: list[tuple[str, str]]
    """(name, digest) of the stages to compare with those of the other side, at the first seed."""
    evaluations: dict[int, dict[str, str]]
    """Seed -> evaluation name -> digest; empty where there is nothing to pair."""
    blocks: Mapping[str, list[str]] = {}
    """Digest of an evaluation -> digests of the stages with its further samples."""
    spec: ReportSpec | None = None
    """What the study of an arm shows; null of a stage."""
    arm: str = ""


def of_arm(name: str, arm: str, spec: ReportSpec) -> Side:
    """An arm of a study. Raises UserError when there is none of that name."""
    rows = spec.rows_of(arm)
    if not rows:
        raise UserError(f"{name}: study {spec.study} has no arm {arm!r}{nearest_name(arm, spec.arm_names())}")
    steps = [(stage.name, stage.digest) for stage in rows[0].path]
    steps += rows[0].evaluations.items()
    return Side(name, steps, {row.seed: dict(row.evaluations) for row in rows}, spec.blocks, spec, arm)


def of_stage(name: str, digest: str, stages: Stages) -> Side:
    """A single stage."""
    kind = stages[digest]["kind"]
    return Side(name, [(kind, digest)], {0: {"eval": digest}} if makes(kind) == "samples" else {})


def compare(a: Side, b: Side, stages: Stages, results: Path, metric: str, column: str | None, number: int) -> str:
    """Spec, metrics and, of evaluations, every prompt of `a` with that of `b`; `number` flipped items in each direction.

    Raises UserError when there is no such metric, when the two are of different kinds or were evaluated on different problem
    sets, and when the evaluations have no such column, or too few samples for the metric."""
    try:
        metric = check_metric(metric)
    except ValueError as error:
        raise UserError(f"--metric {error}") from None
    if metric_row(metric).per == "run":
        raise UserError(f"--metric {metric}: a number of a target; those of two arms of a study come by themselves, leave it out")
    if metric_row(metric).per == "right answer":
        raise UserError(f"--metric {metric}: a share of all right answers, so that no prompt has one of its own; choose another")
    single = not (len(a.evaluations) > 1 or len(a.steps) > 1 or len(b.steps) > 1)
    if single:
        one, other = (stages[side.steps[0][1]] for side in (a, b))
        if one["kind"] != other["kind"] and not (is_trainer(one["kind"]) and is_trainer(other["kind"])):
            said = f"{one['digest']} is {one['kind']} and {other['digest']} is {other['kind']}"
            raise UserError(f"{said}: compare stages of one kind, or two arms")
    named = [{(seed, name) for seed, of in side.evaluations.items() for name in of} for side in (a, b)]
    common = sorted(named[0] & named[1])
    for seed, name in common:
        _same_problems(a.evaluations[seed][name], b.evaluations[seed][name], stages)
    blocks = [core_metrics.aligned([["a", a.name, *_which(a, stages)], ["b", b.name, *_which(b, stages)]], indent=0)]
    at = f" at seed {min(a.evaluations)}" if len(a.evaluations) > 1 else ""
    differs = [*_specs(a, b, stages), *_numerics(a, b, stages, results)]
    blocks.append([f"what differs{at}, a -> b", *(differs or ["  nothing"])])
    if common:
        blocks += _scores(a, b, common, stages, results, metric, column, number)
    elif single:
        blocks.append(["metrics, a -> b", *(_metrics(a.steps[0][1], b.steps[0][1], stages, results))])
    else:
        blocks.append(["no seed and evaluation that both have: nothing to pair"])
    if a.spec is not None and a.spec == b.spec and a.spec.targets:
        blocks.append(_on_targets(a.spec, a.arm, b.arm, results))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _on_targets(spec: ReportSpec, a: str, b: str, results: Path) -> list[str]:
    """When two arms of a study reach the targets of learning curves: both values, and the difference of those that both have."""
    read, rows = chain.read_curves(spec, results), [["target", "", "a", "b", "b − a", "", "for"]]
    for name, row in itertools.product(spec.targets, filter(lambda row: row.per == "run", METRICS)):
        found, sides = (
            estimate.difference(read, b, a, name, row.name),
            [estimate.value(read, one, name, row.name) for one in (a, b)],
        )
        shown = [row.measure.shown(one.value) for one in sides]
        interval = text.interval_text(found, True, row.name, False) if found.seeds else ""
        said = found.over or "; ".join(dict.fromkeys(reason for one in sides for reason in one.missing))
        rows.append([name, f"{row.name}, {row.measure.unit}", *shown, row.measure.shown(found.value, True), interval, said])
    return ["targets of learning curves, with the 95 % interval of b − a", *core_metrics.aligned(rows, right=(2, 3, 4))]


def _which(side: Side, stages: Stages) -> list[str]:
    if len(side.steps) == 1:
        stage = stages[side.steps[0][1]]
        return [f"{stage['kind']} {stage['digest']}", str(stage.get("label", ""))]
    path = " -> ".join(name for name, digest in side.steps if stages[digest]["kind"] != "evaluate")
    return [path, plural(len(side.evaluations), "seed")]


def _same_problems(a: str, b: str, stages: Stages) -> None:
    one, other = stages[a]["deps"]["data"], stages[b]["deps"]["data"]
    if one != other:
        sets = " and ".join(f"{stage_name(stages[digest])} [{digest}]" for digest in (one, other))
        raise UserError(f"evaluations {a} and {b} are on different problem sets ({sets}): nothing can be paired")


def _specs(a: Side, b: Side, stages: Stages) -> list[str]:
    """Where the two differ, stage by stage of the path."""
    one, other = dict(a.steps), dict(b.steps)
    if len(a.steps) == len(b.steps) == 1:
        other = dict.fromkeys(one, b.steps[0][1])
    rows: list[list[str]] = []
    for name in dict.fromkeys([*one, *other]):
        if name not in one or name not in other:
            rows.append([name, "", f"only in {'a' if name in one else 'b'}: {stages[{**one, **other}[name]]['kind']}"])
        else:
            skip = MODEL_ROLES if len(a.steps) > 1 or len(b.steps) > 1 else ()
            rows += [[name, *row] for row in _differences(one[name], other[name], stages, skip, "")]
    return core_metrics.aligned(rows)


def _numerics(a: Side, b: Side, stages: Stages, results: Path) -> list[str]:
    """Steps of which one side was made in a stack and the other alone; of finished stages."""
    rows = []
    for (name, one), (_, other) in zip(a.steps, b.steps, strict=False):
        folders = [artifact.folder(results, stages[digest]["kind"], digest) for digest in (one, other)]
        if all(map(artifact.done, folders)):
            old, new = (artifact.numerics_of(artifact.record(folder)) for folder in folders)
            rows += [[name, "numerics", f"{old} -> {new}"]] if old != new else []
    return core_metrics.aligned(rows)


def _differences(a: str, b: str, stages: Stages, skip: tuple[str, ...], path: str) -> list[list[str]]:
    """[field, old -> new] of two stages and of their dependencies, each role's stage by its name; without roles in `skip`."""
    one, other = stages[a], stages[b]
    fields = leaf_differences(one["spec"], other["spec"])
    rows = [
        [f"{path}{key}", f"{core_metrics.short(old)} -> {core_metrics.short(new)}"]
        for key, (old, new) in list(fields.items())[:MOST]
    ]
    rows += [["", f"and {plural(len(fields) - MOST, 'more field')}"]] if len(fields) > MOST else []
    versions = leaf_differences(one.get("versions", {}), other.get("versions", {})) if not fields else {}
    rows += [[f"{path}version of {key or one['kind']}", f"{old} -> {new}"] for key, (old, new) in versions.items()]
    for role in dict.fromkeys([*one["deps"], *other["deps"]]):
        old, new = one["deps"].get(role), other["deps"].get(role)
        if old == new or role in skip:
            continue
        rows.append([f"{path}{role}", f"{_reference_text(old, stages)} -> {_reference_text(new, stages)}"])
        before, after = (artifact.ref_digest(ref) if ref else "" for ref in (old, new))
        if before != after and before in stages and after in stages and stages[before]["kind"] == stages[after]["kind"]:
            rows += _differences(before, after, stages, (), f"{path}{role}.")
    return rows


def _reference_text(ref: str | None, stages: Stages) -> str:
    if ref is None:
        return "-"
    digest = artifact.ref_digest(ref)
    if digest not in stages:
        return f"[{ref}]"
    name = stage_name(stages[digest])
    return f"{name if name != digest else stages[digest]['kind']} [{ref}]"


def _metrics(a: str, b: str, stages: Stages, results: Path) -> list[str]:
    """Numbers of both records, where they differ."""
    folders = [artifact.folder(results, stages[digest]["kind"], digest) for digest in (a, b)]
    absent = [folder.name for folder in folders if not artifact.done(folder)]
    if absent:
        return [f"  {digest} has no record: it is not finished" for digest in absent]
    one, other = (flat_leaves(artifact.record(folder)["metrics"]) for folder in folders)
    rows = []
    for key in [key for key in dict.fromkeys([*one, *other]) if one.get(key) != other.get(key)]:
        old, new = one.get(key), other.get(key)
        change = f"{new - old:+.4g}" if isinstance(old, int | float) and isinstance(new, int | float) else ""
        rows.append([key, core_metrics.short(old), "->", core_metrics.short(new), change])
    return core_metrics.aligned(rows, right=(1, 3, 4)) or ["  all equal"]


def _scores(
    a: Side, b: Side, common: list[tuple[int, str]], stages: Stages, results: Path, metric: str, column: str | None, number: int
) -> list[list[str]]:
    """For each evaluation that both have a table of `metric` by band, then the items that flipped. Raises UserError when none
    holds `column`, or one that does has fewer samples than the metric needs."""
    more = {**a.blocks, **b.blocks}
    digests = [side.evaluations[seed][name] for seed, name in common for side in (a, b)]
    wanted = [block for digest in digests for block in (digest, *more.get(digest, []))]
    folders = {block: artifact.folder(results, "evaluate", block) for block in wanted}
    undone = [digest for digest, folder in folders.items() if not artifact.done(folder)]
    bare = [digest for digest, folder in folders.items() if digest not in undone and not (folder / "samples.parquet").exists()]
    if undone or bare:
        said = [f"  evaluation {digest} is not finished" for digest in undone]
        said += [f"  samples of evaluation {digest}: `interplay store pull` gets them" for digest in bare]
        return [["scores: not here", *said]]
    known: dict[str, list[int]] = {}
    blocks: list[list[str]] = []
    names = list(dict.fromkeys(name for _, name in common))
    for name in names:
        seeds = [seed for seed, other in common if other == name]
        pairs = [(seed, a.evaluations[seed][name], b.evaluations[seed][name]) for seed in seeds]
        bands = chain.planned_bands(stages[pairs[0][1]]["deps"]["data"], stages)
        known |= bands
        read = _results(pairs, bands, more, folders, stages)
        if column is None or any(len(frame.of_column(table, column, read.by_ops)) for table in read.prompts.values()):
            head = f"{name}: " if len(names) > 1 else ""
            blocks.append(_table(read, pairs, [column] if column else [None, *bands], metric, head))
            blocks += flipped_items(read, pairs, folders, results, column, number)
    if not blocks:
        columns = [*known, *(f"op:{op}" for ops in known.values() for op in ops)]
        raise UserError(f"--column {column}: no prompt of it in these evaluations{nearest_name(str(column), columns)}")
    return blocks


def _table(read: frame.Results, pairs: Pairs, columns: Sequence[str | None], metric: str, head: str) -> list[str]:
    """A line for each column: both values, the difference, and how many prompts moved."""
    rows = [["", "a", "b", "b − a", "", "for", "better", "worse", "equal"]]
    measure = measure_of(metric)
    for item in columns:
        _enough(read, item, metric)
        found = estimate.difference(read, "b", "a", item, metric)
        sides = [estimate.value(read, side, item, metric).value for side in ("a", "b")]
        counts = count_flips(read, pairs, item, metric)
        interval = text.interval_text(found, True, metric, False)
        shown = [measure.shown(found.value, True), interval, found.over]
        rows.append([(item or "all").replace(":", " "), *map(measure.shown, sides), *shown, *map(str, counts)])
    unit = "in percent" if measure is SHARE else measure.in_unit
    head += f"{metric} {unit}, with the 95 % interval of b − a; better, worse, equal count pairs of one prompt at one seed"
    return [head, *core_metrics.aligned(rows, right=(1, 2, 3, 6, 7, 8))]


def _enough(read: frame.Results, column: str | None, metric: str) -> None:
    """Every prompt of the column has the samples that the metric needs."""
    for digest, prompts in read.prompts.items():
        rows = frame.of_column(prompts, column, read.by_ops)
        if not len(rows):
            continue
        if why := frame.unavailable(rows, metric):
            raise UserError(f"--metric {metric}: evaluation {digest} {why}; choose another metric")
        if metric_row(metric).samples > (least := rows["n"].min()):
            raise UserError(f"--metric {metric}: evaluation {digest} has {plural(least, 'sample')} per prompt; lower k")


def _results(
    pairs: Pairs, bands: dict[str, list[int]], blocks: dict[str, list[str]], folders: dict[str, Path], stages: Stages
) -> frame.Results:
    """The evaluations that are paired, as a report of two arms `a` and `b` would read them."""
    arms = [
        ReportArm(arm=key, seed=seed, path=[_base(digest, stages)], evaluations={"eval": digest})
        for seed, *two in pairs
        for key, digest in zip("ab", two, strict=True)
    ]
    shown: dict[str, Any] = {"tables": {}, "figures": {}, "claims": []}
    spec = ReportSpec(study="compare", scale="", question="", arms=arms, bands=bands, trained_ops={}, blocks=blocks, **shown)
    return frame.read_results(spec, folders)


def _base(digest: str, stages: Stages) -> ReportStage:
    """What the model of an evaluation goes out from at first."""
    while digest in stages and (found := [of for role, of in stages[digest]["deps"].items() if role in ("model", "init")]):
        digest = artifact.ref_digest(found[0])
    return ReportStage(name="base", kind="", digest=digest)
