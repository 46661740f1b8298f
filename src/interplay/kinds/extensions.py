"""THE table of what a user can extend: each union, and what a member of the user's own looks like.
Signatures are checked when a study is planned, from the text alone: nothing of the user's is imported into that process. A reward
is then also called, in a process of its own (api/single.py)."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from interplay.core import digest, extension
from interplay.core.model import KeyPlace, Model, UserError, nearest_name
from interplay.rl.reward_spec import COLUMNS, takes_columns
from interplay.tasks.family import EnvironmentClass, TaskClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import torch
    from torch import Tensor

    from interplay.core.execution import Run
    from interplay.model.decoder import Decoder
    from interplay.rl.batch import Batch, Memory, StepContext
    from interplay.rl.losses import MicroBatch
    from interplay.rl.requests import SamplingRequest
    from interplay.rl.sampler import Outcome, PromptSource
    from interplay.rollout.engine import Engine
    from interplay.rollout.request import Request, Sampling
    from interplay.rollout.turns import Played, Setting
    from interplay.tasks.family import Generator
    from interplay.tasks.verdict import Row, Verdict
    from interplay.train.spec import OwnTrainerSpec

Json = dict[str, Any]


class Transform(Protocol):
    """Changes the rows of a generated problem set."""

    def __call__(self, rows: list[Json]) -> list[Json]:
        """Rows with the columns of `problems.parquet`, at least one."""


class Step(Protocol):
    """A step of curation: drops, orders, changes or repeats rows."""

    def __call__(self, rows: list[Json]) -> list[Json]:
        """Rows as given, or with other texts; `set` and `index` say which row each was."""


class Reward(Protocol):
    """Rewards of completions."""

    def __call__(self, problems: list[Row], completions: list[str], verdicts: list[Verdict]) -> list[float]:
        """N finite floats, one for each completion."""


class TrlReward(Protocol):
    """In TRL's form, whose first parameter is called `completions` or `prompts`: everything is passed by name, and of the columns
    those that the function names, or all to `**kwargs`: `prompts`, `answer`, `solution`, `band`, `op`, `mode`, `index`, `family`,
    and `verdicts`, which TRL has not."""

    def __call__(self, completions: list[str], **columns: list[Any]) -> list[float]:
        """N finite floats, one for each completion."""


class SamplerFunction(Protocol):
    """Chooses the prompts of a step by the success history of each."""

    def __call__(self, m: int, step: int, seed: int, tries: np.ndarray, passes: np.ndarray) -> list[int]:
        """m ids in [0, P); `tries` and `passes` (P,) count completions and strictly right ones so far."""


class SamplerClass(Protocol):
    """A sampler with a state of its own (`rl.sampler.Sampler` has the state saved with checkpoints)."""

    def __init__(self, deck: PromptSource) -> None:
        """When the run begins."""

    def select(self, m: int, step: int) -> list[int]:
        """m ids in [0, P)."""

    def observe(self, step: int, outcomes: Sequence[Outcome]) -> None:
        """Read what a step's prompts earned."""


class Allocation(Protocol):
    """How many completions each prompt of a step gets."""

    def __call__(self, num_generations: int, prompts: int, batch: Batch | None, rounds: int) -> list[int]:
        """Further completions of each prompt, given what was sampled (None in the first round); all 0: no further round."""


class Prompting(Protocol):
    """The text that completions are sampled from."""

    def __call__(self, row: Row, n: int, now: StepContext) -> str | tuple[str, str]:
        """That text; or also the one that they are credited to, as if sampled from it."""


class Continuation(Protocol):
    """What follows from the rollouts of a round."""

    def __call__(self, rows: Sequence[Row], batch: Batch, rounds: int, now: StepContext) -> list[SamplingRequest]:
        """The requests of the next round (rl.requests.SamplingRequest); none: the rollouts are complete."""


class Shaping(Protocol):
    """A term that is added to the rewards before they are compared."""

    def __call__(self, batch: Batch, now: StepContext) -> Tensor:
        """(N,), or (N,T): what each token earns."""


class EditBefore(Protocol):
    """An edit of the batch before advantages are known."""

    def __call__(self, batch: Batch, now: StepContext) -> Batch:
        """The batch with rows dropped, added or changed."""


class EditAfter(Protocol):
    """An edit of the batch with its advantages (N, T); `bears` (N, T) says which tokens bear loss."""

    def __call__(self, batch: Batch, advantage: Tensor, bears: Tensor, now: StepContext) -> tuple[Batch, Tensor, Tensor]:
        """All three, edited."""


class Advantage(Protocol):
    """The advantage of each token."""

    def __call__(self, batch: Batch, now: StepContext) -> Tensor:
        """(N, T)."""


class Loss(Protocol):
    """The policy loss of each token of a micro-batch. Weights over tokens, KL and entropy terms are keys of the member."""

    def __call__(self, seen: MicroBatch) -> Tensor:
        """(n, T), with its gradient."""


class Decoding(Protocol):
    """What tokens of rollouts are drawn from."""

    def __call__(self, sampling: Sampling, memory: Memory) -> Sampling:
        """The sampling parameters of the step."""


class FamilyFunction(Protocol):
    """A task family: a frozen object with the functions of `tasks.family.Generator` (generate, render, solve, structure, verify,
    loads, vocabulary); of `tasks.family.Environment` also `reply` and `expert`."""

    def __call__(self) -> Generator[Any, Any]:
        """The family; options are its own."""


class Verifier(Protocol):
    """Judges a completion after the verifier of its family."""

    def __call__(self, row: Row, completion: str, verdict: Verdict) -> Verdict:
        """The verdict that counts, such as `verdict._replace(answer=True)`."""


class MetricFunction(Protocol):
    """A number of each sample of an evaluation, whose mean over samples and prompts is the metric `own:NAME` of tables, figures
    and claims. Of episodes of several turns `completion` is the transcript and `verdict` that of the last turn."""

    def __call__(self, row: Row, completion: str, verdict: Verdict) -> float:
        """A finite number; in comparisons more is better."""


class EpisodeFunction(Protocol):
    """How the policy acts on prompts."""

    def __call__(self, setting: Setting, asked: Sequence[Request]) -> Played:
        """All that was sampled for the requests; `setting.engine` samples."""


class SeatClass(Protocol):
    """Who plays a seat, an object for each episode; deterministic by replay: a simulated user, an opponent."""

    def __init__(self) -> None:
        """Options are its own."""

    def reset(self, problem: Any, seed: int) -> None:
        """Begin: the gold problem of the row, and a seed of the episode."""

    def act(self, read: str) -> str:
        """Its turn, after what it read since its last."""


class EngineFunction(Protocol):
    """Samples from the present weights of a decoder."""

    def __call__(self, decoder: Decoder, how: Run, dtype: torch.dtype) -> Engine:
        """An object with `generate(requests, sampling) -> Rollouts` and `close()`."""


class Trainer(Protocol):
    """A stage that makes a model from the one before it: `kind: "file.py:Name"`."""

    def __call__(self, spec: OwnTrainerSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, float]:
        """Metrics; the model is left in `out/model`. `inputs["init"] / "model"` is the model before, `inputs["data.0"]` a problem
        set."""


EXTENSIONS: dict[str, tuple[type, ...]] = {
    "family": (FamilyFunction, TaskClass, EnvironmentClass),
    "verifier": (Verifier,),
    "metric": (MetricFunction,),
    "episode": (EpisodeFunction,),
    "seat": (SeatClass,),
    "engine": (EngineFunction,),
    "trainer": (Trainer,),
    "transform": (Transform,),
    "step": (Step,),
    "reward": (Reward, TrlReward),
    "sampler": (SamplerFunction, SamplerClass),
    "allocation": (Allocation,),
    "prompting": (Prompting,),
    "continuation": (Continuation,),
    "shaping": (Shaping,),
    "edit": (EditBefore, EditAfter),
    "advantage": (Advantage,),
    "loss": (Loss,),
    "decoding": (Decoding,),
}
"""Union -> what a member may be: Protocols of a function (`__call__`) or of a class (its methods)."""


def check_extensions(spec: Model, place: KeyPlace) -> None:
    """Raises UserError, with the key, where a member of the user's own in `spec` is not defined, has none of the forms of its
    union, or does not take its options."""
    for keys, member in _extensions(spec, ()):
        try:
            _check(member)
        except UserError as error:
            raise place.key(*keys, "name").error(str(error), member.function) from None


def _extensions(value: Any, keys: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], extension.Extension]]:
    """The members of the user's own in `value`, each with the keys that lead to it."""
    if isinstance(value, extension.Extension):
        yield keys, value
    elif isinstance(value, Model):
        for name in type(value).model_fields:
            item = getattr(value, name)
            if type(item) not in digest.PLAIN:
                yield from _extensions(item, (*keys, name))
    elif isinstance(value, (list, tuple, dict)):
        for index, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _extensions(item, (*keys, index))


def _check(member: extension.Extension) -> None:
    found, tree = _definition(member)
    if member.UNION == "reward" and isinstance(found, ast.FunctionDef) and takes_columns([one.arg for one in found.args.args]):
        return _check_columns(member, found)
    forms = [
        form for form in EXTENSIONS[member.UNION] if _is_class(form) == isinstance(found, ast.ClassDef) and form is not TrlReward
    ]
    if not forms:
        raise UserError(f"is no {' or '.join('class' if _is_class(form) else 'function' for form in EXTENSIONS[member.UNION])}")
    wrong = [_misfit(form, found, by_name=len(forms) > 1) for form in forms]
    if all(wrong):
        raise UserError(" or ".join(dict.fromkeys(str(one) for one in wrong)))
    form = forms[wrong.index(None)]
    made = _method(found, "__init__") if isinstance(found, ast.ClassDef) else found
    _check_options(member, made, len(_parameters(form, "__init__" if _is_class(form) else "__call__")), tree)


def _check_columns(member: extension.Extension, found: ast.FunctionDef) -> None:
    """A reward in TRL's form: each parameter is a column or an option, and none without a default is neither."""
    names, needed, any_name = _option_names(found, 0)
    known = [*COLUMNS, *member.options]
    if unknown := [name for name in needed if name not in known]:
        have = f"has columns {', '.join(COLUMNS)}"
        raise UserError(f"{found.name} takes '{unknown[0]}', and a batch {have}{_near(unknown[0], known)}")
    if unknown := [name for name in member.options if name in COLUMNS or not (any_name or name in names)]:
        raise UserError(f"takes no option '{unknown[0]}'{nearest_name(unknown[0], names)}")


def _near(name: str, known: list[str]) -> str:
    near = nearest_name(name, known)
    return near if "did you mean" in near else ""


def _is_class(form: type) -> bool:
    return "__call__" not in vars(form)


def _parameters(form: type, method: str) -> list[str]:
    """Names of the parameters of a Protocol's method, without self."""
    return list(inspect.signature(vars(form)[method]).parameters)[1:]


def _definition(member: extension.Extension) -> tuple[ast.FunctionDef | ast.ClassDef, ast.Module]:
    """The function or class that the member names, and the file around it, parsed. Raises UserError when there is none."""
    if member.distribution:
        point = extension.entry_point(member.function, member.UNION)
        file, name, module = point.module, point.attr, importlib.util.find_spec(point.module)
        text = Path(module.origin).read_text(encoding="utf-8") if module and module.origin else ""
    else:
        file, _, name = member.function.rpartition(":")
        text = member.source
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise UserError(f"{file} does not parse (line {error.lineno}: {error.msg})") from None
    named = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    if name not in named:
        raise UserError(f"{file} defines no function or class '{name}'{nearest_name(name, named)}")
    return named[name], tree


def _misfit(form: type, found: ast.FunctionDef | ast.ClassDef, by_name: bool) -> str | None:
    """Why a definition has not this form; None: it has. `by_name`: the names of a function's parameters choose the form."""
    if isinstance(found, ast.FunctionDef):
        return _unlike(found, found.name, _parameters(form, "__call__"), first=0, by_name=by_name)
    for name in (name for name in named_methods(form) if name != "__init__"):
        own = _method(found, name)
        if own is None:
            if not found.bases:
                return f"class {found.name} has no method {name}({', '.join(_parameters(form, name))})"
        elif why := _unlike(own, f"{found.name}.{name}", _parameters(form, name), first=1):
            return why
    made = _method(found, "__init__")
    return _unlike(made, f"{found.name}.__init__", _parameters(form, "__init__"), first=1) if made else None


def _unlike(found: ast.FunctionDef, name: str, wanted: list[str], first: int, by_name: bool = False) -> str | None:
    """Arguments are passed by position, so parameters may have any names; only a name of `wanted` in another place is refused.
    `by_name`: the names must be those of `wanted`."""
    given = [one.arg for one in (*found.args.posonlyargs, *found.args.args)][first:]
    pairs = list(zip(given, wanted, strict=False))
    enough = len(given) >= len(wanted) or found.args.vararg is not None
    if enough and all(one == other or not (by_name or one in wanted) for one, other in pairs):
        return None
    return f"{name} takes ({', '.join(given)}); its parameters must begin with ({', '.join(wanted)})"


def _method(found: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _check_options(member: extension.Extension, found: ast.FunctionDef | None, given: int, tree: ast.Module) -> None:
    """The options are parameters after the first `given`, or fields of the class that annotates `options`; none without a default
    is missing."""
    if found is None:
        return
    taken, needed, any_name = _option_names(found, given + (1 if found.name == "__init__" else 0))
    if "options" in taken and (model := _options_class(found, tree)) is not None:
        taken, needed, any_name = model
    if unknown := [name for name in member.options if name not in taken and not any_name]:
        raise UserError(f"takes no option '{unknown[0]}'{nearest_name(unknown[0], taken)}")
    if missing := [name for name in needed if name not in member.options]:
        raise UserError(f"needs the option '{missing[0]}'; give it a value")


def _option_names(found: ast.FunctionDef, given: int) -> tuple[list[str], list[str], bool]:
    """Names of options, those without a default, and whether any name is taken."""
    plain = [one.arg for one in (*found.args.posonlyargs, *found.args.args)]
    with_default = plain[len(plain) - len(found.args.defaults) :]
    named = [(one.arg, value is not None) for one, value in zip(found.args.kwonlyargs, found.args.kw_defaults, strict=True)]
    options = plain[given:]
    needed = [name for name in options if name not in with_default] + [name for name, has in named if not has]
    return [*options, *(name for name, _ in named)], needed, found.args.kwarg is not None


def _options_class(found: ast.FunctionDef, tree: ast.Module) -> tuple[list[str], list[str], bool] | None:
    """Fields of the class that annotates the parameter `options`, and those without a default; None: it is not in this file."""
    parameters = [*found.args.posonlyargs, *found.args.args, *found.args.kwonlyargs]
    annotation = next((one.annotation for one in parameters if one.arg == "options"), None)
    name = annotation.id if isinstance(annotation, ast.Name) else None
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    if model is None:
        return None
    fields = [node for node in model.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    names = {node.target.id: node.value is None for node in fields if isinstance(node.target, ast.Name)}
    return list(names), [name for name, bare in names.items() if bare], False


def named_methods(form: type) -> list[str]:
    """Of a Protocol: `__call__`, or `__init__` and the public methods."""
    return [name for name in vars(form) if name == "__call__" or (_is_class(form) and (name == "__init__" or name[:1] != "_"))]
