"""The `problems` stage: generated problem sets. The problem at (seed, index, op) is a pure function; a split is a part of the
space of structures.

Place j of a set of n draws from its own stream of indices j, j + n, j + 2n, ... and takes the first problem that falls in the
split (data.spec.SPLITS). Which of them repeat an earlier one is then decided in order of places, so the result does not depend
on how many processes did the work. A repeat (equal up to renaming and reordering) is replaced by the next problem of its stream;
an op with too few distinct problems may repeat after PATIENCE failed replacements. Every gold answer is checked by a solver that
reads only the prompt."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from interplay.core import artifact, execution, extension, metrics, model, random
from interplay.core.keys import largest_remainder
from interplay.data import foreign, sets
from interplay.data.spec import SPLITS, DatasetSpec, ProblemsSpec
from interplay.tasks import verdict
from interplay.tasks.families import add_own_family, task_family
from interplay.tasks.spec import OwnTask

PATIENCE = 20
"""Consecutive candidates that repeat earlier problems before an op may keep repeats."""
TRIES = 100
"""Times the expected number of candidates after which an op counts as having no problem in the split."""
CHUNK = 1000
"""Problems per message to a process."""


class Place(NamedTuple):
    """A place in the set: its band and op are fixed before any problem is drawn."""

    band: str
    op: int


class Generated(NamedTuple):
    """A generated problem, rendered and checked: the columns that depend on more than its place and family."""

    number: int
    """Column `index`."""
    mode: str
    prompt: str
    solution: str
    answer: str
    graph: str
    key: str


def generate_problems(spec: ProblemsSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `problems.parquet` and `keys.parquet` (data/sets.py). Metrics by op: problems, repeats replaced (`dropped`) and
    repeats kept (`duplicates`). Raises UserError where a split holds no problem of an op, RuntimeError where a gold answer is
    wrong."""
    spec = with_ops(spec, artifact.read_json(inputs["calibration"] / "bands.json")) if spec.calibrated else spec
    places = plan_places(spec)
    workers = min(how.threads, -(-spec.size // (4 * CHUNK)))
    with _process_pool(workers) as pool:
        made, counts = choose_problems(spec, places, pool)
    rows = _table(places, made, add_own_family(spec.task) if isinstance(spec.task, OwnTask) else spec.task.name)
    if spec.transform:
        rows = _apply_transform(rows, spec.transform)
    sets.write_table(rows, out)
    return {"size": rows.num_rows, **{name: {str(op): n for op, n in sorted(by_op.items())} for name, by_op in counts.items()}}


@contextmanager
def _process_pool(workers: int) -> Iterator[Executor | None]:
    """Worker processes, or None for a single process. Pending work is cancelled when the stage is stopped."""
    if workers <= 1:
        yield None
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _init_worker) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _init_worker() -> None:
    """In a worker: ignore SIGINT, which the stage handles, and exit when the stage is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent:
        parent.join()
        os._exit(1)


def with_ops(spec: ProblemsSpec, chosen: Mapping[str, Sequence[int]]) -> ProblemsSpec:
    """The spec with the ops that its calibration chose for each calibrated band, in equal shares."""
    made = {band: dict.fromkeys(chosen[band], 1 / len(chosen[band])) for band in spec.calibrated}
    return spec.model_copy(update={"bands": {**spec.bands, **made}, "calibrated": {}})


def plan_places(spec: ProblemsSpec) -> list[Place]:
    """Band and op of every place: counts by largest remainder of share * op share * size, order shuffled by the seed."""
    shares = {Place(band, op): spec.shares[band] * share for band, ops in spec.bands.items() for op, share in ops.items()}
    counts = largest_remainder(list(shares.values()), spec.size)
    cells = [place for place, count in zip(shares, counts, strict=True) for _ in range(count)]
    order = random.generator("problems", "order", spec.seed).permutation(len(cells))
    return [cells[i] for i in order]


def choose_problems(
    spec: ProblemsSpec, places: list[Place], pool: Executor | None
) -> tuple[list[Generated], dict[str, Counter[int]]]:
    """The problem of every place, and counts by op: `ops`, repeats `dropped`, and `duplicates` kept."""
    chosen: dict[int, Generated] = {}
    counts: dict[str, Counter[int]] = {name: Counter() for name in ("ops", "dropped", "duplicates")}
    seen: set[str] = set()
    failed: Counter[int] = Counter()
    progress = metrics.Progress(len(places), "problems")
    wanted = [(number, place.op) for number, place in enumerate(places)]
    while wanted:
        again = []
        for (index, op), made in zip(wanted, _make_in_chunks(spec, wanted, pool), strict=True):
            repeat = made.key in seen
            failed[op] = failed[op] + 1 if repeat else 0
            if repeat and spec.unique and failed[op] <= PATIENCE:
                counts["dropped"][op] += 1
                again.append((made.number + len(places), op))
                continue
            failed[op] = PATIENCE if repeat else 0
            seen.add(made.key)
            chosen[index % len(places)] = made
            counts["ops"][op] += 1
            counts["duplicates"][op] += repeat
            progress.update(len(chosen))
        wanted = again
    return [chosen[number] for number in range(len(places))], {name: +by_op for name, by_op in counts.items()}


def first_rows(spec: ProblemsSpec | DatasetSpec, how: execution.Run, most: int) -> list[verdict.Row]:
    """A few rows as the stage makes them, at most `most`: of a file its first, else problems of the first ops."""
    if isinstance(spec, DatasetSpec):
        path, reader = foreign.find_file(spec, how), foreign.reader_of(spec.format, foreign.fields_of(spec))
        entries, _ = foreign.read_items(path, reader, spec.defects, foreign.FIRST)
        return [foreign.row_of_entry(spec, entry, reader) for entry in entries[:most]]
    family = add_own_family(spec.task) if isinstance(spec.task, OwnTask) else spec.task.name
    ops = [Place(band, op) for band, shares in spec.bands.items() for op, share in shares.items() if share and spec.shares[band]]
    places = [ops[number % len(ops)] for number in range(min(most, spec.size))]
    made = make_problems(spec, [(number, place.op) for number, place in enumerate(places)])
    return [
        verdict.Row(0, one.number, place.band, place.op, *one[1:], family, "") for place, one in zip(places, made, strict=True)
    ]


def _make_in_chunks(spec: ProblemsSpec, wanted: list[tuple[int, int]], pool: Executor | None) -> Iterator[Generated]:
    chunks = [wanted[i : i + CHUNK] for i in range(0, len(wanted), CHUNK)]
    for made in pool.map(partial(make_problems, spec), chunks) if pool else map(partial(make_problems, spec), chunks):
        yield from made


def make_problems(spec: ProblemsSpec, wanted: list[tuple[int, int]]) -> list[Generated]:
    """For each (first index, op) the first problem of the stream that falls in the split.

    Raises UserError where the split holds none, and RuntimeError where solver and gold disagree."""
    task, family, split = spec.task, task_family(spec.task), SPLITS[spec.split]
    made = []
    for first, op in wanted:
        for index in range(first, first + spec.size * TRIES * 100 // len(split), spec.size):
            problem = family.generate(task, spec.seed, index, op)
            structure = family.structure(problem)
            if int(structure, 16) % 100 in split or family.shared(problem):
                break
        else:
            remedy = "allow more distractors or constants, or drop the op"
            raise model.UserError(
                f"problems: op {op} has too few structures for split '{spec.split}', which holds none; {remedy}"
            )
        prompt, solution, answer = family.render(problem, task)
        found = family.answer(task, problem, prompt)
        if found != answer:
            raise RuntimeError(
                f"problem (seed {spec.seed}, index {index}, op {op}): gold answer {answer}, but its prompt gives {found}"
            )
        made.append(Generated(index, problem.mode, prompt, solution, answer, family.dumps(problem), structure))
    return made


def _table(places: list[Place], made: list[Generated], name: str) -> pa.Table:
    bands, ops = zip(*places, strict=True)
    indices, *rest = zip(*made, strict=True)
    return sets.table_of_columns([indices, bands, ops, *rest, [name] * len(made), [""] * len(made), [()] * len(made)])


def _apply_transform(rows: pa.Table, transform: extension.Extension) -> pa.Table:
    """The rows after the study's own function. Raises UserError when it fails or does not return rows with these columns."""
    result = extension.call(transform, rows.to_pylist())
    try:
        table = pa.Table.from_pylist(result, schema=sets.COLUMNS)
    except (TypeError, AttributeError, pa.ArrowException) as error:
        raise model.UserError(
            f"{transform.function}: must return rows with the columns {', '.join(sets.COLUMNS.names)} ({error})"
        ) from None
    if not table.num_rows or any(column.null_count for column in table.columns):
        raise model.UserError(
            f"{transform.function}: must return at least one row, each with the columns {', '.join(sets.COLUMNS.names)}"
        )
    return table
