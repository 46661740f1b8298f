"""The stages behind a study or a stage, dependencies first, as JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interplay.store.artifact import split_ref
from interplay.study import catalog
from interplay.study.graph import plan_study


def behind(name: str, configs: Path, results: Path, scale: str) -> catalog.Stages:
    """All stages of a study (`edge`, `edge.laptop`), or a stage (named as for `catalog.resolve`) and all that it rests on."""
    study, rest = catalog.split_study(name.rstrip("/"), configs, scale)
    if study and not rest:
        return catalog.as_json(plan_study(configs, *study))
    known = catalog.read(configs, results)
    return ancestors(catalog.resolve(name, known, configs, scale).digest, known.stages)


def ancestors(digest: str, stages: Mapping[str, dict[str, Any]]) -> catalog.Stages:
    """The stage and all that it rests on; a dependency that `stages` lacks is left out."""
    found: catalog.Stages = {}

    def visit(ref: str) -> None:
        at = split_ref(ref)[0]
        if at in found or at not in stages:
            return
        for dep in stages[at]["deps"].values():
            visit(dep)
        found[at] = stages[at]

    visit(digest)
    return found
