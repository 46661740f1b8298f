"""Coefficients that change over a run: one type, `Curve`, for every key that is marked `Scheduled`."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from interplay.core.model import Model, Share

V = TypeVar("V")
SHORT = ("linear", "cosine", "steps")
"""Ways to write a curve by its values alone."""
SOON = 1e-9
"""Progress by which a value may begin early: 2 / 3 of a run is no exact number."""


def cosine(x: float) -> float:
    """Of 0 to pi, within 1e-15, by its series: C's is not the same in every library."""
    rest = 0.0
    for k in range(32, 0, -2):
        rest = -x * x / (k * (k - 1)) * (1.0 + rest)
    return 1.0 + rest


def progress_at(step: int, steps: int) -> float:
    """How much of a run lies behind it at a step: 0 at the first and 1 at the last."""
    return (step - 1) / max(steps - 1, 1)


class Curve(Model):
    """A value over the progress of a run, 0 at its first step and 1 at its last. `linear: [from, to]` and `cosine: [from, to]` go
    from one value to the other, or through more at equal distances; `steps: [a, b, c]` has phases of equal length; `points:
    [[progress, value], ...]` with a `shape` are any others. Before the first point it has the first value, and after the last the
    last one."""

    points: Annotated[list[tuple[Share, float]], Field(min_length=1)]
    """Progress and value, in rising order."""
    shape: Literal["linear", "cosine", "steps"] = "linear"
    """Between two points: linear; cosine: half a cosine, flat at both; steps: the value of the earlier one."""

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, value: Any) -> Any:
        """`linear: [from, to]` and the like as points."""
        if not isinstance(value, dict) or "points" in value:
            if isinstance(value, dict) and (odd := [key for key in value if key not in cls.model_fields]):
                raise ValueError(f"'{odd[0]}' is no key of a curve of points; it has points and shape")
            return value
        keys = [*value]
        if len(keys) != 1 or keys[0] not in SHORT:
            forms = "linear: [from, to], cosine: [from, to], steps: [a, b, ...] or points: [[progress, value], ...]"
            raise ValueError(f"{', '.join(map(str, keys)) or 'nothing'} is no curve; write a number, or one of {forms}")
        shape, values = keys[0], value[keys[0]]
        if not isinstance(values, list) or len(values) < 2:
            raise ValueError(f"{shape}: must be two values at least, such as {shape}: [1.0, 0.0]")
        return {"points": _spread(values, len(values) - (shape != "steps")), "shape": shape}

    @model_validator(mode="after")
    def _rising(self) -> "Curve":
        for (early, _), (late, _) in pairwise(self.points):
            if late <= early:
                raise ValueError(f"points: progress must rise, and {late:g} follows {early:g}")
        return self

    @classmethod
    def through(cls, values: Sequence[float]) -> "Curve":
        """Linear from the first value to the last."""
        return cls(points=_spread(values, len(values) - 1))

    @classmethod
    def phases(cls, values: Sequence[float]) -> "Curve":
        """Phases of equal length."""
        return cls(points=_spread(values, len(values)), shape="steps")

    def values(self) -> list[float]:
        """Those of its points, between which all others lie."""
        return [value for _, value in self.points]

    def at(self, progress: float) -> float:
        """Its value at a progress in [0, 1]."""
        before = [point for point in self.points if point[0] <= progress + SOON]
        if not before or len(before) == len(self.points):
            return (before or self.points[:1])[-1][1]
        (start, low), (end, high) = before[-1], self.points[len(before)]
        passed = max(progress - start, 0.0) / (end - start)
        if self.shape == "steps":
            return low
        return low + (high - low) * (passed if self.shape == "linear" else (1 - cosine(math.pi * passed)) / 2)


def _spread(values: Sequence[float], parts: int) -> list[tuple[float, float]]:
    return [(place / parts, one) for place, one in enumerate(values)]


class Scheduled(NamedTuple):
    """Marks a number of a spec that may be written as a curve over the run, as `Annotated[NotNegative, Scheduled()]`. It is typed
    as the number: what computes reads a spec of `at_progress`, which holds no curve. Every value of a curve keeps the number's
    bounds; one that never changes is the number itself, so that it has one form."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        plain = core_schema.plain_serializer_function_ser_schema(lambda one: one.model_dump() if isinstance(one, Curve) else one)
        return core_schema.no_info_wrap_validator_function(_number_or_curve, handler(source), serialization=plain)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        values = {"type": "array", "items": {"type": "number"}, "minItems": 2}
        pairs = {"type": "array", "items": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}}
        keys = {**dict.fromkeys(SHORT, values), "points": pairs, "shape": {"enum": [*SHORT]}}
        curve = {"type": "object", "properties": keys, "additionalProperties": False, "title": "Curve"}
        return {"anyOf": [handler(schema), curve]}


def _number_or_curve(value: Any, check: Callable[[Any], Any]) -> Any:
    if not isinstance(value, (dict, Curve)):
        return check(value)
    curve = Curve.model_validate(value)
    values = [check(one) for one in curve.values()]
    return curve if len({*values}) > 1 else values[0]


NotNegativeCurve = Annotated[float, Field(ge=0), Scheduled()]
ShareCurve = Annotated[float, Field(ge=0, le=1), Scheduled()]
PositiveCurve = Annotated[float, Field(gt=0), Scheduled()]
AnyCurve = Annotated[float, Scheduled()]


def smallest(value: Any) -> float:
    """The least value of a number that may be a curve."""
    return min(value.values()) if isinstance(value, Curve) else float(value)


def largest(value: Any) -> float:
    """The largest value of a number that may be a curve."""
    return max(value.values()) if isinstance(value, Curve) else float(value)


def curves_in(value: Any, place: str = "") -> Iterator[tuple[str, Curve]]:
    """Each curve in a spec, with its dotted place."""
    if isinstance(value, Curve):
        yield place, value
    elif isinstance(value, Model):
        for name in type(value).model_fields:
            yield from curves_in(getattr(value, name), f"{place}.{name}" if place else name)
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from curves_in(one, f"{place}.{number}")


def at_progress(value: V, progress: float) -> V:
    """A spec with each curve replaced by its value at the progress of a run, whole numbers rounded; the very object where it has
    none."""
    if isinstance(value, Model):
        changed: dict[str, Any] = {}
        for name, field in type(value).model_fields.items():
            old = getattr(value, name)
            new: Any = old.at(progress) if isinstance(old, Curve) else at_progress(old, progress)
            if new is not old:
                changed[name] = int(new + 0.5) if isinstance(old, Curve) and field.annotation is int else new
        return value.model_copy(update=changed) if changed else value
    if isinstance(value, list) and any(isinstance(one, Model) for one in value):
        made = [at_progress(one, progress) for one in value]
        return made if any(new is not old for new, old in zip(made, value, strict=True)) else value  # type: ignore[return-value]
    return value
