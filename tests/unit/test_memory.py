"""Memory that does not suffice is one line: which key of the run block, its value, and one that fits."""

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import world
from devices_cases import laid_out, pretrain
from test_devices_tuners import CASES
from test_prefer import pair_set
from world import SHAPE, model as untrained

from interplay.core.artifact import read_json
from interplay.core.execution import Run
from interplay.core.model import PermanentError
from interplay.data import batches
from interplay.model import device, folder
from interplay.rollout import native
from interplay.rollout.request import Request, Sampling
from interplay.run import workers
from interplay.train import lm, unlearn
from interplay.train.lm import token_losses


def _greedy(most: int, error: bool):
    """token_losses, of which a pass of more than `most` tokens asks for more memory than there is."""

    def losses(model, batch, dtype):
        if len(batch.ids) > most and error:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return token_losses(model, batch, dtype) + torch.zeros(1 << 50 if len(batch.ids) > most else 1).sum()

    return losses


def test_what_a_pass_held_is_let_go_of_before_smaller_ones_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the gradient runs out of memory, its graph holds all that the pass has computed."""
    held: list[weakref.ref[torch.Tensor]] = []

    class Full(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, losses: torch.Tensor, tokens: int) -> torch.Tensor:
            activation = torch.zeros(8)
            context.save_for_backward(activation)
            context.tokens = tokens
            held.append(weakref.ref(activation))
            return losses.clone()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
            if context.tokens > 150:
                raise torch.OutOfMemoryError("CUDA out of memory")
            assert [one() for one in held[:-1]] == [None] * (len(held) - 1)
            return gradient, None

    monkeypatch.setattr(lm, "token_losses", lambda m, batch, dtype: Full.apply(token_losses(m, batch, dtype), len(batch.ids)))
    with pytest.raises(PermanentError, match=r"a pass of 512 does not fit into memory; write 128, which does$"):
        lm.train_language_model(
            pretrain(model=SHAPE, tokens=4000), laid_out(tmp_path), tmp_path / "out", Run(micro_batch_tokens=512)
        )
    assert len(held) == 3


@pytest.mark.parametrize("words", ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"])
def test_memory_that_a_library_was_refused_counts_too(words: str) -> None:
    with (
        pytest.raises(PermanentError, match=r"write 4, which does$"),
        device.report_out_of_memory("micro_batch_tokens", 8, lambda n: None),
    ):
        raise RuntimeError(words)


@pytest.mark.parametrize("error", [True, False], ids=["gpu", "cpu"])
def test_a_pass_that_does_not_fit_is_one_line_with_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: bool
) -> None:
    inputs = laid_out(tmp_path)
    monkeypatch.setattr(lm, "token_losses", _greedy(150, error))
    with pytest.raises(PermanentError) as said:
        lm.train_language_model(pretrain(model=SHAPE, tokens=4000), inputs, tmp_path / "out", Run(micro_batch_tokens=512))
    assert str(said.value) == "run.micro_batch_tokens: a pass of 512 does not fit into memory; write 128, which does"
    lm.train_language_model(pretrain(model=SHAPE, tokens=4000), inputs, tmp_path / "out", Run(micro_batch_tokens=128))
    monkeypatch.setattr(lm, "token_losses", _greedy(10, error))
    with pytest.raises(PermanentError, match=r"nor does the smallest; use a smaller model or shorter rows$"):
        lm.train_language_model(pretrain(model=SHAPE, tokens=4000), inputs, tmp_path / "small", Run(micro_batch_tokens=512))


def test_rollouts_that_do_not_fit_name_the_rows_that_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = folder.load_decoder(untrained(tmp_path, "b" * 12) / "model")
    asked = [Request(prompt=[3, 4], key=key, first=0, count=4) for key in range(8)]
    sampling = Sampling(1.0, 1.0, 0, 5, 0, None, 0)
    whole = native.Native(decoder, Run(engine_batch=32), torch.float32).generate(asked, sampling)

    def complete(parts, blend, batches, *rest):
        torch.empty(1 << 50 if sum(part.count for batch in batches for _, part in batch) > 10 else 1)
        return _complete(parts, blend, batches, *rest)

    _complete = native._complete
    monkeypatch.setattr(native, "_complete", complete)
    with pytest.raises(PermanentError, match=r"^run.engine_batch: a pass of 32 does not fit into memory; write 8, which does$"):
        native.Native(decoder, Run(engine_batch=32), torch.float32).generate(asked, sampling)
    fitting = native.Native(decoder, Run(engine_batch=8), torch.float32).generate(asked, sampling)
    assert torch.equal(fitting.tokens, whole.tokens)


def test_other_errors_of_a_pass_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"^shapes$"), device.report_out_of_memory("micro_batch_tokens", 8, lambda n: None):
        raise RuntimeError("shapes")


@pytest.mark.parametrize("case", ["dpo", "kto", "heads"])
def test_pairs_that_do_not_fit_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    kind, spec = CASES[case]
    data = pair_set(tmp_path, "b" * 12)
    inputs = {"init": world.model(tmp_path, "a" * 12), "data.0": data, "validation": data}
    padded = batches.pad_completions

    def greedy(completions, device):
        if len(completions) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return padded(completions, device)

    monkeypatch.setattr(batches, "pad_completions", greedy)
    with pytest.raises(PermanentError, match=r"^run.micro_batch_tokens: a pass of 4096 does not fit into memory; write ") as said:
        workers.load_function(kind)(spec, inputs, tmp_path / "out", Run(micro_batch_tokens=4096))
    fitting = int(str(said.value).split("write ")[1].split(",")[0])
    assert 0 < fitting < 4096
    assert workers.load_function(kind)(spec, inputs, tmp_path / "fitting", Run(micro_batch_tokens=fitting))["steps"] == 4
    assert 0 < read_json(tmp_path / "fitting/telemetry.json")["mfu"] < 1


def test_problems_to_unlearn_that_do_not_fit_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, spec = CASES["npo"]
    sides = {f"{side}.0": world.problem_set(tmp_path, side[0] * 12, 24, split="train") for side in ("forget", "retain")}
    inputs = {"init": world.model(tmp_path, "a" * 12), **sides}
    monkeypatch.setattr(unlearn, "held_out_losses", lambda *given: {})  # measured before the first step, without a gradient
    monkeypatch.setattr(lm, "token_losses", _greedy(150, error=True))
    with pytest.raises(PermanentError, match=r"^run.micro_batch_tokens: a pass of 1024 does not fit into memory; write 128, "):
        unlearn.train_unlearning(spec, inputs, tmp_path / "out", Run(micro_batch_tokens=1024))


def test_what_nobody_watches_over_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(lm, "train_language_model", measure)
    how = Run(micro_batch_tokens=512)
    with pytest.raises(PermanentError) as said, workers.memory_named(how):
        workers.load_function("pretrain")(pretrain(), {}, tmp_path, how)
    keys = "run.micro_batch_tokens = 512 (training, scoring), run.engine_batch = 256"
    assert str(said.value) == f"out of memory; lower {keys} (rollouts)"


def test_an_error_of_another_kind_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise RuntimeError("shapes")

    monkeypatch.setattr(lm, "train_language_model", fail)
    with pytest.raises(RuntimeError, match=r"^shapes$"), workers.memory_named(Run()):
        workers.load_function("pretrain")(pretrain(), {}, tmp_path, Run())
