import pytest

from interplay.optim.schedule import factor
from interplay.schema.model import Schedule


def test_warm_up_rises_in_equal_steps_and_then_holds() -> None:
    spec = Schedule(name="linear", warmup_ratio=0.4, decay_ratio=0.2)
    assert [factor(spec, step, 10) for step in range(1, 9)] == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]


def test_linear_decay_falls_in_equal_steps_to_min_ratio_at_the_last() -> None:
    spec = Schedule(name="linear", warmup_ratio=0.0, decay_ratio=0.4, min_ratio=0.2)
    assert [factor(spec, step, 10) for step in range(6, 11)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_cosine_decay_is_half_way_at_the_middle() -> None:
    spec = Schedule(name="cosine", warmup_ratio=0.0, decay_ratio=1.0, min_ratio=0.1)
    # (1 + cos(pi / 4)) / 2 = 0.853553, of the range 0.9 above 0.1
    assert [factor(spec, step, 4) for step in range(1, 5)] == pytest.approx([0.8681981, 0.55, 0.2318019, 0.1])


def test_constant_never_decays() -> None:
    spec = Schedule(name="constant", warmup_ratio=0.0, decay_ratio=1.0)
    assert {factor(spec, step, 7) for step in range(1, 8)} == {1.0}


def test_decay_takes_at_most_what_the_warm_up_leaves() -> None:
    spec = Schedule(name="linear", warmup_ratio=0.5, decay_ratio=1.0)
    assert [factor(spec, step, 4) for step in range(1, 5)] == [0.5, 1.0, 0.5, 0.0]


def test_a_run_of_one_step_learns() -> None:
    assert factor(Schedule(), 1, 1) == 1.0
