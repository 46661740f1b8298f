"""Replicas of one training stage: stacked in one process (`run: {stack: R}`) next to one process each, one thread.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/stack.py                                  # 0.05M, 0.2M and 0.86M parameters
    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/stack.py --model nano --dtype bfloat16 --replicas 1 8 --tokens 4096
    PYTHONPATH=src python bench/stack.py --device cuda --model nano --replicas 1 8 64       # on a GPU, seconds of wall time

A step is forward, backward, clipping and Muon with AdamW, on packed rows of 256 tokens, as a stage makes it. Each figure is
tokens of all replicas a second of CPU time in the best of `--rounds`, in which all contestants take turns; the ratio is to a run
alone. The further ratios add the start of processes, measured here: R stages of so many tokens alone start R trainers, stacked
one trainer and R - 1 jobs that find their record."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
from gemm import quiet  # bench/gemm.py
from train import prepare  # bench/train.py

from interplay.core.execution import Replica, Run
from interplay.model.spec import Shape
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
) -> dict[str, tuple[int, Callable[[], float]]]:
    """Name -> steps of one turn, so that all train on as many tokens, and a step that gives its tokens."""

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


def measure(found: dict[str, tuple[int, Callable[[], float]]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Tokens a second of each in its best round, after one that is not counted."""
    best = dict.fromkeys(found, 0.0)
    for number in range(rounds + 1):
        for name, (steps, once) in found.items():
            started = clock()
            made = sum(once() for _ in range(steps))
            best[name] = max(best[name], made / (clock() - started) if number else 0.0)
    return best


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
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a step of each replica, padding included")
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    quiet()
    how = Run(stack=max(2, *args.replicas), gpus=int(args.device == "cuda"))
    starts = {name: start_seconds(code, 3) for name, code in STARTS.items()}
    print("start, CPU seconds: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in starts.items()))
    clock = wall_on_gpu if args.device == "cuda" else time.process_time
    for model in args.model:
        for dtype in args.dtype:
            with tempfile.TemporaryDirectory() as name:
                work, shape = Path(name), shape_of(model)
                inputs = {role: prepare(work, shape, 0, args.tokens).paths[role] for role in ("corpus", "tokenizer")}
                rates = measure(contestants(work, inputs, shape, dtype, args.tokens, args.replicas, how), args.rounds, clock)
            print(f"{model}, {dtype}, {args.tokens} tokens a step, {args.device}: tokens a second, all replicas together")
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
