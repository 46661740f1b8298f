"""A study whose stages sample with vLLM, run by Snakemake, beside the same study with `native`. For an environment that holds vLLM:
`make test-vllm`."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import Laboratory, saves, wait_for
from scipy.stats import binomtest

pytestmark = pytest.mark.vllm
STUDY, SCALE = "configs/study/quickstart.yaml", "configs/scale/smoke.yaml"
LARGEST = "sampling/sampling_logp_difference/max"


def record_of(laboratory: Laboratory, kind: str, engine: str) -> dict[str, Any]:
    """Metrics of the stages of a kind that sampled with an engine, by what people call them."""
    found = {}
    for path in laboratory.folder.glob(f"results/{kind}/*/record.json"):
        record, stage = (json.loads((path.parent / name).read_text()) for name in ("record.json", "stage.json"))
        if record["spec"]["engine"] == engine:
            found[stage["label"]] = record["metrics"]
    return found


def test_a_study_with_vllm_has_stages_of_its_own_and_finds_what_native_finds(laboratory: Laboratory) -> None:
    laboratory.edit(SCALE, "model: pico", "model: nano")  # heads as wide as vLLM computes on a CPU
    laboratory.edit(STUDY, "rl: {kind: rl, ", "rl: {kind: rl, reward: {name: outcome}, ")  # what so small a model earns at times
    done = laboratory.snakemake("study=quickstart", "scale=smoke")
    assert done.returncode == 0, done.stdout + done.stderr
    before = laboratory.records()
    laboratory.edit(STUDY, "rl: {kind: rl, ", "rl: {kind: rl, engine: vllm, ")
    laboratory.edit(STUDY, "eval: {kind: evaluate, ", "eval: {kind: evaluate, engine: vllm, run: {engine_server: true}, ")
    done = laboratory.snakemake("study=quickstart", "scale=smoke")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(laboratory.records()[name] == record for name, record in before.items()), "no stage of old was made again"

    learnt, native = (record_of(laboratory, "rl", engine) for engine in ("vllm", "native"))
    assert learnt.keys() == native.keys()
    assert len(learnt) == 2
    for label, metrics in learnt.items():
        assert metrics["reward_last"] == pytest.approx(native[label]["reward_last"], abs=0.05)
    for path in laboratory.folder.glob("results/rl/*/metrics.jsonl"):
        assert 0 < max(json.loads(line)[LARGEST] for line in path.read_text().splitlines()) < 1e-3

    found, expected = (record_of(laboratory, "evaluate", engine) for engine in ("vllm", "native"))
    assert found.keys() == expected.keys()
    assert len(found) == 3
    for label, metrics in found.items():
        count = metrics["n_prompts"] * metrics["n_samples"]
        for rate in ("strict_pass@1", "answer_pass@1"):
            share = expected[label]["all"][rate]
            assert 0 < share < 1, "a rate that nothing could change tells nothing"
            assert binomtest(round(metrics["all"][rate] * count), count, share).pvalue > 1e-3, (label, rate)


def kill_after(step: int, out: Path, process: "subprocess.Popen[bytes]") -> None:
    """SIGKILL to the stage once it has saved the step; 0: while it imports vLLM. Whatever it started ends with it."""
    wait_for(lambda: saves(out) >= step if step else psutil.Process(process.pid).cpu_times().user > 3)
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    wait_for(lambda: not any(one.is_running() for one in started))


@pytest.mark.parametrize("server", [False, True])
def test_grpo_on_rollouts_of_vllm_learns_what_it_learns_on_native_ones_however_often_it_is_killed(
    laboratory: Laboratory, server: bool
) -> None:
    study = "configs/study/methods/rollout_engines.yaml"
    laboratory.edit(study, "seeds: [0, 1, 2]", "seeds: [0]")
    laboratory.edit(
        study, "rl.engine: vllm", f"rl.engine: vllm, rl.run: {{save_minutes: 0.0, engine_server: {str(server).lower()}}}"
    )
    done = laboratory.snakemake("study=methods/rollout_engines", "scale=smoke")
    assert done.returncode == 0, done.stdout + done.stderr
    claims = json.loads((laboratory.folder / "results/by-name/methods.rollout_engines.smoke/report/claims.json").read_text())
    native, vllm, difference = (claim["estimate"]["value"] for claim in claims)
    assert vllm == pytest.approx(native, abs=0.02)
    assert difference == pytest.approx(0.0, abs=0.02)

    [out] = [path.parent for path in laboratory.folder.glob("results/rl/*/record.json") if '"engine": "vllm"' in path.read_text()]
    whole = (out / "record.json").read_bytes()
    for path in out.iterdir():
        if path.name != "stage.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    command = [sys.executable, "-m", "interplay.run.stage", "run", out.name, "--log", "log"]
    for step in (0, 1, 4):
        kill_after(step, out, subprocess.Popen(command, cwd=laboratory.folder, env=laboratory.env, stderr=subprocess.DEVNULL))
    assert subprocess.run(command, cwd=laboratory.folder, env=laboratory.env, check=False).returncode == 0
    assert (out / "record.json").read_bytes() == whole
