"""Specs of rewards, of their terms and of how these are composed."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.model import AnyCurve, Count, Exact, Model, Natural, Positive, PositiveCurve, Share, ShareCurve, Since
from interplay.rollout.seat_spec import Rubric
from interplay.tasks.spec import Verify

Judgement = Literal["answer", "strict"]


class RewardMember(Model):
    """What every reward has: the verdict that it is about. That alone says which completions are right, to every member that asks
    (an advantage such as pass_k, the loss disco, edits, shaping, continuations); rewards only say how much. In a family that
    judges no steps the strict verdict is that of the answer in the right form."""

    JUDGED_BY: ClassVar[Judgement | None] = "answer"
    """None: it is about no verdict."""
    PARTS: ClassVar[tuple[str, ...]] = ()

    def parts(self) -> tuple[str, ...]:
        """Names of what it is made of, for advantages that take them one by one."""
        return self.PARTS

    def judgement(self) -> Judgement | None:
        """strict where the reward reads the steps, else answer; None where it is about neither, and the answer is right."""
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
    weight: ShareCurve = 0.2
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
    alpha: ShareCurve = 0.2
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
    eta: ShareCurve = 0.1
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

    def judgement(self) -> Judgement:
        """As the study says."""
        return self.right


# Terms that judge nothing, and the composed reward.


class FormReward(Exact, RewardMember):
    """1 where the form is right, else 0: the family's judge could read the completion (see `format`)."""

    JUDGED_BY: ClassVar[Judgement | None] = None
    name: Literal["form"] = "form"


class EnvironmentReward(Exact, RewardMember):
    """What the environment pays over an episode, its turns added up. Each turn earns what it was paid, which `turn_returns`, and
    `gae` with `rewards: turns`, credit to that turn. In a composed reward, gates and factors are those of the whole episode, the
    other terms of its sum are earned by the last turn, and what the turns earn adds up to the reward of the episode."""

    NEEDS: ClassVar[frozenset[str]] = frozenset({"paid_turns"})
    JUDGED_BY: ClassVar[Judgement | None] = None
    name: Literal["environment"] = "environment"


class LengthReward(Exact, RewardMember):
    """A reward for n tokens against a budget (L1, arXiv:2503.04697, where each prompt states a budget), to be added to or
    multiplied with a reward for the right answer."""

    JUDGED_BY: ClassVar[Judgement | None] = None
    name: Literal["length"] = "length"
    budget: Count
    """Tokens, the end of the completion not counted."""
    form: Literal["at_most", "exact"] = "at_most"
    """at_most: alpha (budget - n) + delta, cut to [0, 1], for a product (LCPO-Max, eq. 2); exact: -alpha |budget - n|, for a sum
    (LCPO-Exact, eq. 1)."""
    alpha: PositiveCurve = 0.0003
    """Reward per token of difference; the published value is for budgets of thousands of tokens."""
    delta: Share = 0.5
    """at_most: reward at exactly the budget."""


class LearnedReward(RewardMember):
    """What rewards have that come from another model."""

    PROVIDES: ClassVar[frozenset[str]] = frozenset({"learned_reward"})
    right: Judgement | None = None
    """The verdict that says what is right, to members that ask; null: the answer, or as the other terms say."""

    def judgement(self) -> Judgement | None:
        """As the study says."""
        return self.right


class ModelReward(LearnedReward):
    """The score of a reward model that the study trains (RLHF, arXiv:2203.02155), or the weighted mean of its heads. The model
    reads prompt and completion, with the end token unless the length limit cut it; its tokenizer must be the policy's."""

    INEXACT: ClassVar[str] = "passes of a reward model are PyTorch's sums"
    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_completions", "several_turns"})
    name: Literal["model"] = "model"
    model: str
    """Arm of the study that ends with a stage of kind reward_model, at the same seed; the planner puts the role of the input in
    its place."""


class JudgeReward(LearnedReward, Rubric):
    """The score that a language model gives by a rubric: see `Rubric`. Its arm must not be made with this reward."""

    INEXACT: ClassVar[str] = "a judge's answers are not computed here"
    REFUSES: ClassVar[frozenset[str]] = frozenset({"other_completions"})
    name: Literal["judge"] = "judge"

    def inexact(self) -> str:
        """An arm's answers are computed here."""
        return "" if self.arm else self.INEXACT


OneNumber = (
    OutcomeReward
    | FormatReward
    | PayoffReward
    | ProcessReward
    | TextReward
    | CitationReward
    | RandomReward
    | ShuffledReward
    | FormReward
    | EnvironmentReward
    | LengthReward
    | ModelReward
    | JudgeReward
)
Paid = Annotated[OneNumber | OwnReward, Field(discriminator="name"), written_as(OwnReward)]
"""Rewards that are one number for each completion."""


class RewardTerm(Model):
    """A term of a composed reward."""

    reward: Paid
    """What it pays."""
    weight: AnyCurve = 1.0
    """What it is multiplied by; of a sum."""
    above: float = 0.0
    """Its gate is open where it pays more than this; of a gate."""
    part: str = ""
    """Name of its column `reward/<part>`, of curves, and for advantages that take parts one by one, such as gdpo; empty: the
    reward's name, or that of its function."""

    def called(self) -> str:
        """Its name among the parts."""
        own = self.reward.function.rpartition(":")[2] if isinstance(self.reward, OwnReward) else self.reward.name
        return self.part or own


class ComposedReward(Exact, RewardMember):
    """Terms, as `reward: {gate: [...], sum: [...], product: [...]}`, one key of these at least: the sum of weight times reward
    over `sum` (1 without it), times the rewards of `product`, where all of `gate` are open, and else 0. A gate alone pays 1
    where it is open. Curves and rollouts have a column `reward/<part>` for what each term pays, before weights and gates."""

    JUDGED_BY: ClassVar[Judgement | None] = None
    name: Literal["composed"] = "composed"
    gate: list[RewardTerm] = []
    """Terms that must pay more than `above`."""
    sum: list[RewardTerm] = []
    """Terms that are added."""
    product: list[RewardTerm] = []
    """Terms that are multiplied."""
    right: Judgement | None = None
    """The verdict that says which completions are right, to members of the method that ask. null: the one that the terms are
    about, of which `form`, `length` and the like are about none; where they are about two, it must be written."""

    def terms(self) -> list[RewardTerm]:
        """All, in the order gate, sum, product."""
        return [*self.gate, *self.sum, *self.product]

    def pays_turns(self) -> int:
        """In how many of sum and product the term `environment` is."""
        return sum(any(isinstance(one.reward, EnvironmentReward) for one in terms) for terms in (self.sum, self.product))

    def parts(self) -> tuple[str, ...]:
        """A term and, below its name, what that is made of."""
        return tuple(
            name for one in self.terms() for name in (one.called(), *(f"{one.called()}/{p}" for p in one.reward.parts()))
        )

    def judgement(self) -> Judgement | None:
        """As the study says, or as the terms do."""
        return self.right or next((found for one in self.terms() if (found := one.reward.judgement())), None)

    @model_validator(mode="after")
    def _terms_fit(self) -> "ComposedReward":
        terms = self.terms()
        if not terms:
            raise ValueError("no terms; write gate, sum or product, such as sum: [{reward: {name: outcome}}]")
        names = [one.called() for one in terms]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two terms are called '{twice[0]}'; give one of them another name, as part: {twice[0]}_too")
        if odd := [name for name in names if not name.isidentifier()]:
            raise ValueError(f"part: '{odd[0]}' cannot be a column; write letters, digits and _")
        for key, of in (("weight", "sum"), ("above", "gate")):
            usual, strays = RewardTerm.model_fields[key].default, (name for name in ("gate", "sum", "product") if name != of)
            if astray := [one for name in strays for one in getattr(self, name) if getattr(one, key) != usual]:
                raise ValueError(f"{key} belongs to a term of {of}; take it away from {astray[0].called()}")
        if self.pays_turns() == 2:
            raise ValueError("environment: is in sum and in product, so that no turn has a share of its own; take one away")
        rules = [one.reward.verify for one in terms if isinstance(one.reward, ProcessReward)]
        if any(rule != rules[0] for rule in rules):
            raise ValueError("verify: two process terms judge by different rules; completions are judged once, so write one")
        about = {found: one.called() for one in terms if (found := one.reward.judgement())}
        if self.right is None and len(about) > 1:
            each = " and ".join(f"{name} ({verdict})" for verdict, name in about.items())
            raise ValueError(f"right: {each} are about different verdicts; write right: strict or right: answer")
        return self


def terms_of(reward: RewardMember) -> list[Any]:
    """The rewards that a composed one is made of; any other is its own only one."""
    return [one.reward for one in reward.terms()] if isinstance(reward, ComposedReward) else [reward]


def _arm_key(reward: RewardMember) -> str:
    """The key of a reward that names an arm; empty: none does."""
    if isinstance(reward, JudgeReward):
        return "arm" if reward.arm else ""
    return "model" if isinstance(reward, ModelReward) else ""


def with_roles(reward: Any) -> tuple[Any, dict[str, ModelReward | JudgeReward]]:
    """The reward with roles `reward.<i>` in place of the arms of reward models and judges, i the place among its terms; role ->
    the term with its arm."""
    keys = [_arm_key(one) for one in terms_of(reward)]
    roles = {f"reward.{i}": one for i, (one, key) in enumerate(zip(terms_of(reward), keys, strict=True)) if key}
    names = iter(roles)

    def placed(one: Any) -> Any:
        return one.model_copy(update={key: next(names)}) if (key := _arm_key(one)) else one

    if not isinstance(reward, ComposedReward):
        return placed(reward), roles
    lists = {
        key: [term.model_copy(update={"reward": placed(term.reward)}) for term in getattr(reward, key)]
        for key in ("gate", "sum", "product")
    }
    return reward.model_copy(update=lists), roles


def _composed(value: Any) -> Any:
    """`{sum: [...]}` without a name."""
    if isinstance(value, dict) and "name" not in value and {"gate", "sum", "product"} & value.keys():
        return {"name": "composed", **value}
    return value


Reward = Annotated[
    OneNumber | SubproblemsReward | StepsReward | ComposedReward | OwnReward,
    Field(discriminator="name"),
    written_as(OwnReward),
    BeforeValidator(_composed),
]
