"""The decoder against transformers' classes: same parameters, same numbers."""

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from interplay.model import folder
from interplay.model.attention import attention, fused, key_rows, visible_blocks
from interplay.model.decoder import Decoder
from interplay.model.spec import Shape

VOCAB = 48


def shape(architecture: str, tied: bool, kv_heads: int = 2) -> Shape:
    return Shape(
        architecture=architecture,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=16,
        intermediate_size=96,
        rope_theta=5000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        initializer_range=0.08,
    )


def decoder(architecture: str = "qwen3", tied: bool = True, kv_heads: int = 2) -> Decoder:
    """Vectors get values too, so that a norm or bias in the wrong place shows."""
    model = folder.init_decoder(shape(architecture, tied, kv_heads), VOCAB, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


def peer(model: Decoder) -> torch.nn.Module:
    none = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    hf = AutoModelForCausalLM.from_config(AutoConfig.for_model(**folder.config_json(model, none)))
    hf.load_state_dict(model.state_dict(), strict=not model.shape.tie_word_embeddings)
    return hf


def tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("length", [70, 200])
def test_logits_and_gradients_equal_those_of_transformers(architecture: str, tied: bool, length: int) -> None:
    model, ids = decoder(architecture, tied), tokens(2, length)
    hf = peer(model)
    assert model.state_dict().keys() - hf.state_dict().keys() == set()
    ours = model.logits(model.hidden(ids, torch.arange(length)[None]))
    theirs = hf(ids).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for logits in (ours, theirs):
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    wanted = {name: parameter.grad for name, parameter in hf.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], atol=1e-5, rtol=1e-4, msg=lambda text, at=name: f"{at}: {text}")


@pytest.mark.parametrize("length", [100, 256])
def test_packed_problems_do_not_see_each_other(length: int) -> None:
    model, ids = decoder(), tokens(2, length)
    cuts = [[0, 30, 77, length], [0, 64, length - 5, length]]
    positions, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, at in enumerate(cuts):
        for number, (first, last) in enumerate(pairwise(at)):
            positions[row, first:last] = torch.arange(last - first)
            segments[row, first:last] = number + 1
    packed = model.logits(model.hidden(ids, positions, segments))
    for row, at in enumerate(cuts):
        for first, last in pairwise(at):
            alone = model.logits(model.hidden(ids[row : row + 1, first:last], torch.arange(last - first)[None]))
            torch.testing.assert_close(packed[row : row + 1, first:last], alone, atol=1e-5, rtol=1e-5)


def test_a_row_of_one_segment_is_plainly_causal() -> None:
    model, ids = decoder(kv_heads=4), tokens(2, 150)
    positions = torch.arange(150)[None]
    plain = model.hidden(ids, positions)
    torch.testing.assert_close(model.hidden(ids, positions, torch.ones_like(ids)), plain, atol=1e-6, rtol=1e-6)
    changed = ids.clone()
    changed[:, 100] = (changed[:, 100] + 1) % VOCAB
    other = model.hidden(changed, positions)
    torch.testing.assert_close(other[:, :100], plain[:, :100], atol=1e-6, rtol=1e-6)
    assert (other[:, 100:] - plain[:, 100:]).abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_kernel_of_gpus_gives_the_same_attention_with_a_mask_and_without(kv_heads: int) -> None:
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, 20, heads, 8, generator=g) for heads in (4, kv_heads, kv_heads))
    causal = visible_blocks(None, 20, torch.device("cpu"), torch.float32)
    torch.testing.assert_close(fused(q, k, v, None), attention(q, k, v, causal), atol=1e-5, rtol=1e-5)
    segments = torch.tensor([[1] * 7 + [2] * 13, [1] * 20, [1] * 2 + [2] * 3 + [3] * 15])
    packed = visible_blocks(segments, 20, torch.device("cpu"), torch.float32)
    torch.testing.assert_close(fused(q, k, v, packed[0].mask), attention(q, k, v, packed), atol=1e-5, rtol=1e-5)


def test_a_gpus_attention_builds_no_plan_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = []
    kernel = F.scaled_dot_product_attention

    def seen(*given: Any, **how: Any) -> torch.Tensor:
        allowed.append((torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled()))
        return kernel(*given, **how)

    monkeypatch.setattr(F, "scaled_dot_product_attention", seen)
    fused(*(torch.randn(1, 4, 2, 8) for _ in range(3)), None)
    assert allowed == [(False, True)]


def test_bfloat16_products_stay_near_float32_and_give_float32_gradients() -> None:
    model, ids = decoder(), tokens(4, 64)
    positions = torch.arange(64)[None]
    exact = model.logits(model.hidden(ids, positions))
    rough = model.logits(model.hidden(ids, positions, dtype=torch.bfloat16))
    assert rough.dtype == torch.float32
    assert 0 < (exact - rough).abs().max() < 0.05 * exact.abs().max()
    rough.logsumexp(-1).sum().backward()
    assert {parameter.grad.dtype for parameter in model.parameters() if parameter.grad is not None} == {torch.float32}
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_keys_of_runs_are_those_of_their_prefix_and_their_own() -> None:
    runs = torch.tensor([[0, 3, 0, 0], [3, 2, 0, 0], [5, 4, 3, 2], [9, 1, 0, 3]], dtype=torch.int32)
    ends, seen, rows = key_rows(runs)
    assert (ends.tolist(), seen.tolist()) == ([0, 3, 5, 9, 10], [0, 3, 5, 11, 15])
    assert rows.tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 0, 1, 2, 9]
