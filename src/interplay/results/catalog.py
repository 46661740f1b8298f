"""Every stage of the project by digest, from the committed locks and from results/: names for stages, lineage, and names of the
RL methods of configs/method.

Commands take a digest's beginning, `digest@step`, or an address: `edge/rl_edge/rl@0`, `edge.smoke/rl_edge/rl@0`. Locks leave
specs out: a resolved stage, and all that it depends on, get theirs from results/ or by planning a study that has it."""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from interplay.core import artifact
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError, nearest_name
from interplay.kinds.stages import flat_leaves
from interplay.report.metric_spec import measure_of
from interplay.report.shown_spec import Measure
from interplay.results import locks, state
from interplay.rl.spec import Method
from interplay.study import expand
from interplay.study.plan import Plan

Stages = dict[str, dict[str, Any]]
MOST_LISTED = 8
"""Candidates that a message lists."""


class Catalog(NamedTuple):
    """All known stages."""

    stages: Stages
    """By digest: kind, deps and label; spec, versions and run where known."""
    locks: dict[str, list[str]]
    """Digest -> the locks (`study.scale`) that contain it."""
    results: Path
    labels: dict[str, dict[str, str]]
    """Digest -> its label in each of these locks: studies that share a stage may label it differently."""


class Ref(NamedTuple):
    """A stage, or with `step` a checkpoint that it keeps."""

    digest: str
    step: int | None = None

    def __str__(self) -> str:
        return artifact.make_ref(*self)


def read_catalog(configs: Path, results: Path) -> Catalog:
    """Read every lock and every stage.json, or record where there is no stage.json."""
    stages: Stages = {}
    holders: dict[str, list[str]] = {}
    labels: dict[str, dict[str, str]] = {}
    for path in sorted((configs / "plans").rglob("*.lock.json")):
        lock = locks.read_lock(path)
        name = f"{lock.study}.{lock.scale}"
        for digest, stage in lock.stages.items():
            stages.setdefault(digest, stage)
            holders.setdefault(digest, []).append(name)
            labels.setdefault(digest, {})[name] = stage.get("label", "")
    for name in ("stage.json", "record.json"):
        for path in sorted(results.glob(f"*/*/{name}")):
            if path.parent.name not in stages:
                stage = artifact.read_json(path)
                stages[stage["digest"]] = {"label": "", **stage}
    return Catalog(stages, holders, results, labels)


def resolve_stage(text: str, catalog: Catalog, configs: Path, scale: str) -> Ref:
    """The stage that `text` names; `scale` is that of a path that names none. The stages of a named study are added to the
    catalog, locked or not, with its labels. The ancestors of a digest keep the labels on which all its studies agree.

    Raises UserError when none or several match, and when the spec of the match is not available."""
    name = text.strip().removeprefix("results/").removeprefix("by-name/").rstrip("/")
    digest = re.fullmatch(r"(?:[a-z]+/)?([0-9a-f]{2,12})(?:@(\d+))?", name)
    found = [known for known in catalog.stages if digest and known.startswith(digest[1])]
    if digest and len(found) == 1:
        _label_stages(catalog, catalog.locks.get(found[0], []))
        _add_specs(catalog, found[0], configs)
        return Ref(found[0], int(digest[2]) if digest[2] else None)
    if found:
        listed = ", ".join(f"{known} ({catalog.stages[known]['label']})" for known in sorted(found)[:MOST_LISTED])
        raise UserError(f"digest {text!r} is ambiguous: {listed}{', ...' if len(found) > MOST_LISTED else ''}; give more of it")
    study, rest = split_study(name, configs, scale)
    if study is None:
        if digest:
            raise UserError(f"digest {text!r} names no stage in results/ or configs/plans")
        hint = nearest_name(name.split("/")[0], expand.studies(configs))
        raise UserError(f"{text!r} is neither a digest nor STUDY/ARM/STAGE@SEED{hint}")
    plan = expand.plan_study(configs, *study)
    catalog.stages.update(plan.stages_json())
    return _named_stage(plan, rest, text)


def ancestors(digest: str, stages: Mapping[str, dict[str, Any]]) -> Stages:
    """The stage and all that it depends on, dependencies first; a dependency that `stages` lacks is left out."""
    reached = artifact.closure([digest], lambda one: stages[one]["deps"].values() if one in stages else ())
    return {one: stages[one] for one in reached if one in stages}


def _add_specs(catalog: Catalog, digest: str, configs: Path) -> None:
    """Add the specs of the stage and of all that it depends on: from results/, else by planning a study whose lock has the stage,
    else by planning such a study as it was committed. Stages still without a spec are removed from the catalog.

    Raises UserError when the stage itself has none."""
    holders = [(study, scale) for study, _, scale in (name.rpartition(".") for name in catalog.locks.get(digest, []))]
    sources: list[Callable[[], Mapping[str, dict[str, Any]]]] = [
        lambda: {one: made for one in lacking if (made := state.read_stage(catalog.results, catalog.stages[one]["kind"], one))},
        *(partial(_planned, configs, *holder) for holder in holders),
        *(partial(_committed, configs, *holder) for holder in holders),
    ]
    why = ""
    for source in sources:
        lacking = [one for one, stage in ancestors(digest, catalog.stages).items() if "spec" not in stage]
        if not lacking:
            return
        try:
            known = source()
        except UserError as error:
            why = f": {error}"
        else:
            catalog.stages.update({one: {**known[one], **catalog.stages[one]} for one in lacking if one in known})
    for one, stage in ancestors(digest, catalog.stages).items():
        if "spec" not in stage:
            del catalog.stages[one]
    if digest not in catalog.stages:
        raise UserError(f"{digest}: a stage of {', '.join(catalog.locks[digest])}, whose spec is not available{why}")


def _planned(configs: Path, study: str, scale: str) -> Stages:
    return expand.plan_study(configs, study, scale).stages_json()


def _committed(configs: Path, study: str, scale: str) -> Mapping[str, dict[str, Any]]:
    return locks.last_consistent(study, scale, configs)[1]


def _label_stages(catalog: Catalog, holders: list[str]) -> None:
    """Label every stage as these locks do, or, where none of them holds it, as all others do; empty where they differ."""
    for digest, labels in catalog.labels.items():
        of = {labels[lock] for lock in holders if lock in labels} or set(labels.values())
        stage = catalog.stages[digest]
        if of != {stage.get("label", "")}:
            catalog.stages[digest] = {**stage, "label": of.pop() if len(of) == 1 else ""}


def split_study(name: str, configs: Path, scale: str) -> tuple[tuple[str, str] | None, str]:
    """`edge/rl_edge/rl@0` or `edge.laptop/...` -> (("edge", "laptop"), "rl_edge/rl@0"); (None, name) when no study is
    named. A study in a folder is written as its path or, as in by-name/, with dots."""
    known = {
        spelt: (study, given)
        for study in expand.studies(configs)
        for form in (study, study.replace("/", "."))
        for spelt, given in [(form, scale), *((f"{form}.{other}", other) for other in expand.scales(configs))]
    }
    heads = [head for head in known if name == head or name.startswith(f"{head}/")]
    head = max(heads, key=len, default="")
    return (known[head], name[len(head) + 1 :]) if head else (None, name)


def readable_names(plan: Plan) -> dict[str, str]:
    """`report` and `<arm>/<stage>@<seed>` -> digest."""
    found = {"report": plan.report}
    for arm in plan.report_spec().arms:
        steps = [*((stage.name, stage.digest) for stage in arm.path), *arm.evaluations.items()]
        found |= {f"{arm.arm}/{name}@{arm.seed}": digest for name, digest in steps}
    return found


def _named_stage(plan: Plan, path: str, text: str) -> Ref:
    """The stage at an address within a study: `arm/stage@seed`, `data.edge`, each also with `@step`; a seed may be left out where
    it makes no difference."""
    known: dict[str, set[str]] = {}
    for name, digest in [*((stage.label, digest) for digest, stage in plan.stages.items()), *readable_names(plan).items()]:
        known.setdefault(name, set()).add(digest)
    if not path:
        raise UserError(f"{text!r} is a study; name one of its stages, such as {text.rstrip('/')}/{list(known)[-1]}")
    outer, _, step = path.rpartition("@")
    of_step = path not in known and outer in known and step.isdecimal()
    path = outer if of_step else path
    found = known.get(path) or {digest for name, of in known.items() if name.rpartition("@")[0] == path for digest in of}
    if len(found) == 1:
        return Ref(min(found), int(step) if of_step else None)
    if found:
        names = sorted(found) if path in known else [name for name in known if name.rpartition("@")[0] == path]
        more = ", ..." if len(names) > MOST_LISTED else ""
        raise UserError(f"{text!r} names several stages; write one of {', '.join(names[:MOST_LISTED])}{more}")
    raise UserError(f"{text!r}: study {plan.study} at scale {plan.scale} has no stage {path!r}{nearest_name(path, known)}")


def lineage_of(name: str, configs: Path, results: Path, scale: str) -> Stages:
    """All stages of a study (`edge`, `edge.laptop`), or a stage (named as for `resolve_stage`) and all that it depends on."""
    study, rest = split_study(name.rstrip("/"), configs, scale)
    if study and not rest:
        return expand.plan_study(configs, *study).stages_json()
    known = read_catalog(configs, results)
    return ancestors(resolve_stage(name, known, configs, scale).digest, known.stages)


# -- RL methods --------------------------------------------------------------------------------------------------------
# A method is called by the name of its file in configs/method/.


KnownMethods = Mapping[str, Mapping[str, Any]]
"""File's name -> leaves of its method, defaults included."""


def known_methods(configs: Path) -> KnownMethods:
    """The methods of configs/method/."""
    found = ((path.stem, method_leaves(yaml.safe_load(path.read_text()))) for path in sorted((configs / "method").glob("*.yaml")))
    return {name: method for name, method in found if method is not None}


def method_leaves(value: Any) -> Mapping[str, Any] | None:
    """The leaves of a method; None for other values."""
    if not isinstance(value, (Method, Mapping)):
        return None
    given = value if isinstance(value, Method) else {key: item for key, item in value.items() if key != "defaults"}
    try:
        return flat_leaves(parse_model(Method, given, KeyPlace("method")).model_dump(mode="json"))
    except UserError:
        return None


def method_name(value: Any, among: KnownMethods) -> str | None:
    """Such as `dapo`; `dapo, changed` for one that differs from its file, as where an arm replaces a seam; None for other
    values."""
    method = method_leaves(value)
    if method is None or not among:
        return None
    same = {file: other for file, other in among.items() if other.get("paper") == method.get("paper")} or among
    distances = {file: sum(method.get(key) != other.get(key) for key in {*method, *other}) for file, other in same.items()}
    nearest = min(distances, key=lambda file: distances[file])
    return nearest if not distances[nearest] else f"{nearest}, changed"


def link_study(results: Path, plan: Plan, top: Path) -> Path:
    """Make the readable links of a study below `top`; returns the report's page."""
    for name, digest in readable_names(plan).items():
        link = top / name
        target = os.path.relpath(artifact.folder(results, plan.stages[digest].kind, digest), link.parent)
        if link.is_symlink() and os.readlink(link) == target:
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        part = link.with_name(f".{link.name}.part")
        part.unlink(missing_ok=True)
        part.symlink_to(target)
        os.replace(part, link)
    return top / "report" / "report.html"


# The claims of a finished study as lines of text, read from the files of its report alone: no pandas, no inputs.


INDENT = 16
"""Columns of the verdict; the sentence and its numbers follow."""


def verdict_lines(report: Path) -> list[str]:
    """Three lines for each claim: verdict and sentence; metric, from, to, change, its 95 % interval; what was claimed, for which
    target. None where the folder of the report holds no claims."""
    if not (report / "claims.json").exists():
        return []
    tables = artifact.record(report)["metrics"]["tables"]
    values = {key: numbers[0] for table in tables.values() for key, numbers in table.items()}
    return claim_lines(artifact.read_json(report / "claims.json"), values)


def claim_lines(claims: list[dict[str, Any]], values: Mapping[str, float | None]) -> list[str]:
    """The lines of claims as in `claims.json`, with what was changed of one after it was registered; `values`: estimates by
    arm/column/metric."""
    lines = []
    for claim in claims:
        lines += [
            f"{claim['verdict']:<{INDENT - 1}} {claim['says']}",
            *(f"{'':{INDENT}}{line}" for line in _numbers(claim, values)),
        ]
        if look := claim.get("look"):
            after = "stopped" if look["stopped"] else "open"
            said = f"look {look['look']} of {look['of']}, at {look['replicates']} replicates"
            lines.append(f"{'':{INDENT}}{said}, boundary {look['boundary']:.2f}: {after}")
        lines += [f"{'':{INDENT}}{claim['caveat']}"] if "failing" in claim else []
        lines += [f"{'':{INDENT}}changed after seeing data: {change}" for change in claim.get("changed", [])]
    return lines


def _numbers(claim: Mapping[str, Any], values: Mapping[str, float | None]) -> list[str]:
    """`values`: estimates of all tables by row/column/metric; an arm that no table has is shown without its value. Two lines, so
    that each fits a terminal."""
    test, found = claim["test"], claim["estimate"]
    metric = test.get("difference") or test["value"]
    measure, place = measure_of(metric), test.get("band") or test["recorded"]
    if found["value"] is None:
        return [f"{metric} of {place}: {claim['reason']}"]
    signed = "difference" in test
    names = (test["against"], test["arm"]) if signed else ()
    known = {name: None if "failing" in claim else values.get(f"{name}/{place}/{metric}") for name in names}
    arms = [name if value is None else f"{name} {measure.shown(value)}" for name, value in known.items()] or [test["arm"]]
    interval = f"[{_value_text(found['low'], measure, signed)}, {_value_text(found['high'], measure, signed)}]"
    change = f"{_value_text(found['value'], measure, signed)} {interval} {measure.unit_of(signed)}".rstrip()
    why = f" ({claim['reason']})" if claim["verdict"].startswith("not ") else ""
    arrow = " -> ".join(arms)
    said = _claimed(test, measure, claim.get("effect"))
    return [f"{metric} of {place}: {arrow}: {change}", f"{said}; for {found['over']}{why}"]


def _value_text(value: float | None, measure: Measure, signed: bool) -> str:
    return measure.shown(float("nan") if value is None else value, signed)


def _claimed(test: Mapping[str, Any], measure: Measure, effect: float | None) -> str:
    if effect is not None:
        return f"published {effect:+g}"
    if "within" in test:
        low, high = test["within"]
        return f"claimed {measure.shown(low)} to {measure.shown(high)}"
    for key, word in (("at_least", "at least"), ("at_most", "at most")):
        if key in test:
            return f"claimed {word} {measure.shown(test[key], 'difference' in test)}{measure.tie(test.get('margin'))}"
    return f"claimed within {measure.shown(test['margin'])} of each other"
