"""What `interplay plan` shows: a table and texts of at most 100 columns."""

import textwrap
from collections import Counter
from collections.abc import Sequence

from interplay.cli.common import Grid
from interplay.core.model import clock, plural, quantity
from interplay.report.write.plain import size
from interplay.results import cause, estimate, state
from interplay.results.against import Differences, Locked
from interplay.results.cause import Cause, Change
from interplay.results.overview import TO_DO, Overview
from interplay.results.schedule import Schedule
from interplay.results.state import FINISHED, KEPT

WIDTH = 100
GROUPS = 12
"""Groups of new stages that are explained, unless all are asked for."""
CHANGES = 4
"""Fields that are named of each group."""
HEADINGS = ("kind", "all", "done", "new", "unfin.", "failed", "other", "tokens", "FLOPs", "rollouts", "time", "GPU-h", "from")
SOURCES = {estimate.MEASURED: "records", estimate.ASSUMED: "FLOPs", estimate.RATED: "rates", estimate.NOTHING: "-"}


def overview(
    seen: Overview, full: bool = False, stages: bool = False, stale: str = "", unexercised: Sequence[str] = ()
) -> list[str | Grid]:
    """The page: counts and costs by kind, what they come to, what is in the way, why stages are new, how it differs from its lock
    (`stale`), and what drifted."""
    parts = [_sums(seen), _in_the_way(seen)]
    if stages:
        parts.append(_stages(seen))
    parts += [_why(seen, full), [f"not the committed lock: {stale}"] if stale else [], state.drift_advisory(seen.drifted)]
    if unexercised:
        parts.append([f"members that no committed study uses: {', '.join(unexercised)}"])
    return [_wrapped(_heading(seen)), _table(seen), *(_wrapped(part) for part in parts if part)]


def differences(found: Differences, old: Locked, full: bool = False) -> str:
    """A lock of another commit beside this plan."""
    counts = f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed, {found.same} the same"
    lines = [f"against {old.name}: {counts}"]
    for sign, stages in (("+", found.added), ("-", found.removed)):
        lines += _capped([f"  {sign} {s['kind']:<9} {s['digest']}  {s['label']}" for s in stages], 10, full)
    groups = cause.grouped(found.changed)
    for group in groups if full else groups[:GROUPS]:
        lines += _group(group, full, "was")
    if not full and len(groups) > GROUPS:
        lines.append(f"  {len(groups) - GROUPS} more groups; --full shows them")
    if old.lacking:
        lines.append(f"  earlier specs are not available: {old.lacking}")
    return _wrapped(lines)


def _heading(seen: Overview) -> list[str]:
    plan = seen.plan
    head = f"{plan.study} at scale {plan.scale}: {plural(len(plan.stages), 'stage')}, report {plan.report}"
    return [head, *([f"stages on no path: {', '.join(plan.unused)}"] if plan.unused else [])]


def _table(seen: Overview) -> Grid:
    """One row a kind; costs and times are those of what is still to be made."""
    kinds = list(dict.fromkeys([*(stage.kind for stage in seen.plan.stages.values()), *seen.others]))
    rows = [_row(seen, kind, [d for d, s in seen.plan.stages.items() if s.kind == kind]) for kind in kinds]
    return Grid(HEADINGS, [*rows, _row(seen, "all", list(seen.plan.stages))], right=range(1, len(HEADINGS) - 1), total=True)


def _row(seen: Overview, kind: str, digests: list[str]) -> list[str]:
    columns = {"running": "unfinished", KEPT: "done"}
    states = Counter(columns.get(name, name) for name in (seen.states[digest].state for digest in digests))
    left = [digest for digest in digests if seen.states[digest].state in TO_DO]
    costs, times = [seen.estimate.costs[d] for d in left], [seen.estimate.times[d] for d in left]
    flops = [cost.flops for cost in costs]
    sources = {time.source for time in times}
    others = sum(seen.others.values()) if kind == "all" else seen.others.get(kind, 0)
    return [
        kind,
        str(len(digests)),
        *(str(states[name] or "-") for name in ("done", "new", "unfinished", "failed")),
        str(others or "-"),
        _amount(sum(cost.tokens for cost in costs)),
        "?" if None in flops else _amount(sum(flop or 0 for flop in flops)),
        _amount(sum(cost.rollouts for cost in costs)),
        "?" if sources == {estimate.NOTHING} else clock(sum(t.seconds for t in times)) if left else "-",
        _amount(sum(t.gpu_seconds for t in times) / 3600),
        "/".join(SOURCES[source] for source in sorted(sources)) if kind != "all" else "",
    ]


def _amount(number: float) -> str:
    return quantity(float(f"{number:.3g}")) if number else "-"


def _sums(seen: Overview) -> list[str]:
    distinct, made = max(len(seen.plan.stages) - 1, 1), seen.estimate
    done = len([digest for digest in seen.of_state(*FINISHED) if digest != seen.plan.report])
    left = len(seen.of_state(*TO_DO))
    lines = [
        f"reuse: {seen.uses} stage uses of all arms and seeds are {distinct} stages, {seen.uses / distinct:.1f} uses each; "
        f"{done} of them ({100 * done // distinct}%) are done"
    ]
    if back := len(seen.of_state(KEPT)):
        lines.append(f"kept: {plural(back, 'record')} in results/studies, put back at a launch")
    if others := sum(seen.others.values()):
        lines.append(f"other: {plural(others, 'finished result')} of other studies, or of this one as it was")
    if not left:
        return [*lines, "to do: nothing"]
    lines += [
        f"to do: {plural(left, 'stage')}, {clock(made.hours() * 3600)} one after another, {clock(seen.chain * 3600)} at least "
        f"(longest chain), {made.gpu_hours():.3g} GPU-hours",
        f"time {estimate.said(made.sources())}",
        _disk(seen),
    ]
    return lines


def schedules(found: list[Schedule]) -> list[str]:
    """A line for each number of GPUs."""
    return [f"on {plural(one.gpus, 'GPU')}: {clock(one.hours * 3600)}, {one.busy:.0%} of their time in use" for one in found]


def _disk(seen: Overview) -> str:
    """What is to do will leave so many bytes, by kind; kinds of which nothing tells are named."""
    told: dict[str, float] = {}
    untold: list[str] = []
    for digest, found in seen.estimate.bytes.items():
        kind = seen.plan.stages[digest].kind
        if found is None:
            untold.append(kind)
        else:
            told[kind] = told.get(kind, 0.0) + found
    parts = ", ".join(f"{kind} {size(round(found))}" for kind, found in told.items())
    left_out = f"; not known of {', '.join(dict.fromkeys(untold))}" if untold else ""
    return f"disk: about {size(round(sum(told.values())))}{f' ({parts})' if parts else ''}{left_out}"


def _in_the_way(seen: Overview) -> list[str]:
    """Stages that were started and are not done: how far they are, or why they failed."""
    shown = [(digest, seen.states[digest]) for digest in seen.of_state("running", "unfinished", "failed")]
    return [f"{f.state}: {f.kind} {seen.plan.stages[digest].label} ({digest}): {f.detail}" for digest, f in shown]


def _stages(seen: Overview) -> list[str]:
    return [
        f"{digest}  {seen.states[digest].state:<10}  {stage.kind:<9}  {stage.label}" for digest, stage in seen.plan.stages.items()
    ]


def _why(seen: Overview, full: bool) -> list[str]:
    """New stages in groups of the same cause."""
    groups = cause.grouped(seen.causes)
    if not groups:
        return []
    if all(one.nearest is None for one in seen.causes) and not full:
        return ["why new: nothing of these kinds is finished yet"]
    lines = ["why new (each stage beside the finished one of its kind that is nearest to it):"]
    for group in groups if full else groups[:GROUPS]:
        lines += _group(group, full, "nearest") + _goes_on(seen, group)
    hidden = sum(len(group) for group in groups[GROUPS:]) if not full else 0
    hidden += sum(seen.passed_over.values())
    return [*lines, f"  {plural(hidden, 'more stage')}; --full shows them"] if hidden else lines


def _group(group: list[Cause], full: bool, what: str) -> list[str]:
    """The first stage of a group, how many it stands for, and the fields that differ."""
    first = group[0]
    others = f" and {len(group) - 1} more" if len(group) > 1 else ""
    beside = f"{what} {first.nearest} {first.beside}".rstrip() if first.nearest else "none of its kind is finished"
    name = first.kind if first.kind == first.label else f"{first.kind} {first.label}"
    lines = [f"  {name}{others} ({first.digest}, {beside})"]
    if full and len(group) > 1:
        lines += [f"    also {one.label} ({one.digest}, {what} {one.nearest})" for one in group[1:]]
    changes = list(first.changes) if full else list(first.changes[:CHANGES])
    for change in changes:
        lines += _change(change)
    more = len(first.changes) - len(changes)
    return [*lines, f"      and {plural(more, 'more field')}"] if more else lines


def _goes_on(seen: Overview, group: list[Cause]) -> list[str]:
    """That stages of the group start from the end of shorter runs, and how much that saves."""
    began = [seen.goes_on[one.digest] for one in group if one.digest in seen.goes_on]
    if not began:
        return []
    shorter, share = began[0]
    return [f"      starts from the end of {shorter}{' and others' if len(began) > 1 else ''}: {100 * share:.0f}% is there"]


def _change(change: Change) -> list[str]:
    head, because, roots = str(change).partition(" because ")
    if not because or len(head) + len(roots) + 15 <= WIDTH:
        return [f"      {change}"]
    return [f"      {head} because", f"        {roots}"]


def _capped(lines: list[str], most: int, full: bool) -> list[str]:
    return lines if full or len(lines) <= most else [*lines[:most], f"    {len(lines) - most} more; --full shows them"]


def _wrapped(lines: list[str]) -> str:
    """Lines too long go on, further in, on the next."""
    broken: list[str] = []
    for line in lines:
        inner = " " * (len(line) - len(line.lstrip()) + 2)
        whole = [line] if len(line) <= WIDTH else textwrap.wrap(line, WIDTH, subsequent_indent=inner, break_long_words=False)
        broken += whole
    return "\n".join(broken)
