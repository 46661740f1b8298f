"""`interplay report`."""

import argparse

from interplay.cli.common import RESULTS, plan_of, study_arguments
from interplay.schema.base import UserError
from interplay.store import artifact


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    study_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Say where the page is."""
    plan = plan_of(args)
    folder = artifact.folder(RESULTS, "report", plan.report)
    if not artifact.done(folder):
        raise UserError(f"{folder}: no report yet; run `snakemake all --config study={args.study} scale={plan.scale}`")
    print(f"report: {folder / 'report.html'}")
    return 0
