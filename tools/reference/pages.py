"""What docs/reference.md consists of: its headings, and the models whose keys stand below each."""

from typing import Any, get_args

from interplay.core import execution
from interplay.core.extension import Extension
from interplay.core.model import Model
from interplay.data import spec
from interplay.data.steps import spec as steps_spec
from interplay.evaluate import spec as evaluate_spec
from interplay.kinds.identity import models_in
from interplay.model import spec as model_spec
from interplay.report import comparison_spec
from interplay.report import spec as report_spec
from interplay.rl import spec as rl_spec
from interplay.rl.advantages import spec as advantages_spec
from interplay.rl.edits import spec as edits_spec
from interplay.rl.losses import spec as losses_spec
from interplay.rl.requests import spec as requests_spec
from interplay.rl.rewards import spec as rewards_spec
from interplay.rl.samplers import spec as samplers_spec
from interplay.rl.teaching import spec as teaching_spec
from interplay.rollout import spec as rollout_spec
from interplay.run import spec as run_spec
from interplay.study import spec as study_spec
from interplay.tasks import spec as tasks_spec
from interplay.train import spec as train_spec

Page = list[tuple[str, str, list[type[Model]]]]
SEAMS: dict[str, Any] = {
    "reward": rewards_spec.Reward,
    "sampler": samplers_spec.Sampler,
    "allocation": requests_spec.Allocation,
    "prompting": requests_spec.Prompting,
    "continuation": requests_spec.Continuation,
    "episode": rollout_spec.Episode,
    "decoding": rl_spec.Decoding,
    "critic": rl_spec.ValueHead,
    "shaping": rewards_spec.Shaping,
    "edit": edits_spec.Edit,
    "advantage": advantages_spec.Advantage,
    "loss": losses_spec.Loss,
}
"""Seam -> the union of its members."""


def members(union: Any) -> dict[type[Model], str]:
    """Members of a union -> their `name`, without the function of the user's own."""
    models = [one for one in models_in(union) if one is not Extension]
    return {one: str(get_args(one.model_fields["name"].annotation)[0]) for one in models}


def inside(models: dict[type[Model], str]) -> dict[type[Model], str]:
    """The models, and after each those that only its own keys lead to, such as the value model of a sampler."""
    found: dict[type[Model], str] = {}
    for one, title in models.items():
        found[one] = title
        for key, field in one.model_fields.items():
            found |= {part: f"{title}, {key}" for part in models_in(field.annotation) if part not in {*models, *SHARED, *found}}
    return found


SHARED = {Extension, tasks_spec.Verify}
TASKS, STEPS = inside(members(tasks_spec.Task)), members(steps_spec.Step)
MEMBERS = inside({one: f"{seam}: {name}" for seam, union in SEAMS.items() for one, name in members(union).items()})

PAGE: Page = [
    (
        "A study",
        "`configs/study/<name>.yaml`, the one file that an ablation edits. Its `defaults` list names the files that it takes "
        "in: a task, an RL method, another study to start from. Precedence: schema, then scale (by kind), then study, then arm; "
        "a value that is `set` replaces what stood there and is never merged.",
        [
            study_spec.Study,
            steps_spec.DataSet,
            study_spec.Arm,
            study_spec.BudgetSplit,
            study_spec.Nested,
            study_spec.Seeds,
            study_spec.ScaleChange,
            study_spec.Decontaminate,
            report_spec.Match,
        ],
    ),
    (
        "What a study shows and claims",
        "Tables, figures and claims are judged from the records of finished stages; what is missing is named.",
        [
            *(report_spec.Table, comparison_spec.Contrast, comparison_spec.Tune, report_spec.Gain),
            *(report_spec.Figure, report_spec.Extrapolate, report_spec.Claim, report_spec.Test),
        ],
    ),
    (
        "A scale",
        "`configs/scale/<name>.yaml`: how large a study is run. `--config study=edge scale=smoke` chooses it; "
        "`configs/config.yaml` names the usual one (`defaults`) and the studies that `snakemake all` builds (`studies`).",
        [study_spec.Scale],
    ),
    (
        "The task",
        "`configs/task/<name>.yaml`, taken in as `/task@task: <name>`. The scale and the study set its knobs, an "
        "arm as `task.key`.",
        [*TASKS],
    ),
    (
        "Data stages",
        "Problem sets come from `data` of the study; tokenizer and corpora are planned with the stages that need them. Under "
        "`kinds` of a scale, and under `corpus` of a stage, stand the keys below.",
        [spec.SourceSpec, spec.ProblemsSpec, spec.DatasetSpec, spec.Defects, spec.TokenizerSpec, spec.CorpusSpec],
    ),
    (
        "Curation",
        "A problem set with a `mix` of others and `steps` that are done to their rows, in order. Each row keeps its origin and "
        "the names of the steps that changed it.",
        [steps_spec.CurateSpec, *STEPS],
    ),
    (
        "Training stages",
        "A stage of a study has, beside the keys of its kind: `kind`; `data`, problem sets with shares that sum to 1; "
        "`validation`, a problem set for the loss by band; `corpus`, keys of how the data are packed; `run`, how it is "
        "executed. `pretrain`, `midtrain` and `sft` take the same keys; only `pretrain` has a `model`.",
        [train_spec.TrainSpec, model_spec.Shape, model_spec.Optimizer, model_spec.Schedule, train_spec.PositionJumps],
    ),
    (
        "Reinforcement learning",
        "A stage of kind `rl`. Its `method` is usually a file, `configs/method/<name>.yaml`, taken in as "
        "`/method@stages.<stage>.method: <name>`. Option names are TRL's.",
        [rl_spec.RLSpec, model_spec.TuneOptimizer, model_spec.TuneSchedule, rl_spec.Method],
    ),
    (
        "Teaching",
        "A stage of kind `teach`. `data` are the hard problems that say what a dataset is worth; with `proposer: instances`, "
        "`instances` names the problem set that datasets are drawn from. Option names that `rl` has mean the same for students. "
        "Its `metrics.jsonl` tells of each outer step the share of proposals that are problems (`valid`) and why others are none "
        "(`flaw/...`), their mean op, what datasets earned (`reward`, `reward_std`), the pass rate on the hard problems of the "
        "student (`probe_before`), of those that were trained (`probe_after`) and of the one that goes on (`probe_student`), and "
        "whether that is a new one (`promoted`).",
        [teaching_spec.TeachSpec],
    ),
    (
        "Preference optimisation",
        "A stage of kind `prefer`, whose `data` are sets of pairs (step `preference_pairs`, `rated_pairs` or `conflict_pairs`). "
        "`validation` may name such a set, too: its loss, rewards and accuracy are then measured as `eval_...`. Option names are "
        "TRL's.",
        [train_spec.PreferSpec],
    ),
    (
        "Unlearning",
        "A stage of kind `unlearn`. In place of `data` it has `forget` and `retain`, problem sets with shares that sum to 1 on "
        "either side. What objective uld leaves, a model and an assistant, can be evaluated and not trained on.",
        [train_spec.UnlearnSpec],
    ),
    (
        "Reward models",
        "A stage of kind `reward_model`, whose `data` and `validation` are sets of pairs. `samples` may name an evaluate stage: "
        "among its samples by the model before, the record tells how often the best by reward is right. What follows on a path, "
        "its evaluations too, starts from the model before, since a reward model writes nothing.",
        [train_spec.RewardModelSpec, train_spec.Routing],
    ),
    (
        "Members of the seams",
        "Each is chosen by its `name`. `custom` is a function of the study's own.",
        [*MEMBERS, Extension, tasks_spec.Verify],
    ),
    (
        "Selection",
        "A stage of kind `select` on a path, after a stage that keeps checkpoints: what follows starts from the best of them.",
        [evaluate_spec.SelectSpec],
    ),
    (
        "Evaluation",
        "A stage of kind `evaluate`, whose `data` is the name of one problem set. With `along: STAGE` it makes a training "
        "ladder: one training stage with `checkpoints`, an evaluation of each; a figure `{x: step, y: strict_pass@1}` shows it.",
        [evaluate_spec.EvaluateSpec],
    ),
    ("The run block", "`run` of a stage or of a kind in a scale.", [execution.Run]),
    (
        "The site",
        "`configs/site.yaml`, for `snakemake --profile slurm all`: the one file to edit for a cluster.",
        [run_spec.Site],
    ),
]
"""Heading, what it is about, and the models whose keys it lists."""

TITLES: dict[type[Model], str] = {
    study_spec.Study: "The study's keys",
    steps_spec.DataSet: "data.<name>",
    study_spec.Arm: "arms.<name>",
    study_spec.BudgetSplit: "arms.<name>.split",
    study_spec.Nested: "arms.<name>.nested.<key>",
    study_spec.Seeds: "seeds",
    report_spec.Match: "match",
    report_spec.Table: "tables.<name>",
    comparison_spec.Contrast: "tables.<name>.contrast",
    comparison_spec.Tune: "tables.<name>.contrast.tune",
    report_spec.Gain: "tables.<name>.gain",
    report_spec.Figure: "figures.<name>",
    report_spec.Extrapolate: "figures.<name>.extrapolate",
    report_spec.Claim: "claims",
    report_spec.Test: "claims.test",
    study_spec.ScaleChange: "scales.<name>",
    study_spec.Decontaminate: "decontaminate",
    study_spec.Scale: "The scale's keys",
    **TASKS,
    spec.SourceSpec: "kind: source",
    spec.ProblemsSpec: "kind: problems",
    spec.DatasetSpec: "kind: dataset",
    spec.Defects: "defects",
    steps_spec.CurateSpec: "kind: curate",
    **{one: f"step: {name}" for one, name in STEPS.items()},
    spec.TokenizerSpec: "kind: tokenizer",
    spec.CorpusSpec: "kind: corpus",
    train_spec.TrainSpec: "kind: pretrain, midtrain, sft",
    model_spec.Shape: "model",
    model_spec.Optimizer: "optimizer",
    model_spec.Schedule: "schedule",
    train_spec.PositionJumps: "position_jumps",
    rl_spec.RLSpec: "kind: rl",
    rl_spec.Method: "method",
    teaching_spec.TeachSpec: "kind: teach",
    train_spec.PreferSpec: "kind: prefer",
    model_spec.TuneOptimizer: "optimizer of rl, teach, prefer, unlearn and reward_model",
    model_spec.TuneSchedule: "schedule of rl, teach, prefer, unlearn and reward_model",
    train_spec.RewardModelSpec: "kind: reward_model",
    train_spec.Routing: "routing",
    train_spec.UnlearnSpec: "kind: unlearn",
    **MEMBERS,
    Extension: "custom",
    tasks_spec.Verify: "verify",
    evaluate_spec.SelectSpec: "kind: select",
    evaluate_spec.EvaluateSpec: "kind: evaluate",
    execution.Run: "run",
    run_spec.Site: "the site",
}
PLANNED = {
    spec.SourceSpec: {"sha256"},
    spec.CorpusSpec: {"mix"},
    spec.TokenizerSpec: {"others"},
    steps_spec.CurateSpec: {"mix", "seed"},
    spec.DatasetSpec: {"sha256"},
    train_spec.TrainSpec: {"seed"},
    rl_spec.RLSpec: {"mix", "seed"},
    teaching_spec.TeachSpec: {"mix", "seed", "task"},
    train_spec.PreferSpec: {"mix", "seed"},
    train_spec.RewardModelSpec: {"mix", "seed"},
    train_spec.UnlearnSpec: {"forget_mix", "retain_mix", "seed"},
    evaluate_spec.EvaluateSpec: {"first_sample"},
    evaluate_spec.SelectSpec: {"candidates"},
    Extension: {"source"},
}
"""Keys that the planner fills in from other parts of the study."""
