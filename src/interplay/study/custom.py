"""What enters a study from the disk: functions of the user's own, `file.py:function` beside the YAML, and models in folders.
Their content enters the spec, and so the digest."""

from pathlib import Path
from typing import Any

from interplay.schema.base import UserError
from interplay.store.artifact import model_checksum


def fill(spec: dict[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """The spec with the sources of its custom functions, which only the disk knows."""
    return {key: _filled(value, folder, f"{where}.{key}") for key, value in spec.items()}


def checksum(path: str, where: str) -> str:
    """Identity of a model folder. Raises UserError when there is none."""
    try:
        return model_checksum(Path(path))
    except UserError as error:
        raise UserError(f"{where}.path = '{path}': {error}") from None


def _filled(value: Any, folder: Path, where: str) -> Any:
    if isinstance(value, list):
        return [_filled(item, folder, f"{where}.{i}") for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if "function" in value and value.get("name", "custom") == "custom":
        return {**value, "source": _source(str(value["function"]), folder, where)}
    return {key: _filled(item, folder, f"{where}.{key}") for key, item in value.items()}


def _source(function: str, folder: Path, where: str) -> str:
    file, _, name = function.partition(":")
    path = (folder / file).resolve()
    if not name.isidentifier() or not path.is_relative_to(folder.resolve()):
        raise UserError(f"{where}.function = {function!r}: must be file.py:function, the file beside the study")
    if not path.exists():
        raise UserError(f"{where}.function = {function!r}: no file {file} beside the study")
    text = path.read_text()
    if f"def {name}(" not in text:
        raise UserError(f"{where}.function = {function!r}: {file} defines no function '{name}'")
    return text
