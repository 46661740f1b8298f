"""A study of many short stages: arms of RL of one step, five seeds each, and their evaluations.

`python tests/slurm/many.py FOLDER ARMS` lays it out for runs by hand, 100 arms for a thousand stages."""

import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUDY = """defaults:
  - /task@task: op_dag
  - /method@stages.rl.method: grpo
  - _self_
question: What do many short stages cost?
data:
  corpus: {band: id, split: train}
  held_out: {band: id, split: validation}
  edge: {band: edge, split: rl}
  test: {bands: [id, edge], split: test}
stages:
  base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}
  rl: {kind: rl, data: {edge: 1.0}}
  eval: {kind: evaluate, data: test}
arms:
  base: {path: [base]}
  rl: {path: [base, rl], control: base, grid: GRID}
evaluate: [eval]
seeds: {values: [0, 1, 2, 3, 4], vary: [rl]}
tables:
  main: {columns: [id], cells: [strict_pass@1]}
scales:
  smoke:
    stages: {rl: {steps: 1, prompts_per_step: 4, max_completion_length: 24}, eval: {num_samples: 2, max_completion_length: 24}}
"""


def write_study(project: Path, arms: int) -> None:
    """The study `many` into a project."""
    rates = [float(f"{1e-5 * (1 + step / arms):.9g}") for step in range(arms)]
    study = STUDY.replace("GRID", json.dumps({"rl.optimizer.learning_rate": rates}))
    (project / "configs/study/many.yaml").write_text(study)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for name in ("rules", "configs", "workflows"):
        shutil.copytree(ROOT / name, place / name, symlinks=True)
    shutil.copy(ROOT / "Snakefile", place)
    (place / "slurm").symlink_to("workflows/profiles/slurm")
    write_study(place, int(sys.argv[2]))
