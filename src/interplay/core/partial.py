"""Keys of a spec that scale, study and arm give in parts: the same types, none of them required. They are checked when the file
is read, and kept as they are written, since arms replace keys within them; the whole spec is parsed per arm."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, get_args

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, ValidationError, create_model
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from interplay.core.model import Model


class Keys(Model):
    """Base of partial models."""

    model_config = ConfigDict(validate_default=False, defer_build=True)
    PLANNED: ClassVar[tuple[str, ...]] = ()
    """Keys of the spec that are left out, since the planner fills them in."""


class _Made(Keys):
    """Base of those that are made here: they have no source whose docstrings could be read."""

    model_config = ConfigDict(use_attribute_docstrings=False)


class Written(NamedTuple):
    """Marks YAML that is checked as a model and kept as it is written: `Annotated[dict[str, Any], Written(model)]`."""

    model: Callable[[], Any]
    """Makes the model, or the union: only who reads studies needs it, and no job does."""
    later: bool = False
    """Whether it is checked later, when its kind is known; the model is then for the JSON Schema only."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        check = _left_alone if self.later else checked
        return core_schema.no_info_wrap_validator_function(check, handler.generate_schema(self.model()))


def checked(value: Any, check: Callable[[Any], Any]) -> Any:
    """The value itself. What is wrong with the part that is there is refused; what is missing may come from elsewhere."""
    try:
        check(value)
    except ValidationError as error:
        if wrong := [found for found in error.errors(include_url=False) if not _may_come(found)]:
            raise ValidationError.from_exception_data(error.title, [line(found) for found in wrong]) from None
    return value


def line(error: Any, *before: str) -> InitErrorDetails:
    """An error as pydantic takes it up again; `before` are keys that lead to where it was found."""
    return InitErrorDetails(type=error["type"], loc=(*before, *error["loc"]), input=error["input"], ctx=error.get("ctx", {}))


def _left_alone(value: Any, check: Callable[[Any], Any]) -> Any:
    return value


def _may_come(error: Any) -> bool:
    """Whether scale or arm may still set it right: a missing key, or keys of one mapping that do not fit each other."""
    return error["type"] in ("missing", "union_tag_not_found") or (
        error["type"] == "value_error" and isinstance(error["input"], (dict, Model))
    )


def partial(
    spec: type[Model], name: str, without: Iterable[str] = (), bases: tuple[type[Model], ...] = (), **more: Any
) -> type[Model]:
    """A model with the fields of `spec`, none required, those of `bases`, and `more`."""
    left_out = {*without, *(key for base in bases for key in base.model_fields)}
    fields: dict[str, Any] = {
        key: (
            Annotated[field.annotation, *field.metadata, Field(description=field.description, discriminator=field.discriminator)],
            None,
        )
        for key, field in spec.model_fields.items()
        if key not in left_out
    }
    fields |= more
    fields["PLANNED"] = (ClassVar[tuple[str, ...]], tuple(without))
    return create_model(name, __base__=(*bases, _Made), __doc__=spec.__doc__, __module__=__name__, **fields)


def members(union: Any) -> tuple[type[Model], ...]:
    """The models of `Annotated[A | B, Field(discriminator=...)]`."""
    return get_args(get_args(union)[0])


def union_of(models: Iterable[type[Model]], by: str, *marks: Any) -> Any:
    """The models as a union that the key `by` chooses from; with further marks, such as `extension.written_as`."""
    found = tuple(models)
    joined: Any = found[0]
    for model in found[1:]:
        joined = joined | model
    return Annotated[joined, Field(discriminator=by), *marks]


def table(name: str, models: Mapping[str, type[Model]], of: str) -> type[Model]:
    """A model with one field for each of the models."""
    fields: dict[str, Any] = {key: (model, Field(default=None, description=f"{of} {key}.")) for key, model in models.items()}
    return create_model(name, __base__=_Made, __module__=__name__, **fields)
