"""Training speed compared with Hugging Face's Trainer and TRL's SFTTrainer: same model, data, optimiser and tokens, one thread.

    OMP_NUM_THREADS=1 python bench/train.py [--seconds 20] [--hidden 128] [--layers 4]

Each peer runs at its best public settings: bfloat16 autocast, fused AdamW, no gradient checkpointing, no logging; Trainer with
batches of similar length, SFTTrainer both so and with corpus. Steps of the two alternate, and rates are tokens without padding
per second of CPU time, the first steps left out, so that other work on the machine affects both equally."""

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from interplay.core.execution import Run
from interplay.data import corpus, problems, sets, tokenizer
from interplay.data.spec import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.model import folder
from interplay.model.spec import Optimizer, Shape
from interplay.tasks.op_dag.spec import OpDag
from interplay.train import lm, loop
from interplay.train.loop import TrainingJob
from interplay.train.spec import PretrainSpec

WIDTH, STEP_TOKENS, SKIPPED = 256, 4096, 3


def prepare(work: Path, shape: Shape) -> dict[str, Path]:
    """4,000 problems of op 2 to 8, their tokenizer and corpus, and a fresh model as a Hugging Face folder."""
    task, roles = OpDag(filler=(0, 8)), {"data.0": work / "problems", "tokenizer": work / "tokenizer"}
    ops = {op: 1 / 7 for op in range(2, 9)}
    problems.generate_problems(
        ProblemsSpec(task=task, bands={"id": ops}, shares={"id": 1.0}, size=4000, split="train"), {}, work / "problems", Run()
    )
    tokenizer.build_tokenizer(TokenizerSpec(task=task), {}, work / "tokenizer", Run())
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=WIDTH), roles, work / "corpus", Run())
    model = folder.init_decoder(shape, tokenizer.load(work / "tokenizer").get_vocab_size(), 0)
    folder.save_decoder(model, work / "model", work / "tokenizer/tokenizer")
    return {**roles, "corpus": work / "corpus", "model": work / "model"}


class Rate:
    """Tokens and CPU seconds of the steps after the first few."""

    def __init__(self) -> None:
        self.steps, self.tokens, self.seconds = 0, 0, 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count one step."""
        self.steps += 1
        if self.steps > SKIPPED:
            self.tokens, self.seconds = self.tokens + tokens, self.seconds + seconds

    def value(self) -> float:
        """Tokens per CPU second."""
        return self.tokens / self.seconds


class Own:
    """Interplay's step, called between the steps of a peer."""

    def __init__(self, paths: dict[str, Path], shape: Shape, name: str) -> None:
        self.spec = PretrainSpec(
            model=shape, tokens=10**9, batch_tokens=STEP_TOKENS, optimizer=Optimizer.model_validate({"name": name})
        )
        self.course, self.model, self.rate = lm.prepare(self.spec, paths, Run()), folder.load_decoder(paths["model"]), Rate()
        self.job = TrainingJob(
            spec=self.spec,
            model=self.model,
            steps=self.course.steps,
            step_gradient=lambda step: lm.step_gradient(self.course, self.model, lm.make_step(self.spec, self.course, step)),
            save=lambda path: None,
        )

    def step(self) -> None:
        """Train one step and count it."""
        start = time.process_time()
        line = loop.training_step(self.job, self.rate.steps + 1)
        self.rate.add(int(line["tokens"]), time.process_time() - start)


def alternate(trainer: Any, own: Own, seconds: float) -> Rate:
    """Train with a transformers Trainer, one step of ours after each of its own, until its steps took `seconds`."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.rate, self.tokens, self.start = Rate(), 0, time.process_time()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.rate.add(self.tokens, time.process_time() - self.start)
            own.step()
            control.should_training_stop = self.rate.seconds > seconds
            self.tokens, self.start = 0, time.process_time()

    clock = Clock()

    def count(_: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        mask = kwargs.get("attention_mask")
        clock.tokens += int(kwargs["input_ids"].numel() if mask is None else mask.sum())

    trainer.model.register_forward_pre_hook(count, with_kwargs=True)
    trainer.add_callback(clock)
    trainer.train()
    return clock.rate


def arguments(work: Path, sequences: int, **more: Any) -> dict[str, Any]:
    """What both peers' settings share."""
    common = {
        "output_dir": str(work / "peer"),
        "use_cpu": True,
        "bf16": True,
        "optim": "adamw_torch_fused",
        "learning_rate": 4e-3,
    }
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    sizes = {"per_device_train_batch_size": sequences, "max_steps": 10**6, "dataloader_num_workers": 0}
    return {**common, **quiet, **sizes, **more}


def hf_trainer(paths: dict[str, Path], work: Path, sequences: int) -> Any:
    """transformers.Trainer: batches of similar length, padded to their longest; loss on the solution."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

    encoded = corpus.encode_problems(paths["data.0"], paths["tokenizer"])
    rows, start = [], 0
    for length, prompt in zip(encoded.lengths.tolist(), encoded.prompts.tolist(), strict=True):
        ids = encoded.tokens[start : start + length].tolist()
        rows.append({"input_ids": ids, "attention_mask": [1] * length, "labels": [-100] * prompt + ids[prompt:]})
        start += length
    model = AutoModelForCausalLM.from_pretrained(paths["model"], dtype=torch.float32)
    collator = DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(paths["model"]))
    settings = TrainingArguments(**arguments(work, sequences, train_sampling_strategy="group_by_length"))
    return Trainer(model=model, args=settings, train_dataset=Dataset.from_list(rows), data_collator=collator)


def trl_sft(paths: dict[str, Path], work: Path, sequences: int, packing: bool) -> Any:
    """trl.SFTTrainer: packed best-fit-decreasing rows, or batches of similar length; loss on the completion."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    table = sets.read_table(paths["data.0"], ["prompt", "solution"]).rename_columns(["prompt", "completion"])
    how = {"packing": True} if packing else {"train_sampling_strategy": "group_by_length"}
    more = {"max_length": WIDTH, "gradient_checkpointing": False, "completion_only_loss": True, **how}
    model = AutoModelForCausalLM.from_pretrained(paths["model"], dtype=torch.float32)
    settings = SFTConfig(**arguments(work, sequences, **more))
    encoder = AutoTokenizer.from_pretrained(paths["model"])
    return SFTTrainer(model=model, args=settings, train_dataset=Dataset(table), processing_class=encoder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU seconds per measurement")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": args.hidden // 4}
    shape = Shape(hidden_size=args.hidden, num_hidden_layers=args.layers, intermediate_size=3 * args.hidden, **heads)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        paths = prepare(work, shape)
        mean = corpus.encode_problems(paths["data.0"], paths["tokenizer"]).lengths.mean()
        alone, packed = round(STEP_TOKENS / mean), STEP_TOKENS // WIDTH
        print(f"qwen3, hidden {args.hidden}, {args.layers} layers; {mean:.0f} tokens a problem, {STEP_TOKENS} a step, bfloat16")
        for label, trainer in (
            ("Trainer, batches by length", hf_trainer(paths, work, alone)),
            ("SFTTrainer, batches by length", trl_sft(paths, work, alone, packing=False)),
            ("SFTTrainer, packed", trl_sft(paths, work, packed, packing=True)),
        ):
            own = Own(paths, shape, "adamw")
            theirs, ours = alternate(trainer, own, args.seconds).value(), own.rate.value()
            print(f"{label:32} {theirs:8.0f} tok/s   interplay {ours:8.0f} tok/s   {ours / theirs:5.2f}x", flush=True)
        own = Own(paths, shape, "muon")
        while own.rate.seconds < args.seconds:
            own.step()
        print(f"interplay with Muon {own.rate.value():20.0f} tok/s")


if __name__ == "__main__":
    main()
