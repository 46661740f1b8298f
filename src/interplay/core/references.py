"""References inside a study: mixes whose shares sum to one, and the roles under which a stage reads its inputs."""

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator
from pydantic.fields import FieldInfo

from interplay.core.random import sum_in_order

# Studies that a study extends.


def extended_studies(tree: Mapping[str, Any], study: str) -> list[str]:
    """Names of the studies in the `defaults` of a study's file, other than its own, in any form that Hydra takes: `demo`,
    `/study/demo`, `/study/demo@_here_`."""
    entries = [entry for entry in tree.get("defaults", []) if isinstance(entry, str)]
    names = [entry.partition("@")[0].removeprefix("/study/") for entry in entries]
    return [name for name in names if name not in ("_self_", study)]


# Shares that sum to one.


def check_mix(mix: dict[Any, float], what: str) -> dict:
    """A mix names shares that are not negative and sum to one; nothing is normalised in silence. Raises ValueError."""
    total = sum(mix.values())
    if any(share < 0 for share in mix.values()):
        raise ValueError(f"{what} must be shares from 0 to 1; {min(mix.values()):g} is none")
    if not mix or not abs(total - 1) <= 1e-6:  # also refuses NaN
        raise ValueError(f"{what} must be shares that sum to 1; these sum to {total:g}")
    return mix


REST = "rest"
"""In place of a share: what the others leave of 1."""
RestOf = dict[str, float | Literal["rest"]]
"""Shares as a study writes them."""


def fill_rest(mix: Any) -> Any:
    """The mix with a number in place of `rest`, counted in decimals, so that next to 0.9 it is 0.1; a set for which nothing is
    left goes. What is no mix is left for the schema to refuse. Raises ValueError for a second `rest`, and where less than
    nothing is left."""
    names = [name for name, share in mix.items() if share == REST] if isinstance(mix, dict) else []
    if not names:
        return mix
    if len(names) > 1:
        raise ValueError(f"'{names[0]}' and '{names[1]}' both take the rest; give one of them a share")
    others = {name: share for name, share in mix.items() if share != REST}
    if not all(isinstance(share, int | float) and math.isfinite(share) for share in others.values()):
        return mix
    left = 1 - sum((Decimal(str(share)) for share in others.values()), Decimal(0))
    if left < 0:
        raise ValueError(f"nothing is left for '{names[0]}: rest': the other shares sum to {1 - left}; lower one")
    return {name: float(left) if name == names[0] else share for name, share in mix.items() if left or name != names[0]}


Mix = Annotated[list[float], AfterValidator(lambda shares: [*check_mix(dict(enumerate(shares)), "a mix").values()])]
"""Shares of `data.<i>` roles, in order; they sum to 1."""
SHARES = AfterValidator(lambda shares: check_mix(shares, "shares"))
"""Of a field that maps names to shares: they sum to 1."""


def _check_order(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError(f"must be [low, high] with low <= high, not {list(value)}")
    return value


ORDERED = AfterValidator(_check_order)
"""Of a field that is a closed range: [low, high]."""


def largest_remainder(shares: list[float], total: int) -> list[int]:
    """Whole numbers that sum to `total`, as near to shares * total as can be (Hamilton's method; ties go to the earlier)."""
    exact = [share * total / sum_in_order(shares) for share in shares]
    counts = [int(value + 1e-9) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (round(counts[i] - exact[i], 9), i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


# Keys that may hold the name of a file.


class ByName(NamedTuple):
    """Marks a key whose value may be given as the name of a file: `method: gspo` is configs/method/gspo.yaml. The planner puts
    the file's content in its place (study/choices.py)."""

    group: str
    """Folder below configs/."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(schema), GROUP: self.group}


GROUP = "x-group"
"""Key of a JSON Schema for the group of a key."""


def group_of(field: FieldInfo) -> str:
    """The group of a field that may hold a name; empty for others."""
    return next((mark.group for mark in field.metadata if isinstance(mark, ByName)), "")


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
