"""Functions of the user's own: `file.py:function` beside the study's YAML. The file's text enters the spec, and so the digest."""

from pathlib import Path
from typing import Any

from interplay.schema.base import Model, UserError
from interplay.schema.data import SourceSpec
from interplay.store.artifact import weights_checksum


def fill(cls: type[Model], spec: dict[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """The spec with what only the disk knows: sources of custom functions, the checksum of a model folder."""
    filled = {key: _filled(value, folder, f"{where}.{key}") for key, value in spec.items()}
    if cls is SourceSpec and filled.get("path"):
        filled["sha256"] = filled.get("sha256") or _checksum(Path(str(filled["path"])), where)
    return filled


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


def _checksum(path: Path, where: str) -> str:
    if not (path / "config.json").exists():
        raise UserError(
            f"{where}.path = '{path}': no model there; it must be a folder with config.json, safetensors and tokenizer.json"
        )
    return weights_checksum(path)
