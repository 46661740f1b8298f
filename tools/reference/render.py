"""The text of docs/reference.md."""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MinLen
from pydantic.fields import FieldInfo

from interplay.cli import COMMANDS, find_command
from interplay.cli.common import examples
from interplay.core.model import MOST, Model, Since
from interplay.report.write.plain import aligned
from tools.reference.pages import PAGE, PLANNED, TITLES


def page() -> str:
    """The whole of docs/reference.md."""
    parts = [
        "# Every key, and every command",
        "Made by `make docs` from the schema (`src/interplay/schema/`) and the command line; not edited by hand. A key without a "
        "default has to be given. A key that is not listed is refused, with its file and line and the nearest that is.",
        "\n".join(f"- [{heading}](#{_anchor(heading)})" for heading in [*(heading for heading, _, _ in PAGE), "Commands"]),
    ]
    for heading, about, models in PAGE:
        parts += [f"## {heading}", about, *(part for cls in models for part in _section(cls))]
    return "\n\n".join([*parts, "## Commands", *_commands()]) + "\n"


def documented() -> set[type[Model]]:
    """The models that have a section."""
    return {cls for _, _, models in PAGE for cls in models}


def reached(cls: type[Model]) -> set[type[Model]]:
    """The model and every model inside it."""
    found = {cls}
    for item in cls.model_fields.values():
        for inner in _models(item.annotation):
            found |= reached(inner)
    return found


def _section(cls: type[Model]) -> Iterator[str]:
    yield f'<a id="{cls.__name__.lower()}"></a>\n\n### {_cell(TITLES[cls])}'
    yield " ".join(str(cls.__doc__).split())
    rows = [_row(cls, name, item) for name, item in cls.model_fields.items()]
    if rows:
        yield "\n".join(["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows])


def _row(cls: type[Model], name: str, item: FieldInfo) -> str:
    default = "" if item.is_required() else _default(item.get_default(call_default_factory=True))
    return f"| `{name}` | {_type(_whole(cls, name, item))} | {default} | {_cell(_meaning(cls, name, item))} |"


def _whole(cls: type[Model], name: str, item: FieldInfo) -> Any:
    """The annotation with the limits that pydantic keeps beside it."""
    limits = [mark for mark in item.metadata if isinstance(mark, (Ge, Gt, Le, MinLen))]
    return Annotated[(item.annotation, *limits)] if limits else item.annotation


def _meaning(cls: type[Model], name: str, item: FieldInfo) -> str:
    """The key's docstring, that of the model it overrides, or the first sentence on the model it holds."""
    said = next((known for base in cls.__mro__ if (known := _described(base, name))), "")
    if not said and name == "name":
        said = "Chooses this member." if len(get_args(item.annotation)) == 1 else ""
    if not said:
        inner = _models(item.annotation)
        said = "Chosen by its `name`." if len(inner) > 1 else _first_sentence(inner[0]) if inner else ""
    if name in PLANNED.get(cls, ()):
        said += " The planner fills it in."
    for mark in item.metadata:
        if isinstance(mark, Since):
            said += f" Came later: {_default(mark.value)} keeps the identity of stages planned before."
    return said.strip()


def _first_sentence(cls: type[Model]) -> str:
    return " ".join(str(cls.__doc__).split()).split(". ")[0].removesuffix(".") + "."


def _described(cls: type, name: str) -> str | None:
    fields = cls.model_fields if issubclass(cls, Model) else {}
    return fields[name].description if name in fields else None


def _type(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _limited(args[0], args[1:])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in args)
    if origin in (Union, types.UnionType):
        inner = [arg for arg in args if arg is not type(None)]
        return " or ".join([*map(_type, inner), *(["null"] if len(inner) < len(args) else [])])
    if origin is list:
        return f"list of {_plural(_type(args[0]))}"
    if origin is tuple:
        return f"[{', '.join(map(_type, args))}]"
    if origin is dict:
        return f"{_type(args[0])} → {_type(args[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Model):
        shown = TITLES[annotation].split(": ")[-1]
        return f"[{_cell(shown)}](#{annotation.__name__.lower()})" if annotation in documented() else "keys"
    return {int: "whole number", float: "number", str: "text", bool: "true or false"}.get(annotation, "any value")


def _plural(text: str) -> str:
    for one, many in (("whole number", "whole numbers"), ("number", "numbers"), ("text", "texts"), ("any value", "values")):
        if text == one or text.startswith(f"{one} "):
            return many + text.removeprefix(one)
    return text


def _limited(annotation: Any, marks: tuple[Any, ...]) -> str:
    words = []
    for mark in marks:
        match mark:
            case Ge():
                words.append(f"≥ {mark.ge}")
            case Gt():
                words.append(f"> {mark.gt}")
            case Le() if mark.le != MOST:
                words.append(f"≤ {mark.le}")
            case MinLen():
                words.append("not empty")
            case FieldInfo():
                return _limited(annotation, tuple(mark.metadata))
    return ", ".join([_type(annotation), *words]).replace("number, ", "number ").replace("≥ 0, ≤ 1", "in [0, 1]")


def _default(value: Any) -> str:
    if isinstance(value, Model):
        return f"`{getattr(value, 'name', '{}')}`" if "name" in type(value).model_fields else "its defaults"
    if value is None:
        return "null"
    shown = {True: "true", False: "false", "": '""'}.get(value) if isinstance(value, (bool, str)) else None
    return f"`{_cell(shown or str(value))}`"


def _models(annotation: Any) -> list[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    return [found for arg in get_args(annotation) for found in _models(arg)]


def _cell(text: str) -> str:
    """One line of a table; outside of code, angle brackets would be tags."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    plain = [part.replace("<", "&lt;").replace(">", "&gt;") for part in parts[::2]]
    parts[::2] = plain
    return "`".join(parts)


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _commands() -> Iterator[str]:
    """One section per command: what it is for, its arguments, and how it is called."""
    for name in COMMANDS:
        command = find_command(name)
        yield f"### interplay {name}"
        yield " ".join(str(command.help).split())
        rows = list(_arguments(command))
        if rows:
            yield "\n".join(["| argument | meaning |", "| --- | --- |", *rows])
        yield "\n".join(["```", *aligned(examples(command.epilog)), "```"])


def _arguments(command: Any, before: str = "") -> Iterator[str]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _arguments(inner, f"{before}{name} ")
    for param in command.params:
        words = [param.metavar or param.name] if param.param_type_name == "argument" else [param.opts[-1], param.metavar or ""]
        yield f"| `{_cell(before + ' '.join(words).strip())}` | {_cell(param.help)} |"
