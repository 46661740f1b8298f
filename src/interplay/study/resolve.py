"""What a stage of the study holds before its axes: the value of any key, whether it comes from arm, study, scale or schema."""

from typing import Any

from interplay.schema.base import Model, UserError, nearest, parse
from interplay.schema.data import CorpusSpec
from interplay.schema.kinds import KINDS
from interplay.schema.stages import of_spec, references
from interplay.schema.study import Arm, Scale, Study
from interplay.schema.task import TaskKey
from interplay.study import check
from interplay.study.arms import SPLIT, Own, Tree, replaced
from interplay.study.tune import MIXES


def whole(study: Study, scale: Scale) -> Tree:
    """The study's stages, and the task beside them under the name `task`: what the keys of an arm lead into."""
    family = study.task.get("name")
    return {**study.stages, "task": {**(scale.tasks.get(family, {}) if isinstance(family, str) else {}), **study.task}}


def own_values(study: Study, scale: Scale, where: str) -> Own:
    """The look-up that arms are expanded with. Stages are resolved once per arm, and only those that axes ask for."""
    known: dict[tuple[int, str], Any] = {}

    def own(arm: Arm, dotted: str) -> Any:
        stage, *keys = dotted.split(".")
        if stage == SPLIT:
            return at(arm.split, keys)
        if (id(arm), stage) not in known:
            known[id(arm), stage] = resolved(scale, replaced(whole(study, scale), arm.set, f"{where}: stages"), stage, where)
        return at(known[id(arm), stage], keys)

    return own


def at(tree: Any, keys: list[str]) -> Any:
    """The value that `keys` lead to in models and mappings; None where they lead nowhere."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else getattr(tree, key, None) if isinstance(tree, Model) else None
    return tree


def resolved(scale: Scale, stages: Tree, name: str, where: str) -> Any:
    """The keys of a stage, or the task, with what scale and schema say put in."""
    if name not in stages:
        raise UserError(f"{where}: stages.{name}: no such stage{nearest(name, stages)}")
    entry = stages[name]
    if name == "task":
        return parse(TaskKey, {"task": entry}, where).task
    check.entry(entry, f"{where}: stages.{name}")
    kind = entry["kind"]
    packed = {**scale.kinds.get("corpus", {}), **references(entry).get("corpus", {})}
    corpus = _spec(CorpusSpec, packed, f"{where}: stages.{name}.corpus")
    if kind == "source":
        return entry
    given = {**scale.kinds.get(kind, {}), **of_spec(entry)}
    if kind == "teach":
        given["task"] = stages["task"]
    spec = _spec(KINDS[kind].spec, given, f"{where}: stages.{name}")
    return {
        **{field: getattr(spec, field) for field in type(spec).model_fields},
        **references(entry),
        "kind": kind,
        "corpus": corpus,
    }


def _spec(cls: type[Model], given: dict[str, Any], where: str) -> Model:
    """The spec, but for the mix, which the stage's data decide later."""
    mix = {name: [1.0] for name in MIXES.values() if name in cls.model_fields}
    return parse(cls, {key: value for key, value in {**given, **mix}.items() if key != "run"}, where)
