"""`interplay export`."""

import argparse
from pathlib import Path

from interplay.cli.common import CONFIGS, RESULTS, plan_of, study_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    study_arguments(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="new, empty, or an older export")


def run(args: argparse.Namespace) -> int:
    """Write the folder and name its page."""
    from interplay.report import export  # pandas and matplotlib: not for a mistyped study

    export.write(plan_of(args), CONFIGS, RESULTS, args.output)
    print(f"export: {args.output / 'index.html'}")
    return 0
