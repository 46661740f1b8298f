"""THE table of kinds of stage: one row each. What a kind is to planner, runner, reports and mirrors is a field of its row, or
follows from the class of its spec; no list elsewhere names kinds."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from interplay.core import extension, model
from interplay.data.spec import AuditSpec, CorpusSpec, DatasetSpec, ProblemsSpec, TokenizerSpec
from interplay.data.steps.spec import CurateSpec
from interplay.evaluate.generate_spec import GenerateSpec
from interplay.evaluate.spec import CalibrateSpec, EvaluateSpec, SelectSpec
from interplay.kinds import formulas, study_keys
from interplay.model.spec import SourceSpec
from interplay.report.spec import ReportSpec
from interplay.rl.spec import RLSpec
from interplay.rl.teach_spec import TeachSpec
from interplay.train import spec as train


class Kind(NamedTuple):
    """One row."""

    spec: type[model.Model]
    function: str
    """`run(spec, inputs, out, how) -> metrics` as `module:function`."""
    makes: Literal["model", "problems", "tokenizer", "corpus", "samples", "bands", "audit", "report"]
    """What its artifact holds."""
    hue: int
    """Colour of its boxes in diagrams, in degrees."""
    trainers: Mapping[str, str] = MappingProxyType({})
    """The function of each trainer but the native one (`trainer` of the spec), as `function`."""
    references: type[study_keys.References] | None = None
    """Keys by which a stage of a study refers to problem sets and stages; None: the planner makes its stages."""
    planned: tuple[str, ...] = ()
    """Keys of its spec that the planner fills in from other parts of the study."""
    cost: formulas.Formula = formulas.Formula()
    logged: tuple[str, ...] = ()
    """Names in its `metrics.jsonl`: what a figure with `x: step` can draw."""
    logged_prefixes: tuple[str, ...] = ()
    """Beginnings of further names, whose ends depend on the study: bands, parts of a reward, a sampler's own."""
    recorded: Callable[[Any], tuple[str, ...] | None] = lambda spec: None
    """Names of the numbers in the record of a spec, which claims may be about; one that ends with / begins others. None: any."""
    logs_kl: Callable[[Any], bool] = lambda spec: False
    """Whether a spec logs `kl`: there is a reference, or its loss measures it."""
    loss: str = "cross-entropy (nats per token)"
    """What the curve `loss` is."""
    step: str = "optimiser step"
    """What the steps of its curves are."""
    settings: tuple[str, ...] = ()
    """Dotted keys of its spec that a report lists; the record holds all."""
    starts_path: bool = False
    """Whether it makes a model from none, so that it can only be the first stage of a path."""
    ends_path: bool = False
    """Whether its model only judges, so that later stages of the path start from the model before it."""
    processes: bool = False
    """Whether several processes can share its work (`run.processes`)."""
    stacked: str = ""
    """Function that makes several replicas at once (`run.stack`), of one `stack_key` of their specs, as `module:function`:
    `run(replicas, how)` gives (number, metrics or an error) of each when it ends. Empty: there is none."""
    keeps_state: bool = False
    """Whether it can keep its final training state, from which a longer run goes on (`run.keep_state`)."""
    light: tuple[str, ...] = ()
    """Files of the artifact that travel with its record in results/studies: all of it that a report reads."""
    reads_light: bool = False
    """Whether the function reads nothing of its inputs but their records and light files."""


STEP = ("loss", "grad_norm", "lr_factor", "tokens")
"""Logged by every trainer."""
COMPLETIONS = ("entropy", "length", "truncated", "completion_tokens")
UPDATE = ("loss", "grad_norm", "optimizer_steps", "trained_tokens", "kl_old", "clip_fraction", "phi", "divergence", "step_error")
"""Of every update of RL; the last four where its loss has them."""
KL = "kl"
TRAINED = ("steps", "tokens", "parameters")
"""Recorded by every trainer."""
TRAINING = ("optimizer.name", "optimizer.learning_rate", "schedule.name", "batch_tokens", "dtype")
PAIRS_SETTINGS = ("steps", "pairs_per_step", "optimizer.name", "optimizer.learning_rate")
CURVES = ("metrics.jsonl",)
KEYS = ("keys.parquet",)

LANGUAGE_MODEL: dict[str, Any] = {
    "function": "interplay.train.lm:train_language_model",
    "makes": "model",
    "references": study_keys.TrainReferences,
    "cost": formulas.Training(),
    "logged": STEP,
    "recorded": lambda spec: TRAINED,
    "logged_prefixes": ("eval_loss/",),
    "processes": True,
    "stacked": "interplay.train.stack:train_replicas",
    "light": CURVES,
}
"""What the stages of the trainer of language models have in common."""

KINDS: dict[str, Kind] = {
    "source": Kind(
        SourceSpec,
        "interplay.model.folder:import_model",
        makes="model",
        hue=265,
        references=study_keys.SourceReferences,
        cost=formulas.Importing(),
        settings=("path", "hub_id", "revision"),
        recorded=lambda spec: ("parameters",),
        starts_path=True,
    ),
    "problems": Kind(
        ProblemsSpec,
        "interplay.data.problems:generate_problems",
        makes="problems",
        hue=205,
        planned=("task", "bands", "shares", "size", "split", "calibrated"),
        settings=("size", "split", "task.modulus", "task.operators", "task.surface", "transform.name"),
        light=KEYS,
    ),
    "dataset": Kind(
        DatasetSpec,
        "interplay.data.foreign:read_dataset",
        makes="problems",
        hue=205,
        settings=("format", "size", "split", "band", "sha256"),
        light=KEYS,
    ),
    "curate": Kind(
        CurateSpec,
        "interplay.data.curate:curate_problems",
        makes="problems",
        hue=160,
        planned=("mix", "steps"),
        settings=("mix", "size", "steps"),
        light=KEYS,
    ),
    "tokenizer": Kind(
        TokenizerSpec,
        "interplay.data.tokenizer:build_tokenizer",
        makes="tokenizer",
        hue=175,
        planned=("task", "others"),
        settings=("algorithm", "vocab_size"),
    ),
    "corpus": Kind(
        CorpusSpec,
        "interplay.data.corpus:build_corpus",
        makes="corpus",
        hue=190,
        planned=study_keys.MIX,
        settings=("sequence_length", "mix"),
    ),
    "pretrain": Kind(
        train.PretrainSpec,
        hue=265,
        settings=("model.architecture", "model.hidden_size", "model.num_hidden_layers", "tokens", *TRAINING),
        starts_path=True,
        **LANGUAGE_MODEL,
    ),
    "midtrain": Kind(train.MidtrainSpec, hue=285, settings=("tokens", *TRAINING), **LANGUAGE_MODEL),
    "sft": Kind(
        train.SftSpec,
        hue=310,
        trainers={"trl": "interplay.train.trl:sft_with_trl"},
        settings=("tokens", *TRAINING),
        **LANGUAGE_MODEL,
    ),
    "rl": Kind(
        RLSpec,
        "interplay.rl.loop:train_policy",
        makes="model",
        hue=25,
        trainers={"trl": "interplay.rl.trl:train_with_trl", "verl": "interplay.rl.verl:train_with_verl"},
        references=study_keys.RLReferences,
        planned=study_keys.MIX,
        cost=formulas.Reinforcement(),
        logged=(
            *("reward", "strict", "answer", "score", "turns", "answer_first", "frac_all_pass", "frac_all_fail"),
            "effective_ratio",
            *COMPLETIONS,
            *("groups", "completions", "prompt_tokens", "drawn_op", "lr"),
            *UPDATE,
        ),
        logged_prefixes=("reward/", "drawn/", "sampling/", "sampler/", "critic/", "credit/", "curve/"),
        recorded=RLSpec.recorded,
        logs_kl=lambda spec: spec.method.loss.refers(),
        loss="policy loss",
        step="RL step",
        settings=(
            *("method.paper", "reward.name", "reward.form", "method.sampler.name", "method.allocation.num_generations"),
            *("method.advantage.name", "method.advantage.scale_rewards"),
            *("method.loss.loss_type", "method.loss.epsilon", "method.loss.beta", "prompts_per_step", "steps", "temperature"),
            *("optimizer.name", "optimizer.learning_rate"),
        ),
        processes=True,
        stacked="interplay.rl.loop:rl_replicas",
        keeps_state=True,
        light=CURVES,
    ),
    "teach": Kind(
        TeachSpec,
        "interplay.rl.teach:teach_student",
        makes="model",
        hue=10,
        references=study_keys.TeachReferences,
        planned=("mix", "task"),
        cost=formulas.Teaching(),
        logged=(
            *("valid", "distinct", "op", "op_max", "reward", "reward_std", "reward_best", "promoted", "lr_factor"),
            *("probe_before", "probe_after", "probe_student", "student_reward", "student_gain"),
            *("completions", "prompt_tokens", "completion_tokens", "tokens", "optimizer_steps"),
        ),
        logged_prefixes=("flaw/", "teacher/"),
        recorded=TeachSpec.recorded,
        step="outer step",
        settings=(
            *("proposer", "teacher_reward", "datasets", "problems_per_dataset", "inner_steps", "promote_threshold", "steps"),
            *("optimizer.learning_rate", "teacher_optimizer.learning_rate"),
        ),
        light=CURVES,
    ),
    "prefer": Kind(
        train.PreferSpec,
        "interplay.train.prefer:train_preferences",
        makes="model",
        hue=340,
        trainers={"trl": "interplay.train.trl:prefer_with_trl"},
        references=study_keys.PreferReferences,
        planned=study_keys.MIX,
        cost=formulas.Tuning(train.PreferSpec),
        logged=STEP,
        logged_prefixes=("rewards/", "logps/", "retain_", "eval_"),
        recorded=lambda spec: (*TRAINED, "pairs", "eval_loss", "eval_retain_nll", "eval_rewards/", "eval_logps/"),
        logs_kl=lambda spec: spec.loss_type == "kto",
        loss="preference loss",
        settings=("loss_type", "beta", *PAIRS_SETTINGS),
        processes=True,
        light=CURVES,
    ),
    "unlearn": Kind(
        train.UnlearnSpec,
        "interplay.train.unlearn:train_unlearning",
        makes="model",
        hue=60,
        references=study_keys.UnlearnReferences,
        planned=("forget_mix", "retain_mix"),
        cost=formulas.Tuning(train.UnlearnSpec),
        logged=(*STEP, "forget_loss", "retain_loss", "grad_cosine", "uniform_kl"),
        recorded=lambda spec: (*TRAINED, *(f"eval_{side}_loss{end}" for side in ("forget", "retain") for end in ("", "_before"))),
        logged_prefixes=("eval_",),
        loss="unlearning objective",
        settings=("objective", "formulation", "steps", "problems_per_step", "optimizer.name", "optimizer.learning_rate"),
        processes=True,
        light=CURVES,
    ),
    "reward_model": Kind(
        train.RewardModelSpec,
        "interplay.train.reward_model:train_reward_model",
        makes="model",
        hue=95,
        trainers={"trl": "interplay.train.trl:reward_with_trl"},
        references=study_keys.RewardModelReferences,
        planned=study_keys.MIX,
        cost=formulas.Tuning(train.RewardModelSpec),
        logged=(*STEP, "accuracy", "nll", "margin"),
        recorded=lambda spec: (*TRAINED, "pairs", *spec.evaluated()),
        logged_prefixes=("eval_",),
        loss="loss of pairs",
        settings=("heads", "margin", *PAIRS_SETTINGS),
        ends_path=True,
        processes=True,
        light=CURVES,
    ),
    "custom": Kind(
        train.OwnTrainerSpec,
        "interplay.train.loop:run_custom_trainer",
        makes="model",
        hue=75,
        references=study_keys.OwnTrainerReferences,
        planned=(*study_keys.MIX, *extension.FILLED),
        cost=formulas.Training(),
        settings=("function", "tokens", "options"),
        light=CURVES,
    ),
    "evaluate": Kind(
        EvaluateSpec,
        "interplay.evaluate.sampling:evaluate_model",
        makes="samples",
        hue=140,
        references=study_keys.EvaluateReferences,
        cost=formulas.Sampling(),
        settings=("num_samples", "temperature", "top_p", "top_k", "max_completion_length"),
        processes=True,
        stacked="interplay.evaluate.sampling:evaluate_replicas",
        light=("prompts.parquet",),
    ),
    "generate": Kind(
        GenerateSpec,
        "interplay.evaluate.generate:generate_rows",
        makes="problems",
        hue=185,
        references=study_keys.GenerateReferences,
        cost=formulas.Writing(),
        settings=("template", "num_samples", "temperature", "parse", "writes", "filters"),
        light=KEYS,
    ),
    "select": Kind(
        SelectSpec,
        "interplay.evaluate.sampling:select_checkpoint",
        makes="model",
        hue=45,
        references=study_keys.SelectReferences,
        planned=("candidates",),
        recorded=lambda spec: ("step", "value", "candidates"),
    ),
    "calibrate": Kind(
        CalibrateSpec,
        "interplay.evaluate.scores:calibrate_bands",
        makes="bands",
        hue=120,
        planned=("bands",),
        settings=("bands",),
        light=("bands.json",),
    ),
    "audit": Kind(
        AuditSpec,
        "interplay.data.audit:audit_set",
        makes="audit",
        hue=350,
        settings=("rows",),
        light=("audit.json",),
    ),
    "report": Kind(
        ReportSpec,
        "interplay.report.write.page:write_report",
        makes="report",
        hue=220,
        planned=tuple(ReportSpec.model_fields),
        reads_light=True,
    ),
}

SETS = tuple(kind for kind, row in KINDS.items() if row.makes == "problems")
"""Kinds that make a problem set."""
MODELS = tuple(kind for kind, row in KINDS.items() if row.makes == "model")
"""Kinds that leave a model: stages of paths."""


def makes(kind: str) -> str:
    """What a stage of the kind leaves (`Kind.makes`); empty for a name that is no kind."""
    return KINDS[kind].makes if kind in KINDS else ""


def function_of(kind: str, trainer: str = "native") -> str:
    """What makes a stage of the kind whose spec says this trainer."""
    return KINDS[kind].trainers.get(trainer, KINDS[kind].function)


def is_trainer(kind: str) -> bool:
    """Whether the kind is of the LM trainer, which spends tokens and reads corpora (train.spec.TrainSpec)."""
    return issubclass(KINDS[kind].spec, train.TrainSpec)


def length_key(kind: str) -> Literal["tokens", "steps"] | None:
    """The key of the spec that says how long a run is; None: it has no length."""
    fields = KINDS[kind].spec.model_fields
    return "tokens" if is_trainer(kind) else "steps" if "steps" in fields and KINDS[kind].makes == "model" else None


def read_by(consumer: str, kind: str) -> tuple[str, ...] | None:
    """Files that a stage of kind `consumer` reads of an input of kind `kind`, in addition to its record; None: any of them."""
    return KINDS[kind].light if KINDS[consumer].reads_light else None


def logged_names(kind: str, spec: model.Model) -> tuple[str, ...]:
    """What a stage logs under names that do not depend on the study."""
    row = KINDS[kind]
    return (*row.logged, KL) if row.logs_kl(spec) else row.logged


def is_logged(kind: str, spec: model.Model, name: str) -> bool:
    """Whether a stage may log a name."""
    return name in logged_names(kind, spec) or name.startswith(KINDS[kind].logged_prefixes)
