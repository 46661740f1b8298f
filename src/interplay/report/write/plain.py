"""Plain text: aligned columns, short values, JSON in lines that people can read."""

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

LONGEST = 90
"""Characters of one value."""
WIDTH = 180
"""Characters of a line of JSON, as far as values can be broken."""


def aligned(rows: Iterable[Sequence[str]], indent: int = 2, right: Sequence[int] = ()) -> list[str]:
    """Rows of cells as lines, two spaces between columns; columns whose numbers are in `right` are flush right."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in itertools.zip_longest(*table, fillvalue="")]
    lines = []
    for row in table:
        cells = [cell.rjust(widths[at]) if at in right else cell.ljust(widths[at]) for at, cell in enumerate(row)]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return lines


def short(value: Any) -> str:
    """A value on one line: text as it is, in quotes where nothing of it would be seen, numbers to 7 digits, the rest as JSON;
    long ones cut, with what was left out."""
    if isinstance(value, str):
        lines = value.splitlines()
        text = value if len(lines) < 2 else f"{lines[0]} (and {len(lines) - 1} more lines)"
        text = text if value.strip() else repr(value)
    elif isinstance(value, float):
        text = f"{value:.7g}"
    elif isinstance(value, (list, dict, bool)) or value is None:
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def pairs(values: dict[str, Any], indent: int = 2) -> list[str]:
    """`key  value` lines."""
    return aligned(((key, short(value)) for key, value in values.items()), indent)


def size(count: int) -> str:
    """Bytes: `512 B`, `3.4 MB`."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} B"


def compact_json(value: Any, indent: int = 0) -> str:
    """JSON with a key on each line as long as what it holds does not fit in one."""
    flat = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    is_row = isinstance(value, list) and all(item is None or isinstance(item, list | str | int | float) for item in value)
    if len(flat) + indent <= WIDTH or not value or not isinstance(value, dict | list) or is_row:
        return flat
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}:{compact_json(item, indent + 1)}" for key, item in value.items()]
    else:
        parts = [compact_json(item, indent + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(parts) + "\n" + closing
