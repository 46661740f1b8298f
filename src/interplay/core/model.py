"""Base of every spec: frozen pydantic models that refuse unknown keys; their numbers, which may be curves over a run; and errors
in one line with the nearest valid name."""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

LONGEST_VALUE = 80
"""Characters of a value that a message shows."""
MOST_NAMED = 8
"""Known names that a message lists, the nearest first."""

NO_VALUE: Any = object()
"""In place of the value of a key, where showing it does not help."""


class KeyPlace(NamedTuple):
    """A key in the user's input, for errors about it."""

    file: str
    """As messages show it: `configs/study/edge.yaml`, or `--config` for the command line."""
    keys: tuple[str, ...] = ()
    """Whole names, outermost first; a name may have dots. Empty: the file itself."""
    line: int = 0
    """From 1; 0: not known. study/locate.py finds it."""

    def key(self, *names: str | int) -> "KeyPlace":
        """A key, or an item of a list, below this one."""
        return KeyPlace(self.file, (*self.keys, *map(str, names)), self.line)

    @property
    def dotted(self) -> str:
        """The key as a message shows it."""
        return ".".join(self.keys)

    def error(self, problem: str, value: Any = NO_VALUE) -> "UserError":
        """The error that the key has this problem; `value` is what it holds, where that helps."""
        return UserError(problem, self, "" if value is NO_VALUE else shorten_value(value))

    def __str__(self) -> str:
        """`FILE: dotted.key`, `FILE:LINE: dotted.key`, or the file alone."""
        file = f"{self.file}:{self.line}" if self.line else self.file
        return f"{file}: {self.dotted}" if self.keys else file


class UserError(Exception):
    """An error in the user's input. The message is one line: file, key, value, what is wrong, remedy. Exit code 2.

    About a key, it reads `FILE: dotted.key: PROBLEM` or `FILE: dotted.key = VALUE: PROBLEM`; KeyPlace.error makes such errors."""

    def __init__(self, problem: str, place: KeyPlace | None = None, value: str = "") -> None:
        self.problem, self.place, self.value = problem, place, value
        """What is wrong, and the remedy; the key; its value as messages show it, or nothing."""
        shown = f" = {value}" if value else ""
        message = problem if place is None else f"{place}{shown}: {problem}"
        super().__init__(escape_control(" ".join(message.split())))


class PermanentError(Exception):
    """A failure that a retry would repeat, such as a loss that is not finite. The message is one line and names the step."""


class Model(BaseModel):
    """Base of every YAML key. `VERSION` enters the digest: raise it when the same spec would now give another result."""

    # Built at first use: a stage needs the schemas of few models, and importing all of them would build two hundred.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, defer_build=True)
    VERSION: ClassVar[int] = 1
    SCHEDULED: ClassVar[bool] = False
    """Of a member of RL's seams: whether what it does at a step depends on how many steps the run has."""
    NEEDS: ClassVar[frozenset[str]] = frozenset()
    """Of a member of RL's seams: capabilities (rl.spec.CAPABILITIES) that some member must provide."""
    PROVIDES: ClassVar[frozenset[str]] = frozenset()
    """Capabilities that it has."""
    REFUSES: ClassVar[frozenset[str]] = frozenset()
    """Capabilities that no other member may have."""
    KNOWN_AS: ClassVar[Mapping[str, str]] = {}
    """Names that other libraries have for keys of this one -> what to write here. A refusal of an unknown key says it."""
    INEXACT: ClassVar[str] = "it was not looked at yet"
    """Of a member of RL's seams: why numerics: exact does not cover it; empty where it does."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic has it, but that a number is not given as true or false, which Python reads as 1 and 0."""
        schema = handler(source)
        _refuse_booleans(schema, cls)
        return schema

    def hashed_version(self) -> int:
        """What enters the digest: VERSION, and more of a spec with a value whose meaning alone has changed."""
        return self.VERSION

    def needs(self) -> frozenset[str]:
        """What it needs with its options as they are."""
        return self.NEEDS

    def provides(self) -> frozenset[str]:
        """What it provides with its options as they are."""
        return self.PROVIDES

    def refuses(self) -> frozenset[str]:
        """What it refuses with its options as they are."""
        return self.REFUSES

    def inexact(self) -> str:
        """The same with its options as they are."""
        return self.INEXACT


def _whole_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("int_type")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("float_type")
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {"int": _whole_number, "float": _number}


def _refuse_booleans(schema: Any, of: type[Model]) -> None:
    """Wrap every number of the schema, inside lists, mappings and unions, too; models inside it have wrapped their own."""
    for place, inner in list(schema.items() if isinstance(schema, dict) else enumerate(schema)):
        if isinstance(inner, list):
            _refuse_booleans(inner, of)
        elif isinstance(inner, dict) and (check := _CHECKS.get(str(inner.get("type")))):
            schema[place] = core_schema.no_info_before_validator_function(check, inner)
        elif isinstance(inner, dict) and inner.get("cls", of) is of and place != "default":
            _refuse_booleans(inner, of)


class Exact(Model):
    """Marks a member of RL's seams that numerics: exact covers."""

    INEXACT: ClassVar[str] = ""


MOST = 10**15
"""Upper bound of counts: larger values are typing errors, and a float does not represent them exactly."""
Count = Annotated[int, Field(ge=1, le=MOST)]
Natural = Annotated[int, Field(ge=0, le=MOST)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Since(NamedTuple):
    """Marks a field that joined a schema later, as `Annotated[int, Since(0)]`: where it holds `value`, which is what older specs
    did, it stays out of the digest, so that nothing made before has to be made again."""

    value: Any


class Formerly(NamedTuple):
    """Marks a renamed field, as `Annotated[int, Formerly("old_name")]`: the digest keeps the field's first name, so that nothing
    made before has to be made again."""

    name: str


def plural(number: int, noun: str) -> str:
    """`1 stage`, `3 stages`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


V = TypeVar("V")


def first_repeated(values: Iterable[V]) -> V | None:
    """The first value that occurs a second time; None where each occurs once."""
    seen = set[V]()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def join_names(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def nearest_name(word: str, known: Iterable[Any]) -> str:
    """`; did you mean 'x'?` for the closest known word, else what is known, the nearest first."""
    asked, words = str(word)[:100], sorted({str(item) for item in known})
    close = difflib.get_close_matches(asked, words)
    if close:
        return f"; did you mean '{max(close, key=lambda one: _likeness(asked, one))}'?"
    if len(words) > MOST_NAMED:
        words.sort(key=lambda one: -difflib.SequenceMatcher(None, one, asked).ratio())
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return f"; known: {', '.join(words[:MOST_NAMED])}{more}" if words else ""


def _likeness(asked: str, word: str) -> tuple[float, bool]:
    """Of words equally near, one of the same letters is likelier: two were swapped."""
    return difflib.SequenceMatcher(None, word, asked).ratio(), sorted(asked) == sorted(word)


def shorten_value(value: Any) -> str:
    """A value as a message shows it: one line, not too long."""
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


# Text that others wrote, such as a completion or a line of a data file, shown on a terminal without being obeyed by it.


_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 and C1 control characters but for the tab and the end of a line, marks that turn the direction of writing, rarer ends of
lines, and halves of surrogate pairs, which no stream can encode."""


def escape_control(text: str) -> str:
    """The text with what a terminal would obey written out: a character ESC becomes the four characters \\x1b."""
    return _ORDERS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def print_visible(text: str, end: str = "\n") -> None:
    """Print a result that was asked for, visibly."""
    print(escape_control(text), end=end)


# Coefficients that change over a run: one type, `Curve`, for every key that is marked `Scheduled`.

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
