"""The table of which studies use which member, and the members of a plan that none uses."""

import json
from pathlib import Path

from conftest import ROOT

from interplay.core.execution import Run
from interplay.kinds.table import KINDS
from interplay.results import locks
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage


def plan_of(study: str, **method: object) -> Plan:
    """A plan of one stage of RL."""
    base = next(stage for stage in plan_study(ROOT / "configs", "edge", "smoke").stages.values() if stage.kind == "rl")
    spec = base.spec.model_copy(update={"method": base.spec.method.model_validate(method)})  # type: ignore[attr-defined]
    stage = Stage.make("rl", spec, base.deps, Run(), "rl")
    return Plan(study, "smoke", {stage.digest: stage})


def test_members_are_named_by_their_key_and_their_name() -> None:
    plan = plan_of("toy", paper="p", loss={"name": "sapo"}, edits=[{"name": "dynamic_sampling"}, {"name": "top_entropy"}])
    assert {"kind: rl", "loss: sapo", "edits: dynamic_sampling", "edits: top_entropy"} <= locks.members_of_plan(plan)


def test_a_member_that_no_committed_study_uses_is_named_until_one_does(tmp_path: Path) -> None:
    known, new = plan_of("toy", paper="p"), plan_of("new", paper="p", loss={"name": "sapo"})
    assert locks.unexercised(new, tmp_path) == []  # without a table nothing is known
    assert locks.write_members([known], tmp_path)
    assert locks.unexercised(known, tmp_path) == []
    assert locks.unexercised(new, tmp_path) == ["loss: sapo"]
    assert locks.write_members([new, known], tmp_path)
    assert locks.read_members(tmp_path)["loss: sapo"] == ["new"]
    assert locks.read_members(tmp_path)["kind: rl"] == ["new", "toy"]
    assert not locks.write_members([known, new], tmp_path)
    assert locks.unexercised(new, tmp_path) == []


def test_the_committed_table_has_the_members_of_a_study() -> None:
    table = locks.read_members(ROOT / "configs")
    for member in locks.members_of_plan(plan_study(ROOT / "configs", "curricula/showdown", "smoke")):
        assert "curricula/showdown" in table[member], "run `make locks` and commit configs/plans/members.json"
    assert {name.removeprefix("kind: ") for name in table if name.startswith("kind: ")} <= set(KINDS)
    assert list(table) == sorted(table) == sorted(json.loads(locks.members_path(ROOT / "configs").read_text()))
