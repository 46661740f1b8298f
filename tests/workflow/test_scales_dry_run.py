"""The large scales, as far as a small machine can follow them: Snakemake plans every job of them and starts none."""

import pytest
from conftest import Laboratory

pytestmark = [pytest.mark.workflow, pytest.mark.slow]


@pytest.mark.parametrize("scale", ["gpu", "paper"])
@pytest.mark.parametrize("study", ["quickstart", "edge", "interplay/extrapolation"])
def test_a_dry_run_schedules_every_stage_and_leaves_nothing(study: str, scale: str, laboratory: Laboratory) -> None:
    result = laboratory.snakemake(f"study={study}", f"scale={scale}", flags=("-n",))
    assert result.returncode == 0, result.stderr + result.stdout
    text = result.stdout + result.stderr
    for kind in ("problems", "pretrain", "rl", "evaluate", "report"):
        assert kind in text
    assert laboratory.records() == {}
    assert not (laboratory.folder / "results" / "pretrain").exists()
