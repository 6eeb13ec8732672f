"""The whole study against closed forms: on wires without latency to round-off, and with one latency where both take equally long."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import ceil

import pytest

from clustersim.hardware.calibration import NetworkCalibration
from clustersim.studies.comparison_file import Comparison
from clustersim.studies.parameter_server_or_ring import SIZE_TOLERANCE, Answer, compare
from tests.unit.engine.factories import IDEAL_NETWORK, latencies
from tests.unit.studies.comparison_sample import TEXT, comparison, without_latency

ROUND_OFF = 1e-9
HOP_S = 20e-6
ONE_LATENCY: NetworkCalibration = replace(IDEAL_NETWORK, latencies=latencies(0.0, 0.0, HOP_S))
"""Each step between nodes takes as long as another, and nothing else takes any time."""


@cache
def small() -> Comparison:
    text = TEXT.replace("workers: [2, 8]", "workers: [2, 3, 4, 7, 8, 12, 16]").replace("servers: [1, 2, 4]", "servers: [1, 2, 3, 4, 6, 11]")
    return without_latency(comparison(text))


@cache
def ideal() -> Answer:
    return compare(small(), IDEAL_NETWORK)


@cache
def one_latency() -> Answer:
    return compare(small(), ONE_LATENCY)


def test_without_latency_every_time_is_its_closed_form_whatever_the_oversubscription() -> None:
    rows = ideal().rows

    # Adapters, oversubscriptions, sizes and placements; then numbers of servers, for 2, 3, 4, 7, 8, 12 and 16 workers.
    assert len(rows) == 2 * 2 * 2 * 2 * (2 + 3 + 4 + 6 + 6 + 7 + 7)
    for row in rows:
        assert row.in_turn_s == pytest.approx(row.closed_form_s, rel=ROUND_OFF), row
        assert row.ring_s == pytest.approx(row.ring_closed_form_s, rel=ROUND_OFF), row


def test_one_latency_a_step_is_all_that_is_added() -> None:
    for row in one_latency().rows:
        assert row.in_turn_s == pytest.approx(row.closed_form_s + 2 * HOP_S, rel=ROUND_OFF), row
        assert row.ring_s == pytest.approx(row.ring_closed_form_s + 2 * (row.setting.workers - 1) * HOP_S, rel=ROUND_OFF), row


def test_in_turn_dedicated_servers_never_win_in_bandwidth() -> None:
    found = [least.in_turn for least in ideal().least_servers if least.placement == "dedicated"]

    assert set(found) == {None}


def test_overlapped_dedicated_servers_win_from_half_as_many_as_workers_on() -> None:
    for least in ideal().least_servers:
        workers = least.setting.workers
        if least.placement == "dedicated" and least.setting.oversubscription == 1.0:
            assert least.overlapped == max(ceil(workers**2 / (2 * (workers - 1)) - ROUND_OFF), 1)


def test_servers_and_ring_are_equal_at_the_size_of_the_theory() -> None:
    seen = 0
    for sizes in one_latency().winning_sizes:
        workers, servers, setting = sizes.setting.workers, sizes.servers, sizes.setting
        if sizes.placement == "dedicated" and setting.oversubscription == 1.0 and workers > 2:
            equal_bytes = (workers - 2) * HOP_S * setting.adapter_bytes_per_s / (workers / servers - (workers - 1) / workers)
            assert sizes.ring_bytes == pytest.approx(equal_bytes, rel=SIZE_TOLERANCE)
            seen += 1
    assert seen == 2 * (3 + 4 + 6 + 6 + 7 + 7)


def test_a_server_on_every_worker_is_never_slower_at_full_bisection() -> None:
    for sizes in one_latency().winning_sizes:
        if sizes.placement == "colocated" and sizes.servers == sizes.setting.workers and sizes.setting.oversubscription == 1.0:
            assert sizes.ring_bytes is None, sizes
