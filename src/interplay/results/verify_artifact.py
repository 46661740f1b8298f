"""Finished artifacts against their records: every file by its checksum, every record by the digest of its own content."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.kinds.identity import rehashed


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
    except UserError as error:
        return Record([], [Damage(out, str(error))])
    except (AttributeError, KeyError, TypeError, ValueError):
        return Record([], [Damage(out, f"{path}: not a record")])
    if (kind, named, identity) == (out.parent.name, out.name, out.name):
        return Record(files, [])
    return Record(
        files, [Damage(out, f"{path}: its content is that of {kind}/{identity}; it was altered or lies in the wrong place")]
    )


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
