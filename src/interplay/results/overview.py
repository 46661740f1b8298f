"""All that `interplay plan` says of one study, as data."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, cast

from interplay.core.artifact import split_ref
from interplay.kinds.formulas import Cost
from interplay.report.spec import ReportSpec
from interplay.results import cause, estimate, kept, payloads, state
from interplay.results.cause import Cause
from interplay.results.estimate import Estimate
from interplay.results.state import Found, Library
from interplay.study.plan import Plan

EXPLAINED = 100
"""New stages of a kind whose cause is looked for, unless all are asked for."""
TO_DO = ("new", "unfinished", "failed", "running")


class Overview(NamedTuple):
    """A plan beside what lies in results/."""

    plan: Plan
    states: dict[str, Found]
    """By digest, of the plan's stages; `kept`: a record in results/studies that a launch puts back."""
    others: dict[str, int]
    """Kind -> finished results that neither this plan nor any lock reaches: of other studies, or of this one as it was. What of
    them may go is for `interplay gc` to say, which knows of studies without a lock."""
    estimate: Estimate
    """Costs of all stages; times of those that are not finished."""
    uses: int
    """Stages that the arms at their seeds would run if nothing were shared."""
    chain: float
    """Hours of the longest chain of stages that wait for each other: no number of workers goes below it."""
    causes: list[Cause]
    passed_over: dict[str, int]
    """Kind -> new stages whose cause was not looked for."""
    drifted: dict[str, list[str]]
    goes_on: dict[str, tuple[str, float]]
    """RL stages that start from the end of a finished shorter run: its digest, and its share of the steps."""

    def of_state(self, *names: str) -> list[str]:
        """The plan's stages in one of these states, in its order."""
        return [digest for digest, found in self.states.items() if found.state in names]


def look(plan: Plan, configs: Path, results: Path, full: bool = False) -> Overview:
    """Read results/ and the locks, and work out the overview."""
    found = state.scan(results)
    locked = state.every_stage(state.read_locks(configs))
    library = Library(plan.stages, results, found, locked)
    back = kept.restorable(results, plan.stages, payloads.kinds(results))
    found |= {digest: Found(plan.stages[digest].kind, state.KEPT) for digest in back}
    states = {digest: found.get(digest, Found(stage.kind, state.NEW)) for digest, stage in plan.stages.items()}
    made = estimate.to_make(library, found)
    new = [digest for digest, one in states.items() if one.state == state.NEW]
    causes, passed_over = cause.explain(new, found, library, None if full else EXPLAINED)
    done = [(one.kind, digest) for digest, one in states.items() if one.state == "done"]
    known = {*plan.stages, *locked}
    others = Counter(one.kind for digest, one in found.items() if one.state == "done" and digest not in known)
    return Overview(
        plan=plan,
        states=states,
        others=dict(others),
        estimate=made,
        uses=uses(plan),
        chain=longest_chain(plan, made),
        causes=causes,
        passed_over=passed_over,
        drifted=state.drifted_stages(results, done),
        goes_on=estimate.goes_on(library, found),
    )


def uses(plan: Plan) -> int:
    """Stages of every arm at every seed, each counted for itself with all that it is made from."""
    reached: dict[str, frozenset[str]] = {}
    for digest, stage in plan.stages.items():  # dependencies first
        if stage.kind != "report":
            reached[digest] = frozenset({digest}).union(*(reached[split_ref(dep)[0]] for dep in stage.deps.values()))
    rows = cast(ReportSpec, plan.stages[plan.report].spec).arms
    shown = ([*(split_ref(stage.digest)[0] for stage in row.path), *row.evaluations.values()] for row in rows)
    return sum(len(frozenset().union(*(reached[digest] for digest in digests))) for digests in shown)


def longest_chain(plan: Plan, made: Estimate) -> float:
    """Hours of the longest chain of unfinished stages."""
    ends: dict[str, float] = {}
    for digest, stage in plan.stages.items():
        own = made.times[digest].seconds if digest in made.times else 0.0
        ends[digest] = own + max((ends.get(split_ref(dep)[0], 0.0) for dep in stage.deps.values()), default=0.0)
    return max(ends.values(), default=0.0) / 3600


def as_json(seen: Overview) -> dict[str, Any]:
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
        "causes": [cause.as_json(one) for one in seen.causes],
        "unexplained": seen.passed_over,
        "drifted": seen.drifted,
        "goes_on": {digest: {"from": shorter, "share": share} for digest, (shorter, share) in seen.goes_on.items()},
    }


def _cost(cost: Cost) -> dict[str, int | None]:
    return {name: value for name, value in cost._asdict().items() if name != "parameters"}
