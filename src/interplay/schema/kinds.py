"""THE table of kinds: what each one's spec is, who runs it, and which Snakemake rule file schedules it."""

from typing import NamedTuple

from interplay.schema.base import Model
from interplay.schema.curate import CurateSpec
from interplay.schema.data import CorpusSpec, ProblemsSpec, SourceSpec, TokenizerSpec
from interplay.schema.dataset import DatasetSpec
from interplay.schema.evaluate import EvaluateSpec
from interplay.schema.prefer import PreferSpec
from interplay.schema.report import ReportSpec
from interplay.schema.reward_model import RewardModelSpec
from interplay.schema.rl import RLSpec
from interplay.schema.select import SelectSpec
from interplay.schema.teach import TeachSpec
from interplay.schema.train import MidtrainSpec, PretrainSpec, SftSpec
from interplay.schema.unlearn import UnlearnSpec


class Kind(NamedTuple):
    """One row: the spec's model and the function `run(spec, inputs, out, how) -> metrics` as `module:function`."""

    spec: type[Model]
    function: str
    light: tuple[str, ...] = ()
    """Files of the artifact that travel with its record in results/studies: all of it that a report reads."""
    reads_light: bool = False
    """Whether the function reads nothing of its inputs but their records and light files."""


KINDS: dict[str, Kind] = {
    "source": Kind(SourceSpec, "interplay.model.source:run"),
    "problems": Kind(ProblemsSpec, "interplay.data.problems:run", light=("keys.parquet",)),
    "dataset": Kind(DatasetSpec, "interplay.data.dataset:run", light=("keys.parquet",)),
    "curate": Kind(CurateSpec, "interplay.data.curate:run", light=("keys.parquet",)),
    "tokenizer": Kind(TokenizerSpec, "interplay.data.tokenizer:run"),
    "corpus": Kind(CorpusSpec, "interplay.data.corpus:run"),
    "pretrain": Kind(PretrainSpec, "interplay.train.lm:run", light=("metrics.jsonl",)),
    "midtrain": Kind(MidtrainSpec, "interplay.train.lm:run", light=("metrics.jsonl",)),
    "sft": Kind(SftSpec, "interplay.train.lm:run", light=("metrics.jsonl",)),
    "rl": Kind(RLSpec, "interplay.rl.loop:run", light=("metrics.jsonl",)),
    "teach": Kind(TeachSpec, "interplay.rl.teaching.loop:run", light=("metrics.jsonl",)),
    "prefer": Kind(PreferSpec, "interplay.train.prefer:run", light=("metrics.jsonl",)),
    "unlearn": Kind(UnlearnSpec, "interplay.train.unlearn:run", light=("metrics.jsonl",)),
    "reward_model": Kind(RewardModelSpec, "interplay.train.reward_model:run", light=("metrics.jsonl",)),
    "evaluate": Kind(EvaluateSpec, "interplay.evaluate.run:run", light=("prompts.parquet",)),
    "select": Kind(SelectSpec, "interplay.evaluate.select:run"),
    "report": Kind(ReportSpec, "interplay.report.page:run", reads_light=True),
}
SETS = ("problems", "dataset", "curate")
"""Kinds that make a problem set."""
TRAINERS = ("pretrain", "midtrain", "sft")
"""Kinds of the one LM trainer: they spend tokens."""
TUNERS = ("prefer", "unlearn", "reward_model")
"""Kinds of trainers on few data, which count steps (schema.tune.TuneSpec)."""

SEVERAL = (*TRAINERS, *TUNERS, "rl", "evaluate")
"""Kinds whose work several processes can share (`run.processes`)."""
SLICED = (*TRAINERS, "prefer", "rl")
"""Kinds whose model can lie in slices (`run.sharding`): those that train a decoder and nothing beside it."""


def read_by(consumer: str, kind: str) -> tuple[str, ...] | None:
    """Files that a stage of kind `consumer` reads of an input of kind `kind`, beside its record; None: any of them."""
    return KINDS[kind].light if KINDS[consumer].reads_light else None
