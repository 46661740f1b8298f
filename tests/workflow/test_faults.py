"""A result that one is glad to see is doubted first: planted faults change the verdict."""

import json
import shutil

import pytest
from conftest import ROOT, Laboratory


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    laboratory = Laboratory(tmp_path_factory.mktemp("faults"))
    for name in ("faults.yaml", "faults.py"):
        shutil.copy(ROOT / "tests/workflow/faults" / name, laboratory.folder / "configs/study")
    laboratory.make_stages("faults")
    claims = json.loads(next(laboratory.folder.glob("results/report/*/claims.json")).read_text())
    return {claim["says"]: claim["verdict"] for claim in claims}


def test_sound_training_supports_the_claim(verdicts: dict[str, str]) -> None:
    assert verdicts["sound"] == "supported"


@pytest.mark.parametrize("fault", ["rate_zero", "shuffled", "yes"])
def test_the_claim_falls_with(fault: str, verdicts: dict[str, str]) -> None:
    assert verdicts[fault] in ("refuted", "no information")
