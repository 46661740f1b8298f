"""A corpus of many tokens of one family, planned in shards, of which some are made as a scheduler would make them.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/corpus_scale.py --run 4                     # 1 % of ten billion tokens of prose
    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/corpus_scale.py --family op_dag --size 40000 --shards 10 --run 1

Writes a study with a pre-training stage on `size` problems in `shards` shards, plans it, lets `--processes` processes run the
first `--run` shards (`python -m interplay.run.stage run`: problems, then the corpus) and prints what they took, and what all
shards would take. Defaults: op_dag_prose at op 2..10, three themes and both modes evenly, a tokenizer of words, rows of 2,048
tokens.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from interplay.core import artifact
from interplay.core.metrics import read_telemetry
from interplay.results import estimate, state
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage

ROOT = Path(__file__).parent.parent
STUDY = """
defaults:
  - /task@task: {family}
  - _self_
question: What does a corpus of this size take?
tokenizer: {{algorithm: {tokenizer}}}
data:
  corpus: {{band: id, split: train, size: {size}, shards: {shards}}}
  test: {{band: id, split: test, size: 100}}
stages:
  base: {{kind: pretrain, data: {{corpus: 1.0}}}}
  eval: {{kind: evaluate, data: test}}
arms:
  base: {{path: [base]}}
evaluate: [eval]
seeds: {{values: [0], vary: []}}
scales:
  paper:
    bands: {{id: {ops}}}
    kinds:
      problems: {{run: {{threads: 1, memory_mb: 2000, runtime: 60}}}}
      corpus: {{sequence_length: 2048, packing: causal, loss_on: all, run: {{threads: 1, memory_mb: 3000, runtime: 60}}}}
"""
TOKENIZERS = {"op_dag": "characters"}
"""Families whose tokenizer is not one of words."""


def planned(folder: Path, options: argparse.Namespace) -> Plan:
    """The study, written into a copy of the configs and planned."""
    configs = folder / "configs"
    shutil.copytree(ROOT / "configs", configs, ignore=shutil.ignore_patterns("plans"))
    low, high = map(int, options.ops.split(".."))
    values = {"family": options.family, "tokenizer": TOKENIZERS.get(options.family, "words"), "size": options.size}
    text = STUDY.format(**values, shards=options.shards, ops=list(range(low, high + 1)))
    (configs / "study/corpus_scale.yaml").write_text(text)
    return plan_study(configs, "corpus_scale", "paper")


def make(stage: Stage, results: Path) -> Path:
    """Run a stage as a job does; its folder."""
    out = artifact.folder(results, stage.kind, stage.digest)
    artifact.write_json(out / "stage.json", stage.as_json())
    words = [sys.executable, "-m", "interplay.run.stage", "run", stage.digest, "--results", str(results)]
    subprocess.run(words, check=True, env=os.environ, stderr=subprocess.DEVNULL)
    return out


def spent(folders: list[Path]) -> dict[str, float]:
    """CPU seconds, bytes and the highest memory of finished stages."""
    telemetry: list[dict[str, Any]] = [read_telemetry(folder) for folder in folders]
    return {
        "cpu": sum(one["seconds_cpu"] for one in telemetry),
        "bytes": sum(size for folder in folders for size, _ in artifact.record(folder)["files"].values()),
        "memory": max(one["peak_memory_mb"] for one in telemetry),
    }


def main() -> None:
    """Plan, make and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=35_000_000, help="problems of the whole set")
    parser.add_argument("--shards", type=int, default=400, help="shards of the whole set")
    parser.add_argument("--run", type=int, default=4, help="shards that are made")
    parser.add_argument("--processes", type=int, default=2, help="stages that are made side by side")
    parser.add_argument("--family", default="op_dag_prose")
    parser.add_argument("--ops", default="2..10", help="LOW..HIGH, in equal shares")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name), options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    """The whole of it, in an empty folder."""
    started = time.monotonic()
    plan, results = planned(folder, options), folder / "results"
    print(f"{len(plan.stages):,} stages planned in {time.monotonic() - started:.1f} s", flush=True)
    made = estimate.estimate_launch(state.Library(plan.stages, results, {}), {})
    by_kind = {kind: [d for d, stage in plan.stages.items() if stage.kind == kind] for kind in ("problems", "corpus")}
    for kind, digests in by_kind.items():
        hours = sum(made.times[digest].seconds for digest in digests) / 3600
        print(f"estimated: {kind} {hours:.1f} hours of one core, {sum(made.bytes[d] or 0 for d in digests) / 1e9:.1f} GB")
    make(next(stage for stage in plan.stages.values() if stage.kind == "tokenizer"), results)
    chosen = [plan.stages[digest] for digest in by_kind["corpus"][: options.run]]

    def shard(packed: Stage) -> tuple[Path, Path]:
        return make(plan.stages[packed.deps["data.0"]], results), make(packed, results)

    started = time.monotonic()
    with ThreadPoolExecutor(options.processes) as pool:
        folders = list(pool.map(shard, chosen))
    print_costs(folders, time.monotonic() - started, options)


def print_costs(folders: list[tuple[Path, Path]], wall: float, options: argparse.Namespace) -> None:
    """Print what these shards took, and what all would take."""
    problem_sets, packed = [first for first, _ in folders], [second for _, second in folders]
    records = [artifact.record(folder)["metrics"] for folder in packed]
    problems, tokens = (sum(one[key] for one in records) for key in ("problems", "tokens"))
    longest, rows = max(one["longest_problem"] for one in records), sum(one["rows"] for one in records)
    costs = {"problems": spent(problem_sets), "corpus": spent(packed)}
    print(f"made: {problems:,} problems, {tokens:,} tokens ({tokens / problems:.1f} a problem, at most {longest}), {rows:,} rows")
    for kind, cost in costs.items():
        rate = f"{problems / cost['cpu']:,.0f} problems and {tokens / cost['cpu']:,.0f} tokens per CPU second"
        print(f"{kind}: {cost['cpu']:.0f} CPU s, {rate}, {cost['bytes'] / problems:.0f} bytes a problem, {cost['memory']:.0f} MB")
    cpu, size = (sum(cost[key] for cost in costs.values()) for key in ("cpu", "bytes"))
    print(f"in all {cpu:.0f} CPU s, {wall:.0f} s of wall clock on {options.processes} processes, {size / 1e9:.2f} GB")
    print(f"       {problems / wall:,.0f} problems/s, {tokens / wall:,.0f} tokens/s")
    within = sum(sum(artifact.record(folder)["metrics"]["duplicates"].values()) for folder in problem_sets)
    every, distinct = count_distinct(problem_sets)
    print(f"repeats: {within:,} within shards, {every - distinct - within:,} across them, of {every:,}")
    times = options.shards / len(folders)
    hours = {cores: cpu * times / 3600 / cores for cores in (2, 64)}
    print(
        f"all {options.shards} shards: {tokens * times / 1e9:.2f}G tokens, {cpu * times / 3600:.0f} CPU hours, {hours[2]:.1f} h "
        f"on 2 cores, {hours[64]:.1f} h on 64, {size * times / 1e9:.0f} GB"
    )


def count_distinct(folders: Iterable[Path]) -> tuple[int, int]:
    """(problems, distinct structures) of sets taken together, such as the shards of one. Reads the keys only, 8 bytes each."""
    keys = [pq.read_table(folder / "keys.parquet", columns=["key"])["key"].to_pylist() for folder in folders]
    numbers = np.concatenate([np.array([int(key, 16) for key in own], np.uint64) for own in keys])
    return len(numbers), len(np.unique(numbers))


if __name__ == "__main__":
    main()
