"""Which committed studies use which member: `configs/plans/members.json`, written with the locks. A member is a kind, or a
spec that its `name` chooses (task family, curation step, loss, sampler, ...); it is called `<key>: <name>`, as in
`loss: clipped`."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_origin

from interplay.core import artifact
from interplay.core.model import Model
from interplay.study.plan import Plan


def members_of(spec: Model) -> Iterator[str]:
    """`<key>: <name>` of each spec within a spec whose `name` chooses it."""
    for key in type(spec).model_fields:
        for inner in _models(getattr(spec, key)):
            field = type(inner).model_fields.get("name")
            if field is not None and get_origin(field.annotation) is Literal:
                yield f"{key}: {getattr(inner, 'name', '')}"
            yield from members_of(inner)


def members_of_plan(plan: Plan) -> set[str]:
    """The members that the stages of a plan use, their kinds included."""
    used = {f"kind: {stage.kind}" for stage in plan.stages.values()}
    return used.union(*(members_of(stage.spec) for stage in plan.stages.values()))


def table_path(configs: Path) -> Path:
    """Where the committed table lies."""
    return configs / "plans" / "members.json"


def table_text_at(configs: Path) -> str:
    """The committed table's text; empty where none is committed."""
    path = table_path(configs)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def read_table(configs: Path) -> dict[str, list[str]]:
    """Member -> the studies whose committed plans use it; empty where no table is committed."""
    return json.loads(table_text_at(configs) or "{}")


def table_text(plans: Iterable[Plan]) -> str:
    """The table of all plans, one member a line."""
    users: dict[str, set[str]] = {}
    for plan in plans:
        for member in members_of_plan(plan):
            users.setdefault(member, set()).add(plan.study)
    lines = [f"{json.dumps(member)}: {json.dumps(sorted(users[member]))}" for member in sorted(users)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_table(plans: Iterable[Plan], configs: Path) -> bool:
    """Write the table of all plans when it differs; returns whether it did."""
    text = table_text(plans)
    if text == table_text_at(configs):
        return False
    artifact.write_atomic(table_path(configs), text.encode())
    return True


def unexercised(plan: Plan, configs: Path) -> list[str]:
    """The members of a plan that no committed study uses, so that nothing is known of them but their tests; none where no
    table is committed."""
    known = read_table(configs)
    return sorted(members_of_plan(plan) - set(known)) if known else []


def _models(value: Any) -> Iterator[Model]:
    if isinstance(value, Model):
        yield value
    elif isinstance(value, dict):
        yield from (inner for item in value.values() for inner in _models(item))
    elif isinstance(value, list | tuple):
        yield from (inner for item in value for inner in _models(item))
