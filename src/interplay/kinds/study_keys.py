"""What a stage of each kind refers to in a study: problem sets and other stages, by name. These keys are no part of the spec: the
planner resolves them to digests, by walking the fields and their marks."""

from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from interplay.core.execution import Run
from interplay.core.model import Model
from interplay.core.partial import Keys, Written, partial
from interplay.data.spec import CorpusSpec


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
    """What a scale may say of a kind, in addition to keys of its spec."""

    run: Run = Run()
    """How the stage is executed; never part of its identity."""


class References(Settings):
    """Keys of a stage that are no keys of its spec: what it refers to."""


MIX = ("mix",)
"""Keys of a spec that the planner fills in from shares of problem sets."""


@cache
def _corpus() -> type[Model]:
    return partial(CorpusSpec, "CorpusKeys", MIX)


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


class OwnTrainerReferences(References):
    """Of custom."""

    data: Shares = {}
    """Problem sets and their shares, which sum to 1."""


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
