"""`interplay rollouts`: which completions are shown."""

from pathlib import Path

import pandas as pd
import pytest

from interplay.core.artifact import write_json
from interplay.core.model import UserError
from interplay.report.inspect.stage_view import show_rollouts


def rollouts(root: Path, rows: list[tuple[int, int, str, bool]], name: str = "rollouts.parquet") -> Path:
    """An artifact with (step, problem, completion, strictly right)."""
    out = root / "rl" / ("a" * 12)
    out.mkdir(parents=True)
    table = pd.DataFrame(rows, columns=["step", "index", "completion", "strict"])
    table["error"] = table["strict"].map({True: "none", False: "value"})
    (table if name == "rollouts.parquet" else table.drop(columns="step")).to_parquet(out / name)
    write_json(out / "stage.json", {"deps": {}})
    return out


STEPS = [(1, 5, "a=1", False), (1, 6, "a=2", True), (2, 5, "a=3", False), (2, 5, "a=3", False), (2, 7, "a=4", False)]


def test_a_step_can_be_chosen_and_without_one_the_last_are_shown(tmp_path: Path) -> None:
    out = rollouts(tmp_path, STEPS)
    assert "a=1" in show_rollouts(out, None, 10, step=1)
    assert "a=4" not in show_rollouts(out, None, 10, step=1)
    assert "a=1" not in show_rollouts(out, None, 1)
    assert "a=4" in show_rollouts(out, None, 1)


def test_the_same_completion_of_a_prompt_stands_once_with_its_number(tmp_path: Path) -> None:
    said = show_rollouts(rollouts(tmp_path, STEPS), None, 2)
    assert said.count("a=3") == 1
    assert "problem 5, step 2, strict False, error value, 2 times the same\n" in said
    assert "problem 7, step 2, strict False, error value\n" in said, "two are shown though three were drawn"


def test_where_none_matches_that_is_said(tmp_path: Path) -> None:
    out = rollouts(tmp_path, STEPS)
    assert show_rollouts(out, False, 10, step=2) == "none of 3 kept completions passed at step 2\n"
    assert show_rollouts(rollouts(tmp_path / "b", STEPS[1:2]), True, 10) == "none of 1 kept completions failed\n"


def test_a_step_that_is_not_kept_or_that_an_evaluation_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--step = 9: .* it has 2 steps, 1 to 2"):
        show_rollouts(rollouts(tmp_path, STEPS), None, 10, step=9)
    with pytest.raises(UserError, match="has no steps; leave it out"):
        show_rollouts(rollouts(tmp_path / "b", STEPS, "samples.parquet"), None, 10, step=1)


def test_completions_of_one_class_of_errors_can_be_chosen(tmp_path: Path) -> None:
    out = rollouts(tmp_path, STEPS)
    table = pd.read_parquet(out / "rollouts.parquet").assign(error=["value", "none", "value", "missing_node", "missing_node"])
    table.to_parquet(out / "rollouts.parquet")
    assert "a=4" in show_rollouts(out, None, 10, error="missing_node")
    assert "a=1" not in show_rollouts(out, None, 10, error="missing_node")
    with pytest.raises(UserError, match="--error = valu: no kept completion is of that class; did you mean 'value'"):
        show_rollouts(out, None, 10, error="valu")
