"""What enters a study from the disk: members of the user's own (core.extension), models in folders and data files. Their content
enters the spec, and so the digest."""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from interplay.core import artifact
from interplay.core.extension import is_extension
from interplay.core.model import Model, UserError, shorten_value
from interplay.data.spec import DatasetSpec
from interplay.model.spec import SourceSpec


def fill_extensions(spec: Mapping[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """The spec with the texts of members of the user's own, and versions of their distributions, which only the disk has."""
    if is_extension(spec):
        return {**spec, **_content(dict(spec), folder, where)}
    return {key: _filled(value, folder, f"{where}.{key}") for key, value in spec.items()}


def read_files(
    model: type[Model], spec: Mapping[str, Any], run: Mapping[str, Any], folder: Path, where: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Spec and run block with the texts of members of the user's own, or versions of their distributions, and with the checksum
    of a file or model folder in the spec and its path in the run block. Raises UserError for a path that leads out of the
    project, or to nothing."""
    spec = fill_extensions(spec, folder, where)
    run = dict(run)
    if run.get("path") is not None:
        below_root(run["path"], f"{where}.run.path")
    key, checksum = PLACES.get(model, ("", file_checksum))
    if key in spec:
        run["path"] = below_root(spec.pop(key), f"{where}.{key}")
        spec["sha256"] = checksum(run["path"], spec.get("sha256"), where)
    return spec, run


def below_root(path: Any, where: str) -> str:
    """A path that a study names, as it is written: relative to the project's root, and below it. A link there may lead anywhere,
    since the user made it. Raises UserError when the text itself leads out."""
    if not isinstance(path, str):
        raise UserError(f"{where} = {shorten_value(path)}: must be a path, as text")
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not path.isprintable():
        origin = shorten_value(str(pure) if pure.is_absolute() else f"FOLDER/{pure.name}")
        raise UserError(
            f"{where} = {shorten_value(path)}: must lie below the project's root; link what lies elsewhere, as by "
            f"`ln -s {origin} data/external/`, and name the link"
        )
    return path


def model_checksum(path: str, known: str | None, where: str) -> str:
    """Identity of a model folder, in place of a known one. Raises UserError when there is none."""
    try:
        return artifact.model_checksum(Path(path))
    except (UserError, OSError, ValueError) as error:
        raise UserError(f"{where}.path = {shorten_value(path)}: {error}") from None


def file_checksum(file: str, known: str | None, where: str) -> str:
    """Identity of a data file; what the study says it is where the file is not here. Raises UserError where the two differ, or
    there is neither."""
    try:
        found = artifact.checksum(Path(file)) if Path(file).is_file() else None
    except (OSError, ValueError) as error:  # a name too long for any file, or one that may not be read
        raise UserError(
            f"{where}.file = {shorten_value(file)}: not readable: {getattr(error, 'strerror', None) or error}"
        ) from None
    if found is None:
        if known is None:
            raise UserError(f"{where}.file = {shorten_value(file)}: no such file; put it there, or give its sha256 as well")
        return known
    if known and found != known:
        raise UserError(f"{where}.sha256 = {known!r}: but {file} has {found}; put the right file there")
    return found


PLACES = {SourceSpec: ("path", model_checksum), DatasetSpec: ("file", file_checksum)}
"""Spec -> the key by which a study names what is on disk, and its identity."""


def _filled(value: Any, folder: Path, where: str) -> Any:
    if isinstance(value, list):
        return [_filled(item, folder, f"{where}.{i}") for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if is_extension(value):
        return {**value, **_content(value, folder, where)}
    return {key: _filled(item, folder, f"{where}.{key}") for key, item in value.items()}


def _content(member: dict[str, Any], folder: Path, where: str) -> dict[str, str]:
    """What only this machine knows of a member of the user's own: the text of its file, or the version of its distribution."""
    key = "name" if ":" in member.get("name", "") else "function"
    function = str(member[key])
    file, _, name = function.partition(":")
    spot = f"{where}.{key} = {shorten_value(function)}"
    if name and not file.endswith(".py") and "/" not in file:
        try:
            return {"distribution": file, "version": importlib.metadata.version(file)}
        except importlib.metadata.PackageNotFoundError:
            remedy = "install it, or write file.py:Name for a file in the study's folder"
            raise UserError(f"{spot}: no distribution {file!r} is installed; {remedy}") from None
    return {"source": _source(file, name, folder, spot)}


def _source(file: str, name: str, folder: Path, spot: str) -> str:
    try:
        path = (folder / file).resolve()
        inside = path.is_relative_to(folder.resolve())
        text = path.read_text(encoding="utf-8") if inside and path.is_file() else None
    except (OSError, ValueError) as error:  # ValueError: no file's name, or no text
        raise UserError(f"{spot}: not readable: {error}") from None
    if not name.isidentifier() or not inside:
        raise UserError(f"{spot}: must be file.py:Name, the file in the study's folder")
    if text is None:
        raise UserError(f"{spot}: no file {file} in the study's folder")
    return text
