"""`interplay store`."""

import argparse
from pathlib import Path

from interplay.cli.common import CONFIGS, RESULTS, elsewhere, scale_argument
from interplay.schema.base import UserError
from interplay.schema.kinds import KINDS
from interplay.schema.terminal import say
from interplay.store import artifact
from interplay.study import compose, kept
from interplay.study.graph import plan_study
from interplay.study.plan import Plan
from interplay.track import payloads


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    what = "push: add what is finished to DVC and send it to the remote; pull: bring what is not here; status: what is where"
    parser.add_argument("do", choices=["push", "pull", "status"], help=what)
    parser.add_argument(
        "study", nargs="?", help="a file below configs/study, without .yaml (default: those of configs/config.yaml)"
    )
    scale_argument(parser)
    parser.add_argument(
        "--records", action="store_true", help="pull no payloads: records and what tables are made from, megabytes"
    )


def run(args: argparse.Namespace) -> int:
    """Push, pull or say what is where. Exit code 2 with one line where DVC would not."""
    if not payloads.in_project():
        raise UserError(f"{Path.cwd()}: no git repository with DVC here; `git init && dvc init` make one")
    names, scale = compose.chosen(CONFIGS, {})
    plans = [plan_study(CONFIGS, name, args.scale or scale) for name in ([args.study] if args.study else names)]
    {"push": _push, "pull": _pull_records if args.records else _pull, "status": _status}[args.do](plans)
    return 0


def _push(plans: list[Plan]) -> None:
    for plan in plans:
        kept.keep(RESULTS, plan)
    new = payloads.add(RESULTS, plans)
    pointers = [str(path) for path in sorted(RESULTS.glob("*.dvc"))]
    if not pointers:
        command = f"snakemake all --config study={plans[0].study} scale={plans[0].scale}"
        raise UserError(f"{RESULTS}: nothing finished yet; run `{command}`")
    payloads.dvc("push", "--quiet", *pointers)
    say(f"{len(new)} folders added and everything pushed" + (f"; commit {RESULTS}/*.dvc" if new else ""))


def _pull(plans: list[Plan]) -> None:
    """Everything, except that what no pointer lists stays where it is."""
    folders = _folders(plans)
    wanted = [folder for folder in folders if not _whole(folder)]
    known = payloads.stored(wanted)
    count = payloads.fetch(sorted(known))
    for folder in sorted(known):
        artifact.check(folder)
    here, nowhere = len(folders) - len(wanted), len(wanted) - len(known)
    say(f"{count} files of {len(known)} stages pulled; {here} were here, {nowhere} are not stored")


def _pull_records(plans: list[Plan]) -> None:
    count = payloads.fetch([RESULTS / payloads.STUDIES / kept.name(plan) for plan in plans])
    back = [kept.restore(RESULTS, plan.stages, payloads.kinds(RESULTS)) for plan in plans]
    say(f"{count} files pulled, {sum(map(len, back))} records put in place; `snakemake all` makes the tables from them")


def _status(plans: list[Plan]) -> None:
    """Whose stages these are, and one line a kind: stages of the plans, finished, here with all their files, and known to DVC."""
    folders = _folders(plans)
    known = payloads.stored(folders)
    say(f"{', '.join(plan.study for plan in plans)} at scale {plans[0].scale}")
    if where := "; ".join(f"{plan.study} {found}" for plan in plans if (found := elsewhere(plan))):
        say(where)
    say(f"{'kind':<10} {'stages':>8} {'finished':>8} {'here':>8} {'stored':>8}")
    for kind in KINDS:
        if of_kind := [folder for folder in folders if folder.parent.name == kind]:
            done, here = sum(map(artifact.done, of_kind)), sum(map(_whole, of_kind))
            say(f"{kind:<10} {len(of_kind):>8} {done:>8} {here:>8} {sum(folder in known for folder in of_kind):>8}")


def _folders(plans: list[Plan]) -> list[Path]:
    """Artifact folders of all stages, each once."""
    return list(dict.fromkeys(artifact.folder(RESULTS, s.kind, d) for plan in plans for d, s in plan.stages.items()))


def _whole(folder: Path) -> bool:
    return artifact.done(folder) and not artifact.absent(folder)
