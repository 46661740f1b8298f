"""What the report reads: the evaluations' samples, counted per prompt, and the records of all stages."""

import functools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from interplay.core import artifact, model
from interplay.core.digest import GATES
from interplay.kinds.table import KINDS
from interplay.model.spec import SourceSpec
from interplay.report.display_spec import Figure
from interplay.report.metric_spec import COUNTED, ERRORS, METRICS, Metric, Per, metric_row
from interplay.report.spec import ReportArm, ReportRung, ReportSpec
from interplay.tasks.verdict import pass_at_k

HEAD = ("strict_head", "n_head")
"""Columns of strictly right samples, and of all, in the first half of the blocks of an evaluation that has several."""


Key = tuple[str, str, str, str]
"""(arm, the arm that it is compared with or nothing, column, metric) of an estimate."""


class Results(NamedTuple):
    """All that tables, figures and claims are made from."""

    spec: ReportSpec
    prompts: dict[str, pd.DataFrame]
    """Evaluation digest -> one row per prompt, by its index: band, op, mode, n samples, of which strict and answer right, and
    the sum of their scores; where the evaluation has them, nll of the gold solution and samples by class, error_CLASS."""
    records: dict[str, dict]
    """Digest -> record of every finished stage."""
    folders: dict[str, Path]
    """Digest -> its artifact."""
    by_ops: Mapping[str, list[int]] = {}
    """Bands of the study whose prompts are known by their ops alone: none of the evaluated sets names them."""
    why: Mapping[str, str] = {}
    """Digest of a stage that is not there -> why; known where a page is drawn of an unfinished study."""
    kept: dict[Key, Any] | None = None
    """Estimates that were made before, where they are kept: `estimate.value` and `estimate.difference` look here first."""
    spent: Mapping[str, Mapping[str, float]] = {}
    """Unit -> arm -> what its training took, where no record says so (`stats.budget.spent`)."""
    drawn: tuple[str, ...] = ()
    """Arms of the figure that is being drawn; empty: all."""
    colors: Mapping[str, str] = {}
    """Of arms that do not have the colour of their place."""


def read_results(spec: ReportSpec, inputs: dict[str, Path]) -> Results:
    """Read every finished input. An unfinished or absent one is left out: what would need it says that it is missing."""
    folders = {digest: path for digest, path in inputs.items() if artifact.done(path)}
    rows = [*spec.arms, *spec.tuning]
    wanted = {digest for arm in rows for digest in arm.evaluated()}
    blocks = {digest: spec.blocks_of(digest) for digest in sorted(wanted)}
    prompts = {
        digest: merge_blocks([count_samples(folders[block]) for block in of])
        for digest, of in blocks.items()
        if set(of) <= folders.keys()
    }
    records = {digest: artifact.record(path) for digest, path in folders.items()}
    return Results(spec, prompts, records, folders, _by_ops(spec, prompts))


def of_seeds(results: Results, chosen: Sequence[int]) -> Results:
    """The results of these replicates alone."""
    spec = results.spec.model_copy(update={"arms": [row for row in results.spec.arms if row.seed in chosen]})
    return results._replace(spec=spec, kept=None if results.kept is None else {})


def _by_ops(spec: ReportSpec, prompts: dict[str, pd.DataFrame]) -> dict[str, list[int]]:
    """Bands that no set names. A band with the ops of another, such as one question in two forms, must not be taken for it; so
    that while an evaluation is missing at all arms, whose bands are not known yet, none is known by its ops."""
    digests: dict[str, set[str]] = {}
    for arm in spec.arms:
        for name, digest in arm.evaluations.items():
            digests.setdefault(name, set()).add(digest)
    if not all(of & prompts.keys() for of in digests.values()):
        return {}
    named = {str(band) for table in prompts.values() for band in table["band"].unique()}
    return {band: ops for band, ops in spec.bands.items() if band not in named}


def _sums_up(column: str) -> bool:
    """Whether a column of `prompts.parquet` is a sum over samples, so that those of several blocks of samples add up."""
    return any(each.per != "prompt" and re.fullmatch(each.column.replace("{}", ".+"), column) for each in METRICS)


def merge_blocks(blocks: list[pd.DataFrame]) -> pd.DataFrame:
    """Counts of blocks of samples of the same prompts, added up; what only the first block holds stays as it is. Of several
    blocks the first half is counted by itself too (`HEAD`)."""
    columns = dict.fromkeys(name for block in blocks for name in block.columns if name == "n" or _sums_up(name))
    sums = {name: sum(block[name] for block in blocks if name in block) for name in columns}  # a class may be in some alone
    first = blocks[: len(blocks) // 2]
    sums |= {head: sum(block[name] for block in first) for head, name in zip(HEAD, ("strict", "n"), strict=True) if first}
    return blocks[0].assign(**sums)


def count_samples(folder: Path) -> pd.DataFrame:
    """Samples of one evaluation counted per prompt (see `Results.prompts`): `prompts.parquet`, else counted here. UserError
    when neither is readable."""
    path = folder / "prompts.parquet"
    try:
        if path.exists():
            return pd.read_parquet(path).set_index("index").astype({"band": "category"})
        path = folder / "samples.parquet"
        samples = pd.read_parquet(path, columns=["index", "op", "band", "mode", "strict", "answer", "score"])
    except (OSError, ValueError) as error:
        raise model.UserError(f"{path}: not readable as samples ({error}); remove {folder} to make it again") from None
    samples["band"] = samples["band"].astype("category")
    grouped = samples.groupby("index", sort=True)
    fixed = grouped[["band", "op", "mode"]].first()
    sums = {name: grouped[name].sum() for name in ("strict", "answer")}
    return fixed.assign(n=grouped.size(), **sums, score=samples["score"].astype(float).groupby(samples["index"]).sum())


def of_column(prompts: pd.DataFrame, column: str | None, by_ops: Mapping[str, list[int]]) -> pd.DataFrame:
    """The rows of a column: `op:N`, a band of the problem set, or else one that is known by its ops (`Results.by_ops`), or
    `BAND/op:N`; None: all rows."""
    if column is None:
        return prompts
    if "/op:" in column:
        band, _, op = column.rpartition("/")
        return of_column(of_column(prompts, band, by_ops), op, by_ops)
    if column.startswith("op:"):
        return prompts[prompts["op"] == int(column.removeprefix("op:"))]
    named = prompts[prompts["band"] == column]
    return named if len(named) else prompts[prompts["op"].isin(by_ops.get(column, []))]


def unavailable(prompts: pd.DataFrame, metric: str) -> str:
    """Why the metric is not available for these prompts, as words after the name of their evaluation; empty where it is."""
    asked = metric_row(metric)
    # Of classes of errors any will do: one that no sample has has no column.
    is_class = asked.column.startswith(COUNTED)
    if not any(name.startswith(COUNTED) if is_class else name == asked.column for name in prompts.columns):
        return f"{asked.lacks} ({asked.setting})"
    if asked.per == "prompt" and prompts[asked.column].isna().any():
        return "has prompts whose gold solution has no token"
    if asked.per == "right answer" and not prompts["answer"].any():
        return "has no right answer there"
    return ""


def held_rows(results: Results, digest: str, column: str | None, metric: str) -> tuple[pd.DataFrame, str]:
    """The prompts of a column in an evaluation, and what they lack for the metric."""
    rows, needed = of_column(results.prompts[digest], column, results.by_ops), metric_row(metric).samples
    lacking, least = unavailable(rows, metric), int(rows["n"].min()) if len(rows) else 0
    return rows, lacking or (f"has {least} samples per prompt, {metric} needs {needed}" if least < needed else "")


def is_held(results: Results, name: str, column: str | None, metric: str) -> bool:
    """Whether the evaluation of this name, where some arm has finished it, holds the column and the metric."""
    made = (row.evaluations.get(name, "") for row in results.spec.arms)
    there = next((digest for digest in made if digest in results.prompts), None)
    return there is not None and not held_rows(results, there, column, metric)[1]


def prompt_scores(prompts: pd.DataFrame, metric: str) -> pd.Series:
    """Per prompt, with their mean the metric's value. K must not exceed any prompt's n, and the prompts must have the metric
    (`unavailable`)."""
    asked = metric_row(metric)
    part = prompts.get(asked.column, 0 * prompts["n"])  # the sum over a prompt's samples, or the one number that it has
    return PER[asked.per](part - prompts[asked.less] if asked.less else part, prompts, asked)


def _ratio(part: pd.Series, whole: pd.Series) -> pd.Series:
    """Per prompt R + (part - R whole) / mean(whole), with R the sum of `part` by the sum of `whole`. The mean is R, and the mean
    of redrawn prompts has, to first order, the spread that R has (the ratio estimator; Cochran, Sampling Techniques, 1977,
    chapter 6)."""
    ratio = part.sum() / whole.sum()
    return ratio + (part - ratio * whole) / whole.mean()


def _draws(part: pd.Series, prompts: pd.DataFrame, asked: Metric) -> pd.Series:
    """Unbiased pass@k."""
    found = pass_at_k(prompts["n"].to_numpy(), part.to_numpy(), asked.samples)
    return pd.Series(found, index=prompts.index, dtype=np.float64)


PER: dict[Per, Callable[[pd.Series, pd.DataFrame, Metric], pd.Series]] = {
    "sample": lambda part, prompts, asked: part / prompts["n"],
    "draw": _draws,
    "right answer": lambda part, prompts, asked: _ratio(part, prompts["answer"]),
    "prompt": lambda part, prompts, asked: part.astype(float),
    "run": lambda part, prompts, asked: part.astype(float),
}
"""How the sums over the samples of each prompt become one number for each."""


def num_relevant(prompts: pd.DataFrame, metric: str) -> int:
    """How many of the prompts bear on the metric: those with a right answer where it is a share of these; none on times of
    runs, whose equality bounds nothing."""
    if metric_row(metric).per == "run":
        return int(metric_row(metric).measure.bounded)
    return int((prompts["answer"] > 0).sum()) if metric_row(metric).per == "right answer" else len(prompts)


def error_classes(results: "Results") -> list[str]:
    """Classes of errors, `none` for right ones, that occur in some evaluation that counts them, in the order of the schema."""
    counted = (name for table in results.prompts.values() for name in table.columns if name.startswith(COUNTED))
    found = {name.removeprefix(COUNTED) for name in counted}
    return [name for name in ERRORS if name in found] + sorted(found - set(ERRORS))


def unequal_tries(spec: ReportSpec, chosen: Sequence[str], judged: Collection[str]) -> list[str]:
    """That some of these arms are one of more values of their axes than others, and the further values are not judged."""
    tries = {}
    for arm in chosen:
        group = [other for other in spec.arm_names() if other.partition("[")[0] == arm.partition("[")[0]]
        tries[arm] = len(group) if "[" in arm and not set(group) <= set(judged) else 1
    each = ", ".join(f"{arm} is one of {number}" for arm, number in tries.items())
    return [f"unequal tries: {each}"] if len(set(tries.values())) > 1 else []


def drawn(results: Results) -> list[str]:
    """Names of the arms of a figure, in its order."""
    return list(results.drawn) or results.spec.arm_names()


def as_shown(results: Results, figure: Figure) -> tuple[Results, Figure]:
    """The same with every arm by its label, and the arms that the figure draws."""
    spec = results.spec
    label = {arm: spec.label_of(arm) for arm in spec.arm_names()}
    rows = [row.model_copy(update={"arm": label[row.arm], "control": label.get(row.control or "")}) for row in spec.arms]
    by_arm = {
        key: {label.get(arm, arm): item for arm, item in getattr(spec, key).items()} for key in ("trained_ops", "trained_sets")
    }
    figures = {name: one.model_copy(update={"against": label.get(one.against or "")}) for name, one in spec.figures.items()}
    placed = {
        name: [one.model_copy(update={"arm": label[one.arm]}) for one in of if one.arm in label]
        for name, of in spec.placed.items()
    }
    known = results.kept and {_renamed(key, label): item for key, item in results.kept.items()}
    changed = results._replace(
        spec=spec.model_copy(update={"arms": rows, "figures": figures, "placed": placed, **by_arm}),
        kept=known if results.kept is not None else None,
        spent={unit: {label[arm]: amount for arm, amount in of.items()} for unit, of in results.spent.items()},
        drawn=tuple(label[arm] for arm in figure.arms or ()),
        colors={label[arm]: one.color for arm, one in spec.shown.items() if one.color},
    )
    return changed, figure.model_copy(update={"against": label.get(figure.against or "")})


def keep_shown(results: Results, shown: Results) -> None:
    """Keep the estimates that were made of results `as_shown`, by the names of the arms."""
    if results.kept is not None and shown.kept:
        names = {results.spec.label_of(arm): arm for arm in results.spec.arm_names()}
        results.kept.update({_renamed(key, names): item for key, item in shown.kept.items()})


def _renamed(key: Key, names: Mapping[str, str]) -> Key:
    """The key of an estimate with other names of arms; `arm@...` is an arm along a ladder."""
    arm, against, column, metric = key
    longer = max((name for name in names if arm.startswith(f"{name}@")), key=len, default="")
    arm = names[longer] + arm.removeprefix(longer) if longer and arm not in names else names.get(arm, arm)
    return arm, names.get(against, against), column, metric


def seeds(spec: ReportSpec, arm: str) -> list[int]:
    """Seeds that the study plans for an arm."""
    return sorted({row.seed for row in spec.rows_of(arm)})


def ops(results: Results) -> list[int]:
    """Every op that some evaluation holds."""
    return sorted({int(op) for table in results.prompts.values() for op in table["op"].unique()})


def step_of(results: Results, row: ReportArm, rung: ReportRung) -> int | None:
    """The step of a rung: at the end of a stage that counts in tokens its record holds it; None where there is no record."""
    if rung.step is not None:
        return rung.step
    digest = next(stage.digest for stage in row.path if stage.name == rung.stage)
    return int(results.records[digest]["metrics"]["steps"]) if digest in results.records else None


def bands(results: Results) -> list[str]:
    """Bands that some evaluation holds, easiest first."""
    least: dict[str, int] = {}
    for table in results.prompts.values():
        for band, op in table.groupby("band", observed=True)["op"].min().items():
            least[str(band)] = min(int(op), least.get(str(band), int(op)))
    return sorted(least, key=lambda band: (min(results.spec.bands.get(band) or [least[band]]), band))


def recorded_mean(results: Results, arm: str, column: str, key: str) -> float:
    """Mean over an arm's evaluations of a number that their records hold for a band or an `op:N`, such as the mean `length` of
    completions; NaN where none does."""
    digests = [digest for row in results.spec.rows_of(arm) for digest in row.evaluations.values()]
    found = [recorded_numbers(results, digest, column).get(key) for digest in digests]
    known = [one for one in found if one is not None]
    return fmean(known) if known else math.nan


def recorded_numbers(results: Results, digest: str, column: str) -> Mapping[str, Any]:
    """What the record of an evaluation holds for a band or an `op:N`; empty where it is not there."""
    group, name = ("op", column.removeprefix("op:")) if column.startswith("op:") else ("band", column)
    found: Mapping[str, Any] = results.records.get(digest, {}).get("metrics", {}).get(group, {}).get(name, {})
    return found


def ops_of(results: Results, band: str) -> tuple[int, ...]:
    """Ops of the prompts of a band, in all evaluations."""
    return tuple(sorted({int(op) for table in results.prompts.values() for op in table["op"][table["band"] == band].unique()}))


def diverged(results: Results) -> dict[str, float]:
    """Arm -> mean of sequence_kl over samples, averaged over seeds; arms whose evaluations do not measure it are left out."""
    found: dict[str, list[float]] = {}
    for row in results.spec.arms:
        tables = (results.prompts[digest] for _, digest in sorted(row.evaluations.items()) if digest in results.prompts)
        if (rows := next((one for one in tables if "sequence_kl" in one), None)) is not None:
            found.setdefault(row.arm, []).append(float(rows["sequence_kl"].sum() / rows["n"].sum()))
    return {arm: float(np.mean(values)) for arm, values in found.items()}


def lacked_band(results: Results, arm: str, seed: int, column: str | None) -> str:
    """The calibrated band, if any, that the base of an arm at a seed has not, though the column is that band, or the arm was
    trained on it: the nearest op took its place. Such a replicate says nothing of the band and is left out."""
    row = next((row for row in results.spec.rows_of(arm) if row.seed == seed and row.calibration), None)
    lacking = results.records.get(row.calibration, {}).get("metrics", {}).get("lacking", []) if row else []
    return next((band for band in lacking if row and (band == column or band in row.calibrated)), "")


def trained_ops(results: Results, arm: str) -> list[int] | None:
    """Ops in the data of any stage of an arm: as planned, or as its sets hold them where the plan has none. None where one of
    these sets is not there, and of a model from elsewhere, whose own data are not known here."""
    if is_adopted(results, arm):
        return None
    sets = results.spec.trained_sets.get(arm)
    if sets is None:
        return results.spec.trained_ops.get(arm, [])
    if not set(sets) <= results.folders.keys():
        return None
    return sorted({int(op) for digest in sets for op in problem_keys(results.folders[digest])["op"].unique()})


def has_curve(kind: str) -> bool:
    """Whether stages of a kind train: one that selects a checkpoint hands on a model as it is, and has no curve."""
    return "metrics.jsonl" in KINDS[kind].light


def is_adopted(results: Results, arm: str) -> bool:
    """Whether an arm starts from a model that was made elsewhere."""
    return any(KINDS[stage.kind].spec is SourceSpec for row in results.spec.rows_of(arm) for stage in row.path)


def problem_keys(folder: Path) -> pd.DataFrame:
    """What identifies the rows of a problem set, in their order: op, key, origin. UserError when it is not readable."""
    path = folder / "keys.parquet"
    path = path if path.exists() else folder / "problems.parquet"
    try:
        return pd.read_parquet(path, columns=["index", "op", "key", "origin"])
    except (OSError, ValueError) as error:
        raise model.UserError(f"{path}: not readable as a problem set ({error}); remove {folder} to make it again") from None


@functools.lru_cache(maxsize=16)
def key_set(folder: Path) -> frozenset[str]:
    """Structural keys of a problem set, whose content never changes; none where its rows are not on this machine."""
    there = any((folder / name).exists() for name in ("keys.parquet", "problems.parquet"))
    return frozenset(problem_keys(folder)["key"]) if there else frozenset()


def audit_notes(results: Results, arms: list[str]) -> tuple[str, ...]:
    """A line on each audit of problems that rl stages of these arms draw from: what it found, and that the study accepts it."""
    stages = [stage.digest for row in results.spec.rows_of(*arms) for stage in row.path]
    found: dict[str, str] = {}
    for record in [results.records[digest] for digest in stages if digest in results.records]:
        for role, digest in record["deps"].items():
            if role.startswith(GATES) and digest in results.records:
                failed = results.records[digest]["metrics"]["failed"]
                said = f"failed ({', '.join(failed)}), which the study accepts" if failed else "found nothing"
                found[digest] = f"The audit of the problems that RL draws from {said}."
    return tuple(dict.fromkeys(found.values()))
