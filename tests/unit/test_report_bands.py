"""The order of bands in a report."""

from types import SimpleNamespace
from typing import cast

import pandas as pd

from interplay.report.stats import frame


def test_bands_stand_by_their_ops_and_those_of_files_which_have_none_planned_first() -> None:
    prompts = {"a": pd.DataFrame({"band": ["edge", "id"], "op": [7, 2]}), "b": pd.DataFrame({"band": ["gsm8k"], "op": [0]})}
    spec = SimpleNamespace(bands={"edge": [7, 8], "id": [2, 3], "gsm8k": []})
    results = cast(frame.Results, SimpleNamespace(prompts=prompts, spec=spec))
    assert frame.bands(results) == ["gsm8k", "id", "edge"]
