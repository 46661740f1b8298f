"""The study: the one file that a researcher edits; and the scale: models, budgets, band edges."""

from functools import cache
from typing import Annotated, Any, Literal, Union

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from interplay.core.keys import ByName, Written, checked, error_at, partial_model, table_model, union_of
from interplay.core.model import Count, Model, Natural, Share, first_repeated
from interplay.data.spec import DataSet, SetChange, Split, TokenizerSpec
from interplay.data.steps.spec import Contamination
from interplay.evaluate.spec import BandRules
from interplay.kinds.study_keys import References, Settings
from interplay.kinds.table import KINDS
from interplay.report.claim_spec import Claim
from interplay.report.display_spec import Figure, Table, Target
from interplay.report.shown_spec import check_color
from interplay.report.spec import Controls, Match, Pilot, Stopping
from interplay.tasks.spec import FamilyKeys, TaskKeys

# The stages of a study, by kind, and what a scale may set for a kind. A stage has the keys of its kind's spec, the keys by which
# it refers to problem sets and other stages, and a `run` block; none is required, since scale, study and arm each give some.


REFERENCES: dict[str, type[References]] = {kind: row.references for kind, row in KINDS.items() if row.references}
"""Kinds of a study's stages, and what they refer to."""


def _partial(row: str, name: str, base: type[Settings], **more: Any) -> type[Model]:
    title = "".join(word.capitalize() for word in row.split("_"))
    return partial_model(KINDS[row].spec, f"{title}{name}", KINDS[row].planned, (base,), **more)


@cache
def stage_model(kind: str) -> type[Model]:
    """The model of a stage of this kind as a study writes it."""
    tag: Any = Literal[kind]
    tag = Annotated[tag, Field(description="Kind of the stage; it says which keys the stage has.")]
    return _partial(kind, "Stage", REFERENCES[kind], kind=(tag, None))


@cache
def _settings() -> type[Model]:
    models = {kind: _partial(kind, "Settings", Settings) for kind in KINDS}
    return table_model("KindTable", models, "Keys of the spec, and `run`, of kind")


StageKeys = Annotated[dict[str, Any], Written(lambda: union_of(map(stage_model, REFERENCES), "kind"))]
"""A stage of a study."""
ChangeKeys = Annotated[dict[str, Any], Written(lambda: Union[tuple(map(stage_model, REFERENCES))], later=True)]  # noqa: UP007
"""Keys of a stage whose kind is given elsewhere in the study, which checks them."""
KindKeys = Annotated[dict[str, dict[str, Any]], Written(_settings)]
"""Per kind keys of its spec, and `run`."""


class Nested(Model):
    """An axis that exists only where another key has certain values."""

    under: dict[str, list[Any]]
    """`stage.key: [values]`: the axis is active where each of these keys has one of its values."""
    values: list[Any]
    """What the axis' own key takes there; elsewhere it stays as it is."""


class BudgetSplit(Model):
    """One budget, shared between a mid-training and an RL stage of the path (arXiv:2512.07783, section 5). The planner sets the
    tokens of the one, (1 - rl_share) of the budget in whole batches, and the steps of the other, for which (5/3) N r L comes
    nearest to the rest: N prompts in all, r = num_generations, L = max_prompt_length + max_completion_length. A stage
    without a share leaves the path."""

    tokens: Count | None = None
    """The budget, as `match: {budget: tokens, accounting: paper}` counts it; null: an axis, `split.tokens`, gives it."""
    rl_share: Share | None = None
    """Share that RL is charged: 0 for mid-training alone, 1 for RL alone; null: an axis, `split.rl_share`, gives it."""
    mid: str = "mid"
    """Name of the midtrain (or sft) stage."""
    rl: str = "rl"
    """Name of the RL stage."""


class Rounds(Model):
    """Stages of a path that are repeated."""

    repeat: Annotated[int, Field(ge=2, le=100)]
    """How often."""
    stages: list[str]
    """Stages of a round, in order."""


class Arm(Model):
    """A path through the named stages, each starting from the one before it; with axes, one arm per combination of values,
    named `arm[key=value,...]`. Controls, matches, claims and tables can name such an arm.

    An arm differs from its control in its path, in what it sets, in what `differs` names, and in nothing else: that is checked.
    Keys of axes are `stage.key`, `task.key` for the task of all the arm's data, or `split.tokens` and `split.rl_share`; they are
    applied above `set`, but for keys of `set` that lead into the value of an axis."""

    path: Annotated[list[str], BeforeValidator(lambda value: value, json_schema_input_type=list[str | Rounds])]
    """Stages in order; the first is a pretrain or a source. `stage@step` goes on from a checkpoint that the stage keeps.
    `{repeat: 3, stages: [sft]}` has these stages three times, each round starting from the one before: the further rounds are
    stages of their own, `sft_2` and `sft_3`, of which arms can set keys; what an arm sets of `sft` it sets of all rounds. A set
    with `arm: before` is made anew for each round, with the model that the round starts from."""
    control: str | None = None
    """The arm that this one is to be compared with. Where that arm has axes, give one of its combinations, or its plain name for
    the one with the same values in brackets. A combination that is itself the control of its siblings has none."""
    set: dict[str, Any] = {}
    """`stage.key: value` or `task.key: value`; the value replaces the stage's own and is never merged. A key that leads into
    the value of another, such as `rl.method.sampler.unit` into that of `rl.method.sampler`, is applied after it, in any
    order of writing."""
    differs: list[str] = []
    """Further keys in which the arm differs from its control, such as one that the control sets and this arm does not."""
    grid: dict[str, list[Any]] = {}
    """`stage.key: [values]`; every combination of the values of all keys. A key may lead into the values of
    another, such as `rl.method.loss.beta` into those of `rl.method`."""
    zip: dict[str, list[Any]] = {}
    """`stage.key: [values]`; lists of equal length walked in step: the first values together, then the second ones."""
    one_at_a_time: dict[str, list[Any]] = {}
    """`stage.key: [values]`; the arm as it is, and one arm for each other value of each key, whose control it is. Further
    axes multiply all of them."""
    nested: dict[str, Nested] = {}
    """`stage.key: {under: {stage.key: [values]}, values: [values]}`; an axis that is active only under values of another key."""
    exclude: list[dict[str, Any]] = []
    """Combinations to leave out, each given by some of its keys and values; each must leave out something."""
    coincides: str = ""
    """Why it is wanted although its RL stage has a loss that acts on ratios where all are exactly 1, or is trained by the very
    gradients of another arm, as most losses are at one optimiser step a batch. Else both are refused. It changes no stage."""
    label: str = ""
    """What it is called in tables, figures and MLflow. `{beta}` is the value of the axis whose key ends so; with axes, each
    combination needs a label of its own. Empty: made of its name. Like `color` it changes no stage but the report."""
    color: Annotated[str, AfterValidator(check_color)] = ""
    """Its colour in figures: #rrggbb, grey, blue, vermilion, green, pink, orange, sky or purple; of combinations from light to
    full. Empty: by its place among the arms."""
    replicate_with: Literal["trl"] | None = None
    """Also run the arm with this trainer, as an arm `ARM_trl` that differs in nothing else and has this one as its control; the
    report names claims whose verdict differs between the two. Null: it is run once."""
    split: BudgetSplit | None = None
    """A budget that two stages of the path share; their `tokens` and `steps` are then worked out and are not set."""


def _each_once(values: list[int]) -> list[int]:
    if (repeated := first_repeated(values)) is not None:
        raise ValueError(f"{repeated} is given twice; give each once")
    return values


SEED = "{seed}"
"""In the path of a model folder: the seed of the replicate."""
SeedValues = Annotated[list[Natural], Field(min_length=1), AfterValidator(_each_once)]
Ops = Annotated[list[Count], Field(min_length=1), AfterValidator(_each_once)]


MOST_REPLICATES = 1000
Replicates = Annotated[int, Field(ge=1, le=MOST_REPLICATES)]


class Seeds(Model):
    """Repetitions. Stages not named in `vary` are made once, at the first value, and shared."""

    values: SeedValues | None = None
    """Seed values; the first is that of stages that do not vary. Null: the scale's."""
    vary: list[str]
    """Stages that are repeated at every seed (and with them all that follows)."""

    @model_validator(mode="after")
    def _something_varies(self) -> "Seeds":
        if len(self.values or ()) > 1 and not self.vary:
            raise ValueError(f"vary = []: nothing is repeated at the {len(self.values or ())} values; name the stages that are")
        return self


class Decontaminate(Contamination):
    """A contamination step over each problem set that some stage is trained on."""

    against: list[str] | None = None
    """Problem sets to compare with; null: those of the evaluations."""


PINNED = "pinned_"
"""Before the name of a calibrated band: the scale's ops of it."""


class Calibrate(Model):
    """Bands whose ops are chosen for each base, by a stage of kind `calibrate`, and not pinned by the scale. What reads such a
    band depends on the calibration and learns the ops when it runs; each base has problems of its own. The scale's ops of a
    calibrated band go on as `pinned_BAND`, which what the base itself is trained on must name, and which can have a column of
    its own; rows that are not evaluated are labelled BAND, so that a base is the same in a study without calibration."""

    arm: str
    """The arm whose end is calibrated at each seed, for all arms: mostly the base."""
    evaluate: str
    """The evaluate stage that says how the prompts are sampled; its `data`, if any, is not read."""
    bands: BandRules
    """Band -> pass rates that its ops have, ends included, `edge: {strict_pass@1: [0.05, 0.5], strict_pass@32: [0.2, 1]}`. An op
    is in every band whose rates it has; rates are first made non-increasing in op, so that noise leaves no gap in a band. Where
    no op has them, the nearest one is trained on, and results leave it out (`lacking`)."""
    ops: Annotated[list[Count], Field(min_length=2)] | None = None
    """Candidates. Null: all from the least to the largest op of the scale's bands."""
    prompts: Count = 100
    """Held-out prompts of each candidate. They are of split validation, on which nothing is trained or judged then."""
    lacking: Literal["not tested", "left out"] = "not tested"
    """What becomes of a claim on a band that some base has not, since none of its ops fits the rule: not tested, or tested over
    the other bases, which is then what it is about. Tables leave out such bases in either case, and say which."""


class FitKeys(Settings):
    """What a study sets for its tokenizer, in addition to keys of its spec."""

    data: list[str] = []
    """Problem sets that `algorithm: bpe` learns from."""


@cache
def _tokenizer() -> type[Model]:
    return partial_model(TokenizerSpec, "TokenizerKeys", KINDS["tokenizer"].planned, (FitKeys,))


TokenizerKeys = Annotated[dict[str, Any], Written(_tokenizer)]


class ScaleChange(Model):
    """What a study changes of a scale: each key given here replaces the scale's of that name, one level down."""

    knobs: dict[str, float | int | str | bool] = {}
    """Values of the study's knobs."""
    task: Annotated[TaskKeys, ByName("task")] = {}
    """The task in place of the study's, whole, such as another family: the same question on another surface."""
    tokenizer: TokenizerKeys = {}
    """The tokenizer in place of the study's, whole."""
    tasks: FamilyKeys = {}
    """Name of a family -> keys of its task."""
    bands: dict[str, Ops] = {}
    """Ops of bands."""
    sizes: dict[Split, Count] = {}
    """Problems per band of each split."""
    per_op: dict[Split, Count] = {}
    """Problems per op of each split, in place of `sizes`."""
    seeds: SeedValues | None = None
    """Seed values of studies that vary their seeds without listing values."""
    replicates: Replicates | None = None
    """Number of replicates in place of the study's."""
    kinds: KindKeys = {}
    """Per kind: keys of its spec, and `run`."""
    data: dict[str, SetChange] = {}
    """Name of a problem set -> keys of it that differ at this scale, such as its file or the size of a context. Under a name that
    the study has not, a whole set that exists at this scale alone."""
    stages: dict[str, ChangeKeys] = {}
    """Name of a stage -> keys of it that differ at this scale, such as the mix of its data; each replaces the stage's own."""
    pilot: Pilot | None = None
    """What a pilot of this study measured; it changes no stage."""


class Study(Model):
    """A question, the stages that may answer it, the arms that combine them, and what is shown and claimed."""

    question: str
    """What is asked, in a sentence; heads the report."""
    source: str = ""
    """Paper and figure."""
    task: Annotated[TaskKeys, ByName("task")] = {}
    """A file of configs/task by its name, or keys of the task family; they override the scale's. A study whose problem sets all
    come from files needs none."""
    knobs: dict[str, float | int | str | bool] = {}
    """Name -> a value that other keys of the study take up as `${knobs.NAME}`; each scale may set its own."""
    tokenizer: TokenizerKeys = {}
    """Keys of the tokenizer that fresh models share; its tasks are those of the study and of its problem sets. With
    `algorithm: bpe` also `data`, the names of the sets that it learns from: without it, all that are of split train."""
    data: dict[str, DataSet]
    """Name -> problem set."""
    decontaminate: Decontaminate | None = None
    """Check the sets that stages are trained on for rows that are like those of the evaluations; {} takes every default, which
    refuses them."""
    calibrate: Calibrate | None = None
    """Choose the ops of bands for each base; null: all bands are the scale's."""
    stages: dict[str, StageKeys]
    """Name -> {kind, data, run, ...keys of the kind's spec}."""
    arms: dict[str, Arm]
    """Name -> arm. The order is that of tables and figures."""
    evaluate: list[str]
    """Evaluate stages run at the end of every path; those with `along: STAGE` run along that stage instead: on the model that it
    starts from, each checkpoint that it keeps and its end, in the arms whose path has it."""
    replicates: Replicates | None = None
    """Number of replicates: bases of their own initialisation and order of data, each with all arms on it and one seed for the
    stages after it. Short for `seeds: {values: [0, ..., N - 1], vary: [every stage that is trained]}`."""
    seeds: Seeds | None = None
    """Null: the scale's."""
    match: list[Match] = []
    """Budgets that arms share; one or a list of them."""
    controls: Literal["standard"] | Controls | None = None
    """Arms that may explain the gain of an RL arm without its reward, which the plan adds; they have a table of their own."""
    targets: dict[str, Target] = {}
    """Name -> level of a learning curve, which tables and claims name in place of a band."""
    tables: dict[str, Table] = {}
    """Name -> table of the report."""
    figures: dict[str, Figure] = {}
    """Name -> figure of the report."""
    key_figure: str = ""
    """The figure that the page shows right below its claims. Empty: the first of `figures` that is drawn."""
    claims: list[Claim] = []
    """What is asserted, each with its test."""
    stopping: Stopping | None = None
    """When claims are judged while `interplay settle` adds replicates; null: once, with all of them."""
    exploratory: bool = False
    """Whether all claims are: asserted without the power to show them. It changes no stage."""
    scales: dict[str, ScaleChange] = {}
    """Name of a scale -> what this study needs otherwise there: sizes, surface and settings, never the question."""

    @field_validator("question")
    @classmethod
    def _asked(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("it is empty; write what the study asks, in a sentence")
        return value

    @field_validator("claims")
    @classmethod
    def _distinct_claims(cls, value: list[Claim]) -> list[Claim]:
        said = [claim.says for claim in value]
        if twice := next((one for one in said if said.count(one) > 1), None):
            raise ValueError(f"two claims say '{twice}'; results know a claim by what it says: write each another way")
        return value

    @field_validator("match", mode="before", json_schema_input_type=Match | list[Match])
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _one_spelling(self) -> "Study":
        if self.seeds is not None and (self.replicates or any(change.replicates for change in self.scales.values())):
            raise ValueError("replicates and seeds both say what is repeated; keep one of them")
        return self

    @field_validator("scales", mode="after")
    @classmethod
    def _of_their_kinds(cls, value: dict[str, ScaleChange], info: ValidationInfo) -> dict[str, ScaleChange]:
        """The stages that a scale changes have keys of their kinds."""
        stages, wrong = info.data.get("stages", {}), []
        for scale, change in value.items():
            for name, keys in change.stages.items():
                kind = stages.get(name, {}).get("kind")
                try:
                    checked({"kind": kind, **keys}, stage_model(kind).model_validate) if REFERENCES.get(kind) else None
                except ValidationError as error:
                    wrong += [error_at(found, scale, "stages", name) for found in error.errors(include_url=False)]
        if wrong:
            raise ValidationError.from_exception_data(cls.__name__, wrong)
        return value


class Scale(Model):
    """How large a study is run. It never changes the question."""

    studies: list[str] | None = None
    """Studies whose plans at this scale are committed and checked; null: all. Others run at it without a lock, where they fit."""

    lock: Literal["stages", "report"] = "stages"
    """What is committed of a plan: a line for each stage, or the report's digest alone; the other digests are then planned again
    from a commit where they are asked for."""
    tasks: FamilyKeys = {}
    """Name of a family -> keys of its task; the study's override them."""
    bands: dict[str, Ops]
    """Ops of each band: pinned, but for those that a study calibrates."""
    sizes: dict[Split, Count]
    """Problems per band of each split."""
    per_op: dict[Split, Count] = {}
    """Problems per op of each split, in place of `sizes`: a set of several bands then holds as many of each op."""
    seeds: SeedValues = [0]
    """Seed values of studies that vary their seeds without listing values."""
    kinds: KindKeys
    """Per kind: keys of its spec, and `run`. `dtype: int8` does not hold in studies with a stage of kind `source`."""
    pilot: Pilot | None = None
    """What a pilot measured at this scale, for the power that `interplay plan` prints; it changes no stage."""
