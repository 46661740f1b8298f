"""The problem sets of a study as stages: generated, read from files, or made of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from interplay.schema.base import UserError, parse, shown
from interplay.schema.curate import STEPS, CurateSpec
from interplay.schema.data import ProblemsSpec
from interplay.schema.evaluate import EvaluateSpec
from interplay.schema.report import ReportArm
from interplay.schema.sets import DataSet
from interplay.schema.task import Task, TaskKey
from interplay.tasks.table import family

if TYPE_CHECKING:
    from interplay.study.expand import Expansion

STEP_KEYS = {"arm", "evaluate", "against"}
"""Keys of a step that the planner turns into roles."""


def stage_of(e: Expansion, name: str, key: str) -> str:
    """Digest of the problem set of that name, for which `key` of the study asks. Raises UserError when it leads back to
    itself."""
    if name in e.making:
        circle = " -> ".join([*e.making[e.making.index(name) :], name])
        raise UserError(f"{e.where}: data.{name}: made of itself: {circle}; take one of them away")
    data = e.pick(e.study.data, name, key, "problem set")
    e.making.append(name)
    try:
        return {"generated": _generated, "file": _file, "mix": _mixed}[data.form](e, name, data)
    finally:
        e.making.pop()


def task_of(e: Expansion, data: DataSet) -> dict[str, Any]:
    """Keys of the task of a generated set: the arm's, or a task of its own, with the set's above."""
    own = data.task.get("name", e.task.get("name"))
    base = e.task if own == e.task.get("name") else e.scale.tasks.get(own, {}) if isinstance(own, str) else {}
    return {**base, **data.task}


def tokenizer_spec(e: Expansion) -> dict[str, Any]:
    """Spec of the tokenizer that fresh models of the arm share: the arm's task, and the tasks of the study's sets as far as
    they need what those before them do not, so that a further set of a known task changes nothing."""
    tasks = [(e.task, e.where)]
    tasks += [(task_of(e, data), f"{e.where}: data.{name}") for name, data in e.study.data.items() if data.form == "generated"]
    known: set[str] = set()
    needed: list[dict[str, Any]] = []
    words = e.study.tokenizer.get("algorithm", "characters") == "words"
    for given, where in tasks:
        task = parse_task(given, where)
        texts = set(family(task).vocabulary(task) if words else family(task).alphabet(task))
        if not needed or texts - known:
            needed.append(given)
            known |= texts
    return {**e.study.tokenizer, "task": needed[0], "others": needed[1:]}


def tokenizer_roles(e: Expansion) -> dict[str, str]:
    """Roles of the tokenizer: what BPE learns from, the study's generated sets of split train and the files that have no other,
    by digest so that names do not matter. Raises UserError where there is none."""
    if e.study.tokenizer.get("algorithm") != "bpe":
        return {}
    fit = [name for name, data in e.study.data.items() if data.form != "mix" and data.split in ("train", None)]
    if not fit:
        raise UserError(f"{e.where}: tokenizer.algorithm = 'bpe': learns from sets of split train; generate one, or read a file")
    digests = sorted({stage_of(e, name, "tokenizer") for name in fit})
    return {f"data.{i}": digest for i, digest in enumerate(digests)}


def parse_task(given: dict[str, Any], where: str) -> Task:
    """The typed task of `FILE` or `FILE: key`, under its own key `task`."""
    return parse(TaskKey, {"task": given}, where).task


def ops_of(e: Expansion, digests: list[str]) -> set[int]:
    """The ops that the specs of these problem sets, or of what they are made of, foretell."""
    found: set[int] = set()
    for digest in digests:
        stage = e.plan.stages[digest]
        if isinstance(stage.spec, ProblemsSpec):
            found |= {op for ops in stage.spec.bands.values() for op in ops}
        elif isinstance(stage.spec, CurateSpec):
            found |= ops_of(e, [dep for role, dep in stage.deps.items() if role.startswith("data.")])
    return found


def trained_sets(e: Expansion, rows: list[ReportArm], used: set[str]) -> dict[str, list[str]]:
    """Per arm the problem sets that it was trained on at any seed, in a study some of whose sets are files or made of others:
    then specs do not tell the ops of all rows. Else nothing."""
    if not {e.plan.stages[digest].kind for digest in used} & {"dataset", "curate"}:
        return {}
    found: dict[str, list[str]] = {}
    for row in rows:
        known = found.setdefault(row.arm, [])
        known += [digest for digest in e.sets.get(row.path[-1].digest, []) if digest not in known]
    return found


def refuse_tests(e: Expansion, names: Iterable[str], key: str) -> None:
    """Nobody is trained on what others are tested on: raises UserError at a set of split test, or one that is made of such."""
    waiting = [(name, name) for name in names]
    while waiting:
        name, whole = waiting.pop()
        data = e.study.data[name]
        if data.split == "test" and not data.leak:
            through = f"data.{name}" if name == whole else f"data.{name}, of which data.{whole} is made,"
            raise UserError(
                f"{e.where}: {key} = {shown(whole)}: {through} is of split test, which nothing is trained on; "
                f"take another split, or declare leak: true there"
            )
        waiting += [(other, whole) for other in data.mix or {}]


def decontaminated(e: Expansion, digest: str, key: str) -> str:
    """The problem set behind the check that the study wants of all that is trained on; itself where it wants none. Raises
    UserError where it is one of the sets to compare with."""
    wanted = e.study.decontaminate
    if wanted is None:
        return digest
    names = wanted.against if wanted.against is not None else [e.study.stages[name]["data"] for name in e.study.evaluate]
    others = sorted({stage_of(e, name, "decontaminate.against") for name in names})
    if digest in others:
        raise UserError(f"{e.where}: {key}.data: one of the sets that decontaminate compares with; train on another")
    step = wanted.model_dump(exclude={"against"})
    deps = {"data.0": digest, **{f"against.0.{place}": other for place, other in enumerate(others)}}
    return e.stage("curate", {"mix": [1.0], "steps": [step]}, deps, "decontaminate", f"{e.plan.stages[digest].label} clean")


def made_of(e: Expansion, digests: Iterable[str]) -> set[str]:
    """The problem sets that curated sets among these stages are made of, down to the first."""
    found: set[str] = set()
    waiting = list(digests)
    while waiting:
        stage = e.plan.stages[waiting.pop()]
        more = {dep for role, dep in stage.deps.items() if stage.kind == "curate" and role.startswith("data.")} - found
        found |= more
        waiting += sorted(more)
    return found


def _generated(e: Expansion, name: str, data: DataSet) -> str:
    sizes, bands = e.scale.sizes, data.names()
    spec: dict[str, Any] = {
        "task": task_of(e, data),
        "bands": {band: _op_shares(e, data, band, f"data.{name}.band") for band in bands},
        "shares": {band: 1 / len(bands) for band in bands},
        "size": data.size or e.pick(sizes, data.split, f"data.{name}.split", "split with a size in the scale") * len(bands),
        "split": data.split,
    }
    if data.transform:
        spec["transform"] = {"name": "custom", **data.transform}
    return e.stage("problems", spec, {}, f"data.{name}")


def _op_shares(e: Expansion, data: DataSet, band: str, key: str) -> dict[int, float]:
    ops = e.pick(e.scale.bands, band, key, "band")
    return data.op_shares or {op: 1 / len(ops) for op in ops}


def _file(e: Expansion, name: str, data: DataSet) -> str:
    spec: dict[str, Any] = {"format": data.format, "band": data.band or "all", "defects": data.defects}
    spec |= {key: getattr(data, key) for key in ("file", "sha256", "split", "size") if getattr(data, key) is not None}
    return e.stage("dataset", spec, {}, f"data.{name}")


def _mixed(e: Expansion, name: str, data: DataSet) -> str:
    key = f"data.{name}"
    shares, deps = _merged(*e.mix(data.mix or {}, key, "mix"))
    steps: list[dict[str, Any]] = []
    for number, given in enumerate(data.steps):
        spot = f"{key}.steps.{number}"
        deps |= dict(_roles(e, given, number, deps, spot))
        steps.append({name: value for name, value in given.items() if name not in STEP_KEYS})
    spec: dict[str, Any] = {"mix": shares, "steps": steps}
    if data.size is not None:
        spec["size"] = data.size
    digest = e.stage("curate", spec, deps, key)
    _enough_samples(e, digest, key)
    return digest


def _merged(shares: list[float], deps: dict[str, str]) -> tuple[list[float], dict[str, str]]:
    """The mix with each set once, whose shares are added where it goes by several names: no row shall occur twice."""
    total: dict[str, float] = {}
    for share, digest in zip(shares, deps.values(), strict=True):
        total[digest] = total.get(digest, 0.0) + share
    return list(total.values()), {f"data.{number}": digest for number, digest in enumerate(total)}


def _enough_samples(e: Expansion, digest: str, key: str) -> None:
    """The evaluations whose samples a step reads draw as many of a row as it counts. Raises UserError."""
    stage = e.plan.stages[digest]
    assert isinstance(stage.spec, CurateSpec)
    for number, step in enumerate(stage.spec.steps):
        roles = [role for role in stage.deps if role.startswith(f"samples.{number}.0.")]
        parts = [e.plan.stages[stage.deps[role]].spec for role in roles]
        drawn = sum(part.num_samples for part in parts if isinstance(part, EvaluateSpec))
        if roles and drawn < step.samples():
            raise UserError(
                f"{e.where}: {key}.steps.{number}: counts {step.samples()} samples of each row, and its evaluation draws "
                f"{drawn}; set num_samples: {step.samples()} there"
            )


def _roles(e: Expansion, step: dict[str, Any], number: int, deps: dict[str, str], spot: str) -> Iterator[tuple[str, str]]:
    """What a step reads beside the rows. Raises UserError when it lacks what it needs, or has what it does not read."""
    where = f"{e.where}: {spot}"
    kind = STEPS.get(str(step.get("name")))
    if kind is None:
        return  # the schema will name the known ones
    reads = {"arm": kind.READS_SAMPLES, "evaluate": kind.READS_SAMPLES, "against": kind.COMPARES}
    for key, wanted in reads.items():
        if key in step and not wanted:
            raise UserError(f"{where}.{key}: a {step['name']} step reads none; take it away")
        if wanted and key not in step:
            raise UserError(f"{where}.{key}: missing; {MISSING[key]}")
    if kind.READS_TOKENIZER:
        yield "tokenizer", e.tokenizer
    if kind.READS_SAMPLES:
        judged = e.pick(e.entries, step["evaluate"], f"{spot}.evaluate", "stage").get("kind")
        if judged != "evaluate":
            raise UserError(f"{where}.evaluate = {shown(step['evaluate'])}: is a {judged} stage; name one of kind evaluate")
        model = e.end_of(step["arm"], f"{spot}.arm")
        for role, data in list(deps.items()):
            if role.startswith("data."):
                made = e.evaluation(e.entries, step["evaluate"], model, spot, data)
                yield from ((f"samples.{number}.{role.removeprefix('data.')}.{place}", one) for place, one in enumerate(made))
    if kind.COMPARES:
        if not isinstance(step["against"], list) or not step["against"]:
            raise UserError(f"{where}.against = {shown(step['against'])}: must be a list of problem sets")
        others = sorted({stage_of(e, other, f"{spot}.against") for other in step["against"]})
        yield from ((f"against.{number}.{place}", other) for place, other in enumerate(others))


MISSING = {
    "arm": "name the arm whose end samples the rows",
    "evaluate": "name the evaluate stage that says how",
    "against": "name the problem sets to compare with",
}
