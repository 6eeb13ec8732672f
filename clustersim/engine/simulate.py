"""From a Program and a cluster to a Timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from clustersim.engine.pricing import Pricing
from clustersim.engine.replay import Clock, Replay
from clustersim.engine.traffic import Traffic
from clustersim.hardware.calibration import Calibration
from clustersim.kernels.model import KernelModel
from clustersim.network.fluid import FluidNetwork
from clustersim.program.program import Program
from clustersim.program.tasks import Compute
from clustersim.topology.cluster import TIERS, Cluster
from clustersim.trace.timeline import EngineStats, LinkUse, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a Program is replayed on."""

    cluster: Cluster
    kernels: KernelModel
    calibration: Calibration


def replay(program: Program, machine: Machine) -> tuple[Timeline, tuple[str, ...]]:
    """Replay a program and return its timeline, and the names of groups that lie unevenly in their domains.

    Each rank class is replayed once; its collectives and transfers stand for those of all its ranks, which share the links of the
    real wiring.

    Raises
    ------
    DeadlockError
        When the program waits for itself.
    """
    began_s = perf_counter()
    traffic = Traffic(cluster=machine.cluster, calibration=machine.calibration.network)
    traffic.register(program)
    network = traffic.network()
    pricing = Pricing(kernels=machine.kernels, traffic=traffic, network=network, step_host_s=machine.calibration.launch.step_s)
    run = Replay(
        program=program, traffic=traffic, pricing=pricing, clock=Clock(network=network), contended=traffic.contended(program, network)
    )
    step_time_s = run.run()
    spans = sorted(run.spans, key=lambda span: (span.rank_class, span.stream, span.start_s, span.end_s))
    n_ranks = sum(rank_class.n_ranks for rank_class in program.rank_classes)
    stats = EngineStats(
        events=run.clock.n_events,
        ranks=n_ranks,
        rank_classes=len(program.rank_classes),
        folded=n_ranks > len(program.rank_classes),
        wall_s=perf_counter() - began_s,
    )
    links = link_use(program, machine, traffic=network, pricing=pricing, contended=run.contended)
    timeline = Timeline(rank_classes=program.rank_classes, spans=tuple(spans), step_time_s=step_time_s, links=links, engine=stats)
    return timeline, traffic.uneven()


def link_use(
    program: Program, machine: Machine, *, traffic: FluidNetwork, pricing: Pricing, contended: frozenset[int]
) -> tuple[LinkUse, ...]:
    """Return bytes, busy time and peak of every cell of links.

    What ran beside the passes is in the network's account; collectives inside passes on links of their own were never put on the
    network, and are added from the prices of the passes.
    """
    cells = traffic.cells
    carried_bytes = np.zeros(len(cells.first_link))
    busy_s = np.zeros_like(carried_bytes)
    peak = np.zeros_like(carried_bytes)
    for kinds, seconds in traffic.occupancy().items():
        rates = traffic.rates(kinds)
        load = sum(cells.flows[:, kind] * rates[kind] for kind in kinds)
        carried_bytes += load * seconds
        busy_s += np.where(load > 0.0, seconds, 0.0)
        peak = np.maximum(peak, load)
    for (kind, rate), seconds in _inline_flights(program, pricing, contended).items():
        load = cells.flows[:, kind] * rate
        carried_bytes += load * seconds
        busy_s += np.where(load > 0.0, seconds, 0.0)
        peak = np.maximum(peak, load)
    cluster = machine.cluster
    nominal = cluster.bandwidth_bytes_per_s
    return tuple(
        LinkUse(
            tier=TIERS[int(cluster.tier_index[link])],
            name=cluster.links[link].name,
            n_links=int(cells.n_links[cell]),
            bandwidth_bytes_per_s=float(nominal[link]),
            bytes=float(carried_bytes[cell]),
            busy_s=float(busy_s[cell]),
            peak_utilisation=float(peak[cell] / nominal[link]),
        )
        for cell, link in enumerate(cells.first_link)
    )


def _inline_flights(program: Program, pricing: Pricing, contended: frozenset[int]) -> Mapping[tuple[int, float], float]:
    flights: dict[tuple[int, float], float] = {}
    for index, task in enumerate(program.tasks):
        if not isinstance(task.action, Compute) or index in contended:
            continue
        for key, seconds in pricing.price(task.action).flights.items():
            flights[key] = flights.get(key, 0.0) + seconds
    return flights
