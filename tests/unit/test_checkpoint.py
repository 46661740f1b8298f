import os
from pathlib import Path

import pytest
import torch
from torch import nn

from interplay.model.trainer_spec import Optimizer
from interplay.optim import distributed, optimizer


class KilledError(Exception):
    """Stands for SIGKILL at a chosen moment."""


def test_nothing_saved_loads_as_none(tmp_path: Path) -> None:
    assert distributed.load_checkpoint(tmp_path / "resume") is None


def test_what_is_saved_is_loaded_and_only_the_last_is_kept(tmp_path: Path) -> None:
    for step in (3, 7):
        distributed.save_checkpoint(tmp_path, step, {"a": torch.full((2,), float(step))}, {"tokens": step * 10})
    saved = distributed.load_checkpoint(tmp_path)
    assert saved is not None
    assert (saved[0], saved[1]["a"].tolist(), saved[2]) == (7, [7.0, 7.0], {"tokens": 70})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["7.safetensors", "state.json"]


def test_equal_states_give_equal_bytes(tmp_path: Path) -> None:
    tensors = {"b": torch.arange(4.0), "a": torch.ones(3)}
    distributed.save_checkpoint(tmp_path / "one", 1, tensors, {})
    distributed.save_checkpoint(tmp_path / "two", 1, dict(reversed(tensors.items())), {})
    assert (tmp_path / "one/1.safetensors").read_bytes() == (tmp_path / "two/1.safetensors").read_bytes()


@pytest.mark.parametrize("moment", range(4))
def test_a_kill_at_any_moment_of_a_save_leaves_the_old_state_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    distributed.save_checkpoint(tmp_path, 1, {"a": torch.ones(1)}, {})
    moments = iter(range(100))

    def dying(function):
        def call(*args, **kwargs):
            if next(moments) == moment:
                raise KilledError
            return function(*args, **kwargs)

        return call

    # A save is: sync and rename the tensors, sync and rename the pointer, delete the old tensors.
    monkeypatch.setattr(os, "fsync", dying(os.fsync))
    monkeypatch.setattr(os, "replace", dying(os.replace))
    with pytest.raises(KilledError):
        distributed.save_checkpoint(tmp_path, 2, {"a": torch.full((1,), 2.0)}, {})
    monkeypatch.undo()
    saved = distributed.load_checkpoint(tmp_path)
    assert saved is not None
    assert saved[1]["a"].item() == saved[0] == 1
    distributed.save_checkpoint(tmp_path, 3, {"a": torch.full((1,), 3.0)}, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["3.safetensors", "state.json"]


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_restored_model_and_optimizer_go_on_bit_for_bit(tmp_path: Path, name: str) -> None:
    def fresh() -> tuple[nn.Module, list[torch.optim.Optimizer]]:
        torch.manual_seed(0)
        model = nn.ModuleDict({"model": nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])})})
        return model, optimizer.build_optimizers(Optimizer(name=name), model.named_parameters())

    def step(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
        for p in model.parameters():
            p.grad = torch.randn(p.shape)
        optimizer.apply_gradients(optimizers, list(model.parameters()), 1.0)

    model, optimizers = fresh()
    for _ in range(3):
        step(model, optimizers)
    distributed.save_checkpoint(tmp_path, 3, distributed.training_tensors(model, optimizers), {})
    for _ in range(3):
        step(model, optimizers)
    again, their_optimizers = fresh()
    saved = distributed.load_checkpoint(tmp_path)
    assert saved is not None
    distributed.restore_training(saved[1], again, their_optimizers)
    for _ in range(3):
        step(again, their_optimizers)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
