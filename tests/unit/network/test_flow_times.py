from __future__ import annotations

import numpy as np
import pytest

from clustersim.network.flow_times import Flow, Pipe, finish_times
from clustersim.network.following import numba_is_installed


def link(bandwidth: float = 1.0, latency_s: float = 0.0) -> Pipe:
    return Pipe(bandwidth_bytes_per_s=bandwidth, latency_s=latency_s)


def flow(*route: int, size: float = 1.0, start_s: float = 0.0) -> Flow:
    return Flow(route=route, size_bytes=size, start_s=start_s)


def test_no_flows_have_no_times() -> None:
    assert finish_times([link()], []) == []


def test_a_flow_waits_for_the_latency_of_all_its_links_first() -> None:
    assert finish_times([link(2.0, 0.25), link(4.0, 0.5)], [flow(0, 1, size=4.0, start_s=1.0)]) == [3.75]


def test_a_flow_without_bytes_takes_its_latency() -> None:
    assert finish_times([link(2.0, 0.25)], [flow(0, size=0.0, start_s=1.0)]) == [1.25]


def test_a_flow_takes_nothing_from_others_before_its_latency_is_over() -> None:
    found = finish_times([link(1.0), link(1.0, 1.0)], [flow(0, size=1.0), flow(0, 1, size=1.0)])

    assert found == [1.0, 2.0]


def test_times_are_in_the_order_of_the_flows() -> None:
    assert finish_times([link(1.0), link(2.0)], [flow(0, size=4.0), flow(1, size=4.0), flow(0, size=1.0, start_s=9.0)]) == [4.0, 2.0, 10.0]


def test_the_direction_of_a_route_does_not_matter() -> None:
    links = [link(1.0), link(2.0), link(3.0)]

    assert finish_times(links, [flow(0, 2, 1), flow(1, 0, 2)]) == finish_times(links, [flow(0, 1, 2), flow(0, 1, 2)])


def random_flows(n_hosts: int, seed: int) -> tuple[list[Pipe], list[Flow]]:
    """Return all pairs of hosts behind one switch, of random size, some of them later."""
    generator = np.random.default_rng(seed)
    links = [link(float(rate), 0.01) for rate in generator.uniform(1.0, 4.0, 2 * n_hosts)]
    pairs = [(a, n_hosts + b) for a in range(n_hosts) for b in range(n_hosts) if a != b]
    return links, [
        flow(*pair, size=float(size), start_s=float(start_s))
        for pair, size, start_s in zip(pairs, generator.uniform(1.0, 9.0, len(pairs)), generator.uniform(0.0, 9.0, len(pairs)), strict=True)
    ]


@pytest.mark.slow
@pytest.mark.xdist_group("numba")  # compiled once
@pytest.mark.skipif(not numba_is_installed(), reason="numba is not installed (extra 'fast')")
def test_compiled_or_not_the_times_are_the_same() -> None:
    case = random_flows(12, seed=3)

    assert finish_times(*case, compiled=True) == pytest.approx(finish_times(*case, compiled=False), rel=1e-12)


def test_the_links_are_full_as_long_as_flows_wait() -> None:
    n_hosts = 10
    links, flows = random_flows(n_hosts, seed=4)
    at_once = [Flow(route=one.route, size_bytes=one.size_bytes, start_s=0.0) for one in flows]

    last_s = max(finish_times(links, at_once, compiled=False))

    busiest_s = max(
        sum(one.size_bytes for one in at_once if number in one.route) / pipe.bandwidth_bytes_per_s for number, pipe in enumerate(links)
    )
    assert (0.02 + busiest_s) * (1.0 - 1e-12) <= last_s <= 2.0 * busiest_s
