"""Every study of the stages' interplay and of RL methods runs at smoke scale, through Snakemake, to its report. One laboratory serves
all, so that shared bases are made once: the studies of the interplay together take some ten minutes of two cores."""

import json

import pytest
import rl_steps
from conftest import ROOT, Laboratory

from interplay.core.metrics import without_extra
from interplay.study.expand import plan_study

FOLDERS = ("interplay", "methods")
pytestmark = [pytest.mark.workflow, pytest.mark.slow]
STUDIES = sorted(f"{path.parent.name}/{path.stem}" for path in ROOT.glob("configs/study/*/*.yaml") if path.parent.name in FOLDERS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    made = Laboratory(tmp_path_factory.mktemp("smoke"))
    (made.folder / "data").mkdir()
    (made.folder / "data/fixtures").symlink_to(ROOT / "data/fixtures")
    return made


@pytest.mark.parametrize("study", STUDIES)
def test_it_runs_to_its_report(study: str, shared: Laboratory) -> None:
    if study == "methods/rollout_engines" and (why := without_extra("vllm")):
        pytest.skip(f"{why}; tests/workflow/test_vllm_study.py runs it")
    result = shared.snakemake(f"study={study}", "scale=smoke")
    assert result.returncode == 0, result.stdout + result.stderr
    report = shared.folder / "results/by-name" / f"{study.replace('/', '.')}.smoke" / "report"
    assert (report / "report.html").stat().st_size > 20_000
    claims = json.loads((report / "claims.json").read_text())
    for claim in claims:  # one seed decides nothing, but arms, bands and records are all there
        assert claim["estimate"]["value"] is not None, claim
    rl_steps.check(study, plan_study(shared.folder / "configs", study, "smoke"), shared.folder / "results")
