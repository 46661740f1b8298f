"""Seconds of `interplay judge FILE...`, a process each, start included: two systems, 10,000 items each, as a CSV, as samples of
lm-eval and as Parquet. Aim: below 2 s, without torch.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/judge.py [--items 10000]
"""

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet


def write(folder: Path, ending: str, rates: np.ndarray, draw: np.random.Generator) -> Path:
    """One system's scores."""
    right = (draw.random(len(rates)) < rates).astype(float).tolist()
    path = folder / (f"samples_task_0{ending}" if ending == ".jsonl" else f"{folder.name}{ending}")
    if ending == ".parquet":
        parquet.write_table(pa.table({"item": range(len(right)), "score": right}), path)
    elif ending == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("item", "score"), *enumerate(right)])
    else:
        rest = {"doc": {"question": "q" * 600}, "arguments": {"gen_args_0": {"arg_0": "q" * 1200}}, "resps": [["a" * 400]]}
        rows = [{"doc_id": i, **rest, "filtered_resps": ["a"], "metrics": ["acc"], "acc": one} for i, one in enumerate(right)]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    items, draw = parser.parse_args().items, np.random.default_rng(0)
    hard = draw.random(items)
    for ending in (".csv", ".jsonl", ".parquet"):
        with tempfile.TemporaryDirectory() as root:
            paths = []
            for name, lift in (("small", 0.0), ("large", 0.02)):
                folder = Path(root) / name
                folder.mkdir()
                paths.append(write(folder, ending, hard + lift, draw))
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "interplay", "judge", *map(str, paths)]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"{ending:9} {time.perf_counter() - began:5.2f} s, {cpu:5.2f} s of a processor: {said.splitlines()[0]}")


if __name__ == "__main__":
    main()
