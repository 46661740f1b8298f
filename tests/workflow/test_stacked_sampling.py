"""`run: {stack: 3}` on RL and evaluation in real launches: records as without, a kill, what goes on alone and stacked."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import BEHIND, Laboratory, assert_stacked_twins, saves, wait_for

from interplay.core import artifact

pytestmark = pytest.mark.slow  # see test_stacked_rl and test_stacked_rollouts
MADE = ("rl", "evaluate")


@pytest.fixture(scope="module")
def stacked(finished: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """The finished study, whose RL runs and evaluations were made again, stacked."""
    lab = Laboratory(tmp_path_factory.mktemp("stacked") / "lab")
    lab.take_data(finished)
    shutil.copytree(finished.folder / "results" / "pretrain", lab.folder / "results" / "pretrain")
    lab.edit("configs/scale/smoke.yaml", "  rl: {", "  rl: {run: {stack: 3}, ")
    lab.edit("configs/scale/smoke.yaml", "  evaluate: {", "  evaluate: {run: {stack: 3}, ")
    result = lab.snakemake("study=quickstart", "scale=smoke", flags=("--until", "evaluate"))
    assert result.returncode == 0, result.stdout + result.stderr
    return lab


def records(lab: Laboratory, kind: str) -> dict[str, dict]:
    return {path.parent.name: json.loads(path.read_text()) for path in lab.folder.glob(f"results/{kind}/*/record.json")}


def assert_close(stacked: dict[str, dict], alone: dict[str, dict]) -> None:
    assert_stacked_twins(stacked, alone)
    for digest, record in stacked.items():
        assert flat(record["metrics"]) == pytest.approx(flat(alone[digest]["metrics"]), rel=0.05, abs=0.01)


def flat(values: dict, prefix: str = "") -> dict[str, float]:
    """Numbers of nested metrics by their path."""
    found: dict[str, float] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


@pytest.mark.parametrize("kind", MADE)
def test_a_stacked_study_leaves_the_records_of_others(finished: Laboratory, stacked: Laboratory, kind: str) -> None:
    made, alone = records(stacked, kind), records(finished, kind)
    assert len(made) > 1
    assert made.keys() <= alone.keys()
    assert_close(made, alone)
    telemetry = [artifact.read_json(stacked.folder / f"results/{kind}/{digest}/telemetry.json") for digest in made]
    assert max(len(each["stack"]) for each in telemetry) > 1
    assert all(each["attempts"] == 1 for each in telemetry)


@pytest.mark.parametrize(("kind", "more"), [("rl", {"save_minutes": 0.0}), ("evaluate", {"engine_batch": 32})])
def test_a_killed_stack_leaves_stages_that_go_on_alone_and_stacked(
    finished: Laboratory, tmp_path: Path, kind: str, more: dict[str, float]
) -> None:
    lab = Laboratory(tmp_path / "lab")
    lab.take_data(finished)
    for one in ("pretrain", *MADE):
        shutil.copytree(finished.folder / "results" / one, lab.folder / "results" / one)
    folders = sorted(lab.folder.glob(f"results/{kind}/*"))[:3]
    run, stages = {"stack": 3, **more}, [artifact.read_json(folder / "stage.json") for folder in folders]
    for folder, stage in zip(folders, stages, strict=True):
        shutil.rmtree(folder)
        artifact.write_json(folder / "stage.json", {**stage, "run": run, "peers": [one.name for one in folders]})
    command = [*BEHIND, "python", "-m", "interplay.run.stage", "run"]
    process = subprocess.Popen([*command, folders[1].name], cwd=lab.folder, env=lab.env, stderr=subprocess.DEVNULL)
    wait_for(lambda: all(saves(folder) >= 2 for folder in folders))
    process.kill()
    process.wait()
    assert not any(artifact.done(folder) for folder in folders)
    artifact.write_json(folders[0] / "stage.json", {**stages[0], "run": more})
    assert lab.run(*command, folders[0].name).returncode == 0
    assert [artifact.done(folder) for folder in folders] == [True, *[False] * (len(folders) - 1)]
    result = lab.run(*command, folders[-1].name)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("going on from") == len(folders) - 1
    made = {folder.name: artifact.record(folder) for folder in folders}
    assert len(made) > 1
    assert_close(made, records(finished, kind))
    assert not list(lab.folder.glob(f"results/{kind}/*/resume"))
