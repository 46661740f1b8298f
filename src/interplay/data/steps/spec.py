"""Specs of the `curate` stage, and of its steps that select, label, rate, corrupt or rewrite rows; steps as a study has them."""

from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.keys import ORDERED, Keys, Mix, Written, partial_model, union_of
from interplay.core.model import Count, Model, Natural, Share, Since
from interplay.data.steps import context_spec as context, turns_spec as turns
from interplay.data.steps.context_spec import SampledSolutions, SampledStep, StepModel

# Steps that label rows with a band of difficulty.


Intervals = Annotated[dict[str, Annotated[tuple[float, float], ORDERED]], Field(min_length=1)]


class Bands(StepModel):
    """Common options of the labelling steps."""

    LEAVES_QUESTIONS: ClassVar[bool] = True
    bands: Intervals
    """Name -> [low, high], both included; the first that contains a row's value becomes its band. A row in none keeps its band
    and is counted."""
    edges: Literal["value", "quantile"] = "value"
    """Whether low and high are values, or shares of the rows in ascending order of value, equal values sharing a place."""

    @model_validator(mode="after")
    def _shares(self) -> "Bands":
        for name, (low, high) in self.bands.items():
            if self.edges == "quantile" and not (low >= 0 and high <= 1):
                raise ValueError(f"band '{name}': quantiles lie in [0, 1], unlike {[low, high]}")
        return self


class Label(Bands):
    """Bands by a property of the row itself."""

    RUN: ClassVar[str] = "filter:label_rows"
    name: Literal["label"] = "label"
    by: Literal["op", "prompt", "solution"] = "op"
    """op: operations, hops or levels; prompt, solution: characters."""


class Difficulty(Bands, SampledStep):
    """Bands by the share of right samples (a lower share is harder), over all samples of the evaluation."""

    RUN: ClassVar[str] = "filter:label_difficulty"
    name: Literal["difficulty"] = "difficulty"


# A step of the study's own.


class CustomStep(Extension, StepModel):
    """A function of the user's own, `function(rows, **options) -> rows`, over all rows as dicts of the columns. It may drop,
    order, change and repeat rows; those that it changes carry its name among their transforms."""

    UNION: ClassVar[str] = "step"
    RUN: ClassVar[str] = "filter:apply_custom"


# Pairs labelled by simulated raters of different preferences.


Rater = Literal["shorter", "longer", "more_steps", "fewer_steps", "right"]


class RatedPairs(SampledSolutions):
    """Pairs of samples of a row, each labelled by one of several simulated raters, whose name is stored in the column `rater`. A
    rater prefers the higher of a computed score, so raters are consistent and may contradict each other: synthetic users as in
    FSPO (arXiv:2502.19312) and MiCRo (arXiv:2505.24846), whose raters are language models and people."""

    RUN: ClassVar[str] = "filter:make_rated_pairs"
    name: Literal["rated_pairs"] = "rated_pairs"
    raters: Annotated[list[Rater], Field(min_length=1)] = ["shorter", "more_steps", "right"]
    """shorter, longer: by characters; more_steps, fewer_steps: by separators; right: by the verifier. Each pair has one of
    them, in rotation in an order drawn from the stage's seed; a rater that scores both equally passes the pair to the next."""
    told: Share = 0.0
    """Share of the rows whose first rater is number op modulo the number of raters, so that the question is informative about the
    rater; the first rater of the other rows is random."""
    separator: str = Field(default=",", min_length=1)
    """Text between steps."""
    noise: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Probability that a label is swapped: a rater's inconsistency."""
    stated: Annotated[bool, Since(False)] = False
    """Whether the prompt begins with the rater's place in `raters`, from 0: a context that says which of several criteria
    decides between the two (context-aware preference modelling, CARM)."""

    def samples(self) -> int:
        """A pair has two."""
        return 2


# Steps that choose rows.


RULES = {"loongrl": (1, 6, 8), "cog_drift": (0, 0, 64)}
"""Published filters by pass rate: (low, high, of). LoongRL keeps problems that are neither unsolved nor nearly solved
(arXiv:2510.19363), Cog-DRIFT those that 64 samples never solve (arXiv:2604.04767)."""
Criterion = Literal["exact", "ngram", "renamed", "structural", "origin"]
Threshold = Annotated[float, Field(gt=0, le=1)]


class Take(StepModel):
    """The first rows in an order drawn from the stage's seed."""

    LEAVES_QUESTIONS: ClassVar[bool] = True
    RUN: ClassVar[str] = "filter:take_rows"
    name: Literal["take"] = "take"
    size: Count
    """Rows that are kept; all, where there are fewer."""


class PassRate(SampledStep):
    """Rows whose number of right samples is in a range. Every row needs samples; where an evaluation has more than `of`, the
    first `of` count."""

    RUN: ClassVar[str] = "filter:filter_pass_rate"
    name: Literal["pass_rate"] = "pass_rate"
    rule: Literal["loongrl", "cog_drift"] | None = None
    """A published rule in place of low, high and of. loongrl: 1 to 6 of 8; cog_drift: 0 of 64."""
    low: Natural | None = None
    """Least right samples of a kept row."""
    high: Natural | None = None
    """Most right samples of a kept row."""
    of: Count | None = None
    """Samples counted per row."""

    @model_validator(mode="after")
    def _limits(self) -> "PassRate":
        given = [name for name in ("low", "high", "of") if getattr(self, name) is not None]
        if self.rule and given:
            raise ValueError(f"rule {self.rule} fixes low, high and of; remove {given[0]}, or the rule")
        if not self.rule and len(given) < 3:
            raise ValueError("give low, high and of, or a rule")
        low, high, of = self.limits()
        if not low <= high <= of:
            raise ValueError(f"must have low <= high <= of, not {low}, {high}, {of}")
        return self

    def limits(self) -> tuple[int, int, int]:
        """Fewest and most right samples, and how many are counted."""
        return RULES[self.rule] if self.rule else (self.low or 0, self.high or 0, self.of or 0)

    def samples(self) -> int:
        """Samples that each row needs."""
        return self.limits()[2]


class RejectionSampling(SampledSolutions):
    """Rows that a model solves, each with its own right sample in place of the gold solution (RFT, arXiv:2308.01825; STaR,
    arXiv:2203.14465): data for SFT on the model's own samples. A sample truncated at the length limit is never used: it has no
    end, and an end token would be added where it has none."""

    RUN: ClassVar[str] = "filter:rejection_sampling"
    name: Literal["rejection_sampling"] = "rejection_sampling"


class PreferencePairs(SampledSolutions):
    """Pairs for preference optimisation and reward models from a model's own samples: a right one is chosen and a wrong one of
    the same prompt rejected (as in DPO's on-policy form, arXiv:2305.18290, section 4). The chosen one becomes the row's
    solution, so that SFT on the set is SFT on the chosen completions. Rows whose samples are all right or all wrong give none,
    and neither do empty or truncated samples."""

    RUN: ClassVar[str] = "filter:make_preference_pairs"
    name: Literal["preference_pairs"] = "preference_pairs"
    chosen: Literal["sample", "gold"] = "sample"
    """What is chosen: right samples, or the row's gold solution, against each wrong sample."""


class Length(StepModel):
    """Rows whose prompt or solution has a length, in tokens, within a range."""

    READS_TOKENIZER: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    RUN: ClassVar[str] = "filter:filter_length"
    name: Literal["length"] = "length"
    part: Literal["prompt", "solution", "both"] = "prompt"
    """Whose tokens are counted; both: their sum."""
    low: Natural = 0
    """Least tokens of a kept row."""
    high: Count
    """Most tokens of a kept row."""

    @model_validator(mode="after")
    def _order(self) -> "Length":
        if self.low > self.high:
            raise ValueError(f"must have low <= high, not {self.low}, {self.high}")
        return self


class Deduplicate(StepModel):
    """Of duplicate rows, the first is kept."""

    VERSION: ClassVar[int] = 2
    LEAVES_QUESTIONS: ClassVar[bool] = True
    RUN: ClassVar[str] = "filter:deduplicate"
    name: Literal["deduplicate"] = "deduplicate"
    how: Criterion = "exact"
    """exact: the same question, ignoring blanks; ngram: Jaccard similarity of n-grams of words (op_dag: of characters) of at
    least `threshold`; renamed: the same up to names (and numbers, in prose), as a whole or by n-grams; structural: equal
    structural keys; origin: made of the same source row. A question over documents is compared together with its supporting
    facts, without the rest of its context."""
    n: Count = 8
    """Length of an n-gram."""
    threshold: Threshold = 0.8
    """Least Jaccard similarity of two rows' n-grams."""


class Contamination(StepModel):
    """Rows that match a row of other sets, usually those of evaluations, are refused or dropped."""

    VERSION: ClassVar[int] = 2
    COMPARES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    RUN: ClassVar[str] = "filter:filter_contamination"
    name: Literal["contamination"] = "contamination"
    how: Annotated[list[Criterion], Field(min_length=1)] = ["exact", "ngram", "renamed", "structural"]
    """Criteria of a match (see deduplicate). Where all questions come from a few templates, each is a renamed copy of others:
    omit `renamed` and `ngram` there."""
    action: Literal["refuse", "drop"] = "refuse"
    """refuse: the stage fails in one line that names both rows, and no stage that depends on it starts; drop: the rows are
    dropped and counted."""
    n: Count = 8
    """Length of an n-gram."""
    threshold: Threshold = 0.8
    """Least Jaccard similarity of two rows' n-grams."""


# Corrupted rows, to measure their cost.


class Poison(StepModel):
    """Corrupt a share of the rows. Prompt or solution change; the gold that completions are judged by stays true. The step edits
    existing text, so it comes after the steps that write prompts."""

    VERSION: ClassVar[int] = 2
    EDITS: ClassVar[bool] = True
    RUN: ClassVar[str] = "conflict:poison_rows"
    name: Literal["poison"] = "poison"
    kind: Literal["answer", "conflict", "irrelevant"]
    """answer: the solution ends in a wrong answer (label noise; rewards do not see it); conflict: the prompt also states another
    value for something that the answer needs; irrelevant: it also states something that the answer does not need."""
    ratio: Share
    """Share of the rows that are corrupted."""
    resolve: Literal["first", "last", "none"] = "none"
    """conflict: which of the two statements is true: the first, the last, or, for none, either with equal probability, so that
    no rule decides."""


# Chat templates.


class ChatTemplate(StepModel):
    """Each prompt as the first message of a user, in the chat template of the model that the paths start from, up to where its
    answer begins. A model without a template is refused."""

    READS_TOKENIZER: ClassVar[bool] = True
    EDITS: ClassVar[bool] = True
    RUN: ClassVar[str] = "filter:apply_chat_template"
    name: Literal["chat_template"] = "chat_template"
    system: str | None = None
    """System message; null: the template's own."""


# Curation: problem sets from problem sets.


Filtering = Take | PassRate | Length | Deduplicate | Contamination | Label | Difficulty | Poison | CustomStep
Prompting = context.Keychain | context.Needle | context.LongContext | context.Citation | ChatTemplate | turns.WithEntries
Reformulating = context.Choice | context.Cloze | context.TrueFalse | context.Ladder
Solving = context.Subproblems | context.Intervention | RejectionSampling | context.Atoms | context.Units | turns.WithTools
Pairing = PreferencePairs | RatedPairs | context.ConflictPairs
Logged = turns.ByTurn | turns.ToPrompts | turns.Relabel | turns.Library | turns.Experience
Every = Filtering | Prompting | Reformulating | Solving | Pairing | Logged
Step = Annotated[Every, Field(discriminator="name"), written_as(CustomStep)]
STEPS: dict[str, type[StepModel]] = {kind.model_fields["name"].default: kind for kind in get_args(get_args(Step)[0])}
"""By name."""


class CurateSpec(Model):
    """A problem set made of others: their rows are mixed, then each step is applied to all of them. Roles: `data.<i>`, one per
    share; for step number k, where it reads them, `samples.<k>.<i>.<b>` (block b of an evaluation of set i) and
    `against.<k>.<j>` (problem sets to compare with); `tokenizer` where a step counts tokens."""

    mix: Mix
    """Share of each `data.<i>` role among the rows, in order; sums to 1."""
    size: Count | None = None
    """Rows of the mix, before the steps; null: as many as the shares allow without a row twice."""
    steps: list[Step] = []
    """Steps applied to the rows, in order."""
    seed: Natural = 0
    """Order of the rows, and random streams of the steps."""

    @model_validator(mode="after")
    def _samples_first(self) -> "CurateSpec":
        for number, step in enumerate(self.steps):
            changing = next((before.name for before in self.steps[:number] if not before.LEAVES_QUESTIONS), None)
            if step.READS_SAMPLES and changing:
                read = f"steps.{number} ({step.name}) reads samples of the input rows"
                raise ValueError(f"{read}; put it before {changing}, which changes them")
        return self

    @model_validator(mode="after")
    def _edits_last(self) -> "CurateSpec":
        for number, step in enumerate(self.steps):
            edit = next((before.name for before in self.steps[:number] if before.edits()), None)
            if step.WRITES_ANEW and edit:
                written = f"steps.{number} ({step.name}) rewrites prompts or solutions"
                raise ValueError(f"{written}, which would undo {edit}; put it before {edit}")
        return self


# Steps as a study writes them.


class SampleKeys(Keys):
    """Keys of a step that reads samples of its rows."""

    arm: str = ""
    """The arm whose final model samples the rows; `before`: the model that the stage which reads the set starts from."""
    evaluate: str = ""
    """The evaluate stage that configures the sampling."""


class CompareKeys(Keys):
    """Keys of a step that compares its rows with other sets."""

    against: list[str] = []
    """Problem sets to compare with."""


def _step(model: type[StepModel]) -> type[Model]:
    """The model of a step in a study's YAML."""
    reads = ((model.READS_SAMPLES, SampleKeys), (model.COMPARES, CompareKeys))
    return partial_model(model, f"{model.__name__}Keys", bases=tuple(keys for read, keys in reads if read))


StepKeys = Annotated[dict[str, Any], Written(cache(lambda: union_of(map(_step, STEPS.values()), "name", written_as(CustomStep))))]
