"""Rows and crossovers of a small comparison, with the latencies that were calibrated."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from clustersim.hardware.calibrations import calibration_for
from clustersim.studies.exchange_forms import Parties, Placement
from clustersim.studies.exchange_times import Bench, bench
from clustersim.studies.parameter_server_or_ring import SIZE_TOLERANCE, Answer, compare, largest_win, tried_sizes
from tests.unit.studies.comparison_sample import TEXT, comparison, without_latency


@cache
def answer() -> Answer:
    return compare(comparison())


@cache
def ten_gigabit() -> Bench:
    """Return the bench of the first adapter without oversubscription."""
    node = comparison().nodes[0]
    return bench(node, comparison().fabric(node, 1.0), calibration_for(node.accelerator).network, most_workers=8)


def parties(servers: int, placement: Placement = "dedicated") -> Parties:
    return Parties(workers=8, servers=servers, placement=placement, first_host=8)


def test_every_combination_is_a_row_in_the_order_of_the_file() -> None:
    rows = answer().rows

    expected = [
        (adapter, ratio, workers, size, placement, servers)
        for adapter in (1.25e9, 1.25e10)
        for ratio in (1.0, 8.0)
        for workers in (2, 8)
        for size in (1e3, 1e8)
        for placement in ("dedicated", "colocated")
        for servers in ((1, 2) if workers == 2 else (1, 2, 4, 8))
    ]
    assert [
        (
            row.setting.adapter_bytes_per_s,
            row.setting.oversubscription,
            row.setting.workers,
            row.size_bytes,
            row.placement,
            row.servers,
        )
        for row in rows
    ] == expected


def test_more_sizes_are_tried_for_the_workers_that_are_shown() -> None:
    rows = answer().by_size

    assert {row.setting.workers for row in rows} == {8}
    assert {row.setting.oversubscription for row in rows} == {1.0}
    assert list(dict.fromkeys(row.size_bytes for row in rows)) == list(tried_sizes(1e3, 1e9))


def test_latency_only_adds_to_the_closed_forms_and_hardly_anything_to_those_of_large_messages() -> None:
    for row in answer().rows:
        assert row.in_turn_s > row.closed_form_s
        assert row.ring_s > row.ring_closed_form_s
        if row.size_bytes == 1e8:
            assert row.in_turn_s < 1.1 * row.closed_form_s


def test_push_and_pull_at_once_take_no_longer_than_in_turn_and_no_less_than_half() -> None:
    for row in answer().rows:
        assert row.in_turn_s / 2 < row.overlapped_s < row.in_turn_s


def test_the_library_chooses_what_it_says() -> None:
    assert {row.library_algorithm for row in answer().rows} <= {"ring", "tree"}
    assert all(row.library_s == row.ring_s for row in answer().rows if row.library_algorithm == "ring" and row.size_bytes == 1e8)


def test_the_fewest_servers_are_found_as_by_trying_all() -> None:
    on = ten_gigabit()
    ring_s, _ = on.all_reduce(8, 1e8, "ring")

    for least in answer().least_servers:
        setting = least.setting
        if (setting.adapter_bytes_per_s, setting.oversubscription, setting.workers, least.size_bytes) == (1.25e9, 1.0, 8, 1e8):
            for found, took_s in ((least.in_turn, on.in_turn_s), (least.overlapped, on.overlapped_s)):
                enough = [count for count in range(1, 9) if took_s(parties(count, least.placement), 1e8) <= ring_s]
                assert found == (enough[0] if enough else None)


def test_below_the_size_that_is_found_servers_win_and_above_it_they_lose() -> None:
    on = ten_gigabit()
    seen = 0
    for sizes in answer().winning_sizes:
        setting = sizes.setting
        if sizes.ring_bytes and (setting.adapter_bytes_per_s, setting.oversubscription, setting.workers) == (1.25e9, 1.0, 8):
            who = parties(sizes.servers, sizes.placement)
            above = sizes.ring_bytes * (1 + SIZE_TOLERANCE)
            assert on.in_turn_s(who, sizes.ring_bytes) <= on.all_reduce(8, sizes.ring_bytes, "ring")[0]
            assert on.in_turn_s(who, above) > on.all_reduce(8, above, "ring")[0]
            seen += 1
    assert seen == 7


def test_a_round_is_as_long_with_or_without_hosts_that_do_not_take_part() -> None:
    node = comparison().nodes[0]
    wide = bench(node, comparison().fabric(node, 8.0), calibration_for(node.accelerator).network, most_workers=64)
    exact = bench(node, comparison().fabric(node, 8.0), calibration_for(node.accelerator).network, most_workers=8)

    for placement in ("dedicated", "colocated"):
        elsewhere = replace(parties(4, placement), first_host=64)
        assert wide.in_turn_s(elsewhere, 1e8) == pytest.approx(exact.in_turn_s(parties(4, placement), 1e8), rel=1e-12)
    assert wide.all_reduce(8, 1e8, "ring") == exact.all_reduce(8, 1e8, "ring")


def test_a_calibration_of_ones_own_takes_the_place_of_the_shipped_one() -> None:
    node = comparison().nodes[0]
    slow = replace(
        calibration_for(node.accelerator).network, efficiency={**calibration_for(node.accelerator).network.efficiency, "nic": 0.48}
    )
    only = without_latency(comparison(TEXT.replace("workers: [2, 8]", "workers: [8]").replace("servers: [1, 2, 4]", "servers: [1, 2]")))

    rows = compare(only, slow).rows

    assert rows[0].ring_closed_form_s == pytest.approx(2 * 7 / 8 * 1e3 / (0.48 * 1.25e9), rel=1e-12)


@pytest.mark.parametrize(("rival_s", "found"), [(0.5, 0.0), (1e9, None)])
def test_servers_that_always_or_never_win_have_no_size_in_between(rival_s: float, found: float | None) -> None:
    assert largest_win(lambda size_bytes: size_bytes, lambda _: rival_s, [1.0, 4.0, 16.0]) == found


def test_the_size_is_sought_where_servers_lose_for_the_first_time() -> None:
    def served_s(size_bytes: float) -> float:
        return 10.0 if 3.0 < size_bytes < 9.0 else 0.0

    assert largest_win(served_s, lambda _: 1.0, [1.0, 4.0, 16.0]) == pytest.approx(3.0, rel=SIZE_TOLERANCE)
