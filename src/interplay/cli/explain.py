"""`interplay explain`."""

import argparse

from interplay.cli.common import RESULTS, elsewhere, plan_of, study_arguments, whole
from interplay.schema.terminal import say


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    study_arguments(parser)
    parser.add_argument("table", help="a table of the study, such as main, or main_differences")
    parser.add_argument("row", help="an arm, or `arm - against` for a difference")
    parser.add_argument("column", help="a band, or `op 9`; COLUMN/METRIC is one way to name the metric")
    parser.add_argument("--metric", help="such as strict_pass@K or nll (default: the table's first)")
    parser.add_argument("--seed", type=whole(0), help="only the chain of this seed")


def run(args: argparse.Namespace) -> int:
    """Print the cell and all that it rests on."""
    from interplay.report.asked import match
    from interplay.report.explain import explain
    from interplay.study.catalog import as_json, report_spec

    plan = plan_of(args)
    spec, stages = report_spec(plan), as_json(plan)
    asked = match(spec, stages, args.table, args.row, args.column, args.metric)
    if where := elsewhere(plan):
        say(f"nothing of {plan.study} at scale {plan.scale} yet; {where}", error=True)
    say(explain(spec, plan.report, stages, RESULTS, asked, args.seed), end="")
    return 0
