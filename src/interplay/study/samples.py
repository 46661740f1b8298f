"""Pass rates that the planned samples cannot tell are refused before the first job: else a study ends with empty cells and with
claims that are not judged."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from interplay.schema.base import UserError, plural
from interplay.schema.contrast import Lineup
from interplay.schema.report import Figure, ReportArm, Table, is_metric
from interplay.schema.study import Study

Bands = Mapping[str, list[int]]
"""Band of the scale -> its ops."""
Held = Mapping[str, Mapping[str, list[str]]]
"""Arm -> name of an evaluation -> the bands that it may hold."""


class Asked(NamedTuple):
    """A metric that the study shows of some arms on a column; `key` is where it says so."""

    key: str
    metric: str
    column: str
    arms: list[str]


def check(
    study: Study,
    bands: Bands,
    held: Held,
    rows: list[ReportArm],
    lineups: Mapping[str, Lineup],
    samples: Callable[[str], int],
    where: str,
) -> None:
    """Every pass@k of a table, a figure or a claim has k samples per prompt in one of the evaluations that hold its column, for
    each arm. `samples`: per prompt, by the digest of an evaluation. Raises UserError at the first that has too few."""
    of_arm = {row.arm: {name: samples(digest) for name, digest in row.evaluations.items()} for row in rows}
    for asked in _asked(study, list(of_arm), lineups):
        if is_metric(asked.metric):
            for arm in asked.arms:
                holding = [name for name in of_arm[arm] if _holds(asked.column, held[arm][name], bands)]
                _enough(asked, {name: of_arm[arm][name] for name in holding or of_arm[arm]}, f" of {arm}", where)
    along = {rung.evaluation: samples(rung.digest) for row in rows for rung in row.rungs}
    for name, figure in study.figures.items():
        if figure.x == "step" and is_metric(figure.y):
            _enough(Asked(f"figures.{name}.y", figure.y, "", []), along, "", where)


def _asked(study: Study, every: list[str], lineups: Mapping[str, Lineup]) -> Iterator[Asked]:
    for name, table in study.tables.items():
        arms = list(dict.fromkeys([*(table.arms or every), *_compared(lineups.get(name))]))
        for cell in table.cells:
            yield from (Asked(f"tables.{name}.cells", cell, column, arms) for column in _columns(table))
    for name, figure in study.figures.items():
        if figure.x in ("op", "band"):
            yield from (Asked(f"figures.{name}.y", figure.y, column, every) for column in _places(figure))
    for number, claim in enumerate(study.claims):
        test = claim.test
        key, metric = ("value", test.value) if test.value is not None else ("difference", test.difference)
        arms = [arm for arm in (test.arm, test.against) if arm is not None]
        yield Asked(f"claims.{number}.test.{key}", str(metric), test.band, arms)


def _compared(lineup: Lineup | None) -> list[str]:
    """The arms of a contrast, which may be others than those of its table."""
    return [*(item.arm for one in lineup.contenders for item in one.tries), *lineup.twins] if lineup else []


def _columns(table: Table) -> list[str]:
    tune = table.contrast.tune if table.contrast else None
    return [*table.columns, *([tune.band] if tune else [])]


def _places(figure: Figure) -> list[str]:
    return figure.bands if figure.bands is not None else ["op"]


def _holds(column: str, named: list[str], bands: Bands) -> bool:
    """Whether an evaluation with these bands may hold the column: by name, or else by ops."""
    if column == "op" or column.startswith("op:") or column in named:
        return True
    ops = {op for band in named for op in bands.get(band, [])}
    return not ops.isdisjoint(bands.get(column, []))


def _enough(asked: Asked, samples: Mapping[str, int], whose: str, where: str) -> None:
    most = max(samples, key=lambda name: samples[name], default=None)
    if most is not None and int(asked.metric.split("@")[1]) > samples[most]:
        has = f"evaluation {most}{whose} has {plural(samples[most], 'sample')} per prompt"
        raise UserError(f"{where}: {asked.key} = {asked.metric!r}: {has}; give it more num_samples, or lower k")
