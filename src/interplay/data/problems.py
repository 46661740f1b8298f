"""Problem sets. The problem at (seed, index, op) is a pure function; which indices enter a set is decided in index order, so the
result does not depend on how many processes generated them.

Every gold answer is checked by a solver that reads nothing but the prompt. Problems equal to one of an excluded set, or to an
earlier one of this set, up to renaming and reordering are replaced by problems at further indices. An op may have too few distinct
problems for that: after PATIENCE candidates in vain an op is allowed repeats within the set, and after as many more also problems
of the excluded sets. Both are counted in the metrics."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from interplay.schema.base import UserError
from interplay.schema.data import ProblemsSpec
from interplay.schema.run import Run
from interplay.schema.task import Task
from interplay.store.metrics import Progress
from interplay.store.random import key
from interplay.tasks.table import family

PATIENCE = 20
"""Candidates rejected in a row before an op is given more room."""
CHUNK = 1000
"""Problems per message to a process."""
COLUMNS = pa.schema(
    [
        ("index", pa.int64()),
        ("band", pa.string()),
        ("op", pa.int32()),
        ("mode", pa.string()),
        ("prompt", pa.string()),
        ("solution", pa.string()),
        ("answer", pa.string()),
        ("graph", pa.string()),
        ("key", pa.string()),
    ]
)


class Slot(NamedTuple):
    """A place in the set: its band and op are fixed before any problem is drawn."""

    band: str
    op: int


class Candidate(NamedTuple):
    """A generated problem, rendered and checked."""

    index: int
    mode: str
    prompt: str
    solution: str
    answer: str
    graph: str
    key: str


def run(spec: ProblemsSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Write `problems.parquet`. Roles `exclude.<i>`: problem sets whose problems must not occur. See the module's docstring."""
    excluded: set[str] = set()
    for role, path in inputs.items():
        if role.startswith("exclude"):
            excluded.update(load(path, ["key"])["key"].to_pylist())
    slots = plan(spec)
    workers = min(how.threads, -(-spec.size // (4 * CHUNK)))
    with ProcessPoolExecutor(workers, get_context("spawn")) if workers > 1 else nullcontext() as pool:
        chosen, counts = choose(spec, slots, excluded, pool)
    write(out / "problems.parquet", slots, chosen)
    return {"size": spec.size, **{name: {str(op): n for op, n in sorted(by_op.items())} for name, by_op in counts.items()}}


def load(path: Path, columns: list[str] | None = None) -> pa.Table:
    """The problems of an artifact, in order. Raises UserError when the file is absent or not Parquet."""
    file = path / "problems.parquet"
    try:
        return pq.read_table(file, columns=columns)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{file}: not readable as a problem set ({str(error).splitlines()[0]}); make the stage again") from None


def plan(spec: ProblemsSpec) -> list[Slot]:
    """Band and op of every place: counts by largest remainder of share * op share * size, order shuffled by the seed."""
    shares = {Slot(band, op): spec.shares[band] * share for band, ops in spec.bands.items() for op, share in ops.items()}
    counts = largest_remainder(list(shares.values()), spec.size)
    cells = [slot for slot, count in zip(shares, counts, strict=True) for _ in range(count)]
    order = np.random.default_rng(key("problems", "order", spec.seed)).permutation(len(cells))
    return [cells[i] for i in order]


def largest_remainder(shares: list[float], total: int) -> list[int]:
    """Whole numbers that sum to `total`, as near to shares * total as can be (Hamilton's method; ties go to the earlier)."""
    exact = [share * total / sum(shares) for share in shares]
    counts = [int(value + 1e-9) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (round(counts[i] - exact[i], 9), i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def choose(
    spec: ProblemsSpec, slots: list[Slot], excluded: set[str], pool: Executor | None
) -> tuple[list[Candidate], dict[str, Counter[int]]]:
    """The problem of every slot, and counts by op: `ops`, candidates `dropped`, `duplicates` and `overlap` kept."""
    chosen: list[Candidate | None] = [None] * len(slots)
    counts: dict[str, Counter[int]] = {name: Counter() for name in ("ops", "dropped", "duplicates", "overlap")}
    seen: set[str] = set()
    room = {slot.op: 0 if spec.unique else 1 for slot in slots}
    """Per op what may be kept: 0 only fresh problems, 1 also repeats within the set, 2 anything."""
    vain: Counter[int] = Counter()
    open_slots, next_index = list(range(len(slots))), len(slots)
    wanted = [(slot, slots[slot].op) for slot in open_slots]
    progress, finished = Progress(len(slots), "problems"), 0
    while open_slots:
        rejected = []
        for slot, candidate in zip(open_slots, _candidates(spec.task, spec.seed, wanted, pool), strict=True):
            op, repeat, overlap = slots[slot].op, candidate.key in seen, candidate.key in excluded
            if (repeat and room[op] < 1) or (overlap and room[op] < 2):
                counts["dropped"][op] += 1
                vain[op] += 1
                if vain[op] == PATIENCE:
                    room[op], vain[op] = room[op] + 1, 0
                rejected.append(slot)
                continue
            vain[op] = 0
            seen.add(candidate.key)
            chosen[slot] = candidate
            counts["ops"][op] += 1
            counts["duplicates"][op] += repeat
            counts["overlap"][op] += overlap
            finished += 1
            progress.update(finished)
        open_slots = rejected
        wanted = [(next_index + i, slots[slot].op) for i, slot in enumerate(rejected)]
        next_index += len(rejected)
    return [candidate for candidate in chosen if candidate is not None], {name: +by_op for name, by_op in counts.items()}


def _candidates(task: Task, seed: int, wanted: list[tuple[int, int]], pool: Executor | None) -> Iterator[Candidate]:
    """One candidate per wanted (index, op), in order."""
    chunks = [wanted[i : i + CHUNK] for i in range(0, len(wanted), CHUNK)]
    make = partial(make_all, task, seed)
    for made in pool.map(make, chunks) if pool else map(make, chunks):
        yield from made


def make_all(task: Task, seed: int, wanted: list[tuple[int, int]]) -> list[Candidate]:
    """Generate, render and check the problems at (index, op). Raises RuntimeError where solver and gold disagree."""
    module = family(task)
    made = []
    for index, op in wanted:
        problem = module.generate(task, seed, index, op)
        prompt, solution, answer = module.render(problem, task)
        solved = module.solve(prompt, task)
        if solved != answer:
            raise RuntimeError(f"problem (seed {seed}, index {index}, op {op}): gold answer {answer}, but its prompt gives {solved}")
        graph, structure = module.dumps(problem), module.structure(problem)
        made.append(Candidate(index, problem.mode, prompt, solution, answer, graph, structure))
    return made


def write(path: Path, slots: list[Slot], chosen: list[Candidate]) -> None:
    """zstd Parquet; equal problems give equal bytes."""
    columns = list(zip(*slots, strict=True)), list(zip(*chosen, strict=True))
    (bands, ops), (indices, *rest) = columns
    arrays = [pa.array(values, field.type) for values, field in zip([indices, bands, ops, *rest], COLUMNS, strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(arrays, schema=COLUMNS), path, compression="zstd", row_group_size=1 << 16)
