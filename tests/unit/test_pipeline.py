"""`dvc.yaml`: generated, and complete."""

import difflib
import hashlib
from pathlib import Path

from conftest import ROOT, copy_configs
from ruamel.yaml import YAML

from interplay.study import choices, plan as plan_module
from tools.reference import pipeline


def test_dvc_yaml_is_what_the_list_of_scores_says() -> None:
    written, made = (ROOT / "dvc.yaml").read_text().splitlines(), pipeline.text(ROOT).splitlines()
    diff = "\n".join(difflib.unified_diff(written, made, "dvc.yaml", "the list", lineterm="", n=0))
    assert not diff, f"run `make docs` and commit it:\n{diff}"


def test_the_scores_of_every_listed_study_are_committed_and_small() -> None:
    default = choices.chosen(ROOT / "configs", {})[1]
    listed = {plan_module.flat_name(study, scale or default) for study, scale in pipeline.stages(ROOT).values()}
    files = list((ROOT / "data/scores").glob("*.parquet"))
    assert {file.stem for file in files} == listed
    assert sum(file.stat().st_size for file in files) < 4 << 20


def test_what_dvc_certifies_is_what_is_committed_so_that_the_status_of_a_clone_is_clean() -> None:
    """`dvc status` compares these checksums; running it in a clone is a test of its own."""
    made = YAML(typ="safe").load((ROOT / "dvc.lock").read_text())["stages"]
    assert set(made) == set(pipeline.stages(ROOT))
    for name, stage in made.items():
        files = {one["path"]: one["md5"] for one in [*stage["deps"], *stage["outs"]] if not one["md5"].endswith(".dir")}
        for path, md5 in files.items():
            found = hashlib.md5((ROOT / path).read_bytes()).hexdigest()
            assert found == md5, f"{path} changed: run `dvc repro {name}` and commit it with dvc.lock"


def test_what_is_built_by_default_has_a_stage_at_the_default_scale() -> None:
    built, scale = choices.chosen(ROOT / "configs", {})
    assert {(study, "") for study in built} <= set(pipeline.stages(ROOT).values())
    defaults = YAML(typ="safe").load((ROOT / "configs/config.yaml").read_text())["defaults"]
    assert defaults[1]["scale"] == scale, "dvc.yaml reads the scale from ${defaults[1].scale}"


def test_names_are_short_and_distinguish_studies(tmp_path: Path) -> None:
    copy_configs(tmp_path)
    (tmp_path / "docs/data").mkdir(parents=True)
    (tmp_path / "docs/data/scores.yaml").write_text("[{study: interplay/extrapolation}, {study: cog_drift/ladder, scale: smoke}]")
    assert pipeline.stages(tmp_path) == {
        "extrapolation": ("interplay/extrapolation", ""),
        "cog_drift_ladder": ("cog_drift/ladder", "smoke"),  # there is a study `ladder`, too
    }
    assert "store rebuild cog_drift/ladder --scale smoke" in pipeline.text(tmp_path)
