"""Matched budgets that a plan can tell: `paper` accounting, which charges what specs say. `realised` is the report's to judge."""

from interplay.schema.base import UserError, nearest
from interplay.schema.cost import costs, paper_tokens, reached
from interplay.schema.digest import canonical
from interplay.schema.match import counted, spread
from interplay.schema.report import Match, ReportArm, ReportStage
from interplay.study.plan import Plan


def check(matches: list[Match], rows: list[ReportArm], plan: Plan, where: str) -> None:
    """Raises UserError at the first match that names no arm or stage of the study, counts nothing, or is broken by the plan."""
    arms = dict.fromkeys(row.arm for row in rows)
    for number, match in enumerate(matches):
        spot = f"{where}: match.{number}"
        for name in match.among:
            if name not in arms:
                raise UserError(f"{spot}.among = {name!r}: no such arm{nearest(name, arms)}")
        stages = {stage.name for row in rows if row.arm in match.among for stage in row.path}
        for name in match.stages or []:
            if name not in stages:
                raise UserError(f"{spot}.stages = {name!r}: on the path of none of these arms{nearest(name, stages)}")
        if match.accounting == "paper":
            _within(match, paper(match, rows, plan, spot), spot)


def paper(match: Match, rows: list[ReportArm], plan: Plan, spot: str) -> dict[str, int]:
    """The budget of each arm at the first seed."""
    found = {}
    for arm, stages in counted(match, [row for row in rows if row.seed == rows[0].seed]).items():
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
    found = spread(numbers)
    if found > match.tolerance:
        listed = ", ".join(f"{arm} {number:,}" for arm, number in numbers.items())
        raise UserError(
            f"{spot}.tolerance = {match.tolerance}: {match.budget} differ by {found:.1%}: {listed}; give the arms equal budgets, "
            "or allow more"
        )
