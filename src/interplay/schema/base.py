"""What every schema shares: frozen models that refuse unknown keys, and errors a person can act on in one line."""

import difflib
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class UserError(Exception):
    """Something the user can mend. The message is one line: file, key, value, what would be right. Exit code 2."""


class PermanentError(Exception):
    """A failure that a retry would meet again, such as a loss that is not finite. The message is one line and names the step."""


class Model(BaseModel):
    """Base of every YAML key. `VERSION` enters the digest: raise it when the same spec would now give another result."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)
    VERSION: ClassVar[int] = 1


class Since(NamedTuple):
    """Marks a field that joined a schema later, as `Annotated[int, Since(0)]`: where it holds `value`, which is what older specs
    did, it stays out of the digest, so that nothing made before has to be made again."""

    value: Any


M = TypeVar("M", bound=Model)


def nearest(word: str, known: list[str] | set[str] | dict[str, Any]) -> str:
    """`; did you mean 'x'?` for the closest known word, else the list of what is known."""
    close = difflib.get_close_matches(str(word), [str(k) for k in known], n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(sorted(str(k) for k in known))}"


def parse(cls: type[M], value: Any, where: str) -> M:
    """Validate `value` as `cls`. Raises UserError naming `where`, the first offending key, its value and the remedy."""
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        raise UserError(_one_line(cls, error, where)) from None


def _one_line(cls: type[Model], error: ValidationError, where: str) -> str:
    # A misspelt key also leaves its right name missing; the misspelling is what helps.
    first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    names = [str(part) for part in first["loc"]]
    key = ".".join(names) or "(top level)"
    if first["type"] == "extra_forbidden":
        known = _fields_at(cls, names[:-1])
        return f"{where}: {key}: unknown key '{names[-1]}'{nearest(names[-1], known) if known else ''}"
    if first["type"] == "missing":
        return f"{where}: {key}: missing; give it a value"
    message = first["msg"].removeprefix("Value error, ")
    given = "" if first["type"] == "value_error" and len(repr(first["input"])) > 60 else f" = {first['input']!r}"
    return f"{where}: {key}{given[:120]}: {message[0].lower()}{message[1:]}"


def _fields_at(cls: type[Model], path: list[str]) -> list[str]:
    """Field names of the model reached by `path`; union tags and container keys on the way are passed over."""
    here: list[type[Model]] = [cls]
    for part in path:
        found = [m for model in here if part in model.model_fields for m in _models_in(model.model_fields[part].annotation)]
        tagged = [m for m in here if "name" in m.model_fields and m.model_fields["name"].default == part]
        here = found or tagged or here
    return sorted({name for model in here for name in model.model_fields})


def _models_in(annotation: Any) -> list[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    return [m for arg in getattr(annotation, "__args__", ()) for m in _models_in(arg)]
