"""What is kept of a finished study without its payloads: small, and the same bytes on every machine.

`results/studies/<study>.<scale>/` holds the plan and, of every stage, the record and the files that a report reads (KINDS:
light). `results/tables/<study>.<scale>/` holds tables, figures and claims. The second can be made again from the first without
weights: a kept record replaces its stage as long as no stage reads more of it than is kept."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from interplay.core import artifact
from interplay.kinds.table import KINDS, read_by
from interplay.study.plan import Plan, Stage, flat_name

STUDIES, PLAN = "studies", "plan.json"
Content = Path | bytes
"""A file to copy, or bytes to write."""


def folder_name(plan: Plan) -> str:
    """`<study>.<scale>`; a study in a folder has dots."""
    return flat_name(plan.study, plan.scale)


def keep_study(results: Path, plan: Plan) -> None:
    """Update both folders of a finished study. A study with a missing record keeps what was kept of it before."""
    if not _up_to_date(results, plan) and all(
        artifact.done(artifact.folder(results, stage.kind, digest)) for digest, stage in plan.stages.items()
    ):
        write_folder(results / STUDIES / folder_name(plan), kept_files(results, plan))
    report = artifact.folder(results, "report", plan.report)
    if artifact.done(report) and not artifact.absent(report):
        write_folder(results / "tables" / folder_name(plan), {file: report / file for file in artifact.record(report)["files"]})


def _up_to_date(results: Path, plan: Plan) -> bool:
    """Whether this plan was kept completely, by its plan file, which is written last: reading every record again would take
    seconds in a run without jobs."""
    folder = results / STUDIES / folder_name(plan)
    plan_file = folder / PLAN
    there = sum(1 for _ in folder.glob("records/*/*/record.json"))
    return there == len(plan.stages) and plan_file.exists() and plan_file.read_bytes() == plan.full_text().encode()


def kept_files(results: Path, plan: Plan) -> dict[str, Content]:
    """The records and the light files by their paths in the folder, and the plan. The report's files are kept elsewhere."""
    found: dict[str, Content] = {}
    for digest, stage in plan.stages.items():
        folder = artifact.folder(results, stage.kind, digest)
        for file in ("record.json", *KINDS[stage.kind].light):
            if (folder / file).exists():
                found[f"records/{stage.kind}/{digest}/{file}"] = folder / file
    return {**found, PLAN: plan.full_text().encode()}


def write_folder(out: Path, files: Mapping[str, Content]) -> None:
    """Make `out` hold exactly these files (by relative path). Equal files are not touched; a file changes atomically."""
    for relative, content in files.items():
        path = out / relative
        new = content if isinstance(content, bytes) else content.read_bytes()
        if not path.exists() or path.read_bytes() != new:
            artifact.write_atomic(path, new)
    for path in sorted(out.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif not path.is_dir() and path.suffix != ".part" and str(path.relative_to(out)) not in files:
            path.unlink(missing_ok=True)  # .part files belong to another Snakemake that is writing


def restore_records(results: Path, stages: Mapping[str, Stage], obtainable: Iterable[str]) -> list[str]:
    """Copy kept records and light files back to their places; returns the digests."""
    return restore_from(results, stages, restorable_records(results, stages, obtainable))


def restore_from(results: Path, stages: Mapping[str, Stage], places: Mapping[str, Path]) -> list[str]:
    """Copy these kept records (by digest, from `restorable_records`) back; returns the digests. Each under the stage's lease,
    after a run of it that has begun in the meantime."""
    for digest, place in sorted(places.items()):
        folder = artifact.folder(results, stages[digest].kind, digest)
        with artifact.lease(folder):
            _put_back(place, folder, stages[digest])
    return sorted(places)


def restorable_records(results: Path, stages: Mapping[str, Stage], obtainable: Iterable[str]) -> dict[str, Path]:
    """Digest -> kept record, of the stages that `restore_records` would copy back.

    `obtainable`: kinds whose payloads can be fetched. Left out are stages that a missing stage reads in full and whose payload is
    stored nowhere: they will be made again; kinds that read only records and light files, as reports do, which are made again in
    seconds; and stages that are being made now."""
    places = {path.name: path for path in (results / STUDIES).glob("*/records/*/*")}
    if not places:
        return {}
    here = {digest for digest, stage in stages.items() if artifact.done(artifact.folder(results, stage.kind, digest))}
    back = {
        d for d in stages if d not in here and d in places and not KINDS[stages[d].kind].reads_light and _is_complete(places[d])
    }
    back -= {d for d in back if artifact.is_leased(artifact.folder(results, stages[d].kind, d) / "lease")}
    kinds = set(obtainable)
    while lacking := {
        dep
        for digest, stage in stages.items()
        if digest not in here and digest not in back
        for dep, _ in map(artifact.split_ref, stage.deps.values())
        if dep in back and read_by(stage.kind, stages[dep].kind) is None and stages[dep].kind not in kinds
    }:
        back -= lacking
    return {digest: places[digest] for digest in back}


def _is_complete(kept: Path) -> bool:
    """Whether all files that a report may read of the stage were kept."""
    return (kept / "record.json").exists() and not artifact.absent(kept, KINDS[kept.parent.name].light)


def _put_back(kept: Path, folder: Path, stage: Stage) -> None:
    """The record is copied last: with it the stage counts as done."""
    if artifact.done(folder):
        return
    artifact.write_json(folder / "stage.json", stage.as_json())
    for file in (*artifact.record(kept)["files"], "record.json"):
        if (kept / file).exists() and not (folder / file).exists():
            artifact.copy_atomic(kept / file, folder / file)
    shutil.rmtree(folder / "resume", ignore_errors=True)
