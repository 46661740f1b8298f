"""`interplay efficiency`."""

import argparse

from interplay.cli.common import RESULTS, elsewhere, plan_of, study_arguments
from interplay.schema.terminal import say

HEAD = ("kind", "stages", "attempts", "threads", "CPU used", "memory", "of MiB", "longest", "of min", "fits")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    study_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print what the finished stages used of what they were given, and what would fit."""
    from interplay.report.plain import aligned
    from interplay.study import efficiency

    rows = [HEAD]
    plan = plan_of(args)
    for of in efficiency.used(plan, RESULTS):
        fits = ", ".join(f"{key}: {value}" for key, value in efficiency.proposals(of).items())
        counts = (str(of.stages), str(of.attempts), str(of.run.cores()), f"{of.cpu:.0%}")
        given = (f"{of.memory_mb:.0f}", str(of.run.memory()), f"{of.minutes:.1f}", str(of.run.runtime))
        rows.append((of.kind, *counts, *given, fits or "-"))
    if len(rows) == 1:
        where = elsewhere(plan)
        say(f"no stage of {plan.study} at scale {plan.scale} has finished" + (f"; {where}" if where else ""))
        return 0
    say("\n".join(aligned(rows, indent=0, right=range(1, len(HEAD) - 1))))
    return 0
