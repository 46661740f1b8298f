"""On a GPU: what it computes is what a CPU computes, but for rounding, with recorded decoding steps, too."""

import pytest
import torch

from interplay.core.execution import Run
from interplay.model import folder
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
