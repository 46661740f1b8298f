"""What there is, and what runs or ran: `interplay list`, `open`, `watch`, `debug` and `efficiency`."""

import logging
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from interplay.cli import common
from interplay.cli.common import CONFIGS, LOGS, RESULTS, argument, command, flag, option
from interplay.core import artifact, model
from interplay.results import progress, telemetry
from interplay.study.plan import Plan

LOG = logging.getLogger(__name__)
COLOURS = {"waiting": "dim", "running": "cyan", "stopped": "yellow", "failed": "red", "done": "green"}
MOST_ROWS = 12
"""Running or failed stages that a frame lists."""
MOST_METRICS = 3
WIDE = 120
"""Columns from which on a running stage takes one line."""
FIRST_METRICS = ("loss", "reward", "strict", "entropy", "grad_norm")
"""Metrics shown first, where a stage has them."""
LISTED = {"methods": "method", "tasks": "task", "scales": "scale"}
"""What can be listed -> its folder in configs/."""
EFFICIENCY = ("kind", "stages", "attempts", "threads", "CPU used", "memory", "of MiB", "longest", "of min", "fits")

Counts = Mapping[str, Mapping[str, int]]
"""Kind -> state -> number of stages."""

app = common.new_app()


@command(app, "list")
def list_known(
    what: Annotated[
        Literal["studies", "methods", "tasks", "metrics", "scales"], argument("studies, methods, tasks, metrics or scales")
    ] = "studies",
) -> None:
    """Lists the studies of the project with the scales at which they were run, and their questions; or the methods, tasks,
    metrics or scales that a study may name.

    Examples:
        interplay list  # studies
        interplay list methods  # names for `method:` of an RL stage
    """
    if what == "studies":
        from interplay.serve import data

        found = list(data.study_rows(data.Place(CONFIGS, RESULTS, LOGS)))
        rows = [[row["study"], ", ".join(map(_state, row["runs"])) or "-", row["question"]] for row in found]
        common.show_parts(common.Grid(("study", "state", "question"), _cut(rows)))
    elif what == "metrics":
        from interplay.report import metric_spec

        known = [[row.name, row.setting, row.note] for row in metric_spec.METRICS]
        common.show_parts(common.Grid(("metric", "needs of the evaluation", "meaning"), _cut(known)))
    else:
        folder = CONFIGS / LISTED[what]
        named = [
            [path.relative_to(folder).with_suffix("").as_posix(), *_describe(path)] for path in sorted(folder.rglob("*.yaml"))
        ]
        papers = any(paper for _, _, paper in named)
        rows = [[name, paper, said] if papers else [name, said] for name, said, paper in named]
        common.show_parts(common.Grid((what[:-1], *(["source"] if papers else []), "what it is"), _cut(rows)))


def _state(run: dict[str, Any]) -> str:
    """`finished at smoke`, `12 of 40 at laptop`."""
    return f"{'finished' if run['finished'] else '{done} of {total}'.format(**run)} at {run['scale']}"


def _cut(rows: list[list[str]]) -> list[list[str]]:
    """Rows whose last cell is cut to the width of the terminal."""
    used = [max((len(row[at]) for row in rows), default=0) + 2 for at in range(len(rows[0]) - 1)] if rows else []
    left = max(30, (os.get_terminal_size().columns if sys.stdout.isatty() else 10**6) - sum(used))
    return [[*row[:-1], row[-1] if len(row[-1]) <= left else f"{row[-1][: left - 1]}…"] for row in rows]


def _describe(path: Path) -> tuple[str, str]:
    """The first sentence of a file's first comment, and the paper it names."""
    lines = path.read_text().splitlines()
    comment = " ".join(line.lstrip("# ") for line in lines[1:6] if line.startswith("#"))
    paper = next((line.removeprefix("paper: ") for line in lines if line.startswith("paper: ")), "")
    return re.split(r"(?<=[.]) (?=[A-Z])", comment)[0], re.split("[,;]", paper)[0]


@command(app, "watch")
def watch_study(
    study: common.Study,
    scale: common.Scale = None,
    once: Annotated[bool, flag("--once", "print one frame and end, as into a file or a pipe")] = False,
    every: Annotated[float, option("--every", "time between two frames (default 2)", metavar="SECONDS")] = 2.0,
) -> None:
    """Shows a study while it runs: stages by kind and state; progress, rate, time left, curve of the reward or loss and last
    metrics of running stages, with early warnings; the cause of what failed; and the time left for all. It only reads files, so
    it works for runs on this machine and on a cluster that shares the folder. Ends when all is done, or with Ctrl-C.

    Examples:
        interplay watch edge  # live
        interplay watch edge --once  # one frame, also into a file or pipe
    """
    if not every > 0:
        raise model.UserError(f"watch: --every = {every}: must be more than 0 seconds")
    plan = common.plan_of(study, scale)
    hint = common.hint_other_scale(plan)
    console = Console()
    if once or not console.is_terminal:
        console.print(_take_frame(plan, hint, console.width)[0])
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            picture, finished = _take_frame(plan, hint, console.width)
            live.update(picture, refresh=True)
            if finished:
                return
            time.sleep(every)


def _take_frame(plan: Plan, hint: str, width: int) -> tuple[RenderableType, bool]:
    """A frame: a headline, with a hint on results at other scales, a table by kind, the running stages with early warnings, and
    those that failed or stopped, with the cause; and whether the report, the last stage, is done."""
    seen = progress.watch_stages(plan, RESULTS, LOGS)
    left = progress.time_left(plan, seen, RESULTS)
    title = f"{plan.study} at {plan.scale}" + (f" ({hint})" if hint else "")
    parts: list[RenderableType] = [_headline(title, seen, left), _count_table(progress.count_states(seen))]
    halted = [one for one in seen if one.state in ("failed", "stopped")]
    if running := [one for one in seen if one.state == "running"]:
        parts += [Text(), _running_table(plan, running, width), *_warning_lines(plan, running, left.late)]
    if halted:
        parts += [Text(), *_halted_lines(plan, halted)]
    if not running and seen[-1].state != "done":
        parts += [Text(), Text(_next_command(plan, halted), "bold")]
    return Group(*parts), seen[-1].state == "done"


def _next_command(plan: Plan, halted: list[progress.Watched]) -> str:
    """What to type where nothing runs and not all is done."""
    run = f"`{plan.run_command()}`"
    if failed := [one for one in halted if one.state == "failed"]:
        return f"nothing runs; `interplay debug {plan.address(failed[0].stage)}` makes the first that failed again, {run} all"
    return f"nothing runs; {run} {'goes on' if halted else 'starts it'}"


def format_duration(seconds: float) -> str:
    """`42 s`, `7 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _headline(title: str, seen: list[progress.Watched], left: progress.TimeLeft) -> Text:
    done, running = (sum(one.state == state for one in seen) for state in ("done", "running"))
    text = Text.assemble((model.escape_control(title), "bold"), f"  {done} of {len(seen)} stages done")
    if running:
        text.append(f", {running} running")
    if left.seconds is not None:
        text.append(f", about {format_duration(left.seconds)} left")
    text.append(f"  {time.strftime('%H:%M:%S')}", "dim")
    return text.append(f"\n{model.escape_control(left.basis)}", "dim") if left.basis else text


def _count_table(counts: Counts) -> Table:
    shown = [state for state in COLOURS if any(row[state] for row in counts.values())]
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("kind")
    for state in shown:
        grid.add_column(state, justify="right")
    grid.add_column("")
    for kind, row in counts.items():
        cells = [Text(str(row[state]) if row[state] else "·", COLOURS[state] if row[state] else "dim") for state in shown]
        grid.add_row(kind, *cells, ProgressBar(total=sum(row.values()), completed=row["done"], width=20))
    return grid


def _running_table(plan: Plan, seen: list[progress.Watched], width: int) -> Table:
    """One line for each running stage; in a narrow terminal two, so that its metrics are never cut."""
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("running", no_wrap=True, overflow="ellipsis", max_width=width // 2)
    for name in ("progress", "rate", "left"):
        grid.add_column(name, justify="right" if name in ("rate", "left") else "left", no_wrap=True)
    wide = width >= WIDE
    if wide:
        grid.add_column("last metrics", overflow="fold")
    for one in seen[:MOST_ROWS]:
        cells, shown = ["starting", "", ""], progress.sparkline(one.curve)
        if (at := one.reached) is not None:
            cells[0] = "starting" if at.share is None else f"{at.share:>4.0%}  {at.text}"
            cells[1] = f"{at.rate:,.3g} {at.unit}/s" if at.rate else ""
            cells[2] = format_duration(at.left) if at.left is not None else ""
            shown = f"{shown}  {format_metrics(at.values)}".strip()
        row = [Text(model.escape_control(cell)) for cell in (plan.address(one.stage), *cells)]
        grid.add_row(*row, *([Text(model.escape_control(shown))] if wide else []))
        if shown and not wide:
            grid.add_row(Text(model.escape_control(f"  {shown}"), "dim"))
    if len(seen) > MOST_ROWS:
        grid.add_row(f"and {len(seen) - MOST_ROWS} more")
    return grid


def _warning_lines(plan: Plan, seen: list[progress.Watched], late: dict[str, list[progress.Warned]]) -> list[Text]:
    """Early warnings of running stages (results/progress.py)."""
    named = [(plan.address(one.stage), said) for one in seen for said in (*one.warnings, *late.get(one.stage.digest, ()))]
    return [
        Text.assemble(("warning  ", "yellow"), model.escape_control(f"{name}  {said.name}: {said.text}"))
        for name, said in named[:MOST_ROWS]
    ]


def format_metrics(values: Mapping[str, float]) -> str:
    """A few of the last metrics, the most informative first."""
    keys = [*(key for key in FIRST_METRICS if key in values), *(key for key in values if key not in FIRST_METRICS)]
    return "  ".join(f"{key} {values[key]:.4g}" for key in keys[:MOST_METRICS])


def _halted_lines(plan: Plan, seen: list[progress.Watched]) -> list[Text]:
    lines = [
        Text.assemble(
            (f"{one.state}  ", COLOURS[one.state]),
            model.escape_control(f"{plan.address(one.stage)}  "),
            (model.escape_control(one.detail), "dim"),
        )
        for one in sorted(seen, key=lambda one: one.state != "failed")[:MOST_ROWS]
    ]
    return [*lines, Text(f"and {len(seen) - MOST_ROWS} more", "dim")] if len(seen) > MOST_ROWS else lines


@command(app, "open")
def open_page(port: Annotated[int, option("--port", "of loopback (default: a free one)", min=0, max=65535)] = 0) -> None:
    """Serves a live page of results/ to a browser on this machine, until Ctrl-C: studies, states of stages with time left, curves
    and early warnings, the log and the cause of what failed, completions by error class next to their reference solutions, and
    any two arms side by side. It answers on 127.0.0.1 alone and writes nothing. From elsewhere: `ssh -L PORT:127.0.0.1:PORT`.

    Examples:
        interplay open  # prints the address
    """
    from interplay.serve import app as server, data

    if not CONFIGS.is_dir():
        raise model.UserError(f"{CONFIGS}: no such folder; run from the root of the project")
    server.serve(data.Place(CONFIGS, RESULTS, LOGS), port, lambda url: LOG.info("open %s   (Ctrl-C ends it)", url))


@command(app, "debug")
def debug_stage(
    stage: common.Stage,
    into: Annotated[
        Path | None, option("--into", "scratch folder (default: a temporary one, removed when all bytes agree)")
    ] = None,
    steps: Annotated[
        int | None, option("--steps", "of a training stage: a shorter run, not compared with the record", min=1)
    ] = None,
    pdb: Annotated[bool, flag("--pdb", "open the debugger where it fails")] = False,
) -> None:
    """Makes one stage again in the foreground, in a scratch folder: with all its output, and with --pdb in the debugger; also one
    that failed or was never made. The results of the project stay as they are. Exit code 1 when its bytes differ from the record
    or it fails, 3 when a retry would fail the same way.

    Examples:
        interplay debug edge/rl_edge/rl@0  # a stage of a study
        interplay debug 3f2a --pdb  # the stage whose digest starts with 3f2a, in the debugger where it fails
    """
    from interplay.api import single

    known, (digest, _) = common.find_stage(stage, None)
    found = known.stages[digest]
    recorded = artifact.folder(RESULTS, found["kind"], found["digest"])
    if (recorded / "stage.json").exists():  # with the run block of the record
        found = artifact.read_json(recorded / "stage.json")
    if steps is not None:
        found = single.shorten_stage(found, steps)
    if into and into.absolute().is_relative_to(RESULTS.absolute()):
        raise model.UserError(f"--into {into}: lies in {RESULTS}, where debug does not write; name another folder")
    scratch = into or Path(tempfile.mkdtemp(prefix="interplay-debug-"))
    try:
        out = single.prepare_scratch(found, RESULTS, scratch)
        failed = _make_stage(out, pdb)
    except model.UserError:
        _remove_scratch(scratch, into)
        raise
    if failed:
        LOG.error("failed; its files are in %s", out)
        raise typer.Exit(failed)
    if steps is not None or not artifact.done(recorded):
        model.print_visible(f"made in {out}; {'a shorter run' if steps is not None else 'no record'}, nothing to compare with")
        return
    differing = single.compare_bytes(out, recorded)
    if differing:
        model.print_visible("\n".join([f"made in {out}; differs from {recorded} in", *differing]))
        raise typer.Exit(1)
    model.print_visible(
        f"identical: {model.plural(len(artifact.record(out)['files']), 'file')} and all metrics, as in {recorded}"
    )
    _remove_scratch(scratch, into)


def _make_stage(out: Path, debugger: bool) -> int:
    """Run the stage in this process; returns its exit code. Raises UserError for errors that the user can fix, unless debugging;
    one with a cause, such as an exception in a function of the study, is shown with its traceback."""
    from interplay.run import stage

    try:
        stage.run_stage(out)
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debugger:
            import pdb

            LOG.error("%s", traceback.format_exc().rstrip())
            pdb.post_mortem(error.__traceback__)
            return 1
        if isinstance(error, model.UserError) and error.__cause__ is None:
            raise
        if isinstance(error, model.PermanentError):
            LOG.error("interplay: %s", error)
            return 3
        LOG.error("%s", traceback.format_exc().rstrip())
        return 1


def _remove_scratch(scratch: Path, into: Path | None) -> None:
    """Remove a scratch folder that the user did not name. Targets of its links stay."""
    if into is None:
        shutil.rmtree(scratch, ignore_errors=True)


@command(app, "efficiency")
def report_efficiency(study: common.Study, scale: common.Scale = None) -> None:
    """Shows for each kind of stage how much of the reserved threads, memory and minutes (`run` block) the finished stages used,
    the number of attempts, and fitting values where a reservation is far off. It reads the stages' telemetry, so it needs no
    accounting of a cluster. Time and threads are those of the last attempt.

    Examples:
        interplay efficiency edge  # the study at the scale of configs/config.yaml
    """

    plan = common.plan_of(study, scale)
    rows = []
    for usage in telemetry.usage_by_kind(plan, RESULTS):
        fits = ", ".join(f"{key}: {value}" for key, value in telemetry.proposals(usage).items())
        counts = (str(usage.stages), str(usage.attempts), str(usage.run.cores()), f"{usage.cpu:.0%}")
        given = (f"{usage.memory_mb:.0f}", str(usage.run.memory()), f"{usage.minutes:.1f}", str(usage.run.runtime))
        rows.append((usage.kind, *counts, *given, fits or "-"))
    if rows:
        common.show_parts(common.Grid(EFFICIENCY, rows, right=range(1, len(EFFICIENCY) - 1)))
        return
    hint = common.hint_other_scale(plan)
    model.print_visible(f"no stage of {plan.study} at scale {plan.scale} has finished" + (f"; {hint}" if hint else ""))
