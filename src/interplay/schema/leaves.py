"""Specs as flat `dotted.key: value` pairs: what people compare and what tables show."""

from collections.abc import Mapping
from typing import Any

from interplay.schema.base import Model, UserError, parse
from interplay.schema.digest import canonical
from interplay.schema.kinds import KINDS


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Dotted key -> scalar. A list of scalars and whatever is empty count as one value."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        items = [(str(index), item) for index, item in enumerate(value)]
    if not items:
        return {path: value}
    return {key: leaf for name, item in items for key, leaf in leaves(item, f"{path}.{name}" if path else name).items()}


def departures(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of a spec (as JSON) that are not the defaults of its kind's schema; all of them when the schema has moved on so
    far that the spec no longer fits it."""
    try:
        model = parse(KINDS[kind].spec, spec, kind)
    except (UserError, KeyError):
        return leaves(spec)
    usual = leaves(_defaults(model))
    return {key: value for key, value in leaves(canonical(model)).items() if key not in usual or usual[key] != value}


def _defaults(model: Model) -> dict[str, Any]:
    """What the model would hold had nobody said anything. Where another member of a union than the usual one was chosen, its own
    defaults, without its name."""
    found: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        usual = None if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(value, Model) and type(usual) is not type(value):
            found[name] = {key: item for key, item in _defaults(value).items() if key != "name"}
        elif not field.is_required():
            found[name] = canonical(usual)
    return found


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys at which two trees differ -> (value in a, value in b); ABSENT where a tree lacks the key."""
    one, other = leaves(a), leaves(b)
    keys = dict.fromkeys([*one, *other])
    pairs = {key: (one.get(key, ABSENT), other.get(key, ABSENT)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


class _Absent:
    def __repr__(self) -> str:
        return "-"


ABSENT = _Absent()
"""Stands where a tree has no such key."""
