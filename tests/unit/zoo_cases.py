"""Every method of configs/method in a run of three steps on a tiny model that was taught a little: its metrics by name.

PYTHONPATH=src:.:tests/unit python tests/unit/zoo_cases.py [NAME...]     # write tests/golden/methods.json anew, or these alone
"""

import functools
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import world

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.core.metrics import read, round_significant
from interplay.data import corpus, curate, problems, tokenizer
from interplay.data.spec import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.data.steps.spec import CurateSpec
from interplay.model import folder
from interplay.model.trainer_spec import Optimizer, Schedule, TuneOptimizer
from interplay.rl import loop
from interplay.rl.spec import Method, RLSpec
from interplay.tasks.environments.spec import Calculator, SelfSearch, TicTacToe
from interplay.tasks.facts.spec import Bios
from interplay.tasks.spec import OwnTask
from interplay.train import lm
from interplay.train.spec import PretrainSpec
from tools.reference import lists

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/methods.json"
METHODS = lists.methods(ROOT)
WORLD = ROOT / "configs/study/methods/turns.py"
"""Its environment pays each turn."""
LOCKS = ROOT / "configs/study/methods/turn_world.py"
DOORS = ROOT / "configs/study/methods/experience.py"
"""Calls that the expert makes, and pay for them."""
ROLES = (
    (ROOT / "configs/study/methods/roles.py").read_text()
    + """

class Asks(Asked):
    def prompt(self, problem):
        return super().prompt(problem) + ".\\n"

    def solution(self, problem):
        return problem[3]

    def verify(self, problem, completion):
        return completion.strip() in ("?", problem[2])
"""
)
"""A user has said a word, and asking is as right as answering, so that a model that was taught a little does both."""
EXACT: dict[str, Any] = {"dtype": "int8", "numerics": "exact"}
HOW = Run(engine_batch=128, micro_batch_tokens=8000, save_minutes=0.0)
FACTS = Bios(level="by_heart", people=12, relations=3, attributes=1, values=5, parametric=1.0)
TASKS = {
    "op_dag": (world.TASK, {1: 0.8, 2: 0.2}, 16, 60),
    "calculator": (Calculator(largest=4, operators="+"), {1: 1.0}, 10, 40),
    "self_search": (SelfSearch(bios=FACTS), {1: 1.0}, 40, 90),
    "tic_tac_toe": (TicTacToe(), {4: 0.5, 5: 0.5}, 2, 10),
    "safe": (OwnTask(function="turns.py:Safe", source=WORLD.read_text()), {2: 0.5, 3: 0.5}, 4, 20),
    "locks": (OwnTask(function="turn_world.py:locks", source=LOCKS.read_text(), options={"pays": 0.1}), {1: 0.5, 2: 0.5}, 10, 60),
    "asked": (OwnTask(function="roles.py:Asks", source=ROLES), {1: 1.0}, 4, 60),
    "doors": (OwnTask(function="experience.py:Locks", source=DOORS.read_text(), options={"world": "w"}), {2: 1.0}, 3, 40),
}
"""Name -> task, shares of ops, longest completion, steps in which the model is taught it."""
NAMES = ("reward", "strict", "length", "entropy", "effective_ratio", "trained_tokens", "loss", "grad_norm", "kl_old", "kl")
"""Metrics of a step that are kept; `moved` is the distance that the weights went in the run."""
OWN: dict[str, dict[str, Any]] = {
    "spo_tree": {"prompts_per_step": 2, "max_completion_length": 62},  # 216 leaves with two segments of 30 tokens before
    "t_ppo": {"max_completion_length": 130},  # two windows of 64 tokens
    "turn_ppo": {"prompts_per_step": 64},  # an episode of each, of which a twentieth is right
    "poad": {"prompts_per_step": 64},
    **{name: {"prompts_per_step": 24} for name in ("score", "score_first")},  # of second attempts, one in 200 is right
    **{name: {"optimizer": TuneOptimizer(learning_rate=3e-4)} for name in ("disco", "disco_ratio")},  # sums in the exact range
}
"""Settings that a method asks for."""


def task_of(name: str, method: Method) -> str:
    """The family that the method is for."""
    if method.episode.name == "environment":
        return "calculator"
    return {"self_play": "tic_tac_toe"}.get(method.episode.name, "self_search" if name == "ssrl" else "op_dag")


def teach(lessons: Path, init: Path, steps: int) -> None:
    """Write a model to `init`, where its tokenizer is, that was trained on all lessons at each step: exact, so that runs which
    start from it are those of every processor."""
    packed = {"corpus": init.parent / "corpus", "tokenizer": init}
    form = CorpusSpec(mix=[1.0], sequence_length=256)
    corpus.build_corpus(form, {"data.0": lessons, "tokenizer": init}, packed["corpus"], Run())
    used = np.load(packed["corpus"] / "segments.npy") > 0
    adam = Optimizer(name="adamw", learning_rate=1e-2, adam_beta2=0.999, weight_decay=0.0, max_grad_norm=0.0)
    flat = Schedule(name="constant", warmup_ratio=0.0)
    budget = {"tokens": steps * int(used.sum()), "batch_tokens": used.size}
    lm.train_language_model(PretrainSpec(model=world.SHAPE, optimizer=adam, schedule=flat, **EXACT, **budget), packed, init, HOW)


@functools.cache
def inputs(task: str) -> dict[str, Path]:
    """Ten problems, and a model that was taught others a little; made once."""
    results = Path(tempfile.mkdtemp(prefix="zoo_"))
    spec, ops, _, steps = TASKS[task]
    init = results / "pretrain" / ("m" * 12)
    found = {}
    for digest, size, split in (("a" * 12, 10, "rl"), ("t" * 12, 160, "train")):
        out = found[split] = results / "problems" / digest
        asked = ProblemsSpec(task=spec, bands={"b": ops}, shares={"b": 1.0}, size=size, split=split, unique=False)
        problems.generate_problems(asked, {}, out, Run())
        write_json(out / "stage.json", {"kind": "problems", "digest": digest, "spec": canonical(asked), "deps": {}})
    algorithm = "characters" if task in ("op_dag", "tic_tac_toe", "safe", "asked", "doors") else "words"
    tokenizer.build_tokenizer(TokenizerSpec(task=spec, algorithm=algorithm), {}, init, Run())
    teach(found["train"], init, steps)
    made = {"init": init, "data.0": found["rl"]}
    if task == "doors":
        made["library"] = results / "curate" / ("l" * 12)
        form = CurateSpec(mix=[1.0], steps=[{"name": "library", "unit": "turn"}])
        curate.curate_problems(form, {"data.0": found["train"]}, made["library"], Run())
        write_json(made["library"] / "stage.json", {"kind": "curate", "digest": "l" * 12})
    return made


def spec_of(name: str, method: Method) -> RLSpec:
    """The run of a method: exact, or float32 where a member is not covered."""
    task = task_of(name, method)
    reward = {"spans": "steps", "role": "payoff"}.get(method.advantage.name, "outcome" if task != "op_dag" else "process")
    tree = canonical(method)
    for seam in [tree["episode"], tree["continuation"]]:
        if seam.get("feedback", "gold") != "gold":
            seam["feedback"] = "?"  # the task has few characters
    if name == "mind":
        tree["shaping"][0]["marker"] = ","  # completions have one "#"
    given = {"method": tree, "reward": {"name": reward}, "mix": [1.0], "steps": 3, "prompts_per_step": 6, "minibatches": 2}
    given |= {"max_completion_length": TASKS[task][2], "optimizer": TuneOptimizer(learning_rate=1e-3), **OWN.get(name, {})}
    fast = RLSpec.model_validate(given)
    return fast if fast.inexact() else RLSpec.model_validate(given | EXACT)


def measured(name: str, method: Method, out: Path) -> dict[str, float]:
    """Means of the metrics over three steps, and how far the weights went."""
    given = inputs(task_of(name, method))
    torch.set_num_threads(1)
    loop.train_policy(spec_of(name, method), given, out, HOW)
    models = [folder.load_decoder(at / "model").parameters() for at in (given["init"], out)]
    before, after = (torch.nn.utils.parameters_to_vector(of).tolist() for of in models)
    lines = read(out)
    means = {name: sum(line[name] for line in lines) / len(lines) for name in NAMES if name in lines[0]}
    return {name: round_significant(number) for name, number in {**means, "moved": math.dist(before, after)}.items()}


def main() -> None:
    known = json.loads(GOLDEN.read_text()) if sys.argv[1:] and GOLDEN.exists() else {}
    with tempfile.TemporaryDirectory() as folder_of:
        for name in sys.argv[1:] or METHODS:
            known[name] = measured(name, METHODS[name], Path(folder_of) / name)
            print(name, known[name], flush=True)
    GOLDEN.parent.mkdir(exist_ok=True)
    rows = [f"  {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known)]
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
