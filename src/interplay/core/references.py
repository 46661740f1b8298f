"""References inside a study: mixes whose shares sum to one, the roles under which a stage reads its inputs, and functions of
the user's own as `file.py:function`."""

import inspect
import re
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator

from interplay.core.model import Model, UserError, plural

# Shares that sum to one.


def check_mix(mix: dict[Any, float], what: str) -> dict:
    """A mix names shares that are not negative and sum to one; nothing is normalised in silence. Raises ValueError."""
    total = sum(mix.values())
    if any(share < 0 for share in mix.values()):
        raise ValueError(f"{what} must be shares from 0 to 1; {min(mix.values()):g} is none")
    if not mix or not abs(total - 1) <= 1e-6:  # also refuses NaN
        raise ValueError(f"{what} must be shares that sum to 1; these sum to {total:g}")
    return mix


def _check_shares(value: list[float]) -> list[float]:
    check_mix(dict(enumerate(value)), "a mix")
    return value


Mix = Annotated[list[float], AfterValidator(_check_shares)]
"""Shares of `data.<i>` roles, in order; they sum to 1."""


def largest_remainder(shares: list[float], total: int) -> list[int]:
    """Whole numbers that sum to `total`, as near to shares * total as can be (Hamilton's method; ties go to the earlier)."""
    exact = [share * total / sum(shares) for share in shares]
    counts = [int(value + 1e-9) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (round(counts[i] - exact[i], 9), i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


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
"""What the roles of problem sets begin with that a stage samples, is trained on, is judged by or unlearns."""


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


# Functions of the user's own, named in a study.


class Custom(Model):
    """A function of the user's: `file.py:function`, the file lying beside the study's YAML."""

    name: Literal["custom"] = "custom"
    function: str
    """`file.py:function`, relative to the study's folder."""
    source: str = ""
    """Full source of the file; filled in when the study is planned, so that its content is part of the identity."""
    options: dict[str, float | int | str | bool] = {}
    """Passed to the function as keyword arguments."""


def load_custom(spec: Custom) -> Callable[..., Any]:
    """The function that `spec` names, made from the source it carries: the file may have changed or be on another machine.

    Raises UserError when the source does not run or does not define the function."""
    file, _, name = spec.function.rpartition(":")
    module = types.ModuleType(file.removesuffix(".py").replace("/", "."))
    try:
        exec(compile(spec.source, file, "exec"), module.__dict__)
    except Exception as error:
        raise UserError(f"{spec.function}: {file} does not run ({type(error).__name__}: {error})") from error
    function = module.__dict__.get(name)
    if not callable(function):
        raise UserError(f"{spec.function}: {file} defines no function '{name}'; give file.py:function")
    return function


def call_custom(spec: Custom, function: Callable[..., Any], *given: Any) -> Any:
    """What the function returns. Raises UserError when it does not take what it is given, or fails, with its line."""
    try:
        inspect.signature(function).bind(*given, **spec.options)
    except TypeError as error:
        options = "".join(f", {name}" for name in spec.options)
        wanted = plural(len(given), "argument")
        raise UserError(f"{spec.function}: must take {wanted}{options} ({error})") from None
    try:
        return function(*given, **spec.options)
    except Exception as error:  # whatever the study's own code raises is the study's to mend
        file = spec.function.rpartition(":")[0]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        at = f" at line {lines[-1]}" if lines else ""
        raise UserError(f"{spec.function}: fails{at} ({type(error).__name__}: {error})") from error
