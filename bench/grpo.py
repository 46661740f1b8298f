"""One GRPO step at one thread: this project's loop and TRL's GRPOTrainer, same model, prompts, reward, group size and lengths.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/grpo.py

A Qwen3 of 0.8M parameters, 32 op_dag prompts, 8 completions each of exactly 64 tokens (the end token never comes), a reward
that differs within every group so that every row is trained on, AdamW, DAPO loss, no KL. TRL runs at each of its public CPU
settings listed in PEERS, without gradient checkpointing; the ratio is to its best. A figure is the CPU time of the fastest of
`--steps` steps after one to warm up: with one thread that is the wall time of a machine with nothing else to do."""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.data import problems, sets, tokenizer as text
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.model import device, folder
from interplay.model.spec import Shape
from interplay.model.trainer_spec import TuneOptimizer
from interplay.optim import optimizer
from interplay.rl.assembly import RunState
from interplay.rl.batch import Memory
from interplay.rl.loop import one_step
from interplay.rl.reward_spec import OwnReward
from interplay.rl.sampler import PromptSource
from interplay.rl.samplers import build_sampler
from interplay.rl.spec import Method, RLSpec
from interplay.rl.update import Learner
from interplay.rollout.engine import engine
from interplay.tasks.op_dag.spec import OpDag

NANO = Shape(
    hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, head_dim=32, intermediate_size=384
)
PROMPTS, SAMPLES, NEW = 32, 8, 64
TASK = OpDag(distractors=(2, 6))
REWARD = """
def letters(problems, completions, verdicts):
    return [sum(map(str.isalpha, c)) / 64 for c in completions]
"""
PEERS: dict[str, dict[str, Any]] = {
    "float32, 256 rows a pass": {"per_device_train_batch_size": 256},
    "float32, 64 rows a pass": {"per_device_train_batch_size": 64},
    "bfloat16 autocast, 64 rows a pass": {"per_device_train_batch_size": 64, "bf16": True},
    "bfloat16 weights, 64 rows a pass": {"per_device_train_batch_size": 64, "model_init_kwargs": {"dtype": "bfloat16"}},
    "bfloat16 weights, eager attention, 64 rows a pass": {
        "per_device_train_batch_size": 64,
        "model_init_kwargs": {"dtype": "bfloat16", "attn_implementation": "eager"},
    },
    "float32, 64 rows a pass, static cache": {"per_device_train_batch_size": 64, "cache_implementation": "static"},
}


def prepare(place: Path, steps: int, shape: Shape = NANO) -> dict[str, Path]:
    """A problem set with fresh prompts for every step, and an untrained model."""
    spec = ProblemsSpec(task=TASK, bands={"b": {4: 0.5, 6: 0.5}}, shares={"b": 1.0}, size=PROMPTS * steps, split="rl")
    problems.generate_problems(spec, {}, place / "data", Run())
    write_json(place / "data" / "stage.json", {"kind": "problems", "digest": "b" * 12, "spec": canonical(spec), "deps": {}})
    text.build_tokenizer(TokenizerSpec(task=TASK), {}, place / "init", Run())
    decoder = folder.init_decoder(shape, text.load(place / "init").get_vocab_size(), seed=0)
    folder.save_decoder(decoder, place / "init" / "model", place / "init" / "tokenizer")
    return {"data": place / "data", "init": place / "init"}


def ours(
    inputs: dict[str, Path],
    out: Path,
    dtype: str,
    steps: int,
    how: Run | None = None,
    clock: Callable[[], float] = time.process_time,
) -> list[float]:
    """Seconds (of the CPU, unless another `clock` is given) of each step of the loop: rollouts, judgement by the task's verifier,
    update and records."""
    how = how or Run(engine_batch=PROMPTS * SAMPLES, micro_batch_tokens=8192)
    spec = RLSpec(
        method=Method(paper="TRL's defaults"),
        reward=OwnReward(function="reward.py:letters", source=REWARD),
        mix=[1.0],
        steps=steps,
        prompts_per_step=PROMPTS,
        max_completion_length=NEW,
        optimizer=TuneOptimizer(learning_rate=1e-4),
        dtype=dtype,
    )
    policy = device.place_decoder(folder.load_decoder(inputs["init"] / "model"), how)
    pool = sets.load_pool([inputs["data"]])
    learner = Learner(
        spec, policy, (), optimizer.build_optimizers(spec.optimizer, policy.named_parameters()), how.micro_batch_tokens
    )
    never = text.Special(pad=0, eos=-1)
    draws = build_sampler(spec.method.sampler, PromptSource(pool.sizes, spec.mix, spec.seed))
    files, sampled_by = text.tokenizer_folder(inputs["init"]), engine("native", policy, how, getattr(torch, dtype))
    state = RunState(spec, pool, text.load(inputs["init"]), never, files, sampled_by, draws, Memory(len(pool.rows)))
    times = []
    for step in range(1, steps + 1):
        started = clock()
        values = one_step(state, learner, out, step, {"sampler": 0.0, "rollout": 0.0, "update": 0.0})
        times.append(clock() - started)
        assert values["completion_tokens"] == PROMPTS * SAMPLES * NEW
        assert values["effective_ratio"] > 0.95
    return times


def trl(
    inputs: dict[str, Path], out: Path, setting: dict[str, Any], steps: int, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """The same of GRPOTrainer."""
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            times.append(clock())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            times[-1] = clock() - times[-1]

    def letters(completions: list[str], **_: Any) -> list[float | None]:
        return [sum(map(str.isalpha, c)) / 64 for c in completions]

    config = GRPOConfig(
        output_dir=str(out),
        max_steps=steps,
        gradient_accumulation_steps=PROMPTS * SAMPLES // setting["per_device_train_batch_size"],
        num_generations=SAMPLES,
        max_completion_length=NEW,
        generation_kwargs={"min_new_tokens": NEW},
        learning_rate=1e-4,
        gradient_checkpointing=False,
        optim="adamw_torch_fused",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        **{"bf16": False, "use_cpu": True, **setting},
    )
    trainer = GRPOTrainer(
        model=str(inputs["init"] / "model"),
        args=config,
        reward_funcs=letters,
        train_dataset=Dataset.from_list([{"prompt": row.prompt} for row in sets.load_pool([inputs["data"]]).rows]),
        processing_class=AutoTokenizer.from_pretrained(inputs["init"] / "model", padding_side="left"),
        callbacks=[Clock()],
    )
    trainer.train()
    return times


def main() -> None:
    """Print CPU seconds per step of every contestant, completion tok/s and the ratio of the best ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), help="which of TRL's settings to run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        inputs = prepare(place, arguments.steps)
        for dtype in ("float32", "bfloat16", "int8"):
            best[f"interplay {dtype}"] = min(ours(inputs, place / dtype, dtype, arguments.steps)[1:])
        for peer in arguments.peers:
            best[f"TRL {peer}"] = min(trl(inputs, place / "trl", PEERS[peer], arguments.steps)[1:])
    print(f"{PROMPTS} prompts x {SAMPLES} completions x {NEW} tokens, one thread, torch {torch.__version__}")
    for contestant, seconds in sorted(best.items(), key=lambda item: item[1]):
        print(f"  {seconds:6.2f} CPU s a step, {PROMPTS * SAMPLES * NEW / seconds:7.0f} completion tok/s  {contestant}")
    mine, peers = (min((s for n, s in best.items() if n.startswith(who)), default=0.0) for who in ("interplay", "TRL"))
    if peers:
        print(f"  TRL / interplay = {peers / mine:.1f}")


if __name__ == "__main__":
    main()
