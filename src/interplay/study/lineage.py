"""The stages behind a study or a stage, dependencies first, as JSON."""

from pathlib import Path

from interplay.study import catalog
from interplay.study.graph import plan_study


def behind(name: str, configs: Path, results: Path, scale: str) -> catalog.Stages:
    """All stages of a study (`edge`, `edge.laptop`), or a stage (named as for `catalog.resolve`) and all that it rests on."""
    study, rest = catalog.split_study(name.rstrip("/"), configs, scale)
    if study and not rest:
        return catalog.as_json(plan_study(configs, *study))
    known = catalog.read(configs, results)
    return catalog.ancestors(catalog.resolve(name, known, configs, scale).digest, known.stages)
