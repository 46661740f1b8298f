"""A stage that is killed goes on from its last save and ends with the bytes of an uninterrupted one."""

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import BEHIND, Laboratory, saves, wait_for

from interplay.schema.identity import rehashed


def unfinish(laboratory: Laboratory, kind: str) -> Path:
    """Take one stage of the kind back to where only its `stage.json` is there, saving as often as it can from now on."""
    out = sorted(laboratory.folder.glob(f"results/{kind}/*"))[0]
    stage = json.loads((out / "stage.json").read_text())
    shutil.rmtree(out)
    out.mkdir()
    stage["run"]["save_minutes"] = 0.0
    (out / "stage.json").write_text(json.dumps(stage))
    return out


@pytest.mark.parametrize(("kind", "first", "second"), [("pretrain", 20, 60), ("rl", 1, 2), ("evaluate", 1, 3)])
def test_a_stage_killed_twice_ends_with_the_same_bytes(
    finished: Laboratory, tmp_path: Path, kind: str, first: int, second: int
) -> None:
    copy = Laboratory(tmp_path / "copy")
    subprocess.run(["cp", "-r", str(finished.folder / "results"), str(copy.folder)], check=True)
    whole = {p.name: p.read_bytes() for p in sorted(copy.folder.glob(f"results/{kind}/*"))[0].rglob("*") if p.is_file()}
    out = unfinish(copy, kind)
    command = [*BEHIND, "python", "-m", "interplay.stage", "run", out.name, "--log", "log"]
    for saved in (first, second):
        process = subprocess.Popen(command, cwd=copy.folder, env=copy.env, stderr=subprocess.DEVNULL)
        wait_for(lambda saved=saved: saves(out) >= saved)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (out / "record.json").exists()
    assert copy.run(*command).returncode == 0
    again = {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    unlike = {"stage.json", "telemetry.json", "lease"}
    assert {name for name in whole if name not in unlike and again[name] != whole[name]} == set()
    assert again.keys() - unlike == whole.keys() - unlike
    resumed = [
        int(line.split()[3].split("/")[0])
        for line in (copy.folder / "log").read_text().splitlines()
        if line.startswith("going on from")
    ]
    assert len(resumed) == 2
    assert resumed[0] >= first
    assert resumed[1] >= second


def test_a_loss_that_is_not_finite_is_one_line_and_is_not_retried(finished: Laboratory, tmp_path: Path) -> None:
    copy = Laboratory(tmp_path / "copy")
    subprocess.run(["cp", "-r", str(finished.folder / "results"), str(copy.folder)], check=True)
    out = unfinish(copy, "pretrain")
    stage = json.loads((out / "stage.json").read_text())
    stage["spec"]["optimizer"] = {**stage["spec"]["optimizer"], "learning_rate": 1e30, "muon_learning_rate": 1e30}
    stage["digest"] = rehashed(stage)
    out = out.rename(out.with_name(stage["digest"]))
    (out / "stage.json").write_text(json.dumps(stage))
    first = copy.run("python", "-m", "interplay.stage", "run", out.name)
    lines = [line for line in first.stderr.splitlines() if line.startswith("interplay: ")]
    assert first.returncode == 3
    assert len(lines) == 1
    assert "step " in lines[0]
    assert "Traceback" not in first.stderr
    again = copy.run("python", "-m", "interplay.stage", "run", out.name)
    assert again.returncode == 3
    assert "steps," not in again.stderr
