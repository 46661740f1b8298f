"""Whether a plan can answer what the tables, figures and claims of a study ask: samples, curves and budgets suffice, arms
differ from their controls in what they declare alone, and comparisons are fair. What a plan cannot answer is refused before the
first job: else a study ends with empty cells and with claims that are not judged."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from interplay.core.artifact import split_ref
from interplay.core.digest import canonical
from interplay.core.model import Model, UserError, nearest_name, plural, shorten_value
from interplay.core.references import corpus_inputs
from interplay.data.spec import ProblemsSpec
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds import study_keys
from interplay.kinds.cost import costs, paper_tokens, reached
from interplay.kinds.table import KINDS, KL, is_logged, logged_names
from interplay.report import spec as report_spec
from interplay.report.metric_spec import OWN, metric_row, own_names
from interplay.study import check, sets
from interplay.study.arms import Combination, name_of, short_value
from interplay.study.context import TASK, ArmContext, PlanBuilder, check_known, fields_of, value_at
from interplay.study.plan import Stage
from interplay.study.spec import Study

Rows = list[report_spec.ReportArm]
Stages = Mapping[str, Stage]
LEAST = 2
"""Samples per prompt that a gain is split by: some choose, others measure."""
Values = dict[str, dict[str, Any]]
"""Stage name, or `task`, -> its keys with models, mappings and values as they were planned."""
Arms = Mapping[str, Combination]
Held = Mapping[str, Mapping[str, list[str]]]
"""Arm -> name of an evaluation -> the bands that it may hold."""


class Shown(NamedTuple):
    """A metric that the study shows of some arms on a column; `key` is its place in the study."""

    key: str
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
    study, where = context.study, context.where
    of_arm = {row.arm: {name: _planned(context.plan, one) for name, one in row.evaluations.items()} for row in rows}
    for shown in _shown(study, list(of_arm), lineups):
        for arm in shown.arms:
            holding = [name for name in of_arm[arm] if _holds(shown.column, held[arm][name], context.scale.bands)]
            _check_recorded(shown, {name: of_arm[arm][name] for name in holding or of_arm[arm]}, f" of {arm}", where)
    along = {rung.evaluation: _planned(context.plan, rung.digest) for row in rows for rung in row.rungs}
    for name, figure in study.figures.items():
        if figure.along():
            _check_recorded(Shown(f"figures.{name}.y", figure.y, "", []), along, "", where)
    found: dict[str, Model] = {}
    for name, spec in [*along.items(), *(item for planned in of_arm.values() for item in planned.items())]:
        for own in spec.metrics:
            if found.setdefault(own.called, own) != own:
                clash = f"'{own.called}' is another function here, or has other options, than in another evaluation"
                raise UserError(f"{where}: stages.{name}.metrics: {clash}; give one of the two another name")


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


def _shown(study: Study, every: list[str], lineups: Mapping[str, report_spec.Lineup]) -> Iterator[Shown]:
    for name, table in study.tables.items():
        against = [arm for arm in (table.against, table.gain.against if table.gain else None) if arm is not None]
        arms = list(dict.fromkeys([*(table.arms or every), *against, *_compared(lineups.get(name))]))
        if table.gain is not None:
            k = max(LEAST, table.gain.k or LEAST)
            yield from (Shown(f"tables.{name}.gain", f"strict_pass@{k}", column, arms) for column in table.columns)
        tuned = [table.contrast.tune.band] if table.contrast and table.contrast.tune else []
        columns = [*table.columns, *tuned]
        yield from (Shown(f"tables.{name}.cells", cell, column, arms) for cell in table.cells for column in columns)
    for name, figure in study.figures.items():
        if figure.x in ("op", "band"):
            columns = figure.bands if figure.bands is not None else ["op"]
            yield from (Shown(f"figures.{name}.y", figure.y, column, every) for column in columns)
    for number, claim in enumerate(study.claims):
        test = claim.test
        if test.recorded is None:
            key = "difference" if test.value is None else "value"
            arms = [arm for arm in (test.arm, test.against) if arm is not None]
            yield Shown(f"claims.{number}.test.{key}", test.metric, test.band, arms)


def _compared(lineup: report_spec.Lineup | None) -> list[str]:
    """The arms of a contrast, which may be others than those of its table."""
    return [*(item.arm for one in lineup.contenders for item in one.tries), *lineup.twins] if lineup else []


def _holds(column: str, named: list[str], bands: Mapping[str, list[int]]) -> bool:
    """Whether an evaluation with these bands may hold the column: by name, or else by ops."""
    if column == "op" or column.startswith("op:") or column in named:
        return True
    ops = {op for band in named for op in bands.get(band, [])}
    return not ops.isdisjoint(bands.get(column, []))


def _check_recorded(shown: Shown, planned: Mapping[str, EvaluateSpec], whose: str, where: str) -> None:
    """One of these evaluations records what is shown."""
    if not planned:
        return
    most = max(planned, key=lambda name: planned[name].num_samples)
    spot, metric = f"{where}: {shown.key} = {shown.metric!r}", metric_row(shown.metric)
    if metric.samples > planned[most].num_samples:
        has = f"evaluation {most}{whose} has {plural(planned[most].num_samples, 'sample')} per prompt"
        raise UserError(f"{spot}: {has}; give it more num_samples, or lower k")
    if not any(metric.met_by(spec) for spec in planned.values()):
        has = f"evaluation {most}{whose} {metric.lacks}"
        own = [f"{OWN}{name}" for spec in planned.values() for name in own_names(spec)]
        if metric.name.startswith(OWN) and own:
            raise UserError(f"{spot}: {has}{nearest_name(metric.name, own)}")
        raise UserError(f"{spot}: {has}; give stages.{most} `{metric.setting}`")


# -- curves and ops ----------------------------------------------------------------------------------------------------------


def check_showable(study: Study, rows: Rows, stages: Stages, where: str) -> None:
    """Raises UserError at the first figure, claim or table about a curve that no stage logs, or about an op that no test set
    has, as far as a plan knows."""
    _check_curves(study, rows, stages, where)
    tests: dict[str, set[str]] = {}
    for row in rows:
        tests.setdefault(row.arm, set()).update(split_ref(stages[one].deps["data"])[0] for one in row.evaluations.values())
    ops = {arm: _ops_if_known(data, stages) for arm, data in tests.items()}
    for number, claim in enumerate(study.claims):
        test = claim.test
        for arm in [arm for arm in (test.arm, test.against) if arm is not None and test.recorded is None]:
            _check_op(test.band, [ops[arm]], f"that {arm} is tested on", f"{where}: claims.{number}.test.band")
    for name, table in study.tables.items():
        tested = [ops[arm] for arm in ops if table.arms is None or arm in table.arms]
        for column in table.columns:
            _check_op(column, tested, "of its arms' tests", f"{where}: tables.{name}.columns")


def _check_curves(study: Study, rows: Rows, stages: Stages, where: str) -> None:
    """The last stage of some arm logs what a figure draws by step."""
    ends = [stages[digest] for digest in dict.fromkeys(split_ref(row.path[-1].digest)[0] for row in rows)]
    for name, figure in study.figures.items():
        if figure.x != "step" or figure.along() or any(is_logged(end.kind, end.spec, figure.y) for end in ends):
            continue
        kinds = ", ".join(dict.fromkeys(end.kind for end in ends))
        remedy = nearest_name(figure.y, [key for end in ends for key in logged_names(end.kind, end.spec)])
        if figure.y == KL:
            remedy = "; stages of kind rl log it where method.loss.beta is not 0, and kl_old, from the sampling policy, always"
        raise UserError(f"{where}: figures.{name}.y = {figure.y!r}: no arm's last stage ({kinds}) logs it{remedy}")


def _check_op(column: str, tested: list[set[int]], whose: str, where: str) -> None:
    """A single op occurs in one of the sets of ops, where all are known."""
    if not column.startswith("op:") or not all(tested):
        return
    known = set[int]().union(*tested)
    if (op := int(column.removeprefix("op:"))) not in known:
        listed = ", ".join(map(str, sorted(known)))
        raise UserError(f"{where} = {column!r}: no problem {whose} has {op} ops; they have {listed}")


def _ops_if_known(data: set[str], stages: Stages) -> set[int]:
    """The ops of problem sets; empty where files and curated sets are among them, whose ops no plan knows."""
    return sets.ops_of(stages, data) if all(isinstance(stages[one].spec, ProblemsSpec) for one in data) else set()


# -- budgets -----------------------------------------------------------------------------------------------------------------


def check_budgets(matches: list[report_spec.Match], rows: Rows, stages: Stages, where: str) -> None:
    """Matched budgets under `paper` accounting, which charges what specs state; `realised` is the report's to judge. Raises
    UserError at the first match that names no arm or stage of the study, counts nothing, or is broken by the plan."""
    arms = dict.fromkeys(row.arm for row in rows)
    for number, match in enumerate(matches):
        spot = f"{where}: match.{number}"
        for name in match.among:
            check_known(name, arms, f"{spot}.among", "arm")
        on_paths = {stage.name for row in rows if row.arm in match.among for stage in row.path}
        for name in match.stages or []:
            if name not in on_paths:
                raise UserError(f"{spot}.stages = {name!r}: on the path of none of these arms{nearest_name(name, on_paths)}")
        if match.accounting == "paper":
            _check_tolerance(match, paper_budgets(match, rows, stages, spot), spot)


def paper_budgets(match: report_spec.Match, rows: Rows, stages: Stages, spot: str) -> dict[str, int]:
    """The budget of each arm at the first seed."""
    matched = report_spec.matched_stages(match, [row for row in rows if row.seed == rows[0].seed])
    return {arm: sum(_charge(match, part, stages, spot) for part in parts) for arm, parts in matched.items()}


def _charge(match: report_spec.Match, part: report_spec.ReportStage, stages: Stages, spot: str) -> int:
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
        raise UserError(f"{spot}.budget = 'flops': the size of {stage.label}'s model is known once it is made; match tokens")
    return 6 * cost.parameters * tokens


def _ancestors(stages: Stages, digest: str) -> list[str]:
    """The models that a stage descends from with their tokenizer, dependencies first, itself last."""
    deps = stages[digest].deps
    before = [split_ref(deps[role])[0] for role in ("tokenizer", "init") if role in deps]
    return [*(item for dep in before for item in _ancestors(stages, dep)), digest]


def _check_tolerance(match: report_spec.Match, numbers: Mapping[str, int], spot: str) -> None:
    if not any(numbers.values()):
        raise UserError(f"{spot}.budget = {match.budget!r}: none of these arms spends any; change among, stages or budget")
    found = report_spec.budget_spread(numbers)
    if found > match.tolerance:
        listed = ", ".join(f"{arm} {number:,}" for arm, number in numbers.items())
        remedy = "give the arms equal budgets, or allow more"
        raise UserError(f"{spot}.tolerance = {match.tolerance}: {match.budget} differ by {found:.1%}: {listed}; {remedy}")


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


def check_contrasts(combinations: Arms, planned: Mapping[str, Values], where: str) -> None:
    """Raises UserError at the first arm that differs from its control in more or less than it declares."""
    for name, made in combinations.items():
        if made.control is None:
            continue
        arm, control, other = planned[name], planned[made.control], combinations[made.control]
        keys = [key for stage in arm if stage in control for key in differing(arm[stage], control[stage], stage)]
        spot = f"{where}: arms.{made.group}"
        if not keys and made.path == other.path:
            raise UserError(f"{spot}.control = {made.control!r}: {name} does not differ from it; exclude it, or let it differ")
        declared = [key for one in (*made.set, *made.differs) for key in (one, *_shares_of(one, arm))]
        for key in keys:
            if not any(key == one or key.startswith(f"{one}.") for one in declared):
                pair = f"{name} has {key} = {_text_of(arm, key)} and its control {_text_of(control, key)}"
                remedy = f"make them the same, or put {key} into set or differs"
                raise UserError(f"{spot}.control = {made.control!r}: {pair}, which it does not declare; {remedy}")
        _check_declared(made, other, arm, control, spot)


def _shares_of(key: str, arm: Values) -> list[str]:
    """The shares in a corpus, which follow from a key that names the problem sets to pack."""
    stage, _, rest = key.partition(".")
    references = KINDS[arm[stage]["kind"]].references if "kind" in arm.get(stage, {}) else None
    mark = study_keys.marks(references).get(rest) if references else None
    return [f"{stage}.{mark.packed}.mix"] if isinstance(mark, study_keys.Sets) and mark.packed else []


def _check_declared(made: Combination, other: Combination, arm: Values, control: Values, spot: str) -> None:
    """What the arm sets, or declares to differ in, differs. Exceptions: what the control sets as well; an axis, since a grid
    passes through the control's own values; and a key within a value that is set, which may bring it back to the control's."""
    within = [key for key in made.set if any(key.startswith(f"{outer}.") for outer in made.set)]
    set_here = [key for key in made.set if key not in (*made.axes, *made.derived, *within) and key not in other.set]
    for part, keys in (("set", set_here), ("differs", made.differs)):
        for key in keys:
            if _is_equal(arm, control, key):
                value = _text_of(control, key)
                raise UserError(f"{spot}.{part}: {key}: its control '{made.control}' has {value} too; take it away, or change it")


def _is_equal(arm: Values, control: Values, key: str) -> bool:
    """Whether both arms have the stage, and the same value of the key."""
    stage, *keys = key.split(".")
    both = stage in arm and stage in control and keys[0] != "run"
    return both and not differing(value_at(arm[stage], keys), value_at(control[stage], keys), key)


def differing(one: Any, other: Any, path: str) -> list[str]:
    """Dotted keys below `path` at which two models, mappings or values differ; of two members of a union, the name alone."""
    if isinstance(one, Model) and isinstance(other, Model):
        if type(one) is not type(other):
            return [f"{path}.name"]
        return [] if one == other else differing(fields_of(one), fields_of(other), path)
    if isinstance(one, dict) and isinstance(other, dict):
        return [key for name in {**one, **other} for key in _below(one.get(name), other.get(name), path, name)]
    return [] if one == other else [path]


def _below(one: Any, other: Any, path: str, name: Any) -> list[str]:
    return [] if one is other else differing(one, other, f"{path}.{name}")


def _text_of(arm: Values, key: str) -> str:
    value = value_at(arm, key.split("."))
    return shorten_value(fields_of(value) if isinstance(value, Model) else value)


# -- tables with a contrast ---------------------------------------------------------------------------------------------------
# Contenders with the values that each was given to choose from, and the identical runs that make the
# noise floor. All that would make the comparison unfair is refused before the first job.


def lineups(context: ArmContext, rows: Rows, planned: Mapping[str, Values]) -> dict[str, report_spec.Lineup]:
    """The lineup of each table with a contrast. Raises UserError."""
    found = {}
    for name, table in context.study.tables.items():
        if table.contrast is not None:
            spot = f"{context.where}: tables.{name}.contrast"
            found[name] = _lineup(table, table.contrast, context.arms, rows, planned, spot)
            if table.contrast.tune is not None:
                bands = check.tested_bands(context.study)
                _check_tuning(table, table.contrast.tune, bands, context.scale.bands, spot)
    return found


def _lineup(
    table: report_spec.Table, contrast: report_spec.Contrast, made: Arms, rows: Rows, planned: Mapping[str, Values], spot: str
) -> report_spec.Lineup:
    tune = contrast.tune
    noise = [arm for item in contrast.noise for arm in _arms_of(item, made, tune, f"{spot}.noise")]
    chosen = contrast.among if contrast.among is not None else table.arms
    named = [arm for item in chosen or [] for arm in _arms_of(item, made, tune, f"{spot}.among")]
    against = _arms_of(contrast.against, made, tune, f"{spot}.against")
    entered = [arm for arm in made if (arm not in noise and (chosen is None or arm in named)) or arm in against]
    contenders = _contenders(entered, made, tune)
    first = [one for one in contenders if any(item.arm in against for item in one.tries)]
    if len(first) > 1:
        names = ", ".join(one.name for one in first)
        given = f"{spot}.against = {shorten_value(contrast.against)}"
        raise UserError(f"{given}: has several arms, {names}; name one of them, or tune the axis")
    if len(contenders) < 2:
        raise UserError(f"{spot}: nothing is compared with {contrast.against}; name arms in among")
    _check_tries(contenders, tune, spot)
    twins = {arm: _twin(arm, entered, rows, planned, f"{spot}.noise = {shorten_value(arm)}") for arm in noise}
    if not any(twin in [item.arm for item in first[0].tries] for twin in twins.values()):
        raise UserError(f"{spot}.noise: no arm of it repeats {first[0].name}; repeat the arm that the others are compared with")
    return report_spec.Lineup(against=first[0].name, contenders=contenders, twins=twins)


def _arms_of(name: str, made: Arms, tune: report_spec.Tune | None, spot: str) -> list[str]:
    """The combinations of a name: one, those that differ in the tuned axis alone, or all of an arm with axes."""
    groups = {one.name: [item.arm for item in one.tries] for one in _contenders(list(made), made, tune)}
    found = [name] if name in made else groups.get(name) or [arm for arm, one in made.items() if one.group == name]
    if not found:
        known = [*made, *groups, *(one.group for one in made.values())]
        raise UserError(f"{spot} = {shorten_value(name)}: no such arm{nearest_name(name, known)}")
    return found


def _contenders(entered: list[str], made: Arms, tune: report_spec.Tune | None) -> list[report_spec.Contender]:
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


def _check_tries(contenders: list[report_spec.Contender], tune: report_spec.Tune | None, spot: str) -> None:
    counts = {one.name: len(one.tries) for one in contenders}
    if tune is not None and max(counts.values()) < 2:
        raise UserError(f"{spot}.tune.axis = {tune.axis!r}: no arm of this table has several values of it; give them a grid")
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UserError(f"{spot}.tune: unequal numbers of tries: {listed}; give each arm as many values")


def _twin(arm: str, entered: list[str], rows: Rows, planned: Mapping[str, Values], spot: str) -> str:
    """The arm that this one repeats: the same in everything but seeds, and no model in common."""
    own = _without_seeds(planned[arm])
    same = [other for other in entered if _without_seeds(planned[other]) == own]
    if not same:
        raise UserError(f"{spot}: repeats no arm of this table; make it one of them but for a stage's seed, such as rl.seed: 100")
    ends = {name: {row.path[-1].digest for row in rows if row.arm == name} for name in (arm, same[0])}
    if ends[arm] & ends[same[0]]:
        raise UserError(f"{spot}: shares a model with {same[0]}; set a seed of its last stage beyond all seeds of the study")
    return same[0]


def _without_seeds(found: Values) -> Values:
    return {stage: {key: value for key, value in keys.items() if key != "seed"} for stage, keys in found.items()}


def _check_tuning(
    table: report_spec.Table, tune: report_spec.Tune, tested: list[str], bands: Mapping[str, list[int]], spot: str
) -> None:
    """The tuning column is evaluated, and shares no prompt with a column of judgement, by name or by op."""
    given, by_op = f"{spot}.tune.band = {tune.band!r}", tune.band.startswith("op:")
    if not by_op:
        check_known(tune.band, tested, f"{spot}.tune.band", "band of the evaluations")
    own = _column_ops(tune.band, bands)
    for column in table.columns:
        if column == "op" or ((by_op or column.startswith("op:")) and own & _column_ops(column, bands)):
            raise UserError(f"{given}: holds prompts of column {column}; tune on what is not judged")


def _column_ops(column: str, bands: Mapping[str, list[int]]) -> set[int]:
    return {int(column.removeprefix("op:"))} if column.startswith("op:") else set(bands.get(column, []))
