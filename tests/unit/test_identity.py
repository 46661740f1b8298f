"""Law 1: the spec is hashed, the run block never; what has no canonical form is refused."""

import json
from pathlib import Path
from typing import Annotated

import pytest
from specs import DEPS, SPECS

from interplay.core.digest import canonical_json, digest, versions
from interplay.core.model import Model, Since
from interplay.kinds.table import KINDS

GOLDEN = {
    "source": "43dd8b1fa992",
    "custom": "2a5f7c1afedf",
    "problems": "33b1cdda8cb2",
    "dataset": "f87eb9a3f666",
    "curate": "1f8913e63897",
    "tokenizer": "df4709d11f07",
    "corpus": "920904e94548",
    "pretrain": "e0070e8626b2",
    "midtrain": "3a11baf6dcf9",
    "sft": "6bc10ed2af3e",
    "rl": "9890592e4e26",
    "teach": "1e70ad55a8b9",
    "prefer": "872e4294db80",
    "unlearn": "53273f6fa63e",
    "reward_model": "730141a29115",
    "evaluate": "956a5336619c",
    "select": "ea09631f9408",
    "report": "b51e27c4e874",
}
"""Pinned by hand. They change only when a default, a field without `Since` or a version changes; then say so in docs/log.md."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_golden_digest_of_each_kind_holds(kind: str) -> None:
    spec = KINDS[kind].spec.model_validate(SPECS[kind][0])
    assert digest(kind, spec, DEPS.get(kind, {})) == GOLDEN[kind]


def test_equal_meanings_have_equal_json_and_order_of_keys_means_nothing() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None, True]}) == '{"a":[1.5,null,true],"b":1}'
    assert canonical_json({"a": [1.5, None, True], "b": 1}) == canonical_json({"b": 1, "a": [1.5, None, True]})


@pytest.mark.parametrize("value", [object(), float("nan"), float("inf"), {1.5: 2}, {"a": {3, 4}}, Path("x"), b"bytes"])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="no canonical form"):
        canonical_json(value)


def test_a_raised_version_of_a_part_changes_only_who_uses_it() -> None:
    class Part(Model):
        VERSION = 1
        name: str = "part"

    class Raised(Part):
        VERSION = 2

    class Whole(Model):
        part: Part

    class Other(Model):
        number: int = 1

    assert versions(Whole(part=Part())) == {"": 1, "part": 1}
    assert digest("k", Whole(part=Part()), {}) != digest("k", Whole(part=Raised()), {})
    assert digest("k", Other(), {}) == digest("k", Other(), {})


def test_the_lock_holds_one_stage_a_line(tmp_path: Path) -> None:
    from conftest import ROOT

    from interplay.study.expand import plan_study

    plan = plan_study(ROOT / "configs", "quickstart", "smoke")
    lines = plan.lock().splitlines()
    assert len(lines) == len(plan.stages) + 2
    assert json.loads(plan.lock())["report"] == plan.report
    assert {json.loads(line.rstrip(",")) for line in lines[1:-1]} == {stage.line() for stage in plan.stages.values()}


def test_a_field_that_joined_later_leaves_old_digests_alone_until_it_is_used() -> None:
    class Old(Model):
        name: str = "old"

    class Part(Model):
        weight: float = 0.5

    class New(Model):
        name: str = "old"
        extra: Annotated[int, Since(0)] = 0
        part: Annotated[Part | None, Since(None)] = None
        """As any addition: what older specs did stands in `Since`, whatever the default is today."""

    assert digest("k", New(), {}) == digest("k", Old(), {})
    assert versions(New()) == versions(Old())
    found = {digest("k", New(**given), {}) for given in ({"extra": 1}, {"part": Part()}, {"part": Part(weight=0.1)})}
    assert len(found | {digest("k", Old(), {})}) == 4
