"""JSON Schemas in which the docstrings of keys are descriptions. They are read from the sources here, since planning a study and
starting a stage have no use for them: with pydantic's `use_attribute_docstrings` each process would read them."""

import ast
import inspect
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from interplay.core.model import Model

Schema = dict[str, Any]


def json_schemas(models: dict[str, Any]) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """(name -> its schema, name -> definition) of models and unions by name."""
    inputs: list[Any] = [(name, "validation", TypeAdapter(model)) for name, model in models.items()]
    found, shared = TypeAdapter.json_schemas(inputs, schema_generator=_Described)
    return {str(name): one for (name, _), one in found.items()}, shared["$defs"]


class _Described(GenerateJsonSchema):
    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        """The schema of one model."""
        found = super().model_schema(schema)
        model: Any = schema["cls"]
        for key, text in docstrings(model).items():
            if key in found.get("properties", {}):
                found["properties"][key].setdefault("description", text)
        return found


@cache
def docstrings(model: type[Model]) -> dict[str, str]:
    """Key -> docstring, of a model's own keys and those that it inherits; none of a key that is overridden without one."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if issubclass(one, Model):
            keys = inspect.get_annotations(one)
            found = {key: text for key, text in found.items() if key not in keys} | _own(one)
    whole = model.__dict__.get("WHOLE")
    return {**docstrings(whole), **found} if whole else found


def _own(model: type[Model]) -> dict[str, str]:
    # `partial_model` and `table_model` make some that have no text.
    body: Any = _classes(inspect.getfile(model)).get(model.__qualname__, [])
    return {key.target.id: inspect.cleandoc(after.value.value) for key, after in pairwise(body) if _documents(key, after)}


@cache
def _classes(file: str) -> dict[str, list[ast.stmt]]:
    """Name -> body of the classes of a file, which is parsed once for all of them."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {one.name: one.body for one in tree.body if isinstance(one, ast.ClassDef)}


def _documents(key: ast.stmt, after: ast.stmt) -> bool:
    text = after.value if isinstance(after, ast.Expr) else None
    return isinstance(key, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str)
