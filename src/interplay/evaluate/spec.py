"""Specs of evaluation, of checkpoint selection, and of the bands that are calibrated on a model."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.keys import ORDERED
from interplay.core.model import Count, Model, Natural, NotNegative, Share, Since, curves_in, first_repeated
from interplay.data.spec import Harness
from interplay.model.spec import ExactSpec
from interplay.rollout.seat_spec import Rubric
from interplay.rollout.spec import AloneEpisode, EngineName, SeatsEpisode, check_dtype
from interplay.tasks.spec import Verify

BLOCK = 32
"""Samples per prompt of one evaluate stage. An evaluation of more consists of several, which the report reads as one."""

# What evaluation and generation have in common: samples of one model over one problem set.


class SampledSpec(ExactSpec):
    """How completions are sampled and judged."""

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

    def inexact(self) -> str:
        """Other engines."""
        return "" if self.engine == "native" else f"engine = {self.engine}"

    @model_validator(mode="after")
    def _engine_computes(self) -> "SampledSpec":
        check_dtype(self.engine, self.dtype)
        return self


# Evaluation.


class OwnMetric(Extension):
    """A metric of the user's own: `function(row, completion, verdict, **options) -> float`, a finite number for each sample."""

    UNION: ClassVar[str] = "metric"

    @property
    def called(self) -> str:
        """Its name, that of the function: tables, figures and claims show it as `own:NAME`."""
        return self.function.rpartition(":")[2]


class ByReward(Model):
    """A reward model of the study that ranks the samples of each prompt."""

    model: str
    """Arm that ends with a stage of kind reward_model, at the same seed; the planner puts the role `reward` in its place."""
    reference: str = ""
    """Arm that ends with the model that divergences are measured from, such as the one that RL started from; the planner
    puts the role `reference` in its place. For samples at temperature 1."""

    def with_roles(self) -> "ByReward":
        """With roles in place of arms."""
        return ByReward(model="reward", reference="reference" if self.reference else "")


class Probe(Model):
    """What hidden states hold at the last token of the prompt, by layer: `probe:layer_1` is the share of prompts at which a ridge
    classifier, fitted on the other half of them, reads a value of the gold trace off the first layer's output."""

    quantity: Natural = 0
    """Which value: that of the answer, or of so many values before it in the gold trace."""
    against: str = ""
    """Arm whose model the states are compared with, such as the one that RL started from: `cosine:layer_1` of each prompt, and in
    the record linear CKA (arXiv:1905.00414) by layer. The planner puts the role `compared` in its place."""

    def with_roles(self) -> "Probe":
        """With roles in place of arms."""
        return Probe(quantity=self.quantity, against="compared" if self.against else "")


def _check_columns(names: list[str]) -> None:
    if odd := [name for name in names if not name.isidentifier()]:
        raise ValueError(f"'{odd[0]}' cannot be written in a table; name it as a function, letters, digits and _")


OF_ONE_COMPLETION = {
    "by_reward": "ranks samples of one completion",
    "unit_caps": "the units of one completion are judged",
    "behaviours": "counted in one completion",
    "entropy": "needs samples of one completion",
}
"""Key of an evaluation -> why it does not go with an episode."""


class EvaluateSpec(SampledSpec):
    """Samples of one model over one problem set. Roles: `model` and `data`; `reward` and `reference` with by_reward."""

    VERSION: ClassVar[int] = 3
    """3: prompts.parquet has scores."""
    num_samples: Count = 32
    """Completions per prompt (n of the unbiased pass@k). Where a study asks for more than 32, the planner makes blocks
    of 32, a stage each, which the report reads as one, so that more samples repeat none."""
    first_sample: Annotated[Natural, Since(0)] = 0
    """Number of the first completion; the planner sets it for the blocks after the first."""
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
    behaviours: Annotated[bool, Since(False)] = False
    """Also count in each sample of one completion what it plans, retrieves, checks again and amends: plans, retrievals, rechecks
    and backtracks of tables, figures and claims. For op_dag, and for questions over documents and people."""
    turns: Annotated[bool, Since(False)] = False
    """Also count in each episode its turns, its calls of tools, and whether its answer is right by each turn: turns, calls,
    answer_turn@K and revised_turn@K of tables, figures and claims. Needs an episode."""
    metrics: Annotated[list[Annotated[OwnMetric, written_as(OwnMetric)]], Since([])] = []
    """Metrics of the user's own, each of a name of its own: numbers of samples, whose means are shown as `own:NAME`."""
    by_reward: Annotated[ByReward | None, Since(None)] = None
    """Also keep of each sample its `reward` by a trained reward model, and the pass rates of the best of K by it: strict_best@K,
    answer_best@K and reward_best@K, unbiased over draws of K of the samples. With a reference also `sequence_kl`."""
    judged: Annotated[dict[str, Rubric], Since({})] = {}
    """Also have language models judge each sample: name -> rubric, whose score in [0, 1] is `judged:NAME` of tables, figures and
    claims, such as whether a text checks its result. An arm that judges is a dependency; an endpoint is that of `run.judge`."""
    probe: Annotated[Probe | None, Since(None)] = None
    """Also probe hidden states, computed by transformers in float32; of several blocks of samples in the first."""
    harness: Annotated[Harness | None, Since(None)] = None
    """Who asks and scores in place of Interplay: `lm_eval`, or {name: lm_eval, num_fewshot: 5}. Answers are greedy; their limit
    is the task's own, or max_completion_length where it has none. Needs engine: hf, temperature: 0 and num_samples: 1."""

    def inexact(self) -> str:
        """Passes of a reward model and answers of an endpoint, too."""
        endpoint = next((f"judged.{name}.model" for name, one in self.judged.items() if one.model), "")
        return "by_reward" if self.by_reward else endpoint or super().inexact()

    def judges(self) -> list[Rubric]:
        """What language models are asked."""
        return list(self.judged.values())

    @field_validator("judged")
    @classmethod
    def _named(cls, judged: dict[str, Rubric]) -> dict[str, Rubric]:
        _check_columns(list(judged))
        return judged

    @model_validator(mode="after")
    def _asked_by_a_harness(self) -> "EvaluateSpec":
        if self.harness is None:
            return self
        for key, value in {"engine": "hf", "temperature": 0.0, "num_samples": 1}.items():
            if getattr(self, key) != value:
                raise ValueError(f"{key}: lm_eval answers greedily, once, by transformers; write {key}: {value}")
        for key in (*OF_ONE_COMPLETION, "episode", "nll", "keep_tokens", "metrics", "judged", "probe", "turns"):
            if getattr(self, key):
                raise ValueError(f"{key}: does not go with a harness; take one of them away")
        return self

    @model_validator(mode="after")
    def _episodes_are_evaluated(self) -> "EvaluateSpec":
        for name, one in (self.episode.seats if isinstance(self.episode, SeatsEpisode) else {}).items():
            if getattr(one, "every", None):
                raise ValueError(f"episode.seats.{name}.every: an evaluation has no past policies; name arms under models")
        if found := next(curves_in(self.episode, "episode"), None):
            raise ValueError(f"{found[0]}: is a curve over a run of RL, and an evaluation is at one point; write a number")
        if getattr(self.episode, "branch", None):
            raise ValueError("episode.branch: samples of an evaluation are independent; take it away")
        if self.turns and self.episode is None:
            raise ValueError("turns: one completion has one; add an episode, or write turns: false")
        for key, why in OF_ONE_COMPLETION.items():
            if getattr(self, key) and self.episode is not None:
                raise ValueError(f"{key}: {why}; remove the episode")
        return self

    @model_validator(mode="after")
    def _samples_of_the_policy(self) -> "EvaluateSpec":
        other, needs = (self.temperature, self.top_p, self.top_k) != (1.0, 1.0, 0), "needs temperature 1, top_p 1 and top_k 0"
        if other and self.entropy:
            raise ValueError(f"entropy: {needs}; samples of another policy do not estimate it")
        if other and self.by_reward and self.by_reward.reference:
            raise ValueError(f"by_reward.reference: {needs}; the divergence is that of the policy")
        if self.by_reward and self.num_samples > BLOCK and self.num_samples % BLOCK:
            raise ValueError(f"num_samples: by_reward ranks samples in blocks of {BLOCK}; write a multiple of {BLOCK}")
        if self.unit_caps and not self.verify.separator:
            raise ValueError("unit_caps: no separator of units; write verify.separator, such as '?'")
        return self

    @field_validator("metrics")
    @classmethod
    def _one_of_a_name(cls, metrics: list[OwnMetric]) -> list[OwnMetric]:
        names = [one.called for one in metrics]
        if repeated := first_repeated(names):
            raise ValueError(f"two are called '{repeated}'; give one function another name")
        _check_columns(names)
        return metrics


# Selection among the checkpoints of a stage. The choice is a stage, so that the graph does not depend on its outcome, and a dry
# run shows every candidate.


ENTROPY = "entropy"
"""Value of `by`: entropy of an RL run's records or, with an evaluation, of samples."""


def sample_blocks(spec: EvaluateSpec) -> list[dict[str, Any]]:
    """The keys by which the blocks of an evaluation differ; none where one is enough. The first scores gold and probes."""
    if spec.num_samples <= BLOCK:
        return [{}]
    starts = range(0, spec.num_samples, BLOCK)
    parts = [{"num_samples": min(BLOCK, spec.num_samples - start), "first_sample": spec.first_sample + start} for start in starts]
    return [parts[0], *({**part, "nll": False, "probe": None} for part in parts[1:])]


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
