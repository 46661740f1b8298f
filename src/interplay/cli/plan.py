"""`interplay plan`."""

import argparse

from interplay.cli.common import CONFIGS, RESULTS, default_scale
from interplay.schema.base import UserError
from interplay.store import artifact
from interplay.study import compose
from interplay.study.graph import plan_study
from interplay.study.plan import Plan


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("study", nargs="?", help="a file below configs/study, without .yaml")
    parser.add_argument("--scale", help="a file below configs/scale (default: that of configs/config.yaml)")
    parser.add_argument("--all", action="store_true", help="every study at every scale that has a lock")
    parser.add_argument("--write", action="store_true", help="write configs/plans/<study>.<scale>.lock.json")
    parser.add_argument("--check", action="store_true", help="fail when a lock is not what the configs say")


def run(args: argparse.Namespace) -> int:
    """Print, write or check plans."""
    if args.all:
        pairs = [(s, c) for s in compose.studies(CONFIGS) for c in compose.scales(CONFIGS)]
    elif args.study:
        pairs = [(args.study, args.scale or default_scale())]
    else:
        raise UserError("plan: name a study, or say --all")
    plans = [plan_study(CONFIGS, study, scale) for study, scale in pairs]
    stale = [plan for plan in plans if args.check and not plan.locked(CONFIGS)]
    if stale:
        raise UserError(f"{stale[0].lock_path(CONFIGS)}: not what the configs say; run `make locks` and commit it")
    for plan in plans:
        if args.write and plan.write_lock(CONFIGS):
            print(f"wrote {plan.lock_path(CONFIGS)}")
        if not args.all:
            _print_plan(plan)
    return 0


def _print_plan(plan: Plan) -> None:
    for stage in plan.stages.values():
        state = "done" if artifact.done(artifact.folder(RESULTS, stage.kind, stage.digest)) else "new"
        print(f"{stage.digest}  {state:4}  {stage.kind:9}  {stage.label}")
