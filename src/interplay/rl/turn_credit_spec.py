"""Spec of the advantage `turns`, which credits the turns of an episode: what pays a turn, how that spreads over the turns before,
what it is compared with, and how it is mixed with the outcome. `turn_returns` and `igpo` are shorter forms of it."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from interplay.core.keys import holds_once
from interplay.core.model import Exact, Positive, Share, first_repeated
from interplay.rl.reward_spec import JudgeReward

Template = Annotated[str, holds_once("{answer}")]

# Sources: what pays turns. Each says which turns it pays.


class TurnSource(Exact):
    """What every source has."""

    weight: float = 1.0
    """What it is multiplied by in the sum of the sources."""
    gate: float | None = None
    """Pays nothing in episodes whose reward is below this (gated accumulation, arXiv:2508.10548); null: in all."""


class RewardSource(TurnSource):
    """What the run's reward pays each turn: an answer what it is worth, any other turn what the environment paid it where the
    reward has the term `environment`, else 0."""

    name: Literal["reward"] = "reward"


class PaidSource(TurnSource):
    """What the environment pays each turn, regardless of the run's reward."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"paid_turns"})
    name: Literal["environment"] = "environment"
    last: bool = True
    """Whether the last turn is paid, too."""


class OutcomeSource(TurnSource):
    """The reward of the whole episode, paid to its last turn."""

    name: Literal["outcome"] = "outcome"


class Appended(TurnSource):
    """A source that appends an answer to the text so far and reads its mean log-probability under the policy. Costs a forward
    pass for each turn."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"windowed_turns"})
    template: Template = "{answer}"
    """What is appended."""


class GainSource(Appended):
    """Information gain: what a turn, with what was read after it, adds to the likelihood of the gold answer; pays all turns but
    the last (IGPO, arXiv:2510.14967)."""

    name: Literal["information_gain"] = "information_gain"
    space: Literal["logprob", "prob"] = "logprob"
    """What gains are differences of: the mean log-probability, or its exponential."""


class AgreementSource(Appended):
    """What a turn adds to the mean log-probability of the answer that its own episode gives, times the share of the group's
    answers that are this one; the last turn gets (1 - mix) times that share in addition. Reads no verdict (SIOP,
    arXiv:2605.04984)."""

    name: Literal["agreement"] = "agreement"
    mix: Share = 0.5
    """lambda; 0.5 in the release's script."""


class FeedbackSource(TurnSource):
    """What was read after a turn adds to the mean log-probability of the next turn, over a placeholder of the same length; pays
    all turns but the last (the reward of InfoPO's release). Costs two forward passes for each turn."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"windowed_turns"})
    name: Literal["feedback"] = "feedback"
    placeholder: str = Field(default="No information found.", min_length=1)
    """What stands for the feedback, cut to its length or filled up with its last token; in characters that the tokenizer has."""


class CallsSource(TurnSource):
    """How well a turn's call matches the calls of the gold transcript: shared name, parameters and values, over those of the gold
    call. Each gold call is matched once (MatchTIR, arXiv:2601.10712). A last turn without a call is not paid."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"paid_turns"})
    name: Literal["gold_calls"] = "gold_calls"
    assignment: Literal["hard", "soft"] = "hard"
    """hard: the most similar pairs first, one gold call for a turn; soft: optimal transport with entropic regularisation 0.1
    between calls and gold calls of equal mass, a turn gets the similarity that it transports."""


class JudgeSource(TurnSource):
    """The score that a language model gives each turn, having read the episode up to it (LLM as a judge, arXiv:2306.05685)."""

    INEXACT: ClassVar[str] = JudgeReward.INEXACT
    name: Literal["judge"] = "judge"
    judge: JudgeReward
    """As the reward of that name, at an endpoint; {completion} in its rubric is what was written and read up to its end."""

    @field_validator("judge")
    @classmethod
    def _asks_an_endpoint(cls, judge: JudgeReward) -> JudgeReward:
        if judge.arm:
            raise ValueError("arm: turns are judged at an endpoint; write model, or an arm in the reward")
        return judge


Source = Annotated[
    RewardSource | PaidSource | OutcomeSource | GainSource | AgreementSource | FeedbackSource | CallsSource | JudgeSource,
    Field(discriminator="name"),
]


# Propagation: what a turn's pay does to the turns before it.


class Alone(Exact):
    """Each turn has what it was paid."""

    name: Literal["none"] = "none"


class Returns(Exact):
    """Each turn has its pay and that of all later turns, sum over k >= t of gamma^(k - t) r_k."""

    name: Literal["returns"] = "returns"
    gamma: Share = 1.0
    """What a turn further on counts."""
    rescale: Literal["none", "sqrt"] = "none"
    """sqrt: over the square root of the number of turns summed, so that early turns have no larger advantages."""


class Broadcast(Exact):
    """Each turn has the pay of all turns of its episode; episodes are compared, each once."""

    name: Literal["broadcast"] = "broadcast"


class TurnGae(Exact):
    """Generalised advantage estimates over turns, from the value of the state in which each turn begins (arXiv:1506.02438, eq.
    16, with a turn as the action). Needs a critic, which then learns the values of turns alone; lam: 1 is the return less that
    value."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"critic"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"windowed_turns"})
    name: Literal["gae"] = "gae"
    gamma: Share = 1.0
    """Discount of a turn."""
    lam: Share = 0.95
    """0: the critic's word for all that follows; 1: what turns are paid, less the critic's value."""


Propagation = Annotated[Alone | Returns | Broadcast | TurnGae, Field(discriminator="name")]


class OutcomeMix(Exact):
    """The advantage of the episode as a whole, compared within its group, next to that of its turns."""

    mix: Literal["sum", "product"] = "sum"
    """sum: weight E + turns T, E the episode's advantage and T the turn's; product: weight E max(0, 1 + turns sign(E) T), so
    that turns share out a success or a failure unequally, and keep its sign."""
    weight: float = 1.0
    """Of the episode's."""
    turns: float = 1.0
    """Of the turns'."""
    of: Literal["reward", "turns"] = "reward"
    """What an episode is worth: its reward, or the sum of what its turns are paid."""
    scale: Literal["deviation", "none"] = "deviation"
    """Whether the episode's is divided by the group's standard deviation."""


class TurnsAdvantage(Exact):
    """Credit by turns: what `sources` pay is propagated over the turns of the episode, compared with a baseline, scaled, and
    mixed with the outcome; tokens of a turn get its advantage. Needs an episode of several turns, and a loss per token or per
    turn."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"varied_attempts"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"sequence_ratios"})
    name: Literal["turns"] = "turns"
    sources: list[Source] = Field(default=[RewardSource()], min_length=1)
    """What pays turns, added up; each kind once."""
    propagation: Propagation = Returns()
    compare: Literal["propagated", "paid", "sources"] = "propagated"
    """What is compared with the baseline and scaled: the turns' values after propagation; what turns are paid, before it; or what
    each source pays, by itself, before it."""
    baseline: Literal["position", "group", "state", "seat", "batch", "none"] = "position"
    """Whose mean is taken off: of the turns of one number in a group; of all turns of a group; of those of a group before which
    the same was read (anchor states, arXiv:2505.10978); of those of one seat in the batch; of all turns of the batch; none."""
    leave_one_out: bool = False
    """Whether a turn is left out of its own mean."""
    scale: Literal["deviation", "max_abs", "none"] = "deviation"
    """Divide by the standard deviation of those that the baseline is of, by the largest difference from it, or not at all; with
    baseline none, of all turns of the batch."""
    std_epsilon: Positive = 1e-4
    """Added to that before dividing; 1e-6 in verl."""
    outcome: OutcomeMix | None = None
    """Also the advantage of the whole episode; null: that of the turns alone."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if twice := first_repeated(source.name for source in self.sources):
            raise ValueError(f"sources: {twice} is there twice; give it one weight")
        if self.propagation.name == "broadcast" and self.baseline in ("position", "state"):
            raise ValueError(f"baseline = {self.baseline}: broadcast compares episodes; write group, seat, batch or none")
        if self.propagation.name == "gae" and self.baseline not in ("batch", "none"):
            raise ValueError(f"baseline = {self.baseline}: gae compares with the critic; write batch, which whitens, or none")
        if self.leave_one_out and self.baseline == "none":
            raise ValueError("leave_one_out: there is no mean to leave a turn out of; write a baseline")
        if self.outcome and self.outcome.of == "turns" and self.compare != "propagated":
            raise ValueError("outcome.of = turns: what turns are paid is compared before; write compare: propagated")
        return self

    def judges(self) -> list[JudgeReward]:
        """What is asked of the endpoint that judges."""
        return [source.judge for source in self.sources if isinstance(source, JudgeSource)]

    def inexact(self) -> str:
        """A judge's answers."""
        return JudgeSource.INEXACT if self.judges() else self.INEXACT

    def needs(self) -> frozenset[str]:
        """Also what its sources and its propagation need."""
        seats = {"seats"} if self.baseline == "seat" else set()
        return self.NEEDS.union(seats, self.propagation.needs(), *(source.needs() for source in self.sources))

    def provides(self) -> frozenset[str]:
        """With gae it reads a critic."""
        return self.PROVIDES | ({"reads_critic"} if self.propagation.name == "gae" else set())

    def refuses(self) -> frozenset[str]:
        """Also what its sources and its propagation refuse; compared within a group, single completions."""
        within = self.baseline in ("position", "group", "state") or self.outcome is not None
        single = {"single_completions"} if within else set()
        return self.REFUSES.union(single, self.propagation.refuses(), *(source.refuses() for source in self.sources))


# Two shorter forms.


class TurnAdvantage(Exact):
    """Each turn's return, its own reward and what the later turns of its episode earn, less the mean over the group and over the
    deviation: `turns` with the source `reward`. Needs an episode of several turns, and a loss per token."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"varied_attempts"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"single_completions", "sequence_ratios"})
    name: Literal["turn_returns"] = "turn_returns"
    gamma: Share = 1.0
    """What a turn further on counts."""
    normalise: Literal["per_position", "pooled"] = "per_position"
    """per_position: mean and deviation of the returns of the turns with one number; pooled: of all turns of the group."""
    scale_rewards: Literal["group", "none"] = "group"
    """Whether to divide by that deviation."""

    def as_turns(self) -> TurnsAdvantage:
        """The same as a member `turns`."""
        return TurnsAdvantage(
            propagation=Returns(gamma=self.gamma),
            baseline="position" if self.normalise == "per_position" else "group",
            scale="deviation" if self.scale_rewards == "group" else "none",
        )


class GainAdvantage(Exact):
    """Information gain (IGPO, arXiv:2510.14967): a turn is worth what it adds to the mean log-probability of the gold answer,
    appended to the text so far, and the last turn its outcome; returns of both, each standardised over its group by itself:
    `turns` with the sources `information_gain` and `outcome`. Needs an episode of several turns without a window, and a loss per
    token. Costs a forward pass for each turn."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"varied_attempts"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"single_completions", "sequence_ratios", "windowed_turns"})
    name: Literal["igpo"] = "igpo"
    gamma: Share = 1.0
    """What a turn further on counts."""
    space: Literal["logprob", "prob"] = "logprob"
    """What gains are differences of: the mean log-probability, or its exponential, as in the first release."""
    template: Template = "{answer}"
    """What is appended."""

    def as_turns(self) -> TurnsAdvantage:
        """The same as a member `turns`."""
        return TurnsAdvantage(
            sources=[GainSource(space=self.space, template=self.template), OutcomeSource()],
            propagation=Returns(gamma=self.gamma),
            compare="sources",
            baseline="group",
        )
