"""The contents of `interplay plan` for one study, as data."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, cast

from interplay.core.artifact import split_ref
from interplay.kinds.formulas import Cost
from interplay.report.spec import ReportSpec
from interplay.results import cause, estimate, kept, locks, payloads, state
from interplay.study.plan import Plan

EXPLAINED = 100
"""New stages of a kind whose cause is determined, unless all are requested."""
TO_DO = ("new", "unfinished", "failed", "running")


class Overview(NamedTuple):
    """A plan and the state of its stages in results/."""

    plan: Plan
    states: dict[str, state.Found]
    """By digest, of the plan's stages; `kept`: a record in results/studies that a launch copies back; `unneeded`: no record, and
    all stages that depend on it are finished."""
    others: dict[str, int]
    """Kind -> finished results that neither this plan nor any lock reaches: of other studies, or of an earlier version of this
    one. Which of them can be removed is decided by `interplay gc`, which also considers studies without a lock."""
    estimate: estimate.Estimate
    """Costs of all stages; times of those that are not finished."""
    uses: int
    """Stages that the arms at their seeds would run if nothing were shared."""
    chain: float
    """Hours of the critical path: a lower bound for any number of workers."""
    causes: list[cause.Cause]
    passed_over: dict[str, int]
    """Kind -> new stages whose cause was not determined."""
    drifted: dict[str, list[str]]
    continued: dict[str, tuple[str, float]]
    """RL stages that start from the end of a finished shorter run: its digest, and its share of the steps."""

    def of_state(self, *names: str) -> list[str]:
        """The plan's stages in one of these states, in its order."""
        return [digest for digest, found in self.states.items() if found.state in names]


def read_overview(plan: Plan, configs: Path, results: Path, full: bool = False) -> Overview:
    """Read results/ and the locks, and compute the overview."""
    found = state.scan_results(results)
    locked = locks.stages_of(locks.read_locks(configs))
    library = state.Library(plan.stages, results, found, locked)
    back = kept.restorable_records(results, plan.stages, payloads.stored_kinds(results))
    found |= {digest: state.Found(plan.stages[digest].kind, state.KEPT) for digest in back}
    states = {digest: found.get(digest, state.Found(stage.kind, state.NEW)) for digest, stage in plan.stages.items()}
    needed = set(state.needed_stages(plan.stages, lambda digest: states[digest].state in state.FINISHED))
    unneeded = [digest for digest, one in states.items() if one.state not in state.FINISHED and digest not in needed]
    states |= {digest: states[digest]._replace(state=state.UNNEEDED) for digest in unneeded}
    made = estimate.estimate_launch(library, found)
    new = [digest for digest, one in states.items() if one.state == state.NEW]
    causes, passed_over = cause.explain_new(new, found, library, None if full else EXPLAINED)
    done = [(one.kind, digest) for digest, one in states.items() if one.state == "done"]
    known = {*plan.stages, *locked}
    others = Counter(one.kind for digest, one in found.items() if one.state == "done" and digest not in known)
    return Overview(
        plan=plan,
        states=states,
        others=dict(others),
        estimate=made,
        uses=stage_uses(plan),
        chain=longest_chain(plan, made),
        causes=causes,
        passed_over=passed_over,
        drifted=state.drifted_stages(results, done),
        continued=estimate.continued_runs(library, found),
    )


def stage_uses(plan: Plan) -> int:
    """Stages of every arm at every seed with all their ancestors, as if nothing were shared."""
    reached: dict[str, frozenset[str]] = {}
    for digest, stage in plan.stages.items():  # dependencies first
        if digest != plan.report:
            reached[digest] = frozenset({digest}).union(*(reached[split_ref(dep)[0]] for dep in stage.deps.values()))
    rows = cast(ReportSpec, plan.stages[plan.report].spec).arms
    shown = ([*(split_ref(stage.digest)[0] for stage in row.path), *row.evaluations.values()] for row in rows)
    return sum(len(frozenset().union(*(reached[digest] for digest in digests))) for digests in shown)


def longest_chain(plan: Plan, made: estimate.Estimate) -> float:
    """Hours of the longest chain of unfinished stages, the critical path."""
    ends: dict[str, float] = {}
    for digest, stage in plan.stages.items():
        own = made.times[digest].seconds if digest in made.times else 0.0
        ends[digest] = own + max((ends.get(split_ref(dep)[0], 0.0) for dep in stage.deps.values()), default=0.0)
    return max(ends.values(), default=0.0) / 3600


def overview_json(seen: Overview) -> dict[str, Any]:
    """The overview for programs."""
    plan, costs, times = seen.plan, seen.estimate.costs, seen.estimate.times
    stages = [
        {
            "digest": digest,
            "kind": stage.kind,
            "label": stage.label,
            "state": seen.states[digest].state,
            "detail": seen.states[digest].detail,
            **_cost(costs[digest]),
            **({"seconds": times[digest].seconds, "source": times[digest].source} if digest in times else {}),
            **({"bytes": seen.estimate.bytes[digest]} if digest in times else {}),
        }
        for digest, stage in plan.stages.items()
    ]
    return {
        "study": plan.study,
        "scale": plan.scale,
        "report": plan.report,
        "stages": stages,
        "others": seen.others,
        "uses": seen.uses,
        "distinct": len(plan.stages) - 1,
        "unused": plan.unused,
        "hours": seen.estimate.hours(),
        "gpu_hours": seen.estimate.gpu_hours(),
        "longest_chain_hours": seen.chain,
        "estimated_from": seen.estimate.sources(),
        "causes": [cause.cause_json(one) for one in seen.causes],
        "unexplained": seen.passed_over,
        "drifted": seen.drifted,
        "goes_on": {digest: {"from": shorter, "share": share} for digest, (shorter, share) in seen.continued.items()},
    }


def _cost(cost: Cost) -> dict[str, int | None]:
    return {name: value for name, value in cost._asdict().items() if name != "parameters"}
