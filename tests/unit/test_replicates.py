"""`replicates: N`: so many bases, each with all arms on it."""

from pathlib import Path

import pytest
from lab import SCALE, Lab

from interplay.core.model import UserError
from interplay.study.expand import plan_study

SEEDS = "seeds: {values: [0, 1, 2], vary: [mid, gold, rl]}"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_replicates_are_bases_with_one_seed_of_every_later_stage(lab: Lab) -> None:
    lab.edit("study/edge.yaml", SEEDS, "seeds: {values: [0, 1, 2], vary: [base, mid, gold, rl]}")
    spelt = lab.plan("edge")
    lab.edit("study/edge.yaml", "seeds: {values: [0, 1, 2], vary: [base, mid, gold, rl]}", "replicates: 3")
    assert lab.plan("edge").lock() == spelt.lock()


def test_a_scale_may_have_other_replicates_and_the_command_line_others_still(lab: Lab) -> None:
    lab.edit("study/edge.yaml", SEEDS, "replicates: 3\nscales: {smoke: {replicates: 2}}")

    def bases(*given: str) -> int:
        stages = plan_study(lab.configs, "edge", SCALE, given).stages.values()
        return len([stage for stage in stages if stage.kind == "pretrain"])

    assert [bases(), bases("replicates=4"), bases("seeds.values=[0,1,2,3,4]")] == [2, 4, 5]


@pytest.mark.parametrize(
    ("written", "said"), [(f"replicates: 2\n{SEEDS}", "replicates and seeds both say"), ("replicates: 0", "equal to 1")]
)
def test_two_spellings_and_no_replicates_are_refused(lab: Lab, written: str, said: str) -> None:
    lab.edit("study/edge.yaml", SEEDS, written)
    with pytest.raises(UserError, match=said):
        lab.plan("edge")
