"""Rows a second and peak memory of what reads the completions of a study, with millions of them.

    OMP_NUM_THREADS=1 python bench/stream.py [--rows 10000000] [--bound 1000]

A real smoke study is run first. Then its RL stages get as many rollouts as asked, together, in the columns and row groups of
the product: each row has a problem of scale laptop and a completion made of its gold solution, right or with a wrong value, a
step left out, or cut short (a fixture of this bench, in a temporary folder). One more stage gets all rows in one file, for
what reads a single stage. Each way to read them is a process of its own; its peak is VmHWM, since ru_maxrss of a child begins
with that of its parent. `write` is the end of an RL stage that joins a tenth of the rows from the files of its steps. With a
bound (MB) the exit code is 1 where a peak is above it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from plan import lay_out, spent  # bench/plan.py

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.data import trajectory
from interplay.data.problems import generate_problems
from interplay.data.spec import ProblemsSpec
from interplay.rl import records
from interplay.study.expand import plan_study

SEEDS, PER_STEP, WRONG = 4, 1000, ("none", "value", "missing_node", "parse")
WAYS = {
    "load: stream of all RL stages": """
import interplay
kept = interplay.load("many", "smoke")
rows = right = 0
for part in kept.stream("rl"):
    rows, right = rows + len(part), right + int(part["strict"].sum())
print(rows, "rows,", right, "right;", part.dtypes["reward"], part.dtypes["error"])
""",
    "load: stream of three columns": """
import interplay
print(sum(len(part) for part in interplay.load("many", "smoke").stream("rl", columns=["step", "reward", "strict"])), "rows")
""",
    "interplay rollouts, one stage": """
from interplay.cli import main
import sys
sys.argv = ["interplay", "rollouts", "ONE", "--failed", "-n", "3"]
sys.exit(main())
""",
    "page of interplay open, one class": """
from pathlib import Path
from interplay.report.inspect import stage_view
page = stage_view.browse_rollouts(Path("results/rl/ONE"), stage_view.Choice(error="missing_node", page=7))
print(page["total"], "of that class,", page["distinct"], "different,", len(page["rows"]), "shown")
""",
    "page of interplay open, all": """
from pathlib import Path
from interplay.report.inspect import stage_view
page = stage_view.browse_rollouts(Path("results/rl/ONE"), stage_view.Choice())
print(page["total"], "rows,", page["distinct"], "different,", len(page["steps"]), "steps")
""",
    "write: end of an RL stage": """
from pathlib import Path
from interplay.rl import records
records.finish(Path("written"), len(list(Path("written/resume/steps").iterdir())))
""",
}
TIMED = """
import sys, time
started = time.perf_counter(), time.process_time()
try:
    exec(sys.argv[1])
except SystemExit as end:
    assert not end.code, end.code
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("took", time.perf_counter() - started[0], time.process_time() - started[1], int(peak) * 1024 / 1e6)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--bound", type=float, help="MB that no peak may exceed")
    arguments, high = parser.parse_args(), []
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "project"
        lay_out(project, 1, SEEDS)
        spent(project, ("snakemake", "all", "--profile", "local", "--cores", "1", "--config", "study=many", "scale=smoke"))
        plan = plan_study(project / "configs", "many", "smoke")
        stages = [artifact.folder(project / "results", "rl", one.digest) for one in plan.stages.values() if one.kind == "rl"]
        pool = problems(project)
        for number, out in enumerate(stages):
            write(out / "rollouts.parquet", pool, arguments.rows // len(stages), number)
        one = project / "results/rl" / ("0" * 12)
        one.mkdir()
        (one / "stage.json").write_bytes((stages[0] / "stage.json").read_bytes())
        write(one / "rollouts.parquet", pool, arguments.rows, len(stages))
        steps = project / "written/resume/steps"
        steps.mkdir(parents=True)
        for step, rows in enumerate(tables(pool, arguments.rows // 10, 99, PER_STEP), 1):
            (steps / f"{step}.json").write_text(json.dumps({"rollouts": rows.to_pylist(), "history": []}))
        size = sum(path.stat().st_size for path in [*(out / "rollouts.parquet" for out in stages), one / "rollouts.parquet"])
        print(f"2 x {arguments.rows:,} rows in {len(stages) + 1} files, {size / 2e6:,.0f} MB each time")
        for what, script in WAYS.items():
            made = python(project, script.replace("ONE", one.name))
            *said, last = made.strip().splitlines()
            clock, cpu, peak = map(float, last.split()[1:])
            rows = arguments.rows // (10 if what.startswith("write") else 1)
            print(f"{what:36}{clock:8.1f} s {cpu:8.1f} CPU s {rows / clock:12,.0f} rows/s   peak {peak:6,.0f} MB   {said[-1:]}")
            high += [what] if arguments.bound and peak > arguments.bound else []
    sys.exit(f"above {arguments.bound:g} MB: {', '.join(high)}" if high else 0)


def problems(project: Path) -> list[dict[str, Any]]:
    """Those that RL trains on at scale laptop."""
    plan = plan_study(project / "configs", "many", "laptop")
    spec = next(one.spec for one in plan.stages.values() if one.label == "data.edge")
    assert isinstance(spec, ProblemsSpec)
    generate_problems(spec, {}, project / "edge", Run())
    return list(pq.read_table(project / "edge/problems.parquet").to_pylist())


def tables(pool: list[dict[str, Any]], rows: int, seed: int, most: int) -> Iterator[pa.Table]:
    """Rollouts in tables of at most so many rows."""
    random = np.random.default_rng(seed)
    for start in range(0, rows, most):
        count = min(most, rows - start)
        chosen, wrong = random.integers(len(pool), size=count).tolist(), random.integers(len(WRONG), size=count).tolist()
        where = random.random((count, 2)).tolist()
        texts = [spoiled(pool[i]["solution"], kind, *at) for i, kind, at in zip(chosen, wrong, where, strict=True)]
        right = np.array(wrong) == 0
        values = {
            "step": 1 + np.arange(start, start + count) // PER_STEP,
            "set": np.zeros(count),
            "index": [pool[i]["index"] for i in chosen],
            "prompt": [pool[i]["prompt"] for i in chosen],
            "completion": texts,
            "reward": right,
            "strict": right,
            "answer": right,
            "score": right,
            "error": [WRONG[kind] for kind in wrong],
            "advantage": random.normal(size=count),
            "truncated": np.array(wrong) == WRONG.index("parse"),
            "length": [len(text) for text in texts],
        }
        schema = trajectory.schema_of(records.ROLLOUTS)
        yield pa.table([pa.array(values[one.name]).cast(one.type) for one in schema], schema=schema)


def spoiled(solution: str, kind: int, where: float, by: float) -> str:
    """The solution, or with one character changed, one step less, or cut."""
    steps = solution.split(",")
    at = int(where * len(solution))
    if kind == 0:
        return solution
    if kind == 1:
        return f"{solution[:at]}{int(10 * by)}{solution[at + 1 :]}"
    return ",".join(steps[: int(where * len(steps))] + steps[1 + int(where * len(steps)) :]) if kind == 2 else solution[:at]


def write(path: Path, pool: list[dict[str, Any]], rows: int, seed: int) -> None:
    """Row groups as an RL stage writes them."""
    with pq.ParquetWriter(path, trajectory.schema_of(records.ROLLOUTS)) as writer:
        for table in tables(pool, rows, seed, trajectory.ROWS):
            writer.write_table(table)


def python(project: Path, script: str) -> str:
    """What a process printed."""
    made = subprocess.run([sys.executable, "-c", TIMED, script], cwd=project, capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"{script}\n{made.stdout}{made.stderr}")
    return made.stdout


if __name__ == "__main__":
    main()
