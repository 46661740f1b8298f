"""Specs of rewards and of shaping terms."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from interplay.core.extension import Extension, written_as
from interplay.core.model import Count, Exact, Model, Natural, NotNegative, Positive, Share, Since
from interplay.tasks.spec import Verify

# Members of the reward seam.


Judgement = Literal["answer", "strict"]


class RewardMember(Model):
    """What every reward has: the verdict that it is about. That alone says which completions are right, to every member that asks
    (an advantage such as pass_k, the loss disco, edits, shaping, continuations); rewards only say how much. In a family that
    judges no steps the strict verdict is that of the answer in the right form."""

    JUDGED_BY: ClassVar[Judgement] = "answer"
    PARTS: ClassVar[tuple[str, ...]] = ()
    """Names of what it is made of, for advantages that take them one by one."""

    def judged_by(self) -> Judgement:
        """strict where the reward reads the steps, else answer."""
        return self.JUDGED_BY


class OutcomeReward(Exact, RewardMember):
    """1 when the answer is right, else 0."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"verdict_rewards"})
    name: Literal["outcome"] = "outcome"


class FormatReward(Exact, RewardMember):
    """(1 - weight) outcome + weight form: 1 for a right answer in the right form, 1 - weight for one in another, weight for a
    wrong one in the right form (SSRL, arXiv:2508.10874; this way of adding both up is inferred). The form is right where the
    family's judge could read the completion: its error is none of truncated, parse, format, unboxed and dumped."""

    PARTS: ClassVar[tuple[str, ...]] = ("outcome", "form")
    name: Literal["format"] = "format"
    weight: Share = 0.2
    """Of the form. (The published value was not found.)"""


class ProcessReward(Exact, RewardMember):
    """Rewards that read the steps (arXiv:2512.07783, section 6; its released code where named). Right is what is strictly so."""

    JUDGED_BY: ClassVar[Judgement] = "strict"
    PARTS: ClassVar[tuple[str, ...]] = ("outcome", "steps")
    name: Literal["process"] = "process"
    form: Literal["strict", "blend", "blend_released", "dense"] = "strict"
    """strict: 1 when every step and the answer are right; blend: alpha * outcome + (1 - alpha) * step accuracy, as published;
    blend_released: the released code, a node may be charged twice, extras cost, and a wrong answer gives 0; dense: released step
    score without that answer gate."""
    alpha: Share = 0.2
    """Weight of the outcome in the blends."""
    verify: Verify = Verify()

    def provides(self) -> frozenset[str]:
        """strict pays the verdict itself."""
        return frozenset({"verdict_rewards"} if self.form == "strict" else ())


class SubproblemsReward(Exact, RewardMember):
    """One reward per subproblem of rows that the `subproblems` step made; other rows count as one block (SCRL,
    arXiv:2605.22074). Right is what answers the last, which is the problem's own question."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"spans"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_completions", "begun_completions", "several_turns"})
    PARTS: ClassVar[tuple[str, ...]] = ("outcome", "well_formed")
    name: Literal["subproblems"] = "subproblems"
    prefix_correction: bool = True
    """Whether a block earns its reward only where all blocks before it are right, too."""


class StepsReward(Exact, RewardMember):
    """One reward per step of op_dag's forward problems: 1 up to the first wrong step, 0 from there on; behind them the answer, 1
    if right. Other rows count as one step. A program replaces the paper's trained judge of steps (process supervision,
    arXiv:2402.03300, section 4.1.3). Right is what is strictly so."""

    JUDGED_BY: ClassVar[Judgement] = "strict"
    PROVIDES: ClassVar[frozenset[str]] = frozenset({"spans"})
    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_completions", "begun_completions", "several_turns"})
    VERSION: ClassVar[int] = 2
    """2: a step that is due to name parents and does not is wrong."""
    PARTS: ClassVar[tuple[str, ...]] = ("outcome",)
    name: Literal["steps"] = "steps"


class TextReward(Exact, RewardMember):
    """How near the answer is to one of the acceptable ones, in words (LoongRL, arXiv:2510.19363)."""

    VERSION: ClassVar[int] = 2
    """2: words in addition to the gold must name nothing else."""
    PARTS: ClassVar[tuple[str, ...]] = ("exact", "f1")
    name: Literal["text"] = "text"
    form: Literal["exact", "f1", "substring", "f1_published", "substring_published"] = "substring"
    """exact: equal once normalised as SQuAD does; f1: of their words; substring: one of them occurs in the other as whole words,
    but yes, no and answers under three characters only count as themselves, and an answer needs half of the gold's words and all
    of its numbers. These pay nothing for an empty answer, for more than four boxes, and (f1, substring) for words in addition to
    the gold that may name something else or take it back; the published forms lack all guards, so that substring_published pays
    `no` for `unknown`, and an empty box."""
    extra_words: Natural = 2
    """Words that an answer may have in addition to the gold. They must be such as `it is`, or be around the answer in the
    question's documents just so; never such as `not` and `or`."""


class CitationReward(Exact, RewardMember):
    """r_ans + eta F_beta + (1 - eta) r_ans F_beta over the chunks that a completion names (LongRLVR, arXiv:2603.02146), for rows
    that the `citation` step made; missing or repeated tags earn 0."""

    PARTS: ClassVar[tuple[str, ...]] = ("outcome", "citations")
    name: Literal["citation"] = "citation"
    eta: Share = 0.1
    """What citations are worth without the right answer: 1 decouples them from it, 0 pays them only with it."""
    beta: Positive = 2.0
    """How much more recall weighs than precision."""


class PayoffReward(Exact, RewardMember):
    """What a game pays, in [-1, 1]: 2 s - 1, s the score of its verdict; so the seats' rewards add up to 0."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"game_payoff"})
    PARTS: ClassVar[tuple[str, ...]] = ("outcome",)
    name: Literal["payoff"] = "payoff"


class RandomReward(Exact, RewardMember):
    """1 or 0 by chance, whatever the completion says (Spurious Rewards, arXiv:2506.10947): a control."""

    name: Literal["random"] = "random"
    share: Share = 0.5
    """Probability of 1."""


class ShuffledReward(Exact, RewardMember):
    """1 when the answer is that of another problem of the step, else 0: the answers of its different problems go to the
    next one. A control; where few answers exist it pays the right one as often as they coincide."""

    name: Literal["shuffled"] = "shuffled"


COLUMNS = ("completions", "prompts", "answer", "solution", "band", "op", "mode", "index", "family", "verdicts")
"""What a reward in TRL's form may name."""


def takes_columns(parameters: Sequence[str]) -> bool:
    """Whether a reward with these parameters has TRL's form."""
    return list(parameters[:1]) in (["completions"], ["prompts"])


class OwnReward(Exact, Extension, RewardMember):
    """A reward of the user's own: `function(problems, completions, verdicts, **options) -> N floats`, or in TRL's form
    `function(completions, **columns) -> N floats`."""

    UNION: ClassVar[str] = "reward"
    right: Annotated[Judgement, Since("answer")] = "answer"
    """The verdict of the problems' family by which members of the method, such as pass_k, disco or demonstrations, know what is
    right; what the function returns never says so."""

    def judged_by(self) -> Judgement:
        """As the study says."""
        return self.right


Reward = Annotated[
    OutcomeReward
    | FormatReward
    | PayoffReward
    | ProcessReward
    | SubproblemsReward
    | StepsReward
    | TextReward
    | CitationReward
    | RandomReward
    | ShuffledReward
    | OwnReward,
    Field(discriminator="name"),
    written_as(OwnReward),
]


# Members of the shaping seam: what is added to the rewards of a step's completions before they are compared. The sampler and
# the records of what passed see the rewards as they were.


class ShapingTerm(Exact):
    """What every shaping has."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"shaped_rewards"})


class OverlongShaping(ShapingTerm):
    """A penalty that grows over the last tokens before the length limit (DAPO, arXiv:2503.14476, eq. 13)."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["overlong"] = "overlong"
    cache: Count = 32
    """Tokens before the limit over which the penalty goes from 0 to 1."""
    cache_share: Annotated[Share | None, Since(None)] = None
    """The same as a share of the limit, in place of `cache`; DAPO's run has 4,096 of 20,480 tokens, 0.2."""
    weight: NotNegative = 1.0
    """What the full penalty takes."""


class RepetitionShaping(ShapingTerm):
    """A penalty for completions that end in a loop (CAMPO, arXiv:2507.14683)."""

    name: Literal["repetition"] = "repetition"
    mode: Literal["share", "truncated"] = "share"
    """share: `weight` times the share of the completion from the start of the loop, for every completion, as the text says;
    truncated: `weight` for those that the length limit cut while they looped, as the released code does."""
    weight: NotNegative = 0.1
    """Released: 0.1."""


class HistoryLengthShaping(ShapingTerm):
    """A length term in addition to the reward, relative to the shortest right completion of the prompt so far (HAPO, history
    aware, arXiv:2505.11225). It acts from a prompt's second visit on: give RL fewer prompts than steps * prompts_per_step."""

    PROVIDES: ClassVar[frozenset[str]] = ShapingTerm.PROVIDES | {"reads_right"}
    name: Literal["hapo_length"] = "hapo_length"
    weight: Share = 1.0
    """w; at most 1, so that a right answer is worth more than a wrong one."""


class KimiLengthShaping(ShapingTerm):
    """A length term relative to the shortest and longest completion of the group: 0.5 - (l - min) / (max - min) for right ones,
    at most 0 for wrong ones (Kimi k1.5, arXiv:2501.12599, section 2.3.3)."""

    PROVIDES: ClassVar[frozenset[str]] = ShapingTerm.PROVIDES | {"reads_right"}
    SCHEDULED: ClassVar[bool] = True
    name: Literal["kimi_length"] = "kimi_length"
    weight: NotNegative = 1.0
    """What the term is worth."""
    warmup: Share = 0.0
    """Share of the run's steps before it counts: the report starts without it."""


class ContrastShaping(ShapingTerm):
    """A bonus for completions that use an auxiliary device where their group shows that it helps, and a malus where it hurts
    (GCPO, arXiv:2506.07160): group-contrastive masking."""

    name: Literal["gcpo"] = "gcpo"
    marker: str = Field(min_length=1)
    """Text that a completion holds where it uses the device, such as `<plan>`."""
    bonus: NotNegative = 0.1
    """Size of bonus and malus."""
    margin: NotNegative = 0.0
    """Difference of mean rewards with and without below which there is neither."""
    length: float = 0.0
    """Added per share of the length limit that is used: the paper rewards length."""


class TurnsShaping(ShapingTerm):
    """A price for every unit of thinking beyond the first (MinD, arXiv:2505.19788): right completions lose `weight` for each
    further marker."""

    PROVIDES: ClassVar[frozenset[str]] = ShapingTerm.PROVIDES | {"reads_right"}
    REFUSES: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["units"] = "units"
    marker: str = Field(min_length=1)
    """Text that every unit holds once, such as the mark of its answer."""
    weight: NotNegative = 0.05
    """(The published coefficient was not found.)"""


class RankShaping(ShapingTerm):
    """Rewards by rank for truncated completions of a group in which none is right: those that are uncertain throughout and at
    their peaks rank first (R3's structural entropy, arXiv:2601.19620). Costs a forward pass where such groups are."""

    PROVIDES: ClassVar[frozenset[str]] = ShapingTerm.PROVIDES | {"reads_right"}
    name: Literal["entropy_rank"] = "entropy_rank"
    peak: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the tokens, those of highest entropy, that make the peak. (The published value was not found.)"""
    most: Positive = 0.1
    """Reward of the first. (The published value was not found.)"""


class KlShaping(ShapingTerm):
    """An estimate of the KL divergence from the reference, taken off the reward of each token (arXiv:1909.08593, eq. 2).
    Advantages of returns (`gae`, `whitened` without a baseline) see it token by token, the others its sum over the completion.
    Costs a forward pass of the reference model over what was drawn."""

    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_text", "other_completions"})
    name: Literal["kl"] = "kl"
    kl_coef: Positive = 0.05
    """What a nat costs; TRL's default for PPO and RLOO."""
    kl_estimator: Literal["k1", "abs", "k2", "k3"] = "k1"
    """With d = log pi - log pi_ref of a token: k1 d, abs |d|, k2 d^2 / 2, k3 exp(-d) + d - 1. In a reward k1 alone has the right
    gradient on average."""
    target_kl: Positive | None = None
    """Divergence to which the coefficient is steered, the mean over completions of each one's mean over its tokens: after B
    completions it is multiplied by 1 + clip(KL / target_kl - 1, -0.2, 0.2) B / horizon (arXiv:1909.08593, section 2.2). null: it
    stays as it is."""
    horizon: Count = 10000
    """Completions over which it is steered."""


class GapShaping(ShapingTerm):
    """The reward is what a completion is worth beyond the own attempt that its prompt shows, r(y) - r(y_ref) (PIT,
    arXiv:2310.00898). Needs a continuation that shows one."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"shown_attempts", "varied_attempts"})
    name: Literal["gap"] = "gap"


class AttemptsShaping(ShapingTerm):
    """Later answers are worth less, and answers given again cost (UFO, arXiv:2507.14295): with n turns, of which the last earns
    r, r gamma^(n - 1) - repeats (1 - different answers / n)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["attempts"] = "attempts"
    gamma: Share = 0.5
    """Released: 0.5."""
    repeats: NotNegative = 0.5
    """Of answers that are compared in lower case and without blanks."""


class ImprovementShaping(ShapingTerm):
    """A bonus for the second of two answers over the first (SCoRe, arXiv:2409.12917): r2 + alpha (r2 - r1)."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"several_turns"})
    name: Literal["improvement"] = "improvement"
    alpha: NotNegative = 10.0
    """What improving is worth."""
    first: Share = 1.0
    """What the first answer's own reward is multiplied by; 0 in the first stage, which pays the second answer alone."""


class OwnShaping(Extension):
    """A term of the user's own: `function(batch, now, **options) -> (N,)`, which is added to the rewards, or `(N, T)`, what each
    token earns."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"shaped_rewards"})
    UNION: ClassVar[str] = "shaping"
    SCHEDULED: ClassVar[bool] = True


Shaping = Annotated[
    AttemptsShaping
    | ImprovementShaping
    | GapShaping
    | OverlongShaping
    | RepetitionShaping
    | HistoryLengthShaping
    | KimiLengthShaping
    | ContrastShaping
    | TurnsShaping
    | RankShaping
    | KlShaping
    | OwnShaping,
    Field(discriminator="name"),
    written_as(OwnShaping),
]
