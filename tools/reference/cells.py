"""Cells of the reference's tables, from the JSON Schema of a key: its type in words, its default and its meaning. `@@Name` is to
become a link to the model or the union of that name."""

import re
from collections.abc import Iterator

from interplay.core.keys import GROUP
from interplay.core.model import MOST, Model
from tools.reference.described import docstrings
from tools.reference.specs import Schema, inside, members_of, model_of, name_of, schema, unions

TYPES = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}


def meaning(model: str, key: str, one: Schema) -> str:
    """The key's description, that of the key which it overrides, or the first sentence on the model that it holds."""
    if said := one.get("description") or _overridden(model, key):
        return cell(said)
    inner = [name for _, name in inside({key: one})]
    if len(inner) > 1:
        return "Chosen by its `name`."
    return cell(first_sentence(schema()[1][inner[0]].get("description", "")) + ".") if inner else ""


def first_sentence(text: str) -> str:
    """Up to the first full stop, without it; that of an abbreviation (Dr. GRPO) does not count."""
    return re.split(r"(?<!\bDr)(?<!\bvs)\. ", " ".join(text.split()))[0].removesuffix(".")


def _overridden(name: str, key: str) -> str:
    bases = [base for model in _subclasses(Model) if model.__name__ == name for base in model.__mro__ if issubclass(base, Model)]
    return next((text for base in bases if (text := docstrings(base).get(key))), "")


def _subclasses(model: type[Model]) -> Iterator[type[Model]]:
    for one in model.__subclasses__():
        yield one
        yield from _subclasses(one)


def type_words(one: Schema) -> str:
    """A type in words."""
    if GROUP in one:
        whole = type_words({key: item for key, item in one.items() if key != GROUP})
        return f"{whole}, or the name of a file in `configs/{one[GROUP]}`"
    if "$ref" in one:
        return f"@@{model_of(name_of(one['$ref']))}"
    if "discriminator" in one:
        return _chosen(one)
    if "const" in one or "enum" in one:
        return ", ".join(f"`{value}`" for value in one.get("enum", [one.get("const")]))
    if "anyOf" in one or "oneOf" in one:
        return " or ".join(dict.fromkeys(type_words(inner) for inner in one.get("anyOf", one.get("oneOf"))))
    if one.get("type") == "array":
        if "prefixItems" in one:
            return f"[{', '.join(map(type_words, one['prefixItems']))}]"
        return f"list of {type_words(one.get('items', {}))}{', not empty' if one.get('minItems') else ''}"
    if one.get("type") == "object":
        return (
            f"name → {type_words(one['additionalProperties'])}" if isinstance(one.get("additionalProperties"), dict) else "keys"
        )
    return TYPES.get(str(one.get("type")), "any value") + _limits(one)


def _limits(one: Schema) -> str:
    low, high = one.get("minimum"), one.get("maximum")
    if (low, high) == (0, 1):
        return " in [0, 1]"
    words = [f"≥ {low:g}"] if low is not None else []
    words += [f"> {one['exclusiveMinimum']:g}"] if "exclusiveMinimum" in one else []
    words += [f"≤ {high:g}"] if high is not None and high != MOST else []
    words += [f"< {one['exclusiveMaximum']:g}"] if "exclusiveMaximum" in one else []
    return f" {', '.join(words)}" if words else ""


def _chosen(one: Schema) -> str:
    tags = set(members_of(one))
    if one["discriminator"]["propertyName"] == "kind":
        return "keys of a stage, by its `kind`"
    union = next((key for key, members in unions().items() if tags <= set(members)), "")
    return f"@@{union}" if union else " or ".join(f"@@{model_of(name)}" for name in members_of(one).values())


def default(one: Schema, required: bool = False) -> str:
    """The value of a key that no file sets; empty for a key that has to be given."""
    if required or "default" not in one:
        return ""
    value = one["default"]
    if isinstance(value, dict) and ("$ref" in one or "discriminator" in one):
        return f"`{value['name']}`" if "name" in value else "its defaults"
    if value is None:
        return "null"
    return f"`{cell(str(value))}`" if not isinstance(value, bool) and value != "" else f"`{str(value).lower() or chr(34) * 2}`"


def cell(text: str) -> str:
    """One line of a table; outside of code, angle brackets would be tags."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;").replace(">", "&gt;") for part in parts[::2]]
    return "`".join(parts)
