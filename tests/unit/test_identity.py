"""Law 1: the spec is hashed, the run block never; what has no canonical form is refused."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import pytest
from conftest import ROOT
from hypothesis import given, strategies as st
from specs import DEPS, SPECS

from interplay.core.digest import Known, canonical_json, digest, hashed, versions
from interplay.core.execution import Run
from interplay.core.model import Model, Since, UserError
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.table import KINDS
from interplay.results.locks import read_lock
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage, parse_lock

CONFIGS = ROOT / "configs"
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
    "generate": "07a0f3b5f954",
    "calibrate": "7c01f1d4d18e",
    "audit": "be283a5f6711",
    "report": "cdd509c98ad2",
}
"""Pinned by hand. They change only when a default, a field without `Since` or a version changes; then say so in docs/log.md."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_golden_digest_of_each_kind_holds(kind: str) -> None:
    spec = KINDS[kind].spec.model_validate(SPECS[kind][0])
    assert digest(kind, spec, DEPS.get(kind, {})) == GOLDEN[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_digest_is_the_hash_of_kind_versions_spec_and_dependencies(kind: str) -> None:
    """Also of a part that a spec shares with an earlier one, and where only the dependencies differ."""
    known: Known = {}
    for keys in SPECS[kind]:
        spec = KINDS[kind].spec.model_validate(keys)
        for one in (spec, spec.model_copy(), spec):
            for deps in (DEPS.get(kind, {}), {"init": "0123456789ab@7"}):
                text = canonical_json([kind, versions(one), hashed(one), deps])
                assert digest(kind, one, deps, known) == digest(kind, one, deps) == sha256(text.encode()).hexdigest()[:12]


@given(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text())
def test_a_plain_value_is_hashed_as_json(value: object) -> None:
    class Spec(Model):
        options: Any = 0

    text = json.dumps(["rl", {"": 1}, {"options": value}, {}], sort_keys=True, separators=(",", ":"))
    assert digest("rl", Spec(options=value), {}) == sha256(text.encode()).hexdigest()[:12]


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


@pytest.mark.parametrize(("study", "scale"), [("quickstart", "smoke"), ("edge_bases", "laptop"), ("methods/unlearn", "smoke")])
def test_the_lock_holds_one_stage_a_line_and_all_of_it_but_specs(study: str, scale: str) -> None:
    planned = plan_study(CONFIGS, study, scale)
    read = parse_lock(json.loads(planned.lock()))
    assert read == (study, scale, planned.report, _brief(planned.stages))
    lines = [line.strip('",').split(" ")[0] for line in planned.lock().splitlines()]
    assert [line for line in lines if line in planned.stages] == list(read.stages)


def _stage(digest: str, label: str, **deps: str) -> Stage:
    return Stage("rl", Model(), {role.replace("_", "."): ref for role, ref in deps.items()}, Run(), label, digest)


def _brief(stages: Mapping[str, Stage]) -> dict[str, dict[str, Any]]:
    return {one.digest: {key: getattr(one, key) for key in ("digest", "kind", "label", "deps")} for one in stages.values()}


def test_a_lock_keeps_checkpoints_similar_digests_and_labels_that_begin_alike() -> None:
    digests = [f"{number:012x}" for number in (0xABC000000000, 0xABC000000001, 0xABC100000000, 7, 8)]
    one, two, three, four, five = digests
    stages = [
        _stage(one, "a/rl@0"),
        _stage(two, "a/rl@0", init=f"{one}@40"),
        _stage(three, "a/rl@1", init=f"{two}"),
        _stage(four, "a[x=u//v/]/rl", data_0=three, init=one),
        _stage(five, "a[x=u//v/]/rl/", **dict(zip((one, two, four), (one, two, four), strict=True))),
    ]
    by_digest = {stage.digest: stage for stage in stages}
    plan = Plan("toy", "smoke", by_digest, five)
    assert parse_lock(json.loads(plan.lock())) == ("toy", "smoke", five, _brief(by_digest))


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("23b39278fff4 9fc,", "23b39278fff4 8fc,", "evaluate data,model: '23b39278fff4 8fc,"),
        ("7cbe765b5518 bbd,061", "7cbe765b5518 bbd", "rl data.0,init: '7cbe765b5518 bbd "),
        ("0619a0e5ffbd 092,cb3,01b base/base@0", "0619a0e5ffbd", "pretrain corpus,tokenizer,validation: '0619a0e5ffbd'"),
        ('"study"', '"studies"', "'study'"),
        ("}}", "}", "Expecting"),
    ],
)
def test_a_corrupt_lock_is_an_error_of_one_line_with_its_place_and_remedy(tmp_path: Path, old: str, new: str, place: str) -> None:
    committed = (CONFIGS / "plans/quickstart.smoke.lock.json").read_text()
    assert old in committed
    path = tmp_path / "quickstart.smoke.lock.json"
    path.write_text(committed.replace(old, new))
    with pytest.raises(UserError) as error:
        read_lock(path)
    assert str(error.value).startswith(f"{path}: not a lock: ")
    assert place in str(error.value)
    assert "plan STUDY --scale SCALE --write" in str(error.value)
    assert "\n" not in str(error.value)


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


def test_a_changed_arithmetic_is_a_new_version_of_its_users_alone() -> None:
    for kind in ("pretrain", "sft", "prefer", "rl"):
        exact, integer = (KINDS[kind].spec.model_validate({**SPECS[kind][0], "dtype": dtype}) for dtype in ("float32", "int8"))
        assert versions(exact)[""] == exact.VERSION
        assert versions(integer) == versions(exact) | {"": exact.VERSION + 2}
    assert versions(EvaluateSpec(dtype="bfloat16"))[""] == EvaluateSpec.VERSION
    assert versions(EvaluateSpec(dtype="int8"))[""] == EvaluateSpec.VERSION + 2
