"""Whether the comparisons of a study are fair: arms differ from their controls in what they declare alone, and a table with a
contrast has contenders that had equally many values to choose from, and identical runs that make its noise floor. All that would
make a comparison unfair is refused before the first job."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from interplay.core import artifact
from interplay.core.digest import corpus_inputs, digest as digest_of
from interplay.core.model import KeyPlace, Model, nearest_name, shorten_value
from interplay.kinds import study_keys
from interplay.kinds.table import KINDS
from interplay.report import display_spec, spec as report_spec
from interplay.rl.loss_spec import Loss
from interplay.rl.spec import RLSpec
from interplay.study import declared
from interplay.study.arms import Combination, combine, name_of, short_value, split_part
from interplay.study.context import TASK, ArmContext, check_known, fields_of, known_entry, value_at, with_changes
from interplay.study.plan import Stage
from interplay.study.spec import Arm, Study

Rows = list[report_spec.ReportArm]
Values = dict[str, dict[str, Any]]
"""Stage name, or `task`, -> its keys with models, mappings and values as they were planned."""
Arms = Mapping[str, Combination]


# -- the same arms twice -----------------------------------------------------------------------------------------------------


def check_different(rows: Rows, made: Arms, place: KeyPlace) -> None:
    """No two combinations of an arm, and no two arms that set the same, consist of the same stages. Arms that set different
    things may coincide: a value is the default at one scale and not at another. Raises UserError."""
    seen: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        stages = (row.seed, *row.digests())
        one = made[row.arm]
        for name in seen.setdefault(stages, []):
            if made[name].group == one.group or made[name].set == one.set:
                same = f"{row.arm} is the same as {name}, stage for stage"
                raise place.key("arms", one.group).error(f"{same}; take one away, or let it differ")
        seen[stages].append(row.arm)


# -- methods that are one ----------------------------------------------------------------------------------------------------
# Where the ratio is exactly 1, as with one optimiser step a batch, losses whose point is the ratio have nothing to act on, and
# many losses have one gradient. Both are refused unless an arm says why it is wanted (`coincides`).


def check_methods(rows: Rows, stages: Mapping[str, Stage], context: ArmContext) -> None:
    """Every RL stage has what its loss acts on, and no two arms are trained by the same gradients. Raises UserError."""
    first = {row.arm: row for row in reversed(rows)}
    wanted = {name: context.study.arms[one.group].coincides for name, one in context.arms.items()}
    seen: dict[tuple[str, ...], list[str]] = {}
    for name, made in context.arms.items():
        place = context.place.key("arms", made.group)
        trained = [(part.name, stages[part.digest]) for part in first[name].path]
        for stage, one in trained:
            if not wanted[name] and isinstance(one.spec, RLSpec):
                _check_ratio(one.spec, stage, place)
        others = seen.setdefault(_gradients([one for _, one in trained]), [])
        for other in others if not wanted[name] else []:
            same = [part.digest for part in first[other].path] == [part.digest for part in first[name].path]
            if not (same or wanted[other]) and _evaluated(first[name], stages) == _evaluated(first[other], stages):
                remedy = "take one away, let them differ, or give one of them `coincides: why it is wanted`"
                raise place.error(f"{name} is trained by the very gradients of {other}: {_why(trained)}; {remedy}")
        others.append(name)


def _check_ratio(spec: RLSpec, stage: str, place: KeyPlace) -> None:
    """Raises UserError where the loss of a stage acts on ratios and all are 1."""
    loss = spec.method.loss
    if loss.needs_ratio() and spec.ratio_is_one():
        updates = f"{stage}.minibatches = {spec.minibatches} with {stage}.method.loss.num_iterations = {loss.num_iterations}"
        acts = f"the loss {describe_loss(loss)} acts on ratios, and {updates} leaves all at 1, where it is as any other"
        remedy = f"write {stage}.minibatches: 4, or let an arm say `coincides: why it is wanted`"
        raise place.error(f"{acts}; {remedy}")


def describe_loss(loss: Loss) -> str:
    """Its name, with the options that make it a method."""
    options = [getattr(loss, key, "token") for key in ("loss_type", "importance_sampling_level")]
    return f"{loss.name} ({', '.join(options)})" if options[1] != "token" or options[0] == "cispo" else str(loss.name)


def _gradients(trained: list[Stage]) -> tuple[str, ...]:
    """A path by what trains its stages: equal where all gradients are."""
    known: dict[str, str] = {}
    for stage in trained:
        spec = stage.spec.equal_gradients() if isinstance(stage.spec, RLSpec) else stage.spec
        refs = {role: artifact.split_ref(ref) for role, ref in stage.deps.items()}
        deps = {role: f"{known.get(digest, digest)}@{step}" for role, (digest, step) in refs.items()}
        known[stage.digest] = digest_of(stage.kind, spec, deps)
    return tuple(known.values())


def _evaluated(row: report_spec.ReportArm, stages: Mapping[str, Stage]) -> list[tuple[str, Model, dict[str, str]]]:
    """How an arm is evaluated, but for the model."""
    found = [(name, stages[digest]) for name, digest in row.evaluations.items()]
    return [(name, one.spec, {role: ref for role, ref in one.deps.items() if role != "model"}) for name, one in found]


def _why(trained: list[tuple[str, Stage]]) -> str:
    """Why two arms come to one."""
    given = []
    for stage, one in trained:
        if isinstance(one.spec, RLSpec):
            same = one.spec.equal_gradients().method.loss
            updates = f"{stage} has {one.spec.minibatches * same.num_iterations} optimiser steps a batch"
            ratio = ", so that the ratio is 1," if one.spec.ratio_is_one() else ""
            given.append(f"{updates}{ratio} and its loss is {same.name} with loss_type {getattr(same, 'loss_type', '')} in both")
    return "; ".join(given)


# -- standard controls -------------------------------------------------------------------------------------------------------
# What else may explain a gain by RL, as ordinary arms: each differs from the arm of the gain in one thing.


REWARDS = {"random": {"name": "random"}, "format": {"name": "format", "weight": 1.0}, "labels": {"name": "shuffled"}}
"""Kind of a control -> the reward of its RL."""
OTHER_SAMPLES = 100
"""Added to the seed of evaluations of the control without RL."""


def with_controls(context: ArmContext) -> Study:
    """The study with the arms that its `controls` need; its tables and figures go on to show the others alone. Raises
    UserError."""
    study, place = context.study, context.place.key("controls")
    made = combine(study.arms, context.lookup(), context.place)
    chosen = study.controls if isinstance(study.controls, report_spec.Controls) else _standard(study, made, context, place)
    of, against = (
        known_entry(made, chosen.of, place.key("of"), "arm"),
        known_entry(made, chosen.against, place.key("against"), "arm"),
    )
    at = _last_rl(of, context)
    if at is None or against.path != of.path[:at]:
        raise place.error(f"{chosen.against} must end where the RL of {chosen.of} starts: with the path {of.path[: at or 1]}")
    if taken := [name for name in chosen.arms.values() if name in (*study.arms, *study.stages)]:
        raise context.place.key("arms", taken[0]).error("choose another name; controls adds an arm that is called so")
    own = list(made)
    changed: dict[str, Any] = {
        part: {name: one if one.arms else one.model_copy(update={"arms": own}) for name, one in getattr(study, part).items()}
        for part in ("tables", "figures")
    }
    if name := chosen.arms.get("sft"):
        changed["stages"] = {**study.stages, name: _sft_stage(of.path[at], study, with_changes(context, of.set).value)}
        if study.seeds and of.path[at] in study.seeds.vary:
            changed["seeds"] = study.seeds.model_copy(update={"vary": [*study.seeds.vary, name]})
    added = {name: _control_arm(kind, name, of, at, chosen, context) for kind, name in chosen.arms.items()}
    return study.model_copy(update={**changed, "controls": chosen, "arms": {**study.arms, **added}})


def _control_arm(kind: str, name: str, of: Combination, at: int, chosen: report_spec.Controls, context: ArmContext) -> Arm:
    """The arm of a control: that of the gain, whose RL, the stage `at` of its path, is paid otherwise, replaced, or left out."""
    rl, evaluate, given = of.path[at], context.study.evaluate, dict(of.set)
    path = list(of.path)
    if kind in REWARDS:
        given = {key: item for key, item in of.set.items() if not f"{key}.".startswith(f"{rl}.reward.")}
        given[f"{rl}.reward"] = REWARDS[kind]
    elif kind == "sft":
        path[at] = name
    else:
        path, value = of.path[:at], with_changes(context, of.set).value
        given |= {f"{one}.seed": (value(f"{one}.seed") or 0) + OTHER_SAMPLES for one in evaluate}
    reached = {*path, *evaluate, TASK}
    kept = {key: item for key, item in given.items() if key.split(".")[0] in reached}
    return Arm(path=path, control=chosen.against if kind == "none" else chosen.of, set=kept)


def _sft_stage(rl: str, study: Study, value: Callable[[str], Any]) -> dict[str, Any]:
    """SFT on the data of RL, for as many tokens as its completions may have, set as the study's first SFT otherwise."""
    usual = next((stage for stage in study.stages.values() if stage.get("kind") == "sft"), {})
    kept = {key: item for key, item in usual.items() if key not in ("data", "tokens", "validation")}
    amounts = ("steps", "prompts_per_step", "method.allocation.num_generations", "max_completion_length")
    tokens = math.prod(value(f"{rl}.{key}") for key in amounts)
    return {**kept, "kind": "sft", "data": value(f"{rl}.data"), "tokens": tokens}


def _standard(study: Study, made: Arms, context: ArmContext, place: KeyPlace) -> report_spec.Controls:
    """About the first claim that compares an arm after RL with what its RL started from."""
    for test in (claim.test for claim in study.claims):
        at = _last_rl(made[test.arm], context) if test.difference and test.band and test.arm in made else None
        if at is not None and test.against and test.against in made and made[test.against].path == made[test.arm].path[:at]:
            return report_spec.Controls(of=test.arm, against=test.against, band=test.band, value=str(test.difference))
    form = "write {of: ARM, against: ARM, band: BAND}"
    raise place.error(f"no claim compares an arm after RL with what its RL started from; {form}", "standard")


def _last_rl(arm: Combination, context: ArmContext) -> int | None:
    """Where on the path of an arm its last RL is."""
    return next((n for n in reversed(range(len(arm.path))) if context.stages[split_part(arm.path[n])[0]].kind == "rl"), None)


# -- clean contrasts ---------------------------------------------------------------------------------------------------------
# An arm differs from its control in what it declares, and in nothing else. Declared are its path, the keys
# that it sets, those of its axes, and its `differs`. Stages of one path only are declared by the path; the others are compared
# as they were planned, by name, with the task and the data that they name.


def planned_values(context: ArmContext, row: report_spec.ReportArm) -> Values:
    """All that an arm consists of at one seed, without the keys of specs that the planner fills in."""
    plan, task = context.plan, context.typed_task()
    found: Values = {TASK: fields_of(task)} if task else {}
    for name, digest in {**{part.name: part.digest for part in row.path}, **row.evaluations}.items():
        planned, stage = plan.stages[digest], context.stages[name]
        spec = {key: value for key, value in fields_of(context.spec(stage)).items() if key not in KINDS[stage.kind].planned}
        corpus = next((plan.stages[corpus].spec for corpus in corpus_inputs(planned.deps)), None)
        own = {"kind": stage.kind, **stage.given(), "corpus": corpus, "seed": stage.settings.get("seed", 0)}
        found[name] = {**spec, **own}
    return found


def check_contrasts(combinations: Arms, planned: Mapping[str, Values], study: KeyPlace) -> None:
    """Raises UserError at the first arm that differs from its control in more or less than it declares."""
    for name, made in combinations.items():
        if made.control is None:
            continue
        arm, control, other = planned[name], planned[made.control], combinations[made.control]
        keys = [key for stage in arm if stage in control for key in differing(arm[stage], control[stage], stage)]
        place = study.key("arms", made.group)
        if not keys and made.path == other.path:
            same = f"{name} does not differ from it; exclude it, or let it differ"
            raise place.key("control").error(same, made.control)
        declared = [key for one in (*made.set, *made.differs) for key in (one, *_following(one, arm))]
        for key in keys:
            if not any(key == one or key.startswith(f"{one}.") for one in declared):
                pair = f"{name} has {key} = {_text_of(arm, key)} and its control {_text_of(control, key)}"
                remedy = f"make them the same, or put {key} into set or differs"
                raise place.key("control").error(f"{pair}, which it does not declare; {remedy}", made.control)
        _check_declared(made, other, arm, control, place)


def _following(key: str, arm: Values) -> list[str]:
    """What follows from a key: the shares in a corpus from one that names the problem sets to pack, minibatches from the method
    and from the prompts that it shares out."""
    stage, _, rest = key.partition(".")
    if rest in ("method", "method.minibatches", "prompts_per_step"):
        return [f"{stage}.minibatches"]
    references = KINDS[arm[stage]["kind"]].references if "kind" in arm.get(stage, {}) else None
    mark = study_keys.marks(references).get(rest) if references else None
    return [f"{stage}.{mark.packed}.mix"] if isinstance(mark, study_keys.Sets) and mark.packed else []


def _check_declared(made: Combination, other: Combination, arm: Values, control: Values, place: KeyPlace) -> None:
    """What the arm sets, or declares to differ in, differs. Exceptions: what the control sets as well; an axis, since a grid
    passes through the control's own values; and a key within a value that is set, which may bring it back to the control's."""
    within = [key for key in made.set if any(key.startswith(f"{outer}.") for outer in made.set)]
    set_here = [key for key in made.set if key not in (*made.axes, *made.derived, *within) and key not in other.set]
    for part, keys in (("set", set_here), ("differs", made.differs)):
        for key in keys:
            if _is_equal(arm, control, key):
                value = _text_of(control, key)
                too = f"{key}: its control '{made.control}' has {value} too; take it away, or change it"
                raise place.key(part).error(too)


def _is_equal(arm: Values, control: Values, key: str) -> bool:
    """Whether both arms have the stage, and the same value of the key."""
    stage, *keys = key.split(".")
    both = stage in arm and stage in control and keys[:1] != ["run"]
    return both and not differing(value_at(arm[stage], keys), value_at(control[stage], keys), key)


def differing(one: Any, other: Any, path: str) -> list[str]:
    """Dotted keys below `path` at which two models, mappings or values differ; of two members of a union, the name alone."""
    if isinstance(one, Model) and isinstance(other, Model):
        if type(one) is not type(other):
            return [f"{path}.name"]
        return [] if one == other else differing(fields_of(one), fields_of(other), path)
    if isinstance(one, dict) and isinstance(other, dict):
        inner = [name for name in {**one, **other} if one.get(name) is not other.get(name)]
        return [key for name in inner for key in differing(one.get(name), other.get(name), f"{path}.{name}")]
    return [] if one == other else [path]


def _text_of(arm: Values, key: str) -> str:
    value = value_at(arm, key.split("."))
    return shorten_value(fields_of(value) if isinstance(value, Model) else value)


# -- tables with a contrast ---------------------------------------------------------------------------------------------------
# Contenders with the values that each was given to choose from, and the identical runs that make the noise floor.


def lineups(context: ArmContext, rows: Rows, planned: Mapping[str, Values]) -> dict[str, report_spec.Lineup]:
    """The lineup of each table with a contrast. Raises UserError."""
    found = {}
    for name, table in context.study.tables.items():
        if table.contrast is not None:
            place = context.place.key("tables", name, "contrast")
            found[name] = _lineup(table, table.contrast, context.arms, rows, planned, place)
            if table.contrast.tune is not None:
                bands = declared.tested_bands(context.study)
                _check_tuning(table, table.contrast.tune, bands, context.scale.bands, place.key("tune", "band"))
    return found


def _lineup(
    table: display_spec.Table,
    contrast: display_spec.Contrast,
    made: Arms,
    rows: Rows,
    planned: Mapping[str, Values],
    place: KeyPlace,
) -> report_spec.Lineup:
    tune = contrast.tune
    noise = [arm for item in contrast.noise for arm in _arms_of(item, made, tune, place.key("noise"))]
    chosen = contrast.among if contrast.among is not None else table.arms
    named = [arm for item in chosen or [] for arm in _arms_of(item, made, tune, place.key("among"))]
    against = _arms_of(contrast.against, made, tune, place.key("against"))
    entered = [arm for arm in made if (arm not in noise and (chosen is None or arm in named)) or arm in against]
    contenders = _contenders(entered, made, tune)
    first = [one for one in contenders if any(item.arm in against for item in one.tries)]
    if len(first) > 1:
        names = ", ".join(one.name for one in first)
        several = f"has several arms, {names}; name one of them, or tune the axis"
        raise place.key("against").error(several, contrast.against)
    if len(contenders) < 2:
        raise place.error(f"nothing is compared with {contrast.against}; name arms in among")
    _check_tries(contenders, tune, place.key("tune"))
    twins = {arm: _twin(arm, entered, rows, planned, place.key("noise")) for arm in noise}
    if contrast.noise and not any(twin in [item.arm for item in first[0].tries] for twin in twins.values()):
        none = f"no arm of it repeats {first[0].name}; repeat the arm that the others are compared with"
        raise place.key("noise").error(none)
    return report_spec.Lineup(against=first[0].name, contenders=contenders, twins=twins)


def _arms_of(name: str, made: Arms, tune: display_spec.Tune | None, place: KeyPlace) -> list[str]:
    """The combinations of a name: one, those that differ in the tuned axis alone, or all of an arm with axes."""
    groups = {one.name: [item.arm for item in one.tries] for one in _contenders(list(made), made, tune)}
    found = [name] if name in made else groups.get(name) or [arm for arm, one in made.items() if one.group == name]
    if not found:
        known = [*made, *groups, *(one.group for one in made.values())]
        raise place.error(f"no such arm{nearest_name(name, known)}", name)
    return found


def _contenders(entered: list[str], made: Arms, tune: display_spec.Tune | None) -> list[report_spec.Contender]:
    """Arms that differ only in the tuned axis, together."""
    groups: dict[str, list[report_spec.Try]] = {}
    for arm in entered:
        one = made[arm]
        if tune is None or tune.axis not in one.axes:
            groups.setdefault(arm, []).append(report_spec.Try(arm=arm))
            continue
        rest = {key: value for key, value in one.axes.items() if key != tune.axis}
        groups.setdefault(name_of(one.group, rest), []).append(report_spec.Try(arm=arm, value=short_value(one.axes[tune.axis])))
    return [report_spec.Contender(name=name, tries=tries) for name, tries in groups.items()]


def _check_tries(contenders: list[report_spec.Contender], tune: display_spec.Tune | None, place: KeyPlace) -> None:
    counts = {one.name: len(one.tries) for one in contenders}
    if tune is not None and max(counts.values()) < 2:
        raise place.key("axis").error("no arm of this table has several values of it; give them a grid", tune.axis)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise place.error(f"unequal numbers of tries: {listed}; give each arm as many values")


def _twin(arm: str, entered: list[str], rows: Rows, planned: Mapping[str, Values], place: KeyPlace) -> str:
    """The arm that this one repeats: the same in everything but seeds, and no model in common."""
    own = _without_seeds(planned[arm])
    same = [other for other in entered if _without_seeds(planned[other]) == own]
    if not same:
        remedy = "make it one of them but for a stage's seed, such as rl.seed: 100"
        raise place.error(f"repeats no arm of this table; {remedy}", arm)
    ends = {name: {row.path[-1].digest for row in rows if row.arm == name} for name in (arm, same[0])}
    if ends[arm] & ends[same[0]]:
        raise place.error(f"shares a model with {same[0]}; set a seed of its last stage beyond all seeds of the study", arm)
    return same[0]


def _without_seeds(found: Values) -> Values:
    return {stage: {key: value for key, value in keys.items() if key != "seed"} for stage, keys in found.items()}


def _check_tuning(
    table: display_spec.Table, tune: display_spec.Tune, tested: list[str], bands: Mapping[str, list[int]], place: KeyPlace
) -> None:
    """The tuning column is evaluated, and shares no prompt with a column of judgement, by name or by op."""
    by_op = tune.band.startswith("op:")
    if not by_op:
        check_known(tune.band, tested, place, "band of the evaluations")
    own = _column_ops(tune.band, bands)
    for column in table.columns:
        if column == "op" or ((by_op or column.startswith("op:")) and own & _column_ops(column, bands)):
            raise place.error(f"holds prompts of column {column}; tune on what is not judged", tune.band)


def _column_ops(column: str, bands: Mapping[str, list[int]]) -> set[int]:
    return {int(column.removeprefix("op:"))} if column.startswith("op:") else set(bands.get(column, []))
