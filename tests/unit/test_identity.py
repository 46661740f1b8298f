"""Law 1: the spec is hashed, the run block never; what has no canonical form is refused."""

import json
from pathlib import Path
from typing import Annotated

import pytest

from interplay.schema.base import Model, Since
from interplay.schema.digest import canonical_json, digest, versions
from interplay.schema.evaluate import EvaluateSpec
from interplay.schema.run import Run
from interplay.schema.task import OpDag
from interplay.study.plan import Stage


def test_golden_digests_hold() -> None:
    """These change only when a default, a field or a version changes; then say so in docs/log.md."""
    assert digest("evaluate", EvaluateSpec(), {"model": "a" * 12, "data": "b" * 12}) == GOLDEN_EVALUATE
    assert digest("tokenizer", OpDag(), {}) == GOLDEN_TASK


GOLDEN_EVALUATE = "0d60b11f9b05"
GOLDEN_TASK = "3524e736375d"


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


def test_no_field_of_the_run_block_enters_the_digest() -> None:
    plain = Stage.make("evaluate", EvaluateSpec(), {}, Run(), "a")
    changed = {
        "threads": 7, "memory_mb": 1, "runtime": 1, "gpus": 2, "micro_batch_tokens": 64, "engine_batch": 2, "save_minutes": 9.0,
        "path": "elsewhere", "keep_state": False,
    }  # fmt: skip
    assert set(changed) == set(Run.model_fields)
    for name, value in changed.items():
        assert Stage.make("evaluate", EvaluateSpec(), {}, Run(**{name: value}), "b").digest == plain.digest


def test_every_field_of_a_spec_enters_the_digest() -> None:
    plain = digest("evaluate", EvaluateSpec(), {})
    changed = {
        "num_samples": 4, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "max_completion_length": 8, "engine": "hf",
        "dtype": "bfloat16", "verify": {"operator": True}, "seed": 1, "first_sample": 32,
    }  # fmt: skip
    assert set(changed) == set(EvaluateSpec.model_fields)
    found = {digest("evaluate", EvaluateSpec(**{name: value}), {}) for name, value in changed.items()}
    assert len(found | {plain}) == len(changed) + 1


def test_the_lock_holds_one_stage_a_line(tmp_path: Path) -> None:
    from conftest import ROOT

    from interplay.study.graph import plan_study

    plan = plan_study(ROOT / "configs", "quickstart", "smoke")
    lines = plan.lock().splitlines()
    assert len(lines) == len(plan.stages) + 2
    assert json.loads(plan.lock())["report"] == plan.report
    assert all(json.loads(line.rstrip(","))["digest"] for line in lines[1:-1])


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
