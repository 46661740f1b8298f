"""`interplay export`."""

import argparse
from pathlib import Path

from interplay.cli.common import CONFIGS, RESULTS, elsewhere, nothing_of, plan_of, study_arguments
from interplay.schema.base import UserError
from interplay.schema.terminal import say


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    study_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FOLDER|FILE.json",
        help="a folder that is new, empty or an older export; or a file for verdicts, numbers and digests alone, with tables and "
        "figures in a folder of its name, to be committed as docs/results/STUDY.SCALE.json, from which `make docs` writes "
        "docs/papers.md",
    )


def run(args: argparse.Namespace) -> int:
    """Write the folder and name its page, or write the file."""
    plan = plan_of(args)
    if where := elsewhere(plan):
        raise UserError(nothing_of(plan, where))
    from interplay.report import export, summary  # pandas and matplotlib: not for a mistyped study

    if args.output.suffix == ".json":
        summary.write(plan, RESULTS, args.output)
        say(f"export: {args.output}")
        return 0
    export.write(plan, CONFIGS, RESULTS, args.output)
    say(f"export: {args.output / 'index.html'}")
    return 0
