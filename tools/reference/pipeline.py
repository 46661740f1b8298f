"""`dvc.yaml`: a stage for the tables of each study whose scores are committed, by its short name, and what DVC shows of it."""

import csv
from collections import Counter
from pathlib import Path

from interplay.study import choices, expand
from tools.reference import lists

SCALE = "${defaults[1].scale}"
"""Of configs/config.yaml, as dvc.yaml says it."""


def text(root: Path) -> str:
    """The file, of the studies below `root`."""
    dvc, found = lists.TEXTS["dvc"], stages(root)
    plots = [_filled(dvc["plot"], name, *of) + _curves(root, name, *of) for name, of in found.items()]
    return "".join([dvc["head"], *(_filled(dvc["study"], name, *of) for name, of in found.items()), dvc["plots"], *plots])


def stages(root: Path) -> dict[str, tuple[str, str]]:
    """Name of a stage -> study and scale (empty: that of configs/config.yaml). The name is the study's last part, with its folder
    before that where another study ends in the same."""
    ends = Counter(study.split("/")[-1] for study in expand.studies(root / "configs"))
    return {
        (end if ends[end := one.study.split("/")[-1]] == 1 else one.study.replace("/", "_")): (one.study, one.scale)
        for one in lists.scores(root)
    }


def _filled(template: str, name: str, study: str, scale: str) -> str:
    made = template.replace("STUDY", study).replace("FLAT", study.replace("/", ".")).replace("SCALE", scale or SCALE)
    return made.replace("NAME", name)


def _curves(root: Path, name: str, study: str, scale: str) -> str:
    """A plot of the curves that were committed, which has to name their columns."""
    flat = f"{study.replace('/', '.')}.{scale or choices.chosen(root / 'configs', {})[1]}"
    path = root / "docs" / "results" / "tables" / flat / "curves.csv"
    columns = next(csv.reader(path.read_text().splitlines()))[1:] if path.exists() else []
    listed = ", ".join(f"'{column}'" for column in columns)
    return _filled(lists.TEXTS["dvc"]["curves"].replace("COLUMNS", listed), name, study, scale) if columns else ""
