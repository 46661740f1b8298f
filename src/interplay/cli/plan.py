"""Commands before a run: `interplay plan` and `interplay calibrate`."""

import json
from typing import TYPE_CHECKING, Annotated

from interplay.cli.common import (
    CONFIGS,
    MOST_HOURS,
    RESULTS,
    AnyStudy,
    Scale,
    Study,
    command,
    default_scale,
    new_app,
    option,
    plan_of,
    show_parts,
)
from interplay.core.model import UserError, print_visible

if TYPE_CHECKING:
    from interplay.results.overview import Overview
    from interplay.study.plan import Plan


app = new_app()


@command(
    app,
    "plan",
    examples="""
interplay plan edge  # the study at the scale of configs/config.yaml
interplay plan edge --scale smoke  # at another scale
interplay plan edge --against main~3  # beside the lock of another commit
interplay plan edge --max-gpu-hours 5  # exit code 2 when it needs more
interplay plan edge --scale gpu --gpus 1,8,64  # how long it takes on so many GPUs
interplay plan --all --write  # renew the locks in configs/plans
""",
)
def plan_stages(
    study: AnyStudy = None,
    scale: Scale = None,
    full: Annotated[bool, option("--full", help="explain every new stage and name every field that differs")] = False,
    stages: Annotated[bool, option("--stages", help="list every stage with its state")] = False,
    specs: Annotated[bool, option("--specs", help="every stage with all its settings, as JSON, one stage a line")] = False,
    as_json: Annotated[bool, option("--json", help="the same as JSON")] = False,
    against: Annotated[
        str | None, option("--against", metavar="REV", help="compare with the lock of another commit, tag or branch")
    ] = None,
    max_gpu_hours: Annotated[
        float | None,
        option("--max-gpu-hours", metavar="H", min=0, max=MOST_HOURS, help="exit 2 when what is to do needs more GPU-hours"),
    ] = None,
    max_hours: Annotated[
        float | None,
        option(
            "--max-hours", metavar="H", min=0, max=MOST_HOURS, help="exit 2 when it needs more hours, one stage after another"
        ),
    ] = None,
    strict_code: Annotated[bool, option("--strict-code", help="exit 2 when finished stages were made by other sources")] = False,
    gpus: Annotated[str, option("--gpus", metavar="N,...", help="also how long it takes on so many GPUs")] = "",
    every: Annotated[bool, option("--all", help="every study at every scale")] = False,
    write: Annotated[bool, option("--write", help="write configs/plans/<study>.<scale>.lock.json")] = False,
    check: Annotated[bool, option("--check", help="fail when a lock is not what the configs say; name a field")] = False,
) -> None:
    """Expands a study into its stages and says which are new, which exist and which no study needs any more; how many tokens,
    FLOPs and hours the new ones take; and, for each new stage, which existing one is nearest and where it first differs.
    Nothing is run and nothing is written unless asked for."""
    from interplay.results import estimate, evidence
    from interplay.study import compose
    from interplay.study.expand import plan_study

    counts = _gpu_counts(gpus)
    if every:
        pairs = [(s, c) for s in compose.studies(CONFIGS) for c in compose.scales(CONFIGS)]
    elif study:
        pairs = [(study, scale or default_scale())]
    else:
        raise UserError("plan: name a study, or say --all")
    plans = [plan_study(CONFIGS, name, at) for name, at in pairs]
    stale = [plan for plan in plans if check and not plan.locked(CONFIGS)]
    if stale:
        path, why = stale[0].lock_path(CONFIGS), _lock_difference(stale[0])
        raise UserError(f"{path}: not what the configs say{f' ({why})' if why else ''}; run `make locks` and commit it")
    table = evidence.table_path(CONFIGS)
    if every and check and evidence.table_text(plans) != evidence.table_text_at(CONFIGS):
        raise UserError(f"{table}: not what the plans use; run `make locks` and commit it")
    for plan in plans:
        if write and plan.write_lock(CONFIGS):
            print_visible(f"wrote {plan.lock_path(CONFIGS)}")
    if every and write and evidence.write_table(plans, CONFIGS):
        print_visible(f"wrote {table}")
    if every or check or write:
        return
    if against is not None:
        _show_differences(plans[0], against, full, as_json)
        return
    if specs:
        print_visible(plans[0].full_text(), end="")
        return
    seen = _show_overview(plans[0], counts, full, stages, as_json)
    estimate.refuse(f"plan {study} at scale {plans[0].scale}", seen.estimate, max_gpu_hours, max_hours)
    if strict_code and seen.drifted:
        raise UserError(f"--strict-code: finished stages were made by other sources: {', '.join(seen.drifted)}")


def _gpu_counts(text: str) -> list[int]:
    """Numbers of GPUs from the command line."""
    words = text.split(",") if text else []
    if not all(word.isdecimal() and int(word) for word in words):
        raise UserError(f"--gpus {text}: must be numbers of GPUs, such as 1,8,64")
    return [int(word) for word in words]


def _lock_difference(plan: "Plan") -> str:
    """How the plan differs from the lock in the working tree; empty where it does not, or there is none."""
    from interplay.results import against

    locked = against.of_working_tree(plan, CONFIGS, RESULTS)
    return against.summary(locked, plan) if locked else ""


def _show_differences(plan: "Plan", revision: str, full: bool, as_json: bool) -> None:
    from interplay.cli import plan_text
    from interplay.results import against

    old = against.of_commit(plan, CONFIGS, RESULTS, revision)
    found = against.compare(old.stages, {digest: stage.as_json() for digest, stage in plan.stages.items()})
    listed = {**against.as_json(found), "lacking": old.lacking}
    print_visible(json.dumps(listed, indent=1) if as_json else plan_text.differences(found, old, full))


def _show_overview(plan: "Plan", counts: list[int], full: bool, stages: bool, as_json: bool) -> "Overview":
    from interplay.cli import plan_text
    from interplay.results import evidence, overview, schedule

    stale, unexercised = _lock_difference(plan), evidence.unexercised(plan, CONFIGS)
    seen = overview.look(plan, CONFIGS, RESULTS, full)
    on = [schedule.on_gpus(plan, seen.estimate, count) for count in counts]
    if as_json:
        print_visible(
            json.dumps(
                {
                    **overview.as_json(seen),
                    "not_locked": stale,
                    "unexercised": unexercised,
                    "on_gpus": [one._asdict() for one in on],
                },
                indent=1,
            )
        )
    else:
        show_parts(*plan_text.overview(seen, full, stages, stale, unexercised), apart=True)
        for line in plan_text.schedules(on):
            print_visible(line)
    return seen


@command(app, "calibrate", examples="interplay calibrate quickstart --scale laptop --write  # measure, and pin the bands")
def calibrate_bands(
    study: Study,
    scale: Scale = None,
    prompts: Annotated[int, option("--prompts", metavar="PROMPTS", min=1, help="held-out prompts per op (default 100)")] = 100,
    max_op: Annotated[int, option("--max-op", metavar="MAX_OP", min=1, help="largest op measured (default 14)")] = 14,
    write: Annotated[bool, option("--write", help="pin the bands in configs/scale/<scale>.yaml")] = False,
) -> None:
    """Measures the study's trained base on held-out problems per op and says where its edge lies: which ops it masters, which
    it sometimes solves and which it never does. The bands that follow can be pinned in the scale's file."""
    from interplay.api.calibrate import calibrate

    print_visible(calibrate(plan_of(study, scale), CONFIGS, RESULTS, prompts, max_op, write))
