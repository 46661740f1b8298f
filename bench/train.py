"""Training speed compared with Hugging Face's models in a plain loop: same model, problems and optimiser, one thread.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/train.py                                   # 0.86M parameters
    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/train.py --size 10m --tokens 2048          # 10.6M
    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/train.py --size smollm2 --tokens 1024 --rounds 2 --layout length   # 135M
    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE PYTHONPATH=src python bench/train.py --second-core --tokens 1024

A step is forward, backward, clipping of the gradient's norm and fused AdamW, on whole problems. This project packs them into rows
of 256 tokens. A peer is the same model in transformers at {float32, bfloat16 autocast, bfloat16 weights} x {sdpa, eager
attention}, on a batch of problems of one length, without padding, or on such packed rows, whose positions start anew at
each problem (transformers makes a block mask of that); with --compile also compiled, on packed rows, whose shape never changes.
--second-core: instead of the peers, wall time of an int8 step on one core and with a borrowed one, whose thread waits
passively as in stages; needs two idle cores.
Each figure is the best of `--rounds`, in which all contestants take turns; tok/s counts tokens without padding per second of CPU
time, which other work on the machine disturbs less. The GEMM floor is explained in bench/gemm.py."""

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gemm import DTYPES, in_turns, print_floors, quiet, report, training_products  # bench/gemm.py

from interplay.core import execution
from interplay.core.execution import Run
from interplay.data import corpus, problems, tokenizer
from interplay.data.spec import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.model import folder
from interplay.model.spec import Shape
from interplay.model.trainer_spec import Optimizer
from interplay.tasks.op_dag.spec import OpDag
from interplay.train import lm, loop
from interplay.train.loop import TrainingJob
from interplay.train.spec import PretrainSpec

WIDTH, RATE = 256, 1e-3
"""Tokens of a row, and the learning rate."""
SIZES: dict[str, dict[str, Any]] = {
    "0.9m": {"hidden": 128, "layers": 4, "heads": 4, "kv_heads": 4, "intermediate": 384, "vocab": 0},
    "10m": {"hidden": 384, "layers": 6, "heads": 6, "kv_heads": 6, "intermediate": 1024, "vocab": 0},
    "smollm2": {"hidden": 576, "layers": 30, "heads": 9, "kv_heads": 3, "intermediate": 1536, "vocab": 49152},
}
"""Shapes by name; a vocabulary of 0 is the tokenizer's."""
ARITHMETIC = ("float32", "bfloat16 autocast", "bfloat16 weights")
ATTENTION = ("sdpa", "eager")


class Setting(NamedTuple):
    """What is trained, and where its data lie."""

    shape: Shape
    vocab: int
    step_tokens: int
    paths: dict[str, Path]


def prepare(work: Path, shape: Shape, vocab: int, step_tokens: int, **packed: Any) -> Setting:
    """4,000 problems of op 2 to 8, their tokenizer and corpus (`packed`: keys of its spec), and a fresh model as a Hugging Face
    folder, of `vocab` tokens or as many as the tokenizer has."""
    task, roles = OpDag(filler=(0, 8)), {"data.0": work / "problems", "tokenizer": work / "tokenizer"}
    ops = {op: 1 / 7 for op in range(2, 9)}
    problems.generate_problems(
        ProblemsSpec(task=task, bands={"id": ops}, shares={"id": 1.0}, size=4000, split="train"), {}, work / "problems", Run()
    )
    tokenizer.build_tokenizer(TokenizerSpec(task=task), {}, work / "tokenizer", Run())
    corpus.build_corpus(CorpusSpec(mix=[1.0], **{"sequence_length": WIDTH, **packed}), roles, work / "corpus", Run())
    vocab = max(vocab, tokenizer.load(work / "tokenizer").get_vocab_size())
    folder.save_decoder(folder.init_decoder(shape, vocab, 0), work / "model", work / "tokenizer/tokenizer")
    return Setting(shape, vocab, step_tokens, {**roles, "corpus": work / "corpus", "model": work / "model"})


def interplay(setting: Setting, dtype: str, optimizer: str = "adamw") -> Callable[[], float]:
    """This project's step."""
    spec = PretrainSpec(
        model=setting.shape,
        tokens=10**9,
        batch_tokens=setting.step_tokens,
        optimizer=Optimizer.model_validate({"name": optimizer, "learning_rate": RATE}),
        dtype=dtype,
    )
    course, model = lm.prepare(spec, setting.paths, Run()), folder.load_decoder(setting.paths["model"])

    def gradient(step: int) -> dict[str, float]:
        return lm.step_gradient(course, model, lm.make_step(spec, course, step))

    job = TrainingJob(spec=spec, model=model, steps=course.steps, step_gradient=gradient, save=lambda path: None)
    return lambda: loop.training_step(job, 1)["tokens"]


def equal_lengths(setting: Setting) -> dict[str, torch.Tensor]:
    """A batch of problems around the median length, of about the tokens of a step, each cut to the shortest: without padding no
    mask is needed, and sdpa takes its causal path."""
    encoded = corpus.encode_problems(setting.paths["data.0"], setting.paths["tokenizer"])
    order = np.argsort(encoded.lengths, kind="stable")
    middle = len(order) // 2
    half = max(1, round(setting.step_tokens / int(encoded.lengths[order[middle]]) / 2))
    some = corpus.select_problems(encoded, order[middle - half : middle + half])
    width = int(some.lengths.min())
    rows = [part[:width].astype(np.int64) for part in np.split(some.tokens, np.cumsum(some.lengths)[:-1])]
    ids = torch.from_numpy(np.stack(rows))
    return {"input_ids": ids, "labels": ids.masked_fill(torch.arange(width) < torch.from_numpy(some.prompts)[:, None], -100)}


def packed(setting: Setting) -> dict[str, torch.Tensor]:
    """The rows of this project's first step; positions that start anew mark the problems."""
    rows = corpus.load_rows([setting.paths["corpus"]])
    some = np.arange(setting.step_tokens // WIDTH)
    tokens, segments, loss = (torch.from_numpy(np.asarray(part[some]).astype(np.int64)) for part in rows)
    places = torch.arange(WIDTH).expand_as(tokens)
    starts = torch.where(segments.diff(dim=1, prepend=torch.zeros(len(some), 1).long()) != 0, places, 0).cummax(1).values
    return {"input_ids": tokens, "labels": torch.where(loss == 1, tokens, -100), "position_ids": places - starts}


def real_tokens(batch: dict[str, torch.Tensor], setting: Setting) -> int:
    """Tokens without padding."""
    if "position_ids" in batch:
        some = np.arange(setting.step_tokens // WIDTH)
        return int((corpus.load_rows([setting.paths["corpus"]]).segments[some] != 0).sum())
    return batch["input_ids"].numel()


def hugging_face(
    setting: Setting, arithmetic: str, attention: str, batch: dict[str, torch.Tensor], compiled: bool = False
) -> Callable[[], float]:
    """The step of a transformers model in a plain loop."""
    from transformers import AutoModelForCausalLM

    dtype = torch.bfloat16 if arithmetic == "bfloat16 weights" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(setting.paths["model"], dtype=dtype, attn_implementation=attention).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    call = torch.compile(model) if compiled else model
    tokens = real_tokens(batch, setting)

    def once() -> float:
        how = torch.autocast("cpu", torch.bfloat16) if arithmetic == "bfloat16 autocast" else nullcontext()
        with how:
            loss = call(**batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return tokens

    return once


def contestants(setting: Setting, layouts: list[str], compiled: bool) -> dict[str, Callable[[], float]]:
    """All of them by name."""
    found = {f"interplay {dtype}, packed rows": interplay(setting, dtype) for dtype in DTYPES}
    batches = {"length": equal_lengths(setting), "packed": packed(setting)}
    for layout, arithmetic, attention in product(layouts, ARITHMETIC, ATTENTION):
        name = f"transformers {arithmetic}, {attention}, " + ("packed rows" if layout == "packed" else "equal lengths")
        found[name] = hugging_face(setting, arithmetic, attention, batches[layout])
        if compiled and layout == "packed":
            found[f"{name}, compiled"] = hugging_face(setting, arithmetic, attention, batches[layout], compiled=True)
    return found


def measure(setting: Setting, rounds: int, layouts: list[str], compiled: bool = False) -> dict[str, dict[str, float]]:
    """Print the table; rate, ratio to the best peer and share of the GEMM floor of each contestant."""
    batch = packed(setting)
    predicted, real = int((batch["labels"] != -100).sum()), real_tokens(batch, setting)
    products = training_products(setting.shape, setting.vocab, real, predicted)
    parameters = sum(p.numel() for p in folder.load_decoder(setting.paths["model"]).parameters())
    shape, rows = setting.shape, len(batch["input_ids"])
    print(
        f"training, {shape.architecture}, {parameters / 1e6:.2f}M parameters: hidden {shape.hidden_size}, "
        f"{shape.num_hidden_layers} layers, {shape.num_attention_heads} heads of {shape.head_dim}, vocabulary {setting.vocab}; "
        f"{real} tokens a step in {rows} rows of {WIDTH}, {predicted} with loss; AdamW; best of {rounds} rounds"
    )
    floors = print_floors(products, real)
    return report(in_turns(contestants(setting, layouts, compiled), rounds), floors)


def second_core(setting: Setting, rounds: int, steps: int = 20) -> None:
    """Print the wall time of a step without and with a borrowed core, in turns, and the ratio."""
    for optimizer in ("adamw", "muon"):
        step, took = interplay(setting, "int8", optimizer), dict[int, list[float]]({0: [], 1: []})
        for turn in range(rounds * 2):
            execution.set_borrowed_cores(turn % 2)
            step()
            for _ in range(steps):
                started = time.perf_counter()
                step()
                took[turn % 2].append(1000 * (time.perf_counter() - started))
        execution.set_borrowed_cores(0)
        one, two = (sorted(took[count])[len(took[count]) // 10] for count in (0, 1))
        print(f"  int8, {optimizer}, tenth percentile of a step: {one:.1f} and {two:.1f} ms, ratio {one / two:.2f} (aim 1.6)")


def shape_of(size: dict[str, Any]) -> Shape:
    """The decoder of an entry of SIZES."""
    return Shape(
        architecture="llama" if size["vocab"] else "qwen3",
        hidden_size=size["hidden"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["kv_heads"],
        head_dim=size["hidden"] // size["heads"],
        intermediate_size=size["intermediate"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="0.9m")
    for name in SIZES["0.9m"]:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="instead of the size's")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a step, padding included")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layout", nargs="+", choices=["length", "packed"], default=["length", "packed"], help="of the peers")
    parser.add_argument("--compile", action="store_true", help="peers compiled, too: minutes")
    parser.add_argument("--second-core", action="store_true", help="one core and two instead of peers")
    args = parser.parse_args()
    torch.set_num_threads(1)
    quiet()
    size = {name: value if getattr(args, name) is None else getattr(args, name) for name, value in SIZES[args.size].items()}
    with tempfile.TemporaryDirectory() as name:
        setting = prepare(Path(name), shape_of(size), size["vocab"], args.tokens)
        if args.second_core:
            second_core(setting, args.rounds)
            return
        measure(setting, args.rounds, args.layout, args.compile)
        if args.size == "0.9m":
            muon = {f"interplay {dtype} with Muon": interplay(setting, dtype, "muon") for dtype in DTYPES}
            for label, rate in in_turns(muon, args.rounds).items():
                print(f"  {label} {rate:,.0f} tok/s")


if __name__ == "__main__":
    main()
