"""The stages of a study, by kind, and what a scale may say of a kind. A stage has the keys of its kind's spec, the keys by which
it refers to problem sets and other stages, and a `run` block; none is required, since scale, study and arm each give some."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union

from pydantic import Field

from interplay.core.model import Model
from interplay.core.partial import Written, partial, table, union_of
from interplay.kinds.study_keys import References, Refers, Settings
from interplay.kinds.table import KINDS

PLANNED = {kind: row.planned for kind, row in KINDS.items()}
"""Kind -> keys of its spec that the planner fills in from other parts of the study."""
REFERENCES: dict[str, type[References]] = {kind: row.references for kind, row in KINDS.items() if row.references}
"""Kinds of a study's stages, and what they refer to."""


def _title(kind: str) -> str:
    return "".join(word.capitalize() for word in kind.split("_"))


@cache
def stage(kind: str) -> type[Model]:
    """The model of a stage of this kind as a study writes it."""
    tag: Any = Literal[kind]
    tag = Annotated[tag, Field(description="Kind of the stage; it says which keys the stage has.")]
    return partial(KINDS[kind].spec, f"{_title(kind)}Stage", PLANNED.get(kind, ()), (REFERENCES[kind],), kind=(tag, None))


def settings(kind: str) -> type[Model]:
    """What a scale may say of this kind."""
    return partial(KINDS[kind].spec, f"{_title(kind)}Settings", PLANNED.get(kind, ()), (Settings,))


def _by_kind() -> Any:
    return union_of(map(stage, REFERENCES), "kind")


def _any_kind() -> Any:
    return Union[tuple(map(stage, REFERENCES))]  # noqa: UP007


@cache
def _table() -> type[Model]:
    return table("KindTable", {kind: settings(kind) for kind in KINDS}, "Keys of the spec, and `run`, of kind")


StageKeys = Annotated[dict[str, Any], Written(_by_kind)]
"""A stage of a study."""
ChangeKeys = Annotated[dict[str, Any], Written(_any_kind, later=True)]
"""Keys of a stage whose kind stands elsewhere: the study checks them, which knows it."""
KindKeys = Annotated[dict[str, dict[str, Any]], Written(_table)]
"""Per kind keys of its spec, and `run`."""


def references(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a stage by which it refers to problem sets and stages."""
    return {key: value for key, value in entry.items() if key in _REFERRING[entry["kind"]]}


def named(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What a stage refers to: its key, what it should lead to (a problem set or a stage), and the name."""
    for key, value in references(entry).items():
        for mark in REFERENCES[entry["kind"]].model_fields[key].metadata:
            if isinstance(mark, Refers):
                yield from ((key, mark.to, name) for name in ([value] if isinstance(value, str) else value))


def of_spec(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a stage that its kind's spec and its run block judge."""
    return {key: value for key, value in entry.items() if key != "kind" and key not in _REFERRING[entry["kind"]]}


_REFERRING = {kind: set(model.model_fields) - {"run", "path"} for kind, model in REFERENCES.items()}
"""Kind -> keys of its stages that are neither of its spec nor of its run block; a source's path becomes such."""
