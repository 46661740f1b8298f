"""Specs as flat `dotted.key: value` pairs, and the identity of a stage read back from JSON (stage.json, a record, a lock)."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from interplay.core.digest import canonical, canonical_json, first_name
from interplay.core.model import KeyPlace, Model, Since, UserError, parse_model
from interplay.kinds.table import KINDS

# The identity of a stage that is given as JSON (stage.json, a record, a line of plan.json), whichever version of the code
# wrote it.


def rehashed(stage: Mapping[str, Any]) -> str:
    """The digest that the stage's own kind, versions, spec and dependencies give: what it was filed under, unless it was
    altered."""
    content = [stage["kind"], stage["versions"], hashed_json(stage, first_name), stage["deps"]]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:12]


def hashed_json(stage: Mapping[str, Any], spelt: Callable[[type[Model], str], str] = lambda _, name: name) -> Any:
    """The stage's spec without fields that joined later and hold what older specs did. A spec written before a field joined lacks
    it, one written after holds its old value, and both are the same spec. A renamed field has its present name, or the one that
    `spelt` gives to a field of a model."""
    kind = KINDS.get(stage["kind"])
    return _pruned(stage["spec"], [kind.spec], spelt) if kind else stage["spec"]


def _pruned(value: Any, models: list[type[Model]], spelt: Callable[[type[Model], str], str]) -> Any:
    """`value` less its old-valued later fields; `models` are those that the schema allows at this place."""
    if isinstance(value, list):
        return [_pruned(item, models, spelt) for item in value]
    if not isinstance(value, dict):
        return value
    member = _member(value, models)
    if member is None:  # a mapping: its values are what the schema describes
        return {key: _pruned(item, models, spelt) for key, item in value.items()}
    found, names = {}, _present_names(member)
    for key, item in value.items():
        name = names.get(str(key), str(key))
        field = member.model_fields.get(name)
        if field is None:
            found[key] = item
        elif not any(isinstance(mark, Since) and canonical(mark.value) == item for mark in field.metadata):
            found[spelt(member, name)] = _pruned(item, list(models_in(field.annotation)), spelt)
    return found


def _present_names(model: type[Model]) -> dict[str, str]:
    """First name of each field -> its name today."""
    return {first_name(model, name) or name: name for name in model.model_fields}


def _member(value: dict[str, Any], models: list[type[Model]]) -> type[Model] | None:
    """The model that a JSON object was written from: by its `name` among the members of a union, else the one whose required
    fields it has and which has all of its keys; None for a mapping."""
    tagged = [m for m in models if "name" in m.model_fields and value.get("name") in get_args(m.model_fields["name"].annotation)]
    return next((model for model in tagged or models if _fits(value, model)), None)


def _fits(value: dict[str, Any], model: type[Model]) -> bool:
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    names = _present_names(model)
    return required <= {names.get(key, key) for key in value} <= set(model.model_fields)


def models_in(annotation: Any) -> Iterator[type[Model]]:
    """The models that a field's annotation allows, itself or inside lists, mappings and unions."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


# Specs as flat `dotted.key: value` pairs: what people compare and what tables show.


def flat_leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Dotted key -> scalar. A list of scalars and an empty container count as one value."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        items = [(str(index), item) for index, item in enumerate(value)]
    if not items:
        return {path: value}
    return {key: leaf for name, item in items for key, leaf in flat_leaves(item, f"{path}.{name}" if path else name).items()}


def non_default_leaves(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of a spec (as JSON) that are not the defaults of its kind's schema; all of them when the schema has moved on so
    far that the spec no longer fits it."""
    try:
        model = parse_model(KINDS[kind].spec, spec, KeyPlace(kind))
    except (UserError, KeyError):
        return flat_leaves(spec)
    usual = flat_leaves(_defaults(model))
    return {key: value for key, value in flat_leaves(canonical(model)).items() if key not in usual or usual[key] != value}


def _defaults(model: Model) -> dict[str, Any]:
    """The defaults of the model. Where another member of a union than the default one was chosen, the defaults of that member,
    without its name."""
    found: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        usual = None if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(value, Model) and type(usual) is not type(value):
            found[name] = {key: item for key, item in _defaults(value).items() if key != "name"}
        elif not field.is_required():
            found[name] = canonical(usual)
    return found


def leaf_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys at which two trees differ -> (value in a, value in b); ABSENT where a tree lacks the key."""
    one, other = flat_leaves(a), flat_leaves(b)
    keys = dict.fromkeys([*one, *other])
    pairs = {key: (one.get(key, ABSENT), other.get(key, ABSENT)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


class _Absent:
    def __repr__(self) -> str:
        return "-"


ABSENT = _Absent()
"""In place of a value where a tree has no such key."""
