"""A result that one is glad to see is doubted first: planted faults change the verdict."""

import json
import shutil

from conftest import ROOT, Laboratory

FAULTS = {"rate_zero", "shuffled", "yes"}


def test_sound_training_supports_the_claim_and_each_planted_fault_does_not(laboratory: Laboratory) -> None:
    for name in ("faults.yaml", "faults.py"):
        shutil.copy(ROOT / "tests/workflow/faults" / name, laboratory.folder / "configs/study")
    laboratory.make_stages("faults")
    claims = json.loads(next(laboratory.folder.glob("results/report/*/claims.json")).read_text())
    verdicts = {claim["says"]: claim["verdict"] for claim in claims}
    assert verdicts.pop("sound") == "indicated", "seeds on one base"
    assert verdicts.keys() == FAULTS
    assert set(verdicts.values()) <= {"indicated against", "no information", "not tested"}, verdicts
