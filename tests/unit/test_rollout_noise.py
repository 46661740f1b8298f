"""The noise: uniform, independent, and a function of its key alone."""

from itertools import pairwise

import numpy as np
from scipy import stats

from interplay.core.random import mix_words
from interplay.rollout.request import uniform_noise


def test_the_mixing_function_is_splitmix64() -> None:
    # First outputs of SplitMix64 from state 0, as in Vigna's reference implementation.
    states = np.array([1, 2, 3], dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [int(word) for word in mix_words(states)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_noise_is_uniform_along_every_part_of_its_key() -> None:
    drawn = {
        "position": uniform_noise(1, [5], [0], 20000)[0],
        "sample": uniform_noise(1, [5] * 20000, list(range(20000)), 3)[:, 2],
        "key": uniform_noise(1, list(range(20000)), [0] * 20000, 3)[:, 2],
        "seed": np.array([uniform_noise(seed, [5], [0], 3)[0, 2] for seed in range(20000)]),
    }
    for values in drawn.values():
        assert values.min() > 0.0
        assert values.max() < 1.0
        assert stats.kstest(values, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.03
    names = list(drawn)
    for left, right in pairwise(names):
        assert abs(np.corrcoef(drawn[left], drawn[right])[0, 1]) < 0.03


def test_noise_does_not_depend_on_batch_order_or_length() -> None:
    keys, samples = [3, 2**64 - 1, 3, -4], [0, 1, 2, 0]
    whole = uniform_noise(9, keys, samples, 50)
    order = [2, 0, 3, 1]
    assert np.array_equal(uniform_noise(9, [keys[i] for i in order], [samples[i] for i in order], 20), whole[order, :20])
    assert len(np.unique(whole)) == whole.size


def test_swapping_key_and_sample_gives_other_noise() -> None:
    assert not np.isin(uniform_noise(0, [1], [2], 100), uniform_noise(0, [2], [1], 100)).any()
    assert not np.isin(uniform_noise(1, [0], [2], 100), uniform_noise(0, [1], [2], 100)).any()
