"""Rollout throughput of the engines `vllm` and `native`: one process, one thread, one model, the same requests.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/vllm_rollout.py --shapes 0.8M 135M --sequences 32

For an environment that holds vLLM (`make test-vllm` makes one). vLLM runs in the dtype `--vllm`, `native` in each of `--dtypes`.
A figure is the best of `--repeats` rounds in which all take turns, after one to warm up. tok/s counts new tokens per second of
wall time; of CPU time, too, since other jobs may share the machine."""

import argparse
import importlib.util
import tempfile
import time
from pathlib import Path

import torch
from rollout import DTYPES, NEW, SAMPLES, SAMPLING, VOCAB, prompts, save_model  # bench/rollout.py
from train import SIZES, shape_of  # bench/train.py

from interplay.core.execution import Run
from interplay.model import folder
from interplay.model.spec import Shape
from interplay.rollout.engine import Engine, Request, closing, engine

SHAPES = {
    "0.8M": shape_of(SIZES["0.9m"]),
    "4.7M": Shape(
        architecture="llama",
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        intermediate_size=768,
    ),
    "135M": shape_of(SIZES["smollm2"]),
}
VOCABULARIES = {"135M": SIZES["smollm2"]["vocab"]}
"""Of shapes that have another one than VOCAB."""


def rates(found: dict[str, Engine], requests: list[Request], repeats: int) -> dict[str, tuple[float, float]]:
    """Best tok/s of each by wall time and by CPU time."""
    best = dict.fromkeys(found, (0.0, 0.0))
    tokens = sum(request.count for request in requests) * NEW
    for _ in range(repeats + 1):  # the first warms up
        for name, one in found.items():
            wall, cpu = time.perf_counter(), time.process_time()
            one.generate(requests, SAMPLING)
            rate = tokens / (time.perf_counter() - wall), tokens / (time.process_time() - cpu)
            best[name] = max(best[name][0], rate[0]), max(best[name][1], rate[1])
    return best


def main() -> None:
    """Print tok/s of each and its ratio to vLLM, for each shape and number of sequences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", default=["0.8M"], choices=list(SHAPES))
    parser.add_argument("--sequences", type=int, nargs="+", default=[32, 512])
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--vllm", default="bfloat16", choices=["float32", "bfloat16"])
    arguments = parser.parse_args()
    if importlib.util.find_spec("vllm") is None:
        print("vLLM is not installed here: nothing to compare")
        return
    torch.set_num_threads(1)
    peer = f"vllm {arguments.vllm}"
    for label in arguments.shapes:
        with tempfile.TemporaryDirectory() as place:
            path = save_model(Path(place), folder.init_decoder(SHAPES[label], VOCABULARIES.get(label, VOCAB), seed=0))
            model, how = folder.load_decoder(path), Run(engine_batch=256)
            found = {f"native {dtype}": engine("native", model, how, DTYPES[dtype], path) for dtype in arguments.dtypes}
            found[peer] = engine("vllm", model, how, DTYPES[arguments.vllm], path)
            with closing(*found.values()):
                for sequences in arguments.sequences:
                    asked = [Request(p, number, 0, SAMPLES) for number, p in enumerate(prompts(sequences // SAMPLES))]
                    print(f"{label}, {sequences} sequences of {NEW} new tokens, {SAMPLES} a prompt, one thread")
                    best = rates(found, asked, arguments.repeats)
                    for name, (wall, cpu) in best.items():
                        ratio = cpu / best[peer][1]
                        rates_of = f"{wall:8.0f} tok/s wall  {cpu:8.0f} tok/s CPU"
                        print(f"  {rates_of}  {ratio:5.1f} times {peer}  {name}", flush=True)


if __name__ == "__main__":
    main()
