"""Specs of the seats of an episode: who plays each, what it reads, and whose reward is whose; and of a model that judges."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.extension import Extension, written_as
from interplay.core.keys import filled
from interplay.core.model import Count, Exact, Model, Positive, Share, Since

SEAT = "seat."
"""What roles of the models of seats begin with."""
FIELDS = ("prompt", "answer", "solution")
"""Fields of a brief, those of the row."""


JUDGED = "judged:"
"""What columns and metrics of a judge's scores begin with."""


class Rubric(Model):
    """A language model that gives scores by a rubric (LLM as a judge, arXiv:2306.05685, section 3.1), divided by the largest: one
    behind an OpenAI-compatible endpoint, `run.judge`, asked at temperature 0, or the final model of an arm, whose likeliest
    tokens are taken. Answers are kept in judgements.jsonl by model, token limit and question, so that a resumed run, or one with
    that file, repeats; an endpoint that is asked again may say something else."""

    model: str = ""
    """Name by which the endpoint knows it; empty: an arm is asked."""
    arm: Annotated[str, Since("")] = ""
    """Arm whose final model is asked, at the same seed, frozen; the planner puts a role in its place. Its tokenizer may be
    another than the policy's, and special tokens are left out of what it reads of a completion."""
    rubric: str = Field(pattern=r"\{completion\}")
    """The question; {prompt}, {completion}, and the problem's {answer} and {solution} are filled in. For a chat model of an arm
    with the special tokens of its template."""
    pattern: str = r"-?\d+(?:\.\d+)?"
    """Regular expression of a score; the last match in an answer counts, or its group."""
    largest: Positive = 10.0
    """Largest score; the least is 0."""
    unreadable: Share | None = None
    """Score where an answer holds no score from 0 to the largest; null: the run ends there."""
    max_tokens: Count = 256
    """Tokens of an answer at most."""

    @model_validator(mode="after")
    def _asks_one(self) -> "Rubric":
        if bool(self.model) == bool(self.arm):
            raise ValueError("write model, as the endpoint run.judge calls it, or arm, an arm of the study; one of the two")
        if (groups := _groups(self.pattern)) > 1:
            raise ValueError(f"pattern: '{self.pattern}' has {groups} groups; one, or none, holds the score")
        return self


def _groups(pattern: str) -> int:
    try:
        return re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"pattern: '{pattern}' is no regular expression ({error}); correct it") from None


class Reads(Exact):
    """What a seat reads."""

    sees: Literal["public", "all", "own"] = "public"
    """Of what others do. public: what the rules show it, that is the moves of a game, what a world of several seats says to the
    seat that is next, and in a dialogue the words of the others without their thoughts; all: their turns whole, thoughts
    included; own: nothing but what an environment replies."""
    brief: str | None = None
    """What it reads first, with the fields {prompt}, {answer} and {solution} of the row, of which the last two are what the
    others do not know; null: what the rules say to this seat, or the prompt."""

    def briefed(self, usual: str, row: Any) -> str:
        """What it reads first; `usual`: what it does without a brief of its own."""
        return usual if self.brief is None else filled(self.brief, {name: getattr(row, name) for name in FIELDS})


class PolicySeat(Reads):
    """The policy."""

    name: Literal["policy"] = "policy"
    trained: bool = True
    """Whether its turns are learnt from."""


class ModelSeat(Reads):
    """The final model of an arm, at the same seed, frozen: an opponent, a partner or a simulated user."""

    name: Literal["model"] = "model"
    model: str
    """The arm; the planner puts a role in its place. Its tokenizer must be the policy's."""


class PoolSeat(Reads):
    """A frozen model for each prompt of a step, drawn by a key of the seed: the same for all its completions, so that these are
    compared with each other."""

    name: Literal["pool"] = "pool"
    models: list[str] = []
    """Arms; the planner puts roles in their place."""
    every: Count | None = None
    """Steps after which this run's policy joins the pool, beginning with the one that it starts from; null: it does not."""
    keep: Count = 4
    """Past policies that stay in the pool, the latest."""


class ScriptSeat(Exact):
    """A player of the rules, in games."""

    name: Literal["script"] = "script"
    plays: Literal["expert", "opponent", "random"] = "expert"
    """expert: the moves of the game's expert; opponent: those of its scripted opponent; random: legal moves, by a key of the
    seed."""


class OwnSeat(Extension):
    """A class of the user's own, an object for each episode, with `reset(problem, seed)` and `act(read) -> str`: a simulated user
    that knows what the problem hides, or any other player."""

    UNION: ClassVar[str] = "seat"


class JudgeSeat(Exact):
    """The final model of an arm, frozen, which reads the episode once it is over, a line for each turn with the name of its seat.
    What it pays is paid to each seat of the policy at its last turn; the reward `environment` passes it on."""

    name: Literal["judge"] = "judge"
    model: str
    """The arm; the planner puts a role in its place."""
    brief: str = "{prompt}{episode}"
    """What it reads, with the fields {prompt}, {answer}, {solution} and {episode}."""
    pattern: str = r"(\d+(?:\.\d+)?)"
    """Regular expression whose first group is what it pays, a number; 0 where nothing matches."""

    @model_validator(mode="after")
    def _pays(self) -> "JudgeSeat":
        if not _groups(self.pattern):
            raise ValueError(f"pattern: '{self.pattern}' has no group; put what it pays in parentheses")
        return self


SeatMember = Annotated[
    PolicySeat | ModelSeat | PoolSeat | ScriptSeat | OwnSeat | JudgeSeat, Field(discriminator="name"), written_as(OwnSeat)
]
Seats = Annotated[dict[str, SeatMember], Field(min_length=2)]
Credit = Literal["own", "shared", "zero_sum"] | dict[str, dict[str, float]]


def credit_matrix(credit: Credit, names: list[str]) -> list[list[float]]:
    """(S,S): what the reward of seat j counts in that of seat i. Raises ValueError where a weight names no seat."""
    others = max(len(names) - 1, 1)
    if isinstance(credit, str):
        off = {"own": 0.0, "shared": 1 / len(names), "zero_sum": -1 / others}[credit]
        on = 1 / len(names) if credit == "shared" else 1.0
        return [[on if i == j else off for j in range(len(names))] for i in range(len(names))]
    for name in (*credit, *(other for row in credit.values() for other in row)):
        if name not in names:
            raise ValueError(f"credit: no seat '{name}'; the seats are {', '.join(names)}")
    own = {name: {name: 1.0} for name in names}
    return [[{**own, **credit}[one].get(other, 0.0) for other in names] for one in names]


def misfit(family: Any, seats: Mapping[str, Any], order: list[str]) -> str | None:
    """Why a family (`tasks.family`) cannot be played with these seats, in words; None: it can."""
    names, label = getattr(family, "seat_names", ()), family.name
    players = [name for name, one in seats.items() if not isinstance(one, JudgeSeat)]
    if order:
        return f"{label} has seats of its own, {', '.join(names)}; remove order" if names else None
    if not names:
        return f"{label} has no seats of its own; write order: [{', '.join(players)}], the last of which acts"
    if odd := [name for name in players if name not in names]:
        return f"{label} has no seat '{odd[0]}'; it has {', '.join(names)}"
    if missing := [name for name in names if name not in players]:
        return f"the seat '{missing[0]}' of {label} is empty; write who plays it"
    if any(isinstance(one, ScriptSeat) for one in seats.values()) and not hasattr(family, "legal"):
        return f"a script plays games, and {label} is none; write a class of yours, such as file.py:Player"
    return None


def models_of(seats: Mapping[str, Any]) -> Iterator[str]:
    """The models that seats name, by the names of the seats."""
    for name in sorted(seats):
        one = seats[name]
        if isinstance(one, ModelSeat | JudgeSeat):
            yield one.model
        elif isinstance(one, PoolSeat):
            yield from one.models


def with_roles(seats: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """Seats with roles in place of arms; `roles`: arm -> role."""

    def placed(one: Any) -> Any:
        if isinstance(one, ModelSeat | JudgeSeat):
            return one.model_copy(update={"model": roles[one.model]})
        return one.model_copy(update={"models": sorted(roles[arm] for arm in one.models)}) if isinstance(one, PoolSeat) else one

    return {name: placed(one) for name, one in seats.items()}
