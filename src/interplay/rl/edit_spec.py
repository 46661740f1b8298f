"""Members of the edit seam: what is done to a batch before it is trained on."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Exact, Natural, NotNegative, Positive, Since

Part = Annotated[float, Field(gt=0, le=1)]


class DynamicSampling(Exact):
    """Drop groups without an advantage, as where all rewards are equal, and draw fresh prompts in their place (DAPO,
    arXiv:2503.14476)."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"extra_draws"})
    VERSION: ClassVar[int] = 2
    """2: judged by the advantage, so that with spans a group of equal rewards and different spans stays."""
    name: Literal["dynamic_sampling"] = "dynamic_sampling"
    max_num_gen_batches: Count = 3
    """Rounds of generation per step at most; 1 only drops."""
    metric: Annotated[Literal["advantage", "acc"], Since("advantage")] = "advantage"
    """Which groups are dropped: those without an advantage, or those whose completions are all right or all wrong, though a
    shaping has made their rewards different (acc, as in verl's filter_groups.metric)."""


class D3S(Exact):
    """Learn from the rows whose advantages differ most, and from those of their tokens that matter most (D3S, arXiv:2509.22115).

    Both shares go linearly from their first value, at the first step, to their second, at the last. Advantages stay as they were:
    nothing is normalised again. With scope `group` and tokens [1, 1], rows are chosen as in PODS (arXiv:2504.13818)."""

    SCHEDULED: ClassVar[bool] = True
    name: Literal["d3s"] = "d3s"
    samples: tuple[Part, Part] = (0.25, 0.5)
    """Share of the rows that bear loss which is kept: those with the largest variance of advantages, that is the most negative
    and the most positive ones."""
    tokens: tuple[Part, Part] = (0.2, 0.4)
    """Share of the kept rows' tokens that bear loss: those with the largest |advantage| * entropy. Below 1 it costs a forward
    pass over the kept rows, for the entropies."""
    scope: Literal["batch", "group"] = "batch"
    """Among which rows the variance is made large: all of the step, or each group's own."""


class TokenBudget(Exact):
    """Train on completions in random order until they reach a fixed number of tokens (C3PO, Ring-lite technical report). With the
    loss's `loss_denominator` at the same number the divisor is constant, too."""

    name: Literal["token_budget"] = "token_budget"
    tokens: Count
    """Completions are taken until their lengths add up to at least this; the rest are dropped."""


class TopEntropy(Exact):
    """Only the tokens of highest entropy have a policy gradient (the 80/20 rule, arXiv:2506.01939). All count in the means of the
    loss and in its KL term, as in TRL. Costs a forward pass."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"sequence_ratios"})
    name: Literal["top_entropy"] = "top_entropy"
    top_entropy_quantile: Part = 0.2
    """Share of the batch's tokens that have one."""


class UncertainTokens(Exact):
    """Only tokens that were less probable than a threshold when they were sampled bear loss (the probability mask of SPO,
    arXiv:2505.23564)."""

    name: Literal["uncertain_tokens"] = "uncertain_tokens"
    threshold: Part = 0.9
    """Probability at and above which a token bears none."""


class InformationMask(Exact):
    """What the policy writes as if it had found it bears no loss: only look-ups and answers are learnt from (the masking of
    information tokens in SSRL, arXiv:2508.10874)."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns", "begun_completions"})
    name: Literal["information_mask"] = "information_mask"
    begin: str = Field(default=")", min_length=1)
    """Text behind which information begins."""
    end: str = Field(default="\n", min_length=1)
    """Text with which it ends; without that, the rest of the completion is information."""


class ConflictTokens(Exact):
    """Tokens that right and wrong completions of a group share at one place, from the start or from the end: wrong ones leave
    them alone and right ones weigh them more; completions of high entropy are dropped (GTPO, trajectory-based,
    arXiv:2508.03772)."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"sequence_ratios"})
    VERSION: ClassVar[int] = 2
    """2: a token that is in conflict from both ends is weighed twice, as released."""
    name: Literal["gtpo_conflict"] = "gtpo_conflict"
    positive: NotNegative = 2.0
    """What advantages of shared tokens in completions with a positive advantage are multiplied by."""
    negative: NotNegative = 0.0
    """The same in those with a negative one."""
    entropy_limit: Positive | None = 0.6931471805599453
    """Completions whose mean entropy in nats is this or more are dropped: ln 2 as published, 0.7 as released; null: none are,
    which is the paper's rule where the entropy is above it at the start. Costs a forward pass."""
    entropy_price: NotNegative = 0.1
    """What a completion's mean entropy takes from its advantage, where there is a limit."""


class Replay(Exact):
    """Groups in which all failed get past successes on the same prompt, and groups in which all passed get past failures (R3,
    arXiv:2601.19620). The rows are off policy, with the log-probabilities they were sampled with, and count in the statistics of
    their group. It acts from a prompt's second visit on: give RL fewer prompts than steps * prompts_per_step."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"other_completions", "reads_right"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["replay"] = "replay"
    rows: Count = 1
    """Rows that such a group gets at most. (The published value was not found.)"""
    scale: NotNegative = 1.0
    """What their advantages are multiplied by. (The published form was not found; this one is inferred.)"""
    keep: Count = 4
    """Successes, and failures, that are kept per prompt: the latest."""


class Demonstrations(Exact):
    """Groups with few successes are dropped for the gold solution, which is learnt by its likelihood (HPT, arXiv:2509.04419,
    strategy `switch`)."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"other_completions", "reads_right"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["demonstrations"] = "demonstrations"
    switch_gate: Natural = 0
    """Successes up to which a group gives way; as published 0 for Qwen models, and 2 of 8 for Llama."""
    sft_loss_coef: NotNegative = 1.0
    """Weight of the gold solution's tokens: their advantage."""
    own_mean: Annotated[bool, Since(False)] = False
    """With loss_type dr_grpo, which divides sums by the length limit: gold solutions are divided by their own lengths, that is,
    their advantages are times the limit over the length."""


class OwnEdit(Extension):
    """An edit of the user's own: `function(batch, now, **options) -> batch` before advantages are known, or `function(batch,
    advantage, bears, now, **options) -> (batch, advantage, bears)` after."""

    UNION: ClassVar[str] = "edit"
    SCHEDULED: ClassVar[bool] = True


Edit = Annotated[
    DynamicSampling
    | D3S
    | TokenBudget
    | TopEntropy
    | UncertainTokens
    | InformationMask
    | ConflictTokens
    | Replay
    | Demonstrations
    | OwnEdit,
    Field(discriminator="name"),
    written_as(OwnEdit),
]
