"""`interplay plan`."""

import argparse
import json

from interplay.cli.common import CONFIGS, RESULTS, amount, default_scale, scale_argument
from interplay.schema.base import UserError
from interplay.schema.terminal import say
from interplay.study import compose
from interplay.study.graph import plan_study
from interplay.study.plan import Plan


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("study", nargs="?", help="a file below configs/study, without .yaml")
    scale_argument(parser)
    parser.add_argument("--full", action="store_true", help="explain every new stage and name every field that differs")
    parser.add_argument("--stages", action="store_true", help="list every stage with its state")
    parser.add_argument("--specs", action="store_true", help="every stage with all its settings, as JSON, one stage a line")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("--against", metavar="REV", help="compare with the lock of another commit, tag or branch")
    parser.add_argument("--max-gpu-hours", type=amount, metavar="H", help="exit 2 when what is to do needs more GPU-hours")
    parser.add_argument("--max-hours", type=amount, metavar="H", help="exit 2 when it needs more hours, one stage after another")
    parser.add_argument("--strict-code", action="store_true", help="exit 2 when finished stages were made by other sources")
    parser.add_argument("--gpus", type=_counts, default=[], metavar="N,...", help="also how long it takes on so many GPUs")
    locks = parser.add_argument_group("locks")
    locks.add_argument("--all", action="store_true", help="every study at every scale")
    locks.add_argument("--write", action="store_true", help="write configs/plans/<study>.<scale>.lock.json")
    locks.add_argument(
        "--check", action="store_true", help="fail when a lock is not what the configs say; names a field that differs"
    )


def _counts(text: str) -> list[int]:
    """Numbers of GPUs from the command line."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words):
        raise UserError(f"--gpus {text}: must be numbers of GPUs, such as 1,8,64")
    return [int(word) for word in words]


def run(args: argparse.Namespace) -> int:
    """Write or check locks, or show a plan."""
    if args.all:
        pairs = [(s, c) for s in compose.studies(CONFIGS) for c in compose.scales(CONFIGS)]
    elif args.study:
        pairs = [(args.study, args.scale or default_scale())]
    else:
        raise UserError("plan: name a study, or say --all")
    plans = [plan_study(CONFIGS, study, scale) for study, scale in pairs]
    stale = [plan for plan in plans if args.check and not plan.locked(CONFIGS)]
    if stale:
        path, why = stale[0].lock_path(CONFIGS), _differs(stale[0])
        raise UserError(f"{path}: not what the configs say{f' ({why})' if why else ''}; run `make locks` and commit it")
    for plan in plans:
        if args.write and plan.write_lock(CONFIGS):
            say(f"wrote {plan.lock_path(CONFIGS)}")
    if not (args.all or args.check or args.write):
        _show(plans[0], args)
    return 0


def _differs(plan: Plan) -> str:
    """How the plan differs from the lock in the working tree; empty where it does not, or there is none."""
    from interplay.study import against

    locked = against.of_working_tree(plan, CONFIGS, RESULTS)
    return against.summary(locked, plan) if locked else ""


def _show(plan: Plan, args: argparse.Namespace) -> None:
    """Print the overview (or the comparison), then refuse what exceeds a limit."""
    from interplay.cli import plan_text
    from interplay.study import against, estimate, overview, schedule

    if args.against is not None:
        old = against.of_commit(plan, CONFIGS, RESULTS, args.against)
        found = against.compare(old.stages, {digest: stage.as_json() for digest, stage in plan.stages.items()})
        said = {**against.as_json(found), "lacking": old.lacking}
        say(json.dumps(said, indent=1) if args.json else plan_text.differences(found, old, args.full))
        return
    if args.specs:
        say(plan.whole(), end="")
        return
    stale = _differs(plan)
    seen = overview.look(plan, CONFIGS, RESULTS, args.full)
    on = [schedule.on_gpus(plan, seen.estimate, gpus) for gpus in args.gpus]
    if args.json:
        say(json.dumps({**overview.as_json(seen), "not_locked": stale, "on_gpus": [one._asdict() for one in on]}, indent=1))
    else:
        say("\n".join([plan_text.overview(seen, args.full, args.stages, stale), *plan_text.schedules(on)]))
    estimate.refuse(f"plan {plan.study} at scale {plan.scale}", seen.estimate, args.max_gpu_hours, args.max_hours)
    if args.strict_code and seen.drifted:
        raise UserError(f"--strict-code: finished stages were made by other sources: {', '.join(seen.drifted)}")
