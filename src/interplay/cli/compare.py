"""`interplay compare`."""

import argparse

from interplay.cli.common import CONFIGS, RESULTS, default_scale, scale_argument, whole
from interplay.schema.base import UserError
from interplay.schema.metric import check_metric, names
from interplay.schema.terminal import say


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("a", help="a stage as `interplay show` takes it, or an arm as STUDY:ARM")
    parser.add_argument("b", help="what to lay beside it, of the same sort")
    scale_argument(parser)
    parser.add_argument("--metric", default="strict_pass@1", help=f"{', '.join(names())} (default strict_pass@1)")
    parser.add_argument("--column", help="only prompts of this band, or of `op:N`")
    parser.add_argument("-n", type=whole(1), default=2, help="flipped items shown in each direction (default 2)")


def run(args: argparse.Namespace) -> int:
    """Print the comparison."""
    from interplay.report.compare import Side, compare, of_arm, of_stage
    from interplay.study import catalog
    from interplay.study.graph import plan_study

    scale = args.scale or default_scale()
    try:
        metric = check_metric(args.metric)
    except ValueError as error:
        raise UserError(f"--metric {error}") from None
    known = catalog.read(CONFIGS, RESULTS)

    def side(name: str) -> Side:
        head, colon, arm = name.partition(":")
        study, rest = catalog.split_study(head, CONFIGS, scale)
        if colon and study and not rest:
            plan = plan_study(CONFIGS, *study)
            known.stages.update(catalog.as_json(plan))
            return of_arm(name, arm, catalog.report_spec(plan))
        return of_stage(name, catalog.resolve(name, known, CONFIGS, scale).digest, known.stages)

    column = args.column.replace(" ", ":") if args.column else None
    say(compare(side(args.a), side(args.b), known.stages, RESULTS, metric, column, args.n), end="")
    return 0
