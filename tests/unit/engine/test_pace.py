from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from clustersim.engine.pace import BLOCK_DRAWS, Distribution, Drawn, Exponential, Jitter, Lognormal
from clustersim.kernels.kernel_model import expected_largest

N_DRAWS = 200_000
DISTRIBUTIONS = [Lognormal(sigma=0.3), Exponential()]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_factor_is_one_on_average(distribution: Distribution) -> None:
    draws = distribution.draw(np.random.default_rng(1), N_DRAWS)

    assert draws.min() > 0.0
    # Four standard errors; the exponential deviates most, by 1.
    assert draws.mean() == pytest.approx(1.0, abs=4 / N_DRAWS**0.5)


def test_a_lognormal_factor_deviates_as_its_sigma_says() -> None:
    draws = Lognormal(sigma=0.3).draw(np.random.default_rng(1), N_DRAWS)

    assert np.log(draws).std() == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize("jitter", [Jitter(sigma=0.02), Jitter(sigma=0.3), Jitter(sigma=1.0, distribution="exponential")])
@pytest.mark.parametrize("n_ranks", [1, 2, 64])
def test_the_expected_largest_is_the_mean_of_the_largest_drawn(jitter: Jitter, n_ranks: int) -> None:
    drawn = jitter.drawn((n_ranks,), seed=3)
    largest = np.array([drawn.factor(0, step) for step in range(4000)])

    assert jitter.largest(n_ranks) == pytest.approx(largest.mean(), abs=4 * largest.std() / 4000**0.5)


def test_nobody_waits_alone() -> None:
    assert Jitter(sigma=0.5).largest(1) == 1.0
    assert Jitter(sigma=1.0, distribution="exponential").largest(1) == 1.0


def test_the_largest_of_a_small_spread_is_that_of_a_normal_one() -> None:
    sigma = 1e-4

    waits = [(Jitter(sigma=sigma).largest(n) - 1.0) / sigma for n in (8, 512, 16384)]

    assert waits == sorted(waits)
    assert waits == pytest.approx([expected_largest(n) for n in (8, 512, 16384)], rel=0.01)


def test_the_largest_of_exponential_factors_is_a_harmonic_number() -> None:
    assert Jitter(sigma=1.0, distribution="exponential").largest(4) == pytest.approx(25 / 12, rel=1e-12)


def test_the_largest_of_two_lognormal_factors_has_a_closed_form() -> None:
    assert Jitter(sigma=0.4).largest(2) == pytest.approx(2.0 * NormalDist().cdf(0.4 / 2**0.5), rel=1e-5)


def test_no_sigma_is_no_jitter() -> None:
    assert Drawn(Lognormal(sigma=0.0), (1, 4), seed=1).factor(1, 3) == 1.0


def test_the_same_seed_draws_the_same() -> None:
    first, second, third = (Drawn(Exponential(), (1, 2), seed=seed) for seed in (5, 5, 6))

    assert [first.factor(1, step) for step in range(5)] == [second.factor(1, step) for step in range(5)]
    assert first.factor(0, 0) != third.factor(0, 0)


def test_it_does_not_matter_who_asks_first_and_how_far() -> None:
    first, second = (Drawn(Exponential(), (1, 3), seed=5) for _ in range(2))
    far = 3 * BLOCK_DRAWS
    ahead = first.factor(0, far), first.factor(1, 0)

    assert (second.factor(1, 0), second.factor(0, far)) == ahead[::-1]
    assert first.factor(0, 1) == second.factor(0, 1)


def test_classes_draw_independently() -> None:
    alone, beside = Drawn(Exponential(), (1,), seed=5), Drawn(Exponential(), (1, 1, 1), seed=5)

    assert [alone.factor(0, step) for step in range(9)] == [beside.factor(0, step) for step in range(9)]
    draws = np.array([[beside.factor(rank_class, step) for step in range(2000)] for rank_class in range(3)])
    # Three standard errors of a correlation that is none.
    assert np.abs(np.corrcoef(draws)[np.triu_indices(3, 1)]).max() < 3 / 2000**0.5


def test_no_step_repeats_another() -> None:
    jitter = Drawn(Exponential(), (1,), seed=5)
    factors = [jitter.factor(0, step) for step in range(3 * BLOCK_DRAWS)]

    assert len(dict.fromkeys(factors)) == len(factors)


def test_coupled_ranks_go_at_the_pace_of_the_slowest() -> None:
    jitter = Drawn(Exponential(), (4,), seed=5)
    factors = [jitter.factor(0, step) for step in range(20_000)]

    # 1 + 1/2 + 1/3 + 1/4, with a variance of 1 + 1/4 + 1/9 + 1/16; four standard errors.
    assert np.mean(factors) == pytest.approx(25 / 12, abs=4 * (205 / 144 / 20_000) ** 0.5)


def test_more_ranks_than_are_drawn_at_once_can_be_coupled() -> None:
    jitter = Drawn(Exponential(), (BLOCK_DRAWS + 1,), seed=5)

    assert jitter.factor(0, 1) > np.log(BLOCK_DRAWS) - 3.0
