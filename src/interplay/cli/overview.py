"""`interplay plan` for one study: its contents as data, and as a table and texts of at most 100 columns."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from interplay.cli.common import Grid
from interplay.core import artifact, metrics, model
from interplay.core.metrics import size
from interplay.data.spec import ProblemsSpec
from interplay.results import cause, estimate, locks, payloads, state
from interplay.rl.spec import RLSpec
from interplay.run import graph
from interplay.study.plan import Plan

if TYPE_CHECKING:
    from interplay.report.stats import power

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
    lacking: dict[str, str]
    """Stages to make that a launch would refuse -> what is not on this machine, and the remedy."""
    power: "list[power.Planned]"
    """What the planned replicates find of each claim, from the pilot; none without one."""

    def of_state(self, *names: str) -> list[str]:
        """The plan's stages in one of these states, in its order."""
        return [digest for digest, found in self.states.items() if found.state in names]


def read_overview(plan: Plan, configs: Path, results: Path, full: bool = False) -> Overview:
    """Read results/ and the locks, and compute the overview."""
    found = state.scan_results(results)
    locked = locks.stages_of(locks.read_locks(configs)) if found else {}  # of what is there
    library = state.Library(plan.stages, results, found, locked)
    back = payloads.restorable_records(results, plan.stages, payloads.stored_kinds(results))
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
        chain=estimate.longest_chain(plan, {digest: time.seconds for digest, time in made.times.items()}) / 3600,
        causes=causes,
        passed_over=passed_over,
        drifted=state.drifted_stages(results, done),
        continued=estimate.continued_runs(library, found),
        lacking={
            digest: why
            for digest, stage in plan.stages.items()
            if states[digest].state in TO_DO and (why := graph.lacking_input(stage))
        },
        power=_planned_power(plan, made, results),
    )


def _planned_power(plan: Plan, made: estimate.Estimate, results: Path) -> "list[power.Planned]":
    if plan.pilot is None:
        return []
    from interplay.report.stats import power  # scipy: a plan without a pilot goes without

    def seconds(digest: str) -> float | None:
        time = made.times.get(digest)
        took = None if time else metrics.read_telemetry(artifact.folder(results, plan.stages[digest].kind, digest))
        return time.seconds if time else None if took is None else took.get("seconds_wall")

    return power.planned_power(plan, seconds)


def stage_uses(plan: Plan) -> int:
    """Stages of every arm at every seed with all their ancestors, as if nothing were shared."""
    reached: dict[str, frozenset[str]] = {}
    for digest, stage in plan.stages.items():  # dependencies first
        if digest != plan.report:
            reached[digest] = frozenset({digest}).union(*(reached[dep] for dep in stage.inputs()))
    rows = plan.report_spec().arms
    return sum(len(frozenset().union(*(reached[digest] for digest in row.digests()))) for row in rows)


def overview_json(seen: Overview) -> dict[str, Any]:
    """The overview for programs."""
    plan, costs, times, unknown = seen.plan, seen.estimate.costs, seen.estimate.times, seen.estimate.unknown()
    stages = [
        {
            "digest": digest,
            "kind": stage.kind,
            "address": plan.address(stage),
            "label": stage.label,
            "state": seen.states[digest].state,
            "detail": seen.states[digest].detail,
            **{name: value for name, value in costs[digest]._asdict().items() if name != "parameters"},
            **({"seconds": times[digest].known_seconds(), "source": times[digest].source} if digest in times else {}),
            **({"bytes": seen.estimate.bytes[digest]} if digest in times else {}),
            **({"memory": need.as_json()} if (need := seen.estimate.memory.get(digest)) else {}),
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
        "hours": None if unknown else seen.estimate.hours(),
        "gpu_hours": None if unknown else seen.estimate.gpu_hours(),
        "longest_chain_hours": None if unknown else seen.chain,
        "unknown": unknown,
        "estimated_from": seen.estimate.sources(),
        "causes": [cause.cause_json(one) for one in seen.causes],
        "unexplained": seen.passed_over,
        "drifted": seen.drifted,
        "not_here": {plan.address(plan.stages[digest]): why for digest, why in seen.lacking.items()},
        "goes_on": {digest: {"from": shorter, "share": share} for digest, (shorter, share) in seen.continued.items()},
    }


# Its output.


WIDTH = 100
MOST_GROUPS = 12
"""Groups of new stages that are explained without --full."""
MOST_LISTED = 10
"""Added stages, and removed ones, that are listed without --full."""
MOST_CHANGES = 4
"""Fields that are named for each group without --full."""
COUNTS = ("all", "done", "new", "unfin.", "failed", "other")
HEADINGS = ("kind", *COUNTS, "tokens", "FLOPs", "rollouts", "time", "GPU-h", "from")
SOURCES = {estimate.MEASURED: "records", estimate.ASSUMED: "FLOPs", estimate.RATED: "rates", estimate.NOTHING: "-"}
SOURCES[estimate.UNKNOWN] = "unknown"


def overview_parts(
    seen: Overview, full: bool = False, stages: bool = False, stale: str = "", unexercised: Sequence[str] = ()
) -> list[str | Grid]:
    """Counts and costs by kind, their sums, unfinished stages, why stages are new, the difference from the lock (`stale`), drift
    of sources, and members that no committed study uses (`unexercised`)."""
    started = [(digest, seen.states[digest]) for digest in seen.of_state("running", "unfinished", "failed")]
    names = {digest: seen.plan.address(stage) for digest, stage in seen.plan.stages.items()}
    reached = [f"{one.state}: {one.kind} {names[digest]} ({digest}): {one.detail}" for digest, one in started]
    parts = [_sums(seen), reached]
    if stages:
        states = [(seen.states[digest].state, digest, stage) for digest, stage in seen.plan.stages.items()]
        parts.append([f"{digest}  {state:<10}  {stage.kind:<9}  {names[digest]}" for state, digest, stage in states])
    parts += [_updates(seen.plan), _not_here(seen), _power(seen)]
    parts += [_why(seen, full), [f"not the committed lock: {stale}"] if stale else [], state.drift_advisory(seen.drifted)]
    if unexercised:
        parts.append([f"members that no committed study uses: {', '.join(unexercised)}"])
    plan = seen.plan
    head = [f"{plan.study} at scale {plan.scale}: {model.plural(len(plan.stages), 'stage')}, report {plan.report}"]
    head += [f"stages on no path: {', '.join(plan.unused)}"] if plan.unused else []
    return [_wrapped(head), _table(seen), *(_wrapped(part) for part in parts if part)]


def differences_text(found: locks.Differences, old: locks.Locked, full: bool = False) -> str:
    """The differences between the lock of another commit and this plan."""
    counts = f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed, {found.same} the same"
    lines = [f"against {old.name}: {counts}"]
    for sign, stages in (("+", found.added), ("-", found.removed)):
        shown = stages if full else stages[:MOST_LISTED]
        lines += [f"  {sign} {stage['kind']:<9} {stage['digest']}  {stage['label']}" for stage in shown]
        lines += [f"    {len(stages) - len(shown)} more; --full shows them"] if len(shown) < len(stages) else []
    groups = cause.group_causes(found.changed)
    for group in groups if full else groups[:MOST_GROUPS]:
        lines += _group(group, full, "was")
    if not full and len(groups) > MOST_GROUPS:
        lines.append(f"  {len(groups) - MOST_GROUPS} more groups; --full shows them")
    if old.lacking:
        lines.append(f"  earlier specs are not available: {old.lacking}")
    return _wrapped(lines)


def _table(seen: Overview) -> Grid:
    """One row per kind; costs and times are those of the stages to make."""
    by_kind: dict[str, list[str]] = {}
    for digest, stage in seen.plan.stages.items():
        by_kind.setdefault(stage.kind, []).append(digest)
    kinds = dict.fromkeys([*by_kind, *seen.others])
    rows = [_row(seen, kind, by_kind.get(kind, []), seen.others.get(kind, 0)) for kind in kinds]
    total = [*_row(seen, "all", list(seen.plan.stages), sum(seen.others.values()))[:-1], ""]
    return Grid(HEADINGS, [*rows, total], right=range(1, len(HEADINGS) - 1), total=True)


def _row(seen: Overview, name: str, digests: list[str], others: int) -> list[str]:
    columns = {"running": "unfinished", state.KEPT: "done"}
    states = Counter(columns.get(name, name) for name in (seen.states[digest].state for digest in digests))
    left = [digest for digest in digests if seen.states[digest].state in TO_DO]
    costs, times = [seen.estimate.costs[d] for d in left], [seen.estimate.times[d] for d in left]
    flops = [cost.flops for cost in costs]
    sources = {time.source for time in times}
    unknown = estimate.UNKNOWN in sources or sources == {estimate.NOTHING}
    return [
        name,
        str(len(digests)),
        *(str(states[state_name] or "-") for state_name in ("done", "new", "unfinished", "failed")),
        str(others or "-"),
        _amount(sum(cost.tokens for cost in costs)),
        "?" if None in flops else _amount(sum(flop or 0 for flop in flops)),
        _amount(sum(cost.rollouts for cost in costs)),
        "?" if unknown else metrics.clock(sum(t.seconds for t in times)) if left else "-",
        "?" if estimate.UNKNOWN in sources else _amount(sum(t.gpu_seconds for t in times) / 3600),
        "/".join(SOURCES[source] for source in sorted(sources)),
    ]


def _amount(number: float) -> str:
    return metrics.quantity(float(f"{number:.3g}")) if number else "-"


def _sums(seen: Overview) -> list[str]:
    distinct, made = max(len(seen.plan.stages) - 1, 1), seen.estimate
    done = len([digest for digest in seen.of_state(*state.FINISHED) if digest != seen.plan.report])
    left = len(seen.of_state(*TO_DO))
    lines = [
        f"reuse: {seen.uses} stage uses of all arms and seeds are {distinct} stages, {seen.uses / distinct:.1f} uses each; "
        f"{done} of them ({100 * done // distinct}%) are done"
    ]
    if back := len(seen.of_state(state.KEPT)):
        lines.append(f"kept: {model.plural(back, 'record')} in results/studies or data/bases, restored at a launch")
    if others := sum(seen.others.values()):
        lines.append(f"other: {model.plural(others, 'finished result')} of other studies, or of an earlier version of this one")
    if unneeded := seen.of_state(state.UNNEEDED):
        lines.append(
            f"not needed: {model.plural(len(unneeded), 'stage')} without a record whose dependents are finished; to make one:"
        )
        lines.append(f"  snakemake results/{seen.plan.stages[unneeded[0]].kind}/{unneeded[0]}/record.json")
    if not left:
        return [*lines, "to do: nothing"]
    chain = f"{metrics.clock(made.hours() * 3600)} one after another, {metrics.clock(seen.chain * 3600)} at least (longest chain)"
    gpus = f"{metrics.quantity(float(f'{made.gpu_hours():.3g}'))} GPU-hours"
    if made.unknown():
        chain, gpus = (
            f"an unknown time for {model.plural(len(made.unknown()), 'stage')}, of the others {chain}",
            "unknown GPU-hours",
        )
    lines += [
        f"to do: {model.plural(left, 'stage')}, {chain}, {gpus}",
        f"time {estimate.describe_sources(made.sources())}",
        *_calibrated(seen.plan),
        estimate.describe_memory(seen.plan, made),
        _disk(seen),
    ]
    return lines


def _calibrated(plan: Plan) -> list[str]:
    """That costs hold for all outcomes of calibrations, and which those are."""
    specs = [stage.spec for stage in plan.stages.values() if isinstance(stage.spec, ProblemsSpec)]
    candidates = {band: ops for spec in specs for band, ops in spec.calibrated.items()}
    if not candidates:
        return []
    each = "; ".join(f"{band} from op {metrics.number_ranges(ops)}" for band, ops in candidates.items())
    return [f"bands chosen for each base: {each}; costs are of the worst case, every completion at its cap"]


def _updates(plan: Plan) -> list[str]:
    """How many optimiser steps a batch each arm's RL makes, where not all make one."""
    found: dict[int, set[str]] = {}
    for one in plan.stages.values():
        if isinstance(one.spec, RLSpec):
            found.setdefault(one.spec.updates_per_step(), set()).add(one.label.partition("/")[0].partition("[")[0])
    shown = [f"{updates} ({', '.join(sorted(arms)[:MOST_LISTED])})" for updates, arms in sorted(found.items())]
    return [f"optimiser steps a batch of RL: {', '.join(shown)}"] if set(found) - {1} else []


def _not_here(seen: Overview) -> list[str]:
    """What a launch would not find, and the stages that read it."""
    readers: dict[str, list[str]] = {}
    for digest, why in seen.lacking.items():
        readers.setdefault(why, []).append(seen.plan.address(seen.plan.stages[digest]))
    more = {why: f" and {len(names) - 1} more" if len(names) > 1 else "" for why, names in readers.items()}
    return [f"not here: {names[0]}{more[why]}: {why}" for why, names in readers.items()]


def _power(seen: Overview) -> list[str]:
    pilot = seen.plan.pilot
    if not pilot or not seen.power:
        return []
    deviations = f"bases {pilot['bases']:g}, seeds {pilot['seeds']:g}, prompts {pilot['prompts']:g} points"
    head = f"power with the pilot's standard deviations, {deviations} ({pilot['source']}):"
    return [head, *(f"  {one.said}: {one.claim.says}" for one in seen.power)]


def _disk(seen: Overview) -> str:
    """Bytes that the stages to make will leave, by kind, and the kinds without an estimate."""
    known: dict[str, float] = {}
    unknown: list[str] = []
    for digest, found in seen.estimate.bytes.items():
        kind = seen.plan.stages[digest].kind
        if found is None:
            unknown.append(kind)
        else:
            known[kind] = known.get(kind, 0.0) + found
    parts = ", ".join(f"{kind} {size(round(found))}" for kind, found in known.items())
    left_out = f"; unknown for {', '.join(dict.fromkeys(unknown))}" if unknown else ""
    return f"disk: about {size(round(sum(known.values())))}{f' ({parts})' if parts else ''}{left_out}"


def _why(seen: Overview, full: bool) -> list[str]:
    """New stages in groups with the same cause."""
    groups = cause.group_causes(seen.causes)
    if not groups:
        return []
    if all(one.nearest is None for one in seen.causes) and not full:
        return ["why new: no stage of these kinds is finished yet"]
    lines = ["why new (compared with the nearest finished stage of the same kind):"]
    for group in groups if full else groups[:MOST_GROUPS]:
        lines += _group(group, full, "nearest") + _continued(seen, group)
    hidden = sum(len(group) for group in groups[MOST_GROUPS:]) if not full else 0
    hidden += sum(seen.passed_over.values())
    return [*lines, f"  {model.plural(hidden, 'more stage')}; --full shows them"] if hidden else lines


def _group(group: list[cause.Cause], full: bool, what: str) -> list[str]:
    """The first stage of a group, the number of others, and the fields that differ."""
    first = group[0]
    others = f" and {len(group) - 1} more" if len(group) > 1 else ""
    nearest = f"{what} {first.nearest} {first.nearest_label}".rstrip() if first.nearest else "none of its kind is finished"
    name = cause.kind_and_label(first.kind, first.label)
    lines = [f"  {name}{others} ({first.digest}, {nearest})"]
    if full and len(group) > 1:
        lines += [f"    also {one.label} ({one.digest}, {what} {one.nearest})" for one in group[1:]]
    changes = list(first.changes) if full else list(first.changes[:MOST_CHANGES])
    for change in changes:
        lines += _change(change)
    more = len(first.changes) - len(changes)
    return [*lines, f"      and {model.plural(more, 'more field')}"] if more else lines


def _continued(seen: Overview, group: list[cause.Cause]) -> list[str]:
    """Shorter runs from which stages of the group continue, and the share that they hold."""
    began = [seen.continued[one.digest] for one in group if one.digest in seen.continued]
    if not began:
        return []
    shorter, share = began[0]
    return [f"      starts from the end of {shorter}{' and others' if len(began) > 1 else ''}: {100 * share:.0f}% is done"]


def _change(change: cause.Change) -> list[str]:
    head, because, roots = str(change).partition(" because ")
    if not because or len(head) + len(roots) + 15 <= WIDTH:
        return [f"      {change}"]
    return [f"      {head} because", f"        {roots}"]


def _wrapped(lines: list[str]) -> str:
    """Long lines continue on the next one, indented."""
    broken: list[str] = []
    for line in lines:
        inner = " " * (len(line) - len(line.lstrip()) + 2)
        whole = [line] if len(line) <= WIDTH else textwrap.wrap(line, WIDTH, subsequent_indent=inner, break_long_words=False)
        broken += whole
    return "\n".join(broken)
