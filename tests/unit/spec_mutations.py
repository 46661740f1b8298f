"""Every field of every spec, changed: the fields are found by walking the models, so that one that joins the schema is changed, too."""

import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from specs import CUSTOM, SHAPE

from interplay.core.digest import canonical
from interplay.core.extension import Extension
from interplay.core.model import Model
from interplay.evaluate.spec import ByReward
from interplay.kinds.table import KINDS
from interplay.model.spec import Shape
from interplay.report.claim_spec import Failing, Forecast
from interplay.report.display_spec import Contrast, Extrapolate, Gain, Placed, Tune
from interplay.report.shown_spec import ArmShown
from interplay.report.spec import Controls, Registration, Stopping
from interplay.rl.reward_spec import RewardTerm

Path = tuple[str | int, ...]

OWN = [Extension, *Extension.__subclasses__()]
FIGHTS: dict[type[Model], dict[str, Any]] = {
    Contrast: {"against": "rl", "noise": ["again"]},
    Tune: {"axis": "rl.temperature", "band": "hard"},
}
REGISTERED: dict[type[Model], dict[str, Any]] = {
    Controls: {"of": "rl", "against": "base", "band": "edge"},
    Failing: {"recorded": "rl", "value": "reward_last", "below": 0.3},
    Forecast: {"interval": [0.0, 20.0], "probability": 0.5},
    Registration: {"file": "edge.json", "date": "2026-11-26", "commit": "a" * 12, "late": True},
    Stopping: {"looks": [4, 8]},
}
ANALYSES: dict[type[Model], dict[str, Any]] = {
    Gain: {"against": "rl", "k": 4},
    Extrapolate: {"part": 0.25},
    ArmShown: {"label": "other"},
    Placed: {"arm": "rl", "x": 7.0},
}
TERM: dict[type[Model], dict[str, Any]] = {RewardTerm: {"reward": {"name": "citation"}}, ByReward: {"model": "another"}}
SAMPLES: dict[type[Model], dict[str, Any]] = {
    **dict.fromkeys(OWN, CUSTOM),
    Shape: SHAPE,
    **FIGHTS,
    **REGISTERED,
    **ANALYSES,
    **TERM,
}
"""A value for models with required fields, where a field without one is given one."""

TOGETHER: dict[tuple[str, str], dict[str, Any]] = {
    ("Method", "critic"): {"critic": None, "advantage": {"name": "group"}, "allocation": {"name": "fixed"}},
    ("SummaryContext", "shown"): {"shown": "{summary}?"},
    **{(name, "shown"): {"shown": "{entries}?"} for name in ("RetrievedContext", "PlaybookContext", "WithEntries")},
    **{(name, "entry"): {"entry": "{last}"} for name in ("Library", "Experience")},
    ("ReadingEpisode", "read"): {"read": "{chunk}"},
    ("SeatsEpisode", "seats"): {"seats": {"first": {"name": "policy"}, "second": {"name": "script"}}},
    ("SeatsEpisode", "order"): {"order": ["agent", "user"]},
    ("SeatsEpisode", "credit"): {"credit": "shared"},
    ("DecoupledAdvantage", "rewards"): {"rewards": {"outcome": 2.0, "steps": 2.0}},
    ("TurnsAdvantage", "outcome"): {"outcome": None},
    ("RetryEpisode", "branch"): {"branch": {"first": 2}, "window": None},
    ("EnvironmentEpisode", "branch"): {"branch": {"first": 2}, "window": None},
    ("TreeContinuation", "branches"): {"branches": [6, 36]},
    ("TreeContinuation", "expansions"): {"expansions": 4, "branches": [6, 36]},
    ("ProblemsSpec", "bands"): {"bands": {"id": {2: 0.25, 3: 0.75}, "edge": {4: 1.0}}},
    ("ProblemsSpec", "calibrated"): {"calibrated": {"edge": [4, 5]}, "bands": {"id": {2: 0.5, 3: 0.5}}},
    ("ProblemsSpec", "shares"): {"shares": {"id": 0.25, "edge": 0.75}},
    ("OpDag", "modes"): {"modes": {"forward": 0.5, "reverse": 0.5}},
    ("OpDag", "context"): {"contexts": 2, "context": 1},
    ("OpDag", "asks_length"): {"asks_length": True, "length": [20, 30]},
    ("OpDagProse", "themes"): {"themes": {"zoo": 0.25, "garden": 0.75}},
    ("OpDagProse", "modes"): {"modes": {"forward": 1.0}},
    ("OpDagProse", "depth"): {"depth": [2, 2]},
    ("OpDagProse", "width"): {"width": [1, 1]},
    ("OpDagProse", "distractors"): {"distractors": [0, 2]},
    ("OpDagProse", "constants"): {"constants": "uniform"},
    ("GenerateSpec", "template"): {"template": "{prompt}?"},
    ("GenerateSpec", "text"): {"text": "{said}"},
    ("GenerateSpec", "answer"): {"answer": "{said}"},
    ("GenerateSpec", "parse"): {"parse": "lines", "pattern": "", "text": "{text}", "filters": []},
    ("GenerateSpec", "pattern"): {"parse": "pattern", "pattern": "(?P<label>true|false)"},
    ("GenerateSpec", "writes"): {"writes": "prompt", "answer": ""},
    ("EvaluateSpec", "harness"): {"harness": {"num_fewshot": 2}},
    ("EvaluateSpec", "turns"): {"turns": True, "episode": {"name": "retry"}, "harness": None},
    ("EvaluateSpec", "probe"): {"probe": {"quantity": 2}, "harness": None},
    ("LmEval", "metrics"): {"metrics": ["acc_norm"]},
    ("FieldFilter", "field"): {"field": "said"},
    ("VotesFilter", "field"): {"field": "text"},
    ("DatasetSpec", "licence"): {"format": "text", "licence": "MIT-0", "origin": "a collection"},
    ("CorpusSpec", "mix"): {"mix": [0.25, 0.75]},
    ("CurateSpec", "mix"): {"mix": [0.25, 0.75]},
    ("RLSpec", "mix"): {"mix": [0.25, 0.75]},
    ("RLSpec", "lora"): {"engine": "hf", "lora": {"r": 8}},
    ("SftSpec", "lora"): {"lora": {"r": 4}},
    ("SftSpec", "trainer"): {"trainer": "trl", "optimizer": {"name": "adamw"}},
    ("PreferSpec", "lora"): {"lora": {"r": 8}},
    ("Lora", "targets"): {"targets": ["q_proj"]},
    ("JudgeReward", "pattern"): {"pattern": "[0-9]"},
    ("RLSpec", "references"): {
        "references": {"reference.0": 0.25, "reference.1": 0.75},
        "method": {"paper": "p", "loss": {"name": "clipped", "beta": 0.1}},
    },
    ("OwnTrainerSpec", "mix"): {"mix": [0.25, 0.75]},
    ("TeachSpec", "mix"): {"mix": [0.25, 0.75]},
    ("Units", "shares"): {"shares": [0.5, 0.5]},
    ("PreferSpec", "mix"): {"mix": [0.25, 0.75]},
    ("RewardModelSpec", "mix"): {"mix": [0.25, 0.75]},
    ("RewardModelSpec", "routing"): {"routing": None},
    ("UnlearnSpec", "forget_mix"): {"forget_mix": [0.25, 0.75]},
    ("UnlearnSpec", "retain_mix"): {"retain_mix": [0.25, 0.75]},
    ("EasyToHardSampler", "bands"): {"by": "band", "bands": ["a", "b"]},
    ("HardFirstSampler", "by"): {"by": "op", "bands": None},
    ("SingleStreamSampler", "rho"): {"rho": 0.9},
    ("PhasesSampler", "unit"): {"unit": "share", "bounds": [0.5, 1.0]},
    ("FormatLadderSampler", "promotion"): {"promotion": "fixed", "rate": None},
    ("Test", "value"): {"value": "answer_pass@1"},
    ("Target", "curve"): {"curve": "answer_pass@1"},
    ("Beginning", "template"): {"template": "{prompt}\n{hint}"},
    ("Controls", "value"): {"value": "answer_pass@1"},
    ("Failing", "above"): {"below": None, "above": 0.5},
    ("Above", "value"): {"value": "answer_pass@1"},
    ("Headroom", "value"): {"value": "answer_pass@1"},
    ("Improves", "value"): {"value": "answer_pass@1"},
    ("Improves", "recorded"): {"recorded": "rl", "value": "entropy_last"},
    ("Premise", "above"): {"acts": None, "headroom": None, "improves": None, "above": {"arm": "rl", "than": 0.2}},
    ("Premise", "headroom"): {"acts": None, "above": None, "improves": None, "headroom": {"arm": "rl"}},
    ("Premise", "improves"): {"acts": None, "above": None, "headroom": None, "improves": {"arm": "rl", "against": "gold"}},
    ("Test", "difference"): {"difference": "answer_pass@1"},
    ("Figure", "x"): {"x": "op", "y": "strict_pass@1"},
    ("Figure", "y"): {"y": "answer_pass"},
    ("Table", "cells"): {"cells": ["strict_pass@2"]},
}
"""Fields that cannot be changed alone or by guessing: (model, field) -> keys to put in the model's place."""


def instances(value: Any, path: Path = ()) -> Iterator[tuple[Path, Model]]:
    """Every model inside a spec, with its place."""
    if isinstance(value, Model):
        yield path, value
        for name in type(value).model_fields:
            yield from instances(getattr(value, name), (*path, name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from instances(item, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from instances(item, (*path, index))


def guesses(annotation: Any, now: Any) -> Iterator[Any]:
    """Other JSON values that a field of this type may hold; some may turn out invalid."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from guesses(arguments[0], now)
    elif origin in (Union, types.UnionType):
        yield from itertools.chain.from_iterable(guesses(argument, now) for argument in arguments)
    elif origin is Literal:
        yield from (value for value in arguments if value != now)
    elif origin is list:
        yield from ([*now, now[-1]],) if now else ()
        yield from ([*(now or []), item] for item in guesses(arguments[0], None))
        yield from ([other, *now[1:]] for other in guesses(arguments[0], now[0])) if now else ()
    elif origin is tuple:
        yield from (
            replaced(now or [0.0] * len(arguments), (i,), g)
            for i, a in enumerate(arguments)
            for g in guesses(a, (now or [0.0])[0])
        )
        yield from ([now[0], other] for other in guesses(arguments[1], now[1])) if now else ()
    elif origin is dict:
        now = now if isinstance(now, dict) else None  # of a union with a word
        yield from ({**now, "another": next(iter(now.values()))},) if now else ()
        yield from (
            {**(now or {}), key: other} for key in (now or {"new": None}) for other in guesses(arguments[1], (now or {}).get(key))
        )
    elif annotation is Any:
        yield "another"
    elif annotation is bool:
        yield not now
    elif annotation is int:
        yield from ((now or 0) + step for step in (1, 2, -1, -2, 4)) if not isinstance(now, str) else ()
    elif annotation is float:
        yield from (now / 2 or 0.25, now + 0.125, 0.5) if isinstance(now, (int, float)) else (0.125, 0.75)
    elif annotation is str:
        yield from (f"{now}x", *((now[:-1],) if now else ()), now[:-1] + "e") if isinstance(now, str) else ("new",)
    elif isinstance(annotation, type) and issubclass(annotation, Model):
        yield from (SAMPLES[annotation],) if annotation in SAMPLES else ({"name": n} for n in names(annotation))


def names(model: type[Model]) -> list[str]:
    """How a member of a union is chosen."""
    return list(get_args(model.model_fields["name"].annotation)) if "name" in model.model_fields else []


def replaced(tree: Any, path: Path, value: Any) -> Any:
    """JSON data with another value at a place."""
    if not path:
        return value
    if isinstance(tree, dict):
        return {key: replaced(item, path[1:], value) if str(key) == path[0] else item for key, item in tree.items()}
    return [replaced(item, path[1:], value) if index == path[0] else item for index, item in enumerate(tree)]


def mutations(
    kind: str,
    spec: Model,
    first: Mapping[tuple[str, str], dict[str, Any]] = MappingProxyType({}),
    enough: Callable[[type[Model], str], bool] = lambda model, name: False,
) -> Iterator[tuple[type[Model], str, Model]]:
    """Valid specs that differ from `spec` in one field: (model that has the field, its name, the spec). `first`: as TOGETHER, and
    ahead of it; keys may name a base class. Fields of which there are `enough` are left as they are."""
    whole = canonical(spec)
    for path, part in instances(spec):
        here = canonical(part)
        for name, field in type(part).model_fields.items():
            if enough(type(part), name):
                continue
            own = (first[base.__name__, name] for base in type(part).__mro__ if (base.__name__, name) in first)
            together = next(own, None) or TOGETHER.get((type(part).__name__, name))
            tries = (
                [{**here, **together}] if together else [{**here, name: value} for value in guesses(field.annotation, here[name])]
            )
            for mutated in tries:
                try:
                    other = KINDS[kind].spec.model_validate(replaced(whole, path, mutated))
                except (ValidationError, TypeError):
                    continue
                if canonical(other) != whole:
                    yield type(part), name, other
