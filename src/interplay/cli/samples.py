"""Commands that read rows and completions: `interplay rollouts`, `interplay novelty` and `interplay rows`."""

from typing import Annotated, Literal

from interplay.cli.common import RESULTS, Grid, argument, command, new_app, option, show_parts
from interplay.core.model import UserError, print_visible, shorten_value

NOVELTY = ("band", "right", "graphs", "copied", "nearest", "of other ops")
LONGEST_INDEX = 15
"""Digits of a row's number."""

app = new_app()


@command(
    app,
    "rollouts",
    examples="""
interplay rollouts 3f2a --failed -n 5  # five completions that were not right
interplay rollouts 3f2a --step 1  # how the first step of an rl stage began
""",
)
def list_rollouts(
    digest: Annotated[str, argument("digest of the stage, or its beginning")],
    failed: Annotated[bool, option("--failed", help="only completions that were not strictly right")] = False,
    passed: Annotated[bool, option("--passed", help="only completions that were")] = False,
    step: Annotated[
        int | None,
        option("--step", metavar="STEP", min=1, help="only rollouts of this step of an rl stage (default: the last ones)"),
    ] = None,
    count: Annotated[int, option("-n", metavar="N", min=1, help="how many different ones (default 10)")] = 10,
) -> None:
    """Prints completions of an rl or evaluate stage beside their problems and gold solutions, with the verdict on each; those
    of a prompt that are the same stand once."""
    from pyarrow import ArrowInvalid

    from interplay.core import artifact
    from interplay.report.inspect.compare import show_rollouts as rollouts_text

    if failed and passed:
        raise UserError("rollouts: --passed: not allowed with --failed; name one, or none for all completions")
    folder = artifact.find(RESULTS, digest)
    try:
        print_visible(rollouts_text(folder, True if failed else False if passed else None, count, step), end="")
    except ArrowInvalid as error:
        raise UserError(f"{folder}: not readable ({error}); remove {folder} to make it again") from None


@command(
    app,
    "novelty",
    examples="interplay novelty 3f2a --against 77c0  # the evaluation 3f2a beside the set 77c0 that its model was trained on",
)
def measure_novelty(
    digest: Annotated[str, argument("digest of an evaluate stage, or its beginning")],
    against: Annotated[
        str, option("--against", metavar="DIGEST", help="problem set to compare with, such as what was trained on")
    ],
    by: Annotated[
        Literal["strict", "answer"],
        option("--by", metavar="BY", help="which samples count as right: strict or answer (default strict)"),
    ] = "strict",
) -> None:
    """Compares the graphs that an evaluation's right solutions state, names left aside, with the gold graphs of a problem set
    of the same op: by band, how many are equal to one of the set (copied), and the mean similarity to the nearest, which
    is the Jaccard index of their nodes' colours. For the tasks op_dag and op_dag_prose."""
    from interplay.core import artifact
    from interplay.data.similarity import novelty_by_band
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
        for one in novelty_by_band(samples, tested, problems, by)
    ]
    show_parts(Grid(NOVELTY, rows, right=range(1, len(NOVELTY))) if rows else "no sample is right")


@command(
    app,
    "rows",
    examples="""
interplay rows 3f2a  # the first rows of the set
interplay rows 3f2a --changed poison:conflict  # those that a step changed
interplay rows 3f2a:17  # one row, back to its origin
""",
)
def list_rows(
    digest: Annotated[str, argument("digest of the problem set, or its beginning; DIGEST:INDEX for one row")],
    index: Annotated[int | None, option("--index", metavar="INDEX", min=0, help="one row, back to its origin")] = None,
    changed: Annotated[
        str | None, option("--changed", metavar="STEP", help="only rows that this step changed, such as poison:conflict")
    ] = None,
    count: Annotated[int, option("-n", metavar="N", min=1, help="how many (default 10)")] = 10,
) -> None:
    """Prints rows of a problem set: number, band, op, form, and the curation steps that changed them. With --index one row
    whole: the set that it was first made in, what was done to it, and its text before and after. A row that a refusal
    names is written DIGEST:INDEX."""
    from interplay.core import artifact
    from interplay.results.trace import listing, way

    name, _, place = digest.partition(":")
    if place and (not place.isdecimal() or len(place) > LONGEST_INDEX or index is not None):
        raise UserError(f"{shorten_value(digest)}: must be DIGEST or DIGEST:INDEX, and --index with the former alone")
    folder = artifact.find(RESULTS, name)
    one = int(place) if place else index
    print_visible(listing(folder, changed, count) if one is None else way(folder, one), end="")
