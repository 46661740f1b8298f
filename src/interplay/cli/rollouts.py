"""`interplay rollouts`."""

import argparse

from interplay.cli.common import RESULTS, whole
from interplay.schema.base import UserError
from interplay.schema.terminal import say
from interplay.store import artifact


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("digest", help="digest of the stage, or its beginning")
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--failed", action="store_true", help="only completions that were not strictly right")
    side.add_argument("--passed", action="store_true", help="only completions that were")
    parser.add_argument("--step", type=whole(1), help="only rollouts of this step of an rl stage (default: the last ones)")
    parser.add_argument("-n", type=whole(1), default=10, help="how many different ones (default 10)")


def run(args: argparse.Namespace) -> int:
    """Print completions with their problems and gold solutions."""
    from pyarrow import ArrowInvalid

    from interplay.report.rollouts import shown

    failed = True if args.failed else False if args.passed else None
    folder = artifact.find(RESULTS, args.digest)
    try:
        say(shown(folder, failed, args.n, args.step), end="")
    except ArrowInvalid as error:
        raise UserError(f"{folder}: not readable ({error}); remove {folder} to make it again") from None
    return 0
