"""THE table of kinds: what each one's spec is, who runs it, and which Snakemake rule file schedules it."""

from typing import NamedTuple

from interplay.schema.base import Model
from interplay.schema.data import CorpusSpec, ProblemsSpec, SourceSpec, TokenizerSpec
from interplay.schema.evaluate import EvaluateSpec
from interplay.schema.report import ReportSpec
from interplay.schema.rl import RLSpec
from interplay.schema.train import MidtrainSpec, PretrainSpec, SftSpec


class Kind(NamedTuple):
    """One row: the spec's model and the function `run(spec, inputs, out, how) -> metrics` as `module:function`."""

    spec: type[Model]
    function: str


KINDS: dict[str, Kind] = {
    "source": Kind(SourceSpec, "interplay.model.source:run"),
    "problems": Kind(ProblemsSpec, "interplay.data.problems:run"),
    "tokenizer": Kind(TokenizerSpec, "interplay.data.tokenizer:run"),
    "corpus": Kind(CorpusSpec, "interplay.data.corpus:run"),
    "pretrain": Kind(PretrainSpec, "interplay.train.lm:run"),
    "midtrain": Kind(MidtrainSpec, "interplay.train.lm:run"),
    "sft": Kind(SftSpec, "interplay.train.lm:run"),
    "rl": Kind(RLSpec, "interplay.rl.loop:run"),
    "evaluate": Kind(EvaluateSpec, "interplay.evaluate.run:run"),
    "report": Kind(ReportSpec, "interplay.report.page:run"),
}
