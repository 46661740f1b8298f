"""Who is compared in a table with a contrast: contenders with the values that each was given to choose from, and the identical
runs that make the noise floor. All that would make the fight unfair is refused here, before the first job."""

from collections.abc import Mapping
from typing import Any

from interplay.schema.base import UserError, nearest, shown
from interplay.schema.contrast import Contender, Contrast, Lineup, Try, Tune
from interplay.schema.report import ReportArm, Table
from interplay.schema.study import Study
from interplay.study import arms
from interplay.study.arms import Combination
from interplay.study.check import tested_bands
from interplay.study.contrast import Resolved

Made = Mapping[str, Combination]


def lineups(
    study: Study, bands: Mapping[str, list[int]], made: Made, rows: list[ReportArm], resolved: Mapping[str, Resolved], where: str
) -> dict[str, Lineup]:
    """The lineup of each table with a contrast. `bands` are the ops of the scale's bands."""
    found = {}
    for name, table in study.tables.items():
        if table.contrast is not None:
            spot = f"{where}: tables.{name}.contrast"
            found[name] = _lineup(table, table.contrast, made, rows, resolved, spot)
            if table.contrast.tune is not None:
                _tuned_apart(table, table.contrast.tune, tested_bands(study), bands, spot)
    return found


def _lineup(
    table: Table, contrast: Contrast, made: Made, rows: list[ReportArm], resolved: Mapping[str, Resolved], spot: str
) -> Lineup:
    tune = contrast.tune
    noise = [arm for item in contrast.noise for arm in _meant(item, made, tune, f"{spot}.noise")]
    chosen = contrast.among if contrast.among is not None else table.arms
    named = [arm for item in chosen or [] for arm in _meant(item, made, tune, f"{spot}.among")]
    entered = [arm for arm in made if arm not in noise and (chosen is None or arm in named)]
    against = _meant(contrast.against, made, tune, f"{spot}.against")
    entered = [arm for arm in made if arm in entered or arm in against]
    contenders = _contenders(entered, made, tune)
    first = [one for one in contenders if any(item.arm in against for item in one.tries)]
    if len(first) > 1:
        names = ", ".join(one.name for one in first)
        raise UserError(f"{spot}.against = {shown(contrast.against)}: stands for {names}; name one of them, or tune the axis")
    if len(contenders) < 2:
        raise UserError(f"{spot}: nothing is compared with {contrast.against}; name arms in among")
    _equal_tries(contenders, tune, spot)
    twins = {arm: _twin(arm, entered, rows, resolved, f"{spot}.noise = {shown(arm)}") for arm in noise}
    if not any(twin in [item.arm for item in first[0].tries] for twin in twins.values()):
        raise UserError(f"{spot}.noise: no arm of it repeats {first[0].name}; repeat the arm that the others are compared with")
    return Lineup(against=first[0].name, contenders=contenders, twins=twins)


def _meant(name: str, made: Made, tune: Tune | None, spot: str) -> list[str]:
    """The combinations that a name stands for: one, those that differ in the tuned axis alone, or all of an arm with axes."""
    groups = {one.name: [item.arm for item in one.tries] for one in _contenders(list(made), made, tune)}
    found = [name] if name in made else groups.get(name) or [arm for arm, one in made.items() if one.group == name]
    if not found:
        known = [*made, *groups, *(one.group for one in made.values())]
        raise UserError(f"{spot} = {shown(name)}: no such arm{nearest(name, known)}")
    return found


def _contenders(entered: list[str], made: Made, tune: Tune | None) -> list[Contender]:
    """Arms that differ only in the tuned axis, together."""
    groups: dict[str, list[Try]] = {}
    for arm in entered:
        one = made[arm]
        if tune is None or tune.axis not in one.axes:
            groups.setdefault(arm, []).append(Try(arm=arm))
            continue
        rest = {key: value for key, value in one.axes.items() if key != tune.axis}
        groups.setdefault(arms.named(one.group, rest), []).append(Try(arm=arm, value=arms.short(one.axes[tune.axis])))
    return [Contender(name=name, tries=tries) for name, tries in groups.items()]


def _equal_tries(contenders: list[Contender], tune: Tune | None, spot: str) -> None:
    counts = {one.name: len(one.tries) for one in contenders}
    if tune is not None and max(counts.values()) < 2:
        raise UserError(f"{spot}.tune.axis = {tune.axis!r}: no arm of this table has several values of it; give them a grid")
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UserError(f"{spot}.tune: unequal numbers of tries: {said}; give each arm as many values")


def _twin(arm: str, entered: list[str], rows: list[ReportArm], resolved: Mapping[str, Resolved], spot: str) -> str:
    """The arm that this one repeats: the same in everything but seeds, and no model in common."""
    own = _without_seeds(resolved[arm])
    same = [other for other in entered if _without_seeds(resolved[other]) == own]
    if not same:
        raise UserError(f"{spot}: repeats no arm of this table; make it one of them but for a stage's seed, such as rl.seed: 100")
    ends = {name: {row.path[-1].digest for row in rows if row.arm == name} for name in (arm, same[0])}
    if ends[arm] & ends[same[0]]:
        raise UserError(f"{spot}: shares a model with {same[0]}; set a seed of its last stage beyond all seeds of the study")
    return same[0]


def _without_seeds(found: Resolved) -> dict[str, dict[str, Any]]:
    return {stage: {key: value for key, value in keys.items() if key != "seed"} for stage, keys in found.items()}


def _tuned_apart(table: Table, tune: Tune, tested: list[str], bands: Mapping[str, list[int]], spot: str) -> None:
    """The tuning column is evaluated, and shares no prompt with a column of judgement, by name or by op."""
    if not tune.band.startswith("op:") and tune.band not in tested:
        raise UserError(f"{spot}.tune.band = {tune.band!r}: no such band of the evaluations{nearest(tune.band, tested)}")
    own = _ops(tune.band, bands)
    for column in table.columns:
        by_op = column.startswith("op") and (column == "op" or column.removeprefix("op:").isdecimal())
        if column == "op" or ((by_op or tune.band.startswith("op:")) and own & _ops(column, bands)):
            raise UserError(f"{spot}.tune.band = {tune.band!r}: holds prompts of column {column}; tune on what is not judged")


def _ops(column: str, bands: Mapping[str, list[int]]) -> set[int]:
    return {int(column.removeprefix("op:"))} if column.startswith("op:") else set(bands.get(column, []))
