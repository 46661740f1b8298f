"""Position jumps: where positions leap, what a sequence sees of it, and that a resumed run draws the same."""

import numpy as np
import torch

from interplay.data import batches
from interplay.data.corpus import PackedRows
from interplay.train.lm import draw_jumps
from interplay.train.spec import PositionJumps

SPEC = PositionJumps(probability=0.5, largest=4, start=0.4)
TOKENS = np.tile(np.array([7, 2, 7, 2, 7, 2, 7, 7]), (50, 1))


def test_positions_rise_from_the_jump_on_and_start_anew_with_each_problem() -> None:
    corpus = PackedRows(np.array([[5, 6, 7, 8, 5, 6]]), np.array([[1, 1, 1, 2, 2, 2]]), np.array([[0, 1, 1, 0, 1, 1]]))
    batch = batches.batch_of_rows(corpus, np.array([0]), torch.device("cpu"), np.array([[0, 3, 0, 0, 0, 2]]))
    by_sequence = sorted(tuple(row.tolist()) for row in batch.positions.view(2, 3))
    assert by_sequence == [(0, 1, 4), (0, 4, 5)]


def test_jumps_stand_only_at_the_named_tokens_and_in_their_range() -> None:
    found = draw_jumps(SPEC, TOKENS, np.array([2]), seed=0, step=50, steps=100)
    assert found is not None
    assert not found[TOKENS != 2].any()
    assert set(found[TOKENS == 2]) == {0, 1, 2, 3, 4}
    assert 0.35 < (found[TOKENS == 2] > 0).mean() < 0.65


def test_there_is_no_jump_before_its_start_and_none_when_off() -> None:
    assert draw_jumps(SPEC, TOKENS, np.array([2]), seed=0, step=40, steps=100) is None
    assert draw_jumps(PositionJumps(), TOKENS, np.array([2]), seed=0, step=90, steps=100) is None


def test_jumps_are_a_function_of_seed_and_step() -> None:
    def draw(seed: int, step: int) -> list:
        found = draw_jumps(SPEC, TOKENS, np.array([2]), seed, step, 100)
        assert found is not None
        return found.tolist()

    assert draw(0, 50) == draw(0, 50)
    assert draw(0, 50) != draw(0, 51)
    assert draw(0, 50) != draw(1, 50)
