"""`interplay watch`."""

import argparse
from pathlib import Path
from typing import Any

from interplay.cli.common import RESULTS, elsewhere, plan_of, study_arguments
from interplay.schema.base import UserError
from interplay.study.plan import Plan

LOGS = Path("logs")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    study_arguments(parser)
    parser.add_argument("--once", action="store_true", help="print one look and end; so it does into a file or a pipe")
    parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="time between two looks (default 2)")


def run(args: argparse.Namespace) -> int:
    """Look until all is done."""
    import time

    from rich.console import Console
    from rich.live import Live

    if not args.every > 0:
        raise UserError(f"watch: --every = {args.every}: must be more than 0 seconds")
    plan = plan_of(args)
    where = elsewhere(plan)
    console = Console()
    if args.once or not console.is_terminal:
        console.print(_look(plan, where)[0])
        return 0
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            picture, finished = _look(plan, where)
            live.update(picture, refresh=True)
            if finished:
                return 0
            time.sleep(args.every)


def _look(plan: Plan, elsewhere: str) -> tuple[Any, bool]:
    """A frame, with a word on results `elsewhere`, and whether all stages are done."""
    from interplay.cli.watch_frame import frame
    from interplay.study import progress

    seen = progress.look(plan, RESULTS, LOGS)
    left, note = progress.time_left(plan, seen, RESULTS)
    title = f"{plan.study} at {plan.scale}" + (f" ({elsewhere})" if elsewhere else "")
    return frame(title, seen, left, note), all(one.state == "done" for one in seen)
