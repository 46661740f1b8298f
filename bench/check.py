"""A gate on speed: training and rollouts of 0.86M parameters held to the bounds in bench/bounds.json; exit code 1 where one is
missed, and 2 on a processor that they are not for.

    OMP_NUM_THREADS=1 PYTHONPATH=src python bench/check.py        # `make bench-check`

A bound is the least ratio to the fastest peer, or the least share of the GEMM floor; both sides of each are measured in this run
(bench/train.py, bench/rollout.py), so a slower machine changes them little. They lie at about 80 % of what was measured on a
busy machine: at a load of six on two cores the ratio of int8 rollouts fell by a fifth, and their share by a third. They are for
x86-64 with products of bfloat16 and of 8-bit integers (avx512_bf16, avx512_vnni): the ratio between two dtypes is a property of
the processor."""

import json
import sys
import tempfile
from pathlib import Path

BOUNDS = Path(__file__).with_name("bounds.json")
NEEDED = {"avx512_bf16", "avx512_vnni"}
Table = dict[str, dict[str, dict[str, float]]]
"""Work -> contestant -> `ratio`, `share` -> value."""


def has_instructions() -> bool:
    """Whether the bounds are for this processor."""
    try:
        flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        return False
    return set(flags.split()) >= NEEDED


def missed(bounds: Table, found: Table) -> int:
    """Print a line for each bound; the number of those that were missed. Raises KeyError where one was not measured."""
    count = 0
    for work, contestants in bounds.items():
        for name, values in contestants.items():
            for what, bound in values.items():
                value = found[work][name][what]
                count += value < bound
                meaning = "of the best peer" if what == "ratio" else "of the GEMM floor"
                verdict = "MISSED" if value < bound else "met"
                print(f"  {work:12} {name:38} {value:6.2f} {meaning:18} at least {bound:.2f}  {verdict}")
    return count


def measured(rounds: int) -> Table:
    """Small sizes of both benches, which print their tables."""
    import rollout  # bench/rollout.py
    import torch
    import train  # bench/train.py
    from gemm import quiet

    torch.set_num_threads(1)
    quiet()
    found: Table = {}
    with tempfile.TemporaryDirectory() as name:
        setting = train.prepare(Path(name) / "train", train.shape_of(train.SIZES["0.9m"]), 0, 4096)
        found["training"] = train.measure(setting, rounds, ["length"])
    with tempfile.TemporaryDirectory() as name:
        path = rollout.nano_model(Path(name))
        for sequences in (32, 128):
            found[f"rollouts {sequences}"] = rollout.measure(path, sequences, rounds)
    return found


def main() -> int:
    if not has_instructions():
        print(f"the bounds are for processors with {' and '.join(sorted(NEEDED))}; this one lacks them", file=sys.stderr)
        return 2
    return 1 if missed(json.loads(BOUNDS.read_text()), measured(rounds=5)) else 0


if __name__ == "__main__":
    sys.exit(main())
