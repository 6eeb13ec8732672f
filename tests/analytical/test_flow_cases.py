"""Flows on a few links whose finish times follow by hand: the cases that a textbook works through, and two networks of 64 hosts."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from clustersim.apps.collective.flows_file import load_flows
from clustersim.documents.json_text import read_json
from clustersim.network.flow_times import Flow, Pipe, finish_times
from clustersim.network.following import numba_is_installed

FILES = sorted((Path(__file__).parent / "flows").glob("*.json*"))
COMPILED = [
    False,
    pytest.param(
        True,
        marks=[
            pytest.mark.skipif(not numba_is_installed(), reason="numba is not installed (extra 'fast')"),
            pytest.mark.xdist_group("numba"),  # compiled once
        ],
    ),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_flows_finish_when_the_case_says(path: Path) -> None:
    file = load_flows(str(path))
    _, text, _ = read_json(str(path))

    # What the issue of the network asks for; the times in the files are decimal.
    assert finish_times(file.links, file.flows) == pytest.approx(json.loads(text)["finish_s"], rel=1e-9)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_twice_the_bandwidth_takes_half_the_time(path: Path) -> None:
    file = load_flows(str(path))
    faster = [Pipe(bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s, latency_s=link.latency_s / 2) for link in file.links]
    sooner = [replace(flow, start_s=flow.start_s / 2) for flow in file.flows]

    assert finish_times(faster, sooner) == pytest.approx([time / 2 for time in finish_times(file.links, file.flows)], rel=1e-12)


@dataclass(frozen=True)
class Case:
    bandwidth_bytes_per_s: dict[str, float]
    flows: tuple[tuple[str, Flow], ...]
    """One letter for each link of the route."""
    finish_s: tuple[float, ...]


def flow(size_bytes: float, start_s: float = 0.0, weight: float = 1.0, cap: float = float("inf")) -> Flow:
    return Flow(route=(), size_bytes=size_bytes, start_s=start_s, weight=weight, cap_bytes_per_s=cap)


CASES = {
    # The second departs at 2 s, having had 0.5; the first then has 1 GB left and the whole link.
    "what departs leaves its share to the rest": Case({"a": 1e9}, (("a", flow(2e9)), ("a", flow(1e9))), (3.0, 2.0)),
    # Weights 1 and 3: 0.25 and 0.75 GB/s, until the heavy one is through after 1 s.
    "a heavy flow beside a light one": Case({"a": 1e9}, (("a", flow(1e9)), ("a", flow(0.75e9, weight=3.0))), (1.75, 1.0)),
    # The capped flow takes 0.2 GB/s and leaves 0.8 to the other, which then is through; the cap still holds.
    "a capped flow": Case({"a": 1e9}, (("a", flow(1e9, cap=0.2e9)), ("a", flow(0.8e9))), (5.0, 1.0)),
    # Weights give 2/3 and 1/3; the cap of 0.5 comes first, and the light flow has the other half.
    "a cap below the weighted share": Case({"a": 1e9}, (("a", flow(0.5e9, weight=2.0, cap=0.5e9)), ("a", flow(0.5e9))), (1.0, 1.0)),
    # On b the weighted long flow would have 4/5 of 10; a holds it to 1 GB/s, and the rest of b is 9 GB/s.
    "a weight is of no use where another link is full": Case(
        {"a": 1e9, "b": 10e9}, (("ab", flow(1e9, weight=4.0)), ("b", flow(9e9))), (1.0, 1.0)
    ),
    # Nothing to move: the latency alone, which is zero here.
    "a flow without bytes": Case({"a": 1e9}, (("a", flow(0.0, 3.0)), ("a", flow(1e9))), (3.0, 1.0)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_weights_caps_and_departures_do_what_follows_by_hand(case: Case) -> None:
    names = list(case.bandwidth_bytes_per_s)
    links = [Pipe(bandwidth_bytes_per_s=rate, latency_s=0.0) for rate in case.bandwidth_bytes_per_s.values()]
    flows = [replace(flow, route=tuple(names.index(name) for name in route)) for route, flow in case.flows]

    # Round-off: a handful of additions of times of a few seconds.
    assert finish_times(links, flows) == pytest.approx(case.finish_s, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(("hosts_per_leaf", "n_spines"), [(8, 4), (4, 2)])
def test_an_all_to_all_on_an_oversubscribed_leaf_spine_takes_what_its_tiers_allow(
    hosts_per_leaf: int, n_spines: int, *, compiled: bool
) -> None:
    n_leaves, bandwidth, latency_s, size_bytes = 8, 50e9, 1e-6, 1e6
    n_hosts = n_leaves * hosts_per_leaf
    leaf_up, spine_down = 2 * n_hosts, 2 * n_hosts + n_leaves * n_spines
    links = [Pipe(bandwidth_bytes_per_s=bandwidth, latency_s=latency_s)] * (2 * n_hosts + 2 * n_leaves * n_spines)
    flows: list[Flow] = []
    far: list[bool] = []
    for a in range(n_hosts):
        for b in range(n_hosts):
            if a != b:
                up, down, spine = a // hosts_per_leaf, b // hosts_per_leaf, (a + b) % n_spines
                between = (leaf_up + up * n_spines + spine, spine_down + down * n_spines + spine) if up != down else ()
                flows.append(Flow(route=(a, *between, n_hosts + b), size_bytes=size_bytes, start_s=0.0))
                far.append(up != down)

    found = finish_times(links, flows, compiled=compiled)

    # From the second latency on: far flows share the links of a leaf, near ones what those leave of a host's link.
    n_far, n_near = n_hosts - hosts_per_leaf, hosts_per_leaf - 1
    far_rate = bandwidth * n_spines / (hosts_per_leaf * n_far)
    near_rate = (bandwidth - n_far * far_rate) / n_near
    near_s = 4 * latency_s + (size_bytes - 2 * latency_s * bandwidth / n_near) / near_rate
    expected = [4 * latency_s + size_bytes / far_rate if is_far else near_s for is_far in far]
    assert found == pytest.approx(expected, rel=1e-12)
