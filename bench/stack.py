"""Replicas of one stage that trains or samples: stacked in one process (`run: {stack: R}`) next to one process each, one thread.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/stack.py                                  # 0.05M, 0.2M and 0.86M parameters
    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/stack.py --model nano --dtype bfloat16 --replicas 1 8 --tokens 4096
    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/stack.py --work rollouts --sequences 32
    PYTHONPATH=src python bench/stack.py --device cuda --model nano --replicas 1 8 64       # on a GPU, seconds of wall time

A step is forward, backward, clipping and Muon with AdamW, on packed rows of 256 tokens, as a stage makes it. Each figure is
tokens of all replicas a second of CPU time in the best of `--rounds`, in which all contestants take turns; the ratio is to a run
alone. The further ratios add the start of processes, measured here: R stages of so many tokens alone start R trainers, stacked
one trainer and R - 1 jobs that find their record.

Rollouts: `--sequences` of each replica, 8 samples a prompt of 70 to 90 tokens, 64 new tokens each. `operators` is how many
computing operators (no views) one turn of all replicas calls: about as many kernels as a GPU launches."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from gemm import in_turns, quiet  # bench/gemm.py
from rollout import SAMPLES, VOCAB, prompts  # bench/rollout.py
from torch.utils._python_dispatch import TorchDispatchMode
from train import prepare  # bench/train.py

from interplay.core.execution import Replica, Run
from interplay.model import folder
from interplay.model.spec import Shape
from interplay.rollout.native import Native
from interplay.rollout.request import Request, Sampling
from interplay.train import lm, loop, stack
from interplay.train.spec import PretrainSpec

SIZES = {"tiny": (32, 2, 2), "pico": (64, 4, 4), "nano": (128, 4, 4)}
"""Width, layers and heads: 0.03M, 0.2M (smoke and the demo) and 0.86M parameters."""
STARTS = {
    "trainer": "import interplay.run.stage, interplay.train.lm",
    "job that finds its record": "import interplay.run.stage",
}
RUNS = (100_000, 3_000_000)
"""Tokens of a stage: smoke and laptop."""


Contestants = dict[str, tuple[int, Callable[[], float]]]
"""Name -> steps of one turn, so that all make as many tokens, and a step that gives its tokens."""


def shape_of(name: str) -> Shape:
    """A shape of SIZES."""
    width, layers, heads = SIZES[name]
    return Shape(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=width // heads,
        intermediate_size=3 * width,
    )


def contestants(
    work: Path, inputs: dict[str, Path], shape: Shape, dtype: str, tokens: int, replicas: list[int], how: Run
) -> Contestants:
    """Those that train."""

    def spec(seed: int) -> PretrainSpec:
        return PretrainSpec(model=shape, tokens=10**8, batch_tokens=tokens, dtype=dtype, seed=seed)

    def alone() -> Callable[[], float]:
        own, setup = spec(0), lm.prepare(spec(0), inputs, how)
        model = lm.device.place_decoder(lm.initial_model(own, inputs), how)
        job = loop.TrainingJob(
            own,
            model,
            setup.steps,
            lambda step: lm.step_gradient(setup, model, lm.make_step(own, setup, step)),
            lambda path: None,
        )
        steps = iter(range(1, setup.steps))
        return lambda: loop.training_step(job, next(steps))["tokens"]

    def stacked(count: int) -> Callable[[], float]:
        runs = [stack.Training(seed, Replica(spec(seed), inputs, work / f"{count}.{seed}"), how) for seed in range(count)]
        whole = stack.Stack(runs)
        return lambda: sum(line["tokens"] for line in whole.step() if isinstance(line, dict))

    most = max(replicas)
    return {"alone": (most, alone()), **{f"stack of {count}": (most // count, stacked(count)) for count in replicas}}


NEW = 64
"""Tokens of a rollout."""


def rollouts(shape: Shape, dtype: str, sequences: int, replicas: list[int], how: Run) -> Contestants:
    """The same of rollouts."""
    most = max(replicas)
    asked = [Request(prompt, key, 0, SAMPLES) for key, prompt in enumerate(prompts(max(1, sequences // SAMPLES)))]
    device = lm.device.pick_device(how)
    given = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_completion_length": NEW, "eos": None, "pad": 0}

    def drawing(count: int, stacked: bool) -> Callable[[], float]:
        models = [folder.init_decoder(shape, VOCAB, seed).to(device) for seed in range(count)]
        engine = Native(lm.device.stacked(models) if stacked else models[0], how, getattr(torch, dtype))
        samplings = [Sampling(seed=seed, **given) for seed in range(count)]  # type: ignore[arg-type]
        return lambda: float(sum(made.lengths.sum() for made in engine.generate_each([asked] * count, samplings)))

    return {"alone": (most, drawing(1, False)), **{f"stack of {n}": (most // n, drawing(n, True)) for n in replicas}}


class Operators(TorchDispatchMode):
    """Counts operators that compute."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not function.is_view
        return function(*args, **(kwargs or {}))


def operators(turns: int, once: Callable[[], float]) -> int:
    """How many a turn calls."""
    with Operators() as counted:
        once()
    return turns * counted.count


def measure(found: Contestants, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Tokens a second of each in its best round, after one that is not counted."""

    def whole(steps: int, once: Callable[[], float]) -> float:
        return sum(once() for _ in range(steps))

    return in_turns({name: partial(whole, *turn) for name, turn in found.items()}, rounds, clock=clock)


def wall_on_gpu() -> float:
    """Seconds, once the GPU has done what it was given."""
    torch.cuda.synchronize()
    return time.perf_counter()


def start_seconds(code: str, rounds: int) -> float:
    """Least CPU seconds of a process that does this and ends."""
    spent = []
    for _ in range(rounds):
        before = psutil.Process().cpu_times()
        subprocess.run([sys.executable, "-c", code], check=True)
        after = psutil.Process().cpu_times()
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--dtype", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--work", nargs="+", choices=["train", "rollouts"], default=["train", "rollouts"])
    parser.add_argument("--sequences", type=int, default=64, help="of each replica")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a step of each replica, padding included")
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    quiet()
    how = Run(stack=max(2, *args.replicas), gpus=int(args.device == "cuda"))
    clock = wall_on_gpu if args.device == "cuda" else time.process_time
    cases = [(work, model, dtype) for work in args.work for model in args.model for dtype in args.dtype]
    starts = {name: start_seconds(code, 3) for name, code in STARTS.items()} if "train" in args.work else {}
    if starts:
        print("start, CPU seconds: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in starts.items()))
    for work, model, dtype in cases:
        print(f"{work}, {model}, {dtype}, {args.device}: tokens a second, all replicas together")
        if work == "rollouts":
            found = rollouts(shape_of(model), dtype, args.sequences, args.replicas, how)
            rates = measure(found, args.rounds, clock)
            for label, rate in rates.items():
                print(
                    f"  {label:<12} {rate:>10,.0f}  {rate / rates['alone']:.2f}  operators {operators(*found[label]):,}",
                    flush=True,
                )
            continue
        with tempfile.TemporaryDirectory() as name:
            folder_of, shape = Path(name), shape_of(model)
            inputs = {role: prepare(folder_of, shape, 0, args.tokens).paths[role] for role in ("corpus", "tokenizer")}
            rates = measure(contestants(folder_of, inputs, shape, dtype, args.tokens, args.replicas, how), args.rounds, clock)
        for label, rate in rates.items():
            line = f"  {label:<12} {rate:>10,.0f}  {rate / rates['alone']:.2f}"
            for tokens in RUNS if label != "alone" else ():
                count = int(label.rpartition(" ")[2])
                separate = count * (starts["trainer"] + tokens / rates["alone"])
                together = starts["trainer"] + (count - 1) * starts["job that finds its record"] + count * tokens / rate
                line += f"  {separate / together:.2f} with starts at {tokens:,} tokens a stage"
            print(line, flush=True)


if __name__ == "__main__":
    main()
