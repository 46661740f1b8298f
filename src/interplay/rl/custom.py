"""Members of the user's own at the seams of RL (core.extension): what they return is checked here, so that a wrong shape is one
line and not a failure deep in the step. Signatures are in the table `kinds.extensions`.

All must be pure: the same arguments give the same result, else a resumed run would not repeat an uninterrupted one."""

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch

from interplay.core import extension, model
from interplay.rl import sampler as samplers
from interplay.rl.reward_spec import COLUMNS, takes_columns
from interplay.tasks.verdict import Verdict

if TYPE_CHECKING:
    from interplay.rl.batch import Batch, StepContext

T = TypeVar("T")


def own_reward(
    spec: extension.Extension, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]
) -> list[float]:
    """N floats. Raises UserError when they are not N finite numbers."""
    function = extension.load(spec)
    parameters = inspect.signature(function).parameters
    if takes_columns(list(parameters)):
        columns = {"completions": list(completions), "prompts": [row.prompt for row in problems], "verdicts": list(verdicts)}
        columns |= {name: [getattr(row, name) for row in problems] for name in COLUMNS if name not in columns}
        named = columns if any(one.kind is one.VAR_KEYWORD for one in parameters.values()) else columns.keys() & parameters.keys()
        made = extension.call_loaded(spec, functools.partial(function, **{name: columns[name] for name in named}))
    else:
        made = extension.call_loaded(spec, function, list(problems), list(completions), list(verdicts))
    numbers = _each(made, extension.finite_number)
    values = [number for number in numbers or () if number is not None]
    if numbers is None or not len(numbers) == len(values) == len(completions):
        raise model.UserError(f"{spec.function}: must return {len(completions)} finite floats, not {_shown(made)}")
    return values


def own_shaping(spec: extension.Extension, batch: "Batch", now: "StepContext") -> torch.Tensor:
    """(N,) float64, what is added to the rewards. Raises UserError when it has another shape or is not finite."""
    return checked_tensor(spec, extension.call(spec, batch, now), tuple(batch.rewards.shape), torch.float64)


def own_advantage(spec: extension.Extension, batch: "Batch", now: "StepContext") -> torch.Tensor:
    """(N, T) float32, zero where no token bears loss. Raises UserError when it has another shape or is not finite."""
    mask = batch.mask()
    return checked_tensor(spec, extension.call(spec, batch, now), tuple(mask.shape), torch.float32) * mask


def acts_before(spec: extension.Extension) -> bool:
    """Whether an edit acts before advantages are known: it takes (batch, now)."""
    return list(inspect.signature(extension.load(spec)).parameters)[:2] == ["batch", "now"]


def own_edit(spec: extension.Extension, *given: Any) -> Any:
    """The batch, and after advantages are known these and the tokens that bear loss, too. Raises UserError when it returns
    something else."""
    made = extension.call(spec, *given)
    parts = made if len(given) > 2 else (made,)
    if not isinstance(parts, tuple) or [type(part) for part in parts] != [type(part) for part in given[:-1]]:
        names = ", ".join(type(part).__name__ for part in given[:-1])
        raise model.UserError(f"{spec.function}: must return {names}, not {_shown(made)}")
    return made


def checked_tensor(spec: extension.Extension, made: Any, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """What an own member returned, as a tensor of this shape and type. Raises UserError when it has another shape or is not
    finite."""
    found = torch.as_tensor(made) if isinstance(made, (torch.Tensor, np.ndarray, list)) else None
    if found is None or tuple(found.shape) != shape:
        given = _shown(made) if found is None else f"one of shape {tuple(found.shape)}"
        raise model.UserError(f"{spec.function}: must return a tensor of shape {shape}, not {given}")
    if not bool(torch.isfinite(found.detach()).all()):
        raise model.UserError(f"{spec.function}: must return finite numbers; some are not")
    return found.to(dtype)


def _each(made: Any, kind: Callable[[Any], T]) -> list[T] | None:
    """Every item as `kind` reads it; None where there are no items, or one is of another kind."""
    try:
        return [kind(item) for item in made]
    except (TypeError, ValueError, OverflowError):
        return None


def _shown(made: Any) -> str:
    """What a function returned, with how many items where it has some."""
    size = f"{len(made)}: " if hasattr(made, "__len__") else ""
    return f"{size}{made!r}"[:60]


def own_sampler(spec: extension.Extension, deck: samplers.PromptSource) -> samplers.Sampler:
    """An object of the user's class of samplers, or one that calls the user's function."""
    loaded = extension.load(spec)
    if isinstance(loaded, type):
        return cast(samplers.Sampler, extension.call_loaded(spec, loaded, deck))
    return FunctionSampler(spec, loaded, deck)


class FunctionSampler(samplers.Sampler):
    """Calls a function of the user's own with the success history of every prompt."""

    STATE = ("tries", "passes")

    def __init__(self, spec: extension.Extension, function: Callable[..., Any], deck: samplers.PromptSource) -> None:
        self.spec, self.seed, self.function = spec, deck.seed, function
        self.tries = np.zeros(len(deck), dtype=np.int64)
        self.passes = np.zeros(len(deck), dtype=np.int64)

    def select(self, m: int, step: int) -> list[int]:
        """The ids that the function chooses. Raises UserError when they are not m ids of the sets."""
        made = extension.call_loaded(self.spec, self.function, m, step, self.seed, self.tries.copy(), self.passes.copy())
        ids = _each(made, operator.index)  # int() would cut 3.7 to another prompt's id
        if ids is None or len(ids) != m or not all(0 <= i < len(self.tries) for i in ids):
            raise model.UserError(f"{self.spec.function}: must return {m} ids in [0, {len(self.tries)}), not {_shown(made)}")
        return ids

    def observe(self, step: int, outcomes: Sequence[samplers.Outcome]) -> None:
        """Add a step's completions and strictly right completions per id (an id may occur twice)."""
        ids = [outcome.id for outcome in outcomes]
        np.add.at(self.tries, ids, [outcome.n for outcome in outcomes])
        np.add.at(self.passes, ids, [outcome.strict for outcome in outcomes])
