"""`dvc.yaml`: one stage for the tables of each study that `docs/papers.md` places, by the study's short name."""

from collections import Counter
from pathlib import Path

from interplay.study import expand
from tools.reference import lists


def text(root: Path) -> str:
    """The file, of the studies below `root`."""
    names, dvc = stages(root), lists.TEXTS["dvc"]
    listed = "".join(f"      {name}: {study}\n" for name, study in names.items())
    return dvc["head"] + listed + dvc["plan"] + "".join(_stage(name, study) for name, study in names.items())


def stages(root: Path) -> dict[str, str]:
    """Name of a stage -> study: its last part, and its folder before that where another study ends in the same."""
    ends = Counter(study.split("/")[-1] for study in expand.studies(root / "configs"))
    studies = dict.fromkeys(paper.study for paper in lists.papers(root))
    return {(end if ends[end := study.split("/")[-1]] == 1 else study.replace("/", "_")): study for study in studies}


def _stage(name: str, study: str) -> str:
    return lists.TEXTS["dvc"]["study"].replace("NAME", name).replace("STUDY", study).replace("FLAT", study.replace("/", "."))
