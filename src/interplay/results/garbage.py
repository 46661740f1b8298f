"""What lies in results/, logs/ and benchmarks/ that nothing leads to any more.

What leads to a result: a lock in configs/plans (or one given); a by-name link of a study that has no lock yet but still has its
YAML; and a run in flight, told by a stage that is being made or was planned lately, with all that waits for it. Whatever these
are made from stays, too."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from interplay.core import artifact
from interplay.core.artifact import split_ref
from interplay.core.model import UserError
from interplay.kinds.table import KINDS
from interplay.results.state import Found, Library, every_stage, read_locks, scan
from interplay.study import compose
from interplay.study.plan import flat_name

DAY = 86400.0


class Item(NamedTuple):
    """An artifact folder that nothing leads to."""

    folder: Path
    kind: str
    state: str
    size: int
    """Bytes."""
    days: float
    """Since it was last written to."""


class Garbage(NamedTuple):
    """What may go."""

    results: list[Item]
    links: list[Path]
    """Links in by-name/ that lead nowhere, will lead nowhere, or are not in their study's lock any more."""
    logs: list[Path]
    """Logs and benchmarks of stages that are in no lock and have no folder, or lose it."""
    leftovers: list[Path]
    """Folders that an interrupted removal left."""
    young: int
    """Unreached folders that are too young."""


def find(configs: Path, results: Path, extra: Iterable[Path] = (), older_than: float = 0.0) -> Garbage:
    """All that nothing leads to; of results, what was last written to more than `older_than` days ago.

    Raises UserError when a lock cannot be read, or there is none at all: then everything would go."""
    read, found = read_locks(configs, extra), scan(results)
    locks = {name: set(stages) for name, stages in read.items()}
    if not locks:
        raise UserError(
            f"{configs / 'plans'}: holds no lock, so nothing tells what is needed; `interplay plan --all --write` does"
        )
    library = Library({}, results, found, every_stage(read))
    kept = set().union(*locks.values()) | _inputs(_roots(configs, results, locks, found, library, older_than), library)
    unreached = [_item(results, digest, one) for digest, one in sorted(found.items()) if digest not in kept]
    old = [item for item in unreached if item.days >= older_than]
    going = {item.folder.name for item in old}
    return Garbage(
        results=old,
        links=_stale_links(results, locks, found, going),
        logs=_orphans(results.parent, set().union(*locks.values()), found, going),
        leftovers=sorted(path for kind in KINDS for path in (results / kind).glob(".gc.*")),
        young=len(unreached) - len(old),
    )


def remove(garbage: Garbage, results: Path) -> list[str]:
    """Remove it all; returns what was kept because someone works on it, in one line each."""
    kept = []
    for item in garbage.results:
        if not _remove(item.folder):
            kept.append(f"{item.folder}: in use, so it stays")
    for path in [*garbage.links, *garbage.logs]:
        path.unlink(missing_ok=True)
    for path in garbage.leftovers:
        shutil.rmtree(path, ignore_errors=True)
    for folder, _, _ in os.walk(results / "by-name", topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # refuses unless it is empty
    return kept


def _remove(folder: Path) -> bool:
    """Take a folder out of the way at once, then delete it: a kill leaves no half of a result. False when its lease is held."""
    with open(folder / "lease", "a") as lease:
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        out_of_the_way = folder.with_name(f".gc.{folder.name}")
        shutil.rmtree(out_of_the_way, ignore_errors=True)
        os.replace(folder, out_of_the_way)
    shutil.rmtree(out_of_the_way)
    return True


def _roots(
    configs: Path,
    results: Path,
    locks: Mapping[str, set[str]],
    found: Mapping[str, Found],
    library: Library,
    days: float,
) -> set[str]:
    """Digests that a link of a study without a lock, or a run in flight, holds on to."""
    names = {flat_name(s, c) for s in compose.studies(configs) for c in compose.scales(configs)}
    linked = {target for name, _, target in _links(results) if name in names and name not in locks}
    open_stages = {digest: one for digest, one in found.items() if one.state != "done"}
    now = {digest for digest, one in open_stages.items() if one.state == "running" or _days(results, digest, one) < days}
    waiting: dict[str, list[str]] = {}
    for digest in open_stages:
        for dep in library.deps(digest).values():
            waiting.setdefault(split_ref(dep)[0], []).append(digest)
    todo = list(now)
    while todo:
        for digest in waiting.get(todo.pop(), ()):
            if digest not in now:
                now.add(digest)
                todo.append(digest)
    return linked | now


def _inputs(roots: set[str], library: Library) -> set[str]:
    """The roots and all that they are made from."""
    seen: set[str] = set()
    todo = list(roots)
    while todo:
        digest = todo.pop()
        if digest not in seen:
            seen.add(digest)
            todo += [split_ref(dep)[0] for dep in library.deps(digest).values()]
    return seen


def _links(results: Path) -> Iterator[tuple[str, Path, str]]:
    """(study.scale, link, digest it names) for every link in by-name/."""
    top = results / "by-name"
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = Path(folder) / name
            if path.is_symlink():
                yield path.relative_to(top).parts[0], path, Path(os.readlink(path)).name


def _stale_links(results: Path, locks: Mapping[str, set[str]], found: Mapping[str, Found], going: set[str]) -> list[Path]:
    return sorted(
        path
        for name, path, target in _links(results)
        if target in going or target not in found or (name in locks and target not in locks[name])
    )


def _orphans(root: Path, known: set[str], found: Mapping[str, Found], going: set[str]) -> list[Path]:
    """Logs lie in logs/<kind>/<digest>.log (and a hidden file that it links to), benchmarks in benchmarks/<kind>/<digest>.tsv."""
    files = [path for top in ("logs", "benchmarks") for kind in KINDS for path in (root / top / kind).glob("*")]
    names = {path: path.name.lstrip(".").partition(".")[0] for path in files}
    return sorted(path for path, name in names.items() if name not in known and (name not in found or name in going))


def _item(results: Path, digest: str, one: Found) -> Item:
    folder = artifact.folder(results, one.kind, digest)
    return Item(folder, one.kind, one.state, _size(folder), _days(results, digest, one))


def _days(results: Path, digest: str, one: Found) -> float:
    """Since the newest of the files that the planner, the runner and the record's writer leave."""
    folder = artifact.folder(results, one.kind, digest)
    times = [path.stat().st_mtime for name in ("record.json", "telemetry.json", "stage.json") if (path := folder / name).exists()]
    return (time.time() - max(times, default=folder.stat().st_mtime)) / DAY


def _size(folder: Path) -> int:
    return sum(os.lstat(os.path.join(top, name)).st_size for top, _, files in os.walk(folder) for name in files)
