"""Whole studies at smoke whose stages are all `numerics: exact`, through Snakemake: every file and number of every stage, and the tables,
are the same over launches in which any two of instructions, threads, processes, tokens a pass, engine batch and stacks meet. Nine
launches of a study, of 14 and of 34 stages; by themselves, one study, with what it says of them:

    pytest -m slow -s tests/unit/test_exact_studies.py -k quickstart
"""

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import exact_cases as cases
import pytest
import rl_steps
import yaml
from conftest import Laboratory

from interplay.core import artifact
from interplay.kernels import library
from interplay.study.expand import plan_study

pytestmark = [
    pytest.mark.workflow,
    pytest.mark.slow,
    pytest.mark.skipif(library.library() is None, reason="no C compiler"),
]
STUDIES = ("quickstart", "interplay/before_rl")
"""RL of one base; and SFT on what a base samples, also of a base after RL, and RL after it."""
KINDS = ("pretrain", "sft", "rl", "evaluate")
ROWS = cases.rows_of("rl", False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exact")


@pytest.fixture(scope="module", params=STUDIES)
def first(place: Path, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """A study, and what its first launch leaves."""
    return request.param, launched(place, request.param, ROWS[0])


def launched(place: Path, study: str, row: tuple[Any, ...]) -> dict[str, Any]:
    """What a study leaves with these values of the axes. Each RL stage took steps and moved its weights."""
    lab = Laboratory(place / study / "-".join(map(str, row)))
    file = lab.folder / "configs/scale/smoke.yaml"
    scale, (name, *values) = yaml.safe_load(file.read_text()), row
    for kind in KINDS:
        run = dict(zip(list(cases.AXES)[1:], values, strict=True))
        scale["kinds"][kind] |= {"dtype": "int8", "numerics": "exact", "run": run}
    file.write_text(yaml.safe_dump(scale))
    lab.env |= cases.processor(name, place)
    command = lab.command(f"study={study}", "scale=smoke")
    done = subprocess.run(command, cwd=lab.folder, env=lab.env, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rl_steps.check(study, plan_study(lab.folder / "configs", study, "smoke"), lab.folder / "results")
    return left(lab.folder / "results")


def left(results: Path) -> dict[str, Any]:
    """Of each stage the checksums of its files and its metrics, of RL also of the training state; of reports claims and tables."""
    found: dict[str, Any] = {}
    for path in sorted(results.glob("*/*/record.json")):
        record, name = artifact.read_json(path), f"{path.parts[-3]}/{path.parts[-2]}"
        found[f"{name} metrics"] = record["metrics"]
        shown = {file: of for file, of in record["files"].items() if not file.startswith(("figures/", "report"))}
        found |= {f"{name} {file}": of[1] for file, of in shown.items()}
        states = sorted(path.parent.glob("state/**/*.safetensors"))
        found |= {f"{name} {state.name}": hashlib.sha256(state.read_bytes()).hexdigest() for state in states}
    return found


@pytest.mark.parametrize("row", ROWS[1:], ids=lambda row: "-".join(map(str, row)))
def test_another_launch_leaves_the_same_bytes(place: Path, first: tuple[str, dict[str, Any]], row: tuple[Any, ...]) -> None:
    study, expected = first
    found = launched(place, study, row)
    print(
        f"{study} {' '.join(map(str, row))}: {len(found)} files and metrics of {len({name.split()[0] for name in found})} stages"
    )
    assert {name: of for name, of in found.items() if expected.get(name) != of} == {}
    assert found.keys() == expected.keys()
