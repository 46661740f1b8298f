"""RL runs of a small trained base, by the loop and by TRL."""

from pathlib import Path
from typing import Any

from conftest import ROOT

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.data import problems
from interplay.data.spec import ProblemsSpec
from interplay.rl.spec import RLSpec
from interplay.tasks.op_dag.spec import OpDag

COFFEE = OpDag(modulus=5, operators="+-*", letters=12, constants=(0, 4), branching=0.45, copies=0.2, distractors=(0, 2))
"""The task of the bases that come with the project."""
GRPO: dict[str, Any] = {"paper": "p", "allocation": {"name": "fixed", "num_generations": 8}}
DAPO: dict[str, Any] = {
    **GRPO,
    "shaping": [{"name": "overlong", "cache_share": 0.5, "weight": 0.5}],
    "loss": {"name": "clipped", "epsilon": 0.2, "epsilon_high": 0.28, "num_iterations": 2, "mask_truncated_completions": True},
}
"""Without dynamic sampling, which TRL has not."""
HOW = Run(micro_batch_tokens=2000)


def inputs(place: Path) -> dict[str, Path]:
    """A base at problems of which it solves some."""
    spec = ProblemsSpec(task=COFFEE, bands={"b": {6: 0.5, 7: 0.5}}, shares={"b": 1.0}, size=60, split="rl")
    data = place / "results" / "problems" / ("a" * 12)
    problems.generate_problems(spec, {}, data, Run())
    write_json(data / "stage.json", {"kind": "problems", "digest": "a" * 12, "spec": canonical(spec), "deps": {}})
    return {"init": min((ROOT / "data/bases/pretrain").iterdir()), "data.0": data}


def spec_of(trainer: str = "trl", method: dict[str, Any] = GRPO, **more: Any) -> RLSpec:
    settings = {"steps": 3, "prompts_per_step": 8, "max_completion_length": 96, "optimizer": {"learning_rate": 1e-3}}
    return RLSpec(trainer=trainer, method=method, mix=[1.0], **{**settings, **more})
