"""A study's results as tidy DataFrames: one row per arm, seed and metric, the keys in which arms differ as columns."""

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyarrow import parquet

from interplay.core import artifact, metrics as store_metrics, model
from interplay.data.sets import kept_file
from interplay.data.trajectory import Trajectory, read_trajectories
from interplay.kinds.table import makes
from interplay.report import claim_spec, metric_spec
from interplay.report.spec import ReportArm
from interplay.report.stats import confounds, contrast, estimate, frame, provenance, sequential
from interplay.report.write import answers
from interplay.results import catalog, state as study_state
from interplay.study import arms, choices, expand
from interplay.study.plan import Plan

METHOD = ".method"
"""Keys of whole RL methods end with it."""
TYPES = {"value": "float64", "at_step": "Int64"}
TELEMETRY = ["started", "seconds_wall", "seconds_cpu", "peak_memory_mb", "attempts", "threads", "host"]


class Step(NamedTuple):
    """One stage of one arm at one seed."""

    arm: str
    seed: int
    stage: str
    kind: str
    digest: str
    along: str | None = None
    """Stage whose kept model an evaluation of a training ladder is about; None: the model at the end of the path."""
    at_step: int | None = None
    """Step of that model; None: its end."""


@dataclass(frozen=True)
class Loaded:
    """What a study left so far. Rows of stages that are not done hold NaN and the state of the stage."""

    study: str
    scale: str
    axes: list[str]
    """Keys (`stage.key` or `task.key`) that some arm sets or has as an axis: columns of every frame."""
    metrics: pd.DataFrame = field(repr=False)
    """Columns: arm, group (the arm before its axes), the axes, seed, stage, kind, along and at_step (of evaluations along a
    training ladder: whose kept model, and when), digest, state, subset, metric, value. `subset` is `all`, a band, `op:N` or
    `mode:M`; empty for metrics of training stages that have none."""
    curves: pd.DataFrame = field(repr=False)
    """metrics.jsonl of every training stage, unfinished ones too. Columns: as in `metrics` up to state, then step, metric,
    value."""
    stages: pd.DataFrame = field(repr=False)
    """Every stage of the plan once, by digest: kind, label, state, detail (how far, or why it failed) and telemetry."""
    _folders: dict[str, Path] = field(repr=False)
    _blocks: dict[str, list[str]] = field(repr=False)

    def samples(self, arm: str | None = None, seed: int | None = None, stage: str | None = None) -> pd.DataFrame:
        """One row per sample of the finished evaluations: the columns of `metrics` up to digest, then index (of the prompt),
        sample, band, op, mode, strict, answer, score, error, length, truncated, completion."""
        return self._whole("evaluate", arm, seed, stage)

    def rollouts(self, arm: str | None = None, seed: int | None = None, stage: str | None = None) -> pd.DataFrame:
        """One row per rollout that the finished RL stages keep (`keep_rollouts` of each step): the columns of `metrics` up to
        digest, then step, set, index (of the prompt in that set), prompt, completion, reward, strict, answer, score, error,
        advantage, truncated, length."""
        return self._whole("rl", arm, seed, stage)

    def trajectories(
        self, kind: str = "rl", arm: str | None = None, seed: int | None = None, stage: str | None = None
    ) -> Iterator[Trajectory]:
        """The rows that `stream` gives as trajectories, one after the other."""
        for _, path in self._files(kind, arm, seed, stage):
            yield from read_trajectories(path)

    def _whole(self, kind: str, arm: str | None, seed: int | None, stage: str | None) -> pd.DataFrame:
        found = list(self.stream(kind, arm, seed, stage))
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=[*_head(self.axes), "digest"])

    def stream(
        self,
        kind: str = "rl",
        arm: str | None = None,
        seed: int | None = None,
        stage: str | None = None,
        columns: list[str] | None = None,
        rows: int = 1 << 16,
    ) -> Iterator[pd.DataFrame]:
        """The rows of `rollouts` (kind `rl`) or `samples` (`evaluate`), or the samples of `generate` stages, in frames of at most
        `rows`, for more of them than memory holds. `columns`: those of the file that are read; None: all. Stages of kind generate
        belong to no arm: their frames begin with `stage`, the label in `stages` such as `data.solved`, and digest."""
        for row, path in self._files(kind, arm, seed, stage):
            yield from _parts(path, row, columns, rows)

    def _files(self, kind: str, arm: str | None, seed: int | None, stage: str | None) -> Iterator[tuple[dict[Any, Any], Path]]:
        whole, keys, once = self.metrics, _head(self.axes), ["arm", "seed", "stage", "along", "at_step"]
        if makes(kind) == "problems":  # of no arm: problem sets name these stages
            whole, keys, once = self.stages.rename(columns={"label": "stage"}), ["stage"], ["digest"]
        wanted = whole[(whole["kind"] == kind) & (whole["state"] == "done")]
        for column, value in (("arm", arm), ("seed", seed), ("stage", stage)):
            if value is not None and column not in whole:
                raise model.UserError(f"{column} = {value!r}: a {kind} stage is of no {column}; leave it out, or give `stage`")
            wanted = wanted if value is None else wanted[wanted[column] == value]
        for row in wanted[[*keys, "digest"]].drop_duplicates(once).to_dict("records"):
            for digest in [row["digest"], *self._blocks.get(row["digest"], [])]:
                if path := kept_file(self._folders[digest]):  # else only its record and counts are here
                    yield row, path


def _parts(path: Path, own: dict[Any, Any], columns: list[str] | None, rows: int) -> Iterator[pd.DataFrame]:
    """The rows of a file in frames of at most `rows`, after columns of one value each."""
    with parquet.ParquetFile(path) as file:
        for part in file.iter_batches(rows, columns=columns):
            yield pd.concat([pd.DataFrame(own, index=range(len(part))), part.to_pandas()], axis=1)


def read(study: str, scale: str | None, configs: Path, results: Path) -> Loaded:
    """See `interplay.load`."""
    scale = scale or choices.chosen(configs, {})[1]
    plan = expand.plan_study(configs, study, scale)
    axes, own_of = _axis_values(configs, study, scale)
    found = study_state.scan_results(results)
    folders = {digest: artifact.folder(results, stage.kind, digest) for digest, stage in plan.stages.items()}
    states = {digest: found[digest].state if digest in found else study_state.NEW for digest in plan.stages}
    for line in provenance.two_contents(folders.values()):
        warnings.warn(line, stacklevel=3)
    spec = plan.report_spec()
    values: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for step in (step for arm in spec.arms for step in _steps(arm)):
        parts = spec.blocks_of(step.digest)
        state = next((states[part] for part in parts if states[part] != "done"), "done")
        own = {**own_of[step.arm], **step._asdict(), "state": state}
        values += [{**own, **row} for row in _values(step.kind, [folders[part] for part in parts], state)]
        curves += [{**own, **row} for row in _curve(folders[step.digest])]
    head = [*_head(axes), "digest", "state"]
    return Loaded(
        study=study,
        scale=scale,
        axes=axes,
        metrics=pd.DataFrame(values, columns=[*head, "subset", "metric", "value"]).astype(TYPES),
        curves=pd.DataFrame(curves, columns=[*head, "step", "metric", "value"]).astype(TYPES),
        stages=_stages(plan, folders, states, {digest: one.detail for digest, one in found.items()}),
        _folders=folders,
        _blocks=spec.blocks,
    )


def _head(axes: list[str]) -> list[str]:
    return ["arm", "group", *axes, "seed", "stage", "kind", "along", "at_step"]


def _axis_values(configs: Path, study: str, scale: str) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """The keys in which arms differ, and their values in each arm: what it sets or chooses, else the value of the stage, None
    where the arm has no such stage."""
    typed, scaled = expand.load(configs, study, scale)
    context = expand.parse(study, typed, scaled, configs)
    lookup, made = context.lookup(), context.arms
    keys = list(dict.fromkeys(key for one in made.values() for key in (*one.axes, *one.set)))
    known = catalog.known_methods(configs) if any(key.endswith(METHOD) for key in keys) else {}
    own_of: dict[str, dict[str, Any]] = {}
    for name, one in made.items():
        reached = ("task", arms.SPLIT, *one.path, *typed.evaluate)
        given = {**one.axes, **one.set}
        arm = typed.arms[one.group]
        own = {key: arms.own_value(arm, key, lookup) for key in keys if key not in given and key.split(".")[0] in reached}
        values = {key: given.get(key, own.get(key)) for key in keys}
        own_of[name] = {"group": one.group, **{key: _plain(key, value, known) for key, value in values.items()}}
    return keys, own_of


def _plain(key: str, value: Any, known: catalog.KnownMethods) -> Any:
    """Something that can be grouped and pivoted by: `{edge: 0.5, corpus: 0.5}` becomes `edge:0.5+corpus:0.5`, and a whole method
    the name of its file."""
    if key.endswith(METHOD) and (name := catalog.method_name(value, known)):
        return name
    if isinstance(value, model.Model):
        own = {"name": value.name} if hasattr(value, "name") else {}
        value = {**own, **value.model_dump(mode="json", exclude_defaults=True)}
    return value if value is None or isinstance(value, (bool, int, float, str)) else arms.short_value(value)


def _steps(arm: ReportArm) -> Iterator[Step]:
    for stage in arm.path:
        yield Step(arm.arm, arm.seed, stage.name, stage.kind, stage.digest)
    for name, digest in arm.evaluations.items():
        yield Step(arm.arm, arm.seed, name, "evaluate", digest)
    for rung in arm.rungs:
        yield Step(arm.arm, arm.seed, rung.evaluation, "evaluate", rung.digest, rung.stage, rung.step)


def _values(kind: str, parts: list[Path], state: str) -> Iterator[dict[str, Any]]:
    """The record's metrics as rows; one empty row for a stage that has no record."""
    if state != "done":
        yield {"subset": "", "metric": None, "value": float("nan")}
        return
    records = [artifact.record(part)["metrics"] for part in parts]
    known_of = [{_subset(kind, path): value for path, value in _leaves(metrics, ())} for metrics in records]
    for (subset, metric), value in (known_of[0] if len(known_of) == 1 else _together(known_of, parts)).items():
        yield {"subset": subset, "metric": metric, "value": value}


def _together(known_of: list[dict[tuple[str, str], float]], parts: list[Path]) -> dict[tuple[str, str], float]:
    """Metrics of an evaluation that was made in blocks of samples: weighted means, and pass rates over all samples."""
    weights = [block["", "n_samples"] for block in known_of]
    found = {}
    for key in dict.fromkeys(key for block in known_of for key in block):
        absent = 0.0 if key[1].startswith("errors.") else None  # a class of errors that did not occur
        values = [(block.get(key, absent), weight) for block, weight in zip(known_of, weights, strict=True)]
        pairs = [(value, weight) for value, weight in values if value is not None]
        found[key] = sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)
    return found | {("", "n_samples"): sum(weights)} | _pass_rates(parts, found)


def _pass_rates(parts: list[Path], known: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """pass@k of all blocks together, by subset and metric, for the powers of 2 that their samples allow."""
    prompts = frame.merge_blocks([frame.count_samples(part) for part in parts])
    least = int(prompts["n"].min())
    metrics = [f"{kind}_pass@{2**power}" for kind in ("strict", "answer") for power in range(least.bit_length())]
    found: dict[tuple[str, str], float] = {}
    for subset in dict.fromkeys(subset for subset, _ in known if subset):
        of_mode = prompts["mode"] == subset.removeprefix("mode:")
        column = None if subset == "all" else subset
        rows = prompts[of_mode] if subset.startswith("mode:") else frame.of_column(prompts, column, {})
        found |= {(subset, metric): float(frame.prompt_scores(rows, metric).mean()) for metric in metrics}
    return found


def _subset(kind: str, path: tuple[str, ...]) -> tuple[str, str]:
    """`("band", "edge", "strict_pass@1")` -> ("edge", "strict_pass@1"); `("eval_loss", "id")` -> ("id", "eval_loss")."""
    if makes(kind) == "samples" and path[0] == "all" and len(path) > 1:
        return "all", ".".join(path[1:])
    if makes(kind) == "samples" and path[0] in ("band", "op", "mode") and len(path) > 2:
        return path[1] if path[0] == "band" else f"{path[0]}:{path[1]}", ".".join(path[2:])
    if path[0] == "eval_loss" and len(path) == 2:
        return path[1], "eval_loss"
    return "", ".".join(path)


def _leaves(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every number in nested mappings and lists, with the keys that lead to it."""
    if isinstance(tree, (bool, int, float)):
        yield path or ("value",), float(tree)
    elif isinstance(tree, (dict, list)):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _leaves(value, (*path, str(key)))


def _curve(folder: Path) -> Iterator[dict[str, Any]]:
    for line in store_metrics.read(folder):
        for key, value in line.items():
            if key != "step":
                yield {"step": line["step"], "metric": key, "value": value}


def _stages(plan: Plan, folders: dict[str, Path], states: dict[str, str], details: dict[str, str]) -> pd.DataFrame:
    rows = []
    for digest, stage in plan.stages.items():
        telemetry = store_metrics.read_telemetry(folders[digest])
        known_of = {key: telemetry.get(key) for key in TELEMETRY}
        row = {"digest": digest, "kind": stage.kind, "label": stage.label, "state": states[digest]}
        rows.append({**row, "detail": details.get(digest, ""), **known_of})
    return pd.DataFrame(rows)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def _needs(plan: Plan, results: Path) -> tuple[frame.Results, list[sequential.Need]]:
    """The results of a plan, finished or not, and what each of its claims has and needs."""
    stages = plan.stages_json()
    why = study_state.missing_reasons(stages, results, results.parent / "logs")
    folders = {
        digest: artifact.folder(results, stage.kind, digest) for digest, stage in plan.stages.items() if digest != plan.report
    }
    known = frame.read_results(plan.report_spec(), folders)._replace(why=why)
    return known, sequential.what_is_needed(known, {digest: stage["deps"].values() for digest, stage in stages.items()})


def judge_claims(study: str, scale: str | None, configs: Path, results: Path) -> pd.DataFrame:
    """See `interplay.judge`."""
    _, needs = _needs(expand.plan_study(configs, study, scale or choices.chosen(configs, {})[1]), results)
    rows = []
    for need in needs:
        claim, verdict, reason, found = need.judged[:4]
        test = claim.test
        row: dict[str, Any] = {"says": claim.says, "verdict": verdict, "reason": reason, "arm": test.arm}
        row |= {
            "against": test.against,
            "metric": test.metric,
            "value": found.value,
            "low": found.low,
            "high": found.high,
            "over": found.over,
        }
        rows.append({**row, "replicates": need.have, "needed": need.interval, "powered": need.powered})
    return pd.DataFrame(rows).astype({"needed": "Int64", "powered": "Int64"} if rows else {})


def judged_claims(plan: Plan, results: Path) -> list[contrast.JudgedClaim]:
    """The claims of a plan as they are judged now."""
    return [need.judged for need in _needs(plan, results)[1]]


def verdict_lines(plan: Plan, results: Path) -> list[str]:
    """The claims of a plan as they are judged now, as lines."""
    known, needs = _needs(plan, results)
    judged = [need.judged for need in needs]
    values: dict[str, float | None] = {}
    for test in (one.claim.test for one in judged if one.claim.test.difference):
        for arm in (test.arm, str(test.against)):
            at = f"{arm}/{test.band}/{test.difference}"
            values[at] = estimate.value(known, arm, test.band, str(test.difference)).value if test.band else None
    values = {at: None if value is None or math.isnan(value) else value for at, value in values.items()}
    lines = [*catalog.claim_lines(answers.claims_json(judged), values), *fight_lines(known)]
    lines = lines or [f"{plan.study} makes no claims"]
    controls = [confounds.judge_controls(known).left] if known.spec.controls else []
    return [*lines, *controls, *answers.implementation_lines(known), *confounds.confound_lines(known)]


def fight_lines(known: frame.Results) -> Iterator[str]:
    """The fights: each outcome, and the verdicts of its contenders."""
    for name in [name for name, table in known.spec.tables.items() if table.fight]:
        made = sequential.compare(known, name)
        block, tests = made.blocks[0], model.plural(made.tests, "contender")
        yield f"fight {name}: {block.metric} of {block.column} against {made.label(made.lineup.against)}, {tests}"
        measure = metric_spec.measure_of(block.metric)
        for row in block.rows[1:]:
            low, high = (measure.shown(end, True) for end in (row.gap.low, row.gap.high))
            found = f"{measure.shown(row.gap.value, True)} [{low}, {high}] {measure.unit_of(True)} for {row.gap.over}"
            said = f"{found}, p {row.adjusted:.3f}" if row.gap.seeds else "; ".join(row.gap.missing)
            yield f"  {row.verdict:<{catalog.INDENT - 3}} {made.label(row.chosen.name)}: {said}"
        yield from (f"  {caveat}" for caveat in made.caveats if caveat.startswith(("Not tested", "Look")))


def settle_lines(plan: Plan, results: Path) -> list[str]:
    """What each claim of a plan needs, as lines."""
    known, needs = _needs(plan, results)
    lines = []
    for need in needs:
        measure = metric_spec.measure_of(need.judged.claim.test.metric)
        lines.append(f"{need.judged.verdict:<{catalog.INDENT - 1}} {need.judged.claim.says}")
        lines.append(f"{'':{catalog.INDENT}}{_needed(need, measure.shown(need.margin), measure.unit_of(True))}")
    return [*lines, *fight_lines(known)] or [f"{plan.study} makes no claims"]


def next_look(plan: Plan, results: Path) -> int | None:
    """The number of replicates of the next look that an open claim or fight needs, given the plan of the last look; None where
    all have stopped."""
    known, needs = _needs(plan, results)
    assert known.spec.stopping is not None
    seen = [
        need.judged.look.number if need.judged.look else 0
        for need in needs
        if not (need.judged.look and need.judged.look.stopped)
    ]
    fights = [sequential.compare(known, name).look for name, table in known.spec.tables.items() if table.fight]
    seen += [look.number if look else 0 for look in fights if not (look and look.stopped)]
    return known.spec.stopping.looks[min(seen)] if seen else None


def _needed(need: sequential.Need, margin: str, unit: str) -> str:
    if look := need.judged.look:
        return f"look {look.number} of {look.of}, at {look.replicates} replicates: {'stopped' if look.stopped else 'open'}"
    if need.settled:
        return f"settled with {model.plural(need.have, 'replicate')}"
    if need.judged.estimate.missing or math.isnan(need.margin):
        return f"no estimate yet: {need.judged.reason}"
    away = f"{margin} {unit} from its bound".replace("  ", " ")
    if need.have < claim_spec.LEAST_BASES:
        cost = f", each of {store_metrics.clock(need.seconds)}" if need.seconds else ""
        there = "there is 1" if need.have == 1 else "there are 2"
        return f"{away}; a verdict needs {claim_spec.LEAST_BASES} bases, of stages under seeds.vary ({there}){cost}"
    if need.prompts:
        return f"{away}; any number of replicates needs {need.prompts} prompts (there are {need.judged.estimate.n_prompts})"
    if need.interval is None:
        return f"{away}: too near it for {sequential.MOST} replicates"
    most = need.powered or sequential.MOST
    said = f"interval below that from {need.interval} replicates, in 4 of 5 repetitions from {most} (there are {need.have})"
    more = most - need.have
    cost = f"; {more} more take {store_metrics.clock(more * need.seconds)}" if need.seconds and more > 0 else ""
    return f"{away}; {said}{cost}"
