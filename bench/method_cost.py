"""What a step of each RL method costs relative to GRPO's: CPU time at one thread, same model, prompts, completions and lengths.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/method_cost.py dapo gspo ppo

A Qwen3 of 0.8M parameters, 16 op_dag prompts with 8 completions each of 64 tokens (a method with one completion a prompt has
128 prompts), two optimiser steps on each batch, a reward that differs within every group. The fastest of `--steps` steps after
one to warm up counts. The arms `*_clock` of configs/study/methods/showdown.yaml have the steps that these ratios leave them."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from grpo import REWARD, prepare

from interplay.core.execution import Run
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rl.assembly import assemble_run
from interplay.rl.loop import one_step
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec
from tools.reference import lists

COMPLETIONS, NEW = 128, 64
SHORTLIST = ("dapo", "gspo", "cispo", "disco", "pass_k", "rloo", "ppo")


def cost(method: Method, inputs: dict[str, Path], out: Path, steps: int) -> float:
    """CPU seconds of the fastest step."""
    spec = RLSpec(
        method=method,
        reward=OwnReward(function="reward.py:letters", source=REWARD),
        mix=[1.0],
        steps=steps,
        prompts_per_step=COMPLETIONS // method.allocation.num_generations,
        minibatches=2,
        max_completion_length=NEW,
        optimizer=TuneOptimizer(learning_rate=1e-4),
    )
    how = Run(engine_batch=COMPLETIONS, micro_batch_tokens=8192)
    state, learner = assemble_run(spec, inputs, how, out)
    times = []
    for step in range(1, steps + 1):
        started = time.process_time()
        one_step(state, learner, out, step, {"sampler": 0.0, "rollout": 0.0, "update": 0.0})
        times.append(time.process_time() - started)
    return min(times[1:])


def main() -> None:
    """Print a line per method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=SHORTLIST)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    methods = lists.methods(Path(__file__).parents[1])
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        made = prepare(place, arguments.steps * COMPLETIONS // 32 + 1)
        inputs = {"init": made["init"], "data.0": made["data"]}
        seconds = {one: cost(methods[one], inputs, place / one, arguments.steps) for one in ("grpo", *arguments.methods)}
    print(f"{COMPLETIONS} completions of {NEW} tokens, two optimiser steps, one thread, torch {torch.__version__}")
    for one, value in seconds.items():
        print(f"  {value:6.2f} CPU s a step, {value / seconds['grpo']:5.2f} of GRPO's  {one}")


if __name__ == "__main__":
    main()
