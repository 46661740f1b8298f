"""Interplay: what does each training stage of a reasoning language model contribute,
and how do the stages depend on each other?

`interplay.load("edge")` gives a study's results as tidy DataFrames, `interplay.judge("edge")` the verdicts of its claims."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from interplay.api.frames import Loaded


def load(
    study: str,
    scale: str | None = None,
    root: str | os.PathLike[str] = ".",
    configs: str | os.PathLike[str] = "configs",
    results: str | os.PathLike[str] = "results",
) -> Loaded:
    """Results of a study at a scale (default: that of configs/config.yaml), finished or not.

    `root` is the project's folder, `configs` and `results` lie below it. Raises UserError when there is no such study or it is
    not valid; what is not made yet is NaN with its state, never an error."""
    from interplay.api.frames import read  # pandas costs 0.5 s, which planning need not pay

    with _project_folder(root) as at:
        return read(study, scale, at / configs, at / results)


def judge(
    study: str,
    scale: str | None = None,
    root: str | os.PathLike[str] = ".",
    configs: str | os.PathLike[str] = "configs",
    results: str | os.PathLike[str] = "results",
) -> pd.DataFrame:
    """The claims of a study, judged from the records that are there: says, verdict, reason, arm, against, metric, value, low,
    high, over, replicates, needed (replicates at which the interval is below the margin) and powered (those with 80 % power).

    Arguments and errors as for `load`."""
    from interplay.api.frames import judge_claims

    with _project_folder(root) as at:
        return judge_claims(study, scale, at / configs, at / results)


@contextlib.contextmanager
def _project_folder(root: str | os.PathLike[str]) -> Iterator[Path]:
    """The project's folder as the working directory, from which a study names its data and models. Raises UserError where it is
    no folder."""
    from interplay.core.model import UserError

    at = Path(root).absolute()
    if not at.is_dir():
        raise UserError(f"root = '{root}': no such folder; name the project's, with configs/ in it")
    with contextlib.chdir(at):
        yield at
