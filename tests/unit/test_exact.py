"""numerics: exact. What a stage leaves is a function of its digest: nothing else moves a byte, and what would is caught."""

import contextlib
import functools
import itertools
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import exact_cases as cases
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.utils._python_dispatch import TorchDispatchMode

from bench import exact_machines
from interplay.core.model import PermanentError, UserError
from interplay.evaluate.spec import EvaluateSpec
from interplay.kernels import exact, layers, library
from interplay.model import decoder as decoders, device, folder, heads
from interplay.optim import optimizer
from interplay.rl.spec import Method, RLSpec
from interplay.train import lm, prefer

pytestmark = pytest.mark.skipif(library.library() is None, reason="no C compiler")
STEPS = 3
SMALL = {"micro_batch_tokens": 256, "engine_batch": 8}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exact")
    cases.laid_out(folder)
    return folder


class Expected(dict[str, dict[str, Any]]):
    """Made for a kind when a test asks for it: another worker may have the tests of the others. It is made where an inexact
    operation of PyTorch raises."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __missing__(self, kind: str) -> dict[str, Any]:
        with only_exact():
            return self.setdefault(kind, cases.made(self.place, kind, "exact", STEPS))


@pytest.fixture(scope="module")
def expected(place: Path) -> Expected:
    return Expected(place)


FEW = (*cases.STAGES, "evaluate.nll", "rl.ppo", "rl.sapo", "rl.cov", "rl.vespo")
"""Every kernel, the functions of `exact` and its sums; that no kind takes another operation is tested below."""
RUNS = [pytest.param(kind, SMALL, marks=[] if kind in FEW else pytest.mark.slow) for kind in cases.KINDS]
THREADS = {"threads": 2, "micro_batch_tokens": 700, "share_prompts": False}
FAST_ENOUGH = ("rl", "rl.ppo", "pretrain")
MORE = [
    pytest.param(kind, run, marks=[] if kind in FAST_ENOUGH else pytest.mark.slow)
    for run in (THREADS, {"stack": 2})
    for kind in cases.KINDS
]


@pytest.mark.parametrize(("kind", "run"), [*RUNS, *MORE])
def test_batches_and_threads_move_no_byte(place: Path, expected: Expected, kind: str, run: dict[str, Any]) -> None:
    assert cases.made(place, kind, "exact", STEPS, **run) == expected[kind]
    assert kind != "rl" or expected[kind]["difference"] == 0.0


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        pytest.param("avx2", FEW, marks=pytest.mark.skipif(not cases.WIDER, reason="this processor has nothing beyond AVX2")),
        *(pytest.param(name, cases.KINDS, marks=pytest.mark.slow) for name in ("avx2", "baseline")),
    ],
    ids=["avx2", "avx2, all", "baseline, all"],
)
def test_another_processor_moves_no_byte(place: Path, expected: Expected, name: str, kinds: tuple[str, ...]) -> None:
    assert cases.in_child(place, "exact", STEPS, kinds, name, **SMALL) == {kind: expected[kind] for kind in kinds}


@pytest.mark.parametrize("kind", ["rl", *(pytest.param(kind, marks=pytest.mark.slow) for kind in cases.KINDS if kind != "rl")])
def test_two_processes_move_no_byte(place: Path, expected: Expected, kind: str) -> None:
    assert cases.made(place, kind, "exact", STEPS, processes=2, micro_batch_tokens=600) == expected[kind]


@pytest.mark.parametrize("kind", ["rl.cov", "rl.credit", "rl.hapo", "rl.frontier"])
def test_a_python_whose_sum_rounds_otherwise_moves_no_byte(
    place: Path, expected: Expected, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """From 3.12 on it compensates. Here every sum of floats that is rounded is the next number."""

    def another(values: Iterable[Any], start: Any = 0) -> Any:
        values = list(values)
        found = functools.reduce(operator.add, values, start)
        if type(found) is not float or Fraction(found) == functools.reduce(operator.add, map(Fraction, values)):
            return found
        return math.nextafter(found, math.inf)

    wanted = expected[kind]
    monkeypatch.setattr("builtins.sum", another)
    assert sum([0.1, 0.2, 0.3]) != 0.1 + 0.2 + 0.3
    assert cases.made(place, kind, "exact", STEPS) == wanted


@pytest.mark.parametrize("kind", ["pretrain", "sft", "rl"])
def test_this_machine_leaves_what_another_has_left(place: Path, kind: str) -> None:
    """`python bench/exact_machines.py --kinds every --write` writes what is expected, where a change is meant to move it."""
    written = json.loads(exact_machines.EXPECTED.read_text())
    found = cases.made(place, kind, "exact", written["steps"], exact_machines.contents)
    assert found == written["found"][kind]


# -- planted ------------------------------------------------------------------------------------------------------------


def torch_total(by: exact.Functions, x: torch.Tensor) -> torch.Tensor:
    return x.sum()


def torch_quantile(by: exact.Functions, x: torch.Tensor, share: float) -> float:
    return float(torch.quantile(x, share))


def torch_logs(decoder: decoders.Decoder, hidden: torch.Tensor, temperature: float, blocks: Any) -> torch.Tensor:
    return torch.log_softmax(decoder.logits(hidden) / temperature, -1)


def torch_logps(decoder: decoders.Decoder, hidden: torch.Tensor, tokens: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.log_softmax(decoder.logits(hidden), -1).gather(1, tokens[:, None])[:, 0]


def torch_values(network: heads.ValueHead, states: torch.Tensor) -> torch.Tensor:
    return network.head(states)[:, 0]


PLANTED: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "a sum of float32 over rows": ("prefer", lambda patch: patch.setattr(prefer, "in_order", torch.sum)),
    "torch's functions": ("rl", lambda patch: patch.setattr(exact, "EXACT", exact.FAST._replace(exact=True))),
    "torch's sigmoid": ("rl.sapo", lambda patch: patch.setattr(exact, "EXACT", exact.EXACT._replace(sigmoid=torch.sigmoid))),
    "a sum of a step in PyTorch's order": ("rl.vespo", lambda patch: patch.setattr(exact.Functions, "total", torch_total)),
    "a deviation of PyTorch's": ("rl.lite", lambda patch: patch.setattr(exact.Functions, "variance", lambda self, x: x.var())),
    "a quantile of PyTorch's": ("rl.cov", lambda patch: patch.setattr(exact.Functions, "quantile", torch_quantile)),
    "logits in PyTorch": ("rl.entropy", lambda patch: patch.setattr(decoders.Decoder, "exact_logs", torch_logs)),
    "a value head of PyTorch's": ("rl.ppo", lambda patch: patch.setattr(heads.ValueHead, "forward", torch_values)),
    "a likelihood in PyTorch": ("evaluate.nll", lambda patch: patch.setattr(decoders.Decoder, "token_logps", torch_logps)),
    "roots of PyTorch's": ("rl", lambda patch: patch.setattr(exact, "root", torch.sqrt)),
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
    with pytest.raises(AssertionError, match="not exact: aten"), only_exact():
        cases.made(place, kind, "exact", STEPS)


def test_parts_that_follow_the_micro_batch_are_noticed(place: Path, expected: Expected, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks from the first row of a pass on, as numerics: fast has them."""
    monkeypatch.setattr(lm.exact, "unit_blocks", lambda rows: exact.fixed_blocks(sum(rows)).first)
    found = [cases.made(place, "sft", "exact", STEPS, **run) for run in (SMALL, {})]
    assert found[0]["model"] != found[1]["model"]


def test_sums_that_are_rounded_to_float32_between_passes_are_noticed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer_blocks = layers._layer_blocks

    def rounded(given: layers.Pass) -> Any:
        assert given.sums is not None
        given.sums.flat.copy_(given.sums.flat.float())
        return layer_blocks(given)

    monkeypatch.setattr(layers, "_layer_blocks", rounded)
    found = [cases.made(place, "sft", "exact", STEPS, **run) for run in (SMALL, {})]
    assert found[0]["model"] != found[1]["model"]


# -- which operations of PyTorch there are ------------------------------------------------------------------------------


FINE = {
    # one IEEE operation for each element
    *("add", "sub", "rsub", "mul", "div", "neg", "abs", "round", "minimum", "maximum", "clamp", "where", "reciprocal"),
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
    *("flatten", "unflatten", "to", "pad", "numpy_T", "contiguous", "isnan", "isinf", "isin", "sign", "sgn", "nan_to_num"),
    *("resolve_conj", "resolve_neg", "uniform"),  # the last draws weights of a head that are replaced
    *("relu", "threshold_backward", "topk", "ceil", "floor", "argmax"),
    # one after the other, along a dimension
    *("cumsum", "index_add", "scatter_add", "scatter_reduce"),
}


def order_free(x: torch.Tensor) -> bool:
    """Whether no sum of some elements of x is rounded: all are multiples of one power of two, and small enough for it."""
    mantissa, exponent = torch.frexp(x.detach().double().flatten())
    whole = (mantissa * 2.0**53).long()
    lowest = exponent.double() - 53 + torch.log2((whole & -whole).double().clamp(min=1.0))
    if not whole.any():
        return True
    unit = 2.0 ** float(lowest[whole != 0].min())
    return float(x.detach().double().abs().sum()) / unit <= (2**53 if x.dtype == torch.float64 else 2**24)


def allowed(name: str, args: tuple[Any, ...]) -> bool:
    """Of operations that depend on their operands."""
    if name in ("sum", "mean"):
        return order_free(args[0])
    return name == "pow" and args[1] in (1, 1.0, 2, 2.0)


class OnlyExact(TorchDispatchMode):
    """Refuses operations of PyTorch whose bytes may depend on the processor or on an order."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        kinds = {x.dtype for x in _tensors((args, kwargs or {})) if x.is_floating_point()}
        if kinds and name not in FINE and not allowed(name, args):
            raise AssertionError(f"not exact: aten.{name} of {kinds}")
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def only_exact() -> Iterator[None]:
    """A stage within takes exact operations alone, but for the one that times the processor, for telemetry."""
    with OnlyExact(), mock.patch.object(device, "peak_flops", return_value=1.0):
        yield


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return list(itertools.chain.from_iterable(map(_tensors, inside)))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "reciprocal", "square", "round"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_an_operation_of_pytorch_that_is_taken_for_one_of_ieee_is_that_of_numpy(name: str, kind: Any) -> None:
    """Its roots are not, by one unit in the last place."""
    given = np.random.default_rng(0).standard_normal((2, 30_000)).astype(kind) * (1000 if name == "round" else 1)
    given = given if name in ("add", "subtract", "multiply", "divide") else given[:1]
    theirs = getattr(np, {"round": "rint"}.get(name, name))(*given)
    assert np.array_equal(getattr(torch, name)(*map(torch.from_numpy, given)).numpy(), theirs)
    values = torch.from_numpy(np.abs(given[0]))
    assert np.array_equal(exact.root(values).numpy(), np.sqrt(values.numpy()))


@pytest.mark.parametrize("kind", cases.KINDS)
def test_a_stage_takes_no_inexact_operation_of_pytorch(expected: Expected, kind: str) -> None:
    assert expected[kind], "made without one"


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
        ({"engine": "hf"}, "does not cover engine = hf"),
    ],
)
def test_what_is_not_covered_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EvaluateSpec.model_validate({"dtype": "int8", "numerics": "exact", **spec})


def test_a_member_that_is_not_covered_is_refused_with_its_reason() -> None:
    members = {"sampler": {"name": "gain_rl"}, "advantage": {"name": "leave_one_out"}}
    with pytest.raises(ValidationError, match=r"does not cover method.sampler = gain_rl \(its angles are PyTorch's sums"):
        RLSpec(method=Method(paper="test", **members), mix=[1.0], steps=1, dtype="int8", numerics="exact")


def test_a_model_that_kernels_do_not_take_is_refused() -> None:
    odd = cases.SHAPE.model_copy(update={"intermediate_size": 90})
    with pytest.raises(UserError, match="widths that are multiples of 16, not 64, 90, 16"):
        device.exact_decoder(folder.init_decoder(odd, 48, 0))
    with pytest.raises(UserError, match="a vocabulary of 4096 is too large"):
        device.exact_decoder(folder.init_decoder(cases.SHAPE, 4096, 0))


def test_without_a_compiler_or_on_a_gpu_exact_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder.init_decoder(cases.SHAPE, 48, 0)
    with pytest.raises(UserError, match="no kernels on a GPU"):
        device.exact_decoder(made.to("meta"))
    monkeypatch.setattr(library, "library", lambda: None)
    with pytest.raises(UserError, match="exact needs a C compiler"):
        folder.init_decoder(cases.SHAPE, 48, 0, "exact")


def test_a_process_that_takes_subnormal_numbers_for_zero_is_refused() -> None:
    """They are rare, but the squares that AdamW keeps of a row come there some 800 steps after the last gradient."""
    assert torch.set_flush_denormal(True)
    try:
        with pytest.raises(UserError, match="takes subnormal numbers for zero"):
            device.exact_decoder(folder.init_decoder(cases.SHAPE, 48, 0))
    finally:
        torch.set_flush_denormal(False)
    device.exact_decoder(folder.init_decoder(cases.SHAPE, 48, 0))
