"""`dvc.yaml`: one stage for the tables of each study that `docs/papers.md` places, by the study's short name."""

from collections import Counter
from pathlib import Path

from interplay.study import compose
from tools.reference import lists

HEAD = """\
# Made by `make docs`, a stage for each study that docs/papers.md places. Snakemake schedules, DVC stores and certifies: `dvc
# repro` brings all their tables up to date, `dvc repro extrapolation` those of one study. Snakemake makes what is missing and
# nothing else, so a stage costs seconds where all is there; where only results/studies is, it makes the report from the records
# kept there. Payloads are in results/<kind>.dvc, which Snakemake's main process keeps.

vars:
  - configs/config.yaml # the scale is set there and nowhere else
  - tables:
"""
PLAN = """
stages:
  plan: # `dvc repro plan` brings all locks up to date, `dvc repro plan@edge` one
    foreach: ${tables}
    do:
      cmd: interplay plan ${item} --write
      always_changed: true
      outs:
        - configs/plans/${item}.${defaults[1].scale}.lock.json: {cache: false, persist: true}
"""
STUDY = """
  NAME:
    cmd: snakemake all --profile "\\${SNAKEMAKE_PROFILE:-local}" --config study=STUDY scale=${defaults[1].scale}
    deps:
      - configs/plans/STUDY.${defaults[1].scale}.lock.json
    outs:
      - results/tables/FLAT.${defaults[1].scale}: {cache: false, persist: true}
"""


def text(root: Path) -> str:
    """The file, of the studies below `root`."""
    names = stages(root)
    listed = "".join(f"      {name}: {study}\n" for name, study in names.items())
    return HEAD + listed + PLAN + "".join(_stage(name, study) for name, study in names.items())


def stages(root: Path) -> dict[str, str]:
    """Name of a stage -> study: its last part, and its folder before that where another study ends in the same."""
    ends = Counter(study.split("/")[-1] for study in compose.studies(root / "configs"))
    studies = dict.fromkeys(paper.study for paper in lists.papers(root))
    return {(end if ends[end := study.split("/")[-1]] == 1 else study.replace("/", "_")): study for study in studies}


def _stage(name: str, study: str) -> str:
    return STUDY.replace("NAME", name).replace("STUDY", study).replace("FLAT", study.replace("/", "."))
