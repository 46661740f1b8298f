"""Whether a study's evaluations and budgets can answer what its tables, figures and claims ask."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from interplay.core.artifact import split_ref
from interplay.core.digest import canonical
from interplay.core.model import UserError, nearest_name, plural
from interplay.data.spec import ProblemsSpec
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.cost import costs, paper_tokens, reached
from interplay.kinds.table import KL, is_logged, logged_names
from interplay.report.metric_spec import metric_row
from interplay.report.spec import Figure, Gain, Lineup, Match, ReportArm, ReportStage, Table, budget_spread, matched_stages
from interplay.study.plan import Plan, Stage
from interplay.study.spec import Study

# What the planned evaluations cannot tell is refused before the first job: pass rates of too few samples, likelihoods and error
# classes that none records. Else a study ends with empty cells and with claims that are not judged.


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


def check_samples(
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


# What no stage of a study will ever tell is refused before the first job: training curves that none logs, and ops that no test
# set has. Else a study ends with a figure that is not drawn and claims that are not judged.


Stages = Mapping[str, Stage]


def check_showable(study: Study, rows: list[ReportArm], stages: Stages, where: str) -> None:
    """Raises UserError at the first figure or claim that nothing can be shown of, as far as a plan knows."""
    _curves(study, rows, stages, where)
    _ops(study, rows, stages, where)
    _showable_columns(study, rows, stages, where)


def _curves(study: Study, rows: list[ReportArm], stages: Stages, where: str) -> None:
    """The last stage of some arm logs what a figure draws by step."""
    ends = [stages[digest] for digest in dict.fromkeys(split_ref(row.path[-1].digest)[0] for row in rows)]
    for name, figure in study.figures.items():
        if figure.x != "step" or figure.along() or any(is_logged(end.kind, end.spec, figure.y) for end in ends):
            continue
        kinds = ", ".join(dict.fromkeys(end.kind for end in ends))
        known = [key for end in ends for key in logged_names(end.kind, end.spec)]
        remedy = nearest_name(figure.y, known)
        if figure.y == KL:
            remedy = "; stages of kind rl log it where method.loss.beta is not 0, and kl_old, from the sampling policy, always"
        raise UserError(f"{where}: figures.{name}.y = {figure.y!r}: no arm's last stage ({kinds}) logs it{remedy}")


def _ops(study: Study, rows: list[ReportArm], stages: Stages, where: str) -> None:
    """Every single op that is claimed about is in a set that the arm is tested on."""
    for number, claim in enumerate(study.claims):
        test = claim.test
        if test.recorded is not None or not test.band.startswith("op:"):
            continue
        op = int(test.band.removeprefix("op:"))
        for arm in [arm for arm in (test.arm, test.against) if arm is not None]:
            tested = _tested(arm, rows, stages)
            if tested and op not in tested:
                said = ", ".join(map(str, sorted(tested)))
                raise UserError(
                    f"{where}: claims.{number}.test.band = {test.band!r}: no problem that {arm} is tested on has {op} ops; "
                    f"they have {said}"
                )


def _showable_columns(study: Study, rows: list[ReportArm], stages: Stages, where: str) -> None:
    """Every single op that is a table's column is in a set that some arm of the table is tested on."""
    for name, table in study.tables.items():
        arms = dict.fromkeys(row.arm for row in rows if table.arms is None or row.arm in table.arms)
        tested = [_tested(arm, rows, stages) for arm in arms]
        known = set().union(*tested)
        for column in table.columns:
            op = int(column.removeprefix("op:")) if column.startswith("op:") else None
            if op is not None and all(tested) and op not in known:
                said = ", ".join(map(str, sorted(known)))
                raise UserError(
                    f"{where}: tables.{name}.columns = {column!r}: no problem of its arms' tests has {op} ops; they have {said}"
                )


def _tested(arm: str, rows: Iterable[ReportArm], stages: Stages) -> set[int]:
    """The ops of all that an arm is evaluated on; empty where files and curated sets are among it, whose ops no plan knows."""
    digests = {digest for row in rows if row.arm == arm for digest in row.evaluations.values()}
    specs = [stages[split_ref(stages[digest].deps["data"])[0]].spec for digest in digests]
    if not all(isinstance(spec, ProblemsSpec) for spec in specs):
        return set()
    return {op for spec in specs if isinstance(spec, ProblemsSpec) for ops in spec.bands.values() for op in ops}


# Matched budgets that a plan can tell: `paper` accounting, which charges what specs say. `realised` is the report's to judge.


def check_budgets(matches: list[Match], rows: list[ReportArm], plan: Plan, where: str) -> None:
    """Raises UserError at the first match that names no arm or stage of the study, counts nothing, or is broken by the plan."""
    arms = dict.fromkeys(row.arm for row in rows)
    for number, match in enumerate(matches):
        spot = f"{where}: match.{number}"
        for name in match.among:
            if name not in arms:
                raise UserError(f"{spot}.among = {name!r}: no such arm{nearest_name(name, arms)}")
        stages = {stage.name for row in rows if row.arm in match.among for stage in row.path}
        for name in match.stages or []:
            if name not in stages:
                raise UserError(f"{spot}.stages = {name!r}: on the path of none of these arms{nearest_name(name, stages)}")
        if match.accounting == "paper":
            _within(match, paper(match, rows, plan, spot), spot)


def paper(match: Match, rows: list[ReportArm], plan: Plan, spot: str) -> dict[str, int]:
    """The budget of each arm at the first seed."""
    found = {}
    for arm, stages in matched_stages(match, [row for row in rows if row.seed == rows[0].seed]).items():
        found[arm] = sum(_charge(match, stage, plan, spot) for stage in stages)
    return found


def _charge(match: Match, part: ReportStage, plan: Plan, spot: str) -> int:
    stage = plan.stages[part.digest]
    spec = canonical(stage.spec)
    share = reached(stage.kind, spec, part.step)
    tokens = round(share * paper_tokens(stage.kind, spec))
    if match.budget == "tokens":
        return tokens
    cost = costs({dep: plan.stages[dep].identity() for dep in _behind(plan, part.digest)})[part.digest]
    if match.budget == "rollouts":
        return round(share * cost.rollouts)
    if cost.parameters is None:
        raise UserError(f"{spot}.budget = 'flops': the size of {stage.label}'s model is known once it is made; match tokens")
    return 6 * cost.parameters * tokens


def _behind(plan: Plan, digest: str) -> list[str]:
    """The models that a stage descends from with their tokenizer, dependencies first, itself last."""
    deps = plan.stages[digest].deps
    before = [deps[role].partition("@")[0] for role in ("tokenizer", "init") if role in deps]
    return [*(item for dep in before for item in _behind(plan, dep)), digest]


def _within(match: Match, numbers: dict[str, int], spot: str) -> None:
    if not any(numbers.values()):
        raise UserError(f"{spot}.budget = {match.budget!r}: none of these arms spends any; mend among, stages or budget")
    found = budget_spread(numbers)
    if found > match.tolerance:
        listed = ", ".join(f"{arm} {number:,}" for arm, number in numbers.items())
        raise UserError(
            f"{spot}.tolerance = {match.tolerance}: {match.budget} differ by {found:.1%}: {listed}; give the arms equal budgets, "
            "or allow more"
        )
