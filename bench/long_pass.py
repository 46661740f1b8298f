"""Memory of one RL step at a long prompt: rollouts by the native engine and an optimiser step, as a process of its own.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/long_pass.py --tokens 16384 --blockwise --checkpointing

A Qwen3 of 5M parameters, one prompt of so many tokens, 8 completions of 64, AdamW, DAPO loss. Prints seconds and the peak of the
resident set, after rollouts and at the end."""

import argparse
import resource
import time

import torch

from interplay.core.execution import Run
from interplay.model import device, folder
from interplay.model.spec import Shape
from interplay.model.trainer_spec import TuneOptimizer
from interplay.optim import optimizer
from interplay.rl.batch import Batch
from interplay.rl.reward_spec import ProcessReward
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import Learner, update
from interplay.rollout.engine import Request, Sampling, engine

SHAPE = Shape(
    hidden_size=256, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, head_dim=32, intermediate_size=800
)
VOCABULARY, SAMPLES, NEW = 512, 8, 64


def peak_gb() -> float:
    """Of the resident set of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """One step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "int8"])
    parser.add_argument("--blockwise", action="store_true")
    parser.add_argument("--checkpointing", action="store_true")
    given = parser.parse_args()
    how = Run(micro_batch_tokens=given.tokens + SAMPLES * NEW, gradient_checkpointing=given.checkpointing)
    spec = RLSpec(
        method=Method(paper="TRL's defaults"),
        reward=ProcessReward(),
        mix=[1.0],
        steps=1,
        prompts_per_step=1,
        max_completion_length=NEW,
        optimizer=TuneOptimizer(learning_rate=1e-4),
        dtype=given.dtype,
        blockwise=given.blockwise,
    )
    policy = device.place_decoder(folder.init_decoder(SHAPE, VOCABULARY, seed=0), how, spec.numerics, spec.blockwise)
    optimizers = optimizer.build_optimizers(spec.optimizer, policy.named_parameters())
    learner = Learner(spec, policy, (), optimizers, how.micro_batch_tokens)
    prompt = torch.randint(VOCABULARY, (given.tokens,), generator=torch.Generator().manual_seed(0)).tolist()
    started = time.process_time()
    sampler = engine("native", policy, how, getattr(torch, given.dtype))
    made = sampler.generate([Request(prompt, 0, 0, SAMPLES)], Sampling(1.0, 1.0, 0, NEW, 0, None, 0))
    after = time.process_time()
    size = sum(p.numel() for p in policy.parameters()) / 1e6
    print(f"{size:.1f}M, {given.tokens} tokens, {given.dtype}: rollouts {after - started:.1f} s, peak {peak_gb():.2f} GB")
    batch = Batch(
        row=torch.zeros(SAMPLES, dtype=torch.int64),
        ids=torch.zeros(SAMPLES, dtype=torch.int64),
        groups=torch.zeros(SAMPLES, dtype=torch.int64),
        prompts=[prompt] * SAMPLES,
        tokens=made.tokens,
        lengths=torch.full((SAMPLES,), NEW),
        logprobs=made.logprobs,
        truncated=torch.zeros(SAMPLES, dtype=torch.bool),
        completions=[""] * SAMPLES,
        verdicts=[],
        right=torch.zeros(SAMPLES, dtype=torch.bool),
        rewards=torch.zeros(SAMPLES, dtype=torch.float64),
        parts={},
    )
    advantage = torch.linspace(-1, 1, SAMPLES)[:, None].expand(-1, NEW).contiguous()
    values = update(learner, batch, advantage, 1)
    difference = values["sampling/sampling_logp_difference/max"]
    spent = time.process_time() - after
    print(f"update {spent:.1f} s, peak {peak_gb():.2f} GB, largest difference to the engine {difference:.1e}")


if __name__ == "__main__":
    main()
