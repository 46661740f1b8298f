"""The JSON Schema of everything that the reference documents, and what it consists of."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from interplay.core.execution import Run
from interplay.data.steps.spec import Step
from interplay.kinds.table import KINDS
from interplay.run.slurm import Site
from interplay.study.spec import Scale, Study
from interplay.tasks.spec import Task
from tools.reference.described import json_schemas

Schema = Mapping[str, Any]
ROOTS: dict[str, Any] = {"study": Study, "scale": Scale, "site": Site, "run": Run, "task": Task, "steps": Step}
HIDDEN = {"ReportSpec", "Extension"}
"""Models that no file holds, and the one with a page of its own."""


@cache
def schema() -> tuple[Mapping[str, Schema], Mapping[str, Schema]]:
    """(root -> its schema, name -> definition)."""
    kinds = {f"kind: {kind}": row.spec for kind, row in KINDS.items()}
    references = {f"references: {kind}": row.references for kind, row in KINDS.items() if row.references}
    return json_schemas(ROOTS | kinds | references)


@cache
def unions() -> dict[str, dict[str, str]]:
    """Key of a union -> tag of a member -> its definition: task families, curation steps, and the seams of RL."""
    roots, defs = schema()
    found = {"task": roots["task"], "steps": roots["steps"], "reward": defs["RLSpec"]["properties"]["reward"]}
    made = {key: members_of(one) for key, one in (found | defs["Method"]["properties"]).items()}
    return {key: members for key, members in made.items() if members}


def inside(keys: Mapping[str, Schema]) -> Iterator[tuple[str, str]]:
    """(key, model) of what the values of keys consist of; the key of a mapping's values is `key.<name>`."""
    for key, one in keys.items():
        for path, ref in dict.fromkeys(_refs(one, key)):
            if (name := model_of(name_of(ref))) not in HIDDEN:
                yield path, name


def _refs(one: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(one, dict):
        if "$ref" in one:
            yield path, one["$ref"]
        for key, inner in one.items():
            if key not in ("default", "discriminator"):
                yield from _refs(inner, f"{path}.<name>" if key == "additionalProperties" else path)
    elif isinstance(one, list):
        for inner in one:
            yield from _refs(inner, path)


def model_of(name: str) -> str:
    """The model of which the named one holds keys, none of them required: what a scale or an arm may say of it."""
    defs = schema()[1]
    if name == "SetChange":
        return "DataSet"
    whole = [name.removesuffix(end) for end in ("Keys", "Stage", "Settings") if name.endswith(end)]
    for stem in whole:
        for candidate in (stem, f"{stem}Spec", f"{stem.upper()}Spec"):
            if candidate in defs:
                return candidate
    return name


def members_of(one: Schema) -> dict[str, str]:
    """Tag -> definition, of a union or of what is a list of its members, or one or null."""
    if "discriminator" in one:
        return {tag: name_of(ref) for tag, ref in one["discriminator"]["mapping"].items()}
    inner = [one["items"]] if "items" in one else one.get("anyOf", [])
    found: dict[str, str] = {}
    for part in inner:
        if isinstance(part, dict):
            found |= members_of(part)
            if "$ref" in part and (tag := schema()[1][name_of(part["$ref"])].get("properties", {}).get("name", {}).get("const")):
                found[tag] = name_of(part["$ref"])
    return found


def name_of(ref: str) -> str:
    """Of `#/$defs/Name`."""
    return ref.rpartition("/")[2]
