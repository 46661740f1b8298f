"""`interplay calibrate`."""

import argparse

from interplay.cli.common import CONFIGS, RESULTS, plan_of, study_arguments, whole
from interplay.schema.terminal import say


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    study_arguments(parser)
    parser.add_argument("--prompts", type=whole(1), default=100, help="held-out prompts per op (default 100)")
    parser.add_argument("--max-op", type=whole(1), default=14, help="largest op measured (default 14)")
    parser.add_argument("--write", action="store_true", help="pin the bands in configs/scale/<scale>.yaml")


def run(args: argparse.Namespace) -> int:
    """Measure, and pin on request."""
    from interplay.calibrate import calibrate

    say(calibrate(plan_of(args), CONFIGS, RESULTS, args.prompts, args.max_op, args.write))
    return 0
