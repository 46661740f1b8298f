"""The first parts of bench/gpu.py: what a part is given, training and rollouts."""

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import memory  # bench/memory.py
import numpy as np
import torch
from rollout import SAMPLES, left_padded, prompts, sampling_options, save_model  # bench/rollout.py
from train import prepare  # bench/train.py
from transformers import AutoModelForCausalLM

from interplay.core.execution import Run
from interplay.data import batches, corpus
from interplay.model import device, folder
from interplay.model.decoder import Decoder
from interplay.model.spec import Shape
from interplay.model.trainer_spec import Optimizer
from interplay.rollout.engine import engine
from interplay.rollout.request import Request, Sampling
from interplay.train import lm, loop
from interplay.train.spec import PretrainSpec

OWN = "interplay"


class Size(NamedTuple):
    """A model, and how it is trained: tokens of a row, of a pass and of a step."""

    architecture: str
    numbers: tuple[int, ...]
    vocab: int
    row: int
    micro: int
    step: int

    def shape(self) -> Shape:
        """Of the decoder."""
        return Shape(architecture=self.architecture, **dict(zip(memory.NUMBERS, self.numbers, strict=True)))


SIZES = {
    "0.9m": Size("qwen3", (128, 4, 4, 4, 32, 384), 48, 512, 32768, 32768),
    "10m": Size("qwen3", (384, 6, 6, 6, 64, 1024), 48, 512, 32768, 32768),
    "paper": Size("qwen2", (768, 12, 12, 2, 64, 3072), 2200, 2048, 65536, 131072),  # arXiv:2512.07783, its batch is four of these
    "smollm2": Size("llama", (576, 30, 9, 3, 64, 1536), 49152, 2048, 16384, 65536),
    "0.5b": Size("qwen2", (896, 24, 14, 2, 64, 4864), 151936, 2048, 8192, 32768),
}
COMPILED = ("0.9m", "smollm2")
"""Sizes at which transformers is also compiled as a whole, which takes a minute at 135M: with bfloat16 weights, its fastest."""
TINY = {
    "0.9m": Size("qwen3", (32, 2, 2, 2, 16, 48), 48, 128, 512, 512),
    "smollm2": Size("llama", (32, 2, 4, 2, 16, 48), 300, 128, 256, 512),
}


class Bench(NamedTuple):
    """What all parts are given."""

    args: argparse.Namespace
    part: str

    def sizes(self, *names: str) -> dict[str, Size]:
        """Those of these sizes that were asked for."""
        known = TINY if self.args.tiny else SIZES
        return {name: known[name] for name in names if name in known and name in self.args.sizes}

    def how(self, **run: Any) -> Run:
        """A run block on the device."""
        return Run(gpus=int(self.args.device == "cuda"), threads=1 if self.args.tiny else 8, **run)

    def clock(self) -> float:
        """Seconds, once the device has done what it was given."""
        if self.args.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def emit(self, **row: Any) -> None:
        """Print a row and append it to the file."""
        whole = {"part": self.part, **row}
        with (Path(self.args.out) / "gpu.jsonl").open("a") as file:
            file.write(json.dumps(whole) + "\n")
        shown = {key: f"{value:,.4g}" if isinstance(value, float) and value < 1e4 else value for key, value in whole.items()}
        print(
            "  ".join(f"{key} {value:,.0f}" if isinstance(value, float) else f"{key} {value}" for key, value in shown.items()),
            flush=True,
        )

    def limits(self) -> tuple[float, float]:
        """FLOP/s of a bfloat16 product and bytes per second of a copy; prints both."""
        side, count = (256, 1 << 20) if self.args.tiny else (8192, 1 << 30)
        a, b = (torch.randn(side, side, device=self.args.device, dtype=torch.bfloat16) for _ in range(2))
        source = torch.randn(count, device=self.args.device)
        product, copied = self.seconds(lambda: a @ b, 10), self.seconds(lambda: source.clone(), 10)
        peak, bandwidth = 2 * side**3 / product, 2 * source.nbytes / copied
        self.emit(limit="bfloat16 product", tflops=peak / 1e12, bandwidth_gb=bandwidth / 1e9)
        return peak, bandwidth

    def seconds(self, once: Callable[[], object], repeats: int) -> float:
        """Of one call, the best of three times so many."""
        once()
        took = []
        for _ in range(3):
            start = self.clock()
            for _ in range(repeats):
                once()
            took.append((self.clock() - start) / repeats)
        return min(took)

    def in_turns(self, contestants: dict[str, Callable[[], float]], turn: float = 0.3) -> dict[str, float]:
        """Units a second of each in its best round; one that fails is left out, with a row that says why."""
        best: dict[str, float] = {}
        for number in range(self.args.rounds + 2):  # two to warm up and compile
            for name in list(contestants):
                try:
                    start, units = self.clock(), 0.0
                    while not units or (number > 1 and self.clock() - start < turn):
                        units += contestants[name]()
                    best[name] = max(best.get(name, 0.0), units / (self.clock() - start)) if number > 1 else 0.0
                    self.emit(turn=number - 1, contestant=name, rate=best[name])  # a part may end at any moment
                except Exception as error:
                    self.emit(contestant=name, error=f"{type(error).__name__}: {error}"[:300])
                    del contestants[name]
                    best.pop(name, None)
        return best

    def compare(self, rates: dict[str, float], **more: Any) -> Iterator[tuple[dict[str, Any], float]]:
        """(row, rate) of each contestant, with its ratio to the fastest peer."""
        peer = max((rate for name, rate in rates.items() if not name.startswith(OWN)), default=float("nan"))
        for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
            yield {**more, "contestant": name, "tok_s": rate, "of_best_peer": rate / peer}, rate


def training_data(place: Path, size: Size, packing: str = "causal") -> dict[str, Path]:
    """Folders of bench/train.py: problems, their tokenizer and corpus, and a fresh model."""
    packed = {"sequence_length": size.row, "packing": packing, "loss_on": "all" if packing == "causal" else "solution"}
    return prepare(place, size.shape(), size.vocab, size.step, **packed).paths


def our_step(bench: Bench, size: Size, paths: dict[str, Path], optimizer: str, dtype: str, compiled: bool) -> Callable[[], float]:
    """A step of the trainer, as a stage makes it."""
    how = bench.how(micro_batch_tokens=size.micro, compile=compiled)
    made = Optimizer.model_validate({"name": optimizer, "learning_rate": 1e-4})
    spec = PretrainSpec(model=size.shape(), tokens=10**9, batch_tokens=size.step, optimizer=made, dtype=dtype)
    setup, model = lm.prepare(spec, paths, how), device.place_decoder(folder.load_decoder(paths["model"]), how)
    step_of = batches.Prefetcher(partial(lm.make_step, spec, setup), setup.steps, setup.device)
    job = loop.TrainingJob(
        spec, model, setup.steps, lambda step: lm.step_gradient(setup, model, step_of(step)), lambda path: None
    )
    steps = itertools.count(1)
    return lambda: loop.training_step(job, next(steps))["tokens"]


def their_step(bench: Bench, size: Size, paths: dict[str, Path], autocast: bool, compiled: bool) -> Callable[[], float]:
    """A step of a transformers model in a plain loop, on whole causal rows without padding."""
    kind = torch.float32 if autocast else torch.bfloat16
    model = (
        AutoModelForCausalLM.from_pretrained(paths["model"], dtype=kind, attn_implementation="sdpa").to(bench.args.device).train()
    )
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    call = torch.compile(model) if compiled else model
    tokens = torch.from_numpy(corpus.load_rows([paths["corpus"]]).tokens[np.arange(size.step // size.row)].astype("int64"))

    def once() -> float:
        for ids in tokens.to(bench.args.device).split(size.micro // size.row):
            with torch.autocast(bench.args.device, torch.bfloat16) if autocast else nullcontext():
                loss = call(input_ids=ids, labels=ids, use_cache=False).loss
            (loss * len(ids) / len(tokens)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        return float(tokens.numel())

    return once


def train(bench: Bench) -> None:
    """Tokens a second and MFU."""
    peak, _ = bench.limits()
    for name, size in bench.sizes(*SIZES).items():
        with tempfile.TemporaryDirectory() as place:
            paths = training_data(Path(place), size)
            parameters = device.matrix_parameters(folder.load_decoder(paths["model"]))
            ours = {f"{OWN} adamw": (False, "adamw", "bfloat16"), f"{OWN} adamw, compiled": (True, "adamw", "bfloat16")}
            ours |= {f"{OWN} muon, compiled": (True, "muon", "bfloat16")} if name in ("0.9m", "10m") else {}
            ours |= {f"{OWN} int8, adamw": (False, "adamw", "int8")} if name == "0.9m" else {}
            found = {key: our_step(bench, size, paths, *value[1:], value[0]) for key, value in ours.items()}
            if name in ("0.9m", "10m"):
                isolated = training_data(Path(place) / "isolated", size, "isolated")
                found[f"{OWN} adamw, compiled, problems isolated"] = our_step(bench, size, isolated, "adamw", "bfloat16", True)
            for autocast, compiled in itertools.product((True, False), (False, True)):
                if not compiled or (bench.args.compile and not autocast and name in COMPILED):
                    label = f"transformers {'autocast' if autocast else 'bfloat16 weights'}{', compiled' if compiled else ''}"
                    found[label] = their_step(bench, size, paths, autocast, compiled)
            shape = {"size": name, "parameters": parameters, "row": size.row, "micro": size.micro, "step": size.step}
            for row, rate in bench.compare(bench.in_turns(found), **shape):
                bench.emit(**row, mfu=6 * parameters * rate / peak)
        del found
        if bench.args.device == "cuda":
            torch.cuda.empty_cache()


def our_samples(bench: Bench, model: Decoder, given: list[list[int]], how: Sampling, graphs: bool) -> Callable[[], float]:
    """Samples of the native engine, all side by side."""
    made = engine("native", model, bench.how(engine_batch=len(given) * SAMPLES, cuda_graphs=graphs), torch.bfloat16)
    wanted = [Request(prompt, index, 0, SAMPLES) for index, prompt in enumerate(given)]
    return lambda: float(made.generate(wanted, how).lengths.sum())


def their_samples(model: Any, given: list[list[int]], new: int, cache: str) -> Callable[[], float]:
    """Samples of transformers' `generate`, all side by side, padded on the left."""
    ids, seen = (part.to(model.device) for part in left_padded(given))
    options = sampling_options(new, cache)

    @torch.inference_mode()
    def once() -> float:
        return float(len(model.generate(ids, attention_mask=seen, **options)) * new)

    return once


def rollout(bench: Bench) -> None:
    """New tokens a second, 8 samples of each prompt."""
    peak, bandwidth = bench.limits()
    new, most = (8, 32) if bench.args.tiny else (96, 2048)
    sampling = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=new, seed=0, eos=None, pad=0)
    for name, size in bench.sizes("0.9m", "smollm2").items():
        with tempfile.TemporaryDirectory() as place:
            decoder = folder.init_decoder(size.shape(), size.vocab, 0).to(bench.args.device)
            path = save_model(Path(place), decoder)
            theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, attn_implementation="sdpa")
        theirs = theirs.to(bench.args.device).eval()
        weights, token = 2 * sum(p.numel() for p in decoder.parameters()), 4 * size.numbers[1] * size.numbers[3] * size.numbers[4]
        for count in (min(one, most) for one in (32, 512, 2048)):
            asked = prompts(count // SAMPLES)
            native = partial(our_samples, bench, decoder, asked, sampling)
            peer = partial(their_samples, theirs, asked, new)
            found = {f"{OWN} native": native(True), "transformers dynamic": peer("dynamic")}
            if count == 512:
                found[f"{OWN} native, no cuda_graphs"] = native(False)
                found |= {"transformers static, compiled": peer("static")} if bench.args.compile else {}
            held = weights + token * (sum(map(len, asked)) + count * new / 2)  # a prompt's are read once for its samples
            floor = count / max(held / bandwidth, weights * count / peak)
            for row, rate in bench.compare(bench.in_turns(found), size=name, sequences=count, new=new):
                bench.emit(**row, of_floor=rate / floor)
