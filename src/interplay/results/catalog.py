"""Every stage that the project knows of by digest, its lineage, and the RL methods of configs/method."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from interplay.core import artifact
from interplay.core.model import UserError, nearest_name, parse_model
from interplay.kinds.identity import flat_leaves
from interplay.report.spec import ReportSpec
from interplay.results import rebuild, state
from interplay.rl.spec import Method
from interplay.study import compose
from interplay.study.expand import plan_study
from interplay.study.plan import Plan

# Every stage that this project knows of, by digest: from the committed locks, and from what lies in results/. And the names by
# which people ask for one: a digest's beginning, `digest@step`, or a path such as `edge/rl_edge/seed0/rl`. Locks leave specs
# out: a stage that is asked for gets its own, and those of all that it rests on, from results/ or by planning a study that has
# it.


Stages = dict[str, dict[str, Any]]
FEW = 8
"""Candidates that a message lists."""


class Catalog(NamedTuple):
    """What is known of all stages."""

    stages: Stages
    """By digest: kind, deps and label; spec, versions and run where known."""
    locks: dict[str, list[str]]
    """Digest -> the locks (`study.scale`) that contain it."""
    results: Path
    labels: dict[str, dict[str, str]]
    """Digest -> what each of these calls it: studies that share a stage may give it names of their own."""


class Ref(NamedTuple):
    """A stage, or with `step` a checkpoint that it keeps."""

    digest: str
    step: int | None = None

    def __str__(self) -> str:
        return self.digest if self.step is None else f"{self.digest}@{self.step}"


def read(configs: Path, results: Path) -> Catalog:
    """Read every lock and every stage.json; a record stands in where there is no stage.json."""
    stages: Stages = {}
    locks: dict[str, list[str]] = {}
    labels: dict[str, dict[str, str]] = {}
    for path in sorted((configs / "plans").rglob("*.lock.json")):
        lock = state.read_lock(path)
        name = f"{lock.study}.{lock.scale}"
        for digest, stage in lock.stages.items():
            stages.setdefault(digest, stage)
            locks.setdefault(digest, []).append(name)
            labels.setdefault(digest, {})[name] = stage.get("label", "")
    for name in ("stage.json", "record.json"):
        for path in sorted(results.glob(f"*/*/{name}")):
            if path.parent.name not in stages:
                stage = artifact.read_json(path)
                stages[stage["digest"]] = {"label": "", **stage}
    return Catalog(stages, locks, results, labels)


def resolve(text: str, catalog: Catalog, configs: Path, scale: str) -> Ref:
    """The stage that `text` names; `scale` is that of a path that names none. A study named so joins the catalog, locked or not,
    and its labels are those that are shown; of a digest's neighbours those on which all studies that hold it agree.

    Raises UserError when none or several match, and when nothing has the spec of the one that does."""
    name = text.strip().removeprefix("results/").removeprefix("by-name/").rstrip("/")
    digest = re.fullmatch(r"(?:[a-z]+/)?([0-9a-f]{2,12})(?:@(\d+))?", name)
    found = [known for known in catalog.stages if digest and known.startswith(digest[1])]
    if digest and len(found) == 1:
        _call(catalog, catalog.locks.get(found[0], []))
        _specify(catalog, found[0], configs)
        return Ref(found[0], int(digest[2]) if digest[2] else None)
    if found:
        listed = ", ".join(f"{known} ({catalog.stages[known]['label']})" for known in sorted(found)[:FEW])
        raise UserError(f"digest {text!r} is ambiguous: {listed}{', ...' if len(found) > FEW else ''}; give more of it")
    study, rest = split_study(name, configs, scale)
    if study is None:
        if digest:
            raise UserError(f"digest {text!r} names no stage in results/ or configs/plans")
        hint = nearest_name(name.split("/")[0], compose.studies(configs))
        raise UserError(f"{text!r} is neither a digest nor STUDY/ARM/seedN/STAGE{hint}")
    path, _, step = rest.partition("@")
    plan = plan_study(configs, *study)
    catalog.stages.update(as_json(plan))
    return Ref(_named(plan, path, text), int(step) if step.isdecimal() else None)


def ancestors(digest: str, stages: Mapping[str, dict[str, Any]]) -> Stages:
    """The stage and all that it rests on, dependencies first; a dependency that `stages` lacks is left out."""
    found: Stages = {}

    def visit(ref: str) -> None:
        at = artifact.split_ref(ref)[0]
        if at in found or at not in stages:
            return
        for dep in stages[at]["deps"].values():
            visit(dep)
        found[at] = stages[at]

    visit(digest)
    return found


def _specify(catalog: Catalog, digest: str, configs: Path) -> None:
    """Give the stage, and all that it rests on, their specs: from results/, else by planning the first study whose lock has the
    stage, else by planning that study as it was committed. What has none after that leaves the catalog, as if no lock had it.

    Raises UserError when the stage itself has none."""
    study, _, scale = catalog.locks.get(digest, [""])[0].rpartition(".")
    sources: list[Callable[[], Mapping[str, dict[str, Any]]]] = [
        lambda: {one: made for one in lacking if (made := state.written(catalog.results, catalog.stages[one]["kind"], one))},
        lambda: as_json(plan_study(configs, study, scale)),
        lambda: rebuild.last_agreed(study, scale, configs)[1],
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
        raise UserError(f"{digest}: a stage of {study} at scale {scale}, whose spec is not available{why}")


def _call(catalog: Catalog, locks: list[str]) -> None:
    """Label every stage as these locks do, or where none of them holds it as all others do; with nothing where they differ."""
    for digest, labels in catalog.labels.items():
        of = {labels[lock] for lock in locks if lock in labels} or set(labels.values())
        stage = catalog.stages[digest]
        if of != {stage.get("label", "")}:
            catalog.stages[digest] = {**stage, "label": of.pop() if len(of) == 1 else ""}


def split_study(name: str, configs: Path, scale: str) -> tuple[tuple[str, str] | None, str]:
    """`edge/rl_edge/seed0/rl` or `edge.laptop/...` -> (("edge", "laptop"), "rl_edge/seed0/rl"); (None, name) when no study is
    named. A study in a folder is written as its path or, as in by-name/, with dots."""
    known = {
        spelt: (study, given)
        for study in compose.studies(configs)
        for form in (study, study.replace("/", "."))
        for spelt, given in [(form, scale), *((f"{form}.{other}", other) for other in compose.scales(configs))]
    }
    heads = [head for head in known if name == head or name.startswith(f"{head}/")]
    head = max(heads, key=len, default="")
    return (known[head], name[len(head) + 1 :]) if head else (None, name)


def report_spec(plan: Plan) -> ReportSpec:
    """The plan's arms, evaluations and tables."""
    spec = plan.stages[plan.report].spec
    assert isinstance(spec, ReportSpec)
    return spec


def as_json(plan: Plan) -> Stages:
    """The plan's stages as plain JSON, dependencies first."""
    return {digest: stage.as_json() for digest, stage in plan.stages.items()}


def names(plan: Plan) -> dict[str, str]:
    """Every name of a stage below its study: `report`, `<arm>/seed<n>/<stage>`, and labels such as `data.edge`."""
    found = {"report": plan.report}
    for arm in report_spec(plan).arms:
        steps = [*((stage.name, stage.digest) for stage in arm.path), *arm.evaluations.items()]
        found |= {f"{arm.arm}/seed{arm.seed}/{name}": artifact.split_ref(ref)[0] for name, ref in steps}
    return found | {stage.label: digest for digest, stage in plan.stages.items() if "/" not in stage.label}


def _named(plan: Plan, path: str, text: str) -> str:
    known = names(plan)
    if path in known:
        return known[path]
    found = {digest for name, digest in known.items() if re.sub(r"/seed\d+/", "/", name) == path}
    if len(found) == 1:
        return found.pop()
    if found:
        arm, _, stage = path.rpartition("/")
        raise UserError(f"{text!r} has several seeds; write {arm}/seedN/{stage}")
    raise UserError(f"{text!r}: study {plan.study} at scale {plan.scale} has no stage {path!r}{nearest_name(path, known)}")


# The stages behind a study or a stage, dependencies first, as JSON.


def lineage_of(name: str, configs: Path, results: Path, scale: str) -> Stages:
    """All stages of a study (`edge`, `edge.laptop`), or a stage (named as for `catalog.resolve`) and all that it rests on."""
    study, rest = split_study(name.rstrip("/"), configs, scale)
    if study and not rest:
        return as_json(plan_study(configs, *study))
    known = read(configs, results)
    return ancestors(resolve(name, known, configs, scale).digest, known.stages)


# What a whole RL method is called: the name of its file in configs/method/.


Known = Mapping[str, Mapping[str, Any]]
"""File's name -> its method, leaf by leaf, the schema's defaults included."""


def known_methods(configs: Path) -> Known:
    """The methods of configs/method/."""
    found = ((path.stem, whole_method(yaml.safe_load(path.read_text()))) for path in sorted((configs / "method").glob("*.yaml")))
    return {name: method for name, method in found if method is not None}


def whole_method(value: Any) -> Mapping[str, Any] | None:
    """A method as leaves; None where the value is none."""
    if not isinstance(value, (Method, Mapping)):
        return None
    given = value if isinstance(value, Method) else {key: item for key, item in value.items() if key != "defaults"}
    try:
        return flat_leaves(parse_model(Method, given, "method").model_dump(mode="json"))
    except UserError:
        return None


def method_name(value: Any, among: Known) -> str | None:
    """Such as `dapo`; `dapo, changed` for one that differs from its file, as where an arm sets a seam of it; None for what is no
    method."""
    method = whole_method(value)
    if method is None or not among:
        return None
    same = {file: other for file, other in among.items() if other.get("paper") == method.get("paper")} or among
    apart = {file: sum(method.get(key) != other.get(key) for key in {*method, *other}) for file, other in same.items()}
    nearest = min(apart, key=lambda file: apart[file])
    return nearest if not apart[nearest] else f"{nearest}, changed"
