"""The `problems` stage: generated problem sets. The problem at (seed, index, op) is a pure function; a split is a part of the
space of structures.

Place j of a set of n draws from its own stream of indices j, j + n, j + 2n, ... and takes the first problem that falls in the
split (data.spec.SPLITS). Which of them repeat an earlier one is then decided in order of places, so the result does not depend
on how many processes did the work. A repeat (equal up to renaming and reordering) is replaced by the next problem of its stream;
an op with too few distinct problems may repeat after PATIENCE failed replacements. Every gold answer is checked by a solver that
reads only the prompt."""

import hashlib
import itertools
import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from interplay.core import artifact, execution, extension, metrics, model, random, references
from interplay.data import formats, harness, sets
from interplay.data.spec import BY_ROW, SPLITS, TEXTS, DatasetSpec, Defects, FieldName, ProblemsSpec, split_of
from interplay.tasks import multihop, programs, qa, transcripts, verdict
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
    spec = with_calibrated(spec, inputs)
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


def with_calibrated(spec: ProblemsSpec, inputs: Mapping[str, Path]) -> ProblemsSpec:
    """The spec with the ops that its calibration chose for each calibrated band, in equal shares."""
    if not spec.calibrated:
        return spec
    chosen = artifact.read_json(inputs["calibration"] / "bands.json")
    made = {band: dict.fromkeys(chosen[band], 1 / len(chosen[band])) for band in spec.calibrated}
    return spec.model_copy(update={"bands": {**spec.bands, **made}, "calibrated": {}})


def plan_places(spec: ProblemsSpec) -> list[Place]:
    """Band and op of every place: counts by largest remainder of share * op share * size, order shuffled by the seed."""
    shares = {Place(band, op): spec.shares[band] * share for band, ops in spec.bands.items() for op, share in ops.items()}
    counts = references.largest_remainder(list(shares.values()), spec.size)
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
        path, reader = find_file(spec, how), formats.reader_of(spec.format, fields_of(spec))
        entries, _ = read_items(path, reader, spec.defects, FIRST)
        return [row_of_entry(spec, entry, reader) for entry in entries[:most]]
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


# The `dataset` stage: the items of a file in a published format, as problems.


PUNCTUATION = re.compile(r"""[?"']|(?<!\d)!|(?<!\d),|,(?!\d{1,2}\b)""")
"""Punctuation that does not change a question: not the comma of `(1,2)`, the mark of `5!` or other signs of arithmetic."""
REMEDY = "correct the file, or declare defects: {{{reason}: skip}}"


def read_dataset(spec: DatasetSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `problems.parquet` and `keys.parquet`. Metrics: items `read`, `kept` and `skipped` by reason, rows (`size`), rows by
    op; of text also rows and characters by licence. Raises UserError when the file is absent or has changed since the plan, at a
    defect that the spec refuses, and where no item or fewer than `size` remain."""
    if spec.format == "lm_eval":
        given = harness.read_task(spec, str(how.path), out)
        entries, skipped, path = len(given), Counter[str](), Path(str(how.path))
    else:
        path = find_file(spec, how)
        reader = formats.reader_of(spec.format, fields_of(spec))
        found, skipped = read_items(path, reader, spec.defects)
        entries, given = len(found), [row_of_entry(spec, entry, reader) for entry in found]
    rows = choose_rows(spec, given, path)
    sets.write_table(sets.table_of_rows(rows), out)
    ops = Counter(row.op for row in rows)
    return {
        "read": entries + skipped.total(),
        "kept": entries,
        "skipped": dict(sorted(skipped.items())),
        "size": len(rows),
        "ops": {str(op): ops[op] for op in sorted(ops)},
        **({"licences": count_licences(spec, rows)} if spec.format in TEXTS else {}),
    }


def count_licences(spec: DatasetSpec, rows: list[verdict.Row]) -> dict[str, dict[str, int]]:
    """Licence -> its rows and their characters."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        licence = sets.problem_of(row).licence if spec.licence == BY_ROW else spec.licence
        found.setdefault(licence, Counter()).update(rows=1, characters=len(row.prompt) + len(row.solution))
    return {licence: dict(found[licence]) for licence in sorted(found)}


def fields_of(spec: DatasetSpec) -> dict[FieldName, str]:
    """What the file calls its fields. With licences by row `licence` is among them, so that a row without one is a defect."""
    return {"licence": "licence", **spec.fields} if spec.licence == BY_ROW else spec.fields


def find_file(spec: DatasetSpec, how: execution.Run) -> Path:
    """The path of the file. Raises UserError where it does not exist or its checksum is not that of the plan."""
    if how.path is None:
        raise model.UserError(
            f"dataset: the {spec.format} file with sha256 {spec.sha256} has no path; name its `file` in the study"
        )
    path = artifact.local_file(how.path)
    if not path.is_file():
        raise model.UserError(f"{path}: no such file; put the {spec.format} file with sha256 {spec.sha256} there")
    found = artifact.checksum(path)
    if found != spec.sha256:
        raise model.UserError(
            f"{path}: has sha256 {found}; put the {spec.format} file with sha256 {spec.sha256} there, or plan again"
        )
    return path


FIRST = 20
"""Items of a file that are read when a study is planned."""


def check_first_items(path: Path, spec: DatasetSpec) -> None:
    """Raises UserError where one of the first items of a file is a defect that the study refuses, or where there is none."""
    kept, skipped = read_items(path, formats.reader_of(spec.format, fields_of(spec)), spec.defects, FIRST)
    if not kept and not skipped:
        raise model.UserError(f"{path}: no items; a {spec.format} file holds one object at least")


def read_items(
    path: Path, reader: formats.Reader, defects: Defects, most: int | None = None
) -> tuple[list[formats.Entry], Counter[str]]:
    """All items of a file in order, or the first, without skipped ones; and those by reason. Raises UserError at a defect that
    `defects` refuses."""
    entries: list[formats.Entry] = []
    skipped: Counter[str] = Counter()
    seen: dict[str, str] = {}
    for where, raw in itertools.islice(reader.split(path), most):
        try:
            entries.append(_new_entry(reader, raw, where, seen))
        except sets.ItemError as defect:
            if getattr(defects, defect.reason) == "refuse":
                name = defect.id or (formats.item_name(raw) if isinstance(raw, dict) else "")
                ident = f" (id {name[:80]!r})" if name else ""
                remedy = REMEDY.format(reason=defect.reason)
                if reader.renamed and defect.reason == "missing_field":
                    remedy = f"name the file's own in fields, such as {{answer: target}}, {remedy}"
                raise model.UserError(f"{path}: {where}{ident}: {defect.message}; {remedy}") from None
            skipped[defect.reason] += 1
    return entries, skipped


def _new_entry(reader: formats.Reader, raw: dict[str, Any] | sets.ItemError, where: str, seen: dict[str, str]) -> formats.Entry:
    """The entry of an object. Raises ItemError where it is a defect, or an earlier entry has its id (its question, where it has
    no id)."""
    if isinstance(raw, sets.ItemError):
        raise raw
    found = reader.parse(raw, where)
    _check_encodable(found.problem)
    ident = found.id or question_of(found)
    if ident in seen:
        same = "text" if isinstance(found.problem, transcripts.Passage) else "id"
        raise sets.ItemError("duplicate_id", f"{seen[ident]} has the same {same}", ident)
    seen[ident] = where
    return found


def _check_encodable(problem: tuple[Any, ...]) -> None:
    """Raises ItemError where a text has a lone surrogate, which cannot be encoded in UTF-8."""
    try:
        json.dumps(problem, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise sets.ItemError("broken", "a text has a lone surrogate (half of a character)") from None


def question_of(entry: formats.Entry) -> str:
    """The question of an entry; of text, all of it."""
    match entry.problem:
        case qa.Problem() | programs.Problem() as problem:
            return problem.question
        case multihop.Problem() as problem:
            return problem.item.question
    return entry.id


def question_key(text: str) -> str:
    """16 hex digits of a question in normal form, so that spelling variants are in the same split: lower case, single blanks,
    without punctuation that cannot change it. Signs are kept: 12 + 3 and 12 - 3 are two questions."""
    return _hex_digits(" ".join(PUNCTUATION.sub("", text.lower()).split()).rstrip(". "))


def _hex_digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def row_of_entry(spec: DatasetSpec, entry: formats.Entry, reader: formats.Reader) -> verdict.Row:
    """The entry as a row. Its key is that of the question, or of the words of a text."""
    key = question_key(question_of(entry))
    match entry.problem:
        case qa.Problem() as problem:
            mode, graph = "open", qa.dumps(problem)
            prompt, solution, answer = qa.render(problem)
        case programs.Problem() as problem:
            mode, graph = "open", programs.dumps(problem)
            prompt, solution, answer = programs.render(problem)
        case multihop.Problem() as problem:
            mode, graph = "plain", multihop.dumps(problem)
            prompt, solution, answer = multihop.render(problem, "published")
        case transcripts.Passage() as passage:
            mode, (prompt, solution, answer) = transcripts.passage_row(passage)
            graph, key = transcripts.dumps(passage), _hex_digits(entry.id)
    return verdict.Row(0, 0, spec.band, entry.op, mode, prompt, solution, answer, graph, key, reader.family, "")


def choose_rows(spec: DatasetSpec, rows: list[verdict.Row], path: Path) -> list[verdict.Row]:
    """`size` rows of the split, in an order drawn from the seed. Raises UserError where there are fewer, or none."""
    mine = [row for row in rows if spec.split is None or split_of(row.key) == spec.split]
    part = f"of split '{spec.split}'" if spec.split else "in all"
    if not mine or (spec.size and spec.size > len(mine)):
        raise model.UserError(
            f"{path}: size = {spec.size}: the file has {model.plural(len(mine), 'item')} {part}; ask for no more than it has"
        )
    ordered = sorted(mine, key=lambda row: (random.stream_key("dataset", spec.seed, row.key), row.graph))
    return ordered[: spec.size]
