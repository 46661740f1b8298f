"""The stages of a study, by kind, and what a scale may say of a kind. A stage has the keys of its kind's spec, the keys by which
it refers to problem sets and other stages, and a `run` block; none is required, since scale, study and arm each give some."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union

from pydantic import BeforeValidator, Field

from interplay.core.execution import Run
from interplay.core.model import Model
from interplay.core.partial import Keys, Written, partial, table, union_of
from interplay.data.spec import CorpusSpec
from interplay.kinds.table import KINDS

PLANNED: dict[str, tuple[str, ...]] = {
    "problems": ("task", "bands", "shares", "size", "split"),
    "curate": ("mix", "steps"),
    "tokenizer": ("task", "others"),
    "corpus": ("mix",),
    "rl": ("mix",),
    "teach": ("mix", "task"),
    "prefer": ("mix",),
    "unlearn": ("forget_mix", "retain_mix"),
    "reward_model": ("mix",),
    "select": ("candidates",),
    "report": tuple(KINDS["report"].spec.model_fields),
}
"""Kind -> keys of its spec that the planner fills in from other parts of the study."""


class Refers(NamedTuple):
    """Marks a key that names something of the study."""

    to: str


SetName = Annotated[str, Refers("problem set")]
StageName = Annotated[str, Refers("stage")]


def _mapping(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("must map problem sets to shares, such as {edge: 1.0}")
    return value


Shares = Annotated[dict[str, float], BeforeValidator(_mapping), Refers("problem set")]


class Settings(Keys):
    """What a scale may say of a kind, beside keys of its spec."""

    run: Run = Run()
    """How the stage is executed; never part of its identity."""


class References(Settings):
    """Keys of a stage that are no keys of its spec: what it refers to."""


@cache
def _corpus() -> type[Model]:
    return partial(CorpusSpec, "CorpusKeys", PLANNED["corpus"])


class TrainReferences(References):
    """Of pretrain, midtrain and sft."""

    data: Shares = {}
    """Problem sets and their shares, which sum to 1."""
    validation: SetName = ""
    """Problem set for the loss by band."""
    corpus: Annotated[dict[str, Any], Written(_corpus)] = {}
    """How the data are packed."""


class RLReferences(References):
    """Of rl."""

    data: Shares = {}
    """Problem sets that prompts come from, and their shares, which sum to 1."""
    offline: StageName = ""
    """Evaluate stage, as which the model before is sampled on each set; the sampler starts from these samples."""


class TeachReferences(References):
    """Of teach."""

    data: Shares = {}
    """Hard problems that are asked, and their shares, which sum to 1."""
    instances: SetName = ""
    """Problem set that datasets are drawn from, with `proposer: instances`."""


class PreferReferences(References):
    """Of prefer."""

    data: Shares = {}
    """Sets of pairs and their shares, which sum to 1."""
    validation: SetName = ""
    """Set of pairs that are held out."""


class RewardModelReferences(PreferReferences):
    """Of reward_model."""

    samples: StageName = ""
    """Evaluate stage, among whose samples of the model before the best by reward are picked."""


class UnlearnReferences(References):
    """Of unlearn."""

    forget: Shares = {}
    """Problem sets to be forgotten and their shares, which sum to 1."""
    retain: Shares = {}
    """Problem sets to be retained and their shares, which sum to 1."""


class EvaluateReferences(References):
    """Of evaluate."""

    data: SetName = ""
    """The problem set."""
    along: StageName = ""
    """Stage of the path along whose checkpoints this is run; without it, at the end of the path."""


class SelectReferences(References):
    """Of select."""

    evaluate: StageName = ""
    """Evaluate stage that is run for every candidate, where `by` is a pass rate or the entropy of samples."""


class SourceReferences(References):
    """Of source."""

    path: str = ""
    """Folder in Hugging Face's format, by its path from the project's root."""


REFERENCES: dict[str, type[References]] = {
    "source": SourceReferences,
    "pretrain": TrainReferences,
    "midtrain": TrainReferences,
    "sft": TrainReferences,
    "rl": RLReferences,
    "teach": TeachReferences,
    "prefer": PreferReferences,
    "unlearn": UnlearnReferences,
    "reward_model": RewardModelReferences,
    "evaluate": EvaluateReferences,
    "select": SelectReferences,
}
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
