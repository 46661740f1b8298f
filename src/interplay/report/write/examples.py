"""What models wrote, on the page: one problem before and after training, and completions by class of error.

Read from samples and problem sets where they are on disk; a report without them has neither. All choices are deterministic."""

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.parquet as pq

from interplay.core.artifact import read_json
from interplay.core.model import escape_control
from interplay.data.sets import read_problems
from interplay.data.trajectory import SEGMENTS, shown_text
from interplay.kinds.table import KINDS
from interplay.report.inspect import compare
from interplay.report.stats import frame
from interplay.report.write import answers, headline, tables
from interplay.tasks.families import judge_family
from interplay.tasks.family import Family
from interplay.tasks.spec import FAMILIES
from interplay.tasks.transcripts import MARK

COLUMNS = ["index", "sample", "band", "op", "error", "strict", "completion"]
PROBLEM = ["prompt", "solution", "answer", "graph", "family"]
TRIED = 12
"""Flipped prompts among which one with a located error is looked for."""
LONGEST = 600
"""Characters of a text that are shown."""
PER_CLASS = 3
"""Completions of each class of errors of an arm."""
MOST_ARMS, MOST_BYTES = 5, 160_000
"""Bounds of what the page carries."""


class Piece(NamedTuple):
    """A step of a completion, or a sentence of one that is plain."""

    text: str
    wrong: str = ""
    """What is wrong with it; empty where nothing is, or where the family does not judge steps."""
    differs: bool = False
    """Whether the reference solution has no such step."""


class Problem(NamedTuple):
    """A problem as people read it."""

    given: list[tuple[str, bool]]
    """What is given, and whether the answer needs it."""
    asks: str
    reference: list[Piece]


class Side(NamedTuple):
    """What one arm made of a problem."""

    arm: str
    right: int
    n: int
    error: str
    """Class of the completion that most of its samples share."""
    pieces: list[Piece]


class Worked(NamedTuple):
    """One problem before and after training."""

    band: str
    op: int
    seed: int
    problem: Problem
    sides: list[Side]


def plain_family(row: dict[str, Any]) -> Family[Any] | None:
    """The family of a row of a problem set; None where it is a user's own, whose code a page does not run."""
    return judge_family(row["family"]) if row["family"] in FAMILIES else None


def plain_problem(row: dict[str, Any]) -> Problem:
    """The problem of a row of a problem set in plain notation, by its family."""
    family = plain_family(row)
    if family is None or family.plain_problem is None:
        return Problem([(escape_control(shorten(row["prompt"])), True)], "", plain_completion(row, row["solution"]))
    shown = family.plain_problem(family.loads(row["graph"]))
    return Problem(shown.given, shown.asks, plain_completion(row, row["solution"]))


def plain_completion(row: dict[str, Any], completion: str) -> list[Piece]:
    """A completion of the problem of a row, its steps marked."""
    family = plain_family(row)
    if family is not None and family.plain_steps is not None:
        graph = family.loads(row["graph"])
        reference = {step.text for step in family.plain_steps(graph, row["solution"])}
        pieces = [Piece(text, wrong, text not in reference) for text, wrong in family.plain_steps(graph, completion)]
        ends = itertools.accumulate(len(piece.text) for piece in pieces)  # cut once all is judged: half a step would be wrong
        return [piece for piece, end in zip(pieces, ends, strict=True) if end <= LONGEST]
    reference = {piece.lower() for piece in sentences(row["solution"])}
    return [Piece(piece, "", piece.lower() not in reference) for piece in sentences(shorten(completion))]


def sentences(text: str) -> list[str]:
    """Turns, lines and sentences of a plain text, what a terminal or a page would obey written out."""
    return [escape_control(piece.strip()) for piece in re.split(rf"(?<=[.;!?])\s+|[\n{MARK}]+", text) if piece.strip()]


def shorten(text: str) -> str:
    """The beginning of a text, and its end, which holds the question."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 3]} … {text[-2 * LONGEST // 3 :]}"


def lead_pair(made: answers.Answer, lead: headline.Headline) -> tuple[str, str, str | None] | None:
    """(arm before, arm after, column) of what the page leads with: the arms of its claim, else of the first difference of arms.
    None where the study compares no arms."""
    test = lead.claim.claim.test if lead.claim else None
    if test is not None and test.against is not None:
        return test.against, test.arm, test.band or None
    pairs = [pair for pair in tables.difference_pairs(made.results) if test is None or test.arm in pair]
    return (pairs[0][1], pairs[0][0], test.band or None if test else None) if pairs else None


def worked_problem(made: answers.Answer, before: str, after: str, column: str | None) -> Worked | None:
    """A prompt on which most samples of the one arm are wrong and of the other right, in the direction of the difference: of
    those that changed most the first with a wrong step that leads to a wrong answer. Where none flipped, one that changed, else
    the first that was not always right. None where no samples are here."""
    results = made.results
    evaluations = {(row.arm, row.seed): row.evaluations for row in results.spec.arms}
    flips: list[compare.Flip] = []
    for (arm, seed), named in evaluations.items():
        for name, one in named.items() if arm == before else []:
            other = evaluations.get((after, seed), {}).get(name, "")
            if {one, other} <= results.prompts.keys() and one != other:
                flips += compare.prompt_pairs(results, seed, one, other, column)
    gains = sum(flip.change for flip in flips) >= 0
    moved = [flip for flip in flips if flip.change and (flip.change > 0) == gains]
    chosen = [flip for flip in moved if flip.majority] or moved or [flip for flip in flips if flip.right != flip.n]
    chosen.sort(key=lambda flip: (-abs(flip.change), flip.prompt, flip.seed))
    found: list[tuple[int, Worked]] = []
    for flip in chosen[:TRIED]:
        if (one_worked := _worked(results, flip, (before, after))) is not None:
            pieces = one_worked.sides[not gains].pieces  # none where a model wrote nothing
            found.append((any(piece.wrong for piece in pieces[:-1]) + any(piece.wrong for piece in pieces[-1:]), one_worked))
    return max(found, key=lambda item: item[0])[1] if found else None


def _worked(results: frame.Results, flip: compare.Flip, arms: tuple[str, str]) -> Worked | None:
    folders = [[results.folders[block] for block in results.spec.blocks_of(digest)] for digest in flip.digests]
    row = next(iter(problem_rows(results, flip.digests[0], [flip.prompt]).values()), None)
    if row is None or not all(_holds(folder / "samples.parquet", COLUMNS) for of in folders for folder in of):
        return None
    sides = []
    for arm, right, n, blocks in zip(arms, flip.right, flip.n, folders, strict=True):
        completion, _, error = compare.typical_completion(blocks, flip.prompt)
        sides.append(Side(arm, right, n, error, plain_completion(row, completion)))
    at: Any = results.prompts[flip.digests[0]].loc[flip.prompt].to_dict()
    return Worked(str(at["band"]), int(at["op"]), flip.seed, plain_problem(row), sides)


def problem_rows(results: frame.Results, evaluation: str, wanted: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Index -> row of the problem set of an evaluation, or of the source rows of a stage that writes others, of those that are
    wanted; none where the set is not here."""
    deps = results.records[evaluation]["deps"]
    data = deps.get("data") or deps.get("data.0", "")
    folder = results.folders[evaluation].parent.parent
    path = next(iter(sorted(folder.glob(f"*/{data}/problems.parquet"))), None)
    if path is None or not _holds(path, PROBLEM):
        return {}
    return read_problems(path.parent, wanted, PROBLEM)


class Absent(NamedTuple):
    """What a partial clone lacks of the finished stages that a page shows."""

    stages: str
    """`8 evaluate, 1 problems`; empty where all is here."""
    completions: bool
    """Whether evaluations have no samples here, or no problems."""
    commands: list[tuple[str, str]]


def absent_payloads(results: frame.Results) -> Absent:
    """The stages of which a file of the record is not on this machine, by kind, and the commands that bring them."""
    lacking = [
        results.records[digest]["kind"]
        for digest, folder in results.folders.items()
        if any(not (folder / name).exists() for name in results.records[digest]["files"])
    ]
    spec, rows = results.spec, pd.Series(lacking).value_counts()
    words = f"{shlex.quote(spec.study)} --scale {shlex.quote(spec.scale)}"
    return Absent(
        ", ".join(f"{count} {kind}" for kind, count in rows.items()),
        any(KINDS[kind].makes in ("samples", "problems") for kind in rows.index),
        [(f"interplay store pull {words}", "Fetch them from the DVC remote, and make this page again")],
    )


def _holds(path: Path, columns: list[str]) -> bool:
    """Whether the file is there with these columns."""
    return path.exists() and set(columns) <= set(pq.read_schema(path).names)


# Completions of the evaluations by arm and class of error.


def rollouts(made: answers.Answer, first: Iterable[str]) -> list[dict[str, Any]]:
    """A few completions of each class of error of each arm, at its first seed: those of the arms in `first`, then of others;
    then of what models wrote for problem sets. Spread over the problems, at most so many bytes."""
    results, size = made.results, 0
    found: list[dict[str, Any]] = []
    for name, digest in _sampled(results, first):
        for item in _of_samples(results, name, digest):
            size += 2 * sum(len(piece.text) + 60 for piece in item["pieces"]) + 2 * sum(
                len(text) for text, _ in item["problem"].given
            )
            if size > MOST_BYTES:
                return found
            found.append(item)
    return found


def _first_of_class(samples: pd.DataFrame) -> pd.DataFrame:
    """The first sample of each class of error of each prompt."""
    return samples.sort_values(["index", "sample"]).drop_duplicates(["index", "error"])


def _sampled(results: frame.Results, first: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(arm, an evaluation of it), then (problem set, the stage in which a model wrote it), of those whose samples are here."""
    here = [digest for digest, folder in results.folders.items() if _holds(folder / "samples.parquet", COLUMNS)]
    known = results.spec.arm_names()
    for arm in [arm for arm in dict.fromkeys([*first, *known]) if arm in known][:MOST_ARMS]:
        rows = results.spec.rows_of(arm)
        judged = [one for row in rows for one in row.evaluations.values() if one in results.prompts and one in here]
        yield from [(arm, one) for one in judged[:1]]
    for digest in [one for one in here if results.records[one]["kind"] == "generate"]:
        yield read_json(results.folders[digest] / "stage.json").get("label", digest), digest


def _of_samples(results: frame.Results, name: str, digest: str) -> list[dict[str, Any]]:
    with pq.ParquetFile(results.folders[digest] / "samples.parquet") as file:
        columns = [name for name in (*COLUMNS, SEGMENTS) if name in file.schema_arrow.names]
        parts = [_first_of_class(part.to_pandas()) for part in file.iter_batches(columns=columns)]
    samples = _first_of_class(pd.concat(parts))
    chosen: list[dict[Any, Any]] = []
    for _, of_class in sorted(samples.groupby("error", observed=True), key=lambda item: (-len(item[1]), str(item[0]))):
        of_class = of_class.sort_values(["op", "index"])
        places = {round((len(of_class) - 1) * part / max(PER_CLASS - 1, 1)) for part in range(PER_CLASS)}
        chosen += of_class.iloc[sorted(places)].to_dict("records")
    rows = problem_rows(results, digest, [item["index"] for item in chosen])
    shown = []
    for item in chosen:
        if row := rows.get(item["index"]):
            pieces = plain_completion(row, shown_text(item, False))
            shown.append({**item, "arm": name, "problem": plain_problem(row), "pieces": pieces})
    return shown
