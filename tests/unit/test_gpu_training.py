"""On a GPU: training ends near where a CPU's does, says what does not fit, goes on after a stop, and shares its card with vLLM."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import wait_for
from devices_cases import LM, RL, Results, furthest, lines, pretrain, rl_spec, weights

from interplay.core.artifact import last_save, read_json
from interplay.core.execution import EXIT
from interplay.core.model import PermanentError
from interplay.model.spec import Shape

pytestmark = pytest.mark.gpu
GPU = {"gpus": 1}
WIDE = Shape(
    hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, head_dim=64, intermediate_size=1536
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("gpu"))


def last_loss(out: Path) -> float:
    return [line["loss"] for line in lines(out) if "loss" in line][-1]


@pytest.mark.parametrize("run", [{}, {"compile": True}], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_learns_what_it_learns_on_a_cpu(results: Results, tmp_path: Path, run: dict[str, Any], dtype: str) -> None:
    spec = pretrain(dtype=dtype, tokens=40 * 480)
    ours = results.in_one("pretrain", spec, tmp_path / "gpu", **LM, **GPU, **run)
    theirs = results.in_one("pretrain", pretrain(tokens=40 * 480), tmp_path / "cpu", **LM)
    assert last_loss(ours) == pytest.approx(last_loss(theirs), rel=0.02), "on a GPU Muon iterates in bfloat16"
    assert last_loss(ours) < 0.8 * lines(ours)[0]["loss"]
    assert 0 < read_json(ours / "telemetry.json")["mfu"] < 1


def test_rl_learns_what_it_learns_on_a_cpu(results: Results, tmp_path: Path) -> None:
    ours = results.in_one("rl", rl_spec(), tmp_path / "gpu", **RL, **GPU)
    theirs = results.in_one("rl", rl_spec(), tmp_path / "cpu", **RL)
    assert [line["reward"] for line in lines(ours)] == pytest.approx([line["reward"] for line in lines(theirs)], abs=0.02)


def test_a_run_that_is_stopped_goes_on(results: Results, tmp_path: Path) -> None:
    spec = pretrain(tokens=200 * 480, dtype="bfloat16")
    whole = results.in_one("pretrain", spec, tmp_path / "whole", **LM, **GPU)
    out = results.ask("pretrain", spec, results.roles("pretrain"), **LM, **GPU)
    process = results.start(out)
    wait_for(lambda: last_save(out) is not None or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == EXIT
    made = results.make(out)
    assert (made.returncode, "going on from" in made.stderr) == (0, True), made.stderr
    assert last_loss(out) == pytest.approx(last_loss(whole), rel=0.02)


def test_a_pass_that_does_not_fit_names_one_that_does(results: Results, tmp_path: Path) -> None:
    spec = pretrain(model=WIDE, tokens=3 * 60_000, batch_tokens=1 << 16, dtype="bfloat16")
    torch.cuda.set_per_process_memory_fraction((3 << 30) / torch.cuda.mem_get_info()[1])
    try:
        with pytest.raises(PermanentError, match=r"^run.micro_batch_tokens: a pass of 65536 does not fit") as said:
            results.in_one("pretrain", spec, tmp_path / "large", micro_batch_tokens=1 << 16, **GPU)
        fitting = int(str(said.value).split("write ")[1].split(",")[0])
        results.in_one("pretrain", spec, tmp_path / "fits", micro_batch_tokens=fitting, **GPU)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_vllm_samples_beside_what_fills_most_of_the_gpu(results: Results, tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    free, total = torch.cuda.mem_get_info()
    filling = torch.empty(max(0, free - total // 4), dtype=torch.uint8, device="cuda")
    spec = rl_spec().model_copy(update={"engine": "vllm"})
    out = results.in_one("rl", spec, tmp_path / "vllm", **RL, **GPU, engine_server=True)
    assert all(line["sampling/sampling_logp_difference/mean"] < 0.01 for line in lines(out))
    del filling


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("kind", ["pretrain", "rl"])
def test_two_gpus_learn_what_one_does(results: Results, tmp_path: Path, kind: str) -> None:
    spec, how = (pretrain(tokens=40 * 480), LM) if kind == "pretrain" else (rl_spec(), RL)
    one = results.in_one(kind, spec, tmp_path / "one", **how, **GPU)
    two = results.in_two(kind, spec, gpus=2, **how)
    assert furthest(weights(one), weights(two)) < 1e-3
    assert len(lines(two)) == len(lines(one))
