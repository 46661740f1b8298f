"""Who is compared with whom in a table with a contrast, and whether arms differ only in what they declare."""

from collections.abc import Mapping
from typing import Any

from interplay.core.model import Model, UserError, nearest_name, shorten_value
from interplay.core.references import corpus_inputs
from interplay.report.spec import Contender, Contrast, Lineup, ReportArm, Table, Try, Tune
from interplay.study import arms
from interplay.study.arms import Combination
from interplay.study.check import tested_bands
from interplay.study.plan import Plan
from interplay.study.resolve import at
from interplay.study.spec import Study
from interplay.study.stages import references
from interplay.tasks.spec import Task

# Clean contrasts: an arm differs from its control in what it declares, and in nothing else.
#
# Declared are its path, the keys that it sets or that its axes choose, and its `differs`. Stages of one path only are declared
# by the path; the others are compared as they were planned, by name, with the task and the data that they name.


Resolved = dict[str, dict[str, Any]]
"""Stage name, or `task`, -> its keys with models, mappings and values as they were planned."""
FROM_DATA = ("mix", "seed", "candidates")
"""Keys of specs that the planner fills in."""


def resolved(
    plan: Plan, row: ReportArm, entries: dict[str, dict[str, Any]], task: Task | None, blocks: dict[str, list[str]]
) -> Resolved:
    """All that an arm consists of at one seed. `entries` are its stages in the study's words, with `set` and axes in place;
    `blocks` the further parts of evaluations."""
    digests = {**{stage.name: stage.digest for stage in row.path}, **row.evaluations}
    found: Resolved = {"task": {name: getattr(task, name) for name in type(task).model_fields}} if task else {}
    for name, digest in digests.items():
        stage = plan.stages[digest]
        spec = {field: getattr(stage.spec, field) for field in type(stage.spec).model_fields if field not in FROM_DATA}
        own = {"kind": stage.kind, **references(entries[name])}
        corpus = next((plan.stages[dep].spec for dep in corpus_inputs(stage.deps)), None)
        found[name] = {**spec, **own, "corpus": corpus, "seed": entries.get(name, {}).get("seed", 0)}
        if more := blocks.get(digest):
            found[name]["num_samples"] = sum(at(plan.stages[part].spec, ["num_samples"]) for part in (digest, *more))
    return found


def check_contrasts(combinations: dict[str, Combination], arms: dict[str, Resolved], where: str) -> None:
    """Raises UserError at the first arm that differs from its control in more or less than it declares."""
    for name, made in combinations.items():
        if made.control is None:
            continue
        arm, control, other = arms[name], arms[made.control], combinations[made.control]
        keys = [key for stage in arm if stage in control for key in differing(arm[stage], control[stage], stage)]
        spot = f"{where}: arms.{made.group}"
        if not keys and made.path == other.path:
            raise UserError(f"{spot}.control = {made.control!r}: {name} does not differ from it; exclude it, or let it differ")
        declared = [part for one in (*made.set, *made.differs) for part in (one, *_follows(one))]
        for key in keys:
            if not any(key == one or key.startswith(f"{one}.") for one in declared):
                pair = (
                    f"{name} has {key} = {shorten_value(_value(arm, key))} and its control {shorten_value(_value(control, key))}"
                )
                remedy = f"make them the same, or put {key} into set or differs"
                raise UserError(f"{spot}.control = {made.control!r}: {pair}, which it does not declare; {remedy}")
        _all_that_is_declared(made, other, arm, control, spot)


def _follows(key: str) -> list[str]:
    """What comes with a key: whoever names other problem sets names their shares, which the corpus carries."""
    stage, _, rest = key.partition(".")
    return [f"{stage}.corpus.mix"] if rest == "data" else []


def _all_that_is_declared(made: Combination, other: Combination, arm: Resolved, control: Resolved, spot: str) -> None:
    """What the arm sets, or says to differ in, differs. What the control sets as well may be the same, and so may an axis be: a
    grid passes through the control's own values; and what is set within a whole that is set, to bring it back to them."""
    within = [key for key in made.set if any(key.startswith(f"{whole}.") for whole in made.set)]
    set_here = [key for key in made.set if key not in (*made.axes, *made.worked_out, *within) and key not in other.set]
    for part, keys in (("set", set_here), ("differs", made.differs)):
        for key in keys:
            if _alike(arm, control, key):
                value = shorten_value(_value(control, key))
                raise UserError(f"{spot}.{part}: {key}: its control '{made.control}' has {value} too; take it away, or change it")


def _alike(arm: Resolved, control: Resolved, key: str) -> bool:
    """Whether both arms have the stage, and the same value of the key."""
    stage, *keys = key.split(".")
    both = stage in arm and stage in control and keys[0] != "run"
    return both and not differing(at(arm[stage], keys), at(control[stage], keys), key)


def differing(one: Any, other: Any, path: str) -> list[str]:
    """Dotted keys below `path` at which two models, mappings or values differ; of two members of a union, the name alone."""
    if isinstance(one, Model) and isinstance(other, Model):
        if type(one) is not type(other):
            return [f"{path}.name"]
        fields = type(one).model_fields
        return (
            []
            if one == other
            else [key for name in fields for key in _below(getattr(one, name), getattr(other, name), path, name)]
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return [key for name in {**one, **other} for key in _below(one.get(name), other.get(name), path, name)]
    return [] if one == other else [path]


def _below(one: Any, other: Any, path: str, name: Any) -> list[str]:
    return [] if one is other else differing(one, other, f"{path}.{name}")


def _value(arm: Resolved, key: str) -> Any:
    value = at(arm, key.split("."))
    return {name: getattr(value, name) for name in type(value).model_fields} if isinstance(value, Model) else value


# Who is compared in a table with a contrast: contenders with the values that each was given to choose from, and the identical
# runs that make the noise floor. All that would make the fight unfair is refused here, before the first job.


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
        raise UserError(
            f"{spot}.against = {shorten_value(contrast.against)}: stands for {names}; name one of them, or tune the axis"
        )
    if len(contenders) < 2:
        raise UserError(f"{spot}: nothing is compared with {contrast.against}; name arms in among")
    _equal_tries(contenders, tune, spot)
    twins = {arm: _twin(arm, entered, rows, resolved, f"{spot}.noise = {shorten_value(arm)}") for arm in noise}
    if not any(twin in [item.arm for item in first[0].tries] for twin in twins.values()):
        raise UserError(f"{spot}.noise: no arm of it repeats {first[0].name}; repeat the arm that the others are compared with")
    return Lineup(against=first[0].name, contenders=contenders, twins=twins)


def _meant(name: str, made: Made, tune: Tune | None, spot: str) -> list[str]:
    """The combinations that a name stands for: one, those that differ in the tuned axis alone, or all of an arm with axes."""
    groups = {one.name: [item.arm for item in one.tries] for one in _contenders(list(made), made, tune)}
    found = [name] if name in made else groups.get(name) or [arm for arm, one in made.items() if one.group == name]
    if not found:
        known = [*made, *groups, *(one.group for one in made.values())]
        raise UserError(f"{spot} = {shorten_value(name)}: no such arm{nearest_name(name, known)}")
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
        raise UserError(f"{spot}.tune.band = {tune.band!r}: no such band of the evaluations{nearest_name(tune.band, tested)}")
    own = _ops(tune.band, bands)
    for column in table.columns:
        by_op = column.startswith("op") and (column == "op" or column.removeprefix("op:").isdecimal())
        if column == "op" or ((by_op or tune.band.startswith("op:")) and own & _ops(column, bands)):
            raise UserError(f"{spot}.tune.band = {tune.band!r}: holds prompts of column {column}; tune on what is not judged")


def _ops(column: str, bands: Mapping[str, list[int]]) -> set[int]:
    return {int(column.removeprefix("op:"))} if column.startswith("op:") else set(bands.get(column, []))
