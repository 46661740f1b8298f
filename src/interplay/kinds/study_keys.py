"""What a stage of each kind refers to in a study: problem sets and other stages, by name. These keys are no part of the spec: the
planner resolves them to digests, by walking the fields and their marks."""

from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator

from interplay.core import execution, model
from interplay.core.keys import Keys, RestOf, Written, fill_rest, partial_model
from interplay.data.spec import CorpusSpec

# Marks of the keys: what a name leads to, and the dependencies that the planner makes of it.


class Sets(NamedTuple):
    """Marks a key that names a problem set, or several with their shares."""

    role: str
    """Role of the set; of several, the beginning of the roles `<role>.<i>`."""
    use: Literal["training", "selection", "evaluation"]
    """training: the weights depend on its rows; selection: choices during training do; evaluation: neither. The first two read no
    set of split test and read decontaminated rows."""
    mix: str = ""
    """Key of the spec that takes the shares; empty where one set is named, or where the sets are packed."""
    packed: str = ""
    """Key with the settings of the corpora that are packed from the sets: the stage reads those."""
    pairs: bool = False
    """Whether the rows must be pairs of completions."""
    missing: str = ""
    """What to write where the key is missing; empty: it may be."""
    to: str = "problem set"
    texts: bool = False
    """Whether documents and chats may be named, which ask nothing."""


class Samples(NamedTuple):
    """Marks a key that names an evaluate stage, whose samples the stage reads."""

    role: str
    """Beginning of the roles of the evaluations."""
    of: Literal["init", "init on each set", "candidates"]
    """init: the model that the stage starts from, on the problem set of the evaluate stage: roles `<role>.<block>`; init on each
    set: that model on each `data.<i>` of the stage, roles `<role>.<i>.<block>`; candidates: each model that the stage before
    keeps, roles `<role>.<candidate>.<block>`."""
    problems: str = ""
    """Role of the problem set of the evaluations; empty: none."""
    missing: str = ""
    to: str = "stage"


class PathStage(NamedTuple):
    """Marks a key that names a stage of the path. No dependency follows from it."""

    missing: str = ""
    to: str = "stage"


class Reason(NamedTuple):
    """Marks a key with words for people. No dependency follows from it."""

    missing: str = ""
    to: str = "reason"  # so that no mark equals it: typing keeps `Annotated` types by the equality of their marks


Mark = Sets | Samples | PathStage | Reason
SHARES = "name the problem sets and their shares"


def _mapping(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("must map problem sets to shares, such as {edge: 0.2, corpus: rest}")
    return fill_rest(value)


Shares = Annotated[dict[str, float], BeforeValidator(_mapping, json_schema_input_type=RestOf)]
"""Of a problem set, `rest` is what the others leave of 1."""


# The keys, kind by kind. The planner resolves them in the order in which they are declared.


class Settings(Keys):
    """What a scale may set for a kind, in addition to keys of its spec."""

    run: execution.Run = execution.Run()
    """How the stage is executed; never part of its identity."""


class References(Settings):
    """Keys of a stage that are no keys of its spec: what it refers to."""


MIX = ("mix",)
"""Keys of a spec that the planner fills in from shares of problem sets."""


@cache
def _corpus() -> type[model.Model]:
    return partial_model(CorpusSpec, "CorpusKeys", MIX)


class TrainReferences(References):
    """Of pretrain, midtrain and sft."""

    data: Annotated[Shares, Sets("data", "training", packed="corpus", missing=SHARES, texts=True)] = {}
    """Problem sets and their shares, which sum to 1; `rest`: what the others leave."""
    validation: Annotated[str, Sets("validation", "evaluation", texts=True)] = ""
    """Problem set for the loss by band."""
    corpus: Annotated[dict[str, Any], Written(_corpus)] = {}
    """How the data are packed."""


class RLReferences(References):
    """Of rl."""

    data: Annotated[Shares, Sets("data", "training", "mix", missing=SHARES)] = {}
    """Problem sets that prompts come from, and their shares, which sum to 1; `rest`: what the others leave."""
    offline: Annotated[str, Samples("offline", "init on each set")] = ""
    """Evaluate stage, as which the model before is sampled on each set; the sampler starts from these samples."""
    accept_audit: Annotated[str, Reason()] = ""
    """Why this stage may train on a task from outside whose audit fails. Empty: it may not."""


class TeachReferences(References):
    """Of teach."""

    data: Annotated[Shares, Sets("data", "selection", "mix", missing=SHARES)] = {}
    """Hard problems that are asked, and their shares, which sum to 1; `rest`: what the others leave."""
    instances: Annotated[str, Sets("instances", "training")] = ""
    """Problem set that datasets are drawn from, with `proposer: instances`."""


class PreferReferences(References):
    """Of prefer."""

    data: Annotated[Shares, Sets("data", "training", "mix", pairs=True, missing=SHARES)] = {}
    """Sets of pairs and their shares, which sum to 1; `rest`: what the others leave."""
    validation: Annotated[str, Sets("validation", "evaluation", pairs=True)] = ""
    """Set of pairs that are held out."""


HELD_OUT = "name a set of pairs, by which the model is judged"


class RewardModelReferences(References):
    """Of reward_model."""

    data: Annotated[Shares, Sets("data", "training", "mix", pairs=True, missing=SHARES)] = {}
    """Sets of pairs and their shares, which sum to 1; `rest`: what the others leave."""
    validation: Annotated[str, Sets("validation", "evaluation", pairs=True, missing=HELD_OUT)] = ""
    """Set of pairs that are held out."""
    samples: Annotated[str, Samples("samples", "init", problems="prompts")] = ""
    """Evaluate stage, among whose samples of the model before the best by reward are picked."""


class UnlearnReferences(References):
    """Of unlearn."""

    forget: Annotated[Shares, Sets("forget", "training", "forget_mix", missing=SHARES)] = {}
    """Problem sets to be forgotten and their shares, which sum to 1; `rest`: what the others leave."""
    retain: Annotated[Shares, Sets("retain", "training", "retain_mix", missing=SHARES)] = {}
    """Problem sets to be retained and their shares, which sum to 1; `rest`: what the others leave."""


class OwnTrainerReferences(References):
    """Of custom."""

    data: Annotated[Shares, Sets("data", "training", "mix", missing=SHARES)] = {}
    """Problem sets and their shares, which sum to 1; `rest`: what the others leave."""


class EvaluateReferences(References):
    """Of evaluate."""

    data: Annotated[str, Sets("data", "evaluation", missing="name the problem set")] = ""
    """The problem set."""
    along: Annotated[str, PathStage()] = ""
    """Stage of the path along whose checkpoints this is run; without it, at the end of the path."""


class GenerateReferences(References):
    """Of generate: none. A problem set names the stage, the arm whose model writes, and the source rows."""


class SelectReferences(References):
    """Of select."""

    evaluate: Annotated[str, Samples("evaluation", "candidates")] = ""
    """Evaluate stage that is run for every candidate, where `by` is a pass rate or the entropy of samples."""


class SourceReferences(References):
    """Of source."""

    path: str = ""
    """Folder in Hugging Face's format, by its path from the project's root. `{seed}` in it is the seed of the replicate, where
    the study's `seeds` name the stage under `vary`: a base for each."""
    config: str | dict[str, Any] = ""
    """The config.json of a model on the hub (`hub_id`), by its path from the project's root or in words, so that the plan knows
    parameters, FLOPs, hours and memory before the model is here. Of a folder (`path`) its own is read."""


@cache
def marks(references: type[References]) -> dict[str, Mark]:
    """The keys that refer to something, in order, with their marks."""
    fields = references.model_fields.items()
    return {key: mark for key, field in fields for mark in field.metadata if isinstance(mark, Mark)}
