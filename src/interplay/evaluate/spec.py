"""Specs of evaluation, of checkpoint selection, and of the bands that are calibrated on a model."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Model, Natural, NotNegative, Share, Since
from interplay.core.references import ORDERED
from interplay.model.spec import ExactSpec
from interplay.rollout.spec import AloneEpisode, EngineName, check_dtype
from interplay.tasks.spec import Verify

# Evaluation: the only place where a model runs over a problem set.


class OwnMetric(Extension):
    """A metric of the user's own: `function(row, completion, verdict, **options) -> float`, a finite number for each sample."""

    UNION: ClassVar[str] = "metric"

    @property
    def called(self) -> str:
        """Its name, that of the function: tables, figures and claims show it as `own:NAME`."""
        return self.function.rpartition(":")[2]


class EvaluateSpec(ExactSpec):
    """Samples of one model over one problem set. Roles: `model` and `data`."""

    VERSION: ClassVar[int] = 3
    """3: prompts.parquet has scores."""
    num_samples: Count = 32
    """Completions per prompt (n of the unbiased pass@k). Where a study asks for more than 32, the planner makes blocks
    of 32, a stage each, which the report reads as one, so that more samples repeat none."""
    first_sample: Annotated[Natural, Since(0)] = 0
    """Number of the first completion; the planner sets it for the blocks after the first."""
    temperature: NotNegative = 1.0
    """Sampling temperature; 0 takes the likeliest token."""
    top_p: Share = 1.0
    """Least probability mass that sampling is cut to; 1 cuts nothing."""
    top_k: Natural = 0
    """Number of tokens that sampling is cut to; 0 cuts nothing."""
    max_completion_length: Count = 256
    """Tokens after which a completion is cut."""
    engine: EngineName = "native"
    """Sampling engine; part of the identity, since engines differ in the last bits. vllm needs the extra of that name."""
    verify: Verify = Verify()
    seed: Natural = 0
    """Key of the sampling noise."""
    episode: Annotated[AloneEpisode | None, Since(None)] = None
    """How the model acts on a prompt; null: one completion. Of several turns samples.parquet keeps the segments, and the record
    the share of right answers by turn; all else is of the last turn."""
    nll: Annotated[bool, Since(False)] = False
    """Also score each gold solution: its mean negative log-likelihood per token, end of sequence included, in nats."""
    errors: Annotated[bool, Since(False)] = False
    """Also count the classes of errors of each prompt, for tables and figures of them."""
    entropy: Annotated[bool, Since(False)] = False
    """Also keep of each sample `nats`, the negative log-probability of its tokens together. Per token it is an estimate of the
    policy's entropy, by which a select stage can choose; for samples at temperature 1 of one completion each."""
    keep_tokens: Annotated[bool, Since(False)] = False
    """Also keep of each sample its tokens and their log-probabilities, as segments: about 8 bytes a token."""
    unit_caps: Annotated[Natural, Since(0)] = 0
    """Also judge each sample as if it had been stopped after one unit, after two, and so on up to this number; units are what
    `verify.separator` separates. `strict_cap@K` and other metrics of units need it."""
    metrics: Annotated[list[Annotated[OwnMetric, written_as(OwnMetric)]], Since([])] = []
    """Metrics of the user's own, each of a name of its own: numbers of samples, whose means are shown as `own:NAME`."""

    def inexact(self) -> str:
        """Other engines."""
        return "" if self.engine == "native" else f"engine = {self.engine}"

    @field_validator("metrics")
    @classmethod
    def _one_of_a_name(cls, metrics: list[OwnMetric]) -> list[OwnMetric]:
        names = [one.called for one in metrics]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two are called '{repeated[0]}'; give one function another name")
        if odd := [name for name in names if not name.isidentifier()]:
            raise ValueError(f"'{odd[0]}' cannot be written in a table; name it as a function, letters, digits and _")
        return metrics

    @model_validator(mode="after")
    def _engine_computes(self) -> "EvaluateSpec":
        check_dtype(self.engine, self.dtype)
        return self

    @model_validator(mode="after")
    def _units_of_one_completion(self) -> "EvaluateSpec":
        if self.unit_caps and not self.verify.separator:
            raise ValueError("unit_caps: no separator of units; write verify.separator, such as '?'")
        if self.unit_caps and self.episode is not None:
            raise ValueError("unit_caps: the units of one completion are judged; remove the episode")
        return self

    @model_validator(mode="after")
    def _entropy_of_the_policy_itself(self) -> "EvaluateSpec":
        if self.entropy and (self.temperature, self.top_p, self.top_k) != (1.0, 1.0, 0):
            raise ValueError("entropy: needs temperature 1, top_p 1 and top_k 0; samples of another policy do not estimate it")
        if self.entropy and self.episode is not None:
            raise ValueError("entropy: needs samples of one completion; remove the episode")
        return self


# Selection among the checkpoints of a stage. The choice is a stage, so that the graph does not depend on its outcome, and a dry
# run shows every candidate.


ENTROPY = "entropy"
"""Value of `by`: entropy of an RL run's records or, with an evaluation, of samples."""


class SelectSpec(Model):
    """The best of the models of one stage: those of its kept checkpoints, and the one at its end. Roles: `init` (that stage) and,
    where it is judged by samples, `evaluation.<i>.<j>`: block j of the evaluation of candidate i."""

    by: str
    """A key of metrics.jsonl at the candidates' steps, such as loss, eval_loss/<band> or entropy (of RL: measured on the rollouts
    of that step, so before its update); or strict_pass@k, answer_pass@k or entropy (nats per token of the samples, by which
    Ring-lite chooses where RL starts), with the key `evaluate: NAME` in the study, an evaluate stage over a validation set that
    is run for every candidate."""
    mode: Literal["min", "max", "nearest"]
    """Whether the smallest value is chosen, the largest, or the nearest to `target`; the earliest step among equals, and never
    one that is NaN."""
    target: Annotated[float | None, Since(None)] = None
    """Target value of mode: nearest."""
    band: str | None = None
    """Of a pass rate: the problems that count; null: all."""
    candidates: list[int] = []
    """Steps of the kept checkpoints; the planner fills it in from the stage before. The final model is always a candidate."""

    @model_validator(mode="after")
    def _target_of_the_nearest(self) -> "SelectSpec":
        if (self.mode == "nearest") != (self.target is not None):
            raise ValueError("target: belongs to mode: nearest, which needs it")
        return self


# Bands that are chosen for each base: which ops it masters, which lie at its edge, which beyond.


PassRate = Annotated[str, Field(pattern=r"^(strict|answer)_pass@[1-9][0-9]*$")]
BandRule = Annotated[dict[PassRate, Annotated[tuple[Share, Share], ORDERED]], Field(min_length=1)]
"""Pass rate, `strict_pass@K` or `answer_pass@K` -> [low, high], ends included. An op has the band where all of them hold."""
BandRules = Annotated[dict[str, BandRule], Field(min_length=1)]


class CalibrateSpec(Model):
    """The ops of each band for one model, by its pass rates on held-out prompts. Roles: `samples.<block>`, an evaluation of the
    model on prompts of every candidate op. Pass rates are first made non-increasing in op (isotonic least squares), so that
    noise leaves no gap in a band. An op has every band whose rule holds. A band without an op is recorded as lacking, and the op
    that comes nearest to its rule takes its place, so that what reads the band can run; reports leave it out."""

    bands: BandRules
    """Band -> its rule, such as `edge: {strict_pass@1: [0.05, 0.5], strict_pass@32: [0.2, 1]}`."""
