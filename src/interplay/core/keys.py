"""Keys of YAML: read as models and refused in one line with the nearest valid key; keys that are given in parts; shares that sum
to one; names of files."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import AfterValidator, ConfigDict, Field, GetCoreSchemaHandler, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from interplay.core.model import NO_VALUE, KeyPlace, Model, UserError, nearest_name
from interplay.core.random import sum_in_order

MESSAGES = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "should be keys and values"),
    **dict.fromkeys(("list_type", "tuple_type"), "should be a list"),
    **dict.fromkeys(("string_type", "string_unicode"), "should be text; put it in quotation marks"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "should be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    "finite_number": "should be a finite number",
    "invalid_key": "a key should be text; decimals follow a point, as in 0.5",
    "too_short": "should hold more items",
}
"""pydantic's kinds of error in the words of YAML."""

M = TypeVar("M", bound=Model)


def parse_model(cls: type[M], value: Any, place: KeyPlace) -> M:
    """Validate `value`, which is at `place`, as `cls`. Raises UserError about the first offending key, with its value and the
    remedy."""
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        # A misspelt key also leaves its right name missing; keys and values are no word of a union that takes them, too.
        words = [item for item in error.errors() if item["type"] == "literal_error" and isinstance(item["input"], dict)]
        first = min(error.errors(), key=lambda item: (item["type"] != "extra_forbidden", item in words))
        raise _refusal(cls, value, first, place) from None


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
    given = NO_VALUE if code == "value_error" and len(repr(error["input"])) > 60 else error["input"]
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
        models, here = models_of(fields) or models, _inside(here, part)
    return models, here


def _inside(value: Any, part: str) -> Any:
    if isinstance(value, (list, tuple)):
        return value[int(part)] if part.isdigit() and int(part) < len(value) else None
    if isinstance(value, dict):
        return next((inner for key, inner in value.items() if str(key) == part), None)
    return getattr(value, part, None) if isinstance(value, Model) else None


def keys_at(cls: type[Model], value: Any, path: Iterable[str]) -> dict[str, list[FieldInfo]]:
    """The keys that may follow a path in YAML of a model, which may be there in part: with their fields, one for each member of a
    union; with none where a key is a name of the user's own, as of a problem set."""
    models, here, names = [cls], value, False
    for part in path:
        fields = [] if names else _fields_at(models, here).get(part, [])
        models = models if names else models_of(fields)
        names = not names and any(_maps_names(field) for field in fields)
        here = _inside(here, part)
    if names:
        return {str(name): [] for name in here} if isinstance(here, dict) else {}
    return _fields_at(models, here)


def _fields_at(models: list[type[Model]], here: Any) -> dict[str, list[FieldInfo]]:
    found: dict[str, list[FieldInfo]] = {}
    for model in [model for model in models if _fits(model, here)] or models:
        for name, field in model.model_fields.items():
            found.setdefault(name, []).append(field)
    return found


def models_of(fields: Iterable[FieldInfo]) -> list[type[Model]]:
    """The models whose keys may follow those of these fields."""
    return [m for field in fields for m in [*models_in(field.annotation), *_marked(field.metadata)]]


def options_of(fields: Iterable[FieldInfo]) -> list[str]:
    """The words that fields of these types may hold, where they are few; none for numbers and texts."""

    def words(annotation: Any) -> list[str]:
        if annotation is bool:
            return ["true", "false"]
        inner = get_args(annotation)
        return (
            [w for w in inner if isinstance(w, str)]
            if get_origin(annotation) is Literal
            else [w for a in inner for w in words(a)]
        )

    return list(dict.fromkeys(word for field in fields for word in words(field.annotation)))


def _maps_names(field: FieldInfo) -> bool:
    """Whether a field maps names of the user's own to values."""
    written = any(isinstance(mark, Written) for mark in field.metadata)
    return not written and any(get_origin(one) is dict for one in (field.annotation, *get_args(field.annotation)))


def models_in(annotation: Any) -> list[type[Model]]:
    """The models that a field's annotation allows, itself or inside lists, mappings and unions."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    inner = [m for arg in getattr(annotation, "__args__", ()) for m in models_in(arg)]
    return [*inner, *_marked(getattr(annotation, "__metadata__", ()))]


def _marked(metadata: Iterable[Any]) -> list[type[Model]]:
    """The models of the marks `Written` that YAML is checked as."""
    return [m for mark in metadata if isinstance(mark, Written) for m in models_in(mark.model())]


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
    if not all(type(share) in (int, float) and -math.inf < share < math.inf for share in others.values()):
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


# Names of files: keys that may hold one, and the studies that a study extends.


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


def extended_studies(tree: Mapping[str, Any], study: str) -> list[str]:
    """Names of the studies in the `defaults` of a study's file, other than its own, in any form that Hydra takes: `demo`,
    `/study/demo`, `/study/demo@_here_`."""
    entries = [entry for entry in tree.get("defaults", []) if isinstance(entry, str)]
    names = [entry.partition("@")[0].removeprefix("/study/") for entry in entries]
    return [name for name in names if name not in ("_self_", study)]


# Texts with fields, such as {answer}.


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
