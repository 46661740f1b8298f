"""Checks across the parts of a study, made before the first job: every name leads somewhere, every mix sums to one."""

from typing import Any

from interplay.core.execution import Run
from interplay.core.model import Model, UserError, nearest_name, parse_model, shorten_value
from interplay.core.references import check_mix
from interplay.data.spec import CorpusSpec
from interplay.data.steps.spec import is_whole
from interplay.kinds.table import KINDS, MODELS
from interplay.report.spec import ReportArm
from interplay.study.arms import SPLIT, Combination
from interplay.study.ladder import split_name
from interplay.study.spec import Arm, Scale, Study
from interplay.study.stages import PLANNED, REFERENCES, named, references
from interplay.train.spec import TrainSpec

RESERVED = {"task": "the task itself in an arm's set", SPLIT: "the split of a budget in an arm's axes"}
"""What keys of an arm may begin with beside the names of stages."""


def mix(shares: dict[str, float], where: str) -> None:
    """Shares sum to one."""
    try:
        check_mix(shares, "a mix")
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} = {shorten_value(shares)}: {error}") from None


def seed(value: Any, where: str) -> int:
    """What a stage of a path adds to the seed of each repetition."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"{where} = {shorten_value(value)}: must be a whole number, which is added to the seeds of the study")
    return value


def entry(stage: dict[str, Any], where: str) -> None:
    """What the planner reads of a stage has the right form; its other keys are for the spec of its kind to judge."""
    if "kind" not in stage:
        raise UserError(f"{where}.kind: missing; known: {', '.join(sorted(REFERENCES))}")
    _known(stage["kind"], REFERENCES, f"{where}.kind", "kind")
    parse_model(REFERENCES[stage["kind"]], references(stage), where)
    if planned := [key for key in PLANNED.get(stage["kind"], ()) if key in stage]:
        raise UserError(f"{where}.{planned[0]} = {shorten_value(stage[planned[0]])}: the planner fills it in; take it away")
    if not isinstance(stage.get("run", {}), dict):
        raise UserError(f"{where}.run = {shorten_value(stage['run'])}: must be keys and values")


def whole_rows(spec: Model, corpus: Model, where: str) -> None:
    """A step of training takes a whole number of rows of its corpus."""
    if isinstance(spec, TrainSpec) and isinstance(corpus, CorpusSpec) and spec.batch_tokens % corpus.sequence_length:
        must = f"must be a multiple of the corpus' sequence_length, {corpus.sequence_length}"
        raise UserError(f"{where}.batch_tokens = {spec.batch_tokens}: {must}")


def names(study: Study, scale: Scale, where: str) -> None:
    """Every stage, arm, band and kind that the study mentions is declared. Raises UserError at the first that is not."""
    for word, meaning in RESERVED.items():
        if word in study.stages:
            raise UserError(f"{where}: stages.{word}: choose another name; `{word}` stands for {meaning}")
    for name, stage in study.stages.items():
        entry(stage, f"{where}: stages.{name}")
    for key in ("data", "stages", "arms", "tables", "figures"):
        for name in getattr(study, key):
            if "/" in name or name in ("", ".", "..") or not name.isprintable():
                raise UserError(f"{where}: {key}.{name!r}: choose a name without '/' that can be printed: files are called by it")
    for name, data in study.data.items():
        for band in data.names() if data.form == "generated" else []:
            _known(band, scale.bands, f"{where}: data.{name}.band", "band")
        for other in data.mix or {}:
            _known(other, study.data, f"{where}: data.{name}.mix", "problem set")
    for name, change in study.scales.items():
        for other in [other for other, given in change.data.items() if not is_whole(given)]:
            _known(other, study.data, f"{where}: scales.{name}.data", "problem set")
        for other in change.stages:
            _known(other, study.stages, f"{where}: scales.{name}.stages", "stage")
    for name, arm in study.arms.items():
        _path(study, arm.path, f"{where}: arms.{name}.path")
        _keys(study, arm, f"{where}: arms.{name}")
    chosen_by = {name: stage["evaluate"] for name, stage in study.stages.items() if "evaluate" in stage}
    for name in chosen_by:
        _known(chosen_by[name], study.stages, f"{where}: stages.{name}.evaluate", "stage")
    for name in dict.fromkeys([*study.evaluate, *chosen_by.values()]):
        _known(name, study.stages, f"{where}: evaluate", "stage")
        if not isinstance(study.stages[name].get("data"), str):
            raise UserError(
                f"{where}: stages.{name}.data = {study.stages[name].get('data')!r}: must be the name of one problem set"
            )
        _known(study.stages[name]["data"], study.data, f"{where}: stages.{name}.data", "problem set")
        if "along" in study.stages[name]:
            _known(study.stages[name]["along"], study.stages, f"{where}: stages.{name}.along", "stage")
    for name in study.seeds.vary if study.seeds else []:
        _known(name, study.stages, f"{where}: seeds.vary", "stage")
    _shown(study, where)


def unused(study: Study, scale: Scale, name: str, where: str) -> None:
    """What a stage that no arm reaches names is there, its mixes sum to one, and it can be executed as it says."""
    stage = study.stages[name]
    parse_model(Run, {**scale.kinds.get(stage["kind"], {}).get("run", {}), **stage.get("run", {})}, f"{where}: stages.{name}.run")
    for key, shares in references(stage).items():
        if isinstance(shares, dict) and key != "corpus":
            mix(shares, f"{where}: stages.{name}.{key}")
    for key, what, other in named(study.stages[name]):
        _known(other, study.data if what == "problem set" else study.stages, f"{where}: stages.{name}.{key}", what)


def combinations(study: Study, made: dict[str, Combination], where: str) -> None:
    """Every arm that a claim, a table or a figure names is there."""
    for name, table in study.tables.items():
        for row in table.arms or []:
            _known(row, made, f"{where}: tables.{name}.arms", "arm")
        if table.against is not None:
            _known(table.against, made, f"{where}: tables.{name}.against", "arm")
        if table.gain is not None:
            _known(table.gain.against, made, f"{where}: tables.{name}.gain.against", "arm")
    for name, figure in study.figures.items():
        if figure.against is not None:
            _known(figure.against, made, f"{where}: figures.{name}.against", "arm")
    for number, claim in enumerate(study.claims):
        for key, arm in (("arm", claim.test.arm), ("against", claim.test.against)):
            if arm is not None:
                _known(arm, made, f"{where}: claims.{number}.test.{key}", "arm")


def different(rows: list[ReportArm], made: dict[str, Combination], where: str) -> None:
    """No two combinations of an arm, and no two arms that set the same, consist of the same stages. Arms that set different
    things may coincide: at one scale a value is the usual one, at another it is not."""
    seen: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        stages = (row.seed, *(stage.digest for stage in row.path), *row.evaluations.values())
        one = made[row.arm]
        for name in seen.setdefault(stages, []):
            if made[name].group == one.group or made[name].set == one.set:
                same = f"{row.arm} is the same as {name}, stage for stage"
                raise UserError(f"{where}: arms.{one.group}: {same}; take one away, or let it differ")
        seen[stages].append(row.arm)


def tested_bands(study: Study) -> list[str]:
    """The bands of the evaluations' problem sets, in order of mention."""
    found = [band for name in study.evaluate for band in bands_of(study, study.stages[name]["data"])]
    return list(dict.fromkeys(found))


def bands_of(study: Study, name: str, above: tuple[str, ...] = ()) -> list[str]:
    """The bands that the rows of a problem set may have: those that it or its sources name, and those that its steps label."""
    data = study.data.get(name)
    if data is None or name in above:
        return []
    found = [*data.names(), *(band for other in data.mix or {} for band in bands_of(study, other, (*above, name)))]
    labels = [step["bands"] for step in data.steps if isinstance(step.get("bands"), dict)]
    return list(dict.fromkeys([*found, *(str(band) for label in labels for band in label)]))


def _keys(study: Study, arm: Arm, where: str) -> None:
    """What the arm sets, and what its axes choose, belongs to a stage that it has."""
    reached = ["task", *(split_name(part)[0] for part in arm.path), *study.evaluate]
    for part in ("set", "grid", "zip", "one_at_a_time", "nested"):
        for key in getattr(arm, part):
            stage, _, rest = key.partition(".")
            if stage == SPLIT:
                _split_axis(arm, part, rest, f"{where}.{part}.{key}")
                continue
            if stage not in study.stages and stage != "task":
                raise UserError(f"{where}.{part}.{key}: must be stage.key{nearest_name(stage, study.stages)}")
            if stage not in reached or not rest:
                raise UserError(f"{where}.{part}.{key}: must be stage.key of a stage of this arm: {', '.join(reached)}")
            if not all(key.split(".")):
                raise UserError(f"{where}.{part}.{key}: no word between two dots, or behind the last; write stage.key.key")


def _split_axis(arm: Arm, part: str, key: str, where: str) -> None:
    """An axis over the split that the arm has."""
    if arm.split is None:
        raise UserError(f"{where}: this arm splits no budget; give it split: {{mid: ..., rl: ...}}, or take the axis away")
    if part == "set":
        raise UserError(f"{where}: write it in the arm's split itself; only axes choose it here")
    if key not in ("tokens", "rl_share"):
        raise UserError(f"{where}: must be split.tokens or split.rl_share")


def _path(study: Study, path: list[str], where: str) -> None:
    if not path:
        raise UserError(f"{where}: empty; name at least one stage")
    for position, part in enumerate(path):
        name, step = split_name(part)
        if "@" in part and step is None:
            raise UserError(
                f"{where} = {shorten_value(part)}: must be stage@step, with the step of a checkpoint that the stage keeps"
            )
        _known(name, study.stages, where, "stage")
        kind = study.stages[name]["kind"]
        allowed = [one for one in MODELS if KINDS[one].starts_path == (position == 0)]
        if kind not in allowed:
            raise UserError(f"{where}: '{name}' is a {kind} stage; place {position + 1} of a path takes {', '.join(allowed)}")


def _shown(study: Study, where: str) -> None:
    bands: list[str] = tested_bands(study)
    for name, table in study.tables.items():
        for column in table.columns:
            if column.startswith("op:"):  # whether a tested set has it, the plan knows
                continue
            _known(column, [*bands, "op"], f"{where}: tables.{name}.columns", "band of the evaluations")
    for name, figure in study.figures.items():
        for band in figure.bands or []:
            _known(band, bands, f"{where}: figures.{name}.bands", "band of the evaluations")
    for number, claim in enumerate(study.claims):
        spot = f"{where}: claims.{number}.test"
        if claim.test.recorded is not None:
            _known(claim.test.recorded, study.stages, f"{spot}.recorded", "stage")
        elif not claim.test.band.startswith("op:"):
            _known(claim.test.band, bands, f"{spot}.band", "band of the evaluations")


def _known(name: Any, table: Any, where: str, what: str) -> None:
    if not isinstance(name, str) or name not in table:
        raise UserError(f"{where} = {shorten_value(name)}: no such {what}{nearest_name(str(name), list(table))}")
