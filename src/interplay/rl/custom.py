"""Members of the user's own at the seams of RL (core.extension): what they return is checked here, so that a wrong shape is one
line and not a failure deep in the step. Signatures are in the table `kinds.extensions`.

All must be pure: the same arguments give the same result, else a resumed run would not repeat an uninterrupted one."""

import functools
import inspect
import json
import operator
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch

from interplay.core import execution, extension, model
from interplay.data import problems as generated, sets
from interplay.data.spec import DatasetSpec, ProblemsSpec
from interplay.rl import sampler as samplers
from interplay.rl.reward_spec import COLUMNS, OwnReward, takes_columns
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row, Verdict

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
    numbers = _converted(made, extension.finite_number)
    values = [number for number in numbers or () if number is not None]
    if numbers is None or not len(numbers) == len(values) == len(completions):
        raise model.UserError(f"{spec.function}: must return {len(completions)} finite floats, not {_returned_text(made)}")
    return values


# A reward that is called before its run, in a process of its own: api/single.py starts it and reads the answer.

TRIAL_ROWS = 3
"""Problems of each set that a reward is tried on."""
TRIAL_SECONDS = 10
"""Time that it may take for them."""
TRIED = ("gold", "empty", "wrong")
"""Completions of each problem: its solution, nothing, and the solution of another problem."""


class TrialTimeout(BaseException):
    """The time is over. No `Exception`, so that code which handles all of those does not handle it."""


def answer_trial() -> None:
    """Call the reward that standard input describes and print the answer as JSON. What the reward itself prints is dropped."""
    asked = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        json.dump(try_reward(OwnReward.model_validate(asked["reward"]), asked["sets"]), answer)


def try_reward(spec: OwnReward, asked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a reward pays for completions of each sort (TRIED), means over problems: `paid`; or the `error` of its code, with its
    line; or why it was `left`, which is no error: it may load a model at its first call. `asked` are problem sets, each as a
    finished `folder`, or as `kind`, `spec` and `path`."""
    try:
        rows = [row for one in asked for row in _trial_rows(one)]
    except model.UserError as error:
        return {"left": f"was not called: {error}"}
    others = [next((other.solution for other in rows if other.answer != row.answer), f"not {row.solution}") for row in rows]
    said = [text for row, other in zip(rows, others, strict=True) for text in (row.solution, "", other)]
    given = [row for row in rows for _ in TRIED]
    verdicts = sets.judge_completions(given, said, Verify())
    signal.signal(signal.SIGALRM, _end_trial)
    signal.alarm(TRIAL_SECONDS)
    try:
        paid = own_reward(spec, given, said, verdicts)
    except BaseException as error:  # SystemExit of the user's code, too
        signal.alarm(0)
        return _trial_error(spec, error)
    signal.alarm(0)
    return {"paid": [[name, sum(paid[at :: len(TRIED)]) / len(rows)] for at, name in enumerate(TRIED)], "problems": len(rows)}


def _trial_rows(asked: Mapping[str, Any]) -> list[Row]:
    if "folder" in asked:
        return sets.read_rows(Path(asked["folder"]), 0)[:TRIAL_ROWS]
    kind = ProblemsSpec if asked["kind"] == "problems" else DatasetSpec
    return generated.first_rows(kind.model_validate(asked["spec"]), execution.Run(path=asked["path"]), TRIAL_ROWS)


def _end_trial(number: int, frame: Any) -> None:
    raise TrialTimeout


def _trial_error(spec: OwnReward, error: BaseException) -> dict[str, Any]:
    """What is wrong with the user's code, and its line: where it raised, or else where the function begins."""
    file, _, name = spec.function.rpartition(":")
    raised = error.__cause__ if isinstance(error, model.UserError) and error.__cause__ else error
    try:
        code = getattr(extension.load(spec), "__code__", None)
    except model.UserError:
        code = None
    names = {file, code.co_filename if code else file}
    lines = [frame.lineno for frame in traceback.extract_tb(raised.__traceback__) if frame.filename in names]
    line = lines[-1] if lines else code.co_firstlineno if code else 0
    if isinstance(error, TrialTimeout):
        return {"left": f"takes more than {TRIAL_SECONDS} s for a few completions (it was at line {lines[-1] if lines else '?'})"}
    if raised is not error or not isinstance(error, model.UserError):
        why = f"{name} raises {type(raised).__name__}: {str(raised)[:200]}".rstrip(": ")
    else:
        why = f"{name} {str(error).removeprefix(f'{spec.function}: ')}"
    return {"error": why, "line": line, "file": code.co_filename if code else file}


# Shaping, advantages and edits.


def own_shaping(spec: extension.Extension, batch: "Batch", now: "StepContext") -> torch.Tensor:
    """(N,) float64, what is added to the rewards, or (N,T), what single tokens earn, 0 where the policy wrote none. Raises
    UserError when it has another shape or is not finite."""
    made, mask = extension.call(spec, batch, now), batch.mask()
    if isinstance(made, (torch.Tensor, np.ndarray)) and made.ndim == 2:
        return checked_tensor(spec, made, tuple(mask.shape), torch.float64) * mask
    return checked_tensor(spec, made, tuple(batch.rewards.shape), torch.float64)


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
        raise model.UserError(f"{spec.function}: must return {names}, not {_returned_text(made)}")
    return made


def checked_tensor(spec: extension.Extension, made: Any, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """What an own member returned, as a tensor of this shape and type. Raises UserError when it has another shape or is not
    finite."""
    found = torch.as_tensor(made) if isinstance(made, (torch.Tensor, np.ndarray, list)) else None
    if found is None or tuple(found.shape) != shape:
        given = _returned_text(made) if found is None else f"one of shape {tuple(found.shape)}"
        raise model.UserError(f"{spec.function}: must return a tensor of shape {shape}, not {given}")
    if not bool(torch.isfinite(found.detach()).all()):
        raise model.UserError(f"{spec.function}: must return finite numbers; some are not")
    return found.to(dtype)


def _converted(made: Any, kind: Callable[[Any], T]) -> list[T] | None:
    """Every item as `kind` reads it; None where there are no items, or one is of another kind."""
    try:
        return [kind(item) for item in made]
    except (TypeError, ValueError, OverflowError):
        return None


def _returned_text(made: Any) -> str:
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
        ids = _converted(made, operator.index)  # int() would cut 3.7 to another prompt's id
        if ids is None or len(ids) != m or not all(0 <= i < len(self.tries) for i in ids):
            raise model.UserError(
                f"{self.spec.function}: must return {m} ids in [0, {len(self.tries)}), not {_returned_text(made)}"
            )
        return ids

    def observe(self, step: int, outcomes: Sequence[samplers.Outcome]) -> None:
        """Add a step's completions and strictly right completions per id (an id may occur twice)."""
        ids = [outcome.id for outcome in outcomes]
        np.add.at(self.tries, ids, [outcome.n for outcome in outcomes])
        np.add.at(self.passes, ids, [outcome.strict for outcome in outcomes])
