"""`run: {stack: 3}` in real launches: records as without, a replica that diverges, two launches, a kill."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import BEHIND, Laboratory, assert_stacked_twins, saves, wait_for

from interplay.core import artifact

WILD = "  wild: {path: [base], control: base, set: {base.optimizer: {name: adamw, learning_rate: 1.0e+30, max_grad_norm: 0.0}}}"
SMOKE, BASES = ("study=quickstart", "scale=smoke"), ("--until", "pretrain")


def small(finished: Laboratory, folder: Path, run: str, wild: bool = False) -> Laboratory:
    """With data, and three seeds of a base of about 20 steps to make."""
    made = Laboratory(folder)
    made.take_data(finished)
    made.edit("configs/scale/smoke.yaml", "pretrain: {tokens: 100000", f"pretrain: {{run: {{{run}}}, tokens: 20000")
    made.edit("configs/study/quickstart.yaml", "values: [0]", "values: [0, 1, 2]")
    if wild:
        made.edit("configs/study/quickstart.yaml", "  rl_edge: {path", f"{WILD}\n  rl_edge: {{path")
    return made


def records(laboratory: Laboratory) -> dict[str, dict]:
    """Of pre-training, by digest."""
    return {path.parent.name: json.loads(path.read_text()) for path in laboratory.folder.glob("results/pretrain/*/record.json")}


@pytest.fixture(scope="module")
def alone(finished: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    made = small(finished, tmp_path_factory.mktemp("alone") / "lab", "save_minutes: 1.0")
    assert made.snakemake(*SMOKE, flags=BASES).returncode == 0
    return made


def assert_close(stacked: dict[str, dict], alone: dict[str, dict]) -> None:
    assert_stacked_twins(stacked, alone)
    for digest, record in stacked.items():
        other = alone[digest]
        assert record["metrics"]["eval_loss"] == pytest.approx(other["metrics"]["eval_loss"], rel=1e-3)
        assert {**record["metrics"], "eval_loss": 0} == {**other["metrics"], "eval_loss": 0}


def test_a_stacked_study_leaves_the_records_of_others_and_fails_alone(
    finished: Laboratory, alone: Laboratory, tmp_path: Path
) -> None:
    lab = small(finished, tmp_path / "lab", "stack: 6", wild=True)
    result = lab.snakemake(*SMOKE, flags=BASES)
    assert result.returncode != 0
    made = records(lab)
    assert len(made) == 3
    assert_close(made, records(alone))
    failures = list(lab.folder.glob("results/pretrain/*/failure.json"))
    assert len(failures) == 3  # one of each seed
    assert all("lower the learning rate" in path.read_text() for path in failures)
    telemetry = [artifact.read_json(lab.folder / f"results/pretrain/{digest}/telemetry.json") for digest in made]
    assert all(digest in each["stack"] for digest, each in zip(made, telemetry, strict=True))
    assert max(len(each["stack"]) for each in telemetry) > 1
    assert all(each["attempts"] == 1 for each in telemetry)


@pytest.mark.slow  # see test_existence
def test_two_launches_share_the_stages(finished: Laboratory, alone: Laboratory, tmp_path: Path) -> None:
    lab = small(finished, tmp_path / "lab", "stack: 2")
    both = [lab.start(*SMOKE, flags=BASES) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert_close(records(lab), records(alone))
    telemetry = lab.folder.glob("results/pretrain/*/telemetry.json")
    assert [artifact.read_json(path)["attempts"] for path in telemetry] == [1, 1, 1]


@pytest.mark.slow
def test_a_killed_stack_leaves_stages_that_go_on_alone_and_stacked(
    finished: Laboratory, alone: Laboratory, tmp_path: Path
) -> None:
    lab = small(finished, tmp_path / "lab", "stack: 3, save_minutes: 0.0")
    shutil.copytree(alone.folder / "results", lab.folder / "results", dirs_exist_ok=True)
    folders = sorted(lab.folder.glob("results/pretrain/*"))
    stages = [artifact.read_json(folder / "stage.json") for folder in folders]
    for folder, stage in zip(folders, stages, strict=True):
        shutil.rmtree(folder)
        run, peers = {"stack": 3, "save_minutes": 0.0}, [one.name for one in folders]
        artifact.write_json(folder / "stage.json", {**stage, "run": run, "peers": peers})
    command = [*BEHIND, "python", "-m", "interplay.run.stage", "run"]
    process = subprocess.Popen([*command, folders[1].name], cwd=lab.folder, env=lab.env, stderr=subprocess.DEVNULL)
    wait_for(lambda: all(saves(folder) >= 4 for folder in folders))
    process.kill()
    process.wait()
    assert not records(lab)
    steps = [saves(folder) for folder in folders]
    assert max(steps) - min(steps) <= 1
    artifact.write_json(folders[0] / "stage.json", {**stages[0], "run": {}})
    assert lab.run(*command, folders[0].name).returncode == 0
    assert records(lab).keys() == {folders[0].name}
    result = lab.run(*command, folders[1].name)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("going on from") == 2
    assert_close(records(lab), records(alone))
    assert not list(lab.folder.glob("results/pretrain/*/resume"))
