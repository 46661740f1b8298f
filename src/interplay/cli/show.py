"""`interplay show`."""

import argparse
from pathlib import Path

from interplay.cli.common import CONFIGS, RESULTS, default_scale, scale_argument
from interplay.schema.terminal import say

LOGS = Path("logs")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("stage", help="a digest's beginning, DIGEST@STEP, STUDY/ARM/seedN/STAGE, or STUDY.SCALE/ARM/seedN/STAGE")
    scale_argument(parser)
    parser.add_argument("--full", action="store_true", help="the whole spec, defaults included")


def run(args: argparse.Namespace) -> int:
    """Print the stage."""
    from interplay.report.show import card
    from interplay.study import catalog

    known = catalog.read(CONFIGS, RESULTS)
    ref = catalog.resolve(args.stage, known, CONFIGS, args.scale or default_scale())
    say(card(ref.digest, ref.step, known.stages, known.locks.get(ref.digest, []), RESULTS, LOGS, args.full), end="")
    return 0
