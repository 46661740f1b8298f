"""Checksums of what stages leave, for a comparison before and after a change of the code, on one machine:

    python -m tools.contents make TABLE.tsv --work FOLDER [--scale smoke] [--every-member | --like TABLE.tsv] [STUDY ...]
    python -m tools.contents compare BEFORE.tsv AFTER.tsv

`make` runs the stages in FOLDER, each in a process forked from one that has imported the libraries, and writes one line a stage:
study, label, kind, digest, checksum of its metrics, checksum of its files. FOLDER keeps finished stages, so that a second call
goes on. `compare` pairs lines by digest, and those whose digest moved by study and label; exit code 1 if any content differs."""

import argparse
import hashlib
import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact
from interplay.run.graph import Graph
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage

ROOT = Path(__file__).parents[1]
LIBRARIES = ("numpy", "pandas", "pyarrow.parquet", "scipy.stats", "tokenizers", "torch", "torch._dynamo")
FAILED = "not made"


class Line(NamedTuple):
    """One stage of the table."""

    study: str
    label: str
    kind: str
    digest: str
    metrics: str
    files: str


def studies(configs: Path, scale: str) -> list[str]:
    """Names of the studies that have a lock at the scale."""
    suffix = f".{scale}.lock.json"
    return sorted(str(path.relative_to(configs / "plans")).removesuffix(suffix) for path in configs.glob(f"plans/**/*{suffix}"))


def values(spec: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each key of a spec with its value where that is a short word or a switch, without it otherwise."""
    if isinstance(spec, dict):
        for key, value in spec.items():
            yield from values(value, f"{path}.{key}")
    elif isinstance(spec, list):
        for value in spec:
            yield from values(value, path)
    else:
        yield path, str(spec) if isinstance(spec, (str, bool)) and len(str(spec)) < 24 else ""


def every_member(stages: dict[str, Stage]) -> list[str]:
    """Stages that together have each key, member and switch of all of them, the first in the order of labels; no reports."""
    seen, chosen = set[tuple[str, ...]](), []
    for stage in sorted(stages.values(), key=lambda one: (one.label.count("["), "seed0" not in one.label, one.label)):
        new = {(stage.kind, *value) for value in values(stage.as_json()["spec"])} - seen
        if new and stage.kind != "report":
            chosen.append(stage.digest)
            seen |= new
    return chosen


def in_order(stages: dict[str, Stage], wanted: list[str]) -> list[str]:
    """The wanted stages and all that they depend on, dependencies first."""
    return artifact.closure(wanted, lambda digest: stages[digest].inputs())


def make_all(stages: dict[str, Stage], order: list[str], processes: int) -> set[str]:
    """Make the stages in this order, some at once; the digests of those that failed or depend on one that did."""
    for name in LIBRARIES:
        importlib.import_module(name)
    failed, done, waiting, running = set[str](), set[str](), list(order), dict[int, str]()
    while waiting or running:
        for digest in list(waiting):
            deps = set(stages[digest].inputs())
            if deps & failed:
                failed.add(digest)
                waiting.remove(digest)
            elif deps <= done and len(running) < processes:
                waiting.remove(digest)
                running[_forked(digest)] = digest
        if running:
            process, status = os.wait()
            digest = running.pop(process)
            (failed if status else done).add(digest)
            print(f"{len(done)} of {len(order)} made, {len(failed)} failed", end="\r", file=sys.stderr)
    return failed


def _forked(digest: str) -> int:
    if process := os.fork():
        return process
    code = 1
    try:
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from interplay.run import stage

        code = stage.main(["run", digest])
    finally:
        os._exit(code)


def line_of(study: str, stage: Stage) -> Line:
    """The line of a stage in the table."""
    folder = artifact.folder(Path("results"), stage.kind, stage.digest)
    if not artifact.done(folder):
        return Line(study, stage.label, stage.kind, stage.digest, FAILED, FAILED)
    record = artifact.read_json(folder / "record.json")
    return Line(study, stage.label, stage.kind, stage.digest, _checksum(record["metrics"]), _checksum(record["files"]))


def _checksum(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_table(path: Path) -> list[Line]:
    """Lines of a table."""
    return [Line(*row.split("\t")) for row in path.read_text().splitlines()]


def make_table(options: argparse.Namespace) -> int:
    """`make`."""
    table: Path = options.table.absolute()
    options.like = options.like and options.like.absolute()
    options.work.mkdir(parents=True, exist_ok=True)
    os.chdir(options.work)
    for name in ("configs", "data"):
        if not Path(name).exists():
            Path(name).symlink_to(ROOT / name)
    plans = [
        plan_study(Path("configs"), name, options.scale) for name in options.study or studies(ROOT / "configs", options.scale)
    ]
    graph = Graph(Path("results"), plans)
    graph.write_stages()
    owners: dict[str, Plan] = {digest: plan for plan in reversed(plans) for digest in plan.stages}
    wanted = [plan.report for plan in plans]
    if options.like:
        named = {(line.study, line.label) for line in read_table(options.like)}
        wanted = [digest for digest, plan in owners.items() if (plan.study, plan.stages[digest].label) in named]
    elif options.every_member:
        wanted = every_member(graph.stages)
    order = in_order(graph.stages, wanted)
    failed = make_all(graph.stages, order, options.processes)
    lines = [line_of(owners[digest].study, graph.stages[digest]) for digest in order]
    table.write_text("".join("\t".join(line) + "\n" for line in sorted(lines)))
    print(f"{len(order) - len(failed)} of {len(order)} stages made; {table.name}")
    return int(bool(failed))


def compare_tables(options: argparse.Namespace) -> int:
    """`compare`."""
    found = Counter[str]()
    for before, after in pairs(read_table(options.before), read_table(options.after)):
        verdict = content_verdict(before, after)
        found[verdict] += 1
        line = after or before
        if line and verdict not in ("equal", "equal, digest moved"):
            print(f"{line.study} {line.label} {line.digest}: {verdict}")
    print(", ".join(f"{number} {verdict}" for verdict, number in sorted(found.items())))
    return int(bool(found["metrics differ"] + found["files differ"]))


def pairs(before: list[Line], after: list[Line]) -> Iterator[tuple[Line | None, Line | None]]:
    """Every line of both tables once: with the line of its digest, else of its study and label where one line on each side is
    left of these, else alone."""
    others = {line.digest: line for line in after}
    yield from ((line, others[line.digest]) for line in before if line.digest in others)
    known = {line.digest for line in before}
    left = _by_label(line for line in before if line.digest not in others)
    new = _by_label(line for line in after if line.digest not in known)
    for key in left | new:
        old, made = left.get(key, []), new.get(key, [])
        if len(old) == len(made) == 1:
            yield old[0], made[0]
        else:
            yield from ((line, None) for line in old)
            yield from ((None, line) for line in made)


def _by_label(lines: Iterable[Line]) -> dict[tuple[str, str], list[Line]]:
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line.study, line.label), []).append(line)
    return found


def content_verdict(before: Line | None, after: Line | None) -> str:
    """How the content of a stage compares."""
    if before is None or after is None:
        return "only after" if before is None else "only before"
    if FAILED in (before.files, after.files):
        return "not made"
    if before.metrics != after.metrics:
        return "metrics differ"
    if before.files != after.files:
        return "files differ"
    return "equal" if before.digest == after.digest else "equal, digest moved"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("make")
    make.add_argument("table", type=Path)
    make.add_argument("study", nargs="*")
    make.add_argument("--work", type=Path, required=True)
    make.add_argument("--scale", default="smoke")
    make.add_argument("--every-member", action="store_true", help="stages that together have each key, member and switch")
    make.add_argument("--like", type=Path, help="the stages of this table")
    make.add_argument("--processes", type=int, default=1)
    make.set_defaults(run=make_table)
    compare = commands.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.set_defaults(run=compare_tables)
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
