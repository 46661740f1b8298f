"""Members of the reward seam."""

from typing import Annotated, Literal

from pydantic import Field

from interplay.schema.base import Model, Natural, Positive, Share
from interplay.schema.custom import Custom
from interplay.schema.verify import Verify


class OutcomeReward(Model):
    """1 when the answer is right, else 0."""

    name: Literal["outcome"] = "outcome"


class FormatReward(Model):
    """(1 - weight) outcome + weight form: 1 for a right answer in the right form, 1 - weight for one in another, weight for a
    wrong one in the right form (SSRL, arXiv:2508.10874; this way of adding both up is inferred). The form is right where the
    family's judge could read the completion: its error is none of truncated, parse, format, unboxed and dumped."""

    name: Literal["format"] = "format"
    weight: Share = 0.2
    """Of the form. (The published value was not found.)"""


class ProcessReward(Model):
    """Rewards that read the steps (arXiv:2512.07783, section 6; its released code where named)."""

    name: Literal["process"] = "process"
    form: Literal["strict", "blend", "blend_released", "dense"] = "strict"
    """strict: 1 when every step and the answer are right; blend: alpha * outcome + (1 - alpha) * step accuracy, as published;
    blend_released: the released code, a node may be charged twice, extras cost, and a wrong answer gives 0; dense: released step
    score without that answer gate."""
    alpha: Share = 0.2
    """Weight of the outcome in the blends."""
    verify: Verify = Verify()


class SubproblemsReward(Model):
    """One reward per subproblem of rows that the `subproblems` step made; other rows count as one block (SCRL,
    arXiv:2605.22074)."""

    name: Literal["subproblems"] = "subproblems"
    prefix_correction: bool = True
    """Whether a block earns its reward only where all blocks before it are right, too."""


class StepsReward(Model):
    """One reward per step of op_dag's forward problems: 1 up to the first wrong step, 0 from there on; behind them the answer, 1
    if right. Other rows count as one step. The program stands where the paper has a trained judge of steps (process supervision,
    arXiv:2402.03300, section 4.1.3)."""

    name: Literal["steps"] = "steps"


class TextReward(Model):
    """How near the answer is to one of the acceptable ones, in words (LoongRL, arXiv:2510.19363)."""

    name: Literal["text"] = "text"
    form: Literal["exact", "f1", "substring", "f1_published", "substring_published"] = "substring"
    """exact: equal once normalised as SQuAD does; f1: of their words; substring: one of them stands in the other as whole words,
    but yes, no and answers under three characters only count as themselves, and an answer needs half of the gold's words. These
    pay nothing for an empty answer, for more than four boxes, and (f1, substring) for more words than `extra_words` allows; the
    published forms lack all guards, so that substring_published pays `no` for `unknown`, and an empty box."""
    extra_words: Natural = 2
    """Words that an answer may have beside the gold. Any list of four options has at least three."""


class CitationReward(Model):
    """r_ans + eta F_beta + (1 - eta) r_ans F_beta over the chunks that a completion names (LongRLVR, arXiv:2603.02146), for rows
    that the `citation` step made; missing or repeated tags earn 0."""

    name: Literal["citation"] = "citation"
    eta: Share = 0.1
    """What citations are worth without the right answer: 1 decouples them from it, 0 pays them only with it."""
    beta: Positive = 2.0
    """How much more recall weighs than precision."""


class PayoffReward(Model):
    """What a game pays, in [-1, 1]: 2 s - 1, s the score of its verdict; so the seats' rewards add up to 0."""

    name: Literal["payoff"] = "payoff"


Reward = Annotated[
    OutcomeReward
    | FormatReward
    | PayoffReward
    | ProcessReward
    | SubproblemsReward
    | StepsReward
    | TextReward
    | CitationReward
    | Custom,
    Field(discriminator="name"),
]

OF_SPANS = ("subproblems", "steps")
"""Rewards that judge parts of a completion by themselves."""
