"""A stage's identity: the first 12 hex digits of sha256 over canonical JSON of [kind, versions, spec, {role: digest}]."""

import hashlib
import json
import math
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import Any

from interplay.core.model import Formerly, Model, Since


def canonical(value: Any) -> Any:
    """Plain JSON data with one form per meaning. Raises TypeError on values that have none (objects, NaN, non-string keys)."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, Model):
        return {name: canonical(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {_key(key): canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{value} has no canonical form")
        return value
    if isinstance(value, (int, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no canonical form")


PLAIN = (str, int, bool, type(None))


def _key(key: Any) -> str:
    if not isinstance(key, (str, int)):
        raise TypeError(f"mapping key {key!r} has no canonical form")
    return str(key)


@cache
def _fields(cls: type[Model]) -> list[tuple[str, str, list[Any]]]:
    """Each field's name, its first name, by which the fields are sorted, and what it held before it joined its schema,
    canonically: one value, or none for an original field."""
    return sorted(
        (
            (name, first_name(cls, name), [canonical(mark.value) for mark in field.metadata if isinstance(mark, Since)])
            for name, field in cls.model_fields.items()
        ),
        key=lambda field: field[1],
    )


def first_name(cls: type[Model], name: str) -> str:
    """The name of a field in digests: its own, or the one that it had before it was renamed."""
    return next((mark.name for mark in cls.model_fields[name].metadata if isinstance(mark, Formerly)), name)


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, ASCII: equal values give equal bytes."""
    return _dumps(canonical(value))


_dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def hashed(value: Any) -> Any:
    """What of `value` enters its digest, canonically: all but the fields that joined a schema later and hold what older specs did
    (`Since`)."""
    return _hashed(value, "", {})


def versions(spec: Model) -> dict[str, int]:
    """The version of the spec ('') and of every model inside it, by dotted path, so that only users of a changed part rerun."""
    found: dict[str, int] = {}
    _hashed(spec, "", found)
    return found


def _hashed(value: Any, path: str, found: dict[str, int]) -> Any:
    """`hashed(value)`; puts the version of each model in it into `found` by its path."""
    if type(value) in PLAIN:
        return value
    inner = f"{path}." if path else ""
    if isinstance(value, Model):
        found[path] = value.hashed_version()
        content = {}
        for name, first, old in _fields(type(value)):
            item, inside = getattr(value, name), dict[str, int]()
            hashed_item = _hashed(item, inner + first, inside)
            if _holds_older(item, old):  # of models in it, raised versions alone are new
                found.update({where: version for where, version in inside.items() if version != 1})
            else:
                content[first] = hashed_item
                found.update(inside)
        return content
    if isinstance(value, dict):
        return {_key(key): _hashed(item, f"{inner}{key}", found) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hashed(item, f"{inner}{index}", found) for index, item in enumerate(value)]
    return canonical(value)


def _holds_older(item: Any, old: list[Any]) -> bool:
    """Whether a field that joined its schema later holds what older specs did."""
    return bool(old) and canonical(item) in old


def digest(kind: str, spec: Model, deps: dict[str, str], known: "Known | None" = None) -> str:
    """Identity of a stage. `deps` maps each role to the digest of the stage that fills it. `known` remembers parts of specs for
    later stages that hold the same objects."""
    text, found = _model_text(spec, {} if known is None else known)
    return hashlib.sha256(f"[{_dumps(kind)},{_dumps(found)},{text},{_dumps(canonical(deps))}]".encode()).hexdigest()[:12]


Known = dict[int, tuple[Model, str, dict[str, int]]]
"""By the id of a model: the model itself, which must not change or go, the canonical JSON of what of it is hashed, and the
versions in it by path."""


def _model_text(value: Model, known: Known) -> tuple[str, dict[str, int]]:
    """`_hashed` as JSON, and the versions by path."""
    if id(value) in known:
        return known[id(value)][1:]
    parts, found = list[str](), {"": value.hashed_version()}
    for name, first, old in _fields(type(value)):
        item = getattr(value, name)
        if not old and type(item) in PLAIN:
            text = _plain_text(item)
        elif not old and isinstance(item, Model):
            text, inside = _model_text(item, known)
            found.update({f"{first}.{path}" if path else first: version for path, version in inside.items()})
        else:
            inside = dict[str, int]()
            text = _dumps(_hashed(item, first, inside))
            if _holds_older(item, old):  # of models in it, raised versions alone are new
                found.update({where: version for where, version in inside.items() if version != 1})
                continue
            found.update(inside)
        parts.append(f'"{first}":{text}')
    known[id(value)] = value, f"{{{','.join(parts)}}}", found
    return known[id(value)][1:]


def _plain_text(value: Any) -> str:
    """JSON of a value of one of the types PLAIN: `_dumps` sets up an encoder each time."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return encode_basestring_ascii(value) if isinstance(value, str) else int.__repr__(value)
