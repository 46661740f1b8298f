"""Payloads in DVC: one `results/<kind>.dvc` per kind, to which finished artifacts are added one by one, never as a whole folder:
in a partial clone that would drop absent artifacts. Only the main process calls this, and no error here fails a study.

Does nothing in a project without git and DVC. DVC is imported only when there is something to add or to fetch: what was added
before is listed in `results/.stored.json`, which is valid as long as the `.dvc` files have not changed."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, model
from interplay.kinds.identity import rehashed
from interplay.kinds.table import KINDS
from interplay.results import kept
from interplay.study.plan import Plan

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


def add_payloads(results: Path, plans: Iterable[Plan], more: Iterable[Path] = ()) -> list[str]:
    """Add what is finished, complete, and not stored yet: artifacts, the kept records of the studies, and `more` finished
    artifacts that belong to no study. Returns their paths.

    Raises UserError in one line when DVC fails."""
    if not in_project():
        return []
    held = _held(results)
    found = _finished(results, plans) | {folder.as_posix(): folder.name for folder in more}
    new = {path: version for path, version in found.items() if held.get(path) != version and _is_complete(path)}
    if new:
        for kind in sorted({Path(path).parent.name for path in new}):
            if not pointer_path(results, kind).exists():  # DVC adds a first artifact only where a pointer exists
                artifact.write_atomic(pointer_path(results, kind), f"outs:\n- path: {kind}\n".encode())
        run_dvc("add", "--quiet", "--no-relink", *sorted(new))
        _hold(results, held | new)
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
    kept_record = folder.parent.parent / kept.STUDIES / "*" / "records" / Path(*folder.parts[-2:])
    return f"push it where it was made (`interplay store push`), or remove {folder} and {kept_record} to make it again"


def _finished(results: Path, plans: Iterable[Plan]) -> dict[str, str]:
    """Path -> version: the digest of an artifact; for kept records of a study the checksum of its plan, which is written last and
    names all the others."""
    found = {}
    for plan in plans:
        for digest, stage in plan.stages.items():
            if artifact.done(folder := artifact.folder(results, stage.kind, digest)):
                found[folder.as_posix()] = digest
        study = results / kept.STUDIES / kept.folder_name(plan)
        if (study / kept.PLAN).exists():
            found[study.as_posix()] = artifact.checksum(study / kept.PLAN)
    return found


def _is_complete(path: str) -> bool:
    """Only a complete artifact is added: a kept record alone would replace the payload."""
    return not (Path(path) / "record.json").exists() or not artifact.absent(Path(path))


def _held(results: Path) -> dict[str, str]:
    """What is known to be stored, as in `_finished`; nothing of a kind whose pointer has changed since, as after `git pull`."""
    path = results / ".stored.json"
    if not path.exists():
        return {}
    known = artifact.read_json(path)
    same = {kind for kind, checksum in known["pointers"].items() if _checksum(pointer_path(results, kind)) == checksum}
    return {path: version for path, version in known["held"].items() if Path(path).parent.name in same}


def _hold(results: Path, held: dict[str, str]) -> None:
    pointers = {kind: _checksum(pointer_path(results, kind)) for kind in sorted({Path(path).parent.name for path in held})}
    artifact.write_json(results / ".stored.json", {"pointers": pointers, "held": held})


def _checksum(path: Path) -> str:
    return artifact.checksum(path) if path.exists() else ""


# -- files against their records ---------------------------------------------------------------------------------------------
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


class Record(NamedTuple):
    """The files that a record lists, and what is wrong with the record itself."""

    files: list[File]
    damage: list[Damage]


def of_record(out: Path) -> Record:
    """Read the record of a finished artifact and hash its content: it must lie under its own digest."""
    path = out / "record.json"
    try:
        record = artifact.read_json(path)
        files = [File(out, out / name, int(size), str(sha256)) for name, (size, sha256) in record["files"].items()]
        kind, named, identity = record["kind"], record["digest"], rehashed(record)
    except model.UserError as error:
        return Record([], [Damage(out, str(error))])
    except (AttributeError, KeyError, TypeError, ValueError):
        return Record([], [Damage(out, f"{path}: not a record")])
    if (kind, named, identity) == (out.parent.name, out.name, out.name):
        return Record(files, [])
    altered = f"its content is that of {kind}/{identity}; it was altered or lies in the wrong place"
    return Record(files, [Damage(out, f"{path}: {altered}")])


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
