"""`interplay rows`."""

import argparse

from interplay.cli.common import RESULTS, is_whole, whole
from interplay.schema.base import UserError, shown
from interplay.schema.terminal import say
from interplay.store import artifact


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("digest", help="digest of the problem set, or its beginning; DIGEST:INDEX for one row")
    parser.add_argument("--index", type=whole(0), help="one row, back to its origin")
    parser.add_argument("--changed", metavar="STEP", help="only rows that this step changed, such as poison:conflict")
    parser.add_argument("-n", type=whole(1), default=10, help="how many (default 10)")


def run(args: argparse.Namespace) -> int:
    """Print rows, or the way of one."""
    from interplay.data.trace import listing, way

    digest, _, index = args.digest.partition(":")
    if index and (not is_whole(index) or args.index is not None):
        raise UserError(f"{shown(args.digest)}: must be DIGEST or DIGEST:INDEX, and --index with the former alone")
    folder = artifact.find(RESULTS, digest)
    one = int(index) if index else args.index
    say(listing(folder, args.changed, args.n) if one is None else way(folder, one), end="")
    return 0
