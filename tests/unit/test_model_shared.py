"""Prompts that pass once: the states and gradients of a pass over every prompt + completion."""

import pytest
import torch

from interplay.core.execution import Run
from interplay.data.batches import pad_completions
from interplay.kernels import library
from interplay.model import attention, decoder as decoder_module
from interplay.model.decoder import Decoder
from interplay.model.device import place_decoder
from interplay.model.folder import init_decoder
from interplay.model.shared_prompts import hidden_states, token_logps
from interplay.model.spec import Shape
from interplay.optim.distributed import accumulate_gradient

PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3]]
COMPLETIONS = [[1, 2, 3, 4], [5, 6], [7], [8, 9, 7, 9], [3, 2, 3]]
GROUP = [0, 2, 0, 1, 1]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_states_and_gradients_are_those_of_each_prompt_with_its_completion(architecture: str, kv_heads: int) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8, "intermediate_size": 40}
    shape = Shape(architecture=architecture, num_key_value_heads=kv_heads, initializer_range=0.3, **sizes)
    decoder = init_decoder(shape, 12, seed=0)
    prompts = torch.tensor([prompt + [0] * (5 - len(prompt)) for prompt in PROMPTS])
    completions = torch.tensor([completion + [0] * (4 - len(completion)) for completion in COMPLETIONS])
    lengths = torch.tensor([len(prompt) for prompt in PROMPTS])
    got = hidden_states(decoder, prompts, lengths, torch.tensor(GROUP), completions, torch.float32)
    weights = torch.randn(got.shape, generator=torch.Generator().manual_seed(1))
    expected_sum = torch.zeros(())
    for row, (group, completion) in enumerate(zip(GROUP, COMPLETIONS, strict=True)):
        ids, n = torch.tensor([PROMPTS[group] + completion]), len(completion)
        expected = decoder.hidden(ids, torch.arange(ids.shape[1])[None])[0, len(PROMPTS[group]) - 1 : -1]
        torch.testing.assert_close(got[row, :n], expected, atol=1e-5, rtol=1e-4)
        expected_sum = expected_sum + (expected * weights[row, :n]).sum()
    real = torch.arange(4) < torch.tensor([len(completion) for completion in COMPLETIONS])[:, None]
    gradients = torch.autograd.grad((got * weights)[real].sum(), list(decoder.parameters()))
    for mine, theirs in zip(gradients, torch.autograd.grad(expected_sum, list(decoder.parameters())), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-3)


@pytest.mark.skipif(library.library() is None, reason="no C compiler")
@pytest.mark.parametrize("longest", [1, 2, 4])
def test_kernels_attend_over_a_prompt_in_place_as_pytorch_does_over_its_copies(
    monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "intermediate_size": 48}
    decoder = init_decoder(Shape(num_key_value_heads=2, initializer_range=0.3, **sizes), 12, seed=0)
    prompts = torch.tensor([prompt + [0] * (5 - len(prompt)) for prompt in PROMPTS])
    completions = torch.tensor([(completion + [0] * 4)[:longest] for completion in COMPLETIONS])
    lengths, group = torch.tensor([len(prompt) for prompt in PROMPTS]), torch.tensor(GROUP)

    def states_and_gradients() -> list[torch.Tensor]:
        states = hidden_states(decoder, prompts, lengths, group, completions, torch.int8)
        weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
        return [states, *torch.autograd.grad((states * weights).sum(), list(decoder.parameters()))]

    found = states_and_gradients()
    monkeypatch.setattr(library, "usable", lambda *_: False)
    for mine, theirs in zip(found, states_and_gradients(), strict=True):
        assert (mine - theirs).norm() < 0.02 * theirs.norm() + 1e-6


def test_completions_of_one_token_need_no_pass_of_their_own() -> None:
    shape = Shape(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24
    )
    decoder = init_decoder(shape, 12, seed=0)
    prompt = torch.tensor([[3, 1, 4]])
    got = hidden_states(decoder, prompt, torch.tensor([3]), torch.tensor([0, 0]), torch.tensor([[5], [6]]), torch.float32)
    expected = decoder.hidden(prompt, torch.arange(3)[None])[0, -1]
    torch.testing.assert_close(got, expected.expand(2, 1, -1))


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "intermediate_size": 48}


def logps_and_gradients(decoder: Decoder, dtype: torch.dtype) -> list[torch.Tensor]:
    prompts = [PROMPTS[group] for group in GROUP]
    tokens, lengths = pad_completions(COMPLETIONS, torch.device("cpu"))
    logps = token_logps(decoder, prompts, tokens, lengths, dtype)
    return [logps, *torch.autograd.grad((logps * torch.arange(20).view(5, 4)).sum(), list(decoder.parameters()))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_blockwise_pass_rounds_otherwise_and_nothing_more(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "MOST_SCORES", 40)
    monkeypatch.setattr(decoder_module, "MOST_LOGITS", 36)  # three tokens at a time
    decoder = init_decoder(Shape(num_key_value_heads=2, initializer_range=0.3, **SIZES), 12, seed=0)
    whole = logps_and_gradients(decoder, dtype)
    decoder.blockwise = True
    bound = 1e-5 if dtype == torch.float32 else 0.05
    for mine, theirs in zip(logps_and_gradients(decoder, dtype), whole, strict=True):
        assert (mine - theirs).norm() < bound * theirs.norm()


@pytest.mark.parametrize("blockwise", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_gradient_checkpointing_changes_no_bit(dtype: torch.dtype, blockwise: bool) -> None:
    decoder = init_decoder(Shape(num_key_value_heads=2, initializer_range=0.3, **SIZES), 12, seed=0)
    decoder.blockwise = blockwise
    kept = logps_and_gradients(decoder, dtype)
    decoder.recompute = True
    assert all(map(torch.equal, logps_and_gradients(decoder, dtype), kept))


@pytest.mark.skipif(library.library() is None, reason="no C compiler")
def test_nor_do_exact_gradients_change() -> None:
    def gradients(recompute: bool) -> list[torch.Tensor]:
        decoder = init_decoder(Shape(num_key_value_heads=2, initializer_range=0.3, **SIZES), 12, seed=0)
        decoder = place_decoder(decoder, Run(gradient_checkpointing=recompute), "exact")
        with accumulate_gradient(decoder):
            tokens, lengths = pad_completions(COMPLETIONS, torch.device("cpu"))
            logps = token_logps(decoder, [PROMPTS[group] for group in sorted(GROUP)], tokens, lengths, torch.int8)
            logps.backward(torch.ones_like(logps))
        return [p.grad for p in decoder.parameters() if p.grad is not None]

    whole, again = gradients(False), gradients(True)
    assert whole
    assert all(map(torch.equal, again, whole))


def test_memory_of_a_blockwise_pass_is_linear_in_the_prompt() -> None:
    """What autograd keeps of a pass, counted tensor by tensor."""
    decoder = init_decoder(Shape(num_key_value_heads=2, **SIZES), 12, seed=0)

    def kept(length: int, blockwise: bool) -> int:
        decoder.blockwise, storages = blockwise, {}
        tokens, lengths = pad_completions([[1, 2, 3]] * 4, torch.device("cpu"))

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            held = token_logps(decoder, [[5] * length] * 4, tokens, lengths, torch.float32)
        assert held.requires_grad
        return sum(storages.values())

    assert kept(1024, True) < 2.1 * kept(512, True)
    assert kept(1024, False) > 3 * kept(512, False)
