"""Garbage collection: unreachable artifacts, links, logs and benchmarks.

The roots are locks in configs/plans (or given); by-name links of studies that have a YAML file and no lock yet; and runs in
flight: stages that are being made or were planned lately, with all that wait for them. The inputs of roots are reachable, too."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from interplay.core import artifact, model
from interplay.kinds.table import KINDS
from interplay.results import locks, state
from interplay.study import expand, plan

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
    held = {name: set(stages) for name, stages in read.items()}
    if not held:
        remedy = "`interplay plan --all --write` writes locks"
        raise model.UserError(f"{configs / 'plans'}: holds no lock, so nothing is known to be needed; {remedy}")
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
            waiting.setdefault(artifact.split_ref(dep)[0], []).append(digest)
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
