"""JSON Schemas of the files below configs/, made of the pydantic specs, for editors that complete, explain and underline keys
(`configs/schema/*.json`; each file's first line names its own). They judge a file by itself: keys that a study takes in from
elsewhere may be missing, and `${...}` may stand for any value. `interplay plan` judges the whole."""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from interplay.core.keys import GROUP
from interplay.model.spec import Shape
from interplay.rl.sampler_spec import Sampler
from interplay.rl.spec import Method
from interplay.run.slurm import Site
from interplay.study.choices import names
from interplay.study.spec import Scale, ScaleChange, Study
from interplay.tasks.spec import TaskKeys
from tools.reference.described import json_schemas

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
LONGER = 40
"""Characters that a reference has to save."""
INTERPOLATION = r"\$\{"
OWN_MEMBER = r".:."
"""`file.py:Name` or `distribution:name`."""
Schema = dict[str, Any]


def files(configs: Path) -> dict[Path, str]:
    """Every generated schema, with its text: one line a definition."""
    found, shared = json_schemas(ROOTS)
    found, shared = _with_file_names(found, configs), _with_file_names(shared, configs)
    unions: dict[str, Schema] = {}
    defs = {name: _open(schema, unions) for name, schema in sorted(shared.items())}
    roots = {name: _root(name, schema, shared, unions) for name, schema in found.items()}
    texts = {f"{name}.json": f"{_compact(schema)}\n" for name, schema in roots.items()}
    lines = [f"{json.dumps(name)}:{_compact(schema)}" for name, schema in sorted({**_shared(defs), **unions}.items())]
    texts[SHARED] = '{"$defs":{\n' + ",\n".join(lines) + "\n}}\n"
    return {configs / FOLDER / name: text for name, text in texts.items()}


def _compact(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _with_file_names(schema: Any, configs: Path) -> Any:
    """The schema, in which each key that may hold the name of a file has those names in place of their group."""
    if isinstance(schema, list):
        return [_with_file_names(item, configs) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: names(configs / item) if key == GROUP else _with_file_names(item, configs) for key, item in schema.items()}


def _shared(defs: dict[str, Schema]) -> dict[str, Schema]:
    """The definitions, with what several properties have in common written once: long properties that are equal (a scale's keys
    are those of stages), and types."""
    first: dict[str, str] = {}
    properties = [(name, key, one) for name, schema in defs.items() for key, one in schema.get("properties", {}).items()]
    common = Counter(_compact(_type(one)) for _, _, one in properties)
    made = {name: dict(schema) for name, schema in defs.items()}
    types: dict[str, Schema] = {}
    for name, key, one in properties:
        place = f"#/$defs/{name}/properties/{key}"
        earlier, of_type = first.setdefault(_compact(one), place), _compact(_type(one))
        if earlier != place and len(_compact(one)) > len(earlier) + LONGER:
            made[name]["properties"] = {**made[name]["properties"], key: {"$ref": earlier}}
        elif common[of_type] > 1 and len(of_type) > LONGER:
            called = f"Type{hashlib.sha256(of_type.encode()).hexdigest()[:4]}"
            types[called] = _type(one)
            described = {word: one[word] for word in SAID if word in one}
            made[name]["properties"] = {**made[name]["properties"], key: {**described, "$ref": f"#/$defs/{called}"}}
    return made | types


SAID = ("description", "default")


def _type(schema: Schema) -> Schema:
    return {key: item for key, item in schema.items() if key not in SAID}


def first_line(configs: Path, file: Path) -> str | None:
    """The comment that leads an editor from a file of configs/ to its schema; None where there is no schema of it."""
    name = file.relative_to(configs).parts[0].removesuffix(".yaml")
    if name not in ROOTS:
        return None
    return f"# yaml-language-server: $schema={os.path.relpath(configs / FOLDER / f'{name}.json', file.parent)}\n"


def _root(name: str, found: Schema, defs: dict[str, Schema], unions: dict[str, Schema]) -> Schema:
    schema = defs[found["$ref"].rpartition("/")[2]] if "$ref" in found else found
    made = _elsewhere(_open(schema, unions))
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


def _open(schema: Any, unions: dict[str, Schema]) -> Any:
    """The schema with nothing required, interpolations allowed, and unions that say which member was meant, each collected in
    `unions`."""
    if not isinstance(schema, dict):
        return schema
    if GROUP in schema:  # a name, or else the content of a file, so that an editor underlines the wrong key within it
        whole = _open({key: item for key, item in schema.items() if key != GROUP}, unions)
        said = {key: whole.pop(key) for key in SAID if key in whole}
        return {**said, "if": {"type": "string"}, "then": _or_interpolation({"enum": schema[GROUP]}), "else": whole}
    kept = {key: item for key, item in schema.items() if key not in ("required", "title", "discriminator", "oneOf")}
    if kept.get("default") in (None, "", {}, []):
        kept.pop("default", None)
    if "const" in kept:  # it says type and default
        kept = {key: item for key, item in kept.items() if key not in ("type", "default")}
    if "description" in kept:
        kept["description"] = " ".join(kept["description"].split())
    for key in ("properties", "patternProperties"):
        if key in kept:
            kept[key] = {name: _open(item, unions) for name, item in kept[key].items()}
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = _open(kept[key], unions)
    for key in ("anyOf", "allOf", "prefixItems"):
        if key in kept:
            kept[key] = [_open(item, unions) for item in kept[key]]
    if "discriminator" in schema:
        name, union = _chosen(schema["discriminator"])
        unions[name] = _or_interpolation(union)
        kept["$ref"] = f"#/$defs/{name}"
    elif "oneOf" in schema:
        kept["anyOf"] = [_open(item, unions) for item in schema["oneOf"]]
    return _or_interpolation(kept)


def _chosen(discriminator: Schema) -> tuple[str, Schema]:
    """A union by a name of its own, as conditions on the key that chooses, so that an editor underlines the wrong key and not the
    whole member."""
    by, mapping = discriminator["propertyName"], dict(sorted(discriminator["mapping"].items()))
    members = [
        {"if": {"properties": {by: {"const": tag}}, "required": [by]}, "then": {"$ref": ref}} for tag, ref in mapping.items()
    ]
    unnamed = {"if": {"not": {"required": [by]}}, "then": {"anyOf": [{"$ref": ref} for ref in mapping.values()]}}
    names = [ref.rpartition("/")[2] for ref in mapping.values()]
    known: Schema = {"enum": list(mapping)}
    if "custom" in mapping:  # a member of the user's own, in its short form
        known = {"anyOf": [known, {"type": "string", "pattern": OWN_MEMBER}]}
    schema = {"type": "object", "properties": {by: known}, "allOf": [*members, unnamed]}
    return f"{names[0]}Or{len(names) - 1}Others", schema


def _or_interpolation(schema: Schema) -> Schema:
    if "enum" in schema:
        described = {key: item for key, item in schema.items() if key in ("description", "default")}
        return {**described, "anyOf": [{"enum": schema["enum"]}, {"type": "string", "pattern": INTERPOLATION}]}
    if schema.get("type") in ("integer", "number", "boolean", "array", "object"):
        return {**schema, "type": [schema["type"], "string"], "pattern": INTERPOLATION}
    return schema
