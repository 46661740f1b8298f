"""Clean contrasts: an arm differs from its control in what it declares, and in nothing else.

Declared are its path, the keys that it sets or that its axes choose, and its `differs`. Stages of one path only are declared by
the path; the others are compared as they were planned, by name, with the task and the data that they name."""

from typing import Any

from interplay.schema.base import Model, UserError, shown
from interplay.schema.report import ReportArm
from interplay.schema.roles import corpora
from interplay.schema.stages import references
from interplay.schema.task import Task
from interplay.study.arms import Combination
from interplay.study.plan import Plan
from interplay.study.resolve import at

Resolved = dict[str, dict[str, Any]]
"""Stage name, or `task`, -> its keys with models, mappings and values as they were planned."""
FROM_DATA = ("mix", "seed", "candidates")
"""Keys of specs that the planner fills in."""


def resolved(
    plan: Plan, row: ReportArm, entries: dict[str, dict[str, Any]], task: Task | None, blocks: dict[str, list[str]]
) -> Resolved:
    """All that an arm consists of at one seed. `entries` are its stages in the study's words, with `set` and axes in place;
    `blocks` the further parts of evaluations."""
    digests = {**{stage.name: stage.digest for stage in row.path}, **row.evaluations}
    found: Resolved = {"task": {name: getattr(task, name) for name in type(task).model_fields}} if task else {}
    for name, digest in digests.items():
        stage = plan.stages[digest]
        spec = {field: getattr(stage.spec, field) for field in type(stage.spec).model_fields if field not in FROM_DATA}
        own = {"kind": stage.kind, **references(entries[name])}
        corpus = next((plan.stages[dep].spec for dep in corpora(stage.deps)), None)
        found[name] = {**spec, **own, "corpus": corpus, "seed": entries.get(name, {}).get("seed", 0)}
        if more := blocks.get(digest):
            found[name]["num_samples"] = sum(at(plan.stages[part].spec, ["num_samples"]) for part in (digest, *more))
    return found


def check(combinations: dict[str, Combination], arms: dict[str, Resolved], where: str) -> None:
    """Raises UserError at the first arm that differs from its control in more or less than it declares."""
    for name, made in combinations.items():
        if made.control is None:
            continue
        arm, control, other = arms[name], arms[made.control], combinations[made.control]
        keys = [key for stage in arm if stage in control for key in differing(arm[stage], control[stage], stage)]
        spot = f"{where}: arms.{made.group}"
        if not keys and made.path == other.path:
            raise UserError(f"{spot}.control = {made.control!r}: {name} does not differ from it; exclude it, or let it differ")
        declared = [part for one in (*made.set, *made.differs) for part in (one, *_follows(one))]
        for key in keys:
            if not any(key == one or key.startswith(f"{one}.") for one in declared):
                pair = f"{name} has {key} = {shown(_value(arm, key))} and its control {shown(_value(control, key))}"
                remedy = f"make them the same, or put {key} into set or differs"
                raise UserError(f"{spot}.control = {made.control!r}: {pair}, which it does not declare; {remedy}")
        _all_that_is_declared(made, other, arm, control, spot)


def _follows(key: str) -> list[str]:
    """What comes with a key: whoever names other problem sets names their shares, which the corpus carries."""
    stage, _, rest = key.partition(".")
    return [f"{stage}.corpus.mix"] if rest == "data" else []


def _all_that_is_declared(made: Combination, other: Combination, arm: Resolved, control: Resolved, spot: str) -> None:
    """What the arm sets, or says to differ in, differs. What the control sets as well may be the same, and so may an axis be: a
    grid passes through the control's own values; and what is set within a whole that is set, to bring it back to them."""
    within = [key for key in made.set if any(key.startswith(f"{whole}.") for whole in made.set)]
    set_here = [key for key in made.set if key not in (*made.axes, *made.worked_out, *within) and key not in other.set]
    for part, keys in (("set", set_here), ("differs", made.differs)):
        for key in keys:
            if _alike(arm, control, key):
                value = shown(_value(control, key))
                raise UserError(f"{spot}.{part}: {key}: its control '{made.control}' has {value} too; take it away, or change it")


def _alike(arm: Resolved, control: Resolved, key: str) -> bool:
    """Whether both arms have the stage, and the same value of the key."""
    stage, *keys = key.split(".")
    both = stage in arm and stage in control and keys[0] != "run"
    return both and not differing(at(arm[stage], keys), at(control[stage], keys), key)


def differing(one: Any, other: Any, path: str) -> list[str]:
    """Dotted keys below `path` at which two models, mappings or values differ; of two members of a union, the name alone."""
    if isinstance(one, Model) and isinstance(other, Model):
        if type(one) is not type(other):
            return [f"{path}.name"]
        fields = type(one).model_fields
        return (
            []
            if one == other
            else [key for name in fields for key in _below(getattr(one, name), getattr(other, name), path, name)]
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return [key for name in {**one, **other} for key in _below(one.get(name), other.get(name), path, name)]
    return [] if one == other else [path]


def _below(one: Any, other: Any, path: str, name: Any) -> list[str]:
    return [] if one is other else differing(one, other, f"{path}.{name}")


def _value(arm: Resolved, key: str) -> Any:
    value = at(arm, key.split("."))
    return {name: getattr(value, name) for name in type(value).model_fields} if isinstance(value, Model) else value
