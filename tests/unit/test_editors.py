"""Editors see of a study what the planner will say: schemas are made of the specs, and every config names its own."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tools.reference import editors

CONFIGS = ROOT / "configs"
SCHEMAS = CONFIGS / editors.FOLDER
FILES = [file for file in sorted(CONFIGS.rglob("*.yaml")) if editors.first_line(CONFIGS, file)]


@functools.cache
def made() -> dict[str, str]:
    return {path.name: text for path, text in editors.files(CONFIGS).items()}


def read(name: str) -> Any:
    return json.loads(made()[name])


def errors(name: str, text: str) -> list[tuple[str, str]]:
    """Where a text is not as the schema says, and why."""
    shared = Resource.from_contents(read(editors.SHARED), default_specification=DRAFT202012)
    judge = Draft202012Validator(read(f"{name}.json"), registry=Registry().with_resource(editors.SHARED, shared))
    keys = json.loads(json.dumps(yaml.safe_load(text)))  # numbers as keys become text, as in JSON
    return [(".".join(map(str, error.absolute_path)), error.message) for error in judge.iter_errors(keys)]


def test_every_schema_is_one() -> None:
    for name in made():
        Draft202012Validator.check_schema(read(name))


def test_only_the_two_files_without_a_spec_have_no_schema() -> None:
    without = {file.name for file in CONFIGS.rglob("*.yaml")} - {file.name for file in FILES}
    assert without == {"config.yaml", "slurm.yaml"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CONFIGS)))
def test_a_config_names_its_schema_and_is_as_it_says(file: Path) -> None:
    text = file.read_text()
    line = text.splitlines()[0]
    named = (file.parent / line.partition("$schema=")[2]).resolve()
    assert line.startswith("# yaml-language-server: $schema=")
    assert named.parent == SCHEMAS
    assert named.name in made()
    assert errors(named.stem, text) == []


def test_a_misspelt_key_is_underlined_at_its_place() -> None:
    spare = "{kind: rl, data: {edge: 1.0}, stepz: 12, method: {loss: {name: clipped, epsilonn: 3}}}"
    found = errors("study", f"stages: {{spare: {spare}}}")
    assert {place for place, _ in found} == {"stages.spare", "stages.spare.method.loss"}
    assert any("'stepz' was unexpected" in why for _, why in found)
    assert any("'epsilonn' was unexpected" in why for _, why in found)


def test_a_misspelt_key_of_a_kind_is_underlined_in_a_scale() -> None:
    [(place, why)] = errors("scale", "kinds: {unlearn: {objectiv: 3, stepss: 9}}")
    assert place == "kinds.unlearn"
    assert "'objectiv', 'stepss' were unexpected" in why


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("study", "scales: {gpu: {kinds: {rl: {stpes: 3}}}}", "scales.gpu.kinds.rl"),
        ("study", "stages: {rl: {kind: lr}}", "stages.rl.kind"),
        ("study", "stages: {rl: {kind: rl, steps: many}}", "stages.rl.steps"),
        ("study", "data: {edge: {steps: [{name: dedupliacte}]}}", "data.edge.steps.0.name"),
        ("method", "paper: p\nloss: {name: clipped, epsilonn: 3}", "loss"),
        ("task", "name: op_dag\nmodulos: 3", ""),
        ("site", "acount: mine", ""),
    ],
)
def test_other_slips_are_underlined_too(name: str, text: str, place: str) -> None:
    assert place in [where for where, _ in errors(name, text)]


def test_interpolations_and_what_comes_from_elsewhere_are_not() -> None:
    assert (
        errors("study", "stages: {rl: {steps: '${knobs.steps}', method: {loss: '${methods.loss}'}, dtype: '${knobs.d}'}}") == []
    )


def test_every_key_of_a_stage_says_what_it_means() -> None:
    defs = read(editors.SHARED)["$defs"]

    def described(key: str) -> str:
        found = defs["RlStage"]["properties"][key]
        while "description" not in found:
            _, name, _, key = found["$ref"].removeprefix("#/").split("/")
            found = defs[name]["properties"][key]
        return found["description"]

    assert described("steps").startswith("Rollout steps")
    assert described("offline").startswith("Evaluate stage")


def test_the_schemas_are_small() -> None:
    sizes = [len(text.encode()) for text in made().values()]
    assert 100_000 < sum(sizes) < 450_000  # half of it is what the keys mean; grows by 3 kB with each method
