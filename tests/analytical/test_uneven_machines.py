"""Uneven machines against closed forms: the slowest of many, queues at a server, the first of a few more than are needed."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from math import erf, fsum, log, pi, sqrt

import numpy as np
import pytest

from clustersim.engine.pace import Distribution, Drawn, Exponential, Lognormal
from clustersim.engine.policies import Asynchronous, BackupWorkers, PacePolicy, StaleSynchronous
from clustersim.engine.steps import replay_steps
from clustersim.network.in_flight import TICK_S
from clustersim.program.program import Program
from clustersim.trace.step_log import StepLog
from tests.unit.engine.factories import compute, joined, make_machine, paced, program, task, transfer, work, workers
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S

MACHINE = make_machine()
WORK_S = 2.0
N_STEPS = 1000


def harmonic(n: int) -> float:
    return fsum(1.0 / number for number in range(1, n + 1))


def run(
    of: Program, policy: PacePolicy | None = None, *, distribution: Distribution | None = None, n_steps: int = N_STEPS, seed: int = 1
) -> StepLog:
    jitter = None if distribution is None else Drawn(distribution, [1] * len(of.rank_classes), seed=seed)
    log = replay_steps(of, MACHINE, n_steps=n_steps, jitter=jitter, policy=policy)[0].steps
    assert log is not None
    return log


def n_covering(of: Program, distribution: Distribution, *expected_s: float) -> tuple[int, ...]:
    """Return, for each mean step time that might be expected, how many of ten runs have it in their confidence interval.

    Of the right one nine or ten should; less than seven come up in one case of a thousand.
    """
    intervals = [run(of, distribution=distribution, n_steps=400, seed=seed).interval_s or (0.0, 0.0) for seed in range(10)]
    return tuple(sum(low <= each <= high for low, high in intervals) for each in expected_s)


def lognormal_maximum(sigma: float, n: int) -> float:
    """Return the expected largest of ``n`` lognormal factors with mean 1: the integral of 1 - F^n."""
    x = np.exp(np.linspace(-12.0, 12.0, 20_001) * sigma)
    distribution = np.array([0.5 * (1.0 + erf((log(value) / sigma + 0.5 * sigma) / sqrt(2.0))) for value in x])
    above = 1.0 - distribution**n
    return float(x[0] + np.sum(0.5 * (above[1:] + above[:-1]) * np.diff(x)))


@pytest.mark.parametrize("n", [1, 8])
def test_a_synchronous_step_of_exponential_workers_takes_the_harmonic_number(n: int) -> None:
    right, of_twice_as_many = n_covering(joined(*[WORK_S] * n), Exponential(), WORK_S * harmonic(n), WORK_S * harmonic(2 * n))

    assert right >= 7
    assert of_twice_as_many == 0


@pytest.mark.parametrize(("n", "sigma"), [(2, 0.1), (8, 0.5)])
def test_a_synchronous_step_of_lognormal_workers_takes_the_expected_largest(n: int, sigma: float) -> None:
    expected_s = [WORK_S * lognormal_maximum(sigma, workers) for workers in (n, 2 * n)]

    right, of_twice_as_many = n_covering(joined(*[WORK_S] * n), Lognormal(sigma=sigma), *expected_s)

    assert right >= 7
    assert of_twice_as_many == 0


def test_coupled_ranks_add_up_to_one_large_class() -> None:
    """Two classes of four are as slow as eight workers."""
    of = joined(WORK_S, WORK_S)
    log_of, _ = replay_steps(of, MACHINE, n_steps=N_STEPS, jitter=Drawn(Exponential(), (4, 4), seed=1))

    assert log_of.steps is not None
    # The largest of n exponential factors varies by the sum of 1/i^2, which is less than pi^2/6.
    assert log_of.step_time_s == pytest.approx(WORK_S * harmonic(8), abs=3 * WORK_S * pi / sqrt(6 * N_STEPS))


@pytest.mark.parametrize("n", [2, 8])
def test_one_slow_worker_slows_all_that_wait_for_it(n: int) -> None:
    slow = paced(MACHINE, *[1.0] * (n - 1), 1.3)

    log_of, _ = replay_steps(joined(*[WORK_S] * n), slow, n_steps=20)

    assert log_of.step_time_s == pytest.approx(1.3 * WORK_S, abs=1 * TICK_S)
    assert log_of.steps is not None
    assert log_of.steps.classes[n - 1].waited_steps == 20
    assert log_of.steps.classes[n - 1].waited_s == pytest.approx(20 * 0.3 * WORK_S * (n - 1) / n, rel=1e-9)


@pytest.mark.parametrize("n", [2, 8])
def test_one_slow_worker_slows_nobody_else_without_a_barrier(n: int) -> None:
    slow = paced(MACHINE, *[1.0] * (n - 1), 1.3)

    log_of, _ = replay_steps(workers(*[WORK_S] * n), slow, n_steps=N_STEPS, policy=Asynchronous())

    assert log_of.steps is not None
    # Each worker has at most one step in progress when the run ends.
    assert log_of.steps.applied / log_of.steps.duration_s == pytest.approx((n - 1 + 1 / 1.3) / WORK_S, rel=1 / N_STEPS)


def test_rates_add_up_without_a_barrier() -> None:
    seconds = (1.0, 1.7, 2.9, 4.1)

    log_of = run(workers(*seconds), Asynchronous(), distribution=Exponential())

    # Renewals: in a given time the counts of the four vary by the square root of themselves; three deviations.
    expected = fsum(1.0 / each for each in seconds)
    assert log_of.applied / log_of.duration_s == pytest.approx(expected, rel=3 / sqrt(4 * N_STEPS))


def pushing(n: int, compute_s: float, push_s: float) -> Program:
    """Return workers that compute and push to the last rank, whose way down they share."""
    tasks = []
    for rank_class in range(n):
        tasks.append(task(compute(work(compute_s)), rank_class=rank_class))
        push = transfer((rank_class, 7), size_bytes=push_s * SCALE_UP_BYTES_PER_S, name=f"push {rank_class}")
        tasks.append(task(push, len(tasks) - 1, rank_class=rank_class))
    return program(*tasks, n_classes=n, n_ranks=7 - 7 % n)


def served(n: int, compute_s: float, push_s: float) -> float:
    """Return the steps per second of n workers that share a server, by mean value analysis."""
    waiting = rate = 0.0
    for number in range(1, n + 1):
        response_s = push_s * (1.0 + waiting)
        rate = number / (compute_s + response_s)
        waiting = rate * response_s
    return rate


@pytest.mark.parametrize(("n", "push_s"), [(1, 0.3), (7, 0.05), (7, 1.0)])
def test_workers_that_share_a_server_queue_as_mean_value_analysis_has_it(n: int, push_s: float) -> None:
    log_of = run(pushing(n, 1.0, push_s), Asynchronous(), distribution=Exponential())

    # Three deviations of as many exponential steps; the server evens them out.
    assert log_of.applied / log_of.duration_s == pytest.approx(served(n, 1.0, push_s), rel=3 / sqrt(n * N_STEPS))
    assert log_of.applied / log_of.duration_s <= min(n / (1.0 + push_s) * (1 + 3 / sqrt(n * N_STEPS)), (1 + 1e-9) / push_s)


def test_a_server_that_is_full_gives_its_bandwidth_whatever_the_workers() -> None:
    logs = (run(pushing(n, 1.0, 1.0), Asynchronous(), distribution=Exponential()) for n in (6, 7))
    few, many = (log_of.applied / log_of.duration_s for log_of in logs)

    # For 2 in 1000 of the time nobody pushes to few, and for less to many.
    assert few == pytest.approx(1.0, rel=2e-3)
    assert many == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize("n", [1, 8])
@pytest.mark.parametrize("distribution", [None, Exponential()])
def test_gradients_of_equal_workers_are_as_old_as_there_are_others(n: int, distribution: Distribution | None) -> None:
    log_of = run(workers(*[WORK_S] * n), Asynchronous(), distribution=distribution)

    # Every update by somebody else is in the age of one gradient of each other worker; only steps at both ends of the run count in part.
    assert log_of.mean_staleness == pytest.approx(n - 1, abs=(n - 1) * 2 / N_STEPS + 1e-12)


def test_gradients_of_unequal_workers_are_as_old_on_average() -> None:
    log_of = run(workers(1.0, 1.3, 2.9, 7.1), Asynchronous())

    # As above; the slowest worker has most of its first and last step outside.
    assert log_of.mean_staleness == pytest.approx(3.0, abs=3 * 7.1 / N_STEPS)


def test_a_looser_bound_comes_between_a_barrier_and_none() -> None:
    of = workers(*[WORK_S] * 6)

    bounds = [run(of, StaleSynchronous(staleness=bound), distribution=Exponential()).mean_s for bound in (0, 1, 3, 10)]
    free_s = run(of, Asynchronous(), distribution=Exponential()).mean_s

    assert bounds[0] == pytest.approx(WORK_S * harmonic(6), rel=0.03)
    assert all(tight > loose * 1.05 for tight, loose in pairwise(bounds))
    assert bounds[-1] > free_s == pytest.approx(WORK_S, rel=3 / sqrt(6 * N_STEPS))


@pytest.mark.parametrize(("n", "backups"), [(6, 2), (1, 3)])
def test_the_first_round_with_backup_workers_takes_the_order_statistic(n: int, backups: int) -> None:
    of = workers(*[WORK_S] * (n + backups))
    rounds = [run(of, BackupWorkers(n_needed=n), distribution=Exponential(), n_steps=1, seed=seed).duration_s for seed in range(200)]

    expected = WORK_S * (harmonic(n + backups) - harmonic(backups))
    variance = WORK_S**2 * fsum(1.0 / number**2 for number in range(backups + 1, n + backups + 1))
    assert fsum(rounds) / 200 == pytest.approx(expected, abs=3 * sqrt(variance / 200))


@cache
def round_s(fresh: int, stale: int, missing: int) -> float:
    """Return the expected rest of a round of exponential workers with mean 1."""
    if missing == 0:
        return 0.0
    running = fresh + stale
    arrived = fresh * round_s(fresh - 1, stale, missing - 1) if fresh else 0.0
    dropped = stale * round_s(fresh + 1, stale - 1, missing) if stale else 0.0
    return (1.0 + arrived + dropped) / running


@pytest.mark.parametrize(("n", "backups"), [(6, 2), (1, 3)])
def test_later_rounds_begin_with_stragglers(n: int, backups: int) -> None:
    log_of = run(workers(*[WORK_S] * (n + backups)), BackupWorkers(n_needed=n), distribution=Exponential())

    assert round_s(n + backups, 0, n) == pytest.approx(harmonic(n + backups) - harmonic(backups), rel=1e-12)
    later_s = log_of.step_times_s[1:]
    error_s = float(np.std(later_s)) / sqrt(len(later_s))
    assert fsum(later_s) / len(later_s) == pytest.approx(WORK_S * round_s(n, backups, n), abs=3 * error_s)
