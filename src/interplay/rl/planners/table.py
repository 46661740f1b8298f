"""The table of planners, by the `name` of their spec."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from interplay.rl.batch import Batch
from interplay.rl.now import Now
from interplay.rl.planners.allocation import xrpo, xrpo_again
from interplay.rl.planners.ask import Ask, plain
from interplay.rl.planners.attempts import (
    exit_carried,
    exit_plan,
    exit_settled,
    shown_attempt,
    shown_attempt_again,
    shown_attempt_settled,
)
from interplay.rl.planners.contexts import (
    annealed_shots,
    critique_again,
    critique_settled,
    icpo,
    icpo_settled,
    reflection,
    reflection_settled,
)
from interplay.rl.planners.feedback import feedback_settled
from interplay.rl.planners.hints import guide_again, guide_settled, prefix
from interplay.rl.planners.pieces import tree, tree_again, tree_settled, windows, windows_carried, windows_settled
from interplay.schema.planner import Planner
from interplay.tasks.row import Row


class Member(NamedTuple):
    """A planner."""

    plan: Callable[..., list[Ask]]
    """`(spec, rows, now)`: what is asked of the prompts that the sampler drew, slot by slot."""
    again: Callable[..., list[Ask]] | None = None
    """`(spec, rows, batch, asked, now)`: what is asked next, given what came of it and how often that was asked already; nothing
    ends the drawing."""
    carried: Callable[..., list[int]] | None = None
    """`(spec, now, prompts)`: which of so many prompts a step begins with, whatever the sampler would draw; they take the first
    slots."""
    settle: Callable[..., Batch] | None = None
    """`(spec, batch, now) -> batch`: what is kept of all that was drawn. It alone may write to the memory."""


def fixed(spec: Planner, rows: Sequence[Row], now: Now) -> list[Ask]:
    """The same group size for every prompt, and its own text."""
    return [plain(slot, spec.num_generations, row.prompt) for slot, row in enumerate(rows)]


MEMBERS: dict[str, Member] = {
    "fixed": Member(fixed),
    "guide": Member(fixed, guide_again, settle=guide_settled),
    "prefix": Member(prefix),
    "icpo": Member(icpo, settle=icpo_settled),
    "annealed_shots": Member(annealed_shots),
    "reflection": Member(reflection, settle=reflection_settled),
    "critique": Member(fixed, critique_again, settle=critique_settled),
    "feedback": Member(fixed, settle=feedback_settled),
    "xrpo": Member(xrpo, xrpo_again),
    "tree": Member(tree, tree_again, settle=tree_settled),
    "windows": Member(windows, carried=windows_carried, settle=windows_settled),
    "exit": Member(exit_plan, carried=exit_carried, settle=exit_settled),
    "shown_attempt": Member(shown_attempt, shown_attempt_again, settle=shown_attempt_settled),
}


def plan(rows: Sequence[Row], now: Now) -> list[Ask]:
    """What the method's planner asks of the prompts `rows` that the sampler drew."""
    spec = now.method.planner
    return MEMBERS[spec.name].plan(spec, rows, now)


def carried(now: Now, prompts: int) -> list[int]:
    """Those of its `prompts` prompts that the step begins with."""
    spec = now.method.planner
    member = MEMBERS[spec.name].carried
    return member(spec, now, prompts) if member else []


def again(rows: Sequence[Row], batch: Batch, asked: int, now: Now) -> list[Ask]:
    """What it asks next."""
    spec = now.method.planner
    member = MEMBERS[spec.name].again
    return member(spec, rows, batch, asked, now) if member else []


def settled(batch: Batch, now: Now) -> Batch:
    """What it keeps."""
    spec = now.method.planner
    member = MEMBERS[spec.name].settle
    return member(spec, batch, now) if member else batch
