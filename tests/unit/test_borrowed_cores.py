"""A stage that is alone takes idle cores, gives them back when another starts, and leaves the same bytes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import wait_for

from interplay.core import execution
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.kernels import library
from interplay.model import folder
from interplay.model.spec import Shape
from interplay.model.trainer_spec import Optimizer
from interplay.optim import optimizer
from interplay.run import resources

OTHER = """
import sys, time
from interplay.core import execution
from interplay.run import resources
execution.want_cores()
with resources.share_cores(execution.Run(threads=int(sys.argv[1]))):
    while True:
        print(execution.borrowed_cores(), flush=True)
        time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment of a stage in a launch with two cores, of which no other process of this machine knows."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(resources.tempfile, "tempdir", None)
    monkeypatch.setattr(resources, "CORE_INTERVAL", 0.02)
    monkeypatch.setenv(resources.CORES, "2")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(execution._BORROWED, "wanted", None)
    monkeypatch.setattr(execution._BORROWED, "before", 0.0)
    yield
    assert execution.borrowed_cores() == 0


def other(threads: int = 1) -> subprocess.Popen[str]:
    """Another stage of the launch, once it has looked at the cores."""
    process = subprocess.Popen([sys.executable, "-c", OTHER, str(threads)], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    return process


def test_a_lone_stage_borrows_and_gives_back_when_another_starts_and_again_after_its_sigkill() -> None:
    execution.want_cores()
    with resources.share_cores(Run()):
        for _ in range(3):
            wait_for(lambda: execution.borrowed_cores() == 1, 20)
            neighbour = other()
            try:
                wait_for(lambda: execution.borrowed_cores() == 0, 20)
            finally:
                neighbour.kill()
                neighbour.wait()
        wait_for(lambda: execution.borrowed_cores() == 1, 20)
    assert execution.borrowed_seconds() > 0


def test_nothing_is_borrowed_without_a_use_for_it_or_beside_a_stage_that_has_all_cores() -> None:
    looked: list[int] = []
    with resources.share_cores(Run()):
        wait_for(lambda: looked.append(execution.borrowed_cores()) or len(looked) > 20)
    neighbour = other(threads=2)
    try:
        execution.want_cores()
        with resources.share_cores(Run()):
            wait_for(lambda: looked.append(execution.borrowed_cores()) or len(looked) > 40)
    finally:
        neighbour.kill()
        neighbour.wait()
    assert set(looked) == {0}


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", resources.CORES])
def test_nothing_is_borrowed_in_a_slurm_job_or_with_one_core(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(name, "1")
    execution.want_cores()
    with resources.share_cores(Run()):
        assert not list(tmp_path.glob("interplay-cores*"))


def test_a_launch_shares_its_cores_or_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = []
    for given in ("", "0", "3", "8"):
        monkeypatch.setenv(resources.CORES, given)
        resources.launch_cores(4)
        shared.append(os.environ[resources.CORES])
    assert shared == ["4", "0", "3", "4"]
    monkeypatch.setenv(resources.CORES, "all")
    with pytest.raises(UserError, match="INTERPLAY_CORES = 'all': must be a number of cores"):
        resources.launch_cores(4)


@pytest.mark.skipif(library.library() is None or library._torch_openmp() is None, reason="no C compiler, or another OpenMP")
def test_steps_with_borrowed_cores_leave_the_same_weights() -> None:
    """Cores come and go between steps, as they do in a stage; PyTorch's operations keep their one thread."""

    def trained(borrowed: list[int]) -> list[torch.Tensor]:
        shape = Shape(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=96
        )
        decoder = folder.init_decoder(shape, 48, seed=1)
        optimizers = optimizer.build_optimizers(Optimizer(), decoder.named_parameters(), "int8")
        generator = torch.Generator().manual_seed(3)
        for count in borrowed:
            execution.set_borrowed_cores(count)
            ids = torch.randint(0, 48, (9, 130), generator=generator)
            hidden = decoder.hidden(ids, torch.arange(130).expand(9, -1), torch.ones_like(ids), torch.int8)
            torch.nn.functional.cross_entropy(decoder.logits(hidden).flatten(0, 1), ids.flatten()).backward()
            optimizer.apply_gradients(optimizers, list(decoder.parameters()), 1.0)
        execution.set_borrowed_cores(0)
        return [parameter.detach() for parameter in decoder.parameters()]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone, lent = trained([0] * 8), trained([0, 1, 3, 1, 0, 2, 1, 3])
    torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(alone, lent, strict=True))
