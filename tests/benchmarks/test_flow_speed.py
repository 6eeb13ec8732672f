"""64 hosts, 4032 flows of random size: the network model beside SimGrid's, in one run, on the same flows and with the same result."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from clustersim.network.flow_times import Flow, Pipe, finish_times
from clustersim.network.following import numba_is_installed
from tests.benchmarks.claims import best_s, held

SYSTEM_PYTHON: Final = Path("/usr/bin/python3")
"""Folder of the binding in Debian's package python3-simgrid."""
SCRIPT: Final = Path(__file__).parent / "simgrid_flows.py"
ROUNDS: Final = 3
N_HOSTS: Final = 64
PER_LEAF: Final = 8
N_SPINES: Final = 4
BANDWIDTH_BYTES_PER_S: Final = 50e9
LATENCY_S: Final = 1e-6


@cache
def case() -> tuple[tuple[str, ...], tuple[Pipe, ...], tuple[Flow, ...]]:
    """Return names, links and flows: every host sends to every other, 0.1 to 2 MB, over a spine that the pair decides on."""
    n_leaves = N_HOSTS // PER_LEAF
    ends = [f"{way}{host}" for way in ("up", "down") for host in range(N_HOSTS)]
    trunks = [f"{way}{leaf}.{spine}" for way in ("leaf", "spine") for leaf in range(n_leaves) for spine in range(N_SPINES)]
    names = (*ends, *trunks)
    number = {name: place for place, name in enumerate(names)}
    generator = np.random.default_rng(20261121)
    flows: list[Flow] = []
    for a in range(N_HOSTS):
        for b in range(N_HOSTS):
            if a != b:
                spine = (a + b) % N_SPINES
                between = [f"leaf{a // PER_LEAF}.{spine}", f"spine{b // PER_LEAF}.{spine}"] if a // PER_LEAF != b // PER_LEAF else []
                route = tuple(number[name] for name in (f"up{a}", *between, f"down{b}"))
                # Whole bytes: the other simulator counts in them.
                flows.append(Flow(route=route, size_bytes=float(generator.integers(100_000, 2_000_000)), start_s=0.0))
    return names, (Pipe(bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S, latency_s=LATENCY_S),) * len(names), tuple(flows)


@cache
def simgrid_case() -> tuple[str, tuple[int, ...]]:
    """Return the case as the script reads it, and which flow stands at which place of it: they are in the order of their start."""
    names, links, flows = case()
    starts_s = [flow.start_s + sum(links[link].latency_s for link in flow.route) for flow in flows]
    order = sorted(range(len(flows)), key=starts_s.__getitem__)
    document = {
        "n_hosts": N_HOSTS,
        "links": [[name, link.bandwidth_bytes_per_s] for name, link in zip(names, links, strict=True)],
        "flows": [
            {
                "ends": [flows[index].route[0], flows[index].route[-1] - N_HOSTS],
                "route": [names[link] for link in flows[index].route],
                "bytes": int(flows[index].size_bytes),
                "start_s": starts_s[index],
            }
            for index in order
        ],
    }
    return json.dumps(document), tuple(order)


def simgrid(*options: str) -> tuple[float, list[float]]:
    """Return the least wall time of some rounds, and the finish times."""
    document, order = simgrid_case()
    command = [str(SYSTEM_PYTHON), str(SCRIPT), *options]
    rounds = [json.loads(subprocess.run(command, input=document, capture_output=True, text=True, check=True).stdout) for _ in range(ROUNDS)]
    finish_s = [0.0] * len(order)
    for place, index in enumerate(order):
        finish_s[index] = rounds[0]["finish_s"][place]
    return min(float(one["wall_s"]) for one in rounds), finish_s


@cache
def simgrid_wall_s() -> tuple[float, float]:
    """Return the wall time of SimGrid as it is installed, and with the option that suits this case best."""
    found = (
        subprocess.run([str(SYSTEM_PYTHON), "-c", "import simgrid"], capture_output=True, check=False) if SYSTEM_PYTHON.exists() else None
    )
    if found is None or found.returncode:
        pytest.skip("SimGrid's Python binding is not installed (Debian: python3-simgrid)")
    as_installed, finish_s = simgrid()
    at_best, _ = simgrid("network/optim:Full")
    _, links, flows = case()
    # SimGrid rounds every step of a run of milliseconds to 1e-13 s.
    assert finish_times(links, flows) == pytest.approx(finish_s, rel=1e-8)
    return as_installed, at_best


def timed(benchmark: BenchmarkFixture, *, compiled: bool) -> tuple[float, float]:
    """Return how many times faster than SimGrid the flows are simulated: than SimGrid as installed, and at its best."""
    as_installed_s, at_best_s = simgrid_wall_s()
    _, links, flows = case()
    # Enough of them for the compiled loops to be loaded, or compiled.
    finish_times(links, flows[:200], compiled=compiled)

    benchmark.pedantic(finish_times, (links, flows), {"compiled": compiled}, rounds=2 * ROUNDS)

    ours_s = best_s(benchmark)
    benchmark.extra_info |= {
        "simgrid_s": round(as_installed_s, 3),
        "simgrid_at_best_s": round(at_best_s, 3),
        "times_faster": round(as_installed_s / ours_s, 2),
        "times_faster_than_at_best": round(at_best_s / ours_s, 2),
    }
    return as_installed_s / ours_s, at_best_s / ours_s


def test_the_default_is_not_slower_than_simgrid(benchmark: BenchmarkFixture) -> None:
    than_installed, than_best = timed(benchmark, compiled=False)

    assert than_best >= 1.0
    assert held(benchmark, than_installed, 1.5, "times", better="more")


@pytest.mark.skipif(not numba_is_installed(), reason="numba is not installed (extra 'fast')")
def test_the_compiled_loops_are_five_times_as_fast_as_simgrid(benchmark: BenchmarkFixture) -> None:
    than_installed, than_best = timed(benchmark, compiled=True)

    assert held(benchmark, than_installed, 5.0, "times", better="more")
    # Five times here too on an idle machine; both are short enough for others on it to be felt.
    assert than_best >= 4.0
