"""What docs/reference.md consists of: its headings, and the models whose keys stand below each."""

from typing import Any, get_args

from interplay.schema import (
    advantage,
    contrast,
    critic,
    curate,
    data,
    dataset,
    decoding,
    edit,
    episode,
    evaluate,
    loss,
    model,
    planner,
    prefer,
    report,
    reward,
    reward_model,
    rl,
    run,
    sampler,
    select,
    sets,
    shaping,
    site,
    study,
    task,
    teach,
    train,
    unlearn,
    verify,
)
from interplay.schema.base import Model
from interplay.schema.custom import Custom
from interplay.schema.identity import models_in

Page = list[tuple[str, str, list[type[Model]]]]
SEAMS: dict[str, Any] = {
    "reward": reward.Reward,
    "sampler": sampler.Sampler,
    "planner": planner.AnyPlanner,
    "episode": episode.Episode,
    "decoding": decoding.Decoding,
    "critic": critic.ValueHead,
    "shaping": shaping.Shaping,
    "edit": edit.Edit,
    "advantage": advantage.Advantage,
    "loss": loss.Loss,
}
"""Seam -> the union of its members."""


def members(union: Any) -> dict[type[Model], str]:
    """Members of a union -> their `name`, without the function of the user's own."""
    models = [one for one in models_in(union) if one is not Custom]
    return {one: str(get_args(one.model_fields["name"].annotation)[0]) for one in models}


def inside(models: dict[type[Model], str]) -> dict[type[Model], str]:
    """The models, and after each those that only its own keys lead to, such as the value model of a sampler."""
    found: dict[type[Model], str] = {}
    for one, title in models.items():
        found[one] = title
        for key, field in one.model_fields.items():
            found |= {part: f"{title}, {key}" for part in models_in(field.annotation) if part not in {*models, *SHARED, *found}}
    return found


SHARED = {Custom, verify.Verify}
TASKS, STEPS = inside(members(task.Task)), members(curate.Step)
MEMBERS = inside({one: f"{seam}: {name}" for seam, union in SEAMS.items() for one, name in members(union).items()})

PAGE: Page = [
    (
        "A study",
        "`configs/study/<name>.yaml`, the one file that an ablation edits. Its `defaults` list names the files that it takes "
        "in: a task, an RL method, another study to start from. Precedence: schema, then scale (by kind), then study, then arm; "
        "a value that is `set` replaces what stood there and is never merged.",
        [
            study.Study,
            sets.DataSet,
            study.Arm,
            study.BudgetSplit,
            study.Nested,
            study.Seeds,
            study.ScaleChange,
            study.Decontaminate,
            report.Match,
        ],
    ),
    (
        "What a study shows and claims",
        "Tables, figures and claims are judged from the records of finished stages; what is missing is named.",
        [
            *(report.Table, contrast.Contrast, contrast.Tune, report.Gain),
            *(report.Figure, report.Extrapolate, report.Claim, report.Test),
        ],
    ),
    (
        "A scale",
        "`configs/scale/<name>.yaml`: how large a study is run. `--config study=edge scale=smoke` chooses it; "
        "`configs/config.yaml` names the usual one (`defaults`) and the studies that `snakemake all` builds (`studies`).",
        [study.Scale],
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
        [data.SourceSpec, data.ProblemsSpec, dataset.DatasetSpec, dataset.Defects, data.TokenizerSpec, data.CorpusSpec],
    ),
    (
        "Curation",
        "A problem set with a `mix` of others and `steps` that are done to their rows, in order. Each row keeps its origin and "
        "the names of the steps that changed it.",
        [curate.CurateSpec, *STEPS],
    ),
    (
        "Training stages",
        "A stage of a study has, beside the keys of its kind: `kind`; `data`, problem sets with shares that sum to 1; "
        "`validation`, a problem set for the loss by band; `corpus`, keys of how the data are packed; `run`, how it is "
        "executed. `pretrain`, `midtrain` and `sft` take the same keys; only `pretrain` has a `model`.",
        [train.TrainSpec, model.Shape, model.Optimizer, model.Schedule, train.PositionJumps],
    ),
    (
        "Reinforcement learning",
        "A stage of kind `rl`. Its `method` is usually a file, `configs/method/<name>.yaml`, taken in as "
        "`/method@stages.<stage>.method: <name>`. Option names are TRL's.",
        [rl.RLSpec, model.TuneOptimizer, model.TuneSchedule, rl.Method],
    ),
    (
        "Teaching",
        "A stage of kind `teach`. `data` are the hard problems that say what a dataset is worth; with `proposer: instances`, "
        "`instances` names the problem set that datasets are drawn from. Option names that `rl` has mean the same for students. "
        "Its `metrics.jsonl` tells of each outer step the share of proposals that are problems (`valid`) and why others are none "
        "(`flaw/...`), their mean op, what datasets earned (`reward`, `reward_std`), the pass rate on the hard problems of the "
        "student (`probe_before`), of those that were trained (`probe_after`) and of the one that goes on (`probe_student`), and "
        "whether that is a new one (`promoted`).",
        [teach.TeachSpec],
    ),
    (
        "Preference optimisation",
        "A stage of kind `prefer`, whose `data` are sets of pairs (step `preference_pairs`, `rated_pairs` or `conflict_pairs`). "
        "`validation` may name such a set, too: its loss, rewards and accuracy are then measured as `eval_...`. Option names are "
        "TRL's.",
        [prefer.PreferSpec],
    ),
    (
        "Unlearning",
        "A stage of kind `unlearn`. In place of `data` it has `forget` and `retain`, problem sets with shares that sum to 1 on "
        "either side. What objective uld leaves, a model and an assistant, can be evaluated and not trained on.",
        [unlearn.UnlearnSpec],
    ),
    (
        "Reward models",
        "A stage of kind `reward_model`, whose `data` and `validation` are sets of pairs. `samples` may name an evaluate stage: "
        "among its samples by the model before, the record tells how often the best by reward is right. What follows on a path, "
        "its evaluations too, starts from the model before, since a reward model writes nothing.",
        [reward_model.RewardModelSpec, reward_model.Routing],
    ),
    (
        "Members of the seams",
        "Each is chosen by its `name`. `custom` is a function of the study's own.",
        [*MEMBERS, Custom, verify.Verify],
    ),
    (
        "Selection",
        "A stage of kind `select` on a path, after a stage that keeps checkpoints: what follows starts from the best of them.",
        [select.SelectSpec],
    ),
    (
        "Evaluation",
        "A stage of kind `evaluate`, whose `data` is the name of one problem set. With `along: STAGE` it makes a training "
        "ladder: one training stage with `checkpoints`, an evaluation of each; a figure `{x: step, y: strict_pass@1}` shows it.",
        [evaluate.EvaluateSpec],
    ),
    ("The run block", "`run` of a stage or of a kind in a scale.", [run.Run]),
    ("The site", "`configs/site.yaml`, for `snakemake --profile slurm all`: the one file to edit for a cluster.", [site.Site]),
]
"""Heading, what it is about, and the models whose keys it lists."""

TITLES: dict[type[Model], str] = {
    study.Study: "The study's keys",
    sets.DataSet: "data.<name>",
    study.Arm: "arms.<name>",
    study.BudgetSplit: "arms.<name>.split",
    study.Nested: "arms.<name>.nested.<key>",
    study.Seeds: "seeds",
    report.Match: "match",
    report.Table: "tables.<name>",
    contrast.Contrast: "tables.<name>.contrast",
    contrast.Tune: "tables.<name>.contrast.tune",
    report.Gain: "tables.<name>.gain",
    report.Figure: "figures.<name>",
    report.Extrapolate: "figures.<name>.extrapolate",
    report.Claim: "claims",
    report.Test: "claims.test",
    study.ScaleChange: "scales.<name>",
    study.Decontaminate: "decontaminate",
    study.Scale: "The scale's keys",
    **TASKS,
    data.SourceSpec: "kind: source",
    data.ProblemsSpec: "kind: problems",
    dataset.DatasetSpec: "kind: dataset",
    dataset.Defects: "defects",
    curate.CurateSpec: "kind: curate",
    **{one: f"step: {name}" for one, name in STEPS.items()},
    data.TokenizerSpec: "kind: tokenizer",
    data.CorpusSpec: "kind: corpus",
    train.TrainSpec: "kind: pretrain, midtrain, sft",
    model.Shape: "model",
    model.Optimizer: "optimizer",
    model.Schedule: "schedule",
    train.PositionJumps: "position_jumps",
    rl.RLSpec: "kind: rl",
    rl.Method: "method",
    teach.TeachSpec: "kind: teach",
    prefer.PreferSpec: "kind: prefer",
    model.TuneOptimizer: "optimizer of rl, teach, prefer, unlearn and reward_model",
    model.TuneSchedule: "schedule of rl, teach, prefer, unlearn and reward_model",
    reward_model.RewardModelSpec: "kind: reward_model",
    reward_model.Routing: "routing",
    unlearn.UnlearnSpec: "kind: unlearn",
    **MEMBERS,
    Custom: "custom",
    verify.Verify: "verify",
    select.SelectSpec: "kind: select",
    evaluate.EvaluateSpec: "kind: evaluate",
    run.Run: "run",
    site.Site: "the site",
}
PLANNED = {
    data.SourceSpec: {"sha256"},
    data.CorpusSpec: {"mix"},
    data.TokenizerSpec: {"others"},
    curate.CurateSpec: {"mix", "seed"},
    dataset.DatasetSpec: {"sha256"},
    train.TrainSpec: {"seed"},
    rl.RLSpec: {"mix", "seed"},
    teach.TeachSpec: {"mix", "seed", "task"},
    prefer.PreferSpec: {"mix", "seed"},
    reward_model.RewardModelSpec: {"mix", "seed"},
    unlearn.UnlearnSpec: {"forget_mix", "retain_mix", "seed"},
    evaluate.EvaluateSpec: {"first_sample"},
    select.SelectSpec: {"candidates"},
    Custom: {"source"},
}
"""Keys that the planner fills in from other parts of the study."""
