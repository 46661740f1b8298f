"""The command line: `interplay plan | calibrate | rollouts | report`. Snakemake runs studies; these look at them."""

import argparse
import sys
from pathlib import Path

from interplay.schema.base import UserError
from interplay.store import artifact
from interplay.study import compose
from interplay.study.graph import plan_study
from interplay.study.plan import Plan

CONFIGS = Path("configs")
RESULTS = Path("results")


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 2 with one line for whatever the user can mend."""
    args = _parser().parse_args(argv)
    try:
        return int(args.function(args))
    except UserError as error:
        print(f"interplay: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="interplay", description="Plan studies and look at what they left. `snakemake all` runs them."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    plan = commands.add_parser("plan", help="what a study consists of, and what of it is still to be made")
    plan.add_argument("study", nargs="?", help="a file below configs/study, without .yaml")
    plan.add_argument("--scale", help="a file below configs/scale (default: that of configs/config.yaml)")
    plan.add_argument("--all", action="store_true", help="every study at every scale that has a lock")
    plan.add_argument("--write", action="store_true", help="write configs/plans/<study>.<scale>.lock.json")
    plan.add_argument("--check", action="store_true", help="fail when a lock is not what the configs say")
    plan.set_defaults(function=_plan)

    calibrate = commands.add_parser("calibrate", help="measure a study's base per op and pin the band edges in its scale file")
    calibrate.add_argument("study")
    calibrate.add_argument("--scale", default="laptop")
    calibrate.add_argument("--prompts", type=int, default=100, help="held-out prompts per op (default 100)")
    calibrate.add_argument("--max-op", type=int, default=14, help="largest op measured (default 16)")
    calibrate.add_argument("--write", action="store_true", help="pin the bands in configs/scale/<scale>.yaml")
    calibrate.set_defaults(function=_calibrate)

    rollouts = commands.add_parser("rollouts", help="read the completions of an rl or evaluate stage")
    rollouts.add_argument("digest", help="digest of the stage, or its beginning")
    side = rollouts.add_mutually_exclusive_group()
    side.add_argument("--failed", action="store_true", help="only completions that were not strictly right")
    side.add_argument("--passed", action="store_true", help="only completions that were")
    rollouts.add_argument("-n", type=int, default=10, help="how many (default 10)")
    rollouts.set_defaults(function=_rollouts)

    report = commands.add_parser("report", help="where a study's report lies")
    report.add_argument("study")
    report.add_argument("--scale")
    report.set_defaults(function=_report)
    return parser


def _scale(given: str | None) -> str:
    return given or compose.chosen(CONFIGS, {})[1]


def _plan(args: argparse.Namespace) -> int:
    if args.all:
        pairs = [(s, c) for s in compose.studies(CONFIGS) for c in compose.scales(CONFIGS)]
    elif args.study:
        pairs = [(args.study, _scale(args.scale))]
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


def _calibrate(args: argparse.Namespace) -> int:
    from interplay.calibrate import calibrate

    plan = plan_study(CONFIGS, args.study, args.scale)
    print(calibrate(plan, CONFIGS, RESULTS, args.prompts, args.max_op, args.write))
    return 0


def _rollouts(args: argparse.Namespace) -> int:
    from interplay.rl.show import show

    failed = True if args.failed else False if args.passed else None
    print(show(artifact.find(RESULTS, args.digest), failed, args.n))
    return 0


def _report(args: argparse.Namespace) -> int:
    plan = plan_study(CONFIGS, args.study, _scale(args.scale))
    folder = artifact.folder(RESULTS, "report", plan.report)
    if not artifact.done(folder):
        raise UserError(f"{folder}: no report yet; run `snakemake all --config study={args.study} scale={plan.scale}`")
    print(f"report: {folder / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
