"""Law 1, over the whole schema: every field of every spec enters the digest, no field of the run block does.

The fields are found by walking the models, so a field that joins the schema is tested, or fails here for want of a mutation."""

import functools
from collections import Counter
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError
from spec_mutations import guesses, instances, mutations
from specs import DEPS, SPECS

from interplay.core.digest import canonical, digest, hashed, versions
from interplay.core.execution import Run
from interplay.core.model import Model, Since
from interplay.kinds.stages import digest_of_content, models_in
from interplay.kinds.table import KINDS
from interplay.study.plan import Stage

MOVED = {("Method", "minibatches")}
"""Hashed elsewhere: a method's own number becomes that of the stage when the stage is read (test_coincide)."""


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
    """(spec, model, field, changed spec) for all specs of a kind: three tests take them, and making them is what costs. A field is
    changed in two specs that have it, to every value that there is a guess of."""
    found: list[tuple[Model, type[Model], str, Model]] = []
    for spec in parsed(kind):
        often = Counter((model, name) for _, model, name in {(id(of), model, name) for of, model, name, _ in found})
        found += [(spec, *one) for one in mutations(kind, spec, enough=lambda *field, often=often: often[field] > 1)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_any_field_of_a_spec_changes_the_digest(kind: str) -> None:
    deps = DEPS.get(kind, {})
    for spec, model, name, other in mutated(kind):
        assert digest(kind, other, deps) != digest(kind, spec, deps), f"{model.__name__}.{name}"


def test_every_field_of_the_schema_was_changed_by_that_test() -> None:
    changed = {(model.__name__, name) for kind in KINDS for _, model, name, _ in mutated(kind)}
    assert reachable() - changed == MOVED, "give these a spec in specs.py or a mutation in TOGETHER"


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
        now = getattr(run, name)
        inner = type(now).model_fields if isinstance(now, Model) else {}
        parts = [{key: value} for key, one in inner.items() for value in guesses(one.annotation, getattr(now, key))]
        for value in parts or guesses(field.annotation, now):
            try:
                other = Run(**{name: value})
            except ValidationError:
                continue
            if other == run:  # a guess within a part
                continue
            changed.add(name)
            for kind in KINDS:
                spec, deps = parsed(kind)[0], DEPS.get(kind, {})
                assert Stage.make(kind, spec, deps, other, "b").digest == Stage.make(kind, spec, deps, run, "a").digest
    assert changed == set(Run.model_fields)


@functools.cache
def schema() -> list[type[Model]]:
    return sorted({part for _, _, parts, _ in everything() for part in parts}, key=lambda m: m.__name__)


@functools.cache
def everything() -> list[tuple[str, Model, set[type[Model]], str]]:
    """Each spec with its kind, the models in it and its digest."""
    specs = [(kind, spec) for kind in KINDS for spec in parsed(kind)]
    return [(kind, spec, {type(part) for _, part in instances(spec)}, digest(kind, spec, {})) for kind, spec in specs]


@pytest.mark.parametrize("model", schema(), ids=lambda model: model.__name__)
def test_a_raised_version_of_any_model_changes_its_users_and_nobody_else(
    model: type[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the others every eighth is looked at, other ones for each model."""
    numbers = {one: one.VERSION for one in schema()}
    monkeypatch.setattr(model, "VERSION", model.VERSION + 1)
    raised = {one for one in schema() if numbers[one] != one.VERSION}  # with the models that inherit it
    assert model in raised
    for place, (kind, spec, parts, old) in enumerate(everything(), schema().index(model)):
        uses = bool(parts & raised)
        if uses or place % 8 == 0:
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
        assert digest_of_content(written) == digest(kind, spec, deps)
        assert digest_of_content({**written, "spec": hashed(spec)}) == digest(kind, spec, deps)
