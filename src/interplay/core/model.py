"""Base of every spec: frozen pydantic models that refuse unknown keys, and errors in one line with the nearest valid name."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError, create_model
from pydantic_core import CoreSchema, InitErrorDetails, PydanticKnownError, core_schema

LONGEST_VALUE = 80
"""Characters of a value that a message shows."""
MOST_NAMED = 8
"""Known names that a message lists, the nearest first."""

MESSAGES = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "should be keys and values"),
    **dict.fromkeys(("list_type", "tuple_type"), "should be a list"),
    **dict.fromkeys(("string_type", "string_unicode"), "should be text"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "should be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    "finite_number": "should be a finite number",
    "invalid_key": "a key should be text",
    "too_short": "should hold more items",
}
"""pydantic's kinds of error in the words of YAML."""


_NO_VALUE: Any = object()


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

    def error(self, problem: str, value: Any = _NO_VALUE) -> "UserError":
        """The error that the key has this problem; `value` is what it holds, where that helps."""
        return UserError(problem, self, "" if value is _NO_VALUE else shorten_value(value))

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


M = TypeVar("M", bound=Model)


def plural(number: int, noun: str) -> str:
    """`1 stage`, `3 stages`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def holds_once(field: str) -> AfterValidator:
    """Marks a template that must hold a field, such as {answer}, once."""

    def checked(template: str) -> str:
        if template.count(field) != 1:
            raise ValueError(f"must hold {field} once")
        return template

    return AfterValidator(checked)


def filled(template: str, said: Mapping[str, str]) -> str:
    """The template with its fields; the text of a field is never read as a field."""
    return re.sub("|".join(rf"\{{{name}\}}" for name in said), lambda found: said[found[0][1:-1]], template)


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


def parse_model(cls: type[M], value: Any, place: KeyPlace) -> M:
    """Validate `value`, which is at `place`, as `cls`. Raises UserError about the first offending key, with its value and the
    remedy."""
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        # A misspelt key also leaves its right name missing; the misspelling is what helps.
        first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
        raise _refusal(cls, value, first, place) from None


def shorten_value(value: Any) -> str:
    """A value as a message shows it: one line, not too long."""
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _refusal(cls: type[Model], value: Any, error: Any, outer: KeyPlace) -> UserError:
    names = _keys(value, error)
    place = outer.key(*names)
    code, context = error["type"], error.get("ctx", {})
    if code == "extra_forbidden":
        return UserError(_unknown(cls, value, names), place)
    if code == "union_tag_not_found":
        return place.error("missing name; it says which member this is")
    if code == "missing":
        return place.error("missing; give it a value")
    if code == "union_tag_invalid":
        members, by = context["expected_tags"].replace("'", "").split(", "), context["discriminator"].strip("'")
        what = "member" if by == "name" else by
        return place.key(by).error(f"no such {what}{nearest_name(context['tag'], members)}", context["tag"])
    given = _NO_VALUE if code == "value_error" and len(repr(error["input"])) > 60 else error["input"]
    if code == "literal_error":
        members = re.findall(r"'([^']*)'", context["expected"])
        close = nearest_name(error["input"], members) if isinstance(error["input"], str) and len(members) > 1 else ""
        return place.error(f"should be {context['expected']}{close if 'did you mean' in close else ''}", given)
    message = MESSAGES.get(code) or error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return place.error(f"{message[0].lower()}{message[1:]}", given)


def _keys(value: Any, error: Any) -> list[str]:
    """The place of an error as keys of the YAML: without pydantic's names for members of unions, which are in no file."""
    found: list[str] = []
    here = value
    for number, part in enumerate(error["loc"]):
        if isinstance(here, dict) and (same := [key for key in here if str(key) == str(part)]):
            here = here[same[0]]
        elif isinstance(here, (list, tuple)) and isinstance(part, int) and part < len(here):
            here = here[part]
        elif isinstance(here, Model) and hasattr(here, str(part)):
            here = getattr(here, str(part))
        elif not (error["type"] == "missing" and number == len(error["loc"]) - 1):
            continue
        found.append(str(part))
    return found


def _unknown(cls: type[Model], value: Any, names: list[str]) -> str:
    """What is known in the place of a key that is not: of several members the keys of the one that is named there."""
    models, here = _models_at(cls, value, names[:-1])
    member = [model for model in models if _fits(model, here)]
    if any(names[-1] in getattr(model, "PLANNED", ()) for model in member):
        return f"unknown key '{names[-1]}'; the planner fills it in"
    for model in member or models:
        if names[-1] in (ours := (getattr(model, "WHOLE", None) or model).KNOWN_AS):
            return f"unknown key '{names[-1]}'; here it is {ours[names[-1]]}"
    if not member:
        return f"unknown key '{names[-1]}'{nearest_name(names[-1], _fields(models))}"
    by = _tag(member[0])
    others = [model for model in models if names[-1] in model.model_fields]
    another = isinstance(here, dict) and by in here and others  # what is right for another member
    if another and by == "kind":
        kinds = ", ".join(str(get_args(model.model_fields[by].annotation)[0]) for model in others)
        return f"unknown key '{names[-1]}' of {here[by]}; it is a key of {kinds}"
    known = nearest_name(names[-1], _fields(member))
    of = f" of {here[by]}" if another else ""
    if another and names[0] == "stages":  # keys of a base or a method stay when another member is named
        known += f"; where a base or a method has it, an arm's set replaces the whole: {'.'.join(names[1:-1])}: {{...}}"
    return f"unknown key '{names[-1]}'{of}{known}"


def _fields(models: list[type[Model]]) -> list[str]:
    return sorted({name for model in models for name in model.model_fields})


def _tag(model: type[Model]) -> str:
    """The key that chooses a member of a union: `kind` of stages, else `name`."""
    return "kind" if "kind" in model.model_fields else "name"


def _fits(model: type[Model], value: Any) -> bool:
    """Whether the member of a union is the one that its key in a value chooses."""
    by = _tag(model)
    field = model.model_fields.get(by)
    return field is None or (isinstance(value, dict) and value.get(by, field.default) in get_args(field.annotation))


def _models_at(cls: type[Model], value: Any, path: list[str]) -> tuple[list[type[Model]], Any]:
    """The models that are allowed at `path`, and the value there; keys of containers on the way are skipped."""
    models, here = [cls], value
    for part in path:
        chosen = [model for model in models if _fits(model, here)] or models
        fields = [model.model_fields[part] for model in chosen if part in model.model_fields]
        inner = [m for field in fields for m in [*models_in(field.annotation), *_marked(field.metadata)]]
        models, here = inner or models, _inside(here, part)
    return models, here


def _inside(value: Any, part: str) -> Any:
    if isinstance(value, (list, tuple)):
        return value[int(part)] if part.isdigit() and int(part) < len(value) else None
    if isinstance(value, dict):
        return next((inner for key, inner in value.items() if str(key) == part), None)
    return getattr(value, part, None) if isinstance(value, Model) else None


def models_in(annotation: Any) -> list[type[Model]]:
    """The models that a field's annotation allows, itself or inside lists, mappings and unions."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    inner = [m for arg in getattr(annotation, "__args__", ()) for m in models_in(arg)]
    return [*inner, *_marked(getattr(annotation, "__metadata__", ()))]


def _marked(metadata: Iterable[Any]) -> list[type[Model]]:
    """The models of the marks `Written` that YAML is checked as."""
    return [m for mark in metadata if isinstance(mark, Written) for m in models_in(mark.model())]


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


# Keys of a spec that scale, study and arm give in parts: the same types, none of them required. They are checked when the file
# is read, and kept as they are written, since arms replace keys within them; the whole spec is parsed per arm.


class Keys(Model):
    """Base of partial models."""

    model_config = ConfigDict(validate_default=False)
    WHOLE: ClassVar[type[Model] | None] = None
    """The spec whose fields a model of `partial_model` has."""
    PLANNED: ClassVar[tuple[str, ...]] = ()
    """Keys of the spec that are left out, since the planner fills them in."""


class Written(NamedTuple):
    """Marks YAML that is checked as a model and kept as it is written: `Annotated[dict[str, Any], Written(model)]`."""

    model: Callable[[], Any]
    """Makes the model, or the union: only who reads studies needs it, and no job does."""
    later: bool = False
    """Whether it is checked later, when its kind is known; the model is then for the JSON Schema only."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        check: Callable[[Any, Callable[[Any], Any]], Any] = (lambda value, check: value) if self.later else checked
        return core_schema.no_info_wrap_validator_function(check, handler.generate_schema(self.model()))


def checked(value: Any, check: Callable[[Any], Any]) -> Any:
    """The value itself. What is wrong with the part that is there is refused; what is missing may come from elsewhere."""
    try:
        check(value)
    except ValidationError as error:
        if wrong := [found for found in error.errors(include_url=False) if not _may_come(found)]:
            raise ValidationError.from_exception_data(error.title, [error_at(found) for found in wrong]) from None
    return value


def error_at(error: Any, *before: str) -> InitErrorDetails:
    """An error as pydantic takes it up again; `before` are keys that lead to where it was found."""
    return InitErrorDetails(type=error["type"], loc=(*before, *error["loc"]), input=error["input"], ctx=error.get("ctx", {}))


def _may_come(error: Any) -> bool:
    """Whether scale or arm may still set it right: a missing key, or keys of one mapping that do not fit each other."""
    return error["type"] in ("missing", "union_tag_not_found") or (
        error["type"] == "value_error" and isinstance(error["input"], (dict, Model))
    )


def partial_model(
    spec: type[Model], name: str, without: Iterable[str] = (), bases: tuple[type[Model], ...] = (), **more: Any
) -> type[Model]:
    """A model with the fields of `spec`, none required, those of `bases`, and `more`."""
    left_out = {*without, *(key for base in bases for key in base.model_fields)}
    fields: dict[str, Any] = {
        key: (Annotated[field.annotation, *field.metadata, Field(discriminator=field.discriminator)], None)
        for key, field in spec.model_fields.items()
        if key not in left_out
    }
    fields |= more
    fields["PLANNED"] = (ClassVar[tuple[str, ...]], tuple(without))
    fields["WHOLE"] = (ClassVar[type[Model]], spec)
    return create_model(name, __base__=(*bases, Keys), __doc__=spec.__doc__, __module__=__name__, **fields)


def union_members(union: Any) -> tuple[type[Model], ...]:
    """The models of `Annotated[A | B, Field(discriminator=...)]`."""
    return get_args(get_args(union)[0])


def union_of(models: Iterable[type[Model]], by: str, *marks: Any) -> Any:
    """The models as a union that the key `by` chooses from; with further marks, such as `extension.written_as`."""
    found = tuple(models)
    joined: Any = found[0]
    for model in found[1:]:
        joined = joined | model
    return Annotated[joined, Field(discriminator=by), *marks]


def table_model(name: str, models: Mapping[str, type[Model]], of: str) -> type[Model]:
    """A model with one field for each of the models."""
    fields: dict[str, Any] = {key: (model, Field(default=None, description=f"{of} {key}.")) for key, model in models.items()}
    return create_model(name, __base__=Keys, __module__=__name__, **fields)
