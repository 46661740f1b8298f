"""The table of planners by the `name` of their spec."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from interplay.rl.batch import Batch
from interplay.rl.planners.allocation import SamplingRequest, plain_request, xrpo, xrpo_again
from interplay.rl.planners.continuation import tree, tree_again, tree_settled, windows, windows_carried, windows_settled
from interplay.rl.planners.prompting import (
    annealed_shots,
    critique_again,
    critique_settled,
    exit_carried,
    exit_plan,
    exit_settled,
    feedback_settled,
    guide_again,
    guide_settled,
    icpo,
    icpo_settled,
    prefix,
    reflection,
    reflection_settled,
    shown_attempt,
    shown_attempt_again,
    shown_attempt_settled,
)
from interplay.rl.planners.spec import Planner
from interplay.rl.step_context import StepContext
from interplay.tasks.verdict import Row


class PlannerMember(NamedTuple):
    """A planner."""

    plan: Callable[..., list[SamplingRequest]]
    """`(spec, rows, now)`: what is asked of the prompts that the sampler drew, slot by slot."""
    again: Callable[..., list[SamplingRequest]] | None = None
    """`(spec, rows, batch, asked, now)`: what is asked next, given what came of it and how often that was asked already; nothing
    ends the drawing."""
    carried: Callable[..., list[int]] | None = None
    """`(spec, now, prompts)`: which of so many prompts a step begins with, whatever the sampler would draw; they take the first
    slots."""
    settle: Callable[..., Batch] | None = None
    """`(spec, batch, now) -> batch`: what is kept of all that was drawn. It alone may write to the memory."""


def fixed(spec: Planner, rows: Sequence[Row], now: StepContext) -> list[SamplingRequest]:
    """The same group size for every prompt, and its own text."""
    return [plain_request(slot, spec.num_generations, row.prompt) for slot, row in enumerate(rows)]


MEMBERS: dict[str, PlannerMember] = {
    "fixed": PlannerMember(fixed),
    "guide": PlannerMember(fixed, guide_again, settle=guide_settled),
    "prefix": PlannerMember(prefix),
    "icpo": PlannerMember(icpo, settle=icpo_settled),
    "annealed_shots": PlannerMember(annealed_shots),
    "reflection": PlannerMember(reflection, settle=reflection_settled),
    "critique": PlannerMember(fixed, critique_again, settle=critique_settled),
    "feedback": PlannerMember(fixed, settle=feedback_settled),
    "xrpo": PlannerMember(xrpo, xrpo_again),
    "tree": PlannerMember(tree, tree_again, settle=tree_settled),
    "windows": PlannerMember(windows, carried=windows_carried, settle=windows_settled),
    "exit": PlannerMember(exit_plan, carried=exit_carried, settle=exit_settled),
    "shown_attempt": PlannerMember(shown_attempt, shown_attempt_again, settle=shown_attempt_settled),
}


def plan(rows: Sequence[Row], now: StepContext) -> list[SamplingRequest]:
    """What the method's planner asks of the prompts `rows` that the sampler drew."""
    spec = now.method.planner
    return MEMBERS[spec.name].plan(spec, rows, now)


def carried(now: StepContext, prompts: int) -> list[int]:
    """Those of its `prompts` prompts that the step begins with."""
    spec = now.method.planner
    member = MEMBERS[spec.name].carried
    return member(spec, now, prompts) if member else []


def again(rows: Sequence[Row], batch: Batch, asked: int, now: StepContext) -> list[SamplingRequest]:
    """What it asks next."""
    spec = now.method.planner
    member = MEMBERS[spec.name].again
    return member(spec, rows, batch, asked, now) if member else []


def settled(batch: Batch, now: StepContext) -> Batch:
    """What it keeps."""
    spec = now.method.planner
    member = MEMBERS[spec.name].settle
    return member(spec, batch, now) if member else batch
