"""numerics: exact. What a stage leaves is a function of its digest: nothing else moves a byte, and what would is caught."""

import itertools
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exact_cases as cases
import pytest
import torch
from pydantic import ValidationError
from torch.utils._python_dispatch import TorchDispatchMode

from interplay.core.execution import Run
from interplay.core.model import PermanentError, UserError
from interplay.evaluate.spec import EvaluateSpec
from interplay.kernels import exact, layers, library
from interplay.model import decoder as decoders, device, folder
from interplay.optim import optimizer
from interplay.rl import losses
from interplay.train import lm

pytestmark = pytest.mark.skipif(library.library() is None, reason="no C compiler")
STEPS = 3
SMALL = {"micro_batch_tokens": 256, "engine_batch": 8}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exact")
    cases.laid_out(folder)
    return folder


@pytest.fixture(scope="module")
def expected(place: Path) -> dict[str, dict[str, Any]]:
    return {kind: cases.made(place, kind, "exact", STEPS) for kind in cases.KINDS}


RUNS = [(kind, SMALL) for kind in cases.KINDS]
THREADS = {"threads": 2, "micro_batch_tokens": 700, "share_prompts": False}
MORE = [pytest.param(kind, THREADS, marks=[] if kind == "rl" else pytest.mark.slow) for kind in cases.KINDS]


@pytest.mark.parametrize(("kind", "run"), [*RUNS, *MORE])
def test_batches_and_threads_move_no_byte(place: Path, expected: dict[str, Any], kind: str, run: dict[str, Any]) -> None:
    assert cases.made(place, kind, "exact", STEPS, **run) == expected[kind]
    assert expected["rl"]["difference"] == 0.0


@pytest.mark.parametrize("name", ["avx2", pytest.param("baseline", marks=pytest.mark.slow)])
def test_another_processor_moves_no_byte(place: Path, expected: dict[str, Any], name: str) -> None:
    assert cases.in_child(place, "exact", STEPS, cases.KINDS, name, **SMALL) == expected


@pytest.mark.parametrize("kind", ["rl", *(pytest.param(kind, marks=pytest.mark.slow) for kind in cases.KINDS if kind != "rl")])
def test_two_processes_move_no_byte(place: Path, expected: dict[str, Any], kind: str) -> None:
    assert cases.made(place, kind, "exact", STEPS, processes=2, micro_batch_tokens=600) == expected[kind]


# -- planted ------------------------------------------------------------------------------------------------------------


def summed_at_once(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1)


def exp_of_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x)


PLANTED: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "a sum of float32 over rows": ("prefer", lambda patch: patch.setattr(exact, "row_sums", summed_at_once)),
    "torch's exp": ("rl", lambda patch: patch.setattr(losses.exact, "exp", exp_of_torch)),
    "torch's norm behind the layers": (
        "sft",
        lambda patch: patch.setattr(decoders, "_normed", lambda x, weights, eps, *_: decoders.rms_norm(x, weights.norm, eps)),
    ),
    "torch's step of AdamW": ("sft", lambda patch: patch.setattr(optimizer.ExactAdamW, "step", optimizer.AdamW.step)),
    "torch's norm of the gradient": (
        "sft",
        lambda patch: patch.setattr(exact, "norm", lambda gradients: math.sqrt(sum(float(g.square().sum()) for g in gradients))),
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_an_inexact_operation_that_was_planted_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    kind, plant = PLANTED[fault]
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="not exact: aten"), OnlyExact():
        cases.made(place, kind, "exact", STEPS)


def test_parts_that_follow_the_micro_batch_are_noticed(
    place: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks from the first row of a pass on, as numerics: fast has them."""
    monkeypatch.setattr(lm.exact, "unit_blocks", lambda rows: layers.fixed_blocks(sum(rows)).first)
    found = [cases.made(place, "sft", "exact", STEPS, **run) for run in (SMALL, {})]
    assert found[0]["model"] != found[1]["model"]


def test_sums_that_are_rounded_to_float32_between_passes_are_noticed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place_sums = layers._place_sums

    def rounded(given: layers.Pass, parts: Any) -> None:
        assert given.sums is not None
        given.sums.flat.copy_(given.sums.flat.float())
        place_sums(given, parts)

    monkeypatch.setattr(layers, "_place_sums", rounded)
    found = [cases.made(place, "sft", "exact", STEPS, **run) for run in (SMALL, {})]
    assert found[0]["model"] != found[1]["model"]


# -- which operations of PyTorch there are ------------------------------------------------------------------------------


FINE = {
    # one IEEE operation for each element
    *("add", "sub", "rsub", "mul", "div", "neg", "abs", "sqrt", "round", "minimum", "maximum", "clamp", "where", "reciprocal"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "bitwise_and", "bitwise_or", "bitwise_not", "logical_not"),
    # exact in any order
    *("amax", "amin", "max", "min", "any", "all", "argsort", "sort", "unique", "_unique2", "searchsorted", "equal"),
    # no arithmetic
    *(
        "copy",
        "clone",
        "detach",
        "_to_copy",
        "zeros",
        "ones",
        "empty",
        "full",
        "new_zeros",
        "new_empty",
        "new_ones",
        "zeros_like",
    ),
    *("ones_like", "empty_like", "full_like", "fill", "zero", "arange", "scalar_tensor", "lift_fresh", "alias", "set"),
    *(
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "expand",
        "permute",
        "transpose",
        "t",
        "unsqueeze",
        "squeeze",
        "select",
    ),
    *("slice", "split", "split_with_sizes", "unbind", "cat", "stack", "index", "index_select", "gather", "embedding", "repeat"),
    *("masked_select", "masked_scatter", "masked_fill", "index_copy", "index_put", "scatter", "flip", "roll", "constant_pad_nd"),
    *("nonzero", "_local_scalar_dense", "is_pinned", "as_strided", "unfold", "resize", "repeat_interleave", "empty_strided"),
    *("select_backward", "slice_backward", "new_empty_strided", "new_full", "lift", "_index_put_impl", "masked_scatter_backward"),
    *("flatten", "unflatten", "to", "pad", "numpy_T", "contiguous", "isnan"),
}
IN_ORDER = {"sum", "cumsum", "index_add", "scatter_reduce", "pow"}
"""Not of float32: of integers, of float64 on a grid (`exact.total`), or of the rewards of a group, one after the other."""
MEASURED = {"measure_step"}
"""Functions whose results are logged and enter nothing else."""


class OnlyExact(TorchDispatchMode):
    """Refuses operations of PyTorch whose bytes may depend on the processor or on an order."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        kinds = {x.dtype for x in _tensors((args, kwargs or {})) if x.is_floating_point()}
        fine = name in FINE or not kinds or (name in IN_ORDER and torch.float32 not in kinds)
        if not fine and not MEASURED & {frame.name for frame in traceback.extract_stack()}:
            raise AssertionError(f"not exact: aten.{name} of {kinds}")
        return func(*args, **(kwargs or {}))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return list(itertools.chain.from_iterable(map(_tensors, inside)))


@pytest.mark.parametrize("kind", cases.KINDS)
def test_a_stage_takes_no_inexact_operation_of_pytorch(place: Path, kind: str) -> None:
    with OnlyExact():
        cases.made(place, kind, "exact", 2)


# -- functions ----------------------------------------------------------------------------------------------------------


def test_functions_are_those_of_float64_rounded() -> None:
    x = torch.cat([torch.linspace(-87, 80, 5001), torch.logspace(-12, 0, 500), -torch.logspace(-12, 0, 500), torch.zeros(1)])
    for own, theirs in ((exact.exp, torch.exp), (exact.expm1, torch.expm1), (exact.logsigmoid, torch.nn.functional.logsigmoid)):
        torch.testing.assert_close(own(x), theirs(x.double()).float(), rtol=1.2e-7, atol=1e-15)
    assert exact.exp(torch.zeros(1)).item() == 1.0
    positions = torch.tensor([0, 1, 7, 500, 100_000])
    cos, sin = exact.rotary(positions, 32, 10000.0)
    angles = positions[:, None, None] / 10000.0 ** (torch.arange(0, 32, 2, dtype=torch.float64) / 32)
    torch.testing.assert_close(cos, torch.cat((angles.cos(), angles.cos()), -1).float(), rtol=0, atol=1.2e-7)
    torch.testing.assert_close(sin, torch.cat((-angles.sin(), angles.sin()), -1).float(), rtol=0, atol=1.2e-7)
    drawn = torch.empty(200, 500)
    exact.fill_normal(drawn, 2.0, "init", 0, "one")
    assert abs(drawn.mean().item()) < 0.03
    assert abs(drawn.std().item() - 2.0) < 0.03


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 0.5])
def test_parts_on_the_grid_add_up_in_any_order(scale: float) -> None:
    """The gradient of an embedding, a part a row; and its distance from that of float64."""
    made = folder.init_decoder(cases.SHAPE, 48, 0, "exact")
    generator, found = torch.Generator().manual_seed(0), []
    dx, ids = torch.randn(300, 64, generator=generator) * scale, torch.randint(0, 48, (300,), generator=generator)
    for order in (torch.arange(300), torch.randperm(300, generator=generator)):
        sums = exact.Sums(made)
        for some in order.split(int(torch.randint(1, 200, (1,), generator=generator))):
            library.call("embedding_backward", dx[some], ids[some], len(some), 64, 48, sums.largest[1:], sums.parts["table"])
        found.append(sums.parts["table"])
    assert torch.equal(*found)
    truth = torch.zeros(48, 64, dtype=torch.float64).index_add_(0, ids, dx.double())
    assert float((found[0] - truth).abs().max()) <= 300 * 2.0**-39


def test_a_gradient_beyond_the_range_of_exact_sums_ends_the_run() -> None:
    sums = exact.Sums(folder.init_decoder(cases.SHAPE, 48, 0, "exact"))
    sums.blocks, sums.largest[0] = 8, 4000.0
    with pytest.raises(PermanentError, match=r"may reach 3.2e.04 and are exact below 16384"):
        sums.reduced(torch.nn.Linear(1, 1), lambda x: x)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"dtype": "float32"}, "does not cover dtype = float32"),
        ({"nll": True}, "does not cover nll"),
        ({"engine": "hf"}, "does not cover engine = hf"),
    ],
)
def test_what_is_not_covered_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EvaluateSpec.model_validate({"dtype": "int8", "numerics": "exact", **spec})


def test_a_model_that_kernels_do_not_take_is_refused() -> None:
    odd = cases.SHAPE.model_copy(update={"intermediate_size": 90})
    with pytest.raises(UserError, match="widths that are multiples of 16, not 64, 90, 16"):
        device.exact_decoder(folder.init_decoder(odd, 48, 0), Run())
    with pytest.raises(UserError, match="a vocabulary of 4096 is too large"):
        device.exact_decoder(folder.init_decoder(cases.SHAPE, 4096, 0), Run())
