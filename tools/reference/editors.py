"""JSON Schemas of the files below configs/, made of the pydantic specs, for editors that complete, explain and underline keys
(`configs/schema/*.json`; each file's first line names its own). They judge a file by itself: keys that a study takes in from
elsewhere may be missing, and `${...}` may stand for any value. `interplay plan` judges the whole."""

import json
import os
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from interplay.model.spec import Shape
from interplay.rl.samplers.spec import Sampler
from interplay.rl.spec import Method
from interplay.run.spec import Site
from interplay.study.spec import Scale, ScaleChange, Study
from interplay.tasks.spec import TaskKeys

FOLDER = "schema"
"""Below configs/."""
SHARED = "defs.json"
"""What the schemas have in common."""
ROOTS: dict[str, Any] = {
    "study": Study,
    "scale": Scale,
    "recipe": ScaleChange,
    "method": Method,
    "curriculum": Sampler,
    "model": Shape,
    "task": TaskKeys,
    "site": Site,
}
"""Folder below configs/, or file there -> what its files hold."""
WHOLE = ("method", "model", "site")
"""Files that say all that their models require."""
INTERPOLATION = r"\$\{"
Schema = dict[str, Any]


def files(configs: Path) -> dict[Path, str]:
    """Every generated schema, with its text."""
    inputs: list[Any] = [(name, "validation", TypeAdapter(model)) for name, model in ROOTS.items()]
    found, shared = TypeAdapter.json_schemas(inputs)
    defs: Schema = shared["$defs"]
    made = {SHARED: {"$defs": {name: _open(schema) for name, schema in sorted(defs.items())}}}
    for (name, _), schema in found.items():
        made[f"{name}.json"] = _root(str(name), defs[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema)
    return {configs / FOLDER / name: f"{json.dumps(schema, indent=1, sort_keys=True)}\n" for name, schema in made.items()}


def first_line(configs: Path, file: Path) -> str | None:
    """The comment that leads an editor from a file of configs/ to its schema; None where there is no schema of it."""
    name = file.relative_to(configs).parts[0].removesuffix(".yaml")
    if name not in ROOTS:
        return None
    return f"# yaml-language-server: $schema={os.path.relpath(configs / FOLDER / f'{name}.json', file.parent)}\n"


def _root(name: str, schema: Schema) -> Schema:
    made = _elsewhere(_open(schema))
    if name in WHOLE:
        made["required"] = schema.get("required", [])
    if "properties" in made and name in ("study", "scale", "recipe"):
        made["properties"]["defaults"] = {"description": "Files that this one takes in, as Hydra merges them.", "type": "array"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _elsewhere(schema: Any) -> Any:
    """The schema with its references leading to the shared file."""
    if isinstance(schema, list):
        return [_elsewhere(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: f"{SHARED}{item}" if key == "$ref" else _elsewhere(item) for key, item in schema.items()}


def _open(schema: Any) -> Any:
    """The schema with nothing required, interpolations allowed, and unions that say which member was meant."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: item for key, item in schema.items() if key not in ("required", "title", "discriminator", "oneOf")}
    if kept.get("default") in (None, "", {}, []):
        kept.pop("default", None)
    if "description" in kept:
        kept["description"] = " ".join(kept["description"].split())
    for key in ("properties", "patternProperties"):
        if key in kept:
            kept[key] = {name: _open(item) for name, item in kept[key].items()}
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = _open(kept[key])
    for key in ("anyOf", "allOf", "prefixItems"):
        if key in kept:
            kept[key] = [_open(item) for item in kept[key]]
    if "discriminator" in schema:
        kept |= _chosen(schema["discriminator"])
    elif "oneOf" in schema:
        kept["anyOf"] = [_open(item) for item in schema["oneOf"]]
    return _or_interpolation(kept)


def _chosen(discriminator: Schema) -> Schema:
    """A union as conditions on the key that chooses, so that an editor underlines the wrong key and not the whole member."""
    by, mapping = discriminator["propertyName"], dict(sorted(discriminator["mapping"].items()))
    members = [
        {"if": {"properties": {by: {"const": tag}}, "required": [by]}, "then": {"$ref": ref}} for tag, ref in mapping.items()
    ]
    unnamed = {"if": {"not": {"required": [by]}}, "then": {"anyOf": [{"$ref": ref} for ref in mapping.values()]}}
    return {"type": "object", "properties": {by: {"enum": list(mapping)}}, "allOf": [*members, unnamed]}


def _or_interpolation(schema: Schema) -> Schema:
    if "enum" in schema:
        described = {key: item for key, item in schema.items() if key in ("description", "default")}
        return {**described, "anyOf": [{"enum": schema["enum"]}, {"type": "string", "pattern": INTERPOLATION}]}
    if schema.get("type") in ("integer", "number", "boolean", "array", "object"):
        return {**schema, "type": [schema["type"], "string"], "pattern": INTERPOLATION}
    return schema
