"""Rates of failures add up; cycles of checkpoints wait for the one before."""

from __future__ import annotations

import math

import pytest

from clustersim.reliability.interruptions import Checkpoints, Failures, Recovery, combined_mtbf_s

DAY_S = 86400.0


def test_a_job_on_twice_the_nodes_is_interrupted_twice_as_often() -> None:
    few, many = (Failures(n_nodes=nodes, node_mtbf_s=100 * DAY_S) for nodes in (50, 100))

    assert (few.mtti_s, many.mtti_s) == (pytest.approx(2 * DAY_S), pytest.approx(DAY_S))


def test_what_stops_the_job_but_no_node_adds_its_rate() -> None:
    assert Failures(n_nodes=10, node_mtbf_s=20.0, job_mtbf_s=2.0).mtti_s == pytest.approx(1.0)


@pytest.mark.parametrize(("gpus", "hours"), [(16384, 1.8), (131072, 0.23)])
def test_the_rate_of_a_research_cluster_projects_to_its_published_times(gpus: int, hours: float) -> None:
    # RSC-1: 6.50 failures in 1,000 days of a node of eight; projections of arXiv:2410.21680, to the digits printed.
    failures = Failures(n_nodes=gpus // 8, node_mtbf_s=1000 * DAY_S / 6.5)

    assert failures.mtti_s / 3600 == pytest.approx(hours, abs=0.05 if hours > 1 else 0.005)


def test_nothing_fails_where_all_times_are_infinite() -> None:
    assert Failures(n_nodes=10, node_mtbf_s=math.inf).mtti_s == math.inf
    assert combined_mtbf_s([]) == math.inf


def test_parts_in_series_fail_more_often_than_any_of_them() -> None:
    assert combined_mtbf_s([(10.0, 4.0), (5.0, 1.0)]) == pytest.approx(1 / 0.6)


def test_a_checkpoint_waits_for_the_one_before() -> None:
    quick = Checkpoints(interval_s=60.0, stall_s=2.0, behind_s=30.0)
    slow = Checkpoints(interval_s=60.0, stall_s=2.0, behind_s=100.0)

    assert (quick.cycle_s, quick.trained_s) == (62.0, 60.0)
    assert (slow.cycle_s, slow.trained_s) == (100.0, 98.0)


@pytest.mark.parametrize(("nodes", "replicas", "shrinks"), [(None, 8, False), (2.0, 8, True), (2.0, 1, False)])
def test_a_job_shrinks_only_where_it_has_replicas_to_lose(nodes: float | None, replicas: int, shrinks: bool) -> None:
    assert Recovery(detection_s=0.0, restart_s=1.0, replica_nodes=nodes, n_replicas=replicas).shrinks is shrinks
