"""What the page of `interplay open` shows, read from results/ and logs/ alone: studies as they were launched, the states of their
stages, curves, causes and warnings. Nothing is written or planned: an edit of a study's file does not change what runs."""

import functools
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from interplay.core import artifact, execution, metrics as core_metrics, model
from interplay.core.keys import extended_studies, parse_model
from interplay.kinds import table
from interplay.report.spec import ReportSpec
from interplay.results import catalog, progress, state
from interplay.study import choices, expand
from interplay.study.plan import Plan, Stage

POINTS = 400
"""Points of a curve that a page gets."""
FIRST = ("reward", "loss", "strict", "entropy", "kl", "length", "truncated", "grad_norm")
"""Curves offered first."""
LAST = "last of each arm"
"""In place of a stage's name: the last stage of each path that has logged something."""
TAIL = 200
"""Lines of a log."""
LONG = 1_000_000
"""Bytes at the end of a log that are read."""


class Place(NamedTuple):
    """A project's folders."""

    configs: Path
    results: Path
    logs: Path


# -- studies -----------------------------------------------------------------------------------------------------------


def study_rows(place: Place) -> Iterator[dict[str, Any]]:
    """Every study: name, question, and of each scale at which it was launched how many stages are done, running and failed. A
    study counts as launched at a scale where a launch wrote its report's stage, not where another study shares its stages."""
    begun, found = state.launched_studies(place.results), state.scan_results(place.results)
    scales = expand.scales(place.configs)
    for name in dict.fromkeys([*expand.studies(place.configs), *(study for study, _ in begun)]):
        runs = [_run_row(place, scale, begun[name, scale], found) for scale in scales if (name, scale) in begun]
        yield {"study": name, "question": question(place.configs, name), "runs": runs}


def _run_row(place: Place, scale: str, launched: state.Launched, found: Mapping[str, state.Found]) -> dict[str, Any]:
    known = _described(place.results, launched.report)
    states = [found[digest].state if digest in found else "new" for digest in known]
    counts = {name: states.count(name) for name in ("done", "running", "failed", "unfinished")}
    finished = launched.report in found and found[launched.report].state == "done"
    claims = artifact.folder(place.results, "report", launched.report) / "claims.json"
    verdicts = Counter(claim["verdict"] for claim in artifact.read_json(claims)) if finished and claims.exists() else {}
    row = {"scale": scale, "total": len(known), **counts, "finished": finished, "when": launched.when}
    return {**row, "verdicts": dict(sorted(verdicts.items(), key=lambda item: -item[1]))}


ASKED = re.compile(r"^(?:question|defaults):.*\n(?:[^\w\"'].*\n|\n)*", re.MULTILINE)
"""Lines of the two keys in a study's file. To parse all of a hundred files takes 0.6 s of CPU at each look."""


def question(configs: Path, study: str) -> str:
    """What a study asks, or the one that it extends; empty where its file is not readable."""
    try:
        text = (configs / "study" / f"{study}.yaml").read_text()
        found = yaml.load("".join(ASKED.findall(f"{text}\n")) or text, Loader=yaml.CSafeLoader)
        if "question" in found:
            return str(found["question"])
        names = extended_studies(found, study)
        return next((text for name in names if (text := question(configs, name))), "")
    except (OSError, ValueError, yaml.YAMLError, TypeError, AttributeError, RecursionError):  # files may extend each other
        return ""


def launched_plan(place: Place, study: str, scale: str) -> Plan:
    """The plan of the newest launch, from the descriptions of its stages. Raises UserError where there was none."""
    launched = state.launched_studies(place.results).get((study, scale))
    if launched is None:
        raise model.UserError(f"{study} was not launched at scale {scale}; `interplay run {study} --scale {scale}` does it")
    at = study if scale == choices.chosen(place.configs, {})[1] else f"{study}.{scale}"
    return _plan_of(place.results, launched.report, at)


@functools.lru_cache(64)
def _plan_of(results: Path, report: str, at: str) -> Plan:
    """Kept: a digest has one content. A stage that is shared may be described by another study; this one's names come from its
    report."""
    stages = {digest: _typed(stage) for digest, stage in _described(results, report).items()}
    bare = Plan("", "", stages, report)
    spec = bare.report_spec()
    named = {digest: name for name, digest in reversed(catalog.readable_names(bare).items())}
    labelled = {digest: Stage(**{**vars(stage), "label": named.get(digest, stage.label)}) for digest, stage in stages.items()}
    return Plan(spec.study, spec.scale, labelled, report, at=at)


@functools.lru_cache(256)
def _described(results: Path, report: str) -> dict[str, dict[str, Any]]:
    """The report's stage, which a launch writes down last, and all that it depends on, dependencies first."""
    kinds = {digest: one.kind for digest, one in state.scan_results(results).items()}
    found: dict[str, dict[str, Any]] = {}

    def deps(digest: str) -> list[str]:
        if digest in kinds and (stage := state.read_stage(results, kinds[digest], digest)):
            found[digest] = stage
        return list(found[digest]["deps"].values()) if digest in found else []

    return {digest: found[digest] for digest in artifact.closure([report], deps) if digest in found}


def _typed(stage: dict[str, Any]) -> Stage:
    place = model.KeyPlace(f"{stage['kind']}/{stage['digest']}/stage.json")
    spec = parse_model(table.KINDS[stage["kind"]].spec, stage["spec"], place.key("spec"))
    how = parse_model(execution.Run, stage.get("run", {}), place.key("run"))
    return Stage(stage["kind"], spec, stage["deps"], how, stage.get("label", ""), stage["digest"])


def live_state(place: Place, plan: Plan) -> dict[str, Any]:
    """All that changes while a study runs: counts, time left, stages, causes, warnings, and what to type next."""
    seen = progress.watch_stages(plan, place.results, place.logs)
    left = progress.time_left(plan, seen, place.results)
    stages = live_rows(plan, seen, left.late)
    running = any(one.state == "running" for one in seen)
    page = artifact.folder(place.results, "report", plan.report) / "report.html"
    return {
        "arms": plan.report_spec().arm_names(),
        "done": sum(one.state == "done" for one in seen),
        "total": len(seen),
        "running": running,
        "left": left.seconds,
        "basis": left.basis,
        "stages": stages,
        "report": page.exists() and seen[-1].state == "done",
        "next": "" if running or seen[-1].state == "done" else f"interplay run {plan.study} --scale {plan.scale}",
    }


def stage_names(stages: Mapping[str, Stage]) -> dict[str, str]:
    """Digest -> what a page calls a stage: its label. Stages of no arm may share one, such as the corpora of bases that have
    tokenizers of their own; each then has the seeds that it is made for, `stages.gold.corpus@0`, or, where these do not
    distinguish them, the first stage of an arm that it goes into, `stages.base.corpus of small/base@0`."""
    names = {digest: stage.label for digest, stage in stages.items()}
    shared = Counter(names.values())
    equal = [digest for digest, label in names.items() if shared[label] > 1 and "@" not in label]
    if not equal:
        return names
    readers: dict[str, list[str]] = {}
    for digest, stage in stages.items():
        for ref in stage.deps.values():
            readers.setdefault(artifact.ref_digest(ref), []).append(digest)
    inside = {digest: "@" in label for digest, label in names.items()}
    found: dict[str, dict[str, list[str]]] = {}
    for digest in equal:
        reached = artifact.closure([digest], lambda one: () if inside[one] else readers.get(one, ()))
        found.setdefault(names[digest], {})[digest] = [names[one] for one in reached if inside[one]]
    for label, into in found.items():
        seeds = {one: ",".join(dict.fromkeys(name.rpartition("@")[2] for name in of)) for one, of in into.items()}
        differ = len({*seeds.values()}) == len(seeds)
        names |= {one: f"{label}@{seeds[one]}" if differ else f"{label} of {next(iter(of), one)}" for one, of in into.items()}
    return names


def live_rows(
    plan: Plan, seen: list[progress.Watched], late: Mapping[str, list[progress.Warned]] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Stages as they are now: progress, last metrics, warnings, and the command that makes a failed one again."""
    rows, names = [], stage_names(plan.stages)
    for one in seen:
        at, halted = one.reached, one.state in ("failed", "stopped")
        values = at.values if at else {}
        rows.append(
            {
                "digest": one.stage.digest,
                "address": plan.address(one.stage),
                "label": one.stage.label,
                "name": names[one.stage.digest],
                "kind": one.stage.kind,
                "state": one.state,
                "detail": one.detail,
                "share": at.share if at else None,
                "text": at.text if at else "",
                "left": at.left if at else None,
                "values": {key: f"{values[key]:.4g}" for key in dict.fromkeys((*FIRST, *values)) if key in values},
                "curve": one.curve[-60:],
                "warnings": [said._asdict() for said in (*one.warnings, *late.get(one.stage.digest, ()))],
                "debug": f"interplay debug {plan.address(one.stage)}" if halted else "",
            }
        )
    return rows


# -- curves ------------------------------------------------------------------------------------------------------------


class Series(NamedTuple):
    """One stage of one arm at one seed that logs curves."""

    arm: str
    seed: int
    stage: str
    digest: str
    study: str


def series_of(plan: Plan, arm: str | None = None) -> list[Series]:
    """The training stages of a plan, or of one of its arms, each once for each arm that has it."""
    found: dict[tuple[str, str], Series] = {}
    for row in plan.report_spec().arms:
        for step in row.path if arm in (None, row.arm) else ():
            found.setdefault((step.digest, row.arm), Series(row.arm, row.seed, step.name, step.digest, plan.study))
    return [one for one in found.values() if table.length_key(plan.stages[one.digest].kind)]


def equal_arms(spec: ReportSpec) -> list[tuple[str, str]]:
    """(arm, an earlier arm of the same stages at every seed), as a grid makes one of a value that the study already has: stages
    and curves are shown once, under the earlier arm."""
    first: dict[tuple[Any, ...], str] = {}
    found = []
    for arm in spec.arm_names():
        path = tuple((row.seed, *((step.digest, step.step) for step in row.path)) for row in spec.rows_of(arm))
        if (other := first.setdefault(path, arm)) != arm:
            found.append((arm, other))
    return found


def curves(place: Place, plans: Mapping[Series, Plan], stage: str, metric: str) -> dict[str, Any]:
    """The curves of a metric in the stages of a name, and what can be chosen instead. A stage that arms share has one curve, in
    the name of the first; `same` are the arms whose curves are the same, for that or another reason."""
    lines = {
        one: read_lines(artifact.folder(place.results, plan.stages[one.digest].kind, one.digest)) for one, plan in plans.items()
    }
    logged = {one: known for one, known in lines.items() if known}
    ends = {(one.study, one.arm, one.seed): one for one in logged}  # the last of each path
    names = [LAST, *dict.fromkeys(one.stage for one in logged)]
    chosen = stage if stage in names else LAST
    of_stage = {one: known for one, known in logged.items() if one.stage == chosen or (chosen == LAST and one in ends.values())}
    counts = Counter(key for known in of_stage.values() for key in set().union(*known) - {"step"})
    metrics = [*(key for key in FIRST if key in counts), *sorted(counts.keys() - {*FIRST})]
    common = [key for key in metrics if 2 * counts[key] > len(of_stage)]
    shown = metric if metric in metrics else next(iter([*common, *metrics]), "")
    points = {one: _points(known, shown) for one, known in of_stage.items()}
    first = {one.digest: one for one in reversed(of_stage)}
    found = [{**one._asdict(), **points[one]} for one in of_stage if first[one.digest] is one]
    arms = list(dict.fromkeys(arm for plan in plans.values() for arm in plan.report_spec().arm_names()))
    return {
        "stages": names,
        "stage": chosen,
        "metrics": metrics,
        "metric": shown,
        "arms": arms,
        "series": found,
        "same": _same(points),
    }


def _same(points: Mapping[Series, dict[str, list[float]]]) -> list[list[str]]:
    """Groups of arms, as study/arm where there are several studies, all of whose curves are the same."""
    of_arm: dict[str, set[tuple[tuple[float, ...], ...]]] = {}
    several = len({one.study for one in points}) > 1
    for one, curve in points.items():
        if curve["x"]:
            of_arm.setdefault(f"{one.study}/{one.arm}" if several else one.arm, set()).add((*map(tuple, curve.values()),))
    groups: dict[frozenset[Any], list[str]] = {}
    for arm, drawn in of_arm.items():
        groups.setdefault(frozenset(drawn), []).append(arm)
    return [arms for arms in groups.values() if len(arms) > 1]


def _points(lines: progress.Lines, metric: str) -> dict[str, list[float]]:
    """Steps and finite values, thinned to means over equal parts."""
    pairs = [(line["step"], line[metric]) for line in lines if math.isfinite(line.get(metric, math.nan))]
    size = -(-len(pairs) // POINTS) or 1
    parts = [pairs[at : at + size] for at in range(0, len(pairs), size)]
    means = [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]
    return {"x": [x for x, _ in means], "y": [y for _, y in means]}


def read_lines(folder: Path) -> progress.Lines:
    """The lines of a metrics.jsonl, read anew when the file has changed."""
    try:
        known = os.stat(folder / "metrics.jsonl")
    except OSError:
        return []
    kept, state = _last_reading(folder), (known.st_mtime_ns, known.st_size)
    if (lines := kept.get(state)) is None:
        lines = core_metrics.read(folder)
        kept.clear()
        kept[state] = lines
    return lines


@functools.lru_cache(512)
def _last_reading(folder: Path) -> dict[tuple[int, int], progress.Lines]:
    """Time and size of the file -> its lines. No earlier reading is kept: a file may grow at every look."""
    return {}


# -- one stage, and arms -----------------------------------------------------------------------------------------------


def arm_names(place: Place) -> list[dict[str, str]]:
    """The arms of all launched studies that can be read: `{arm: "edge/rl_edge", study, scale}`."""
    found = []
    for study, scale in state.launched_studies(place.results):
        try:
            plan = launched_plan(place, study, scale)
        except model.UserError:  # such as a key that is no more: its own page says so
            continue
        for arm in plan.report_spec().arm_names():
            found.append({"address": f"{plan.at}/{arm}", "arm": arm, "study": study, "scale": scale})
    return found


def log_tail(place: Place, kind: str, digest: str) -> str:
    """The last lines of a stage's log."""
    return "\n".join(progress.read_tail(place.logs / kind / f"{digest}.log", LONG).splitlines()[-TAIL:])


def compare_arms(place: Place, one: tuple[Plan, str], other: tuple[Plan, str], metric: str) -> str:
    """`interplay compare` of two arms, as text. Raises UserError where they cannot be compared."""
    from interplay.report.inspect import compare  # pandas, for this page only

    stages = {**one[0].stages_json(), **other[0].stages_json()}
    specs: list[ReportSpec] = [plan.report_spec() for plan, _ in (one, other)]
    a, b = (compare.of_arm(f"{plan.at}/{arm}", arm, spec) for (plan, arm), spec in zip((one, other), specs, strict=True))
    return compare.compare(a, b, stages, place.results, metric, None, 3)
