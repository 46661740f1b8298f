"""A study's own functions: the `custom` members of the reward and the sampler seam. This page is their contract.

Reward: `function(problems, completions, verdicts, **options) -> list[float]`
    problems: N rows of the problem sets (attributes index, band, op, mode, prompt, solution, answer, graph), one per completion;
    completions: N texts; verdicts: N Verdicts (strict, answer, score, error, ...). Returns one finite number for each.

Sampler: `function(m, step, seed, tries, passes, **options) -> list[int]`
    m prompts are wanted at `step` (from 1) of a run with this seed; tries, passes: int arrays (P,), completions so far per prompt
    and the strictly right ones among them. Returns m ids in [0, P): rows of the problem sets joined in the order of their roles.

Both must be pure: the same arguments give the same result, else a resumed run would not repeat an uninterrupted one."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from interplay.core.model import UserError
from interplay.core.references import Custom, call_custom, load_custom
from interplay.rl.samplers import sampler as samplers
from interplay.tasks.verdict import Verdict

T = TypeVar("T")


def reward(spec: Custom, problems: Sequence, completions: Sequence[str], verdicts: Sequence[Verdict]) -> list[float]:
    """N floats from the study's function. Raises UserError when they are not N finite numbers."""
    made = call_custom(spec, load_custom(spec), list(problems), list(completions), list(verdicts))
    values = _each(made, float)
    if values is None or len(values) != len(completions) or not all(map(math.isfinite, values)):
        raise UserError(f"{spec.function}: must return {len(completions)} finite floats, not {_told(made)}")
    return values


def _each(made: Any, kind: Callable[[Any], T]) -> list[T] | None:
    """Every item as `kind` reads it; None where there are no items, or one is of another kind."""
    try:
        return [kind(item) for item in made]
    except (TypeError, ValueError, OverflowError):
        return None


def _told(made: Any) -> str:
    """What a function returned, with how many where it counts."""
    size = f"{len(made)}: " if hasattr(made, "__len__") else ""
    return f"{size}{made!r}"[:60]


class Sampler(samplers.Sampler):
    """Asks the study's function, which sees the success history of every prompt."""

    def __init__(self, spec: Custom, deck: samplers.PromptSource) -> None:
        self.spec, self.seed, self.function = spec, deck.seed, load_custom(spec)
        self.tries = np.zeros(len(deck), dtype=np.int64)
        self.passes = np.zeros(len(deck), dtype=np.int64)

    def select(self, m: int, step: int) -> list[int]:
        """The ids that the function chooses. Raises UserError when they are not m ids of the sets."""
        made = call_custom(self.spec, self.function, m, step, self.seed, self.tries.copy(), self.passes.copy())
        ids = _each(made, operator.index)  # int() would cut 3.7 to another prompt's id
        if ids is None or len(ids) != m or not all(0 <= i < len(self.tries) for i in ids):
            raise UserError(f"{self.spec.function}: must return {m} ids in [0, {len(self.tries)}), not {_told(made)}")
        return ids

    def observe(self, step: int, outcomes: Sequence[samplers.Outcome]) -> None:
        """Add a step's completions and strictly right completions per id (an id may occur twice)."""
        ids = [outcome.id for outcome in outcomes]
        np.add.at(self.tries, ids, [outcome.n for outcome in outcomes])
        np.add.at(self.passes, ids, [outcome.strict for outcome in outcomes])

    def state_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {"tries": self.tries.tolist(), "passes": self.passes.tolist()}

    def load_state_dict(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where `state_dict` was taken."""
        self.tries = np.array(state["tries"], dtype=np.int64)
        self.passes = np.array(state["passes"], dtype=np.int64)
