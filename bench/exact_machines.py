"""numerics: exact from machine to machine: what 20 steps of each kind leave, against bench/exact.json of another machine.

    python bench/exact_machines.py                                          # the six kinds of stages, one run of each
    python bench/exact_machines.py --kinds every --few                      # 36 cases over nine runs, any two values of two axes
    python bench/exact_machines.py --kinds pretrain,rl --all                # the whole product of the axes
    python bench/exact_machines.py --compiler none --device cuda --threads 2    # one run elsewhere

Hashes are of contents (tensors, rows of tables, logged values), since the bytes of a table name the version of pyarrow. Stages
are those of tests/unit/exact_cases.py, a decoder of two layers. Exits 1 with the first difference, and says what is refused.
"""

import argparse
import hashlib
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tests", "tests/unit")]

import exact_cases as cases  # type: ignore[import-not-found]  # noqa: E402  # of tests
import numpy as np  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from interplay.core.model import PermanentError, UserError  # noqa: E402

EXPECTED = ROOT / "bench/exact.json"
COMPILERS = {"": {}, "gcc": {"CC": "gcc"}, "clang": {"CC": "clang"}, "none": {"CC": "false"}}
COMPILERS["zig"] = {"CC": f"{sys.executable} -m ziglang cc"}
TOGETHER = 6
"""Kinds that a process makes, of which each imports for two seconds."""
Row = tuple[Any, ...]
"""Values of the axes of `exact_cases`."""


def contents(out: Path) -> dict[str, Any]:
    """sha256 of weights, state of the optimiser, tables and logged values, and how far the trainer is from the engine at most."""
    found: dict[str, Any] = {}
    for file in [out / "model/model.safetensors", *sorted(out.glob("resume/**/*.safetensors"))]:
        name, tensors = "state" if "resume" in file.parts else "model", load_file(file) if file.exists() else {}
        for key in sorted(tensors):
            x = tensors[key].contiguous()
            said = f"{found.get(name, '')} {key} {x.dtype} {tuple(x.shape)}".encode()
            found[name] = hashlib.sha256(said + x.view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
    for file in sorted(out.glob("*.parquet")):
        found[file.stem] = hashlib.sha256(json.dumps(pq.read_table(file).to_pydict(), default=str).encode()).hexdigest()
    if (out / "metrics.jsonl").exists():
        text = (out / "metrics.jsonl").read_text()
        found["metrics"] = hashlib.sha256(text.encode()).hexdigest()
        differing = [line[cases.DIFFERENCE] for line in map(json.loads, text.splitlines()) if cases.DIFFERENCE in line]
        found |= {"difference": max(differing)} if differing else {}
    return found


def made(folder: Path, kinds: list[str], steps: int, run: dict[str, Any]) -> None:
    """Makes the stages in this process, and prints a line of each."""
    for kind in kinds:
        try:
            found = cases.made(folder, kind, "exact", steps, contents, **run)
        except (UserError, PermanentError) as error:
            found = {"refused": str(error)}
        print(json.dumps([kind, found]), flush=True)


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]
    return {
        "processor": " ".join(named.get(key, "") for key in ("model name", "cpu family", "model")) or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "compiler": compiler,
        "libc": " ".join(platform.libc_ver()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def rows_of(options: argparse.Namespace) -> list[Row]:
    axes = [[(str if name == "processor" else int)(part) for part in getattr(options, name).split(",")] for name in cases.AXES]
    if options.few or options.all:
        axes = list(cases.AXES.values())
    rows = [row for row in itertools.product(*axes) if not row[2] == row[5] == 2]
    return cases.covering(rows) if options.few else rows


def runs(options: argparse.Namespace, folder: Path) -> Iterator[tuple[Row, str, Any]]:
    """What each stage leaves, in processes of `jobs` at a time, each of a few kinds of one row."""
    kinds = cases.KINDS if options.kinds == "every" else options.kinds.split(",")

    def child(row: Row, wanted: list[str]) -> list[tuple[Row, str, Any]]:
        run = dict(zip(list(cases.AXES)[1:], row[1:], strict=True)) | ({"gpus": 1} if options.device == "cuda" else {})
        paths = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment = {**os.environ, **paths, **cases.processor(row[0], folder), **COMPILERS[options.compiler]}
        given = ["--child", str(folder), json.dumps(run), "--kinds", ",".join(wanted), "--steps", str(options.steps)]
        command = [sys.executable, __file__, *given]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{row}: {done.stderr[-3000:]}")
        return [(row, *json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]

    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = []
        for row in rows_of(options):
            wanted = [kind for kind in kinds if not options.all or row in cases.rows_of(kind, True)]
            waiting += [
                pool.submit(child, row, some) for some in (wanted[i : i + TOGETHER] for i in range(0, len(wanted), TOGETHER))
            ]
        for done in as_completed(waiting):
            yield from done.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(cases.STAGES), help="separated by commas, or every")
    parser.add_argument("--steps", type=int, default=20)
    for name, values in cases.AXES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default=str(values[0]), help=f"separated by commas, of {values}")
    parser.add_argument("--few", action="store_true", help="nine runs in which any two values of two axes meet")
    parser.add_argument("--all", action="store_true", help="the whole product of the axes")
    parser.add_argument("--compiler", choices=COMPILERS, default="", help="of our kernels, on the native processor")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--expect", type=Path, default=EXPECTED)
    parser.add_argument("--write", action="store_true", help="write the file in place of comparing with it")
    parser.add_argument("--out", type=Path, help="write all that was found there, too")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        made(Path(options.child[0]), list(filter(None, options.kinds.split(","))), options.steps, json.loads(options.child[1]))
        return
    expected = {} if options.write else json.loads(options.expect.read_text())
    here, started, all_found, first = machine(), time.monotonic(), list[Any](), dict[str, Any]()
    print(json.dumps(here), flush=True)
    differences = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "world"
        folder.mkdir()
        cases.laid_out(folder)
        for row, kind, found in runs(options, folder):
            all_found.append({"kind": kind, "row": row, "found": found})
            first.setdefault(kind, found)
            wanted = expected["found"].get(kind) if expected else first[kind]
            other = [what for what in {**found, **(wanted or {})} if found.get(what) != (wanted or {}).get(what)]
            said = found.get("refused") or ("equal" if not other else "OTHER: " + ", ".join(other))
            print(
                kind, *row, said, "" if "refused" in found else json.dumps({k: str(v)[:12] for k, v in found.items()}), flush=True
            )
            if other and "refused" not in found:
                differences.append(f"{kind} {row}: {other[0]} is {found.get(other[0])}, not {(wanted or {}).get(other[0])}")
    refused = sum("refused" in one["found"] for one in all_found)
    differing = max((one["found"].get("difference", 0.0) for one in all_found), default=0.0)
    print(
        f"{len(all_found)} runs of {len(first)} kinds, {options.steps} steps: {len(differences)} differ, {refused} refused, "
        f"largest difference of trainer and engine {differing}; {time.monotonic() - started:.0f} s"
    )
    text = {"machine": here, "steps": options.steps, "compared_with": expected.get("machine")}
    if options.out:
        options.out.write_text(json.dumps({**text, "runs": all_found}) + "\n")
    if options.write and not differences:
        options.expect.write_text(json.dumps({"machine": here, "steps": options.steps, "found": first}, indent=1) + "\n")
    if differences:
        raise SystemExit(differences[0])


if __name__ == "__main__":
    main()
