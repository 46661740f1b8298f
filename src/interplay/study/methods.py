"""What a whole RL method is called: the name of its file in configs/method/."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from interplay.schema.base import UserError, parse
from interplay.schema.leaves import leaves
from interplay.schema.rl import Method

Known = Mapping[str, Mapping[str, Any]]
"""File's name -> its method, leaf by leaf, the schema's defaults included."""


def known(configs: Path) -> Known:
    """The methods of configs/method/."""
    found = ((path.stem, whole(yaml.safe_load(path.read_text()))) for path in sorted((configs / "method").glob("*.yaml")))
    return {name: method for name, method in found if method is not None}


def whole(value: Any) -> Mapping[str, Any] | None:
    """A method as leaves; None where the value is none."""
    if not isinstance(value, (Method, Mapping)):
        return None
    given = value if isinstance(value, Method) else {key: item for key, item in value.items() if key != "defaults"}
    try:
        return leaves(parse(Method, given, "method").model_dump(mode="json"))
    except UserError:
        return None


def name(value: Any, among: Known) -> str | None:
    """Such as `dapo`; `dapo, changed` for one that differs from its file, as where an arm sets a seam of it; None for what is no
    method."""
    method = whole(value)
    if method is None or not among:
        return None
    same = {file: other for file, other in among.items() if other.get("paper") == method.get("paper")} or among
    apart = {file: sum(method.get(key) != other.get(key) for key in {*method, *other}) for file, other in same.items()}
    nearest = min(apart, key=lambda file: apart[file])
    return nearest if not apart[nearest] else f"{nearest}, changed"
