"""What stays of finished studies: small records and tables for every machine, payloads in DVC, and the check of files against
their records."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, model
from interplay.kinds.stages import digest_of_content, numerics_class
from interplay.kinds.table import KINDS, read_by
from interplay.study.plan import Plan, Stage, flat_name

# What is kept of a finished study without its payloads: small, and the same bytes on every machine.
#
# `results/studies/<study>.<scale>/` holds the plan and, of every stage, the record and the files that a report reads (KINDS:
# light). `results/tables/<study>.<scale>/` holds tables, figures and claims. The second can be made again from the first without
# weights: a kept record replaces its stage as long as no stage reads more of it than is kept.


# Whole artifacts that come with the project lie in `data/bases/<kind>/<digest>/`: bases of scale coffee, for studies that would
# pre-train just these. They replace their stage as a kept record does, payload included.


STUDIES, SHIPPED = artifact.STUDIES, artifact.SHIPPED
PLAN = "plan.json"
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


def content_of(content: Content) -> bytes:
    """What a file of the folder holds."""
    return content if isinstance(content, bytes) else content.read_bytes()


def write_folder(out: Path, files: Mapping[str, Content]) -> None:
    """Make `out` hold exactly these files (by relative path). Equal files are not touched; a file changes atomically."""
    for relative, content in files.items():
        path = out / relative
        new = content_of(content)
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
    seconds; and stages that are being made now. Raises UserError where an artifact that comes with the project is damaged."""
    shipped = {path.name: path for path in (results.parent / SHIPPED).glob("*/*")}
    places = {path.name: path for path in (results / STUDIES).glob("*/records/*/*")} | shipped
    if not places:
        return {}
    here = {digest for digest, stage in stages.items() if artifact.done(artifact.folder(results, stage.kind, digest))}
    back = {d for d in stages if d not in here and d in places and not KINDS[stages[d].kind].reads_light and _is_whole(places[d])}
    back -= {d for d in back if artifact.is_leased(artifact.folder(results, stages[d].kind, d) / "lease")}
    for digest in back & shipped.keys():
        _check_shipped(shipped[digest])
    kinds = set(obtainable)
    while lacking := {
        dep
        for digest, stage in stages.items()
        if digest not in here and digest not in back
        for dep, _ in map(artifact.split_ref, stage.deps.values())
        if dep in back - shipped.keys() and read_by(stage.kind, stages[dep].kind) is None and stages[dep].kind not in kinds
    }:
        back -= lacking
    return {digest: places[digest] for digest in back}


def _is_whole(kept: Path) -> bool:
    """Whether all files that a report may read of the stage were kept."""
    return (kept / "record.json").exists() and not artifact.absent(kept, KINDS[kept.parent.name].light)


def _check_shipped(folder: Path) -> None:
    """Raises UserError unless the artifact is as its record says, and its record as its digest."""
    files, wrong = of_record(folder)
    for damage in [*wrong, *find_damage(files, lambda number: None)]:
        raise model.UserError(f"{damage.line}; restore it (`git checkout {folder}`), or remove {folder} to make the stage here")


def _put_back(kept: Path, folder: Path, stage: Stage) -> None:
    """The record is copied last: with it the stage counts as done. What a run that was broken off left, other than recorded,
    goes."""
    if artifact.done(folder):
        return
    artifact.write_json(folder / "stage.json", stage.as_json())
    files = artifact.record(kept)["files"]
    for path in artifact.payload(folder):
        if [path.stat().st_size, artifact.checksum(path)] != files.get(str(path.relative_to(folder))):
            path.unlink()
    for file in (*files, "record.json"):
        if (kept / file).exists() and not (folder / file).exists():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            artifact.copy_atomic(kept / file, folder / file)
    shutil.rmtree(folder / "resume", ignore_errors=True)


# Payloads in DVC: one `results/<kind>.dvc` per kind, to which finished artifacts are added one by one, never as a whole folder:
# in a partial clone that would drop absent artifacts. Only the main process calls this, and no error here fails a study.
#
# Does nothing in a project without git and DVC. DVC is imported only when there is something to add or to fetch: what was added
# before is listed in `results/.stored.json`, which is valid as long as the `.dvc` files have not changed.


SWITCH = "INTERPLAY_STORE"
"""Environment variable: with 0, finished studies are not added to DVC before `interplay store push`."""


def in_project() -> bool:
    """Whether the working directory is the root of a git repository with DVC."""
    return Path(".dvc/config").is_file() and Path(".git").exists()


def pointer_path(results: Path, kind: str) -> Path:
    """The file that git tracks for a kind's payloads."""
    return results / f"{kind}.dvc"


def stored_kinds(results: Path) -> list[str]:
    """Kinds whose payloads DVC may have."""
    return [kind for kind in KINDS if in_project() and pointer_path(results, kind).exists()]


def check_obtainable(folder: Path) -> None:
    """Raises UserError with the missing file and the remedy, unless DVC may have the payload of this finished stage."""
    if folder.parent.name not in stored_kinds(folder.parent.parent):
        artifact.check(folder)


def add_payloads(results: Path, plans: Iterable[Plan]) -> list[str]:
    """Add what is finished, complete, and not stored yet: artifacts, and the kept records of the studies. Returns their
    paths.

    Raises UserError in one line when DVC fails."""
    if not in_project():
        return []
    held = _held(results)
    found = _finished(results, plans)
    new = {path: version for path, version in found.items() if held.get(path) != version}
    for path in [path for path in map(Path, new) if artifact.done(path) and artifact.absent(path)]:
        del new[path.as_posix()]  # a kept record alone would replace the payload
    if new:
        for kind in sorted({Path(path).parent.name for path in new}):
            if not pointer_path(results, kind).exists():  # DVC adds a first artifact only where a pointer exists
                artifact.write_atomic(pointer_path(results, kind), f"outs:\n- path: {kind}\n".encode())
        run_dvc("add", "--quiet", "--no-relink", *sorted(new))
        held |= new
        pointers = {kind: _checksum(pointer_path(results, kind)) for kind in sorted({Path(path).parent.name for path in held})}
        artifact.write_json(results / ".stored.json", {"pointers": pointers, "held": held})
    return sorted(new)


def run_dvc(*arguments: str) -> str:
    """Run DVC; returns its output. Raises UserError with its last line when it fails.

    Files are added with `--no-relink`, so that those in results/ never become links into a cache."""
    done = subprocess.run([sys.executable, "-m", "dvc", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip() and not line.startswith("<")]
        why = next((line for line in lines if line.startswith("ERROR: ")), lines[-1] if lines else f"exit code {done.returncode}")
        raise model.UserError(f"dvc {arguments[0]}: {_redacted(why.removeprefix('ERROR: '))}")
    return done.stdout


def fetch_payloads(folders: Iterable[Path]) -> int:
    """Copy the missing files of these artifacts (or studies) from DVC's cache or remote, each atomically, records last; returns
    the number of files. Raises UserError when a file is stored nowhere.

    Read through DVCFileSystem and not `dvc pull`, which removes the folder of a whole kind when a single file is stored
    nowhere."""
    with _files() as files:
        return sum(_fetch(files, folder) for folder in folders)


def stored_folders(folders: Iterable[Path]) -> set[Path]:
    """Those of these folders that DVC's pointers list, whether the bytes are here or not."""
    with _files() as files:
        return {folder for folder in folders if files.exists(folder.as_posix())}


def stored_otherwise(folders: Iterable[Path]) -> dict[Path, str]:
    """One digest, two contents: those of these finished artifacts, all of which are stored, whose record here is not the stored
    one, with the numerics of the one here. Downloads nothing but lists of files."""
    with _files() as files:
        known = {folder / "record.json": files.info((folder / "record.json").as_posix()).get("dvc_info") for folder in folders}
    stored = {path: info["md5"] for path, info in known.items() if info}
    unlike = [path.parent for path, md5 in stored.items() if hashlib.md5(path.read_bytes()).hexdigest() != md5]
    return {folder: numerics_class(artifact.record(folder)).name for folder in unlike}


@contextlib.contextmanager
def _files() -> Iterator[Any]:
    """The project as a DVCFileSystem. Any failure in it becomes a UserError of one line."""
    if not in_project():
        raise model.UserError(".: no git repository with DVC; `git init` and `dvc init` make one")
    from dvc.api import DVCFileSystem

    try:
        yield DVCFileSystem(".")
    except model.UserError:
        raise
    except Exception as error:  # of DVC, or of the library that reads the remote
        raise model.UserError(f"DVC: {_redacted(' '.join(str(error).split())) or type(error).__name__}") from None


def _redacted(text: str) -> str:
    """Without the credentials of URLs."""
    from snakemake_logger_plugin_mlflow import store  # its package costs 0.1 s

    return store.redacted(text)


def _fetch(files: Any, folder: Path) -> int:
    found = [Path(file) for file in files.find(folder.as_posix())] if files.exists(folder.as_posix()) else []
    if not found:
        where = pointer_path(folder.parent.parent, folder.parent.name)
        raise model.UserError(f"{folder}: not in {where}; {_remedy(folder)}")
    absent = [path for path in found if not path.exists()]
    for path in sorted(absent, key=lambda path: path.name == "record.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            files.get_file(path.as_posix(), str(part))
            os.replace(part, path)
        except FileNotFoundError:
            raise model.UserError(f"{path}: in neither DVC's cache nor its remote; {_remedy(folder)}") from None
        finally:
            part.unlink(missing_ok=True)
    return len(absent)


def _remedy(folder: Path) -> str:
    kept_record = folder.parent.parent / STUDIES / "*" / "records" / Path(*folder.parts[-2:])
    return f"push it where it was made (`interplay store push`), or remove {folder} and {kept_record} to make it again"


def _finished(results: Path, plans: Iterable[Plan]) -> dict[str, str]:
    """Path -> version: the digest of an artifact; for kept records of a study the checksum of its plan, which is written last and
    names all the others."""
    found = {}
    for plan in plans:
        for digest, stage in plan.stages.items():
            if artifact.done(folder := artifact.folder(results, stage.kind, digest)):
                found[folder.as_posix()] = digest
        study = results / STUDIES / folder_name(plan)
        if (study / PLAN).exists():
            found[study.as_posix()] = artifact.checksum(study / PLAN)
    return found


def _held(results: Path) -> dict[str, str]:
    """What is known to be stored, as in `_finished`; nothing of a kind whose pointer has changed since, as after `git pull`."""
    path = results / ".stored.json"
    if not path.exists():
        return {}
    known = artifact.read_json(path)
    same = {kind for kind, checksum in known["pointers"].items() if _checksum(pointer_path(results, kind)) == checksum}
    return {path: version for path, version in known["held"].items() if Path(path).parent.name in same}


def _checksum(path: Path) -> str:
    return artifact.checksum(path) if path.exists() else ""


# Finished artifacts against their records: every file by its checksum, every record by the digest of its own content.


class File(NamedTuple):
    """A file that a record lists."""

    stage: Path
    """The artifact folder."""
    path: Path
    size: int
    sha256: str


class Damage(NamedTuple):
    """Something that is not as recorded, in one line."""

    stage: Path
    line: str


def of_record(out: Path) -> tuple[list[File], list[Damage]]:
    """The files that the record of a finished artifact lists, and what is wrong with the record itself, whose content must lie
    under its own digest."""
    path = out / "record.json"
    try:
        record = artifact.read_json(path)
        files = [File(out, out / name, int(size), str(sha256)) for name, (size, sha256) in record["files"].items()]
        kind, named, identity = record["kind"], record["digest"], digest_of_content(record)
    except model.UserError as error:
        return [], [Damage(out, str(error))]
    except (AttributeError, KeyError, TypeError, ValueError):
        return [], [Damage(out, f"{path}: not a record")]
    if (kind, named, identity) == (out.parent.name, out.name, out.name):
        return files, []
    altered = f"its content is that of {kind}/{identity}; it was altered or lies in the wrong place"
    return files, [Damage(out, f"{path}: {altered}")]


def find_damage(files: list[File], progress: Callable[[int], None]) -> Iterator[Damage]:
    """What is wrong with the files, read by as many threads as there are processors; `progress` is called with
    the number read so far."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, (file, reason) in enumerate(zip(files, pool.map(_reason, files), strict=True), 1):
            progress(number)
            if reason:
                yield Damage(file.stage, f"{file.path}: {reason}")


def _reason(file: File) -> str:
    """Empty when the file is as recorded."""
    try:
        size = file.path.stat().st_size
        if size != file.size:
            return f"corrupt ({size} bytes instead of {file.size})"
        return "" if artifact.checksum(file.path) == file.sha256 else "corrupt (checksum differs)"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"not readable ({error.strerror})"
