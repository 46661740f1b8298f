"""Whether a plan can answer what the tables, figures and claims of a study ask: samples, curves and budgets suffice. What a plan
cannot answer is refused before the first job: else a study ends with empty cells and with claims that are not judged."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from interplay.core.artifact import ref_digest
from interplay.core.digest import canonical
from interplay.core.model import KeyPlace, Model, nearest_name, plural
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.stages import paper_tokens, planned_costs, share_reached
from interplay.kinds.table import KL, is_logged, logged_names
from interplay.report import display_spec, metric_spec, spec as report_spec
from interplay.report.display_spec import SPENT, Figure, Placed
from interplay.report.shown_spec import ArmShown, readable
from interplay.study import declared, sets
from interplay.study.arms import Combination, name_of, short_value
from interplay.study.context import ArmContext, PlanBuilder, check_known
from interplay.study.plan import Stage
from interplay.study.spec import Study

Rows = list[report_spec.ReportArm]
Value = Callable[[str, str], Any]
"""(arm, `stage.key`) -> its value in the arm."""
Stages = Mapping[str, Stage]
AXIS = r"\{([\w.]+)\}"
"""An axis in a label."""
LEAST = 2
"""Samples per prompt that a gain is split by: some choose, others measure."""
Held = Mapping[str, Mapping[str, list[str]]]
"""Arm -> name of an evaluation -> the bands that it may hold."""


class Shown(NamedTuple):
    """A metric that the study shows of some arms on a column; `place` is its key in the study."""

    place: KeyPlace
    metric: str
    column: str
    arms: list[str]


# -- arms as tables and figures have them ------------------------------------------------------------------------------------


def with_combinations(study: Study, made: Mapping[str, Combination], place: KeyPlace) -> Study:
    """The study, in whose tables and figures the combinations of an arm with axes are listed in its place. Raises UserError at an
    arm that is not there."""
    groups: dict[str, list[str]] = {}
    for name, one in made.items():
        groups.setdefault(one.group, []).append(name)

    def listed(part: str, name: str, arms: list[str] | None) -> list[str] | None:
        for arm in arms or []:
            check_known(arm, [*made, *groups], place.key(part, name, "arms"), "arm")
        return arms and list(dict.fromkeys(one for arm in arms for one in ([arm] if arm in made else groups[arm])))

    changed: dict[str, Any] = {}
    for part in ("tables", "figures"):
        entries = getattr(study, part)
        changed[part] = {name: one.model_copy(update={"arms": listed(part, name, one.arms)}) for name, one in entries.items()}
    return study.model_copy(update=changed)


def arm_looks(study: Study, made: Mapping[str, Combination], value: Value, place: KeyPlace) -> dict[str, ArmShown]:
    """Label and colour of each combination of the arms that have one. Raises UserError for a label that two have."""
    found: dict[str, ArmShown] = {}
    for group, arm in study.arms.items():
        if not (arm.label or arm.color):
            continue
        at = place.key("arms", group, "label")
        names = [name for name, one in made.items() if one.group == group]
        for number, name in enumerate(names):
            label = _labelled(arm.label, made[name], partial(value, name), at)
            found[name] = ArmShown(label=label, color=arm.color and _shade(arm.color, (number + 1) / len(names)))
    called: dict[str, str] = {}
    for name, one in made.items():
        label = (found[name].label if name in found else "") or readable(name)
        if (other := called.setdefault(label, name)) != name:
            example = next((key.rpartition(".")[2] for key in one.axes), "")
            remedy = f"put the value of an axis into it, such as {{{example}}}" if example else "give each its own"
            raise place.key("arms", one.group, "label").error(f"{name} and {other} have the same; {remedy}", label)
    return found


def _labelled(
    template: str, one: Combination, value: Callable[[str], Any], place: KeyPlace, without: Collection[str] = ()
) -> str:
    """The label with the values of axes in place of their names; of its parts between commas, or else its words, those with axes
    of `without` are left out. Raises UserError."""

    def key_of(name: str) -> str:
        return next((key for key in one.axes if key == name or key.endswith(f".{name}")), name)

    def filled(match: re.Match[str]) -> str:
        key = key_of(match[1])
        if key not in one.axes and "." not in key:
            known = [key.rpartition(".")[2] for key in one.axes]
            raise place.error(f"no axis of this arm is called '{match[1]}'{nearest_name(match[1], known)}", template)
        return short_value(one.axes[key] if key in one.axes else value(key))

    for between in (", ", " ") if without else ():
        parts = template.split(between)
        if kept := [part for part in parts if not any(key_of(name) in without for name in re.findall(AXIS, part))]:
            template = between.join(kept)
            break
    return " ".join(re.sub(AXIS, filled, template).split())


def _shade(color: str, share: float) -> str:
    """A colour mixed with white: of several the last is the full one."""
    parts = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * (0.4 + 0.6 * share)):02x}" for part in parts)


def figure_places(study: Study, made: Mapping[str, Combination], value: Value, place: KeyPlace) -> dict[str, list[Placed]]:
    """Figure against axes, or against what training took -> its arms. Raises UserError where no arm has the axis, all have one
    value of it, or two are in one place."""
    found = {}
    for name, figure in study.figures.items():
        if figure.is_axis() or figure.x in SPENT:
            arms = {arm: made[arm] for arm in figure.arms or made}
            found[name] = _place_arms(study, arms, figure, value, place.key("figures", name))
    return found


def _place_arms(study: Study, made: Mapping[str, Combination], figure: Figure, value: Value, place: KeyPlace) -> list[Placed]:
    keys = [key for key in (figure.x, figure.by) if "." in key]
    for part, key in zip(("x", "by"), keys, strict=False):
        known = dict.fromkeys(one for arm in made.values() for one in (*arm.axes, *arm.set))
        if key not in known:
            raise place.key(part).error(f"no arm of the figure has this axis or sets this key{nearest_name(key, known)}", key)
    found = []
    for arm, one in made.items():
        if all(key in one.axes or key in one.set for key in keys):
            x, row = ([_plain(one.axes.get(key, one.set.get(key))) for key in keys] + ["", None])[:2] if keys else ("", None)
            found.append(Placed(arm=arm, x=x, row=row, line=_line(study, one, figure, partial(value, arm), place)))
    _check_places(found, figure, place)
    return found


def _line(study: Study, one: Combination, figure: Figure, value: Callable[[str], Any], place: KeyPlace) -> str:
    """What the line of an arm is called: its label without the axis of the figure, or without any against what training took."""
    left_out = set(one.axes) if figure.x in SPENT else {figure.x}
    others = {key: item for key, item in one.axes.items() if key not in left_out}
    if label := study.arms[one.group].label:
        return _labelled(label, one, value, place, left_out) or one.group
    return readable(name_of(one.group, others))


def _check_places(found: list[Placed], figure: Figure, place: KeyPlace) -> None:
    if figure.x in SPENT:
        return
    for key, values in ((figure.x, {one.x for one in found}), (figure.by, {one.row for one in found})):
        if "." in key and len(values) < 2:
            only = f"these arms have one value of it, {next(iter(values), 'none')}; name others in arms, or draw it by op or band"
            raise place.key("x" if key == figure.x else "by").error(only, key)
    seen: dict[Any, str] = {}
    for one in found:
        at = (one.x, one.row if figure.form == "heat" else one.line)
        if (other := seen.setdefault(at, one.arm)) != one.arm:
            remedy = "name the arms of one of them in arms" if figure.form == "heat" else "put the other axes into their label"
            raise place.error(f"{one.arm} and {other} are in one place; {remedy}")
    off = next((one for one in found if isinstance(one.x, str) or one.x < 0), None) if figure.log else None
    if off:
        why = f"{figure.x} of {off.arm} is {off.x}, and a logarithmic axis has room for numbers from 0 on"
        raise place.key("log").error(f"{why}; take log away, or leave that arm out of arms", True)


def _plain(value: Any) -> float | str:
    """A value of an axis: a number, or a text."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else short_value(value)


# -- samples -----------------------------------------------------------------------------------------------------------------


def _planned(plan: PlanBuilder, digest: str) -> EvaluateSpec:
    """The spec of an evaluation, with the samples of all its blocks."""
    specs = [spec for block in plan.all_blocks(digest) if isinstance(spec := plan.stages[block].spec, EvaluateSpec)]
    return specs[0].model_copy(update={"num_samples": sum(spec.num_samples for spec in specs)})


def check_samples(context: ArmContext, held: Held, rows: Rows, lineups: Mapping[str, report_spec.Lineup]) -> None:
    """Every pass@k of a table, a figure or a claim has k samples per prompt in one of the evaluations that hold its column, for
    each arm, and every likelihood, class of errors and own metric one that records it; and an own metric's name has one meaning.
    Raises UserError at the first that has not."""
    study, place = context.study, context.place
    of_arm = {row.arm: {name: _planned(context.plan, one) for name, one in row.evaluations.items()} for row in rows}
    for shown in _displayed(context, list(of_arm), lineups):
        if shown.column in study.targets or metric_spec.is_of_run(shown.metric):
            declared.check_on_target(study, rows, context.plan.stages, shown.metric, shown.column, shown.arms, shown.place)
            continue
        for arm in shown.arms:
            holding = [name for name in of_arm[arm] if _holds(shown.column, held[arm][name], context.scale.bands)]
            _check_recorded(shown, {name: of_arm[arm][name] for name in holding or of_arm[arm]}, f" of {arm}")
    along = {rung.evaluation: _planned(context.plan, rung.digest) for row in rows for rung in row.rungs}
    for name, figure in study.figures.items():
        if figure.along():
            _check_recorded(Shown(place.key("figures", name, "y"), figure.y, "", []), along, "")
    for name, target in study.targets.items():
        if (of := target.evaluation) is not None:
            _check_recorded(Shown(place.key("targets", name, "curve"), target.curve, target.band, []), {of: along[of]}, "")
    found: dict[str, Model] = {}
    for name, spec in [*along.items(), *(item for planned in of_arm.values() for item in planned.items())]:
        for own in spec.metrics:
            if found.setdefault(own.called, own) != own:
                clash = f"'{own.called}' is another function here, or has other options, than in another evaluation"
                raise place.key("stages", name, "metrics").error(f"{clash}; give one of the two another name")


def samples_of(plan: PlanBuilder, digest: str) -> int:
    """Samples per prompt of an evaluation, all blocks together."""
    return _planned(plan, digest).num_samples


def tables_with_k(
    tables: Mapping[str, display_spec.Table], rows: Rows, samples: Callable[[str], int]
) -> dict[str, display_spec.Table]:
    """The tables; a gain without a k has the largest that all evaluations of its arms allow. `samples`: digest of an evaluation
    -> samples per prompt."""
    found = dict(tables)
    for name, table in found.items():
        if table.gain is not None and table.gain.k is None:
            arms = [*(table.arms or [row.arm for row in rows]), table.gain.against]
            digests = [digest for row in rows if row.arm in arms for digest in row.evaluations.values()]
            k = min(map(samples, digests), default=1)
            found[name] = table.model_copy(update={"gain": table.gain.model_copy(update={"k": k})})
    return found


def _displayed(context: ArmContext, every: list[str], lineups: Mapping[str, report_spec.Lineup]) -> Iterator[Shown]:
    study, place = context.study, context.place
    for name, table in study.tables.items():
        yield from _shown_in_table(table, place.key("tables", name), every, lineups.get(name))
    for name, figure in study.figures.items():
        if figure.x not in ("k", "step"):
            columns = figure.bands if figure.bands is not None else [figure.band or "op"]
            arms = [arm for arm in every if figure.arms is None or arm in figure.arms]
            yield from (Shown(place.key("figures", name, "y"), figure.y, column, arms) for column in columns)
    for number, claim in enumerate(study.claims):
        test = claim.test
        if test.recorded is None:
            key = "difference" if test.value is None else "value"
            yield Shown(place.key("claims", number, "test", key), test.metric, test.band, test.arms)
    if isinstance(asked := study.controls, report_spec.Controls):
        yield Shown(place.key("controls", "value"), asked.value, asked.band, [asked.of, asked.against, *asked.arms.values()])
    for keys, premise, test in declared.premises(study):
        if (of := premise.of) is not None and premise.recorded is None:
            yield Shown(place.key(*keys), of.value or test.metric, of.band or test.band, list(premise.arms.values()))


def _shown_in_table(
    table: display_spec.Table, place: KeyPlace, every: list[str], lineup: report_spec.Lineup | None
) -> Iterator[Shown]:
    """Its gain, then its cells; of a contrast also the arms of its lineup, which may be others than the table's, and the band by
    which contenders are tuned."""
    against = [arm for arm in (table.against, table.gain.against if table.gain else None) if arm is not None]
    compared = [*(item.arm for one in lineup.contenders for item in one.tries), *lineup.twins] if lineup else []
    arms = list(dict.fromkeys([*(table.arms or every), *against, *compared]))
    if table.gain is not None:
        metric = f"strict_pass@{max(LEAST, table.gain.k or LEAST)}"
        yield from (Shown(place.key("gain"), metric, column, arms) for column in table.columns)
    tuned = [table.contrast.tune.band] if table.contrast and table.contrast.tune else []
    yield from (Shown(place.key("cells"), cell, column, arms) for cell in table.cells for column in [*table.columns, *tuned])


def _holds(column: str, named: list[str], bands: Mapping[str, list[int]]) -> bool:
    """Whether an evaluation with these bands may hold the column: by name, or else by ops."""
    if column == "op" or column.startswith("op:") or column in named:
        return True
    ops = {op for band in named for op in bands.get(band, [])}
    return not ops.isdisjoint(bands.get(column, []))


def _check_recorded(shown: Shown, planned: Mapping[str, EvaluateSpec], whose: str) -> None:
    """One of these evaluations records what is shown."""
    if not planned:
        return
    most = max(planned, key=lambda name: planned[name].num_samples)
    metric, evaluation = metric_spec.metric_row(shown.metric), f"evaluation {most}{whose}"
    if metric.samples > planned[most].num_samples:
        has = f"{evaluation} has {plural(planned[most].num_samples, 'sample')} per prompt"
        raise shown.place.error(f"{has}; give it more num_samples, or lower k", shown.metric)
    if not any(metric.met_by(spec) for spec in planned.values()):
        own = [f"{metric_spec.OWN}{name}" for spec in planned.values() for name in metric_spec.own_names(spec)]
        among_own = metric.name.startswith(metric_spec.OWN) and own
        remedy = nearest_name(metric.name, own) if among_own else f"; give stages.{most} `{metric.setting}`"
        raise shown.place.error(f"{evaluation} {metric.lacks}{remedy}", shown.metric)


# -- curves and ops ----------------------------------------------------------------------------------------------------------


def check_showable(study: Study, rows: Rows, stages: Stages, place: KeyPlace) -> None:
    """Raises UserError at a key figure that is none, and at the first figure, claim or table about a curve that no stage logs, or
    about an op that no test set has, as far as a plan knows."""
    if study.key_figure:
        check_known(study.key_figure, study.figures, place.key("key_figure"), "figure")
    _check_curves(study, rows, stages, place)
    tests: dict[str, set[str]] = {}
    for row in rows:
        tests.setdefault(row.arm, set()).update(ref_digest(stages[one].deps["data"]) for one in row.evaluations.values())
    ops: dict[str, set[int]] = {}
    """Arm -> ops of its test sets, as far as a plan knows them."""
    for arm, data in tests.items():
        ops[arm] = sets.all_ops(stages, data)
    for number, claim in enumerate(study.claims):
        test = claim.test
        for arm in test.arms if test.recorded is None else ():
            declared.check_op(test.band, [ops[arm]], f"that {arm} is tested on", place.key("claims", number, "test", "band"))
    if isinstance(asked := study.controls, report_spec.Controls):
        declared.check_op(asked.band, [ops[asked.of]], f"that {asked.of} is tested on", place.key("controls", "band"))
    declared.check_records(study, rows, stages, place)
    for name, figure in study.figures.items():
        if figure.band is not None:
            declared.check_op(figure.band, list(ops.values()), "of the tests", place.key("figures", name, "band"))
    for name, table in study.tables.items():
        tested = [ops[arm] for arm in ops if table.arms is None or arm in table.arms]
        for column in table.columns:
            declared.check_op(column, tested, "of its arms' tests", place.key("tables", name, "columns"))


def _check_curves(study: Study, rows: Rows, stages: Stages, place: KeyPlace) -> None:
    """The last stage of some arm logs what a figure draws by step."""
    ends = [stages[digest] for digest in dict.fromkeys(row.path[-1].digest for row in rows)]
    for name, figure in study.figures.items():
        if figure.x != "step" or figure.along() or any(is_logged(end.kind, end.spec, figure.y) for end in ends):
            continue
        kinds = ", ".join(dict.fromkeys(end.kind for end in ends))
        remedy = nearest_name(figure.y, [key for end in ends for key in logged_names(end.kind, end.spec)])
        if figure.y == KL:
            remedy = "; stages of kind rl log it where method.loss.beta is not 0, and kl_old, from the sampling policy, always"
        raise place.key("figures", name, "y").error(f"no arm's last stage ({kinds}) logs it{remedy}", figure.y)


# -- budgets -----------------------------------------------------------------------------------------------------------------


def check_budgets(matches: list[report_spec.Match], rows: Rows, stages: Stages, study: KeyPlace) -> None:
    """Matched budgets under `paper` accounting, which charges what specs state; `realised` is the report's to judge. Raises
    UserError at the first match that names no arm or stage of the study, counts nothing, or is broken by the plan."""
    arms = dict.fromkeys(row.arm for row in rows)
    for number, match in enumerate(matches):
        place = study.key("match", number)
        for name in match.among:
            check_known(name, arms, place.key("among"), "arm")
        on_paths = {stage.name for row in rows if row.arm in match.among for stage in row.path}
        for name in match.stages or []:
            if name not in on_paths:
                nowhere = f"on the path of none of these arms{nearest_name(name, on_paths)}"
                raise place.key("stages").error(nowhere, name)
        if match.accounting == "paper":
            matched = report_spec.matched_stages(match, [row for row in rows if row.seed == rows[0].seed])
            spent = {arm: sum(_charge(match, part, stages, place) for part in parts) for arm, parts in matched.items()}
            _check_tolerance(match, spent, place)


def _charge(match: report_spec.Match, part: report_spec.ReportStage, stages: Stages, place: KeyPlace) -> int:
    stage = stages[part.digest]
    spec = canonical(stage.spec)
    share = share_reached(spec, part.step)
    tokens = round(share * paper_tokens(stage.kind, spec))
    if match.budget == "tokens":
        return tokens
    cost = planned_costs({dep: stages[dep].identity() for dep in _ancestors(stages, part.digest)})[part.digest]
    if match.budget == "rollouts":
        return round(share * cost.rollouts)
    if cost.parameters is None:
        unknown = f"the size of {stage.label}'s model is known once it is made; match tokens"
        raise place.key("budget").error(unknown, match.budget)
    return 6 * cost.parameters * tokens


def _ancestors(stages: Stages, digest: str) -> list[str]:
    """The models that a stage descends from with their tokenizer, dependencies first, itself last."""
    deps = stages[digest].deps
    before = [ref_digest(deps[role]) for role in ("tokenizer", "init") if role in deps]
    return [*(item for dep in before for item in _ancestors(stages, dep)), digest]


def _check_tolerance(match: report_spec.Match, numbers: Mapping[str, int], place: KeyPlace) -> None:
    if not any(numbers.values()):
        raise place.key("budget").error("none of these arms spends any; change among, stages or budget", match.budget)
    found = report_spec.budget_spread(numbers)
    if found > match.tolerance:
        listed = ", ".join(f"{arm} {number:,}" for arm, number in numbers.items())
        differ = f"{match.budget} differ by {found:.1%}: {listed}; give the arms equal budgets, or allow more"
        raise place.key("tolerance").error(differ, match.tolerance)
