"""RL at smoke scale is paid, so that tests of kills, resumes and determinism on its stages are about training."""

from pathlib import Path

import pytest
import rl_steps
from conftest import ROOT, Laboratory

from interplay.core import artifact
from interplay.run.stage import run_stage
from interplay.study.expand import plan_study

QUICKSTART = "configs/study/quickstart.yaml"
pytestmark = pytest.mark.workflow


def test_rl_of_the_quickstart_takes_steps_and_each_arm_ends_with_weights_of_its_own(finished: Laboratory) -> None:
    plan = plan_study(ROOT / "configs", "quickstart", "smoke")
    assert [rl_steps.arm(stage) for stage in rl_stages_by_name(plan)] == ["rl_edge", "rl_hard"]
    rl_steps.check("quickstart", plan, finished.folder / "results")


@pytest.mark.parametrize("method", ["dr_grpo", "gspo"])
def test_two_methods_on_the_same_data_end_with_different_weights(finished: Laboratory, tmp_path: Path, method: str) -> None:
    results = finished.folder / "results"
    laboratory = Laboratory(tmp_path / method)
    grpo = rl_stages_by_name(plan_study(laboratory.folder / "configs", "quickstart", "smoke"))[0]
    laboratory.edit(QUICKSTART, "/method@stages.rl.method: grpo", f"/method@stages.rl.method: {method}")
    other = rl_stages_by_name(plan_study(laboratory.folder / "configs", "quickstart", "smoke"))[0]
    assert other.deps == grpo.deps
    out = artifact.folder(results, other.kind, other.digest)
    artifact.write_json(out / "stage.json", other.as_json())
    run_stage(out)
    assert rl_steps.optimizer_steps(results, other) > 0
    ends = {rl_steps.weights(results, reference) for reference in (grpo.digest, other.digest, grpo.deps["init"])}
    assert len(ends) == 3


def rl_stages_by_name(plan: rl_steps.Plan) -> list[rl_steps.Stage]:
    return sorted(rl_steps.rl_stages(plan), key=rl_steps.arm)
