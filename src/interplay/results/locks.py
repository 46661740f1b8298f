"""Committed locks: read, rebuilt with the specs that they leave out, and compared with a plan.

A lock names stages by digest. The specs come from the plan, from results/, or from planning the configs of a commit with its own
sources in a temporary folder, which leaves the working tree and git's index as they are. Only commands of the CLI do that; a job
reads its stage.json."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_origin

import interplay
from interplay.core import artifact
from interplay.core.model import Model, UserError, plural
from interplay.results import cause, state
from interplay.study import expand, plan as plans

Stages = Mapping[str, dict[str, Any]]
MOST_NAMED = 3
"""Differing stages that a line names."""
EXPORTED = ("configs", "src", "data")
"""What a plan is made from. Files that git does not track, such as data sets, are linked from the working tree."""
MOST_COMMITS = 3
"""Commits that wrote a lock and are tried, the latest first."""


# -- reading -----------------------------------------------------------------------------------------------------------


def read_lock(path: Path) -> plans.Lock:
    """Raises UserError when the file is not a lock: its stages would count as unused."""
    try:
        return plans.parse_lock(json.loads(path.read_bytes()))
    except (OSError, ValueError) as error:  # JSON's error is a ValueError
        raise UserError(f"{path}: not a lock: {error}; `interplay plan STUDY --scale SCALE --write` writes one") from None


def read_locks(configs: Path, extra: Iterable[Path] = ()) -> dict[str, plans.Lock]:
    """The locks of configs/plans and the files given by their names (`study.scale`, a study in a folder with dots).

    Raises UserError at the first that is not a lock."""
    read = [read_lock(path) for path in [*sorted((configs / "plans").rglob("*.lock.json")), *extra]]
    return {plans.flat_name(lock.study, lock.scale): lock for lock in read}


def stages_of(locks: Mapping[str, plans.Lock]) -> dict[str, dict[str, Any]]:
    """The stages that the locks name, by digest."""
    return {digest: stage for lock in locks.values() for digest, stage in lock.stages.items()}


def whole_stages(lock: plans.Lock, configs: Path) -> Stages:
    """The stages of a lock by digest; of a brief one as the configs plan them now, else as a commit planned them. Raises
    UserError where neither has its report."""
    if lock.stages:
        return lock.stages
    planned = expand.plan_study(configs, lock.study, lock.scale)
    if planned.report == lock.report:
        return planned.stages_json()
    return last_consistent(lock.study, lock.scale, configs)[1]


# -- rebuilding --------------------------------------------------------------------------------------------------------


def last_consistent(study: str, scale: str, configs: Path) -> tuple[str, Stages]:
    """The last commit whose configs plan the lock that it holds, and its stages by digest, dependencies first. In a shallow clone
    the oldest commit counts as the one that wrote every file.

    Raises UserError with the reason when there is none."""
    path = plans.lock_path(configs, study, scale)
    wrote = _git("log", "-n", str(MOST_COMMITS), "--format=%H", "--", str(path)).decode().split()
    head = _git("rev-parse", "--verify", "HEAD").decode().strip()
    why = "no commit holds it"
    for commit in dict.fromkeys([*wrote[:1], head, *wrote[1:]]):
        try:
            locked = lock_at(commit, path)
            found = plan_at(commit, study, scale)
        except UserError as error:
            why = str(error)
            continue
        if set(found) == set(locked.stages) or (not locked.stages and locked.report in found):
            return commit, found
        why = f"the configs of commit {commit[:12]} give other stages than its lock"
    raise UserError(why)


def lock_at(revision: str, path: Path) -> plans.Lock:
    """A lock at a commit, tag or branch. Raises UserError when git, the commit or the lock is missing."""
    try:
        text = _git("show", "--end-of-options", f"{revision}:./{path.as_posix()}")
        return plans.parse_lock(json.loads(text))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except ValueError as error:
        raise UserError(f"{path}: not a lock at that commit: {error}") from None


def plan_at(revision: str, study: str, scale: str) -> Stages:
    """The stages of a study by digest as a commit plans them. Raises UserError when the commit's configs cannot be planned any
    more."""
    commit = _git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    with tempfile.TemporaryDirectory(prefix="interplay-plan-") as name:
        folder = Path(name)
        _export(commit, folder)
        sources = folder / "src" if (folder / "src/interplay").is_dir() else Path(interplay.__file__).parents[1]
        paths = [str(sources), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-m", "interplay", "plan", study, "--scale", scale, "--specs"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UserError(f"commit {commit[:12]} cannot be planned here: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return {stage["digest"]: stage for stage in json.loads(done.stdout)["stages"]}


def _export(commit: str, folder: Path) -> None:
    """Write the commit's files below `folder`, and link what git does not track."""
    tracked = _git("ls-tree", "--name-only", commit).decode().splitlines()
    files = _git("archive", "--format=tar", commit, *(name for name in EXPORTED if name in tracked))
    subprocess.run(["tar", "-x", "-C", str(folder)], input=files, check=True)
    for entry in Path().iterdir():
        if entry.name not in (".git", "configs", "src"):
            _link(entry.absolute(), folder / entry.name)


def _link(entry: Path, place: Path) -> None:
    if not os.path.lexists(place):
        place.symlink_to(entry)
    elif place.is_dir() and not place.is_symlink() and entry.is_dir():
        for inner in entry.iterdir():
            _link(inner, place / inner.name)


def head_commit() -> str:
    """The commit of the working tree, shortened; empty outside a repository or before the first."""
    try:
        return _git("rev-parse", "--short=12", "--verify", "HEAD").decode().strip()
    except UserError:
        return ""


def first_commit(path: Path) -> str:
    """`a1b2c3d of 2026-11-26`, the commit that added a file; empty where none has."""
    try:
        added = _git("log", "--diff-filter=A", "--format=%h of %cs", "--", str(path)).decode().split("\n")
    except UserError:
        return ""
    return next((line for line in reversed(added) if line), "")


def _git(*words: str) -> bytes:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(["git", *words], env=quiet, capture_output=True, check=False)
    except FileNotFoundError:
        raise UserError("git is not installed") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(lines[0].removeprefix("fatal: ") if lines else f"git {words[0]} ended with {done.returncode}")
    return done.stdout


# -- comparing ---------------------------------------------------------------------------------------------------------


class Locked(NamedTuple):
    """The stages of a lock by digest, with their specs as far as these are known."""

    name: str
    """Which lock it is."""
    stages: Stages
    lacking: str = ""
    """Why specs of stages that the plan lacks are not known; empty where all are."""


class Differences(NamedTuple):
    """From the lock to the plan."""

    added: list[dict[str, Any]]
    """Stages of the plan that replace none."""
    removed: list[dict[str, Any]]
    """Stages of the lock that are not replaced."""
    changed: list[cause.Cause]
    """Stages of the plan that replace one of the same kind and label, which is their `nearest`."""
    same: int


def lock_of_commit(plan: plans.Plan, configs: Path, results: Path, revision: str) -> Locked:
    """The plan's lock at a commit, tag or branch. Raises UserError when git, the commit or the lock is missing."""
    if not revision:  # git would take it for its index
        raise UserError("--against: name a commit, a tag or a branch")
    try:
        locked = lock_at(revision, plan.lock_path(configs))
    except UserError as error:
        raise UserError(f"--against {revision}: {error}; name a commit, tag or branch that holds this lock") from None
    return _with_specs(Locked(revision, locked.stages), plan, results, lambda: plan_at(revision, plan.study, plan.scale))


def lock_of_working_tree(plan: plans.Plan, configs: Path, results: Path) -> Locked | None:
    """The lock in configs/plans; None where there is none or it is this plan. Where it holds stages that no commit planned, since
    it was written and not committed, the last committed lock that its commit's configs give is used instead."""
    path = plan.lock_path(configs)
    if not path.exists() or plan.locked(configs):
        return None
    committed: list[tuple[str, Stages]] = []

    def rebuild() -> Stages:
        committed.append(last_consistent(plan.study, plan.scale, configs))
        return committed[0][1]

    lock = read_lock(path)
    found = _with_specs(Locked("the lock", lock.stages), plan, results, rebuild)
    if not committed or (not found.lacking and lock.report in found.stages):
        return found
    commit, rebuilt = committed[0]
    return Locked(f"the lock of commit {commit[:12]} (the one here was not committed)", rebuilt)


def _with_specs(locked: Locked, plan: plans.Plan, results: Path, rebuild: Callable[[], Stages]) -> Locked:
    """The lock with the specs of its stages: those of the plan as planned, others as they lie in results/, and where that is not
    all, or the lock is brief, those that `rebuild` plans from a commit."""
    stages = {
        digest: plan.stages[digest].as_json()
        if digest in plan.stages
        else {**(state.read_stage(results, stage["kind"], digest) or {}), **stage}
        for digest, stage in locked.stages.items()
    }
    lacking = [digest for digest, stage in stages.items() if "spec" not in stage]
    if stages and not lacking:
        return locked._replace(stages=stages)
    try:
        rebuilt = rebuild()
    except UserError as error:
        return locked._replace(stages=stages, lacking=str(error))
    stages = {digest: rebuilt.get(digest, stage) for digest, stage in stages.items()} or dict(rebuilt)
    whole = all("spec" in stage for stage in stages.values())
    return locked._replace(stages=stages, lacking="" if whole else "the commit's configs give other stages than its lock")


def compare_stages(old: Stages, new: Stages) -> Differences:
    """Stages added, removed and changed. Those that share kind and label are pairs; several of one label are paired in their
    order."""
    gone = {digest: stage for digest, stage in old.items() if digest not in new}
    waiting: dict[tuple[str, str], list[str]] = {}
    for digest, stage in gone.items():
        waiting.setdefault((stage["kind"], stage["label"]), []).append(digest)
    both = {**old, **new}
    comparison = cause.Comparison(lambda ref: both.get(artifact.ref_digest(ref)))
    added, changed, paired = [], [], set()
    for digest, stage in new.items():
        if digest in old:
            continue
        candidates = waiting.get((stage["kind"], stage["label"]))
        if not candidates:
            added.append(stage)
            continue
        before = min(candidates, key=lambda other: comparison.distance(other, digest))
        candidates.remove(before)
        paired.add(before)
        changes = tuple(comparison.distinct_changes(before, digest))
        changed.append(cause.Cause(digest, stage["kind"], stage["label"], before, changes))
    return Differences(added, [stage for digest, stage in gone.items() if digest not in paired], changed, len(old) - len(gone))


def differences_json(found: Differences) -> dict[str, Any]:
    """The differences for programs."""

    added, removed = (
        [{key: stage[key] for key in ("digest", "kind", "label")} for stage in side] for side in (found.added, found.removed)
    )
    return {"added": added, "removed": removed, "changed": [cause.cause_json(one) for one in found.changed], "same": found.same}


def summarize_difference(locked: Locked, plan: plans.Plan) -> str:
    """On one line how a plan differs from its lock: how many stages, and the first field of the first one, dependencies first."""
    new = plan.stages_json()
    found = compare_stages(locked.stages, new)
    counts = {"changed": len(found.changed), "added": len(found.added), "removed": len(found.removed)}
    parts = [f"compared with {locked.name}: {', '.join(f'{count} {word}' for word, count in counts.items() if count)}"]
    if not any(counts.values()):
        labels = ((old["label"], new[digest]["label"]) for digest, old in locked.stages.items())
        renamed = next((f", but {old} is called {now} now" for old, now in labels if old != now), "")
        parts = [f"the stages of {locked.name}{renamed}"]
    elif first := next((one for one in found.changed if one.changes), None):
        parts.append(f"{first.kind} {first.label}: {first.changes[0]}")
    else:
        names = [cause.kind_and_label(one.kind, one.label) for one in found.changed]
        names += [cause.kind_and_label(one["kind"], one["label"]) for one in (*found.added, *found.removed)]
        more = len(names) - MOST_NAMED
        parts.append(", ".join(names[:MOST_NAMED]) + (f" and {plural(more, 'more stage')}" if more > 0 else ""))
    return "; ".join([*parts, f"earlier specs are not available: {locked.lacking}"] if locked.lacking else parts)


def difference_from_tree(plan: plans.Plan, configs: Path, results: Path) -> str:
    """The difference between the plan and the lock in the working tree; empty where there is no difference or no lock."""
    locked = lock_of_working_tree(plan, configs, results)
    return summarize_difference(locked, plan) if locked else ""


def check_locks(plans: list[plans.Plan], configs: Path, results: Path, every: bool) -> None:
    """Raises UserError at the first lock that differs; of `every` plan also where the table of members does."""
    if stale := next((plan for plan in plans if not plan.locked(configs)), None):
        path, why = stale.lock_path(configs), difference_from_tree(stale, configs, results)
        raise UserError(f"{path}: differs from the configs{f' ({why})' if why else ''}; run `make locks` and commit it")
    if every and members_text(plans) != members_text_at(configs):
        raise UserError(f"{members_path(configs)}: differs from the plans; run `make locks` and commit it")


def write_locks(plans: list[plans.Plan], configs: Path, every: bool) -> Iterator[Path]:
    """Write the locks of plans that differ, and of `every` plan the table of members; gives each path that was written."""
    yield from (plan.lock_path(configs) for plan in plans if plan.write_lock(configs))
    if every and write_members(plans, configs):
        yield members_path(configs)


# -- which studies use which member ------------------------------------------------------------------------------------------
# Which committed studies use which member: `configs/plans/members.json`, written with the locks. A member is a kind, or a
# spec that its `name` chooses (task family, curation step, loss, sampler, ...); it is called `<key>: <name>`, as in
# `loss: clipped`.


def members_of(spec: Model) -> Iterator[str]:
    """`<key>: <name>` of each spec within a spec whose `name` chooses it."""
    for key in type(spec).model_fields:
        for inner in _models(getattr(spec, key)):
            field = type(inner).model_fields.get("name")
            if field is not None and get_origin(field.annotation) is Literal:
                yield f"{key}: {getattr(inner, 'name', '')}"
            yield from members_of(inner)


def members_of_plan(plan: plans.Plan) -> set[str]:
    """The members that the stages of a plan use, their kinds included."""
    used = {f"kind: {stage.kind}" for stage in plan.stages.values()}
    return used.union(*(members_of(stage.spec) for stage in plan.stages.values()))


def members_path(configs: Path) -> Path:
    """Where the committed table lies."""
    return configs / "plans" / "members.json"


def members_text_at(configs: Path) -> str:
    """The committed table's text; empty where none is committed."""
    path = members_path(configs)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def read_members(configs: Path) -> dict[str, list[str]]:
    """Member -> the studies whose committed plans use it; empty where no table is committed."""
    return json.loads(members_text_at(configs) or "{}")


def members_text(plans: Iterable[plans.Plan]) -> str:
    """The table of all plans, one member a line."""
    users: dict[str, set[str]] = {}
    for plan in plans:
        for member in members_of_plan(plan):
            users.setdefault(member, set()).add(plan.study)
    lines = [f"{json.dumps(member)}: {json.dumps(sorted(users[member]))}" for member in sorted(users)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_members(plans: Iterable[plans.Plan], configs: Path) -> bool:
    """Write the table of all plans when it differs; returns whether it did."""
    text = members_text(plans)
    if text == members_text_at(configs):
        return False
    artifact.write_atomic(members_path(configs), text.encode())
    return True


def unexercised(plan: plans.Plan, configs: Path) -> list[str]:
    """The members of a plan that no committed study uses, so that nothing is known of them but their tests; none where no
    table is committed."""
    known = read_members(configs)
    return sorted(members_of_plan(plan) - set(known)) if known else []


def _models(value: Any) -> Iterator[Model]:
    if isinstance(value, Model):
        yield value
    elif isinstance(value, dict):
        yield from (inner for item in value.values() for inner in _models(item))
    elif isinstance(value, list | tuple):
        yield from (inner for item in value for inner in _models(item))
