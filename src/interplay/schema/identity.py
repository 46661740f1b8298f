"""The identity of a stage that stands written as JSON (stage.json, a record, a line of plan.json), whichever version of the code
wrote it."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from interplay.schema.base import Model, Since
from interplay.schema.digest import canonical, canonical_json
from interplay.schema.kinds import KINDS


def rehashed(stage: Mapping[str, Any]) -> str:
    """The digest that the stage's own kind, versions, spec and dependencies give: what it was filed under, unless it was
    altered."""
    content = [stage["kind"], stage["versions"], hashed_json(stage), stage["deps"]]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:12]


def hashed_json(stage: Mapping[str, Any]) -> Any:
    """The stage's spec as `schema.digest.hashed` gives it: without fields that joined later and hold what older specs did. A spec
    written before a field joined lacks it, one written after holds its old value, and both are the same spec."""
    kind = KINDS.get(stage["kind"])
    return _pruned(stage["spec"], [kind.spec]) if kind else stage["spec"]


def _pruned(value: Any, models: list[type[Model]]) -> Any:
    """`value` less its old-valued later fields; `models` are those that the schema allows at this place."""
    if isinstance(value, list):
        return [_pruned(item, models) for item in value]
    if not isinstance(value, dict):
        return value
    member = _member(value, models)
    if member is None:  # a mapping: its values are what the schema describes
        return {key: _pruned(item, models) for key, item in value.items()}
    found = {}
    for name, item in value.items():
        field = member.model_fields.get(name)
        if field is None:
            found[name] = item
        elif not any(isinstance(mark, Since) and canonical(mark.value) == item for mark in field.metadata):
            found[name] = _pruned(item, list(models_in(field.annotation)))
    return found


def _member(value: dict[str, Any], models: list[type[Model]]) -> type[Model] | None:
    """The model that a JSON object was written from: by its `name` among the members of a union, else the one whose required
    fields it has and none beside its fields; None for a mapping."""
    tagged = [m for m in models if "name" in m.model_fields and value.get("name") in get_args(m.model_fields["name"].annotation)]
    return next((model for model in tagged or models if _fits(value, model)), None)


def _fits(value: dict[str, Any], model: type[Model]) -> bool:
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    return required <= set(value) <= set(model.model_fields)


def models_in(annotation: Any) -> Iterator[type[Model]]:
    """The models that a field's annotation allows, itself or inside lists, mappings and unions."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)
