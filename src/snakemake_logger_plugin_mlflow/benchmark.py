"""Snakemake's benchmark files: tab-separated, or one JSON object a line where the name ends in .jsonl."""

import contextlib
import csv
import json
from pathlib import Path


def read(path: str | None) -> list[dict[str, float]]:
    """The numbers of each repetition: `s` (seconds), `max_rss` (MB), `cpu_time` (seconds), ...; [] when there is no such file.

    What was not measured (`NA`, `-`) and what is not a number is left out."""
    if path is None or not Path(path).exists():
        return []
    with contextlib.suppress(OSError, ValueError), open(path, newline="") as handle:
        if path.endswith(".jsonl"):
            rows = [json.loads(line) for line in handle if line.strip()]
        else:
            rows = list(csv.DictReader(handle, delimiter="\t"))
        return [_numbers(row) for row in rows]
    return []


def _numbers(row: dict) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in row.items():
        with contextlib.suppress(TypeError, ValueError):
            number = float(value)
            if number == number and abs(number) != float("inf"):
                found[str(key)] = number
    return found


def seconds(rows: list[dict[str, float]]) -> float | None:
    """Seconds that the job's own command ran; None when that was not measured."""
    return sum(row["s"] for row in rows) if rows and all("s" in row for row in rows) else None
