"""Rows and completions: `interplay rollouts`, `interplay novelty` and `interplay rows`."""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from interplay.cli import common
from interplay.cli.common import RESULTS, argument, command, option
from interplay.core import artifact
from interplay.core.model import UserError, print_visible, shorten_value

if TYPE_CHECKING:
    from interplay.tasks.verdict import Row

NOVELTY = ("band", "right", "graphs", "copied", "nearest", "of other ops")
LONGEST_INDEX = 15
"""Digits of a row's number."""
TEXTS = ("prompt", "solution", "answer", "band", "mode", "op", "family")
"""Columns that a curation step may change."""
LONG_TEXT = 400
"""Characters from which on a changed text is shown as a diff of its lines or sentences."""

app = common.new_app()


@command(
    app,
    "rollouts",
    examples="""
interplay rollouts 3f2a --failed -n 5  # five incorrect completions
interplay rollouts 3f2a --step 1  # the first step of an rl stage
""",
)
def list_rollouts(
    digest: Annotated[str, argument("digest of the stage, or its beginning")],
    failed: Annotated[bool, option("--failed", help="only completions that are not strictly correct")] = False,
    passed: Annotated[bool, option("--passed", help="only completions that are")] = False,
    step: Annotated[
        int | None,
        option("--step", metavar="STEP", min=1, help="only rollouts of this step of an rl stage (default: the last ones)"),
    ] = None,
    count: Annotated[int, option("-n", metavar="N", min=1, help="number of different completions (default 10)")] = 10,
) -> None:
    """Prints completions of an rl or evaluate stage with their problems, gold solutions and verdicts. Equal completions of a
    prompt are shown once."""
    from pyarrow import ArrowInvalid

    from interplay.report.inspect import compare

    if failed and passed:
        raise UserError("rollouts: --passed: not allowed with --failed; name one, or none for all completions")
    folder = artifact.find(RESULTS, digest)
    try:
        print_visible(compare.show_rollouts(folder, True if failed else False if passed else None, count, step), end="")
    except ArrowInvalid as error:
        raise UserError(f"{folder}: not readable ({error}); remove {folder} to make it again") from None


@command(
    app,
    "novelty",
    examples="interplay novelty 3f2a --against 77c0  # the evaluation 3f2a against the set 77c0 that its model was trained on",
)
def measure_novelty(
    digest: Annotated[str, argument("digest of an evaluate stage, or its beginning")],
    against: Annotated[
        str, option("--against", metavar="DIGEST", help="problem set to compare with, such as what was trained on")
    ],
    by: Annotated[
        Literal["strict", "answer"],
        option("--by", metavar="BY", help="which samples count as correct: strict or answer (default strict)"),
    ] = "strict",
) -> None:
    """Compares the graphs of an evaluation's correct solutions, up to renaming, with the gold graphs of a problem set of the same
    op: by band, the share equal to one of the set (copied), and the mean similarity to the nearest, the Jaccard index of
    their nodes' colours. For the tasks op_dag and op_dag_prose."""
    from interplay.data import similarity
    from interplay.kinds.table import SETS

    samples, problems = (artifact.find(RESULTS, name) for name in (digest, against))
    stage = artifact.read_json(samples / "stage.json")
    if stage["kind"] != "evaluate":
        raise UserError(f"novelty: {digest} is a {stage['kind']} stage; name one of kind evaluate")
    if problems.parent.name not in SETS:
        raise UserError(f"novelty: --against {against} is a {problems.parent.name} stage; name a problem set")
    tested = artifact.find(RESULTS, stage["deps"]["data"])
    rows = [
        (one.band, str(one.right), str(one.graphs), f"{one.copied:.1%}", f"{one.nearest:.3f}", str(one.without))
        for one in similarity.novelty_by_band(samples, tested, problems, by)
    ]
    common.show_parts(common.Grid(NOVELTY, rows, right=range(1, len(NOVELTY))) if rows else "no sample is correct")


@command(
    app,
    "rows",
    examples="""
interplay rows 3f2a  # the first rows of the set
interplay rows 3f2a --changed poison:conflict  # those that a step changed
interplay rows 3f2a:17  # one row, and its provenance
""",
)
def list_rows(
    digest: Annotated[str, argument("digest of the problem set, or its beginning; DIGEST:INDEX for one row")],
    index: Annotated[int | None, option("--index", metavar="INDEX", min=0, help="one row, and its provenance")] = None,
    changed: Annotated[
        str | None, option("--changed", metavar="STEP", help="only rows that this step changed, such as poison:conflict")
    ] = None,
    count: Annotated[int, option("-n", metavar="N", min=1, help="number of rows (default 10)")] = 10,
) -> None:
    """Prints rows of a problem set: number, band, op, form, and the curation steps that changed them. With --index one complete
    row: the set in which it was made, the steps that changed it, and its text before and after. Error messages name rows as
    DIGEST:INDEX."""
    name, _, place = digest.partition(":")
    if place and (not place.isdecimal() or len(place) > LONGEST_INDEX or index is not None):
        raise UserError(f"{shorten_value(digest)}: must be DIGEST or DIGEST:INDEX, and --index with the former alone")
    folder = artifact.find(RESULTS, name)
    one = int(place) if place else index
    print_visible(_row_list(folder, changed, count) if one is None else _provenance(folder, one), end="")


def _row_list(folder: Path, changed: str | None, most: int) -> str:
    """One line for each of the first rows, or of those that the step `changed` changed."""
    rows = _rows(folder)
    chosen = [row for row in rows if changed is None or changed in row.transforms]
    if not chosen:
        steps = sorted({step for row in rows for step in row.transforms})
        known = f"; changed by {', '.join(steps)}" if steps else "; no step changed any row"
        raise UserError(f"{folder}: no row that {changed} changed{known}")
    lines = [
        f"{row.index:6}  {row.band}  op {row.op}  {row.mode}  from {row.origin}{'  ' if row.transforms else ''}"
        f"{' > '.join(row.transforms)}  {_brief(row.prompt)} -> {_brief(row.answer)}"
        for row in chosen[:most]
    ]
    return "\n".join([*lines, f"{len(chosen)} rows" if len(chosen) <= most else f"{most} of {len(chosen)} rows"]) + "\n"


def _provenance(folder: Path, index: int) -> str:
    """One row: its origin, the steps that changed it, and each of its columns before and after."""
    row = _row(folder, index)
    digest, _, number = row.origin.partition(":")
    lines = [f"row {folder.name}:{index}", f"  made in   {_made_in(folder, digest)}, as its row {number}"]
    lines.append(f"  changed   {' > '.join(row.transforms) or 'by no step'}")
    try:
        first: Row | None = _row(artifact.find(folder.parent.parent, digest), int(number))
    except UserError:
        first = None
        lines.append("  before    its origin is not in results/")
    for name in TEXTS:
        after = str(getattr(row, name))
        before = after if first is None else str(getattr(first, name))
        lines += [f"  {name:9} {after}"] if before == after else _text_diff(name, before, after)
    return "\n".join(lines) + "\n"


def _text_diff(name: str, before: str, after: str) -> list[str]:
    if len(before) + len(after) < LONG_TEXT:
        return [f"  {name:9} - {before}", f"  {'':9} + {after}"]
    old, new = (text.replace(". ", ".\n").splitlines() for text in (before, after))
    marked = [line for line in difflib.ndiff(old, new) if line[0] in "+-"]
    return [f"  {name:9} {len(before)} -> {len(after)} characters", *(f"  {'':9} {line}" for line in marked)]


def _made_in(folder: Path, digest: str) -> str:
    """Such as `dataset 3f2a... data.hotpot`."""
    try:
        stage = artifact.read_json(artifact.find(folder.parent.parent, digest) / "stage.json")
    except UserError:
        return f"{digest}, which is not in results/"
    return " ".join(filter(None, [stage["kind"], digest, stage.get("label", "")]))


def _row(folder: Path, index: int) -> "Row":
    rows = _rows(folder)
    found = next((row for row in rows if row.index == index), None)
    if found is None:
        raise UserError(f"{folder}: has no row {index}; `interplay rows {folder.name}` lists some of its {len(rows)}")
    return found


def _rows(folder: Path) -> "list[Row]":
    from interplay.data import sets
    from interplay.kinds.table import SETS

    if folder.parent.name not in SETS:
        raise UserError(f"{folder}: a {folder.parent.name} stage has no rows; give the digest of a {', '.join(SETS)} stage")
    return sets.read_rows(folder, 0)


def _brief(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
