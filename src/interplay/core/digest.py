"""A stage's identity: the first 12 hex digits of sha256 over canonical JSON of [kind, versions, spec, {role: digest}]; and the
roles under which it reads its inputs."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import Any, TypeVar

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
    return json.loads(_hashed_text(value, {})[0])


def versions(spec: Model) -> dict[str, int]:
    """The version of the spec ('') and of every model inside it, by dotted path, so that only users of a changed part rerun."""
    return _hashed_text(spec, {})[1]


def digest(kind: str, spec: Model, deps: dict[str, str], known: "Known | None" = None) -> str:
    """Identity of a stage. `deps` maps each role to the digest of the stage that fills it; those of GATES do not count. `known`
    remembers parts of specs for later stages that hold the same objects."""
    text, found = _hashed_text(spec, {} if known is None else known)
    counted = _dumps(canonical(hashed_deps(deps)))
    return hashlib.sha256(f"[{_dumps(kind)},{_dumps(found)},{text},{counted}]".encode()).hexdigest()[:12]


GATES = ("audit.", "accepted.")
"""Beginnings of roles that decide whether a stage may run, and nothing of what it makes."""


def hashed_deps(deps: Mapping[str, str]) -> dict[str, str]:
    """The dependencies that a digest counts: all but those of GATES."""
    return {role: one for role, one in deps.items() if not role.startswith(GATES)}


Known = dict[int, tuple[Model, str, dict[str, int]]]
"""By the id of a model: the model itself, which must not change or go, the canonical JSON of what of it is hashed, and the
versions in it by path."""


def _hashed_text(value: Any, known: Known) -> tuple[str, dict[str, int]]:
    """The canonical JSON of what of `value` is hashed, and the version of each model in it by its path."""
    if type(value) in PLAIN:
        return _plain_text(value), {}
    if isinstance(value, Model):
        if id(value) not in known:
            known[id(value)] = value, *_model_text(value, known)
        return known[id(value)][1:]
    if isinstance(value, dict):
        parts = {_key(key): _hashed_text(item, known) for key, item in value.items()}
        return f"{{{','.join(f'{_plain_text(key)}:{parts[key][0]}' for key in sorted(parts))}}}", _below(parts)
    if isinstance(value, (list, tuple)):
        parts = {str(index): _hashed_text(item, known) for index, item in enumerate(value)}
        return f"[{','.join(text for text, _ in parts.values())}]", _below(parts)
    return _dumps(canonical(value)), {}


def _model_text(value: Model, known: Known) -> tuple[str, dict[str, int]]:
    parts, found = list[str](), {"": value.hashed_version()}
    for name, first, old in _fields(type(value)):
        item = getattr(value, name)
        text, inside = _hashed_text(item, known)
        holds_older = bool(old) and canonical(item) in old
        if not holds_older:
            parts.append(f'"{first}":{text}')
        if inside:  # of models in an older value, raised versions alone are new
            below = _below({first: (text, inside)})
            found |= {path: version for path, version in below.items() if version != 1 or not holds_older}
    return f"{{{','.join(parts)}}}", found


def _below(parts: Mapping[str, tuple[str, dict[str, int]]]) -> dict[str, int]:
    """The versions in all parts, by path from where the parts lie."""
    return {f"{name}.{path}" if path else name: version for name, part in parts.items() for path, version in part[1].items()}


def _plain_text(value: Any) -> str:
    """JSON of a value of one of the types PLAIN: `_dumps` sets up an encoder each time."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return encode_basestring_ascii(value) if isinstance(value, str) else int.__repr__(value)


# The roles under which a trainer reads its corpora: `corpus`, or `corpus.0`, `corpus.1`, ... where its data come in shards.


CORPUS = "corpus"

T = TypeVar("T")


def corpus_roles(number: int) -> list[str]:
    """The roles of so many corpora; a single one keeps the plain name, so that its trainer's digest knows of no shards."""
    return [CORPUS] if number == 1 else [f"{CORPUS}.{shard}" for shard in range(number)]


def corpus_inputs(deps: Mapping[str, T]) -> list[T]:
    """What fills these roles, shards in order; empty where the stage reads no corpus."""
    return [deps[role] for role in corpus_roles(sum(is_corpus_role(role) for role in deps)) if role in deps]


def is_corpus_role(role: str) -> bool:
    """Whether the role is one of a trainer's corpora."""
    return role == CORPUS or role.startswith(f"{CORPUS}.")


DATA = ("data", "forget", "retain", "instances")
"""What the roles of problem sets begin with that a stage reads."""


def is_data_role(role: str) -> bool:
    """Whether the role is one of a stage's problem sets, but for its validation."""
    return role.partition(".")[0] in DATA


SHARD = "shard"


def shard_label(label: str, shard: int) -> str:
    """`data.corpus` -> `data.corpus.shard3`."""
    return f"{label}.{SHARD}{shard}"


def without_shard(label: str) -> str:
    """`data.corpus.shard3` -> `data.corpus`: what shards of one set are called together."""
    return re.sub(rf"\.{SHARD}\d+(?= |$)", "", label)
