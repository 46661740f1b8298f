"""Verdicts on results from elsewhere: samples of lm-eval, logs of Inspect, rollouts of verifiers, and tables with an item, a
system and a score. Light: neither torch nor pandas."""

import csv
import json
import math
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from interplay.core.model import UserError, nearest_name, plural
from interplay.report.claim_spec import EQUIVALENT, LEAST_BASES, NO_INFORMATION, within_margin
from interplay.report.stats.intervals import LEVEL, Spread, crossed_spread, holm_adjusted

COLUMNS = {
    "item": ("item", "item_id", "id", "question_id", "doc_id", "prompt_id", "example_id", "problem_id", "index"),
    "system": ("system", "model", "model_name", "arm", "method"),
    "score": ("score", "correct", "accuracy", "acc", "exact_match", "reward", "value", "pass"),
    "run": ("run", "seed", "replicate"),
    "cluster": ("cluster", "group", "subject", "category"),
    "task": ("task", "task_name", "dataset"),
}
"""What a row of a table has -> the columns that may hold it, the first that is there. Without a system the file is one."""
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "true": 1.0, "false": 0.0}
"""Grades in letters, as Inspect counts them, and truth in words."""
MOST = 100_000_000
"""Items or runs beyond which a difference is out of reach."""


class Row(NamedTuple):
    """One score."""

    system: str
    task: str
    run: str
    """Of the same system; empty: the file's only one."""
    item: str
    cluster: str
    score: float


class Compared(NamedTuple):
    """A system next to the one that it is compared with."""

    system: str
    against: str
    score: float
    baseline: float
    low: float
    high: float
    p: float
    adjusted: float
    verdict: str
    spread: Spread
    """Of the differences item by item; its mean is the difference."""
    items: int
    unpaired: int
    """Items that some run of the two lacks."""
    runs: int
    clusters: int
    """As many as items where there are none."""
    needed: int | None
    """Items (or clusters, or runs, where there are) that find a difference as large as this in four of five repetitions."""


# Files.


def _json_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("each line must be a JSON object")
    return rows


def _number(value: Any, what: str) -> float:
    """A score, from a number, a truth or a grade."""
    if isinstance(value, str):
        value = GRADES.get(value, GRADES.get(value.lower(), value))
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{what} = {str(value)[:40]!r} is no number") from None
    if not math.isfinite(number):
        raise ValueError(f"{what} = {number} is not finite")
    return number


def _chosen(names: Iterable[str], wanted: str | None) -> str:
    """The score that is wanted, or the first."""
    known = list(dict.fromkeys(names))
    if wanted is None and known:
        return known[0]
    if wanted not in known:
        raise ValueError(f"no score '{wanted or ''}'{nearest_name(wanted or '', known)}")
    return wanted


def _lm_eval(path: Path, rows: list[dict[str, Any]], wanted: str | None) -> Iterator[Row]:
    """`samples_TASK_TIME.jsonl` below a folder for each model. Scores are called as in its tables: `exact_match,strict-match`."""
    first = rows[0]
    plain = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
    known = first.get("metrics") or [key for key, value in first.items() if key not in plain and isinstance(value, int | float)]
    filters = list(dict.fromkeys(str(row.get("filter", "none")) for row in rows))
    names = [f"{metric},{name}" if len(filters) > 1 else metric for name in filters for metric in known]
    asked = next((name for name in names if wanted and name.partition(",")[0] == wanted), wanted)
    metric, _, only = _chosen(names, asked).partition(",")
    task = path.stem.removeprefix("samples_").rsplit("_", 1)[0]
    for row in rows:
        if not only or str(row.get("filter", "none")) == only:
            yield Row(path.resolve().parent.name, task, "", str(row["doc_id"]), "", _number(row[metric], metric))


def _inspect(path: Path, wanted: str | None) -> Iterator[Row]:
    """A log of Inspect: a zip file with a header, and summaries of all samples, else the samples."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        evaluation = _member(archive, "header.json" if "header.json" in names else "_journal/start.json")["eval"]
        if "summaries.json" in names:
            samples = _member(archive, "summaries.json")
        else:
            samples = [_member(archive, name) for name in names if name.startswith("samples/")]
    if not samples:
        raise ValueError("has no samples")
    for sample in samples:
        scores: dict[str, Any] = {}
        for scorer, score in (sample.get("scores") or {}).items():
            value = score["value"]
            scores |= {f"{scorer}/{key}": part for key, part in value.items()} if isinstance(value, dict) else {scorer: value}
        if not scores:
            raise ValueError(f"sample {sample.get('id')} has no score: it failed, or was not scored")
        name = _chosen(scores, wanted)
        yield Row(evaluation["model"], evaluation["task"], "", str(sample["id"]), "", _number(scores[name], name))


ZSTANDARD = 93
"""Compression of logs by Inspect 0.3.285, which zipfile does not know before Python 3.14."""
LOCAL_HEADER = struct.Struct("<26xHH")
"""Of a file in a zip file, up to the lengths of its name and of its extra field, which follow."""


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    """The JSON of one file of a log."""
    entry = archive.getinfo(name)
    if entry.compress_type != ZSTANDARD or archive.fp is None:
        return json.loads(archive.read(name))
    import pyarrow

    archive.fp.seek(entry.header_offset)
    lengths = LOCAL_HEADER.unpack(archive.fp.read(LOCAL_HEADER.size))
    archive.fp.seek(sum(lengths), 1)
    packed = pyarrow.BufferReader(archive.fp.read(entry.compress_size))
    return json.loads(pyarrow.CompressedInputStream(packed, "zstd").read())


def _verifiers(path: Path, rows: list[dict[str, Any]], wanted: str | None) -> Iterator[Row]:
    """`results.jsonl` of `vf-eval`: a row for each rollout, next to a `metadata.json` that names the model."""
    about = path.with_name("metadata.json")
    known = json.loads(about.read_text(encoding="utf-8")) if about.exists() else {}
    system, name = str(known.get("model") or path.resolve().parent.name), wanted or "reward"
    for row in rows:
        yield Row(system, str(row.get("task", "")), "", str(row["example_id"]), "", _number(row[name], name))


def _table(path: Path, rows: list[dict[str, Any]], wanted: str | None, cluster: str | None) -> Iterator[Row]:
    """Any rows with an item and a score."""
    names = list(rows[0])
    found = {key: next((name for name in known if name in names), None) for key, known in COLUMNS.items()}
    found |= {key: name for key, name in (("score", wanted), ("cluster", cluster)) if name}
    for key in ("item", "score", "cluster"):
        if (found[key] is None and key != "cluster") or (found[key] is not None and found[key] not in names):
            asked = found[key] or f"{key} ({', '.join(COLUMNS[key])})"
            raise ValueError(f"no column {asked}; it has {', '.join(map(str, names[:12]))}")
    for number, row in enumerate(rows):
        values = {key: "" if name is None or row.get(name) is None else str(row[name]) for key, name in found.items()}
        if not values["item"]:
            raise ValueError(f"row {number + 1} has no {found['item']}")
        score = _number(row.get(str(found["score"])), f"row {number + 1}: {found['score']}")
        yield Row(values["system"] or path.stem, values["task"], values["run"], values["item"], values["cluster"], score)


def _read(path: Path, wanted: str | None, cluster: str | None) -> list[Row]:
    """The scores of one file, by what it holds. Raises ValueError or KeyError where it is none of these."""
    if path.suffix == ".eval":
        return list(_inspect(path, wanted))
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows = parquet.read_table(path).to_pylist()
    elif path.suffix in (".csv", ".tsv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    else:
        rows = _json_lines(path)
    if not rows:
        raise ValueError("has no rows")
    if {"doc_id", "filtered_resps"} <= rows[0].keys():
        return list(_lm_eval(path, rows, wanted))
    if {"example_id", "reward", "prompt"} <= rows[0].keys():
        return list(_verifiers(path, rows, wanted))
    return list(_table(path, rows, wanted, cluster))


FILES = (".jsonl", ".eval", ".csv", ".tsv", ".parquet")
"""Endings of files that are read."""


def read_files(paths: list[Path], score: str | None = None, cluster: str | None = None, by_file: bool = False) -> list[Row]:
    """The scores of all files. A further file of the same system and task is another run of it; with `by_file` each file is a
    system. Raises UserError in one line."""
    found: list[Row] = []
    files: dict[tuple[str, str], int] = {}
    for path in paths:
        if path.suffix not in FILES:
            raise UserError(f"{path}: judge reads {', '.join(FILES)}")
        if not path.is_file():
            raise UserError(f"{path}: no such file; name files of results, or a study alone")
        try:
            rows = _read(path, score, cluster)
        except KeyError as error:
            raise UserError(f"{path}: has no {error}") from None
        except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, csv.Error) as error:
            raise UserError(f"{path}: not readable as scores ({' '.join(str(error).split())[:200]})") from None
        if by_file:
            rows = [row._replace(system=f"{path.parent.name}/{path.stem}" if path.parent.name else path.stem) for row in rows]
        elif rows:
            numbers = {key: files.get(key, 0) for key in {(row.system, row.task) for row in rows}}
            files |= {key: number + 1 for key, number in numbers.items()}
            rows = [row if row.run else row._replace(run=f"file {numbers[row.system, row.task]}") for row in rows]
        found += rows
    return found


# Verdicts.


def compare_systems(rows: list[Row], against: str | None = None, margin: float | None = None) -> list[Compared]:
    """Each system with the one that is named, or the first, paired by item, and by run where runs have the same names; samples of
    one item are averaged. p-values are adjusted together (Holm). Raises UserError in one line."""
    scores: dict[str, dict[str, dict[str, list[float]]]] = {}
    clusters: dict[str, str] = {}
    for row in rows:
        item = f"{row.task}:{row.item}" if row.task else row.item
        scores.setdefault(row.system, {}).setdefault(row.run, {}).setdefault(item, []).append(row.score)
        if row.cluster and clusters.setdefault(item, row.cluster) != row.cluster:
            raise UserError(f"item {item} is in two clusters, {clusters[item]} and {row.cluster}")
    base = against or next(iter(scores))
    if base not in scores:
        raise UserError(f"--against {base}: no such system{nearest_name(base, list(scores))}")
    if len(scores) < 2:
        there = plural(len(scores[base]), "run")
        raise UserError(f"one system alone, {base} ({there}): nothing to compare; --by-file takes each file for a system")
    unit = all(0 <= row.score <= 1 for row in rows)
    if margin is not None and not 0 < margin < (1 if unit else math.inf):
        raise UserError(f"--margin {margin:g}: must be above 0{', and below 1: a fraction, not percent' if unit else ''}")
    support = (-1.0, 1.0) if unit else (-math.inf, math.inf)
    made = [_compare(name, base, scores, clusters, support) for name in scores if name != base]
    adjusted = holm_adjusted(np.array([one.p for one in made]))
    return [one._replace(adjusted=float(p), verdict=_word(one, float(p), margin)) for one, p in zip(made, adjusted, strict=True)]


def _compare(
    system: str,
    base: str,
    scores: Mapping[str, Mapping[str, Mapping[str, list[float]]]],
    clusters: Mapping[str, str],
    support: tuple[float, float],
) -> Compared:
    named = [scores[name] for name in (system, base)]
    number, other = map(len, named)
    if number != other:
        remedy = "runs are compared in pairs: give as many of each"
        raise UserError(f"{system} has {plural(number, 'run')} and {base} has {other}; {remedy}")
    order = named[0] if named[0].keys() == named[1].keys() else named[1]
    runs = [list(named[0].values()), [named[1][run] for run in order]]
    each = [set(run) for of in runs for run in of]
    common = sorted(set.intersection(*each))
    if len(common) < 2:
        raise UserError(
            f"{system} and {base} have {plural(len(common), 'item')} in common; pairs are made by item: give files of the same"
        )
    means = [np.array([[np.mean(run[item]) for item in common] for run in of]) for of in runs]
    gaps = means[0] - means[1]
    groups = [clusters.get(item, item) for item in common]
    if number > 1 and len(set(groups)) < len(groups):
        raise UserError(f"{system}: clusters and several runs are not judged together; leave the column of one of them out")
    spread = crossed_spread(gaps) if number > 1 else clustered_spread(gaps[0], groups)
    low, high = spread.interval(support)
    score, baseline = (float(of.mean()) for of in means)
    lacking = len(set.union(*each)) - len(common)
    p, count = 1.0 if math.isnan(low) else spread.p_value(), len(set(groups))  # equal gaps without bounds show nothing
    at = (system, base, score, baseline, low, high, p, p, "")
    return Compared(*at, spread, len(common), lacking, number, count, _needed(spread))


def clustered_spread(gaps: np.ndarray, groups: list[str]) -> Spread:
    """Of differences (P,) in clusters: the mean with the cluster-robust variance of a regression on a constant, G / (G - 1) times
    the sum of the squared sums of residuals over P squared, and G - 1 degrees of freedom (Cameron and Miller, Journal of Human
    Resources 50, 2015). Where each item is a cluster of its own that is the paired t test."""
    _, places = np.unique(groups, return_inverse=True)
    sums = np.bincount(places, weights=gaps - gaps.mean())
    count = len(sums)
    if count < 2:
        raise UserError("one cluster alone: nothing shows how clusters differ")
    within = count / (count - 1) * float((sums**2).sum()) / len(gaps) ** 2
    return Spread(float(gaps.mean()), 1, count, 0.0, within if np.ptp(gaps) > 0 else 0.0)


def _needed(spread: Spread) -> int | None:
    """The least number of what varies, runs or else clusters or items, at which the difference that was found is detectable."""
    if spread.error == 0 or spread.mean == 0:
        return None

    def found(n: int) -> bool:
        fewer = spread._replace(prompts=n, within=spread.within * spread.prompts / n)
        return (spread.of(n) if spread.replicates > 1 else fewer).detectable <= abs(spread.mean)

    low, high = 1, MOST
    if not found(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def _word(one: Compared, adjusted: float, margin: float | None) -> str:
    here = "" if one.runs >= LEAST_BASES else " here"
    if adjusted < LEVEL:
        return ("better" if one.spread.mean > 0 else "worse") + here
    return EQUIVALENT + here if within_margin(margin, one.low, one.high) else NO_INFORMATION


def lines_of(made: list[Compared], unit: bool) -> Iterator[str]:
    """The verdicts, two lines each, and what intervals are for."""
    factor, points = (100, " points") if unit else (1, "")

    def shown(number: float, sign: str = "+") -> str:
        return f"{factor * number:{sign}.{1 if unit else 4}f}"

    for one in made:
        of = "runs" if one.runs > 1 else "clusters" if one.clusters < one.items else "items"
        gap = f"{shown(one.spread.mean)} [{shown(one.low)}, {shown(one.high)}]{points}"
        yield f"{one.verdict:<17} {one.system} {shown(one.score, '')}, {one.against} {shown(one.baseline, '')}: {gap}"
        p = _p_text("p", one.p) + (_p_text(", adjusted", one.adjusted) if len(made) > 1 else "")
        least = f"finds {shown(one.spread.detectable, '')}{points} in 4 of 5 repetitions" if one.spread.error else ""
        more = f"this difference needs {one.needed:,} {of}" if one.needed else ""
        count = f"{one.items:,} items" + (f" in {one.clusters:,} clusters" if one.clusters < one.items else "")
        count += f", {one.runs} runs" if one.runs > 1 else ""
        left = f"{plural(one.unpaired, 'item')} left out, which not all have" if one.unpaired else ""
        yield f"{'':17} {'; '.join(filter(None, [count, p, least, more, left]))}"
    few = any(one.runs < LEAST_BASES for one in made)
    adjusted = f"; {len(made)} p-values adjusted together (Holm)" if len(made) > 1 else ""
    target = "these systems and any item" if few else "any run and any item"
    trained = f"; for the methods behind them train {LEAST_BASES} or more" if few else ""
    yield f"95 % intervals, paired by item, for {target}{trained}{adjusted}"


def _p_text(what: str, p: float) -> str:
    return f"{what} {p:.4f}" if p >= 0.0001 else f"{what} below 0.0001"


def judge_files(
    paths: list[Path], score: str | None, against: str | None, cluster: str | None, margin: float | None, by_file: bool
) -> list[str]:
    """The lines of `interplay judge FILE...`. Raises UserError."""
    rows = read_files(paths, score, cluster, by_file)
    return list(lines_of(compare_systems(rows, against, margin), all(0 <= row.score <= 1 for row in rows)))
