"""pass@k against the definition, hand-worked numbers and its own expectation."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from interplay.tasks.verdict import pass_at_k


@pytest.mark.parametrize("n", [1, 4, 7])
def test_pass_at_k_is_the_share_of_subsets_of_k_samples_that_hold_a_pass(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            drawn = list(combinations([1] * c + [0] * (n - c), k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, drawn)) / len(drawn))


def test_pass_at_k_by_hand():
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(5, 0, 5) == 0.0
    assert pass_at_k(5, 1, 5) == 1.0


def test_pass_at_k_over_arrays_agrees_with_exact_integers():
    n = np.repeat([128, 200], 129)
    c = np.tile(np.arange(129), 2)
    for k in (1, 2, 64, 128):
        exact = [1 - comb(a - b, k) / comb(a, k) for a, b in zip(n.tolist(), c.tolist(), strict=True)]
        np.testing.assert_allclose(pass_at_k(n, c, k), exact, atol=1e-12)


def test_pass_at_k_is_unbiased():
    n, k, chance = 6, 3, 0.2
    mean = sum(comb(n, c) * chance**c * (1 - chance) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1))
    assert mean == pytest.approx(1 - (1 - chance) ** k)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 5), (4, 1, 0)])
def test_pass_at_k_refuses_impossible_counts(n, c, k):
    with pytest.raises(ValueError, match=r"pass@k needs"):
        pass_at_k(n, c, k)
    with pytest.raises(ValueError, match=r"pass@k needs"):
        pass_at_k(np.array([128, n]), np.array([0, c]), k)
