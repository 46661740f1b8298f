"""`interplay novelty`."""

import argparse

from interplay.cli.common import RESULTS
from interplay.schema.base import UserError
from interplay.schema.kinds import SETS
from interplay.schema.terminal import say
from interplay.store import artifact
from interplay.store.artifact import read_json

HEAD = ("band", "right", "graphs", "copied", "nearest", "of other ops")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("digest", help="digest of an evaluate stage, or its beginning")
    parser.add_argument(
        "--against", required=True, metavar="DIGEST", help="problem set to compare with, such as what was trained on"
    )
    parser.add_argument(
        "--by", choices=("strict", "answer"), default="strict", help="which samples count as right (default strict)"
    )


def run(args: argparse.Namespace) -> int:
    """Print a line per band."""
    from interplay.data.novelty import by_band
    from interplay.report.plain import aligned

    samples, against = (artifact.find(RESULTS, digest) for digest in (args.digest, args.against))
    stage = read_json(samples / "stage.json")
    if stage["kind"] != "evaluate":
        raise UserError(f"novelty: {args.digest} is a {stage['kind']} stage; name one of kind evaluate")
    if against.parent.name not in SETS:
        raise UserError(f"novelty: --against {args.against} is a {against.parent.name} stage; name a problem set")
    tested = artifact.find(RESULTS, stage["deps"]["data"])
    rows = [
        (one.band, str(one.right), str(one.graphs), f"{one.copied:.1%}", f"{one.nearest:.3f}", str(one.without))
        for one in by_band(samples, tested, against, args.by)
    ]
    say("\n".join(aligned([HEAD, *rows], right=range(1, len(HEAD)))) if rows else "no sample is right")
    return 0
