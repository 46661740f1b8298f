"""Checks across the parts of a study, made before the first job: every name leads somewhere, every mix sums to one."""

from typing import Any

from interplay.schema.base import UserError, nearest
from interplay.schema.kinds import KINDS
from interplay.schema.study import Scale, Study
from interplay.schema.task import check_mix

FIRST = ("pretrain", "source")
MODELS = (*FIRST, "midtrain", "sft", "rl")


def mix(shares: dict[str, float], where: str) -> None:
    """Shares sum to one."""
    try:
        check_mix(shares, "a mix")
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} = {shares}: {error}") from None


def names(study: Study, scale: Scale, where: str) -> None:
    """Every stage, arm, band and kind that the study mentions is declared. Raises UserError at the first that is not."""
    for kind in scale.kinds:
        _known(kind, KINDS, f"scale: kinds.{kind}", "kind")
    if "task" in study.stages:
        raise UserError(f"{where}: stages.task: choose another name; `task` stands for the task itself in an arm's set")
    for name, entry in study.stages.items():
        _known(entry.get("kind", "(none)"), KINDS, f"{where}: stages.{name}.kind", "kind")
    for name, data in study.data.items():
        for band in data.names():
            _known(band, scale.bands, f"{where}: data.{name}.band", "band")
    for name, arm in study.arms.items():
        _path(study, arm.path, f"{where}: arms.{name}.path")
        if arm.control is not None:
            _known(arm.control, study.arms, f"{where}: arms.{name}.control", "arm")
    for name in study.evaluate:
        _known(name, study.stages, f"{where}: evaluate", "stage")
        if not isinstance(study.stages[name].get("data"), str):
            raise UserError(
                f"{where}: stages.{name}.data = {study.stages[name].get('data')!r}: must be the name of one problem set"
            )
        _known(study.stages[name]["data"], study.data, f"{where}: stages.{name}.data", "problem set")
    for name in study.seeds.vary if study.seeds else []:
        _known(name, study.stages, f"{where}: seeds.vary", "stage")
    _shown(study, where)


def tested_bands(study: Study) -> list[str]:
    """The bands of the evaluations' problem sets, in order of mention."""
    found = [band for name in study.evaluate for band in study.data[study.stages[name]["data"]].names()]
    return list(dict.fromkeys(found))


def _path(study: Study, path: list[str], where: str) -> None:
    if not path:
        raise UserError(f"{where}: empty; name at least one stage")
    for position, name in enumerate(path):
        _known(name, study.stages, where, "stage")
        kind = study.stages[name]["kind"]
        allowed = FIRST if position == 0 else MODELS[len(FIRST) :]
        if kind not in allowed:
            raise UserError(f"{where}: '{name}' is a {kind} stage; place {position + 1} of a path takes {', '.join(allowed)}")


def _shown(study: Study, where: str) -> None:
    bands: list[str] = tested_bands(study)
    for name, table in study.tables.items():
        for column in table.columns:
            _known(column, [*bands, "op"], f"{where}: tables.{name}.columns", "band of the evaluations")
    grids = [name for name, arm in study.arms.items() if arm.grid]
    for number, claim in enumerate(study.claims):
        spot = f"{where}: claims.{number}.test"
        if not claim.test.band.startswith("op:"):
            _known(claim.test.band, bands, f"{spot}.band", "band of the evaluations")
        for arm in [claim.test.arm, *([claim.test.against] if claim.test.against else [])]:
            if arm.split("[")[0] not in grids:
                _known(arm, study.arms, f"{spot}.arm", "arm")


def _known(name: Any, table: Any, where: str, what: str) -> None:
    if name not in table:
        raise UserError(f"{where} = {name!r}: no such {what}{nearest(str(name), list(table))}")
