"""Specs of allocation (how many completions), prompting (from which text), continuation (what follows) and decoding (by what)."""

from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Exact, Model, Natural, NotNegative, Share, Since

# Allocation: how many completions each prompt gets.


class FixedAllocation(Exact):
    """The same number of completions for every prompt."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"equal_groups"})
    name: Literal["fixed"] = "fixed"
    num_generations: Count = 8
    """Group size; 2 at least where advantages compare completions of a group."""

    def provides(self) -> frozenset[str]:
        """Also groups of one completion."""
        return self.PROVIDES | ({"single_completions"} if self.num_generations == 1 else set())


class XrpoAllocation(Model):
    """A budget of completions that goes where it reduces uncertainty most (XRPO, arXiv:2510.06672; the priority is inferred from
    its reviews): every prompt gets some, then rounds add to the prompts with the highest expected drop of the width of their
    t-interval, plus an exploration bonus."""

    INEXACT: ClassVar[str] = "its quantiles are scipy's"
    name: Literal["xrpo"] = "xrpo"
    num_generations: Count = 8
    """Mean group size: the budget of a step is this times the prompts."""
    first: Count = 4
    """Completions that every prompt gets."""
    rounds: Count = 2
    """Rounds that share what is left."""
    exploration: NotNegative = 0.1
    """Weight of sqrt(ln T / n), T all completions so far. (The published value was not found.)"""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Of the interval."""

    @model_validator(mode="after")
    def _something_left(self) -> "XrpoAllocation":
        if not 2 <= self.first <= self.num_generations:
            raise ValueError(f"first = {self.first}: must lie in 2..num_generations, {self.num_generations}")
        return self


class OwnAllocation(Extension):
    """An allocation of the user's own: `function(num_generations, prompts, batch, rounds, **options)`, which returns how many
    further completions each prompt gets."""

    UNION: ClassVar[str] = "allocation"
    num_generations: Count = 8
    """Completions of a prompt on average, by which the plan's cost is counted."""

    def provides(self) -> frozenset[str]:
        """Groups of one completion on average."""
        return frozenset({"single_completions"} if self.num_generations == 1 else ())


Allocation = Annotated[FixedAllocation | XrpoAllocation | OwnAllocation, Field(discriminator="name"), written_as(OwnAllocation)]

# Prompting: the text that completions are sampled from and the one that they are credited to, chosen before any rollout.


def _once_each(field: str, template: str) -> str:
    if template.count(f"{{{field}}}") != 1 or template.count("{prompt}") != 1:
        raise ValueError(f"must hold {{{field}}} and {{prompt}} once each")
    return template


def _with_completion(template: str) -> str:
    if "{completion}" not in template or "{prompt}" not in template:
        raise ValueError("must hold {prompt} and {completion}")
    return template


class PlainPrompting(Exact):
    """The prompt itself."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"bare_prompts"})
    name: Literal["plain"] = "plain"


class Hint(Model):
    """The first steps of the gold solution."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the gold solution's steps, rounded down, one at least."""
    separator: str = Field(default=",", min_length=1)
    """What separates steps."""
    template: Annotated[str, AfterValidator(partial(_once_each, "hint"))] = "{hint}{prompt}"
    """The text that is sampled from."""


class Beginning(Hint):
    """A hint that completions begin with."""

    template: Annotated[str, AfterValidator(partial(_once_each, "hint")), Field(pattern=r"\{hint\}$")] = "{prompt}{hint}"
    """The text that is sampled from; it ends with the hint."""


class PrefixPrompting(Exact):
    """Part of each group starts from the first steps of the gold solution, which are judged with the completion and bear no loss
    (partial trajectories). That part falls linearly to 0 over the run."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"begun_completions"})
    SCHEDULED: ClassVar[bool] = True
    name: Literal["prefix"] = "prefix"
    started: Share = 0.5
    """Share of a group, at the first step, that starts from a prefix."""
    hint: Beginning = Beginning()


class Shots(Model):
    """Solved problems of the same set, in front of a prompt."""

    between: str = ""
    """What follows each."""


class IcpoPrompting(Exact):
    """Part of each group is sampled with solved problems in the context and learnt without them (in-context steered policy
    optimisation, ICPO): completions below a reward are dropped, right ones have a bonus that falls to 0 over the run."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"other_text"})
    SCHEDULED: ClassVar[bool] = True
    name: Literal["icpo"] = "icpo"
    steered: Count = 2
    """Completions of a group that are; less than allocation.num_generations."""
    shots: Count = 2
    """Solved problems."""
    floor: NotNegative = 1.0
    """Reward below which a steered completion is dropped (expert region reject sampling)."""
    bonus: NotNegative = 0.1
    """Bonus of right ones at the first step; 1 in the release."""
    examples: Shots = Shots()


class AnnealedShotsPrompting(Exact):
    """Solved problems in the context at first, and none at the end; what is sampled from is what is learnt (in-context
    reinforcement learning, arXiv:2603.08068; SKILL0)."""

    SCHEDULED: ClassVar[bool] = True
    name: Literal["annealed_shots"] = "annealed_shots"
    schedule: Annotated[list[Natural], Field(min_length=1)] = [3, 2, 0]
    """Solved problems in each of as many phases of one length; 3, 2, 1, 0 was worse, as published."""
    examples: Shots = Shots()


class OwnPrompting(Extension):
    """A prompting of the user's own: `function(row, n, now, **options) -> text` to sample from, or that and the text to learn."""

    UNION: ClassVar[str] = "prompting"
    SCHEDULED: ClassVar[bool] = True


Prompting = Annotated[
    PlainPrompting | PrefixPrompting | IcpoPrompting | AnnealedShotsPrompting | OwnPrompting,
    Field(discriminator="name"),
    written_as(OwnPrompting),
]

# Continuation: what follows from rollouts, of this step or of earlier ones: further requests, and which rows are kept.


class NoContinuation(Exact):
    """Nothing follows: one round of completions, all kept."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"one_round"})
    name: Literal["none"] = "none"


class GuideContinuation(Exact):
    """Groups in which all failed are sampled again with a hint in the context; the policy learns these completions as if the hint
    were absent, with the ratio to what sampled them (Guide, arXiv:2506.13923; which of the rows make the group is inferred)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups", "bare_prompts"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"other_text", "reads_right"})
    name: Literal["guide"] = "guide"
    guided: Count = 8
    """Completions with the hint."""
    mode: Literal["replace", "append"] = "replace"
    """replace: the group is the guided completions alone; append: the failed ones stay in it."""
    hint: Hint = Hint()


class CritiqueContinuation(Exact):
    """Where a group holds a wrong completion, more are sampled with it in the context and what the verifier says; those that are
    right join the group, learnt as if the critique were absent (Critique-GRPO, arXiv:2506.03106; which of several wrong ones
    is shown, and that failed refinements are dropped, is inferred)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups", "bare_prompts"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"other_text", "reads_right"})
    name: Literal["critique"] = "critique"
    refined: Count = 2
    """Completions after the critique."""
    template: Annotated[str, AfterValidator(_with_completion)] = "{prompt}{completion}{prompt}"
    """The text that is sampled from. A completion before the prompt repeated means that it is wrong; {answer}, the gold answer,
    says more, as the paper's indicative critiques do."""
    failed: Annotated[Literal["drop", "keep"], Since("drop")] = "drop"
    """Completions after the critique that are wrong, too. keep: they stay, and statistics of a group are those of its first
    completions alone; with advantages that are not scaled and the loss gpg that is RLTF-SD, whose first turn learns its second
    one by A = R(y1) - mean R(y0) without a ratio (arXiv:2602.02482)."""


class ReflectionContinuation(Exact):
    """Prompts that mostly failed also enter with one of their own wrong completions in the context (R3, arXiv:2601.19620):
    groups of their own, that learn what they were sampled from."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups", "bare_prompts"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"reads_right"})
    name: Literal["reflection"] = "reflection"
    threshold: Share = 0.5
    """Mean reward so far below which a prompt does. (The published value was not found.)"""
    template: Annotated[str, AfterValidator(_with_completion)] = "{prompt}{completion}{prompt}"
    """The text of such a group."""


class FeedbackContinuation(Exact):
    """Once completions are judged, what is known of each is put into a context that the teacher of the loss `distil` reads
    (DistIL, arXiv:2606.05152). Nothing more is sampled."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups", "bare_prompts", "distillation"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"teacher_context"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_completions"})
    name: Literal["feedback"] = "feedback"
    feedback: Literal["gold", "step"] = "gold"
    """gold: the gold solution, for every completion; step: for a completion that is not strictly right its text up to its first
    wrong step, and the right step in place of that, or the gold solution where the family knows of no such step (all but op_dag
    forward), and nothing for a right one, from which nothing is then distilled."""
    template: Annotated[str, AfterValidator(partial(_once_each, "feedback"))] = "{feedback}{prompt}"
    """The text that the teacher reads before the completion."""

    def hashed_version(self) -> int:
        """2 of `step`: a step that is due to name parents and does not is wrong."""
        return self.VERSION + (self.feedback == "step")


class TreeContinuation(Exact):
    """Completions as a tree of segments: each segment that does not end is continued several times, its value is the mean over
    its continuations, and it is compared with its siblings (SPO-tree, arXiv:2505.23564)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups", "bare_prompts"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"begun_completions"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"reads_right"})
    """A segment that others continue has a value and no verdict."""
    name: Literal["tree"] = "tree"
    branches: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)] = [6, 6, 6]
    """Continuations at each level; those of the last run to the end. allocation.num_generations must be their product."""
    segment: Count = 30
    """Tokens of a segment."""
    expansions: Annotated[Natural, Since(0)] = 0
    """0: level by level. More: of two `branches` the first are begun, and then that many times one segment of a prompt's tree is
    continued by the second, `segment` tokens each: the likeliest of those that came last while none of them has ended, else the
    one of highest priority anywhere in the tree (global frontier of DeepSearch, arXiv:2509.25454, which descends by UCT and keeps
    solutions for later steps; the weights of its priority are inferred)."""

    @model_validator(mode="after")
    def _two_branches(self) -> "TreeContinuation":
        if self.expansions and len(self.branches) != 2:
            raise ValueError(f"branches must be two, those that are begun and those of an expansion, not {self.branches}")
        return self


class WindowContinuation(Exact):
    """One completion a prompt, a window of tokens at a time: what has not ended is continued in the next step and learnt as far
    as it is written, in place of a fresh prompt (T-PPO, arXiv:2506.15050; from its abstract and reviews)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"bare_prompts", "reads_critic", "single_completions"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"begun_completions"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"pass_rates", "extra_draws"})
    name: Literal["windows"] = "windows"
    window: Count = 64
    """Tokens that a step adds to a completion at most."""


class ExitContinuation(Model):
    """An autocurriculum over histories of own attempts that training produced (ExIt, arXiv:2509.04575): a group starts from one
    of them with some probability, else from the bare prompt, and learns one step of improvement. The score of a history is the
    variance of what its group earns; one that was not started from yet has that of the group which left it. (The buffer's
    bounds and probabilities are inferred; steps of divergence and the bonus of diversity are not here.)"""

    INEXACT: ClassVar[str] = "numpy draws how many by the C library's exp and log"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups", "bare_prompts"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"shown_attempts"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"extra_draws"})
    name: Literal["exit"] = "exit"
    resample: Share = 0.5
    """Probability with which a group starts from a history. (The published value was not found.)"""
    buffer: Count = 512
    """Most histories; those of the least probability go first. (The published value was not found.)"""
    depth: Count = 4
    """Most attempts of a history, which bounds its length. Evaluations may go on for longer: `episode: {name: retry, max_turns:
    ...}` with the same feedback reads the very same text."""
    priority: Literal["variance", "uniform"] = "variance"
    """What the probability of a history is in proportion to: the variance of its group's rewards, or nothing."""
    feedback: str = Field(default="Try again.\n", min_length=1)
    """What follows each attempt, as in the episode retry; in characters that the tokenizer has."""
    always: bool = False
    """Whether right attempts are continued, too, as in the episode retry. Truncated ones never are."""


class ShownAttemptContinuation(Exact):
    """Completions that improve on an own attempt, which was sampled from the bare prompt in the same step and is shown in the
    context (PIT, arXiv:2310.00898). The attempts themselves are not learnt. `allocation.num_generations` counts both; the others
    are spread evenly over the attempts, and those of a prompt make one group."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"equal_groups", "bare_prompts"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"shown_attempts"})
    name: Literal["shown_attempt"] = "shown_attempt"
    references: Count = 4
    """Attempts that are shown, of num_generations, which is a multiple of it."""
    feedback: str = Field(default="Try again.\n", min_length=1)
    """What follows the attempt, as in the episode retry; in characters that the tokenizer has."""

    def provides(self) -> frozenset[str]:
        """With several references, groups whose completions follow different attempts."""
        return self.PROVIDES | ({"varied_attempts"} if self.references > 1 else set())


class OwnContinuation(Extension):
    """A continuation of the user's own: `function(rows, batch, rounds, now, **options)`, which returns the requests of the next
    round; none: the rollouts are complete."""

    UNION: ClassVar[str] = "continuation"
    SCHEDULED: ClassVar[bool] = True


Continuation = Annotated[
    NoContinuation
    | GuideContinuation
    | CritiqueContinuation
    | ReflectionContinuation
    | FeedbackContinuation
    | TreeContinuation
    | WindowContinuation
    | ExitContinuation
    | ShownAttemptContinuation
    | OwnContinuation,
    Field(discriminator="name"),
    written_as(OwnContinuation),
]


# Members of the decoding seam: what tokens of rollouts are drawn from, where that is not the policy at the run's temperature.


class AdaptiveTemperature(Model):
    """A temperature for each token (HAPO, heterogeneous tokens): that of the run times 1 + temperature_tau h. h in [-1, 1] is the
    log entropy of what the token would be drawn from, less the `entropy_pivot` quantile over the tokens that the last step learnt
    from, over the largest such value on its side of 0; the first step has one temperature. Ratios are of the policy at the run's
    temperature, as released. Costs a forward pass over the batch."""

    INEXACT: ClassVar[str] = "its temperatures are drawn from by PyTorch"
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"stateful_steps"})
    ENGINES: ClassVar[tuple[str, ...]] = ("native", "hf", "vllm")
    """Those that decode so."""
    VERSION: ClassVar[int] = 2
    """2: the quantile is one of the entropies, as released."""
    name: Literal["adaptive_temperature"] = "adaptive_temperature"
    temperature_tau: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Largest change of the temperature, as a share of it."""
    entropy_pivot: Share = 0.8
    """Quantile at which h is 0."""


class LaggedNucleus(Model):
    """Tokens within the nucleus of a copy of the policy that lags behind it (NLPO, arXiv:2210.01241): the likeliest tokens of the
    copy, at temperature 1, whose probabilities sum to `top_p`. The policy, renormalised over them, is what is sampled, and what
    log-probabilities, ratios, entropies and the divergence from the reference are of. The copy decodes together with the policy,
    and every forward pass over a batch is made by both."""

    INEXACT: ClassVar[str] = "its nucleus is of PyTorch's softmax"
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"stateful_steps"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_text", "other_completions", "distillation"})
    ENGINES: ClassVar[tuple[str, ...]] = ("native",)
    """Those that decode so."""
    name: Literal["lagged_nucleus"] = "lagged_nucleus"
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    """1: all tokens, so that nothing is masked."""
    sync_every: Count = 20
    """Steps after which the copy becomes the policy of that step."""


class OwnDecoding(Extension):
    """A decoding of the user's own: `function(sampling, memory, **options) -> sampling`, before each step."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"stateful_steps"})
    ENGINES: ClassVar[tuple[str, ...]] = ("native", "hf", "vllm")
    """Those that decode what it changes."""
    UNION: ClassVar[str] = "decoding"


Decoding = Annotated[AdaptiveTemperature | LaggedNucleus | OwnDecoding, Field(discriminator="name"), written_as(OwnDecoding)]
