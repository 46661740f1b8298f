"""Commands on stages that run or ran: `interplay watch`, `interplay debug` and `interplay efficiency`."""

import logging
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interplay.cli.common import (
    CONFIGS,
    LOGS,
    RESULTS,
    Grid,
    Scale,
    Study,
    argument,
    command,
    complete_stage,
    default_scale,
    find_elsewhere,
    new_app,
    option,
    plan_of,
    show_parts,
)
from interplay.core.model import PermanentError, UserError, print_visible

if TYPE_CHECKING:
    from interplay.study.plan import Plan


LOG = logging.getLogger(__name__)

if TYPE_CHECKING:
    from interplay.study.plan import Plan

app = new_app()


@command(
    app,
    "watch",
    examples="""
interplay watch edge  # live
interplay watch edge --once  # one look, also into a file or pipe
""",
)
def watch_study(
    study: Study,
    scale: Scale = None,
    once: Annotated[bool, option("--once", help="print one look and end; so it does into a file or a pipe")] = False,
    every: Annotated[float, option("--every", metavar="SECONDS", help="time between two looks (default 2)")] = 2.0,
) -> None:
    """Shows a study while it runs: its stages by kind and state; for those that run progress, rate and time left; the last
    metrics; and an estimate for the whole. It only reads files, so it works for runs on this machine and on a cluster that
    shares the folder, and disturbs neither. Ends when all is done, or with Ctrl-C."""
    import time

    from rich.console import Console
    from rich.live import Live

    if not every > 0:
        raise UserError(f"watch: --every = {every}: must be more than 0 seconds")
    plan = plan_of(study, scale)
    where = find_elsewhere(plan)
    console = Console()
    if once or not console.is_terminal:
        console.print(_look_once(plan, where)[0])
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            picture, finished = _look_once(plan, where)
            live.update(picture, refresh=True)
            if finished:
                return
            time.sleep(every)


def _look_once(plan: "Plan", elsewhere: str) -> tuple[Any, bool]:
    """A frame, with a word on results `elsewhere`, and whether all stages are done."""
    from interplay.cli.watch_frame import frame
    from interplay.results import progress

    seen = progress.look(plan, RESULTS, LOGS)
    left, note = progress.time_left(plan, seen, RESULTS)
    title = f"{plan.study} at {plan.scale}" + (f" ({elsewhere})" if elsewhere else "")
    return frame(title, seen, left, note), all(one.state == "done" for one in seen)


@command(app, "debug", examples="interplay debug 3f2a  # the stage whose digest starts with 3f2a")
def debug_stage(
    stage: Annotated[
        str,
        argument(
            "a digest's beginning, or STUDY/ARM/seedN/STAGE; also one that failed or was never made",
            autocompletion=complete_stage,
        ),
    ],
    into: Annotated[
        Path | None,
        option("--into", metavar="INTO", help="scratch folder (default: a temporary one, removed when all bytes agree)"),
    ] = None,
    steps: Annotated[
        int | None,
        option("--steps", metavar="STEPS", min=1, help="of a training stage: a shorter one of its own, compared with nothing"),
    ] = None,
    pdb: Annotated[bool, option("--pdb", help="open the debugger where it fails")] = False,
) -> None:
    """Makes one stage again in the foreground, in a scratch folder of its own: with all that it prints, and with the debugger
    when asked. The results of the project stay as they are. Exit code 1 when its bytes differ from the record or it fails, 3
    when trying again would not help."""
    from interplay.api import adopt
    from interplay.core import artifact
    from interplay.results import catalog

    known = catalog.read(CONFIGS, RESULTS)
    found = known.stages[catalog.resolve(stage, known, CONFIGS, default_scale()).digest]
    recorded = artifact.folder(RESULTS, found["kind"], found["digest"])
    if (recorded / "stage.json").exists():  # its run block is the one that the record was made with
        found = artifact.read_json(recorded / "stage.json")
    if steps is not None:
        found = adopt.shorten_stage(found, steps)
    if into and into.absolute().is_relative_to(RESULTS.absolute()):
        raise UserError(f"--into {into}: lies in {RESULTS}, which debug never writes to; name another folder")
    scratch = into or Path(tempfile.mkdtemp(prefix="interplay-debug-"))
    try:
        out = adopt.prepare_scratch(found, RESULTS, scratch)
        failed = _make_stage(out, pdb)
    except UserError:
        _remove_scratch(scratch, into)
        raise
    if failed:
        LOG.error("failed; what it wrote lies in %s", out)
        raise typer.Exit(failed)
    if steps is not None or not artifact.done(recorded):
        print_visible(f"made in {out}; {'a stage of its own' if steps is not None else 'no record'}, nothing to compare with")
        return
    differing = adopt.compare_bytes(out, recorded)
    if differing:
        print_visible("\n".join([f"made in {out}; differs from {recorded} in", *differing]))
        raise typer.Exit(1)
    count = len(artifact.record(out)["files"])
    print_visible(f"identical: {count} file{'' if count == 1 else 's'} and all metrics, as in {recorded}")
    _remove_scratch(scratch, into)


def _make_stage(out: Path, debugger: bool) -> int:
    """Run the stage in this process; returns its exit code. Raises UserError for what the user can mend, unless debugging; an
    error that was the cause of it, such as one in a function of the study's own, is shown with its place."""
    from interplay.run.stage import run_stage

    try:
        run_stage(out)
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debugger:
            import pdb

            LOG.error("%s", traceback.format_exc().rstrip())
            pdb.post_mortem(error.__traceback__)
            return 1
        if isinstance(error, UserError) and error.__cause__ is None:
            raise
        if isinstance(error, PermanentError):
            LOG.error("interplay: %s", error)
            return 3
        LOG.error("%s", traceback.format_exc().rstrip())
        return 1


def _remove_scratch(scratch: Path, into: Path | None) -> None:
    """Remove a scratch folder that was not named by the user. What it links to stays."""
    if into is None:
        shutil.rmtree(scratch, ignore_errors=True)


EFFICIENCY = ("kind", "stages", "attempts", "threads", "CPU used", "memory", "of MiB", "longest", "of min", "fits")


@command(app, "efficiency", examples="interplay efficiency edge  # the study at the scale of configs/config.yaml")
def report_efficiency(study: Study, scale: Scale = None) -> None:
    """Says for each kind of stage how much of the threads, memory and minutes that its `run` block reserves the finished ones
    used, how many attempts they took, and which values would fit where those are far off. It reads the stages' own
    telemetry, so it needs no accounting of a cluster. Time and threads are those of the last attempt."""
    from interplay.results import efficiency

    plan = plan_of(study, scale)
    rows = []
    for of in efficiency.used(plan, RESULTS):
        fits = ", ".join(f"{key}: {value}" for key, value in efficiency.proposals(of).items())
        counts = (str(of.stages), str(of.attempts), str(of.run.cores()), f"{of.cpu:.0%}")
        given = (f"{of.memory_mb:.0f}", str(of.run.memory()), f"{of.minutes:.1f}", str(of.run.runtime))
        rows.append((of.kind, *counts, *given, fits or "-"))
    if rows:
        show_parts(Grid(EFFICIENCY, rows, right=range(1, len(EFFICIENCY) - 1)))
        return
    where = find_elsewhere(plan)
    print_visible(f"no stage of {plan.study} at scale {plan.scale} has finished" + (f"; {where}" if where else ""))
