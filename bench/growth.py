"""CPU seconds of what is done with a finished study, as its arms grow: plan, dry run, page, mirror in MLflow.

    OMP_NUM_THREADS=1 python bench/growth.py [--arms 10,100]

One real smoke study of one arm is run first. Studies of more arms are then made of it: each further stage gets the files and the
metrics of the finished stage of its kind, and a record of its own (a fixture of this bench, in a temporary folder). The last
column is the growth of the cost over that of the stages: above 1 it is worse than linear. A fixed cost (an import) lowers it.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from plan import lay_out, spent  # bench/plan.py

from interplay.core import artifact
from interplay.study.expand import plan_study
from interplay.study.plan import Plan

SEEDS = 2
SHOWN = """figures:
  pass_at_k: {x: k, y: strict_pass, panel: band}
  by_op: {x: op, y: strict_pass@1}
  reward: {x: step, y: reward}
  loss: {x: step, y: loss}
claims:
  - says: RL lifts the edge
    test: {difference: strict_pass@1, band: edge, arm: 'rl[learning_rate=1e-05]', against: base, at_least: 0.10}
"""
"""More of the study than its plan needs."""
CHOSEN = ("--config", "study=many", "scale=smoke")
COMMANDS = {
    "plan": ("interplay", "plan", "many", "--scale", "smoke"),
    "dry run": ("snakemake", "-n", "-q", "all", "--profile", "local", "--cores", "1", *CHOSEN),
    "page": ("snakemake", "all", "--profile", "local", "--cores", "1", *CHOSEN),
    "nothing to do": ("snakemake", "all", "--profile", "local", "--cores", "1", *CHOSEN),
    "first mirror": ("interplay", "track", "sync", "many", "--scale", "smoke", "--to", "sqlite:///mlflow.db"),
    "second mirror": ("interplay", "track", "sync", "many", "--scale", "smoke", "--to", "sqlite:///mlflow.db"),
}
"""In the order in which they are run; `plan` and `dry run` with nothing done, the others with all but the report."""


class Cost(NamedTuple):
    """Seconds by the clock and of the CPU."""

    clock: float
    cpu: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", default="10,100", help="numbers of arms, without the base")
    counts = [int(count) for count in parser.parse_args().arms.split(",")]
    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / "made"
        lay_out_shown(made, 1)
        spent(made, COMMANDS["page"])
        stages, costs = [], list[dict[str, Cost]]()
        for count in counts:
            project = Path(name) / str(count)
            lay_out_shown(project, count)
            plan = plan_study(project / "configs", "many", "smoke")
            stages.append(len(plan.stages))
            costs.append(dict(measured(project, plan, made)))
            shutil.rmtree(project)
    for line in table(stages, costs):
        print(line)
    for what, command in COMMANDS.items():
        print(f"{what}: {' '.join(command)}")


def lay_out_shown(project: Path, arms: int) -> None:
    """A project with the study `many`, with figures and a claim."""
    lay_out(project, arms, SEEDS)
    with open(project / "configs/study/many.yaml", "a") as study:
        study.write(SHOWN)


def measured(project: Path, plan: Plan, made: Path) -> Iterator[tuple[str, Cost]]:
    """The cost of each command."""
    for what, command in COMMANDS.items():
        if what == "page":
            finish(project, plan, made)
        yield what, Cost(*spent(project, command))


def finish(project: Path, plan: Plan, made: Path) -> None:
    """Finish all stages but the report with what was made for the stages of their kinds."""
    donors = {path.parent.parent.name: path.parent for path in made.glob("results/*/*/record.json")}
    for stage in plan.stages.values():
        if stage.digest == plan.report:
            continue
        donor, out = donors[stage.kind], artifact.folder(project / "results", stage.kind, stage.digest)
        same = made / "results" / stage.kind / stage.digest  # data and base are those that the donors were made of
        shutil.copytree(same if artifact.done(same) else donor, out)
        artifact.write_json(out / "stage.json", stage.as_json())
        artifact.finish(out, stage.identity(), artifact.record(out)["metrics"])
        row = project / "benchmarks" / stage.kind / f"{stage.digest}.tsv"
        row.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / "benchmarks" / stage.kind / f"{donor.name}.tsv", row)


def table(stages: list[int], costs: list[dict[str, Cost]]) -> Iterator[str]:
    """The lines of the table."""
    yield f"{'CPU s (by the clock)':22}" + "".join(f"{f'{count} stages':>20}" for count in stages) + "   cost/stages"
    for what in COMMANDS:
        cells = [f"{cost[what].cpu:.1f} ({cost[what].clock:.1f})" for cost in costs]
        grown = (costs[-1][what].cpu / costs[0][what].cpu) / (stages[-1] / stages[0])
        yield f"{what:22}" + "".join(f"{cell:>20}" for cell in cells) + f"{grown:14.2f}"


if __name__ == "__main__":
    main()
