"""Law 1, over the whole schema: every field of every spec enters the digest, no field of the run block does.

The fields are found by walking the models, so a field that joins the schema is tested, or fails here for want of a mutation."""

import functools
import itertools
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import ValidationError
from specs import CUSTOM, DEPS, SHAPE, SPECS

from interplay.schema.base import Model, Since
from interplay.schema.contrast import Contrast, Tune
from interplay.schema.custom import Custom
from interplay.schema.digest import canonical, digest, hashed, versions
from interplay.schema.identity import models_in, rehashed
from interplay.schema.kinds import KINDS
from interplay.schema.model import Shape
from interplay.schema.report import Extrapolate, Gain
from interplay.schema.run import Run
from interplay.study.plan import Stage

Path = tuple[str | int, ...]

FIGHTS: dict[type[Model], dict[str, Any]] = {
    Contrast: {"against": "rl", "noise": ["again"]},
    Tune: {"axis": "rl.temperature", "band": "hard"},
}
ANALYSES: dict[type[Model], dict[str, Any]] = {Gain: {"against": "rl", "k": 4}, Extrapolate: {"part": 0.25}}
SAMPLES: dict[type[Model], dict[str, Any]] = {Custom: CUSTOM, Shape: SHAPE, **FIGHTS, **ANALYSES}
"""A value for models with required fields, where a field without one is given one."""

TOGETHER: dict[tuple[str, str], dict[str, Any]] = {
    ("Method", "critic"): {"critic": None, "advantage": {"name": "group"}, "planner": {"name": "fixed"}},
    ("TreePlanner", "branches"): {"branches": [2, 3], "num_generations": 6},
    ("TreePlanner", "num_generations"): {"branches": [2, 3], "num_generations": 6},
    ("ProblemsSpec", "bands"): {"bands": {"id": {2: 0.25, 3: 0.75}, "edge": {4: 1.0}}},
    ("ProblemsSpec", "shares"): {"shares": {"id": 0.25, "edge": 0.75}},
    ("OpDag", "modes"): {"modes": {"forward": 0.5, "reverse": 0.5}},
    ("OpDag", "context"): {"contexts": 2, "context": 1},
    ("OpDagProse", "themes"): {"themes": {"zoo": 0.25, "garden": 0.75}},
    ("OpDagProse", "modes"): {"modes": {"forward": 1.0}},
    ("OpDagProse", "depth"): {"depth": [2, 2]},
    ("OpDagProse", "width"): {"width": [1, 1]},
    ("OpDagProse", "distractors"): {"distractors": [0, 2]},
    ("OpDagProse", "constants"): {"constants": "uniform"},
    ("CorpusSpec", "mix"): {"mix": [0.25, 0.75]},
    ("CurateSpec", "mix"): {"mix": [0.25, 0.75]},
    ("RLSpec", "mix"): {"mix": [0.25, 0.75]},
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
        yield from ({**now, "another": next(iter(now.values()))},) if now else ()
        yield from (
            {**(now or {}), key: other} for key in (now or {"new": None}) for other in guesses(arguments[1], (now or {}).get(key))
        )
    elif annotation is bool:
        yield not now
    elif annotation is int:
        yield from ((now or 0) + step for step in (1, 2, -1, -2, 4)) if not isinstance(now, str) else ()
    elif annotation is float:
        yield from (now / 2, now + 0.125, 0.5) if isinstance(now, (int, float)) else (0.125, 0.75)
    elif annotation is str:
        yield from (f"{now}x", now[:-1], now[:-1] + "e") if isinstance(now, str) else ("new",)
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


def mutations(kind: str, spec: Model) -> Iterator[tuple[type[Model], str, Model]]:
    """Valid specs that differ from `spec` in one field: (model that has the field, its name, the spec)."""
    whole = canonical(spec)
    for path, part in instances(spec):
        here = canonical(part)
        for name, field in type(part).model_fields.items():
            together = TOGETHER.get((type(part).__name__, name))
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


def reachable() -> set[tuple[str, str]]:
    """(model, field) of every field of the schema of the kinds, but those that can have one value only."""
    seen: set[type[Model]] = set()
    todo: list[type[Model]] = [kind.spec for kind in KINDS.values()]
    while todo:
        model = todo.pop()
        if model not in seen:
            seen.add(model)
            todo += [other for field in model.model_fields.values() for other in models_in(field.annotation)]
    return {(m.__name__, name) for m in seen for name, field in m.model_fields.items() if not fixed(field.annotation)}


def fixed(annotation: Any) -> bool:
    """Whether there is nothing to change in a field itself: a literal of one word, or a part that is no union."""
    if get_origin(annotation) is Literal:
        return len(get_args(annotation)) == 1
    return isinstance(annotation, type) and issubclass(annotation, Model)  # a part: its own fields are tested one by one


@functools.cache
def parsed(kind: str) -> list[Model]:
    return [KINDS[kind].spec.model_validate(spec) for spec in SPECS[kind]]


@functools.cache
def mutated(kind: str) -> list[tuple[Model, type[Model], str, Model]]:
    """(spec, model, field, changed spec) for all specs of a kind: three tests take them, and making them is what costs."""
    return [(spec, *mutation) for spec in parsed(kind) for mutation in mutations(kind, spec)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_any_field_of_a_spec_changes_the_digest(kind: str) -> None:
    deps = DEPS.get(kind, {})
    for spec, model, name, other in mutated(kind):
        assert digest(kind, other, deps) != digest(kind, spec, deps), f"{model.__name__}.{name}"


def test_every_field_of_the_schema_was_changed_by_that_test() -> None:
    changed = {(model.__name__, name) for kind in KINDS for _, model, name, _ in mutated(kind)}
    assert reachable() - changed == set(), "give these a spec in specs.py or a mutation in TOGETHER"


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_any_dependency_or_role_changes_the_digest(kind: str) -> None:
    spec, deps = parsed(kind)[0], DEPS.get(kind, {})
    others = [{**deps, role: "e" * 12} for role in deps] + [{**deps, role: f"{dep}@5"} for role, dep in deps.items()]
    others += [{**deps, "more": "a" * 12}] + [{f"other.{r}" if r == role else r: d for r, d in deps.items()} for role in deps]
    digests = [digest(kind, spec, other) for other in (deps, *others)]
    assert len(set(digests)) == len(digests)


def test_no_change_of_any_field_of_the_run_block_changes_a_digest() -> None:
    run, changed = Run(), set()
    for name, field in Run.model_fields.items():
        for value in guesses(field.annotation, getattr(run, name)):
            try:
                other = Run(**{name: value})
            except ValidationError:
                continue
            assert other != run
            changed.add(name)
            for kind in KINDS:
                spec, deps = parsed(kind)[0], DEPS.get(kind, {})
                assert Stage.make(kind, spec, deps, other, "b").digest == Stage.make(kind, spec, deps, run, "a").digest
    assert changed == set(Run.model_fields)


def schema() -> list[type[Model]]:
    return sorted(
        {type(part) for kind in KINDS for spec in parsed(kind) for _, part in instances(spec)}, key=lambda m: m.__name__
    )


@pytest.mark.parametrize("model", schema(), ids=lambda model: model.__name__)
def test_a_raised_version_of_any_model_changes_its_users_and_nobody_else(
    model: type[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [(kind, spec) for kind in KINDS for spec in parsed(kind)]
    before = [digest(kind, spec, {}) for kind, spec in specs]
    numbers = {one: one.VERSION for one in schema()}
    monkeypatch.setattr(model, "VERSION", model.VERSION + 1)
    raised = {one for one in schema() if numbers[one] != one.VERSION}  # with the models that inherit it
    assert model in raised
    for (kind, spec), old in zip(specs, before, strict=True):
        uses = any(type(part) in raised for _, part in instances(spec))
        assert (digest(kind, spec, {}) != old) == uses


def test_a_later_field_is_in_the_digest_exactly_when_it_departs_from_what_older_specs_did() -> None:
    later = {
        (m.__name__, n) for m in schema() for n, f in m.model_fields.items() if any(isinstance(x, Since) for x in f.metadata)
    }
    assert later, "the schema has no Since field any more: this test tests nothing"
    met = set()
    for kind in KINDS:
        for spec in parsed(kind):
            for _, part in instances(spec):
                for name, field in type(part).model_fields.items():
                    for mark in (mark for mark in field.metadata if isinstance(mark, Since)):
                        old = canonical(getattr(part, name)) == canonical(mark.value)
                        assert (name in hashed(part)) == (not old)
                        met.add((type(part).__name__, name))
    assert met == later


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_written_down_gives_its_digest_again_with_or_without_the_later_fields(kind: str) -> None:
    deps = DEPS.get(kind, {})
    for spec in [*parsed(kind), *(other for of, _, _, other in mutated(kind) if of is parsed(kind)[0])]:
        written = {"kind": kind, "versions": versions(spec), "spec": canonical(spec), "deps": deps}
        assert rehashed(written) == digest(kind, spec, deps)
        assert rehashed({**written, "spec": hashed(spec)}) == digest(kind, spec, deps)
