"""Rollout throughput of the engines `vllm` and `native`: one process, one thread, one model, the same requests and samples.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/vllm_rollout.py

For an environment that holds vLLM (`make test-vllm` makes one). Each figure is the best of `--repeats` rounds in which both take
turns. tok/s counts new tokens per second of wall time; of CPU time, too, since other jobs may share the machine."""

import argparse
import importlib.util
import tempfile
import time
from pathlib import Path

import torch
from rollout import DTYPES, NEW, SAMPLES, VOCAB, prompts
from tokenizers import Tokenizer, models

from interplay.core.execution import Run
from interplay.model import folder
from interplay.model.spec import Shape
from interplay.rollout.engine import Engine, Request, Sampling, closing, engine

SHAPES = {
    "0.8M": Shape(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, head_dim=32, intermediate_size=384
    ),
    "4.7M": Shape(
        architecture="llama",
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        intermediate_size=768,
    ),
}
SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=NEW, seed=0, eos=None, pad=0)


def model_at(place: Path, shape: Shape) -> Path:
    """A fresh model of the shape, as a folder."""
    tokenizer, path = place / "tokenizer", place / "model"
    tokenizer.mkdir(parents=True)
    Tokenizer(models.WordLevel({str(i): i for i in range(VOCAB)}, unk_token="0")).save(str(tokenizer / "tokenizer.json"))
    (tokenizer / "tokenizer_config.json").write_text("{}")
    folder.save_decoder(folder.init_decoder(shape, VOCAB, seed=0), path, tokenizer)
    return path


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
    """Print tok/s of both and their ratio, for each shape, dtype and number of sequences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sequences", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--dtypes", nargs="+", default=["float32"], choices=list(DTYPES))
    arguments = parser.parse_args()
    if importlib.util.find_spec("vllm") is None:
        print("vLLM is not installed here: nothing to compare")
        return
    torch.set_num_threads(1)
    for label, shape in SHAPES.items():
        for dtype in arguments.dtypes:
            with tempfile.TemporaryDirectory() as place:
                path = model_at(Path(place), shape)
                model, how = folder.load_decoder(path), Run(engine_batch=256)
                found = {name: engine(name, model, how, DTYPES[dtype], path) for name in ("native", "vllm")}
                with closing(*found.values()):
                    for sequences in arguments.sequences:
                        asked = [Request(p, number, 0, SAMPLES) for number, p in enumerate(prompts(sequences // SAMPLES))]
                        best = rates(found, asked, arguments.repeats)
                        print(f"{label} {dtype}, {sequences} sequences of {NEW} new tokens, {SAMPLES} a prompt, one thread")
                        for name, (wall, cpu) in best.items():
                            print(f"  {wall:8.0f} tok/s wall  {cpu:8.0f} tok/s CPU  {name}")
                        of_wall, of_cpu = (best["native"][i] / best["vllm"][i] for i in (0, 1))
                        print(f"  native / vllm = {of_wall:.1f} wall, {of_cpu:.1f} CPU", flush=True)


if __name__ == "__main__":
    main()
