"""The reference page of members of the user's own, with an example of each (extensions.yaml)."""

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from interplay.kinds.extensions import EXTENSIONS, named_methods


class Example(NamedTuple):
    """A member of the user's own."""

    use: str
    """One line of a study."""
    code: str
    """The file that it names, at most six lines."""


@cache
def examples() -> dict[str, Example]:
    """One example for each union, for the reference."""
    text = Path(__file__).with_name("extensions.yaml").read_text(encoding="utf-8")
    return {union: Example(**fields) for union, fields in yaml.safe_load(text).items()}


def blocks() -> Iterator[str]:
    """For each union the signature, a use and an example."""
    for name, example in examples().items():
        forms = shown_signature(name)
        about = list(dict.fromkeys(what for _, what, _ in forms))
        signatures = "\n".join(f"{' '.join(signature.split())}\n    {' '.join(result.split())}" for signature, _, result in forms)
        parts = [f"## extension: {name}", " ".join(about), f"```\n{signatures}\n```"]
        yield "\n\n".join([*parts, f"```yaml\n{example.use}\n```", f"```python\n{example.code}```"])


def shown_signature(union: str) -> list[tuple[str, str, str]]:
    """For the reference: (signature, what it is, what it returns) of each form of a union."""
    found = []
    for form in EXTENSIONS[union]:
        methods = {name: item for name, item in vars(form).items() if inspect.isfunction(item) and name in named_methods(form)}
        for name, method in methods.items():
            signature = inspect.signature(method)
            arguments = ", ".join(f"{one.name}: {one.annotation}" for one in list(signature.parameters.values())[1:])
            label = "function" if name == "__call__" else f"class.{name}"
            returns = f"{label}({arguments}) -> {signature.return_annotation}"
            found.append((returns, inspect.getdoc(form) or "", inspect.getdoc(method) or ""))
    return found
