"""One frame of `interplay watch`, as rich draws it."""

import time
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from interplay.core.model import escape_control
from interplay.results.progress import STATES, Reached, Seen, counts

COLOURS = {"waiting": "dim", "running": "cyan", "stopped": "yellow", "failed": "red", "done": "green"}
MOST_ROWS = 12
"""Running or failed stages that a frame lists."""
MOST_METRICS = 3
WORTH_SEEING = ("loss", "reward", "strict", "entropy", "grad_norm")
"""Metrics shown first, where a stage has them."""


def frame(title: str, seen: list[Seen], seconds_left: float | None, note: str) -> RenderableType:
    """The whole picture: a line on the whole, a table by kind, the running stages, and what failed."""
    parts: list[RenderableType] = [_headline(title, seen, seconds_left, note), _by_kind(counts(seen))]
    running = [one for one in seen if one.state == "running"]
    if running:
        parts += [Text(), _running(running)]
    halted = [one for one in seen if one.state in ("failed", "stopped")]
    if halted:
        parts += [Text(), *_halted(halted)]
    return Group(*parts)


def duration(seconds: float) -> str:
    """`42 s`, `7 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _headline(title: str, seen: list[Seen], seconds_left: float | None, note: str) -> Text:
    done, running = (sum(one.state == state for one in seen) for state in ("done", "running"))
    text = Text.assemble((escape_control(title), "bold"), f"  {done} of {len(seen)} stages done")
    if running:
        text.append(f", {running} running")
    if done < len(seen) and seconds_left is not None:
        text.append(f", about {duration(seconds_left)} left")
    text.append(f"  {time.strftime('%H:%M:%S')}", "dim")
    return text.append(f"\n{escape_control(note)}", "dim") if note and done < len(seen) else text


def _by_kind(table: Mapping[str, Mapping[str, int]]) -> Table:
    shown = [state for state in STATES if any(row[state] for row in table.values())]
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("kind")
    for state in shown:
        grid.add_column(state, justify="right")
    grid.add_column("")
    for kind, row in table.items():
        cells = [Text(str(row[state]) if row[state] else "·", COLOURS[state] if row[state] else "dim") for state in shown]
        grid.add_row(kind, *cells, ProgressBar(total=sum(row.values()), completed=row["done"], width=20))
    return grid


def _running(seen: list[Seen]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("running", no_wrap=True, overflow="ellipsis", max_width=34)
    grid.add_column("digest", no_wrap=True)
    grid.add_column("progress", no_wrap=True)
    grid.add_column("rate", justify="right", no_wrap=True)
    grid.add_column("left", justify="right", no_wrap=True)
    grid.add_column("last metrics", overflow="fold")
    for one in seen[:MOST_ROWS]:
        reached = one.reached or Reached(None, "", None, "", None, {})
        grid.add_row(
            Text(escape_control(one.stage.label)),
            one.stage.digest,
            Text(escape_control(_share(reached))),
            Text(escape_control(f"{reached.rate:,.3g} {reached.unit}/s" if reached.rate else "")),
            duration(reached.left) if reached.left is not None else "",
            Text(escape_control(metrics(reached.values))),
        )
    if len(seen) > MOST_ROWS:
        grid.add_row(f"and {len(seen) - MOST_ROWS} more", "", "", "", "", "")
    return grid


def _share(reached: Reached) -> str:
    if reached.share is None:
        return "starting"
    return f"{reached.share:>4.0%}  {reached.text}"


def metrics(values: Mapping[str, float]) -> str:
    """A few of the last metrics, the telling ones first."""
    keys = [*(key for key in WORTH_SEEING if key in values), *(key for key in values if key not in WORTH_SEEING)]
    return "  ".join(f"{key} {values[key]:.4g}" for key in keys[:MOST_METRICS])


def _halted(seen: list[Seen]) -> list[Text]:
    lines = [
        Text.assemble(
            (f"{one.state}  ", COLOURS[one.state]),
            escape_control(f"{one.stage.label} [{one.stage.digest}]  "),
            (escape_control(one.detail), "dim"),
        )
        for one in sorted(seen, key=lambda one: STATES.index(one.state), reverse=True)[:MOST_ROWS]
    ]
    return [*lines, Text(f"and {len(seen) - MOST_ROWS} more", "dim")] if len(seen) > MOST_ROWS else lines
