"""The compiled layers against PyTorch's operations, and their 8-bit products against integers."""

import platform

import exact_cases as cases
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import examples
from hypothesis import given, strategies as st
from pydantic import ValidationError

from interplay.core import extension
from interplay.evaluate.spec import EvaluateSpec
from interplay.kernels import exact, layers, library as kernels
from interplay.model import attention, decoder, folder
from interplay.model.spec import Shape
from interplay.optim import optimizer

compiled = pytest.mark.skipif(kernels.library() is None, reason="no C compiler")
VOCAB = 48


def model(
    architecture: str = "qwen3", heads: int = 4, kv_heads: int = 2, width: int = 64, hidden: int = 96, tied: bool = True
) -> decoder.Decoder:
    """A decoder whose vectors differ from ones and zeros."""
    shape = Shape.model_validate(
        {
            "architecture": architecture,
            "hidden_size": width,
            "num_hidden_layers": 2,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": 16,
            "intermediate_size": hidden,
            "initializer_range": 0.08,
            "tie_word_embeddings": tied,
        }
    )
    made = folder.init_decoder(shape, VOCAB, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return made


def packed_rows(rows: int, length: int, longest: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, positions and segments (rows, length) of problems of 1 to `longest` tokens."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, VOCAB, (rows, length), generator=generator)
    ends = torch.randint(1, longest + 1, (rows, length), generator=generator).cumsum(1)
    segments = (torch.arange(length) >= ends[:, :, None]).sum(1)
    return ids, torch.arange(length).expand(rows, -1), segments


def passes(
    made: decoder.Decoder, rows: tuple[torch.Tensor, ...], dtype: torch.dtype
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Hidden states, and the gradient of each parameter of a cross-entropy."""
    made.zero_grad()
    ids, positions, segments = rows
    hidden = made.hidden(ids, positions, segments, dtype)
    F.cross_entropy(made.logits(hidden).flatten(0, 1), ids.flatten()).backward()
    return hidden.detach(), {name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None}


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Length of the difference over that of what was expected (1e-6 where that is nearly zero)."""
    return float(((found - expected).norm() / expected.norm().clamp(min=1e-6)).detach())


@given(st.integers(1, 70), st.integers(1, 40), st.integers(1, 300), st.integers(-30, 30), st.integers(0, 2**16))
@examples(60)
def test_a_product_is_that_of_the_rounded_integers_at_any_length_and_size(m: int, n: int, k: int, power: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(m, k, generator=generator) * 2.0**power
    b = torch.randn(k, n, generator=generator)
    left, right = np.abs(a.numpy()).max(1, keepdims=True), np.abs(b.numpy()).max(0, keepdims=True)
    # The smallest power of two above peak / 127, in exact arithmetic.
    scales = [2.0 ** np.floor(np.log2(peak.astype(np.float64) / 127) + 1) for peak in (left, right)]
    whole = [np.rint(x.numpy().astype(np.float64) / scale).astype(np.int64) for x, scale in zip((a, b), scales, strict=True)]
    assert max(np.abs(whole[0]).max(), np.abs(whole[1]).max()) <= 127
    expected = (whole[0] @ whole[1]).astype(np.float32) * (scales[0] * scales[1]).astype(np.float32)
    np.testing.assert_array_equal(kernels.int8_product(a, b).numpy(), expected)


def test_a_sum_that_float32_cannot_hold_is_exact() -> None:
    a, b = torch.full((1, 4099), 126.0), torch.full((4099, 1), 126.0)
    b[0] = 1.0
    assert kernels.int8_product(a, b).item() == np.float32(126 + 4098 * 126 * 126)


def test_an_operand_is_rounded_by_at_most_half_a_step_of_its_row() -> None:
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 50)[:, None]
    whole, scale = kernels.quantised(x, 1)
    assert (whole * scale - x).abs().le(scale / 2).all()
    assert scale.le(2 * x.abs().amax(1, keepdim=True) / 127).all()


@compiled
@pytest.mark.parametrize(("architecture", "heads", "kv_heads"), [("qwen3", 4, 2), ("llama", 4, 1), ("qwen2", 3, 3)])
@pytest.mark.parametrize(("rows", "length", "longest"), [(1, 1, 1), (3, 75, 20), (2, 256, 256), (5, 131, 64)])
def test_compiled_layers_compute_what_pytorch_does_with_the_same_rounding(
    monkeypatch: pytest.MonkeyPatch, architecture: str, heads: int, kv_heads: int, rows: int, length: int, longest: int
) -> None:
    made, batch = model(architecture, heads, kv_heads), packed_rows(rows, length, longest)
    found = passes(made, batch, torch.int8)
    monkeypatch.setattr(kernels, "usable", lambda *_: False)
    expected = passes(made, batch, torch.int8)
    # An operand at the middle of two integers may be rounded to either, which is one part in hundreds of that element.
    assert apart(found[0], expected[0]) < 2e-3
    assert found[1].keys() == expected[1].keys()
    assert all(apart(gradient, expected[1][name]) < 2e-2 or gradient.norm() < 1e-6 for name, gradient in found[1].items())


@compiled
@pytest.mark.parametrize(("architecture", "width", "tied"), [("qwen3", 64, True), ("qwen2", 64, False), ("qwen3", 208, True)])
@pytest.mark.parametrize("some", [False, True])
def test_all_layers_by_one_function_leave_the_bytes_of_one_layer_after_the_other(
    monkeypatch: pytest.MonkeyPatch, architecture: str, width: int, tied: bool, some: bool
) -> None:
    made = model(architecture, width=width, tied=tied)
    ids, positions = torch.arange(75) % 7, torch.arange(75) % 30
    runs, wanted = several_runs([30, 30, 15]), torch.tensor([3, 74, 29, 40]) if some else None

    def passed() -> tuple[torch.Tensor, list[torch.Tensor]]:
        weights = made.weights(torch.int8)
        attend = attention.RunsAttend(layers.attention, runs)
        rope = attention.rotary(made.shape, positions, torch.int8)
        states = decoder.forward(made.shape, weights, ids, rope, attend, wanted)
        gradients = torch.autograd.grad(made.logits(states).sin().sum(), list(made.parameters()))
        with torch.no_grad():
            assert torch.equal(decoder.forward(made.shape, weights, ids, rope, attend, wanted), states)
        return states, list(gradients)

    states, gradients = passed()
    monkeypatch.setattr(decoder, "RunsAttend", ())
    expected = passed()
    assert torch.equal(states, expected[0])
    assert all(torch.equal(one, other) for one, other in zip(gradients, expected[1], strict=True))


@compiled
@given(st.integers(1, 140), st.sampled_from([16, 48]), st.sampled_from([16, 512, 528, 1040]), st.integers(-20, 20))
@examples(20)
def test_the_output_head_is_that_of_the_rounded_operands(rows: int, width: int, vocabulary: int, power: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    hidden = (torch.randn(rows, width, generator=generator) * 2.0**power).requires_grad_()
    weight = torch.randn(vocabulary, width, generator=generator).requires_grad_()
    given = torch.randn(rows, vocabulary, generator=generator) * torch.logspace(-6, 0, vocabulary)
    results = []
    for head in (layers.head, kernels.plain_head, F.linear):
        logits = head(hidden, weight)
        results.append([logits, *torch.autograd.grad(logits, (hidden, weight), given)])
    assert all(apart(one, other) < 1e-6 for one, other in zip(results[0], results[1], strict=True))
    assert all(apart(one, other) < 5e-3 for one, other in zip(results[0], results[2], strict=True))


@compiled
@given(st.integers(1, 300), st.integers(1, 8), st.integers(1, 130), st.sampled_from([0.6, 1.0, 1.5]))
@examples(40)
def test_log_probabilities_of_a_small_vocabulary_are_those_of_float64(
    rows: int, width: int, vocabulary: int, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, 16 * width, generator=generator).requires_grad_()
    weight = torch.randn(vocabulary, 16 * width, generator=generator).requires_grad_()
    tokens, given_back = torch.randint(0, vocabulary, (rows,), generator=generator), torch.randn(rows, generator=generator)
    found = layers.logps(hidden, weight, tokens, temperature)
    logits = hidden.double() @ weight.double().T / temperature
    expected = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=3e-5)
    ends = [torch.autograd.grad(of, (hidden, weight), given_back.to(of.dtype)) for of in (found, expected)]
    for one, other in zip(*ends, strict=True):
        assert float((one - other).norm()) <= 1e-5 * float(other.norm()) + 1e-5
    with torch.no_grad():
        assert torch.equal(layers.logps(hidden, weight, tokens, temperature), found)


@compiled
@pytest.mark.parametrize("of", ["logps", "head", "plain head", "layer", "plain product"])
def test_a_pass_of_no_rows_has_a_gradient_of_zeros(monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **how: empty(*size, **how).fill_(7))
    monkeypatch.setattr(torch, "empty_like", lambda x: torch.full(x.shape, 7, dtype=x.dtype))
    rows = torch.zeros(0, 16, requires_grad=True)
    weights = [torch.ones(size, requires_grad=True) for size in ((16,), (16, 16), (32, 16), (16, 16))]
    _, out, gate_up, down = weights
    none = torch.zeros(0, dtype=torch.int64)
    made = {
        "logps": lambda: layers.logps(rows, gate_up, none, 1.0),
        "head": lambda: layers.head(rows, gate_up),
        "plain head": lambda: kernels.plain_head(rows, gate_up),
        "layer": lambda: layers.after_attention(rows, rows, *weights, layers.pack((out, out, gate_up, down), True), 1e-6),
        "plain product": lambda: kernels.int8_linear(rows, gate_up),
    }[of]()
    reached = weights if of == "layer" else [gate_up]
    assert not any(gradient.any() for gradient in torch.autograd.grad(made.sum(), reached))


@compiled
def test_what_is_no_number_has_no_logarithm() -> None:
    none = torch.tensor([float("nan")])
    assert exact.logsigmoid(none).isnan().all()
    weight = torch.ones(8, 16)
    weight[5] = float("nan")
    assert layers.logps(torch.ones(2, 16), weight, torch.tensor([1, 5]), 1.0).isnan().all()
    assert exact.EXACT.log(torch.tensor([float("inf")], dtype=torch.float64)).isposinf().all()


@compiled
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_an_exact_function_reads_no_memory_of_another_type(dtype: torch.dtype) -> None:
    with pytest.raises(KeyError):
        exact.exp(torch.ones(3, dtype=dtype))


def test_a_large_vocabulary_alone_takes_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    made, hidden = model(), torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(made.logits(hidden, torch.int8), made.logits(hidden))
    monkeypatch.setattr(decoder, "LARGE_VOCABULARY", VOCAB)
    assert 1e-6 < apart(made.logits(hidden, torch.int8), made.logits(hidden)) < 1e-3
    assert torch.equal(made.logits(hidden, torch.float32), made.logits(hidden))


@compiled
def test_eight_bits_stay_near_float32() -> None:
    made, batch = model(), packed_rows(4, 128, 40)
    found, expected = passes(made, batch, torch.int8), passes(made, batch, torch.float32)
    assert 1e-4 < apart(found[0], expected[0]) < 5e-2
    assert all(apart(gradient, expected[1][name]) < 0.15 for name, gradient in found[1].items())


@compiled
def test_the_number_of_threads_changes_no_byte() -> None:
    made, batch, before = model(), packed_rows(5, 300, 90), torch.get_num_threads()
    hidden, weight = (torch.randn(n, 32, generator=torch.Generator().manual_seed(n)).requires_grad_() for n in (300, 1040))
    try:
        ends, heads = [], []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            ends.append(passes(made, batch, torch.int8))
            logits = layers.head(hidden, weight)
            logps = layers.logps(hidden, weight, torch.arange(300), 1.0)
            gradients = [torch.autograd.grad(made.sin().sum(), (hidden, weight)) for made in (logits, logps)]
            heads.append([logits, logps, *gradients[0], *gradients[1]])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for more in heads[1:] for one, other in zip(more, heads[0], strict=True))
    for states, gradients in ends[1:]:
        torch.testing.assert_close(states, ends[0][0], rtol=0, atol=0)
        for name in gradients.keys() - {"model.embed_tokens.weight"}:  # its gradient is PyTorch's
            torch.testing.assert_close(gradients[name], ends[0][1][name], rtol=0, atol=0)


@compiled
@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of x86-64")
@pytest.mark.parametrize(
    "level",
    [
        pytest.param("x86-64", marks=pytest.mark.slow),
        pytest.param("x86-64-v2 -mfma", marks=pytest.mark.slow),
        pytest.param("x86-64-v3", marks=pytest.mark.skipif(not cases.WIDER, reason="this processor has nothing beyond AVX2")),
    ],
)
def test_a_processor_without_the_instructions_computes_the_same_bytes(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    made, batch = model(), packed_rows(2, 90, 40)
    matrices = torch.randn(2, 32, 48, generator=torch.Generator().manual_seed(0))

    def everything() -> dict[str, torch.Tensor]:
        hidden, gradients = passes(made, batch, torch.int8)
        weight = made.head().detach().requires_grad_()
        logps = layers.logps(hidden.flatten(0, -2), weight, batch[0].flatten(), 1.0)
        own = {"logps": logps.detach(), "head": torch.autograd.grad(logps.sum(), weight)[0]}
        return {"hidden": hidden, "muon": optimizer.orthogonalise(matrices, torch.int8), **own, **gradients}

    expected = everything()
    flags = (f"-march={level}".split() if "-march" in flag else [flag] for flag in kernels.FLAGS)
    monkeypatch.setattr(kernels, "FLAGS", [part for some in flags for part in some])
    kernels.library.cache_clear()
    try:
        found = everything()
    finally:
        kernels.library.cache_clear()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0, msg=name)


@compiled
@pytest.mark.parametrize("prefixes", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_over_runs_is_softmax_over_what_each_row_may_see(prefixes: bool, kv_heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    runs = torch.tensor([[0, 37, 0, 0], [37, 5, 0, 20 * prefixes], [42, 70, 3, 30 * prefixes], [112, 1, 0, 37 * prefixes]]).int()
    rows, heads, size = 113, 4, 16
    qk = torch.randn(rows, heads + kv_heads, size, generator=generator).requires_grad_()
    v = torch.randn(rows, kv_heads, size, generator=generator).requires_grad_()
    seen = torch.zeros(rows, rows, dtype=torch.bool)
    for first, count, prefix, before in runs.tolist():
        seen[first : first + count, prefix : prefix + before] = True
        seen[first : first + count, first : first + count] = torch.ones(count, count, dtype=torch.bool).tril()
    q, k, values = (x.transpose(0, 1) for x in (qk[:, :heads], qk[:, heads:], v))
    expected = F.scaled_dot_product_attention(q, k, values, attn_mask=seen, enable_gqa=True).transpose(0, 1).flatten(1)
    weight = torch.randn(expected.shape, generator=generator)
    exact = [expected, *torch.autograd.grad(expected, (qk, v), weight)]
    results = []
    for attend in (layers.attention, kernels.plain_attention):
        found = attend(qk, v, runs)
        results.append([found, *torch.autograd.grad(found, (qk, v), weight)])
    torch.testing.assert_close(results[0][0], exact[0], atol=2e-6, rtol=1e-5)
    # Operands of the backward pass have 11 bits, and one at the middle of two integers may be rounded to either.
    assert all(apart(by_kernel, by_pytorch) < 1e-4 for by_kernel, by_pytorch in zip(*results, strict=True))
    assert all(1e-5 < apart(by_kernel, truth) < 2e-3 for by_kernel, truth in zip(results[0][1:], exact[1:], strict=True))


def several_runs(counts: list[int]) -> torch.Tensor:
    """One after the other, without prefixes."""
    firsts = [sum(counts[:i]) for i in range(len(counts))]
    return torch.tensor([[first, count, 0, 0] for first, count in zip(firsts, counts, strict=True)], dtype=torch.int32).view(
        -1, 4
    )


@compiled
@given(
    st.lists(st.integers(1, 70), max_size=4),
    st.sampled_from([(1, 1), (2, 1), (3, 3)]),
    st.sampled_from([16, 48]),
    st.integers(-12, 12),
)
@examples(30)
def test_attention_of_any_lengths_and_sizes_is_that_of_the_rounded_operands(
    counts: list[int], heads: tuple[int, int], size: int, power: int
) -> None:
    generator, (queries, shared) = torch.Generator().manual_seed(sum(counts)), heads
    qk = torch.randn(sum(counts), queries + shared, size, generator=generator).requires_grad_()
    v = (torch.randn(sum(counts), shared, size, generator=generator) * 2.0**power).requires_grad_()
    weight = torch.randn(sum(counts), queries * size, generator=generator)
    results = []
    for attend in (layers.attention, kernels.plain_attention):
        found = attend(qk, v, several_runs(counts))
        results.append([found, *torch.autograd.grad(found, (qk, v), weight)])
    # An operand at the middle of two integers may be rounded to either, which moves one row of a gradient by some parts in 2,000:
    # nearly all elements agree to float32, and the others do nearly. The gradient of a row that sees itself alone is what rounding
    # leaves of zero, so differences are measured in what the values are, not in what the gradient is.
    for one, other, unit in zip(*results, (2.0**power, 2.0**power, 1.0), strict=True):
        difference = ((one - other).detach().abs() / unit).flatten()
        assert not counts or (difference.median() < 1e-6 and difference.square().mean().sqrt() < 2e-3)


@compiled
def test_sums_of_attention_beyond_512_keys_stay_exact() -> None:
    """Equal keys, and a gradient for the last row alone, whose scores then have the gradients of a mean: no sum may overflow."""
    rows, size = 2200, 16
    qk, v = torch.full((rows, 2, size), 0.25).requires_grad_(), torch.arange(rows * size).view(rows, 1, size) % 7 - 3.0
    v.requires_grad_()
    weight = torch.zeros(rows, size)
    weight[-1] = 1.0
    found = torch.autograd.grad(layers.attention(qk, v, several_runs([rows])), (qk, v), weight)
    q, k, values = (x.transpose(0, 1) for x in (qk[:, :1], qk[:, 1:], v))
    expected = F.scaled_dot_product_attention(q, k, values, is_causal=True).transpose(0, 1).flatten(1)
    exact = torch.autograd.grad(expected, (qk, v), weight)
    assert all(
        apart(one, other) < 3e-3 for one, other in zip((found[0][:, 1], found[1]), (exact[0][:, 1], exact[1]), strict=True)
    )


@compiled
def test_no_row_of_attention_depends_on_later_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    qk, v = torch.randn(90, 3, 16, generator=generator), torch.randn(90, 1, 16, generator=generator)
    whole = layers.attention(qk, v, several_runs([90]))
    qk[60:], v[60:] = 50 * qk[60:], 1000 * v[60:]
    torch.testing.assert_close(layers.attention(qk, v, several_runs([90]))[:60], whole[:60], rtol=0, atol=0)


@compiled
def test_scores_beyond_the_range_of_exp_leave_attention_finite() -> None:
    qk = torch.full((20, 2, 16), 30.0)
    qk[7, 1] = -30.0
    v = torch.randint(-1000, 1000, (20, 1, 16), generator=torch.Generator().manual_seed(0)).float()
    mixed = layers.attention(qk, v, torch.tensor([[0, 20, 0, 0]]).int())
    kept = [list(range(i + 1)) for i in range(20)]
    expected = torch.stack([v[[j for j in seen if j != 7 or i == 7 == 0], 0].mean(0) for i, seen in enumerate(kept)])
    torch.testing.assert_close(mixed, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("by_kernels", [pytest.param(True, marks=compiled), False])
def test_muons_iteration_with_integer_operands_ends_where_float32_does(monkeypatch: pytest.MonkeyPatch, by_kernels: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    matrices = [torch.randn(shape, generator=generator) * 3 for shape in [(64, 64), (32, 64), (96, 64), (64, 96), (32, 64)]]
    expected = optimizer.orthogonalise_all(matrices, torch.float32)
    if not by_kernels:
        monkeypatch.setattr(kernels, "usable", lambda *_: False)
    found = optimizer.orthogonalise_all(matrices, torch.int8)
    # bfloat16, in which torch.optim.Muon iterates, is 1.3 % off; 8-bit operands would be 20 % and more.
    assert all(1e-4 < apart(one, other) < 0.03 for one, other in zip(found, expected, strict=True))
    assert all(apart(one, other) > 0.5 for one, other in zip(found, matrices, strict=True))


@compiled
def test_a_step_of_muon_by_one_call_is_that_of_pytorchs_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(64, 64), (96, 32), (32, 96), (64, 64)]
    start, given = ([torch.randn(shape, generator=generator) for shape in shapes] for _ in range(2))

    def stepped(by_kernel: bool) -> list[torch.Tensor]:
        if not by_kernel:
            monkeypatch.setattr(optimizer, "_in_kernel", lambda _: False)
        weights = [torch.nn.Parameter(matrix.clone()) for matrix in start]
        muon = optimizer.Muon(weights, 0.02, 0.1, 0.95, torch.int8)
        for number in range(3):
            for weight, gradient in zip(weights, given, strict=True):
                weight.grad = gradient * 0.1**number
            muon.step()
        return [part.detach() for weight in weights for part in (weight, muon.state[weight]["momentum_buffer"])]

    for one, other in zip(stepped(True), stepped(False), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@compiled
def test_widths_that_no_kernel_takes_are_computed_by_pytorch() -> None:
    odd = folder.init_decoder(
        Shape(
            hidden_size=40, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24
        ),
        VOCAB,
        seed=0,
    )
    batch = packed_rows(2, 30, 9)
    assert odd.weights(torch.int8).halves is decoder.INT8
    assert apart(passes(odd, batch, torch.int8)[0], passes(odd, batch, torch.float32)[0]) < 5e-2
    assert model().weights(torch.int8).halves is decoder.KERNELS


@pytest.mark.parametrize("engine", ["hf", "vllm"])
def test_other_engines_refuse_integer_products(engine: str) -> None:
    with pytest.raises(ValidationError, match=f"dtype = int8: the engine {engine}"):
        EvaluateSpec(engine=engine, dtype="int8")


@compiled
@pytest.mark.slow  # compiles all kernels again
def test_kernels_without_openmp_make_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a compiler that has another OpenMP than PyTorch, such as clang."""
    made, rows, load = model(), packed_rows(3, 75, 20), extension.load_library
    hidden, gradients = passes(made, rows, torch.int8)
    monkeypatch.setattr(
        extension,
        "load_library",
        lambda kind, place, flags, loss: None if "-fopenmp" in flags else load(kind, place, flags, loss),
    )
    kernels.library.cache_clear()
    try:
        assert kernels.library() is not None
        other, again = passes(made, rows, torch.int8)
    finally:
        kernels.library.cache_clear()
    assert torch.equal(hidden, other)
    assert all(torch.equal(gradient, again[name]) for name, gradient in gradients.items())


def test_without_a_compiler_a_line_says_so_and_pytorch_computes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    kernels.library.cache_clear()
    try:
        assert kernels.library() is None
        assert model().weights(torch.int8).halves is decoder.INT8
    finally:
        kernels.library.cache_clear()
    assert "no-such-compiler" in caplog.text
