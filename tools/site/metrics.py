"""The page on metrics: those of evaluations from their table, what runs log from docs/data/metrics.yaml, error classes, and the
columns of a table of gains."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from interplay.kinds.table import KINDS
from interplay.report.metric_spec import ERRORS, METRICS, Metric
from tools.reference import lists
from tools.reference.cells import cell

HEAD = ("| metric | unit | what it is | healthy, and what to watch |", "| --- | --- | --- | --- |")


def page(root: Path) -> str:
    """The page's Markdown."""
    rl, trainers = lists.logged(root).values()
    parts = [
        *lists.TEXTS["metrics"],
        "## Of evaluations",
        _evaluations(),
        lists.TEXTS["metrics_errors"],
        ", ".join(f"`{name}`" for name in ERRORS) + ".",
        "## Of a run of reinforcement learning",
        lists.TEXTS["metrics_rl"],
        *_sections(rl),
        "## Of other trainers",
        *_sections(trainers),
        "## Of every stage",
        *lists.TEXTS["metrics_stage"],
    ]
    return "\n\n".join(parts) + "\n"


def _evaluations() -> str:
    head = ("| metric | unit | better | what it is | the evaluation needs |", "| --- | --- | --- | --- | --- |")
    return "\n".join([*head, *(f"| {' | '.join(_evaluation(row))} |" for row in METRICS)])


def _evaluation(row: Metric) -> Sequence[str]:
    argument = row.name.replace("@", ":").partition(":")[2]
    needs = f"`{row.needs.written.format(argument)}`" if row.needs.written else "K samples a prompt" if row.per == "draw" else ""
    return f"`{row.name}`", row.measure.unit or "as returned", row.better, cell(row.note), needs


def _sections(grouped: Mapping[str, Mapping[str, lists.Meaning]]) -> Iterator[str]:
    for title, rows in grouped.items():
        yield f"### {title}"
        yield "\n".join([*HEAD, *(_row(name, one) for name, one in rows.items())])


def _row(name: str, one: lists.Meaning) -> str:
    shown = f"`{name}…`" if name.endswith(("/", "_")) else f"`{name}`"
    return f"| {shown} | {cell(one.unit)} | {cell(one.meaning)} | {cell(one.watch)} |"


def unexplained(root: Path) -> set[str]:
    """Names that a kind of stage logs and that docs/data/metrics.yaml lacks, or that it has and no kind logs."""
    rl, trainers = ({name for rows in grouped.values() for name in rows} for grouped in lists.logged(root).values())
    of_rl = {*KINDS["rl"].logged, *KINDS["rl"].logged_prefixes, "kl"}
    others = [row for kind, row in KINDS.items() if kind != "rl"]
    of_others = {name for row in others for name in (*row.logged, *row.logged_prefixes)} | {"kl"}
    return (rl ^ of_rl) | (trainers ^ of_others)
