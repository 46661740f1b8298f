"""Rollout throughput at one thread: `native` and transformers `generate` (and vLLM if importable), same model, same prompts.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/rollout.py

A Qwen3 of 0.8M parameters, prompts of 70 to 90 tokens, 8 samples a prompt, exactly 96 new tokens each at temperature 1. Every
peer runs at each of its public settings listed below, and the ratio is to its best. Each figure is the best of `--repeats`
rounds, in which all contestants take turns. tok/s counts new tokens per second of CPU time: wall time on an idle core, and on a
shared one still a fair comparison."""

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from interplay.core.execution import Run
from interplay.model import folder
from interplay.model.spec import Shape
from interplay.rollout.engine import Request, Sampling, engine

NANO = Shape(
    hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, head_dim=32, intermediate_size=384
)
VOCAB, SAMPLES, NEW = 48, 8, 96
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=NEW, seed=0, eos=None, pad=0)


def prompts(count: int) -> list[list[int]]:
    """`count` random prompts of 70 to 90 tokens."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(70, 91, (count,), generator=generator).tolist()
    return [torch.randint(2, VOCAB, (length,), generator=generator).tolist() for length in lengths]


def native(path: Path, given: list[list[int]], dtype: str, rows: int) -> Callable[[], object]:
    """This project's engine, `rows` sequences side by side."""
    sampler = engine("native", folder.load_decoder(path), Run(engine_batch=rows), DTYPES[dtype])
    requests = [Request(prompt, index, 0, SAMPLES) for index, prompt in enumerate(given)]
    return lambda: sampler.generate(requests, SAMPLING)


def transformers_generate(path: Path, given: list[list[int]], dtype: str, rows: int, cache: str) -> Callable[[], object]:
    """transformers' `generate` over left-padded batches of `rows` sequences."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[dtype]).eval()
    longest = max(map(len, given))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in given])
    seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in given])
    options = dict(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        min_new_tokens=NEW,
        max_new_tokens=NEW,
        pad_token_id=0,
        eos_token_id=None,
    )

    def once() -> None:
        for part, mask in zip(ids.split(rows // SAMPLES), seen.split(rows // SAMPLES), strict=True):
            with torch.inference_mode():
                model.generate(part, attention_mask=mask, num_return_sequences=SAMPLES, cache_implementation=cache, **options)

    return once


def vllm(path: Path, given: list[list[int]], dtype: str) -> Callable[[], object]:
    """vLLM's engine; needs the environment variables that reference vLLM-CPU set-ups use, such as VLLM_CPU_KVCACHE_SPACE."""
    from vllm import LLM, SamplingParams

    model = LLM(model=str(path), dtype=dtype, enforce_eager=True, max_num_seqs=512, max_model_len=256, skip_tokenizer_init=True)
    wanted = SamplingParams(n=SAMPLES, temperature=1.0, max_tokens=NEW, min_tokens=NEW, ignore_eos=True, detokenize=False)
    return lambda: model.generate([{"prompt_token_ids": prompt} for prompt in given], wanted, use_tqdm=False)


def contestants(path: Path, sequences: int) -> dict[str, Callable[[], object]]:
    """Every engine at every setting worth trying at this number of sequences."""
    given = prompts(sequences // SAMPLES)
    found: dict[str, Callable[[], object]] = {}
    for dtype in DTYPES:
        for rows in sorted({min(sequences, rows) for rows in (256, 512)}):
            found[f"native {dtype}, {rows} side by side"] = native(path, given, dtype, rows)
        for rows in sorted({min(sequences, 128), sequences}):
            for cache in ("dynamic", "static"):
                found[f"transformers {dtype}, {rows} side by side, {cache} cache"] = transformers_generate(
                    path, given, dtype, rows, cache
                )
        if importlib.util.find_spec("vllm"):
            found[f"vllm {dtype}"] = vllm(path, given, dtype)
    return found


def main() -> None:
    """Print tok/s of every contestant at 64 and at 512 sequences, and the ratio of the best ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sequences", type=int, nargs="+", default=[64, 512])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    with tempfile.TemporaryDirectory() as place:
        tokenizer, path = Path(place) / "tokenizer", Path(place) / "model"
        tokenizer.mkdir()
        Tokenizer(models.WordLevel({str(i): i for i in range(VOCAB)}, unk_token="0")).save(str(tokenizer / "tokenizer.json"))
        (tokenizer / "tokenizer_config.json").write_text("{}")
        folder.save_decoder(folder.init_decoder(NANO, VOCAB, seed=0), path, tokenizer)
        for sequences in arguments.sequences:
            rate = dict.fromkeys(found := contestants(path, sequences), 0.0)
            for _ in range(arguments.repeats):
                for name, once in found.items():
                    started = time.process_time()
                    once()
                    rate[name] = max(rate[name], sequences * NEW / (time.process_time() - started))
            print(f"{sequences} sequences, {SAMPLES} samples a prompt, {NEW} new tokens, one thread, torch {torch.__version__}")
            for name, value in sorted(rate.items(), key=lambda item: -item[1]):
                print(f"  {value:8.0f} tok/s  {name}")
            best = {
                peer: max((v for n, v in rate.items() if n.startswith(peer)), default=0.0)
                for peer in ("native", "transformers", "vllm")
            }
            for peer in ("transformers", "vllm"):
                if best[peer]:
                    print(f"  native / {peer} = {best['native'] / best[peer]:.1f}", flush=True)


if __name__ == "__main__":
    main()
