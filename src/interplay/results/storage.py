"""What results/ stores: what of it can go, what of a finished study is committed, and what DVC and MLflow show of it.

Garbage are unreachable artifacts, links, logs and benchmarks. The roots are locks in configs/plans (or given); by-name links of
studies that have a YAML file and no lock yet; and runs in flight: stages that are being made or were planned lately, with all
that wait for them. The inputs of roots are reachable, too.

A bundle holds the scores of a finished study as one file that is committed, and tables and verdicts are made from it again
without training. `data/scores/<study>.<scale>.parquet` has a row per prompt of each evaluation: the stage, the prompt, and how
many of its samples are right, as `prompts.parquet` has them. Its metadata hold what else the report reads, compressed: records,
curves and keys of problem sets. Unpacked it is what is kept of a finished study (payloads:
`results/studies/<study>.<scale>/`)."""

import base64
import contextlib
import csv
import fcntl
import hashlib
import io
import json
import lzma
import os
import shutil
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interplay.core import artifact, metrics, model
from interplay.kinds.table import KINDS
from interplay.report.spec import ReportSpec
from interplay.results import estimate, locks, payloads, state
from interplay.study import expand, plan
from interplay.study.plan import Plan, Stage

SCORES = Path("data/scores")
FILES, ORDER = b"interplay.files", b"interplay.stages"
PROMPTS = "prompts.parquet"
COMPUTE = "INTERPLAY_COMPUTE"
"""Environment variable: with 1, `interplay store rebuild` trains and samples what neither results/ nor the scores hold."""


def bundle_path(plan: Plan, root: Path = Path()) -> Path:
    """The file of a study's scores."""
    return root / SCORES / f"{payloads.folder_name(plan)}.parquet"


def write_bundle(plan: Plan, results: Path, out: Path) -> None:
    """Write the scores of a finished study. Raises UserError when it is not finished."""
    if missing := [stage.label for stage in plan.stages.values() if not artifact.done(results / stage.kind / stage.digest)]:
        raise model.UserError(f"store keep: {plan.study} at {plan.scale}: not finished: {missing[0]}; run the study first")
    files = {path: payloads.content_of(content) for path, content in payloads.kept_files(results, plan).items()}
    tables = {path: pq.read_table(io.BytesIO(files.pop(path))) for path in sorted(files) if path.endswith(f"/{PROMPTS}")}
    if not tables:
        raise model.UserError(f"store keep: {plan.study} at {plan.scale}: no evaluation, so there are no scores to keep")
    columns = {path: table.column_names for path, table in tables.items()}
    rows = [table.add_column(0, "stage", pa.array([Path(path).parent.name] * len(table))) for path, table in tables.items()]
    buffer, packed = io.BytesIO(), base64.b85encode(lzma.compress(_tar(files), preset=9))
    whole = pa.concat_tables(rows, promote_options="default").replace_schema_metadata(None)
    with pq.ParquetWriter(buffer, whole.schema, compression="zstd", compression_level=19, store_schema=False) as writer:
        writer.write_table(whole)
        writer.add_key_value_metadata({FILES: packed, ORDER: json.dumps(columns).encode()})
    artifact.write_atomic(out, buffer.getvalue())


def _tar(files: Mapping[str, bytes]) -> bytes:
    """The same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def unpack_bundle(bundle: Path, plan: Plan, results: Path) -> list[str]:
    """Put the kept records of a bundle where a finished study keeps them, and in their places where what is there came from
    another state of the bundle. Returns the digests of evaluations whose scores differ from those in results/. A record lists the
    checksums of its scores as they are in the bundle; its digest is that of what was asked, and stays."""
    files = read_bundle(bundle)
    for path in [path for path in files if path.endswith("/record.json")]:
        scores = files.get(f"{path.removesuffix('record.json')}{PROMPTS}")
        if scores is not None:
            record = json.loads(files[path])
            record["files"][PROMPTS] = [len(scores), hashlib.sha256(scores).hexdigest()]
            files[path] = artifact.to_json(record)
    payloads.write_folder(results / payloads.STUDIES / payloads.folder_name(plan), files)
    changed = []
    for path, content in files.items():
        _, kind, digest, *name = path.split("/") if path.startswith("records/") else ("", "", "", "")
        here = results / kind / digest
        if name == [PROMPTS] and artifact.done(here) and (here / PROMPTS).read_bytes() != content:
            if not artifact.absent(here):
                raise model.UserError(
                    f"{bundle}: the scores of evaluate/{digest} are not those of {here}, which was made here; "
                    f"`interplay store keep {plan.study}` writes these, removing {here} takes those of the file"
                )
            changed.append(digest)
            shutil.rmtree(here)
    return changed


def read_bundle(bundle: Path) -> dict[str, bytes]:
    """The files of a bundle by their paths in the folder of kept records."""
    try:
        whole, known = pq.read_table(bundle), pq.read_metadata(bundle).metadata
        packed, columns = io.BytesIO(lzma.decompress(base64.b85decode(known[FILES]))), json.loads(known[ORDER])
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowInvalid, lzma.LZMAError) as error:
        raise model.UserError(f"{bundle}: not readable as scores ({error}); restore it (`git checkout {bundle}`)") from None
    with tarfile.open(fileobj=packed) as archive:
        files = {entry.name: cast(Any, archive.extractfile(entry)).read() for entry in archive}
    for path, names in columns.items():
        rows = whole.filter(pc.equal(whole["stage"], Path(path).parent.name)).select(names)
        buffer = io.BytesIO()
        pq.write_table(rows.replace_schema_metadata(None).combine_chunks(), buffer, compression="zstd")
        files[path] = buffer.getvalue()
    return files


def check_consent(plan: Plan, results: Path, bundle: Path, allowed: bool) -> bool:
    """Whether something must be trained or sampled for the study's report. Raises UserError, with the number of stages, the hours
    and the line to run, unless that is allowed."""
    kept = payloads.restorable_records(results, plan.stages, payloads.stored_kinds(results))
    found = state.scan_results(results)
    found |= {digest: state.Found(plan.stages[digest].kind, state.KEPT) for digest in kept}
    made = estimate.estimate_launch(state.Library(plan.stages, results, found), found)
    lacking = [digest for digest in made.times if not KINDS[plan.stages[digest].kind].reads_light]
    if lacking and not allowed:
        hours = f"about {made.hours():.2g} hours" if not made.unknown() else "for a time that is not known yet"
        there = "" if bundle.exists() else f"; {bundle} is not here (`git checkout {bundle}` restores it)"
        what = f"{model.plural(len(lacking), 'stage')} would have to be computed, {hours} on this machine"
        lists = f"`interplay plan {plan.study} --scale {plan.scale}` lists them"
        raise model.UserError(f"{plan.study} at {plan.scale}: {what}{there}; `{COMPUTE}=1 dvc repro` computes them, {lists}")
    return bool(lacking)


# What DVC shows of a finished study: metrics and plots, the same bytes for the same records.


def write_shown(plan: Plan, results: Path, docs: Path) -> None:
    """Write `metrics/<study>.<scale>.json`, the numbers of all tables, and `tables/<study>.<scale>/` with `scores.csv` and
    `curves.csv`, which DVC plots, below `docs`; the tables themselves are in results/tables. Raises UserError when the report is
    not finished."""
    report = artifact.folder(results, "report", plan.report)
    if not artifact.done(report):
        raise model.UserError(f"{report}: not finished; run `snakemake all --config study={plan.study} scale={plan.scale}`")
    spec, record = plan.report_spec(), artifact.record(report)["metrics"]
    name, tables = payloads.folder_name(plan), record["tables"]
    cells = {f"{table}/{key}": cell for table, of in tables.items() for key, cell in of.items() if isinstance(cell, list)}
    claims = {claim["says"]: claim["verdict"] for claim in record["claims"]}
    artifact.write_json(docs / "metrics" / f"{name}.json", {"claims": claims, **_nested(cells)})
    scores = _csv(["label", "arm", "column", "metric", "value", "low", "high"], _leading(spec, tables))
    payloads.write_folder(docs / "tables" / name, {"scores.csv": scores, "curves.csv": _csv(*_curves(spec, results))})


def _nested(cells: Mapping[str, list[float]]) -> dict[str, Any]:
    """table -> arm -> `column metric` -> value, as DVC shows metrics by path."""
    found: dict[str, Any] = {}
    for key, cell in sorted(cells.items()):
        table, rest = key.split("/", 1)
        arm, column, metric = rest.rsplit("/", 2)
        found.setdefault(table, {}).setdefault(arm, {})[f"{column} {metric}"] = cell[0]
    return found


def _leading(spec: ReportSpec, tables: Mapping[str, Mapping[str, Any]]) -> list[list[Any]]:
    """Arms by columns of the first table of values, by its first metric."""
    name, table = next((item for item in spec.tables.items() if item[1].against is None), ("", None))
    if table is None:
        return []
    metric, arms = table.cells[0], spec.arm_names()
    found = [(arm, column, tables[name].get(f"{arm}/{column}/{metric}")) for column in table.columns for arm in arms]
    return [[f"{column}: {arm}", arm, column, metric, *cell[:3]] for arm, column, cell in found if cell]


def _curves(spec: ReportSpec, results: Path) -> tuple[list[str], list[list[Any]]]:
    """Steps by arms: the first curve over steps that the study draws, the mean over the replicates that have it."""
    drawn = next((figure.y for figure in spec.figures.values() if figure.x == "step"), "loss")
    values: dict[str, dict[int, list[float]]] = {}
    for row in spec.arms:
        for step in row.path:
            for line in metrics.read(artifact.folder(results, step.kind, step.digest)):
                if drawn in line:
                    values.setdefault(row.arm, {}).setdefault(int(line["step"]), []).append(float(line[drawn]))
    steps = sorted({step for of in values.values() for step in of})
    rows = [[step, *(round(fmean(of[step]), 6) if step in of else "" for of in values.values())] for step in steps]
    return ["step", *(f"{drawn} of {arm}" for arm in values)], rows


def _csv(head: list[str], rows: Iterable[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue().encode()


# What MLflow shows of the completions of a stage.


ROLLOUTS = ("rollouts.json",)
"""Tables of MLflow: `Artifacts` of a run, and the runs' page for several at once."""
MOST_ROLLOUTS = 100
ROLLOUT_COLUMNS = ("step", "band", "op", "strict", "answer", "score", "reward", "error", "length", "truncated")


def rollout_table(plan: Plan, stage: Stage, results: Path) -> dict[str, Any]:
    """`rollouts.json` of an evaluation or of RL, in the layout of `mlflow.log_table`: completions with their prompts and gold
    answers, spread over the problems of an evaluation and over the end of an RL run. {} where none are here."""
    from interplay.data.sets import open_kept, read_problems, rows_at  # what only a stage with samples needs
    from interplay.data.trajectory import shown_text

    file = open_kept(artifact.folder(results, stage.kind, stage.digest))
    if file is None:
        return {}
    with file:
        names, count = file.schema_arrow.names, file.metadata.num_rows
        spread = max(1, count // MOST_ROLLOUTS)
        last = range(max(0, count - MOST_ROLLOUTS), count)
        rows = rows_at(file, last if "step" in names else range(0, count, spread)[:MOST_ROLLOUTS])
    columns = [name for name in ROLLOUT_COLUMNS if name in names]
    sets = [plan.stages[artifact.ref_digest(ref)] for role, ref in stage.deps.items() if role.split(".")[0] == "data"]
    found = []
    for number, one in enumerate(sets):
        here = [row for row in rows if row.get("set", 0) == number]
        folder = artifact.folder(results, one.kind, one.digest)
        known = read_problems(folder, [row["index"] for row in here], ("prompt", "answer"))
        for row in here:
            problem = known.get(row["index"], {"prompt": row.get("prompt", ""), "answer": ""})
            found.append([problem["prompt"], problem["answer"], shown_text(row), *(row[name] for name in columns)])
    return {ROLLOUTS[0]: {"columns": ["prompt", "gold", "completion", *columns], "data": found}}


DAY = 86400.0


class Item(NamedTuple):
    """An unreachable artifact folder."""

    folder: Path
    kind: str
    state: str
    size: int
    """Bytes."""
    days: float
    """Since it was last written to."""


class Garbage(NamedTuple):
    """What can be removed."""

    results: list[Item]
    links: list[Path]
    """Dangling links in by-name/, links to what is removed, and links to stages that their study's lock no longer has."""
    logs: list[Path]
    """Logs and benchmarks of stages that are in no lock and have no folder, or lose it."""
    leftovers: list[Path]
    """Folders that an interrupted removal left."""
    young: int
    """Unreachable folders that are too recent."""


def find_garbage(configs: Path, results: Path, extra: Iterable[Path] = (), older_than: float = 0.0) -> Garbage:
    """All that is unreachable; of results, only what was last written to more than `older_than` days ago.

    Raises UserError when a lock cannot be read, or there is none: everything would be unreachable."""
    read, found = locks.read_locks(configs, extra), state.scan_results(results)
    held = {name: set(lock.stages) for name, lock in read.items() if lock.stages}
    if not read:
        remedy = "`interplay plan --all --write` writes locks"
        raise model.UserError(f"{configs / 'plans'}: holds no lock, so nothing is known to be needed; {remedy}")
    if found.keys() - set().union(*held.values()):  # else all is in the other locks
        held |= {name: set(locks.whole_stages(lock, configs)) for name, lock in read.items() if not lock.stages}
    library = state.Library({}, results, found, locks.stages_of(read))
    roots = _roots(configs, results, held, found, library, older_than)
    kept = set().union(*held.values(), artifact.closure(roots, lambda digest: library.deps(digest).values()))
    unreached = []
    for digest, one in sorted(found.items()):
        if digest not in kept:
            folder = artifact.folder(results, one.kind, digest)
            size = sum(os.lstat(os.path.join(top, name)).st_size for top, _, files in os.walk(folder) for name in files)
            unreached.append(Item(folder, one.kind, one.state, size, _days(folder)))
    old = [item for item in unreached if item.days >= older_than]
    going = {item.folder.name for item in old}
    return Garbage(
        results=old,
        links=_stale_links(results, held, found, going),
        logs=_orphaned_logs(results.parent, set().union(*held.values()), found, going),
        leftovers=sorted(path for kind in KINDS for path in (results / kind).glob(".gc.*")),
        young=len(unreached) - len(old),
    )


def remove_garbage(garbage: Garbage, results: Path) -> list[str]:
    """Remove it all; returns one line for each folder that was kept because it is in use."""
    kept = [f"{item.folder}: in use, so it stays" for item in garbage.results if not _remove(item.folder)]
    for path in [*garbage.links, *garbage.logs]:
        path.unlink(missing_ok=True)
    for path in garbage.leftovers:
        shutil.rmtree(path, ignore_errors=True)
    for folder, _, _ in os.walk(results / "by-name", topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # refuses unless it is empty
    return kept


def _remove(folder: Path) -> bool:
    """Rename a folder, then delete it, so that a kill leaves no partial result. False when its lease is held."""
    with open(folder / "lease", "a") as lease:
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        renamed = folder.with_name(f".gc.{folder.name}")
        shutil.rmtree(renamed, ignore_errors=True)
        os.replace(folder, renamed)
    shutil.rmtree(renamed)
    return True


def _roots(
    configs: Path,
    results: Path,
    held: Mapping[str, set[str]],
    found: Mapping[str, state.Found],
    library: state.Library,
    days: float,
) -> set[str]:
    """Digests with a link of a study without a lock, and those of runs in flight."""
    names = {plan.flat_name(s, c) for s in expand.studies(configs) for c in expand.scales(configs)}
    linked = {target for name, _, target in _links(results) if name in names and name not in held}
    open_stages = {digest: one for digest, one in found.items() if one.state != "done"}
    folders = {digest: artifact.folder(results, one.kind, digest) for digest, one in open_stages.items()}
    active = {digest for digest, one in open_stages.items() if one.state == "running" or _days(folders[digest]) < days}
    waiting: dict[str, list[str]] = {}
    for digest in open_stages:
        for dep in library.deps(digest).values():
            waiting.setdefault(artifact.ref_digest(dep), []).append(digest)
    return linked.union(artifact.closure(active, lambda digest: waiting.get(digest, ())))


def _links(results: Path) -> Iterator[tuple[str, Path, str]]:
    """(study.scale, link, digest it names) for every link in by-name/."""
    top = results / "by-name"
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = Path(folder) / name
            if path.is_symlink():
                yield path.relative_to(top).parts[0], path, Path(os.readlink(path)).name


def _stale_links(results: Path, held: Mapping[str, set[str]], found: Mapping[str, state.Found], going: set[str]) -> list[Path]:
    return sorted(
        path
        for name, path, target in _links(results)
        if target in going or target not in found or (name in held and target not in held[name])
    )


def _orphaned_logs(root: Path, known: set[str], found: Mapping[str, state.Found], going: set[str]) -> list[Path]:
    """Of logs/<kind>/<digest>.log (and the hidden file that it links to) and benchmarks/<kind>/<digest>.tsv."""
    files = [path for top in ("logs", "benchmarks") for kind in KINDS for path in (root / top / kind).glob("*")]
    names = {path: path.name.lstrip(".").partition(".")[0] for path in files}
    return sorted(path for path, name in names.items() if name not in known and (name not in found or name in going))


def _days(folder: Path) -> float:
    """Since the last write of the planner, the runner or the record's writer."""
    times = [path.stat().st_mtime for name in ("record.json", "telemetry.json", "stage.json") if (path := folder / name).exists()]
    return (time.time() - max(times, default=folder.stat().st_mtime)) / DAY
