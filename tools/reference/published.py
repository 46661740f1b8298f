"""Lists behind docs/reproduction.md: the published numbers of the central paper (docs/data/published.csv), and which figure is
answered by which arm (docs/data/reproduction.yaml)."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, Model, UserError, nearest_name
from tools.reference import lists

NUMBERS, FIGURES = "docs/data/published.csv", "docs/data/reproduction.yaml"
MARKS = {"P": "printed in the paper", "C": "released code", "F": "read off a plot, ±1 to 2", "R": "an independent reproduction"}
COLUMNS = ("figure", "panel", "curve", "quantity", "x", "bound", "value", "unit", "mark", "note")
NOT_READ, MINUS = "not read", " − "
SIGNS = {"": "", "about": "≈ ", "at most about": "≤ about "}
TABLES = ("table 1", "table 2", "table 3", "settings")
"""In place of a figure, what has no curves."""


class Published(NamedTuple):
    """A row of the table of published numbers."""

    figure: str
    panel: str
    curve: str
    quantity: str
    x: str
    bound: str
    value: float | None
    unit: str
    mark: str
    note: str
    text: str = ""
    """The number as it is printed."""

    @property
    def what(self) -> str:
        """The quantity with its k, or its op."""
        if self.quantity == "pass@k":
            return f"pass@{self.x}"
        return f"{self.quantity}, op {self.x}" if self.x and self.at != "step" and self.panel != f"op {self.x}" else self.quantity

    @property
    def at(self) -> str:
        """What x counts."""
        return "k" if self.quantity == "pass@k" else "step" if self.quantity.startswith("reward") else "op"

    def shown(self) -> str:
        """The number with its mark, or that there is none."""
        note = f" ({self.note})" if self.note else ""
        if self.value is None:
            return f"{NOT_READ}{note}"
        sign = "+" if self.unit == "points" and self.value > 0 else ""
        number = f"{int(self.value):,}" if self.value >= 1000 else self.text
        return f"{SIGNS[self.bound]}{sign}{number} {self.unit}".rstrip() + f" [{self.mark}]{note}"


class Plot(Model):
    """A picture of one panel."""

    panel: str
    form: Literal["curves", "rows"]
    title: str


class Figure(Model):
    """A figure of the paper and what answers it."""

    figure: str
    title: str
    claim: str
    differs: str
    arms: dict[str, dict[str, str]] = {}
    bands: dict[str, str | dict[str, str]] = {}
    no_effect: list[str] = []
    trend: list[str] = []
    plots: list[Plot] = []

    @property
    def heading(self) -> str:
        """`Figure 1, left: ...`"""
        name = self.figure.replace(" left", ", left").replace(" right", ", right")
        return f"Figure {name}: {self.title}" if name[0].isdigit() else self.title


class Setting(Model):
    """A published setting and where ours is."""

    figure: str
    panel: str
    quantity: str
    key: str


class Settings(Model):
    """Settings at several scales of one study."""

    study: str
    scales: list[str]
    rows: Annotated[list[Setting], Field(min_length=1)]


def numbers(root: Path) -> list[Published]:
    """The table. Raises UserError for a number without a mark, and for all else that does not fit."""
    text = (root / NUMBERS).read_text(encoding="utf-8").splitlines()
    table = csv.DictReader(text)
    if tuple(table.fieldnames or ()) != COLUMNS:
        raise UserError(f"{NUMBERS}: line 1 should be {','.join(COLUMNS)}")
    return [_checked(row, f"{NUMBERS}: line {table.line_num}") for row in table]


def _checked(row: Mapping[str, str], at: str) -> Published:
    if None in row or None in row.values():
        raise UserError(f"{at}: should have {len(COLUMNS)} fields; quote a note with a comma")
    name = f"figure {row['figure']}, {row['curve'] or row['quantity']}"
    if row["bound"] not in SIGNS:
        raise UserError(f"{at}: bound = '{row['bound']}' should be {', '.join(map(repr, SIGNS))}")
    if bool(row["value"]) != (row["mark"] in MARKS):
        said = f"value = {row['value'] or 'empty'} and mark = '{row['mark']}'"
        raise UserError(f"{at}: {name}: {said}; a number needs a mark, {', '.join(MARKS)}, and what is not read has neither")
    try:
        value = float(row["value"]) if row["value"] else None
    except ValueError:
        raise UserError(f"{at}: {name}: value = '{row['value']}' should be a number") from None
    return Published(**{**row, "value": value, "text": row["value"]})  # type: ignore[arg-type]


def read(root: Path) -> tuple[list[Figure], Settings, list[Published]]:
    """Figures, settings and published numbers. Raises UserError for a number whose figure is not listed."""
    found, table = lists.read(root, FIGURES), numbers(root)
    figures = [parse_model(Figure, one, KeyPlace(FIGURES, ("figures", str(at)))) for at, one in enumerate(found["figures"], 1)]
    named = {one.figure for one in figures}
    for row in table:
        if row.figure not in named and row.figure not in TABLES:
            raise UserError(f"{NUMBERS}: {FIGURES} has no figure '{row.figure}'{nearest_name(row.figure, named)}")
    return figures, parse_model(Settings, found["settings"], KeyPlace(FIGURES, ("settings",))), table


def by_panel(table: Sequence[Published], figure: str) -> str:
    """Published numbers without ours, as a table: a row a panel, a column a quantity."""
    rows = [row for row in table if row.figure == figure]
    heads = dict.fromkeys(row.quantity for row in rows)
    lines = [f"| tokens | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for panel in dict.fromkeys(row.panel for row in rows):
        cells = [next(row.shown() for row in rows if (row.panel, row.quantity) == (panel, head)) for head in heads]
        lines.append(f"| {panel} | {' | '.join(cells)} |")
    return "\n".join(lines)
