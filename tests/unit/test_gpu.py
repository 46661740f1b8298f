"""On a GPU: what it computes is what a CPU computes, but for rounding, with recorded decoding steps, too."""

import pytest
import torch

from interplay.core.execution import Run
from interplay.model import attention, folder, shared_prompts
from interplay.model.decoder import Decoder
from interplay.model.spec import Shape
from interplay.rollout.engine import Request, Rollouts, Sampling, engine

pytestmark = pytest.mark.gpu
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


def decoder(device: str) -> Decoder:
    return folder.init_decoder(Shape(intermediate_size=96, initializer_range=0.12, **SIZES), 24, seed=0).to(device)


def drawn(device: str, dtype: torch.dtype = torch.float32, graphs: bool = False) -> Rollouts:
    prompts = [[2 + (i * 7 + j) % 22 for j in range(1 + 5 * i)] for i in range(6)]
    asked = [Request(prompt, 1000 + i, 0, 4) for i, prompt in enumerate(prompts)]
    settings = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=40, seed=3, eos=1, pad=0)
    return engine("native", decoder(device), Run(gpus=1, engine_batch=16, cuda_graphs=graphs), dtype).generate(asked, settings)


def test_a_gpu_is_there() -> None:
    assert torch.cuda.is_available(), "these tests are for a machine with a GPU"


@pytest.mark.parametrize("graphs", [False, True])
def test_a_gpu_samples_what_a_cpu_samples(graphs: bool) -> None:
    ours, theirs = drawn("cuda", graphs=graphs), drawn("cpu")
    assert (ours.tokens == theirs.tokens).float().mean() > 0.98, "a draw may fall on the other side of a rounded border"
    same = (ours.tokens == theirs.tokens).all(1)
    torch.testing.assert_close(ours.logprobs[same], theirs.logprobs[same], atol=1e-3, rtol=1e-3)


def test_recorded_steps_give_the_bits_of_steps_that_are_not() -> None:
    plain, recorded = drawn("cuda", torch.bfloat16), drawn("cuda", torch.bfloat16, graphs=True)
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))


def test_gradients_on_a_gpu_are_those_on_a_cpu() -> None:
    ids = torch.arange(2, 22).view(2, 10)
    found = []
    for device in ("cuda", "cpu"):
        model = decoder(device)
        model.logits(model.hidden(ids.to(device), torch.arange(10, device=device)[None])).square().mean().backward()
        found.append([p.grad.cpu() for p in model.parameters() if p.grad is not None])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("heads", "shared", "size"), [(4, 4, 32), (12, 2, 64), (4, 2, 20)])
def test_the_kernel_for_runs_gives_attention_by_blocks_and_its_gradients(heads: int, shared: int, size: int) -> None:
    runs = torch.tensor([[0, 70, 0, 0], [70, 33, 0, 0], [103, 50, 0, 70], [153, 1, 0, 70], [154, 130, 70, 33]], dtype=torch.int32)
    random = torch.Generator("cuda").manual_seed(0)
    qk, v = (torch.randn(284, count, size, device="cuda", generator=random) for count in (heads + shared, shared))
    found = []
    for attend, dtype in ((attention.FlashRuns(), torch.bfloat16), (attention.blockwise_attention, torch.float32)):
        given = [part.to(dtype).requires_grad_() for part in (qk, v)]
        mixed = attend(*given, runs)
        mixed.float().square().sum().backward()
        found.append([mixed, *(part.grad for part in given)])
    for ours, theirs in zip(*found, strict=True):
        assert (ours.float() - theirs).norm() < 0.01 * theirs.norm()


def test_shared_prompts_on_a_gpu_score_as_prompts_before_each_completion() -> None:
    model, random = decoder("cuda"), torch.Generator().manual_seed(0)
    prompts = [[2 + i % 5] * (3 + 9 * (i % 2)) for i in range(6)]
    tokens, lengths = torch.randint(2, 24, (6, 12), generator=random).cuda(), torch.tensor([12, 1, 5, 12, 7, 2])
    shared = shared_prompts.token_logps(model, prompts, tokens, lengths, torch.bfloat16)
    whole = shared_prompts.token_logps(decoder("cpu"), prompts, tokens.cpu(), lengths, torch.float32)
    torch.testing.assert_close(shared.cpu(), whole, atol=0.05, rtol=0.02)
