"""What the planned evaluations cannot tell is refused before the first job: pass rates of too few samples, likelihoods and error
classes that none records. Else a study ends with empty cells and with claims that are not judged."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from interplay.schema.base import UserError, plural
from interplay.schema.contrast import Lineup
from interplay.schema.evaluate import EvaluateSpec
from interplay.schema.metric import metric_row
from interplay.schema.report import Figure, Gain, ReportArm, Table
from interplay.schema.study import Study

Bands = Mapping[str, list[int]]
"""Band of the scale -> its ops."""
LEAST = 2
"""Samples per prompt that a gain is split by: some choose, others measure."""
Held = Mapping[str, Mapping[str, list[str]]]
"""Arm -> name of an evaluation -> the bands that it may hold."""


class Planned(NamedTuple):
    """An evaluation as it is planned."""

    samples: int
    """Per prompt, all blocks together."""
    spec: EvaluateSpec


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
    specs: Callable[[str], EvaluateSpec],
    where: str,
) -> None:
    """Every pass@k of a table, a figure or a claim has k samples per prompt in one of the evaluations that hold its column, for
    each arm, and every likelihood and class of errors one that records it. `samples`: per prompt, and `specs`, by the digest of
    an evaluation. Raises UserError at the first that has too few or none."""

    def plan(digest: str) -> Planned:
        return Planned(samples(digest), specs(digest))

    of_arm = {row.arm: {name: plan(digest) for name, digest in row.evaluations.items()} for row in rows}
    for asked in _asked(study, list(of_arm), lineups):
        for arm in asked.arms:
            holding = [name for name in of_arm[arm] if _holds(asked.column, held[arm][name], bands)]
            _told(asked, {name: of_arm[arm][name] for name in holding or of_arm[arm]}, f" of {arm}", where)
    along = {rung.evaluation: plan(rung.digest) for row in rows for rung in row.rungs}
    for name, figure in study.figures.items():
        if figure.along():
            _told(Asked(f"figures.{name}.y", figure.y, "", []), along, "", where)


def with_k(tables: Mapping[str, Table], rows: list[ReportArm], samples: Callable[[str], int]) -> dict[str, Table]:
    """The tables; a gain that names no k has the most that all evaluations of its arms allow."""
    return {name: _with_k(table, table.gain, rows, samples) for name, table in tables.items()}


def _with_k(table: Table, gain: Gain | None, rows: list[ReportArm], samples: Callable[[str], int]) -> Table:
    if gain is None or gain.k is not None:
        return table
    arms = [*(table.arms or [row.arm for row in rows]), gain.against]
    counts = [samples(digest) for row in rows if row.arm in arms for digest in row.evaluations.values()]
    return table.model_copy(update={"gain": gain.model_copy(update={"k": min(counts, default=1)})})


def _asked(study: Study, every: list[str], lineups: Mapping[str, Lineup]) -> Iterator[Asked]:
    for name, table in study.tables.items():
        against = [arm for arm in (table.against, table.gain.against if table.gain else None) if arm is not None]
        arms = list(dict.fromkeys([*(table.arms or every), *against, *_compared(lineups.get(name))]))
        if table.gain is not None:
            k = max(LEAST, table.gain.k or LEAST)
            yield from (Asked(f"tables.{name}.gain", f"strict_pass@{k}", column, arms) for column in table.columns)
        for cell in table.cells:
            yield from (Asked(f"tables.{name}.cells", cell, column, arms) for column in _columns(table))
    for name, figure in study.figures.items():
        if figure.x in ("op", "band"):
            yield from (Asked(f"figures.{name}.y", figure.y, column, every) for column in _places(figure))
    for number, claim in enumerate(study.claims):
        test = claim.test
        if test.recorded is not None:
            continue
        key = "difference" if test.value is None else "value"
        arms = [arm for arm in (test.arm, test.against) if arm is not None]
        yield Asked(f"claims.{number}.test.{key}", test.metric, test.band, arms)


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


def _told(asked: Asked, planned: Mapping[str, Planned], whose: str, where: str) -> None:
    """Some of these evaluations tells what is asked for."""
    if not planned:
        return
    most = max(planned, key=lambda name: planned[name].samples)
    spot = f"{where}: {asked.key} = {asked.metric!r}"
    asked_for = metric_row(asked.metric)
    if asked_for.samples > planned[most].samples:
        has = f"evaluation {most}{whose} has {plural(planned[most].samples, 'sample')} per prompt"
        raise UserError(f"{spot}: {has}; give it more num_samples, or lower k")
    if not any(asked_for.met_by(item.spec) for item in planned.values()):
        has = f"evaluation {most}{whose} {asked_for.lacks}"
        raise UserError(f"{spot}: {has}; give stages.{most} `{asked_for.setting}`")
