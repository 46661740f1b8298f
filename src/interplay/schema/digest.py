"""A stage's identity: the first 12 hex digits of sha256 over canonical JSON of [kind, versions, spec, {role: digest}]."""

import hashlib
import json
import math
from typing import Any

from interplay.schema.base import Model, Since


def canonical(value: Any) -> Any:
    """Plain JSON data with one form per meaning. Raises TypeError on whatever has none (objects, NaN, non-string keys)."""
    if isinstance(value, Model):
        return {name: canonical(getattr(value, name)) for name in type(value).model_fields}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{value} has no canonical form")
        return value
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, dict):
        bad = [key for key in value if not isinstance(key, (str, int))]
        if bad:
            raise TypeError(f"mapping key {bad[0]!r} has no canonical form")
        return {str(key): canonical(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} has no canonical form")


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, ASCII: equal values give equal bytes."""
    return json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def hashed(value: Any) -> Any:
    """`value` without the fields that joined its schema later and hold what older specs did (`Since`)."""
    if isinstance(value, Model):
        return {name: hashed(getattr(value, name)) for name in _hashed_fields(value)}
    if isinstance(value, (list, tuple)):
        return [hashed(item) for item in value]
    return {key: hashed(item) for key, item in value.items()} if isinstance(value, dict) else value


def _hashed_fields(model: Model) -> list[str]:
    def old(name: str, marks: list[Any]) -> bool:
        return any(isinstance(mark, Since) and canonical(mark.value) == canonical(getattr(model, name)) for mark in marks)

    return [name for name, field in type(model).model_fields.items() if not old(name, field.metadata)]


def versions(spec: Model) -> dict[str, int]:
    """The version of the spec ('') and of every model inside it, by dotted path, so that only users of a mended part rerun."""
    found = {"": spec.VERSION}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Model):
            found[path] = value.VERSION
            for name in _hashed_fields(value):
                walk(getattr(value, name), f"{path}.{name}" if path else name)
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}")
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                walk(item, f"{path}.{index}")

    walk(spec, "")
    return found


def digest(kind: str, spec: Model, deps: dict[str, str]) -> str:
    """Identity of a stage. `deps` maps each role to the digest of the stage that fills it."""
    payload = canonical_json([kind, versions(spec), hashed(spec), deps])
    return hashlib.sha256(payload.encode()).hexdigest()[:12]
