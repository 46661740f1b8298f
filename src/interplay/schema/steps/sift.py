"""Steps that choose rows."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.schema.base import Count, Natural
from interplay.schema.steps.step import StepModel

RULES = {"loongrl": (1, 6, 8), "cog_drift": (0, 0, 64)}
"""Published filters by pass rate: (low, high, of). LoongRL keeps what is neither hopeless nor nearly mastered (arXiv:2510.19363),
Cog-DRIFT what 64 samples never solve (arXiv:2604.04767)."""
Alike = Literal["exact", "ngram", "renamed", "structural", "origin"]
Threshold = Annotated[float, Field(gt=0, le=1)]


class Take(StepModel):
    """The first rows in an order drawn from the stage's seed."""

    LEAVES_QUESTIONS: ClassVar[bool] = True
    name: Literal["take"] = "take"
    size: Count
    """Rows that stay; all, where there are fewer."""


class PassRate(StepModel):
    """Rows whose number of right samples lies in a band. Every row needs samples; where an evaluation has more than `of`, the
    first count."""

    READS_SAMPLES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    name: Literal["pass_rate"] = "pass_rate"
    rule: Literal["loongrl", "cog_drift"] | None = None
    """A published rule in place of low, high and of. loongrl: 1 to 6 of 8; cog_drift: 0 of 64."""
    low: Natural | None = None
    """Fewest right samples of a row that stays."""
    high: Natural | None = None
    """Most right samples of a row that stays."""
    of: Count | None = None
    """Samples of a row that are counted."""
    by: Literal["strict", "answer"] = "strict"
    """What counts as right: process and answer, or the answer alone."""

    @model_validator(mode="after")
    def _limits(self) -> "PassRate":
        given = [name for name in ("low", "high", "of") if getattr(self, name) is not None]
        if self.rule and given:
            raise ValueError(f"rule {self.rule} fixes low, high and of; take {given[0]} away, or the rule")
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


class RejectionSampling(StepModel):
    """Rows that a model solves, each with its own right sample in place of the gold solution (RFT, arXiv:2308.01825; STaR,
    arXiv:2203.14465): material for SFT on what the model itself writes. A sample that was cut at its length limit is never taken:
    it did not stop by itself, and an end token would be put where it has none."""

    READS_SAMPLES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["rejection_sampling"] = "rejection_sampling"
    per_prompt: Count = 1
    """Solutions that a row gives at most, each a row of its own: the first right samples whose texts differ."""
    by: Literal["strict", "answer"] = "strict"
    """What counts as right: process and answer, or the answer alone, by whatever way."""

    @property
    def edits(self) -> bool:
        """The gold does not know the sampled solution."""
        return True


class PreferencePairs(StepModel):
    """Pairs for preference optimisation and reward models from a model's own samples: a right one is chosen and a wrong one of
    the same prompt rejected (as in DPO's on-policy form, arXiv:2305.18290, section 4). The chosen one becomes the row's
    solution, so that SFT on the set is SFT on the chosen completions. Rows whose samples are all right or all wrong give none,
    and neither do empty samples nor those that were cut at their length limit, which did not end by themselves."""

    READS_SAMPLES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    WRITES_ANEW: ClassVar[bool] = True
    name: Literal["preference_pairs"] = "preference_pairs"
    chosen: Literal["sample", "gold"] = "sample"
    """What is chosen: right samples, or the row's gold solution, against which each wrong sample may stand."""
    per_prompt: Count = 1
    """Pairs that a row gives at most, each a row of its own. Texts that differ are matched in an order drawn from the stage's
    seed; the scarcer side is used again."""
    by: Literal["strict", "answer"] = "strict"
    """What counts as right: process and answer, or the answer alone. Wrong is what is not right by it."""

    @property
    def edits(self) -> bool:
        """The gold does not know the sampled completions."""
        return True


class Length(StepModel):
    """Rows whose prompt or solution has a length, in tokens, within a band."""

    READS_TOKENIZER: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    name: Literal["length"] = "length"
    part: Literal["prompt", "solution", "both"] = "prompt"
    """Whose tokens are counted; both: their sum."""
    low: Natural = 0
    """Fewest tokens of a row that stays."""
    high: Count
    """Most tokens of a row that stays."""

    @model_validator(mode="after")
    def _order(self) -> "Length":
        if self.low > self.high:
            raise ValueError(f"must have low <= high, not {self.low}, {self.high}")
        return self


class Deduplicate(StepModel):
    """Of rows that are alike, the first stays."""

    VERSION: ClassVar[int] = 2
    LEAVES_QUESTIONS: ClassVar[bool] = True
    name: Literal["deduplicate"] = "deduplicate"
    how: Alike = "exact"
    """exact: the same question, but for blanks; ngram: of their n-grams of words (op_dag: of characters) at least a share of
    `threshold` common; renamed: the same but for names (and numbers, in prose), whole or by n-grams; structural: equal structural
    keys; origin: made of the same source row. A question over documents is compared with the facts that it needs, without the
    rest of its context."""
    n: Count = 8
    """Length of an n-gram."""
    threshold: Threshold = 0.8
    """Least Jaccard similarity of two rows' n-grams."""


class Contamination(StepModel):
    """Rows that are like a row of other sets, usually those of the evaluations, stop the study or are dropped."""

    VERSION: ClassVar[int] = 2
    COMPARES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    name: Literal["contamination"] = "contamination"
    how: Annotated[list[Alike], Field(min_length=1)] = ["exact", "ngram", "renamed", "structural"]
    """What counts as alike (see deduplicate). Where all questions come from a few templates, as in bios, each is a renamed copy
    of others: leave `renamed` and `ngram` out there."""
    action: Literal["refuse", "drop"] = "refuse"
    """refuse: the stage fails in one line that names both rows, and nothing that needs it starts; drop: the rows go, counted."""
    n: Count = 8
    """Length of an n-gram."""
    threshold: Threshold = 0.8
    """Least Jaccard similarity of two rows' n-grams."""
