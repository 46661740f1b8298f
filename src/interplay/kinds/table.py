"""The table of kinds: the spec of each, the function that runs it, and the metrics that it logs."""

from typing import NamedTuple

from interplay.core.model import Model
from interplay.data.spec import CorpusSpec, DatasetSpec, ProblemsSpec, SourceSpec, TokenizerSpec
from interplay.data.steps.spec import CurateSpec
from interplay.evaluate.spec import EvaluateSpec, SelectSpec
from interplay.report.spec import ReportSpec
from interplay.rl.spec import RLSpec
from interplay.rl.teaching.spec import TeachSpec
from interplay.train.spec import MidtrainSpec, PreferSpec, PretrainSpec, RewardModelSpec, SftSpec, UnlearnSpec

# THE table of kinds: what each one's spec is, who runs it, and which Snakemake rule file schedules it.


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
    "problems": Kind(ProblemsSpec, "interplay.data.problems:generate_problems", light=("keys.parquet",)),
    "dataset": Kind(DatasetSpec, "interplay.data.dataset:read_dataset", light=("keys.parquet",)),
    "curate": Kind(CurateSpec, "interplay.data.curate:curate_problems", light=("keys.parquet",)),
    "tokenizer": Kind(TokenizerSpec, "interplay.data.tokenizer:build_tokenizer"),
    "corpus": Kind(CorpusSpec, "interplay.data.corpus:build_corpus"),
    "pretrain": Kind(PretrainSpec, "interplay.train.lm:run", light=("metrics.jsonl",)),
    "midtrain": Kind(MidtrainSpec, "interplay.train.lm:run", light=("metrics.jsonl",)),
    "sft": Kind(SftSpec, "interplay.train.lm:run", light=("metrics.jsonl",)),
    "rl": Kind(RLSpec, "interplay.rl.loop:run", light=("metrics.jsonl",)),
    "teach": Kind(TeachSpec, "interplay.rl.teaching.teach:run", light=("metrics.jsonl",)),
    "prefer": Kind(PreferSpec, "interplay.train.prefer:run", light=("metrics.jsonl",)),
    "unlearn": Kind(UnlearnSpec, "interplay.train.unlearn:run", light=("metrics.jsonl",)),
    "reward_model": Kind(RewardModelSpec, "interplay.train.reward_model:run", light=("metrics.jsonl",)),
    "evaluate": Kind(EvaluateSpec, "interplay.evaluate.run:run", light=("prompts.parquet",)),
    "select": Kind(SelectSpec, "interplay.evaluate.select:run"),
    "report": Kind(ReportSpec, "interplay.report.write.page:run", reads_light=True),
}
SETS = ("problems", "dataset", "curate")
"""Kinds that make a problem set."""
TRAINERS = ("pretrain", "midtrain", "sft")
"""Kinds of the one LM trainer: they spend tokens."""
TUNERS = ("prefer", "unlearn", "reward_model")
"""Kinds of trainers on few data, which count steps (train.spec.TuneSpec)."""

SEVERAL = (*TRAINERS, *TUNERS, "rl", "evaluate")
"""Kinds whose work several processes can share (`run.processes`)."""
SLICED = (*TRAINERS, "prefer", "rl")
"""Kinds whose model can lie in slices (`run.sharding`): those that train a decoder and nothing beside it."""


def read_by(consumer: str, kind: str) -> tuple[str, ...] | None:
    """Files that a stage of kind `consumer` reads of an input of kind `kind`, beside its record; None: any of them."""
    return KINDS[kind].light if KINDS[consumer].reads_light else None


# What stages write into `metrics.jsonl`, by kind: what a figure with `x: step` can draw.
#
# Names whose end depends on the study (bands, parts of a reward, a sampler's own) are known by their beginning.


STEP = ("loss", "grad_norm", "lr_factor", "tokens")
"""Of every trainer."""
COMPLETIONS = ("entropy", "length", "truncated", "completion_tokens")
UPDATE = ("loss", "grad_norm", "optimizer_steps", "trained_tokens", "kl_old", "clip_fraction", "phi", "divergence", "step_error")
"""Of every update of RL; the last four where its loss has them."""
LOGGED_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TRAINERS, STEP),
    "prefer": STEP,
    "unlearn": (*STEP, "forget_loss", "retain_loss", "grad_cosine", "uniform_kl"),
    "reward_model": (*STEP, "accuracy", "nll", "margin"),
    "rl": (
        *("reward", "strict", "answer", "score", "turns", "answer_first", "frac_all_pass", "frac_all_fail", "effective_ratio"),
        *COMPLETIONS,
        *("groups", "completions", "prompt_tokens", "drawn_op", "lr"),
        *UPDATE,
    ),
    "teach": (
        *("valid", "distinct", "op", "op_max", "reward", "reward_std", "reward_best", "promoted", "lr_factor"),
        *("probe_before", "probe_after", "probe_student", "student_reward", "student_gain"),
        *("completions", "prompt_tokens", "completion_tokens", "tokens", "optimizer_steps"),
    ),
}
"""Kind -> names; kinds that are not here log nothing."""
LOGGED_PREFIXES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TRAINERS, ("eval_loss/",)),
    **dict.fromkeys(TUNERS, ("eval_",)),
    "prefer": ("rewards/", "logps/", "eval_"),
    "rl": ("reward/", "drawn/", "sampling/", "sampler/", "critic/"),
    "teach": ("flaw/", "teacher/"),
}
"""Kind -> what further names begin with."""
KL = "kl"
"""Logged where there is a reference, or a loss that measures it."""


def logged_names(kind: str, spec: Model) -> tuple[str, ...]:
    """What a stage logs under names that do not depend on the study."""
    refers = isinstance(spec, RLSpec) and spec.method.loss.refers()
    measures = isinstance(spec, PreferSpec) and spec.loss_type == "kto"
    return (*LOGGED_NAMES.get(kind, ()), *((KL,) if refers or measures else ()))


def is_logged(kind: str, spec: Model, name: str) -> bool:
    """Whether a stage may log a name."""
    return name in logged_names(kind, spec) or name.startswith(LOGGED_PREFIXES.get(kind, ()))
