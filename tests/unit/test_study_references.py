"""The references of a kind are data: marks on typed fields, which the planner walks without knowing the kind; and the planner is
functions in layers, without circles and without a context that changes."""

import ast
import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import ROOT

from interplay.kinds.study_keys import Samples, Sets, marks
from interplay.kinds.table import KINDS
from interplay.study import expand
from interplay.study.context import ArmContext, StudyStage, with_changes
from interplay.study.expand import parse

CONFIGS = ROOT / "configs"
STUDY = ROOT / "src/interplay/study"
REFERRING = [kind for kind, row in KINDS.items() if row.references is not None]


@pytest.mark.parametrize("kind", REFERRING)
def test_what_marks_fill_in_are_keys_of_the_spec_that_no_study_writes(kind: str) -> None:
    row = KINDS[kind]
    assert row.references is not None
    found = marks(row.references)
    filled = {mark.mix for mark in found.values() if isinstance(mark, Sets) and mark.mix}
    assert filled <= set(row.planned)
    assert set(row.planned) <= set(row.spec.model_fields)
    assert {mark.packed for mark in found.values() if isinstance(mark, Sets) and mark.packed} <= set(row.references.model_fields)
    roles = [mark.role for mark in found.values() if isinstance(mark, Sets | Samples)]
    assert len(roles) == len(set(roles))


def context() -> ArmContext:
    return parse("quickstart", *expand.load(CONFIGS, "quickstart", "smoke"), CONFIGS)


def test_an_arm_has_the_studys_own_stages_but_for_those_that_it_changes() -> None:
    base = context()
    changed = with_changes(base, {"rl.data": {"hard": 1.0}})
    assert [name for name in base.stages if changed.stages[name] is not base.stages[name]] == ["rl"]
    assert changed.stages["rl"].given() == {"data": {"hard": 1.0}}
    assert base.stages["rl"].given() == {"data": {"edge": 1.0}}
    again = with_changes(changed, {})
    assert again.stages == base.stages, "nothing of one arm reaches another"


def test_stages_and_contexts_are_frozen() -> None:
    base = context()
    for value, name in ((base, "tokenizer"), (base.stages["rl"], "kind"), (base.stages["rl"].references, "data")):
        with pytest.raises((dataclasses.FrozenInstanceError, ValueError)):
            setattr(value, name, "other")
    assert isinstance(base.stages, Mapping)
    assert all(isinstance(stage, StudyStage) for stage in base.stages.values())


def imports(path: Path) -> set[str]:
    """Modules of `interplay` that a file imports, also within functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("interplay"):
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_the_planner_imports_nothing_above_it_and_in_no_circle() -> None:
    files = {f"interplay.study.{path.stem}": imports(path) for path in STUDY.glob("*.py")}
    above = ("interplay.results", "interplay.run", "interplay.api", "interplay.cli", "interplay.track")
    assert not [name for names in files.values() for name in names if name.startswith(above)]
    assert not [path.name for path in STUDY.glob("*.py") if "TYPE_CHECKING" in path.read_text()]
    waiting = {name: {one for one in names if one in files} for name, names in files.items()}
    while free := [name for name, names in waiting.items() if not names]:
        waiting = {name: names - set(free) for name, names in waiting.items() if name not in free}
    assert not waiting, "modules that import each other"
