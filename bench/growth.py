"""CPU seconds of what is done with a finished study, as its arms, seeds or samples grow tenfold: plan, dry run, page, mirror in
MLflow.

    OMP_NUM_THREADS=1 python bench/growth.py [--arms 10] [--grow arms,seeds,samples]

One real smoke study of one arm is run first, and one more with ten times the samples. Larger studies are then made of them: each
further stage gets the files and the metrics of the finished stage of its kind, and a record of its own (a fixture of this bench,
in a temporary folder). Each cost is followed by its growth over that of what grew (stages, or samples): above 1 it is worse than
linear. A fixed cost (an import) lowers it.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from plan import lay_out, spent  # bench/plan.py

from interplay.core import artifact
from interplay.study.expand import plan_study
from interplay.study.plan import Plan

SEEDS, SAMPLES, TIMES = 2, 8, 10
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
BY_CALLS = """
import sys
from snakemake_logger_plugin_mlflow import bulk
from interplay.cli import main
bulk.fits = lambda database: False
sys.exit(main(["track", "sync", "many", "--scale", "smoke", "--to", "sqlite:///calls.db"]))
"""
"""The first mirror without its inserts of many rows at once (`snakemake_logger_plugin_mlflow.bulk`)."""
COMMANDS = {
    "plan": ("interplay", "plan", "many", "--scale", "smoke"),
    "dry run": ("snakemake", "-n", "-q", "all", "--profile", "local", "--cores", "1", *CHOSEN),
    "page": ("snakemake", "all", "--profile", "local", "--cores", "1", *CHOSEN),
    "nothing to do": ("snakemake", "all", "--profile", "local", "--cores", "1", *CHOSEN),
    "first mirror": ("interplay", "track", "sync", "many", "--scale", "smoke", "--to", "sqlite:///mlflow.db"),
    "the same by MLflow's calls": (sys.executable, "-c", BY_CALLS),
    "second mirror": ("interplay", "track", "sync", "many", "--scale", "smoke", "--to", "sqlite:///mlflow.db"),
}
"""In the order in which they are run; `plan` and `dry run` with nothing done, the others with all but the report."""


class Cost(NamedTuple):
    """Seconds by the clock and of the CPU."""

    clock: float
    cpu: float


class Size(NamedTuple):
    """Of a study."""

    arms: int
    seeds: int = SEEDS
    samples: int = SAMPLES
    """A prompt of an evaluation."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", type=int, default=10, help="number of arms to grow from, without the base")
    parser.add_argument("--grow", default="arms,seeds,samples", help="what grows tenfold, one at a time")
    arguments = parser.parse_args()
    first = Size(arguments.arms)
    sizes = {"": first, **{name: first._replace(**{name: TIMES * getattr(first, name)}) for name in arguments.grow.split(",")}}
    with tempfile.TemporaryDirectory() as name:
        stages, costs = dict[str, int](), dict[str, dict[str, Cost]]()
        for grown, size in sizes.items():
            made, project = Path(name) / f"made{size.samples}", Path(name) / "project"
            if not made.exists():
                lay_out_shown(made, size._replace(arms=1, seeds=SEEDS))
                spent(made, COMMANDS["page"])
            lay_out_shown(project, size)
            plan = plan_study(project / "configs", "many", "smoke")
            stages[grown] = len(plan.stages)
            costs[grown] = dict(measured(project, plan, made))
            shutil.rmtree(project)
            for line in table(stages, costs):
                print(line, flush=True)
    for what, command in COMMANDS.items():
        print(f"{what}: {' '.join(command)}" if command[-1] != BY_CALLS else f"{what}: `bulk.fits` false")


def lay_out_shown(project: Path, size: Size) -> None:
    """A project with the study `many`, with figures and a claim."""
    lay_out(project, size.arms, size.seeds)
    study = project / "configs/study/many.yaml"
    text, old = study.read_text(), "{kind: evaluate, data: test}"
    assert old in text
    study.write_text(text.replace(old, f"{{kind: evaluate, data: test, num_samples: {size.samples}}}") + SHOWN)


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


def table(stages: dict[str, int], costs: dict[str, dict[str, Cost]]) -> Iterator[str]:
    """The lines of the table: CPU seconds, by the clock in brackets, and the growth."""
    heads = [f"{count} stages" + (f", {grown} x {TIMES}" if grown else "") for grown, count in stages.items()]
    yield f"{'CPU s (by the clock)':28}" + "".join(f"{head:>28}" for head in heads)
    for what in COMMANDS:
        cells = []
        for grown, cost in costs.items():
            times = TIMES if grown == "samples" else stages[grown] / stages[""]
            growth = f" {cost[what].cpu / costs[''][what].cpu / times:5.2f}" if grown else ""
            cells.append(f"{cost[what].cpu:.1f} ({cost[what].clock:.1f}){growth}")
        yield f"{what:28}" + "".join(f"{cell:>28}" for cell in cells)
    mirrors = [cost["the same by MLflow's calls"].cpu / cost["first mirror"].cpu for cost in costs.values()]
    yield f"{'by calls / first mirror':28}" + "".join(f"{ratio:>28.1f}" for ratio in mirrors)


if __name__ == "__main__":
    main()
