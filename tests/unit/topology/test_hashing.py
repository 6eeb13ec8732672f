from __future__ import annotations

import numpy as np
import pytest

from clustersim.topology.cluster import pair_keys, picked, picked_among
from tests.unit.topology.factories import all_pairs, ranks


def test_the_hash_is_the_same_on_every_machine() -> None:
    keys = pair_keys(7, ranks(0, 1, 1), ranks(1, 0, 2))

    assert [int(key) for key in keys] == [12044583642104821646, 6982754489525971661, 8404086299742420458]


def test_the_order_of_the_pair_and_the_seed_matter() -> None:
    keys = {int(pair_keys(seed, ranks(a), ranks(b))[0]) for seed in (0, 1) for a, b in ((3, 4), (4, 3), (3, 3))}

    assert len(keys) == 6


@pytest.mark.parametrize("n_choices", [2, 3, 7, 32])
def test_choices_are_alike_within_what_chance_allows(n_choices: int) -> None:
    keys = pair_keys(1, *all_pairs(300))
    expected = len(keys) / n_choices

    counts = np.bincount(picked(keys, 0, n_choices), minlength=n_choices)

    # Chi-squared with n - 1 degrees of freedom: mean n - 1, variance 2 (n - 1); five standard deviations.
    assert ((counts - expected) ** 2 / expected).sum() < (n_choices - 1) + 5 * np.sqrt(2 * (n_choices - 1))


def test_stages_choose_independently_of_each_other() -> None:
    keys = pair_keys(0, *all_pairs(200))

    both = np.bincount(picked(keys, 0, 4) * 4 + picked(keys, 1, 4), minlength=16)

    assert ((both - 2500) ** 2 / 2500).sum() < 15 + 5 * np.sqrt(30)


def test_only_open_choices_are_picked_and_each_of_them_as_often() -> None:
    keys = pair_keys(0, *all_pairs(100))
    open_choices = np.tile(np.array([True, False, True, True, False]), (len(keys), 1))

    counts = np.bincount(picked_among(keys, 0, open_choices), minlength=5)

    assert counts[1] == counts[4] == 0
    assert np.abs(counts[[0, 2, 3]] - 10_000 / 3).max() < 5 * np.sqrt(10_000 * 2 / 9)


def test_without_an_open_choice_the_first_is_given() -> None:
    assert picked_among(pair_keys(0, ranks(5), ranks(6)), 0, np.zeros((1, 3), dtype=np.bool_)).tolist() == [0]
