"""`interplay gc`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from interplay.cli.common import CONFIGS, RESULTS, amount
from interplay.schema.terminal import say

if TYPE_CHECKING:
    from interplay.study import garbage


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--delete", action="store_true", help="remove what is listed; without it nothing is touched")
    parser.add_argument(
        "--older-than",
        type=amount,
        default=1.0,
        metavar="DAYS",
        help="only results that were last written to so many days ago (default 1; 0: all)",
    )
    parser.add_argument(
        "--lock", type=Path, action="append", default=[], metavar="FILE", help="another lock whose stages stay; may be repeated"
    )
    parser.add_argument("--full", action="store_true", help="list every folder and file")


def run(args: argparse.Namespace) -> int:
    """List what nothing leads to, and remove it on request."""
    from interplay.study import garbage

    found = garbage.find(CONFIGS, RESULTS, args.lock, args.older_than)
    for line in _table(found):
        say(line)
    if args.full:
        for item in found.results:
            say(f"{item.folder}  {item.state}, {item.days:.1f} days old")
        for path in [*found.links, *found.logs, *found.leftovers]:
            say(str(path))
    if not (found.results or found.links or found.logs or found.leftovers):
        leads = "a lock in configs/plans, a link in by-name/ of a study that has none, or a run in flight"
        say(f"nothing to remove: {leads} leads to all there is")
    elif not args.delete:
        say("nothing was touched; --delete removes it" + ("" if args.full else ", --full lists it"))
    else:
        kept = garbage.remove(found, RESULTS)
        for line in kept:
            say(line)
        say(f"removed {len(found.results) - len(kept)} results, {len(found.links)} links, {len(found.logs)} logs and benchmarks")
    return 0


def _table(found: "garbage.Garbage") -> list[str]:
    """Numbers and sizes per kind, finished and not, and what else there is."""
    from interplay.report.units import quantity

    rows = []
    for kind in sorted({item.kind for item in found.results}):
        items = [item for item in found.results if item.kind == kind]
        done = sum(item.state == "done" for item in items)
        rows.append(
            f"{kind:<10} {done:>6} finished {len(items) - done:>6} not  {quantity(sum(i.size for i in items)):>8} bytes"
            f"  {min(i.days for i in items):.0f}-{max(i.days for i in items):.0f} days old"
        )
    if found.results:
        size = quantity(sum(item.size for item in found.results))
        rows = ["results that nothing leads to:", *rows, f"in all {len(found.results)} results, {size} bytes"]
    others = {
        "links in by-name/ that are out of date": found.links,
        "logs and benchmarks of stages that are gone": found.logs,
        "folders that an interrupted removal left": found.leftovers,
    }
    rows += [f"{len(paths)} {what}" for what, paths in others.items() if paths]
    return [*rows, f"{found.young} results too young (--older-than)"] if found.young else rows
