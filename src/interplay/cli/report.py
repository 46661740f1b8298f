"""`interplay report`."""

import argparse
from typing import cast

from interplay.cli.common import RESULTS, elsewhere, nothing_of, plan_of, study_arguments
from interplay.schema.base import UserError
from interplay.schema.report import ReportSpec
from interplay.schema.terminal import say
from interplay.store import artifact
from interplay.study.elsewhere import begun
from interplay.study.graph import Graph
from interplay.study.plan import Plan


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    study_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Say where the page is. One that is not there is made from the records: the page of an unfinished study says that it is
    partial, and what is missing and why."""
    plan = plan_of(args)
    folder = artifact.folder(RESULTS, "report", plan.report)
    if not artifact.done(folder):
        say(_partial(plan))
        return 0
    if not (folder / "report.html").exists():
        from interplay.report import page

        stages = plan.stages[plan.report].deps.values()
        inputs = {digest: artifact.folder(RESULTS, plan.stages[digest].kind, digest) for digest in stages}
        page.again(cast(ReportSpec, plan.stages[plan.report].spec), inputs, folder)
    say(f"report: {folder / 'report.html'}")
    return 0


def _partial(plan: Plan) -> str:
    if not begun(RESULTS, plan):
        raise UserError(nothing_of(plan, elsewhere(plan)))
    from interplay.hooks import partial_page

    return partial_page(Graph(RESULTS, [plan]), plan)
