"""Closed forms: they sum to one, agree with the literature, and meet their limits."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.reliability import (
    Checkpoints,
    Failures,
    Recovery,
    Upkeep,
    best_interval_s,
    combined_mtbf_s,
    daly_interval_s,
    first_order_fraction,
    short_of_spares_fraction,
    spares_for,
    steady_shares,
    young_interval_s,
)

DAY_S = 86400.0


def test_rates_of_nodes_of_the_job_and_of_parts_in_series_add_up() -> None:
    few, many = (Failures(n_nodes=nodes, node_mtbf_s=100 * DAY_S) for nodes in (50, 100))

    assert (few.mtti_s, many.mtti_s) == (pytest.approx(2 * DAY_S), pytest.approx(DAY_S))
    assert Failures(n_nodes=10, node_mtbf_s=20.0, job_mtbf_s=2.0).mtti_s == pytest.approx(1.0)
    assert Failures(n_nodes=10, node_mtbf_s=math.inf).mtti_s == combined_mtbf_s([]) == math.inf
    assert combined_mtbf_s([(10.0, 4.0), (5.0, 1.0)]) == pytest.approx(1 / 0.6)


@pytest.mark.parametrize(("gpus", "hours"), [(16384, 1.8), (131072, 0.23)])
def test_the_rate_of_a_research_cluster_projects_to_its_published_times(gpus: int, hours: float) -> None:
    # RSC-1: 6.50 failures in 1,000 days of a node of eight; projections of arXiv:2410.21680, to the digits printed.
    failures = Failures(n_nodes=gpus // 8, node_mtbf_s=1000 * DAY_S / 6.5)

    assert failures.mtti_s / 3600 == pytest.approx(hours, abs=0.05 if hours > 1 else 0.005)


def test_a_checkpoint_waits_for_the_one_before() -> None:
    quick = Checkpoints(interval_s=60.0, stall_s=2.0, behind_s=30.0)
    slow = Checkpoints(interval_s=60.0, stall_s=2.0, behind_s=100.0)

    assert (quick.cycle_s, quick.trained_s) == (62.0, 60.0)
    assert (slow.cycle_s, slow.trained_s) == (100.0, 98.0)


@pytest.mark.parametrize(("nodes", "replicas", "shrinks"), [(None, 8, False), (2.0, 8, True), (2.0, 1, False)])
def test_a_job_shrinks_only_where_it_has_replicas_to_lose(nodes: float | None, replicas: int, shrinks: bool) -> None:
    assert Recovery(detection_s=0.0, restart_s=1.0, replica_nodes=nodes, n_replicas=replicas).shrinks is shrinks


HOUR_S = 3600.0


def upkeep(
    mtti_s: float = 3 * HOUR_S,
    interval_s: float = 600.0,
    stall_s: float = 30.0,
    behind_s: float = 0.0,
    down: tuple[float, float] = (60.0, 300.0),
) -> Upkeep:
    return Upkeep(
        failures=Failures(n_nodes=1, node_mtbf_s=mtti_s),
        checkpoints=Checkpoints(interval_s=interval_s, stall_s=stall_s, behind_s=behind_s),
        recovery=Recovery(detection_s=down[0], restart_s=down[1]),
    )


@given(
    mtti_s=st.floats(60.0, 1e7),
    interval_s=st.floats(1.0, 1e5),
    stall_s=st.floats(0.0, 1e4),
    behind_s=st.floats(0.0, 1e4),
    down=st.tuples(st.floats(0.0, 1e4), st.floats(0.0, 1e4)),
)
def test_shares_sum_to_one(mtti_s: float, interval_s: float, stall_s: float, behind_s: float, down: tuple[float, float]) -> None:
    shares = asdict(steady_shares(upkeep(mtti_s, interval_s, stall_s, behind_s, down)))

    assert math.fsum(shares.values()) == pytest.approx(1.0, rel=1e-9)
    assert min(shares.values()) >= 0.0


@given(mtti_s=st.floats(1e3, 1e6), interval_s=st.floats(10.0, 1e3), stall_s=st.floats(0.1, 10.0), restart_s=st.floats(0.0, 1e3))
def test_without_detection_it_is_the_run_time_of_daly(mtti_s: float, interval_s: float, stall_s: float, restart_s: float) -> None:
    # T = M e^(R/M) (e^((tau + delta)/M) - 1) T_s / tau, equation 20.
    expected = interval_s / (mtti_s * math.exp(restart_s / mtti_s) * math.expm1((interval_s + stall_s) / mtti_s))

    assert steady_shares(upkeep(mtti_s, interval_s, stall_s, down=(0.0, restart_s))).useful == pytest.approx(expected, rel=1e-12)


def test_a_failed_node_costs_half_an_interval_on_average() -> None:
    # For failures that are rare beside the interval; a thousandth is the second order in tau/M.
    shares = steady_shares(upkeep(mtti_s=1e6, interval_s=1000.0, stall_s=0.0, down=(0.0, 0.0)))

    assert shares.lost_work * 1e6 == pytest.approx(500.0, rel=1e-3)


def test_a_checkpoint_that_is_written_behind_costs_its_writing_at_each_failure_more() -> None:
    at_once, behind = (
        steady_shares(upkeep(mtti_s=1e6, interval_s=1000.0, stall_s=0.0, behind_s=late, down=(0.0, 0.0))) for late in (0.0, 800.0)
    )

    assert (behind.lost_work - at_once.lost_work) * 1e6 == pytest.approx(800.0, rel=2e-3)


def test_the_first_order_meets_the_exact_form_where_failures_are_rare() -> None:
    rare = upkeep(mtti_s=1e7)

    assert first_order_fraction(rare) == pytest.approx(steady_shares(rare).useful, abs=2e-6)


def test_the_first_order_never_promises_less_than_nothing() -> None:
    assert first_order_fraction(upkeep(mtti_s=100.0)) == 0.0


def test_where_nothing_fails_only_checkpoints_cost() -> None:
    shares = steady_shares(upkeep(mtti_s=math.inf, interval_s=90.0, stall_s=10.0))

    assert (shares.useful, shares.checkpoint, shares.restart) == (pytest.approx(0.9), pytest.approx(0.1), 0.0)


@pytest.mark.parametrize(("interval_s", "down"), [(1e6, (1.0, 1.0)), (1.0, (1.0, 1e6))])
def test_a_job_that_never_gets_through_does_nothing_useful(interval_s: float, down: tuple[float, float]) -> None:
    shares = steady_shares(upkeep(mtti_s=100.0, interval_s=interval_s, down=down))

    assert shares.useful == 0.0
    assert math.fsum(asdict(shares).values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("mtti_h", "delta_min", "minutes"),
    [(24.0, 5.0, 117.0), (6.0, 5.0, 57.0), (0.25, 5.0, 9.1)],
)
def test_figures_3_to_5_of_daly(mtti_h: float, delta_min: float, minutes: float) -> None:
    # Captions of J. T. Daly, FGCS 22, 2006: "the new model predicts tau_opt = ..."; to half of the last digit printed. His estimate leaves
    # out terms of the order of (w/2M)^(3/2).
    mtti_s, stall_s = mtti_h * HOUR_S, delta_min * 60.0
    last_digit = 1.0 if minutes == round(minutes) else 0.1

    assert daly_interval_s(stall_s, mtti_s) / 60.0 == pytest.approx(minutes, abs=last_digit / 2)
    assert best_interval_s(stall_s, mtti_s) == pytest.approx(daly_interval_s(stall_s, mtti_s), rel=0.003)


@given(stall_s=st.floats(0.01, 1e4), mtti_s=st.floats(10.0, 1e7))
def test_no_other_interval_is_more_useful_than_the_best(stall_s: float, mtti_s: float) -> None:
    best_s = best_interval_s(stall_s, mtti_s)
    useful = [steady_shares(upkeep(mtti_s, factor * best_s, stall_s, down=(0.0, 0.0))).useful for factor in (0.5, 0.9, 1.0, 1.1, 2.0)]

    assert max(useful) <= useful[2] * (1 + 1e-9)


@given(mtti_s=st.floats(1e4, 1e7))
def test_all_estimates_meet_where_checkpoints_are_quick(mtti_s: float) -> None:
    stall_s = 1e-6 * mtti_s

    assert young_interval_s(stall_s, mtti_s) == pytest.approx(best_interval_s(stall_s, mtti_s), rel=1e-3)
    assert daly_interval_s(stall_s, mtti_s) == pytest.approx(best_interval_s(stall_s, mtti_s), rel=1e-8)


def test_checkpoints_that_cost_nothing_are_made_all_the_time() -> None:
    assert best_interval_s(0.0, 100.0) == 0.0
    assert best_interval_s(1.0, math.inf) == math.inf


def test_a_checkpoint_longer_than_twice_the_time_between_failures_is_made_once_in_that_time() -> None:
    assert daly_interval_s(200.0, 100.0) == 100.0


def test_nodes_in_repair_are_poisson_distributed() -> None:
    failures, recovery = Failures(n_nodes=100, node_mtbf_s=100.0), Recovery(detection_s=0.0, restart_s=0.0, repair_s=2.0, spares=1)

    # Two in repair in the mean: 1 - e^-2 (1 + 2).
    assert short_of_spares_fraction(failures, recovery) == pytest.approx(1 - 3 * math.exp(-2))
    assert short_of_spares_fraction(failures, replace(recovery, spares=None)) == 0.0
    assert short_of_spares_fraction(failures, replace(recovery, repair_s=0.0)) == 0.0


@given(mean=st.floats(0.01, 2000.0))
def test_the_spares_that_are_enough_are_the_least_that_are(mean: float) -> None:
    failures = Failures(n_nodes=1, node_mtbf_s=1.0)
    enough = spares_for(failures, mean)

    short = [
        short_of_spares_fraction(failures, Recovery(detection_s=0, restart_s=0, repair_s=mean, spares=n))
        for n in (enough, max(enough - 1, 0))
    ]
    assert short[0] <= 0.01
    assert enough == 0 or short[1] > 0.01
