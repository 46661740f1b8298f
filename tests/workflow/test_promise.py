"""What `interplay plan` says is what Snakemake does: a comment reruns nothing; other code reruns nothing
and is told of; a changed default reruns its users and nothing else."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Laboratory

SMOKE = ("study=quickstart", "scale=smoke")


@pytest.fixture
def project(finished: Laboratory, tmp_path: Path) -> Laboratory:
    """The finished study with a copy of the package of its own."""
    copy = Laboratory(tmp_path / "copy")
    shutil.copytree(finished.folder / "results", copy.folder / "results", symlinks=True)
    shutil.copytree(ROOT / "src" / "interplay", copy.folder / "src" / "interplay", ignore=shutil.ignore_patterns("__pycache__"))
    copy.env["PYTHONPATH"] = str(copy.folder / "src")
    result = copy.run("python", "-c", "import interplay.run.stage; print(interplay.run.stage.__file__)")
    assert result.stdout.startswith(str(copy.folder)), result.stdout + result.stderr
    return copy


def plan(project: Laboratory) -> dict[str, Any]:
    result = project.run("interplay", "plan", "quickstart", "--scale", "smoke", "--json")
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


def new(planned: dict[str, Any]) -> dict[str, str]:
    """Digest -> kind of the stages that are to be made."""
    return {stage["digest"]: stage["kind"] for stage in planned["stages"] if stage["state"] != "done"}


def jobs(project: Laboratory) -> set[str]:
    """Digests of the stages that Snakemake would make."""
    result: subprocess.CompletedProcess[str] = project.snakemake(*SMOKE, flags=("-n", "--printshellcmds", "--quiet", "host"))
    assert result.returncode == 0, result.stderr
    return set(re.findall(r"(?:interplay\.run\.stage|forkserver\.py) run ([0-9a-f]{12})", result.stdout + result.stderr))


def changed(project: Laboratory, name: str, pattern: str, new: str) -> None:
    """Replace what the pattern matches, once, in a source."""
    path = project.folder / "src/interplay" / name
    text, count = re.subn(pattern, new, path.read_text(), flags=re.DOTALL)
    assert count == 1
    path.write_text(text)


def test_a_comment_and_other_code_rerun_nothing_and_a_changed_default_reruns_its_users_as_the_plan_said(
    project: Laboratory,
) -> None:
    before = plan(project)
    drifted = before["drifted"]  # nothing, unless the sources were edited while the tests ran
    edited = 0
    for path in [*project.folder.glob("configs/**/*.yaml"), *project.folder.glob("src/**/*.py")]:
        path.write_text(f"# a comment\n{path.read_text()}\n# another\n")
        edited += 1
    assert edited > 100
    users = {stage["digest"] for stage in before["stages"] if stage["kind"] == "rl"}
    changed(project, "rl/group_advantages.py", r"(EPSILON) = 1e-4", r"\1 = 2e-4")
    planned = plan(project)
    assert new(planned) == {}
    assert {file: set(stages) for file, stages in planned["drifted"].items() if file not in drifted} == {
        "rl/group_advantages.py": users
    }
    assert jobs(project) == set()

    changed(project, "rl/spec.py", r"(class RLSpec\(.*?keep_rollouts: \w+) = 16", r"\1 = 8")
    planned = plan(project)
    said = new(planned)
    assert sorted(said.values()) == ["evaluate", "evaluate", "report", "rl", "rl"]
    causes = {cause["digest"]: cause for cause in planned["causes"]}
    for digest, kind in said.items():
        (change,) = causes[digest]["changes"]
        if kind == "rl":
            assert causes[digest]["nearest"] in users
            assert (change["field"], change["old"], change["new"]) == ("keep_rollouts", 16, 8)
        if kind == "evaluate":
            assert [(root["field"], root["new"]) for root in change["because"]] == [("keep_rollouts", 8)]
    assert jobs(project) == set(said)
    assert set(planned["drifted"]) == set(drifted)  # who read either file is new by now
