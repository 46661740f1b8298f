"""Seconds to plan a study of 10,000 stages, to dry-run it here and for Slurm, to schedule it on GPUs, and to find that nothing is
left to do.

    OMP_NUM_THREADS=1 python bench/plan.py [--stages 10000]

The study is a base, a grid of RL arms over it at five seeds, and an evaluation of each. For the last line every stage gets an
empty record, made here: a fixture of this bench, in a temporary folder. For comparison, plain Snakemake: a Snakefile of the same
jobs and inputs whose stages are files by wildcard, from a list that is known without planning. Aim: planned in 2 s, without
torch, and a dry run in at most 1.3 times the CPU seconds of plain Snakemake's (the better of two turns each).
"""

import argparse
import json
import operator
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
SEEDS = 5
STUDY = """defaults:
  - /task@task: op_dag
  - /method@stages.rl.method: grpo
  - _self_
question: How long does a plan of many stages take?
data:
  corpus: {band: id, split: train}
  edge: {band: edge, split: rl}
  test: {bands: [id, edge], split: test}
stages:
  base: {kind: pretrain, data: {corpus: 1.0}}
  rl: {kind: rl, data: {edge: 1.0}}
  eval: {kind: evaluate, data: test}
arms:
  base: {path: [base]}
  rl: {path: [base, rl], control: base, grid: GRID}
evaluate: [eval]
seeds: {values: SEEDS, vary: [rl]}
tables:
  main: {columns: [id], cells: [strict_pass@1]}
"""
PLAIN = """ARMS = range(COUNT)
SEEDS = range(5)
rule all:
    input: "out/report"
rule report:
    input: "out/eval/base", expand("out/eval/{arm}-{seed}", arm=ARMS, seed=SEEDS)
    output: "out/report"
    shell: "touch {output}"
rule data:
    output: "out/data/{name}"
    shell: "touch {output}"
rule corpus:
    input: "out/data/train", "out/data/tokenizer"
    output: "out/corpus"
    shell: "touch {output}"
rule base:
    input: "out/corpus"
    output: "out/base"
    shell: "touch {output}"
rule rl:
    input: "out/base", "out/data/edge"
    output: "out/rl/{arm}-{seed}"
    shell: "touch {output}"
rule eval_base:
    input: "out/base", "out/data/test"
    output: "out/eval/base"
    shell: "touch {output}"
rule evaluate:
    input: "out/rl/{arm}-{seed}", "out/data/test"
    output: "out/eval/{arm}-{seed}"
    shell: "touch {output}"
"""
CPU = operator.itemgetter(1)
DATA = ("data/train", "data/tokenizer", "data/edge", "data/test")
GPUS = (1, 8, 64, 512)
SCHEDULED = """
import json, sys, time
from pathlib import Path
from interplay.results import estimate, state
from interplay.study import expand
plan = expand.plan_study(Path("configs"), "many", "gpu")
started = (time.perf_counter(), time.process_time())
made = estimate.estimate_launch(state.Library(plan.stages, Path("results"), {}), {})
on = [estimate.schedule_stages(plan, made, gpus, wait=30.0) for gpus in map(int, sys.argv[1:])]
took = [time.perf_counter() - started[0], time.process_time() - started[1]]
print(json.dumps({"took": took, "gpu_hours": made.gpu_hours(), "on": on, "bytes": sum(made.bytes[d] or 0 for d in made.bytes)}))
"""
"""At the scale of one GPU a stage; each waits 30 s more for queues and polls."""
TIMED = """
import json, sys, time
clocks = lambda: (time.perf_counter(), time.process_time())
took = lambda start, end: [b - a for a, b in zip(start, end)]
started = clocks()
from pathlib import Path
from interplay.run import graph
from interplay.study import expand
plan = expand.plan_study(Path("configs"), "many", "smoke")
planned = clocks()
missing = graph.Graph(Path("results"), [plan]).missing(list(plan.stages))
ended = clocks()
folders = [f"{stage.kind}/{digest}" for digest, stage in plan.stages.items()]
print(json.dumps({"plan": took(started, planned), "look": took(planned, ended), "missing": len(missing), "folders": folders,
                  "torch": "torch" in sys.modules}))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, default=10_000)
    arms = parser.parse_args().stages // (2 * SEEDS)
    with tempfile.TemporaryDirectory() as name:
        project, plain = Path(name) / "project", Path(name) / "plain"
        lay_out(project, arms, SEEDS)
        planned = python(project, TIMED)
        count = len(planned["folders"])
        print(f"{count} stages of {arms + 1} arms, {SEEDS} seeds; torch imported: {planned['torch']}")
        show("interplay: compose, check, expand, digests", planned["plan"], count)
        show("interplay: which records are missing", planned["look"], count)
        plain.mkdir()
        (plain / "Snakefile").write_text(PLAIN.replace("COUNT", str(arms)))
        local, bare = [], []
        for _ in range(2):
            local.append(snakemake(project, "-n", "-q", "all", "--profile", "local"))
            bare.append(snakemake(plain, "-n", "-q", "all"))
        show("interplay: snakemake dry run, nothing done", min(local, key=CPU), count)
        show("plain snakemake: dry run, nothing done", min(bare, key=CPU), count)
        print(f"dry run, ratio: {min(map(CPU, local)) / min(map(CPU, bare)):.2f} (aim at most 1.3)")
        show("interplay: the same for Slurm", snakemake(project, "-n", "-q", "all", "--profile", "slurm"), count)
        scheduled = python(project, SCHEDULED, *map(str, GPUS))
        show(f"interplay: schedules on {', '.join(map(str, GPUS))} GPUs", scheduled["took"], count)
        for gpus, hours, busy in scheduled["on"]:
            print(f"    {gpus:4} GPUs: {hours:9.1f} h, {busy:4.0%} of their time in use")
        print(f"    {scheduled['gpu_hours']:.1f} GPU-hours, {scheduled['bytes'] / 1e12:.2f} TB left on disk")
        for folder in planned["folders"]:
            (project / "results" / folder).mkdir(parents=True)
            for file in ("stage.json", "record.json"):
                (project / "results" / folder / file).write_text('{"files": {}}\n')
        show("interplay: which records are missing, all done", python(project, TIMED)["look"], count)
        show("interplay: snakemake, nothing to do, links made", snakemake(project, "all", "--profile", "local"), count)
        show("interplay: snakemake, nothing to do, again", snakemake(project, "all", "--profile", "local"), count)
        fake(plain, arms)
        show("plain snakemake: nothing to do", snakemake(plain, "all"), count)


def lay_out(project: Path, arms: int, seeds: int) -> None:
    """A project with the study `many`."""
    for folder in ("rules", "configs", "workflows"):
        shutil.copytree(ROOT / folder, project / folder, symlinks=True)
    shutil.copy(ROOT / "Snakefile", project)
    for name in ("local", "slurm"):
        (project / name).symlink_to(f"workflows/profiles/{name}")
    rates = [float(f"{1e-5 * (1 + step / arms):.9g}") for step in range(arms)]
    grid = json.dumps({"rl.optimizer.learning_rate": rates})
    study = STUDY.replace("GRID", grid).replace("SEEDS", str(list(range(seeds))))
    (project / "configs/study/many.yaml").write_text(study)


def python(project: Path, program: str, *arguments: str) -> dict:
    """What a fresh process says."""
    command = [sys.executable, "-c", program, *arguments]
    return json.loads(subprocess.run(command, cwd=project, check=True, capture_output=True).stdout)


def snakemake(folder: Path, *flags: str) -> list[float]:
    """Seconds by the clock and of the CPU of a whole Snakemake process."""
    command = ["snakemake", *flags, "--cores", "2"]
    if (folder / "configs").exists():
        command += ["--config", "study=many", "scale=smoke"]
    return spent(folder, command)


def spent(folder: Path, command: Sequence[str]) -> list[float]:
    """Seconds by the clock and of the CPU of a command that succeeds. Snakemake leaves MLflow alone: where records are made by a
    bench and empty, it would try to mirror them each time."""
    environment = {key: value for key, value in os.environ.items() if key != "SNAKEMAKE_PROFILE"}
    environment["INTERPLAY_TRACK"] = "0"
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return [time.perf_counter() - started, cpu]


def fake(plain: Path, arms: int) -> None:
    """The files that the plain Snakefile would have made, inputs older than what is made of them."""
    names = [f"{arm}-{seed}" for arm in range(arms) for seed in range(SEEDS)]
    for path in [
        *DATA,
        "corpus",
        "base",
        "eval/base",
        *(f"rl/{name}" for name in names),
        *(f"eval/{name}" for name in names),
        "report",
    ]:
        (plain / "out" / path).parent.mkdir(parents=True, exist_ok=True)
        (plain / "out" / path).touch()


def show(what: str, seconds: list[float], stages: int) -> None:
    """One line. On a machine with other work the CPU's seconds are what to compare."""
    clock, cpu = seconds
    print(f"{what:48} {clock:8.2f} s  CPU {cpu:7.2f} s  {stages / cpu:9,.0f} stages a CPU second", flush=True)


if __name__ == "__main__":
    main()
