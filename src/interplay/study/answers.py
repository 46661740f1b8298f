"""Whether a plan can answer what the tables, figures and claims of a study ask: samples, curves and budgets suffice. What a plan
cannot answer is refused before the first job: else a study ends with empty cells and with claims that are not judged."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from interplay.core.artifact import split_ref
from interplay.core.digest import canonical
from interplay.core.model import KeyPlace, Model, nearest_name, plural
from interplay.data.spec import ProblemsSpec
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.stages import costs, paper_tokens, reached
from interplay.kinds.table import KL, is_logged, logged_names
from interplay.report import metric_spec, spec as report_spec
from interplay.study import sets
from interplay.study.context import ArmContext, PlanBuilder, check_known
from interplay.study.plan import Stage
from interplay.study.spec import Study

Rows = list[report_spec.ReportArm]
Stages = Mapping[str, Stage]
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
    for shown in _shown(context, list(of_arm), lineups):
        for arm in shown.arms:
            holding = [name for name in of_arm[arm] if _holds(shown.column, held[arm][name], context.scale.bands)]
            _check_recorded(shown, {name: of_arm[arm][name] for name in holding or of_arm[arm]}, f" of {arm}")
    along = {rung.evaluation: _planned(context.plan, rung.digest) for row in rows for rung in row.rungs}
    for name, figure in study.figures.items():
        if figure.along():
            _check_recorded(Shown(place.key("figures", name, "y"), figure.y, "", []), along, "")
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
    tables: Mapping[str, report_spec.Table], rows: Rows, samples: Callable[[str], int]
) -> dict[str, report_spec.Table]:
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


def _shown(context: ArmContext, every: list[str], lineups: Mapping[str, report_spec.Lineup]) -> Iterator[Shown]:
    study, place = context.study, context.place
    for name, table in study.tables.items():
        against = [arm for arm in (table.against, table.gain.against if table.gain else None) if arm is not None]
        lineup = lineups.get(name)  # its arms may be others than those of the table
        compared = [*(item.arm for one in lineup.contenders for item in one.tries), *lineup.twins] if lineup else []
        arms = list(dict.fromkeys([*(table.arms or every), *against, *compared]))
        if table.gain is not None:
            k = max(LEAST, table.gain.k or LEAST)
            gain = place.key("tables", name, "gain")
            yield from (Shown(gain, f"strict_pass@{k}", column, arms) for column in table.columns)
        tuned = [table.contrast.tune.band] if table.contrast and table.contrast.tune else []
        columns = [*table.columns, *tuned]
        cells = place.key("tables", name, "cells")
        yield from (Shown(cells, cell, column, arms) for cell in table.cells for column in columns)
    for name, figure in study.figures.items():
        if figure.x in ("op", "band"):
            columns = figure.bands if figure.bands is not None else ["op"]
            yield from (Shown(place.key("figures", name, "y"), figure.y, column, every) for column in columns)
    for number, claim in enumerate(study.claims):
        test = claim.test
        if test.recorded is None:
            key = "difference" if test.value is None else "value"
            arms = [arm for arm in (test.arm, test.against) if arm is not None]
            yield Shown(place.key("claims", number, "test", key), test.metric, test.band, arms)


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
    """Raises UserError at the first figure, claim or table about a curve that no stage logs, or about an op that no test set
    has, as far as a plan knows."""
    _check_curves(study, rows, stages, place)
    tests: dict[str, set[str]] = {}
    for row in rows:
        tests.setdefault(row.arm, set()).update(split_ref(stages[one].deps["data"])[0] for one in row.evaluations.values())
    ops: dict[str, set[int]] = {}
    """Arm -> ops of its test sets; empty where files and curated sets are among them, whose ops no plan knows."""
    for arm, data in tests.items():
        ops[arm] = sets.ops_of(stages, data) if all(isinstance(stages[one].spec, ProblemsSpec) for one in data) else set()
    for number, claim in enumerate(study.claims):
        test = claim.test
        for arm in [arm for arm in (test.arm, test.against) if arm is not None and test.recorded is None]:
            _check_op(test.band, [ops[arm]], f"that {arm} is tested on", place.key("claims", number, "test", "band"))
    for name, table in study.tables.items():
        tested = [ops[arm] for arm in ops if table.arms is None or arm in table.arms]
        for column in table.columns:
            _check_op(column, tested, "of its arms' tests", place.key("tables", name, "columns"))


def _check_curves(study: Study, rows: Rows, stages: Stages, place: KeyPlace) -> None:
    """The last stage of some arm logs what a figure draws by step."""
    ends = [stages[digest] for digest in dict.fromkeys(split_ref(row.path[-1].digest)[0] for row in rows)]
    for name, figure in study.figures.items():
        if figure.x != "step" or figure.along() or any(is_logged(end.kind, end.spec, figure.y) for end in ends):
            continue
        kinds = ", ".join(dict.fromkeys(end.kind for end in ends))
        remedy = nearest_name(figure.y, [key for end in ends for key in logged_names(end.kind, end.spec)])
        if figure.y == KL:
            remedy = "; stages of kind rl log it where method.loss.beta is not 0, and kl_old, from the sampling policy, always"
        raise place.key("figures", name, "y").error(f"no arm's last stage ({kinds}) logs it{remedy}", figure.y)


def _check_op(column: str, tested: list[set[int]], whose: str, place: KeyPlace) -> None:
    """A single op occurs in one of the sets of ops, where all are known."""
    if not column.startswith("op:") or not all(tested):
        return
    known = set[int]().union(*tested)
    if (op := int(column.removeprefix("op:"))) not in known:
        listed = ", ".join(map(str, sorted(known)))
        raise place.error(f"no problem {whose} has {op} ops; they have {listed}", column)


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
    share = reached(stage.kind, spec, part.step)
    tokens = round(share * paper_tokens(stage.kind, spec))
    if match.budget == "tokens":
        return tokens
    cost = costs({dep: stages[dep].identity() for dep in _ancestors(stages, part.digest)})[part.digest]
    if match.budget == "rollouts":
        return round(share * cost.rollouts)
    if cost.parameters is None:
        unknown = f"the size of {stage.label}'s model is known once it is made; match tokens"
        raise place.key("budget").error(unknown, match.budget)
    return 6 * cost.parameters * tokens


def _ancestors(stages: Stages, digest: str) -> list[str]:
    """The models that a stage descends from with their tokenizer, dependencies first, itself last."""
    deps = stages[digest].deps
    before = [split_ref(deps[role])[0] for role in ("tokenizer", "init") if role in deps]
    return [*(item for dep in before for item in _ancestors(stages, dep)), digest]


def _check_tolerance(match: report_spec.Match, numbers: Mapping[str, int], place: KeyPlace) -> None:
    if not any(numbers.values()):
        raise place.key("budget").error("none of these arms spends any; change among, stages or budget", match.budget)
    found = report_spec.budget_spread(numbers)
    if found > match.tolerance:
        listed = ", ".join(f"{arm} {number:,}" for arm, number in numbers.items())
        differ = f"{match.budget} differ by {found:.1%}: {listed}; give the arms equal budgets, or allow more"
        raise place.key("tolerance").error(differ, match.tolerance)
