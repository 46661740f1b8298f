"""`dvc.yaml`: generated, and complete."""

import difflib
from pathlib import Path

from conftest import ROOT
from ruamel.yaml import YAML

from interplay.study import expand
from tools.reference import pipeline


def test_dvc_yaml_is_what_the_list_of_papers_says() -> None:
    written, made = (ROOT / "dvc.yaml").read_text().splitlines(), pipeline.text(ROOT).splitlines()
    diff = "\n".join(difflib.unified_diff(written, made, "dvc.yaml", "the papers", lineterm="", n=0))
    assert not diff, f"run `make docs` and commit it:\n{diff}"


def test_every_study_of_the_central_paper_and_every_one_with_results_has_a_stage() -> None:
    made = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())
    studies = made["vars"][1]["tables"]
    wanted = {study for study in expand.studies(ROOT / "configs") if study.startswith("interplay/")}
    assert wanted <= set(studies.values())
    flat = {study.replace("/", ".") for study in studies.values()}
    assert {path.name.rsplit(".", 2)[0] for path in (ROOT / "docs/results").glob("*.json")} <= flat
    assert list(made["stages"]) == ["plan", *studies]
    for name, study in studies.items():
        assert f"study={study} " in made["stages"][name]["cmd"]


def test_what_is_built_by_default_has_a_stage_at_the_default_scale() -> None:
    made = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())
    built, scale = expand.chosen(ROOT / "configs", {})
    assert set(built) <= set(made["vars"][1]["tables"].values())
    defaults = YAML(typ="safe").load((ROOT / "configs/config.yaml").read_text())["defaults"]
    assert defaults[1]["scale"] == scale, "dvc.yaml reads the scale from ${defaults[1].scale}"


def test_names_are_short_and_distinguish_studies(tmp_path: Path) -> None:
    names = pipeline.stages(ROOT)
    assert names["extrapolation"] == "interplay/extrapolation"
    assert names["cog_drift_ladder"] == "cog_drift/ladder"  # there is a study `ladder`, too
    assert len(set(names.values())) == len(names)
