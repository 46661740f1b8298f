"""Band edges from the base's pass rates alone."""

from pathlib import Path

import pytest

from interplay.api.single import _write_bands, pin_bands
from interplay.core.model import UserError

RATES = {1: 1.0, 2: 0.98, 3: 0.9, 4: 0.6, 5: 0.4, 6: 0.1, 7: 0.03, 8: 0.01, 9: 0.004, 10: 0.0, 11: 0.0}


def test_the_edge_is_what_comes_after_the_trained_ops_with_a_rate_between_5_and_50_percent() -> None:
    assert pin_bands(RATES, [1, 2, 3]) == {"id_top": [2, 3], "edge": [5, 6], "beyond": [7, 8], "hard": [9, 10]}


def test_hard_starts_where_all_later_rates_stay_low() -> None:
    bumpy = {**RATES, 10: 0.02, 12: 0.0}
    assert pin_bands(bumpy, [1, 2, 3])["hard"] == [11, 12]


def test_a_base_without_an_edge_is_refused_with_its_rates() -> None:
    with pytest.raises(UserError, match=r"no op after 3 has a pass rate within .*op 4: 0\.000"):
        pin_bands({1: 1.0, 2: 1.0, 3: 0.9, 4: 0.0, 5: 0.0}, [1, 2, 3])


def test_a_base_that_never_gets_hard_asks_for_larger_ops() -> None:
    with pytest.raises(UserError, match="--max-op"):
        pin_bands({1: 1.0, 2: 0.4, 3: 0.3, 4: 0.2}, [1])


def test_pinning_keeps_comments_and_all_else(tmp_path: Path) -> None:
    path = tmp_path / "laptop.yaml"
    path.write_text("# why\nbands:\n  id: [1, 2] # trained\n  edge: [9]\nkinds:\n  rl: {steps: 4}\n")
    _write_bands(path, {"edge": [3, 4], "hard": [7]})
    assert path.read_text() == "# why\nbands:\n  id: [1, 2] # trained\n  edge: [3, 4]\n  hard: [7]\nkinds:\n  rl: {steps: 4}\n"
