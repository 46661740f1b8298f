"""Rollout throughput at one thread: `native` and transformers `generate` (and vLLM if importable), same model, same prompts.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/rollout.py [--sequences 32 512] [--compile]

A Qwen3 of 0.86M parameters, prompts of 70 to 90 tokens, 8 samples a prompt, exactly 96 new tokens each at temperature 1.
transformers runs at {float32, bfloat16 autocast, bfloat16 weights} x {sdpa, eager attention} x {dynamic, static cache} and
batches of 128 or all sequences (it has no static cache under autocast), with --compile also compiled. Each figure is the best of
`--rounds` rounds, in which the contestants take turns: all of this project's and the fastest settings of a first round. tok/s
counts new tokens per second of CPU time: wall time on an idle core, and on a shared one still a fair comparison. The GEMM floor,
explained in bench/gemm.py, reads each prompt once and decodes all sequences side by side."""

import argparse
import importlib.util
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import torch
from gemm import DTYPES, forward_products, in_turns, print_floors, quiet, report  # bench/gemm.py
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM

from interplay.core.execution import Run
from interplay.model import folder
from interplay.model.decoder import Decoder
from interplay.model.spec import Shape
from interplay.rollout.engine import Request, Sampling, engine

NANO = Shape(
    hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, head_dim=32, intermediate_size=384
)
VOCAB, SAMPLES, NEW = 48, 8, 96
ARITHMETIC = ("float32", "bfloat16 autocast", "bfloat16 weights")
FINALISTS = 4
"""Settings of peers that go on after a first round."""
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


def left_padded(given: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (prompts, longest) of the prompts, padded on the left, and their attention mask."""
    longest = max(map(len, given))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in given])
    return ids, torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in given])


def sampling_options(new: int, cache: str) -> dict[str, Any]:
    """Of transformers' `generate`: SAMPLES completions a prompt of exactly `new` tokens."""
    return dict(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        min_new_tokens=new,
        max_new_tokens=new,
        pad_token_id=0,
        eos_token_id=None,
        num_return_sequences=SAMPLES,
        cache_implementation=cache,
    )


def transformers_generate(
    path: Path, given: list[list[int]], arithmetic: str, attention: str, cache: str, rows: int, compiled: bool = False
) -> Callable[[], object]:
    """transformers' `generate` over left-padded batches of `rows` sequences."""
    dtype = torch.bfloat16 if arithmetic == "bfloat16 weights" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation=attention).eval()
    (ids, seen), options = left_padded(given), sampling_options(NEW, cache)
    if compiled:
        from transformers import CompileConfig

        options["compile_config"] = CompileConfig(mode="default")
        options["compile_config"]._compile_all_devices = True

    def once() -> None:
        how = torch.autocast("cpu", torch.bfloat16) if arithmetic == "bfloat16 autocast" else nullcontext()
        for part, mask in zip(ids.split(rows // SAMPLES), seen.split(rows // SAMPLES), strict=True):
            with torch.inference_mode(), how:
                model.generate(part, attention_mask=mask, **options)

    return once


def vllm(path: Path, given: list[list[int]], dtype: str) -> Callable[[], object]:
    """vLLM's engine; needs the environment variables that reference vLLM-CPU set-ups use, such as VLLM_CPU_KVCACHE_SPACE."""
    from vllm import LLM, SamplingParams

    model = LLM(model=str(path), dtype=dtype, enforce_eager=True, max_num_seqs=512, max_model_len=256, skip_tokenizer_init=True)
    wanted = SamplingParams(n=SAMPLES, temperature=1.0, max_tokens=NEW, min_tokens=NEW, ignore_eos=True, detokenize=False)
    return lambda: model.generate([{"prompt_token_ids": prompt} for prompt in given], wanted, use_tqdm=False)


def contestants(path: Path, sequences: int, compiled: bool) -> dict[str, Callable[[], object]]:
    """All of them by name; their work is `sequences` completions."""
    given = prompts(sequences // SAMPLES)
    found: dict[str, Callable[[], object]] = {}
    for dtype, rows in product(DTYPES, sorted({min(sequences, rows) for rows in (256, 512)})):
        found[f"interplay native {dtype}, {rows} side by side"] = native(path, given, dtype, rows)
    batches = sorted({min(sequences, 128), sequences})
    for arithmetic, attention, cache, rows in product(ARITHMETIC, ("sdpa", "eager"), ("dynamic", "static"), batches):
        if (arithmetic, cache) == ("bfloat16 autocast", "static"):
            continue  # transformers refuses it: the cache is float32 and the values are not
        name, how = f"transformers {arithmetic}, {attention}, {cache} cache, {rows} side by side", (arithmetic, attention, cache)
        found[name] = transformers_generate(path, given, *how, rows)
        if compiled and cache == "static":
            found[f"{name}, compiled"] = transformers_generate(path, given, *how, rows, compiled=True)
    if importlib.util.find_spec("vllm"):
        found.update({f"vllm {dtype}": vllm(path, given, dtype) for dtype in ("float32", "bfloat16")})
    return found


def save_model(place: Path, decoder: Decoder) -> Path:
    """The model with a tokenizer of its vocabulary, as a Hugging Face folder below `place`."""
    files = place / "tokenizer"
    files.mkdir(parents=True)
    words = models.WordLevel({str(i): i for i in range(decoder.vocab_size)}, unk_token="0")
    Tokenizer(words).save(str(files / "tokenizer.json"))
    (files / "tokenizer_config.json").write_text("{}")
    folder.save_decoder(decoder, place / "model", files)
    return place / "model"


def nano_model(place: Path) -> Path:
    """A fresh one of NANO's shape."""
    return save_model(place, folder.init_decoder(NANO, VOCAB, seed=0))


def counted(once: Callable[[], object], tokens: int) -> Callable[[], float]:
    """The same, returning its tokens."""

    def work() -> float:
        once()
        return tokens

    return work


def measure(path: Path, sequences: int, rounds: int, compiled: bool = False) -> dict[str, dict[str, float]]:
    """Print the table; rate, ratio to the best peer and share of the GEMM floor of each contestant."""
    given, tokens = prompts(sequences // SAMPLES), sequences * NEW
    products = forward_products(NANO, VOCAB, sum(map(len, given)), len(given))
    products += (NEW - 1) * forward_products(NANO, VOCAB, sequences, sequences)
    print(
        f"rollouts, qwen3, 0.86M parameters: hidden {NANO.hidden_size}, {NANO.num_hidden_layers} layers, "
        f"{NANO.num_attention_heads} heads of {NANO.head_dim}, vocabulary {VOCAB}; {sequences} sequences, {SAMPLES} samples a "
        f"prompt of {sum(map(len, given)) / len(given):.0f} tokens, {NEW} new tokens; best of {rounds} rounds"
    )
    floors = print_floors(products, tokens)
    found = {name: counted(once, tokens) for name, once in contestants(path, sequences, compiled).items()}
    return report(in_turns(found, rounds, FINALISTS), floors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sequences", type=int, nargs="+", default=[32, 512])
    parser.add_argument("--compile", action="store_true", help="transformers compiled, too: minutes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    quiet()
    with tempfile.TemporaryDirectory() as place:
        path = nano_model(Path(place))
        for sequences in arguments.sequences:
            measure(path, sequences, arguments.rounds, arguments.compile)


if __name__ == "__main__":
    main()
