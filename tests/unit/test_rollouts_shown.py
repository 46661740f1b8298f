"""`interplay rollouts`: which completions are shown."""

import json
from pathlib import Path

import pandas as pd
import pytest

from interplay.core.artifact import write_json
from interplay.core.model import UserError
from interplay.data.sets import Choice
from interplay.data.trajectory import Segment, Trajectory, write_trajectories
from interplay.report.inspect.stage_view import browse_rollouts, show_rollouts


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


def test_an_episode_is_shown_turn_by_turn_with_who_wrote_what(tmp_path: Path) -> None:
    out = tmp_path / "rl" / ("a" * 12)
    out.mkdir(parents=True)
    segments = (
        Segment("action", "calc(3+4)", 0, reward=0.0, tool="calc"),
        Segment("observation", "7\n", 0, tool="calc"),
        Segment("action", "\\boxed{7}", 1, reward=1.0),
    )
    write_trajectories(out / "rollouts.parquet", [Trajectory(segments, "3+4?", 1, 0, 5, strict=True, error="none")])
    write_json(out / "stage.json", {"deps": {}})
    assert show_rollouts(out, None, 1).splitlines() == [
        "problem 5, step 1, strict True, error none",
        "  prompt 3+4?",
        "  wrote  [reward 0] calc(3+4)",
        "         [calc gives] 7",
        "         [reward 1] \\boxed{7}",
    ]
    (row,) = browse_rollouts(out, Choice())["rows"]
    assert "".join(text for text, _ in row["wrote"]) == "[reward 0] calc(3+4)\n[calc gives] 7\n[reward 1] \\boxed{7}"


def test_what_a_reply_orders_is_written_out(tmp_path: Path) -> None:
    segments = Segment("action", "look", 0), Segment("observation", "\x1b[2J\u202egnp", 0), Segment("action", "\x9b", 1)
    write_trajectories(tmp_path / "rollouts.parquet", [Trajectory(segments, "\u2066?", 1, 0, 5, error="none")])
    write_json(tmp_path / "stage.json", {"deps": {}})
    (row,) = browse_rollouts(tmp_path, Choice())["rows"]
    assert row["prompt"] == "\\u2066?"
    assert "".join(text for text, _ in row["wrote"]) == "look\n[observation] \\x1b[2J\\u202egnp\n\\x9b"


def test_rollouts_of_another_trainer_are_shown(tmp_path: Path) -> None:
    rows = [{"input": "2+2?", "output": text, "score": float(text == "4"), "step": 3} for text in ("4", "5", "5")]
    (tmp_path / "3.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert show_rollouts(tmp_path, None, 5, step=3).splitlines() == [
        *("problem 0, step 3, reward 1", "  prompt 2+2?", "  wrote  4", ""),
        *("problem 0, step 3, reward 0, 2 times the same", "  prompt 2+2?", "  wrote  5"),
    ]
    with pytest.raises(UserError, match=r"no \.parquet and no \.jsonl in it"):
        show_rollouts(tmp_path / "none", None, 5)
