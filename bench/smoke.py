"""Seconds from `interplay run quickstart --scale smoke` to its verdicts, in a fresh project with its mirror in MLflow, and what
they go to.

    python bench/smoke.py [--rounds 2] [--cores 2]

Needs idle cores for the time by the clock; CPU seconds depend on load less. Aim: 25 s by the clock on two cores."""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from plan import ROOT  # bench/plan.py

from interplay.core import artifact

AIM = 25.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cores", default="2")
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as name:
            measure(Path(name), arguments.cores)


def measure(project: Path, cores: str) -> None:
    """One run, and the CPU seconds of its stages by kind."""
    for folder in ("rules", "configs", "workflows"):
        shutil.copytree(ROOT / folder, project / folder, symlinks=True)
    shutil.copy(ROOT / "Snakefile", project)
    (project / "local").symlink_to("workflows/profiles/local")
    command = ["interplay", "run", "quickstart", "--scale", "smoke", "--profile", "local", "--cores", cores]
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    clock, after = time.perf_counter() - started, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    kinds: dict[str, float] = defaultdict(float)
    for path in project.glob("results/*/*/telemetry.json"):
        kinds[path.parts[-3]] += artifact.read_json(path)["seconds_cpu"]
    parts = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in sorted(kinds.items(), key=lambda item: -item[1]))
    rest = cpu - sum(kinds.values())
    print(f"{clock:.1f} s by the clock, ratio {clock / AIM:.2f} to the aim; CPU {cpu:.1f} s: {parts}, everything else {rest:.1f}")


if __name__ == "__main__":
    main()
