"""What `interplay report` prints of the claims."""

from pathlib import Path
from typing import Any

from interplay.core import artifact
from interplay.results.catalog import verdict_lines

ESTIMATE = {"value": 0.272, "low": 0.201, "high": 0.34, "over": "4 seeds"}
LIFT = {"difference": "strict_pass@1", "band": "edge", "arm": "rl_edge", "against": "base", "at_least": 0.1}
TABLES = {"main": {"base/edge/strict_pass@1": [0.241, 0.2, 0.3], "rl_edge/edge/strict_pass@1": [0.513, 0.5, 0.6]}}


def report(folder: Path, *claims: dict[str, Any], tables: dict[str, Any] = TABLES) -> Path:
    """The two files of a report that are read."""
    artifact.write_json(folder / "claims.json", list(claims))
    artifact.write_json(folder / "record.json", {"metrics": {"tables": tables}, "files": {}})
    return folder


def claim(test: dict[str, Any], verdict: str = "supported", **more: Any) -> dict[str, Any]:
    return {
        "says": "It rises",
        "source": "",
        "test": test,
        "verdict": verdict,
        "reason": "a reason",
        "estimate": ESTIMATE,
        **more,
    }


def test_a_difference_is_shown_from_where_to_where_with_its_interval_and_what_was_claimed(tmp_path: Path) -> None:
    assert verdict_lines(report(tmp_path, claim(LIFT))) == [
        "supported       It rises",
        "                strict_pass@1 of edge: base 24.1 -> rl_edge 51.3: +27.2 [+20.1, +34.0] points",
        "                claimed at least +10.0; for 4 seeds",
    ]


def test_a_value_is_shown_once_with_the_range_that_was_claimed(tmp_path: Path) -> None:
    value = {"value": "strict_pass@1", "band": "id", "arm": "base", "within": [0.8, 1.0]}
    found = claim(value, estimate={"value": 0.99, "low": 0.98, "high": 1.0, "over": "4 seeds"})
    assert [line.strip() for line in verdict_lines(report(tmp_path, found))[1:]] == [
        "strict_pass@1 of id: base: 99.0 [98.0, 100.0] %",
        "claimed 80.0 to 100.0; for 4 seeds",
    ]


def test_the_margin_within_which_two_are_equal_is_shown_with_the_bound(tmp_path: Path) -> None:
    no_worse = {**LIFT, "at_least": 0.0, "margin": 0.03}
    assert (
        verdict_lines(report(tmp_path, claim(no_worse, "equivalent")))[2]
        .strip()
        .startswith("claimed at least 0.0, equal within 3.0; ")
    )


def test_an_arm_that_no_table_shows_is_named_without_a_number(tmp_path: Path) -> None:
    assert "base -> rl_edge: +27.2" in verdict_lines(report(tmp_path, claim(LIFT), tables={}))[1]


def test_what_was_not_judged_says_why(tmp_path: Path) -> None:
    nothing = {"value": None, "low": None, "high": None, "over": ""}
    first, second = claim(LIFT, "not judged"), claim(LIFT, "not judged", estimate=nothing)
    lines = verdict_lines(report(tmp_path, first, second))
    assert lines[2].endswith("claimed at least +10.0; for 4 seeds (a reason)")
    assert lines[4].strip() == "strict_pass@1 of edge: a reason"


def test_a_report_without_claims_has_no_lines(tmp_path: Path) -> None:
    assert verdict_lines(tmp_path) == []
