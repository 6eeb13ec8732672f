"""From a Program and a cluster to a Timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from clustersim.collectives.library import Library
from clustersim.engine.background import Load, lay_loads, play
from clustersim.engine.jobs import OtherJob, Repeated
from clustersim.engine.links import link_cells, link_use
from clustersim.engine.pricing import Pricing
from clustersim.engine.replay import Clock, Replay
from clustersim.engine.traffic import Traffic
from clustersim.hardware.calibration import Calibration
from clustersim.kernels.model import KernelModel
from clustersim.network.levels import State
from clustersim.network.sharing import SharedNetwork
from clustersim.program.background import Background
from clustersim.program.program import Program
from clustersim.topology.cluster import Cluster
from clustersim.trace.timeline import EngineStats, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a Program is replayed on."""

    cluster: Cluster
    kernels: KernelModel
    calibration: Calibration


def replay(
    program: Program, machine: Machine, background: Sequence[Background] = (), *, others: Sequence[OtherJob] = ()
) -> tuple[Timeline, tuple[str, ...]]:
    """Replay a program and return its timeline, and the names of groups that lie unevenly in their domains.

    Each rank class is replayed once; its collectives and transfers stand for those of all its ranks, which share the links of the
    real wiring.

    Parameters
    ----------
    background
        Loads on links, for as long as the step lasts.
    others
        Jobs on other ranks of the cluster. They start with the program and repeat their steps until it has ended; the links carry their
        traffic too, and all else in the timeline is the program's.

    Raises
    ------
    DeadlockError
        When the program, or another job, waits for itself.
    """
    began_s = perf_counter()
    first, repeated, loads = _laid(program, machine, background, others)
    clock, network, traffic = first.clock, first.clock.network, first.traffic
    cells = link_cells(network)
    first.start(clock.stop if loads or repeated else lambda: None)
    for job in repeated:
        job.begin()
    for load in loads:
        play(load, clock)
    clock.environment.run()
    step_time_s = first.end_s()
    spans = sorted(first.spans, key=lambda span: (span.rank_class, span.stream, span.start_s, span.end_s))
    n_ranks = sum(rank_class.n_ranks for rank_class in program.rank_classes)
    stats = EngineStats(
        events=clock.n_events,
        ranks=n_ranks,
        rank_classes=len(program.rank_classes),
        folded=n_ranks > len(program.rank_classes),
        wall_s=perf_counter() - began_s,
    )
    runs = [first, *(job.replay for job in repeated)]
    links = link_use(machine.cluster, cells, network, _states(runs, step_time_s), _labels(runs, loads))
    timeline = Timeline(
        rank_classes=program.rank_classes,
        spans=tuple(spans),
        step_time_s=step_time_s,
        links=links,
        collectives=traffic.choices(),
        jobs=tuple(job.progress() for job in repeated),
        engine=stats,
    )
    return timeline, traffic.uneven()


def _laid(
    program: Program, machine: Machine, background: Sequence[Background], others: Sequence[OtherJob]
) -> tuple[Replay, tuple[Repeated, ...], tuple[Load, ...]]:
    """Return all that is to be replayed, on one clock and one network."""
    libraries = [Library(cluster=machine.cluster, calibration=machine.calibration.network) for _ in range(1 + len(others))]
    network = SharedNetwork(libraries[0].bandwidth_bytes_per_s, labels=machine.cluster.tier_index)
    names = ("", *(other.name for other in others))
    traffics = [Traffic(library=library, network=network, job=name) for library, name in zip(libraries, names, strict=True)]
    programs = (program, *(other.program for other in others))
    for traffic, each in zip(traffics, programs, strict=True):
        traffic.register(each)
    loads = lay_loads(background, network, libraries[0].bandwidth_bytes_per_s)
    common, clock = network.wiring.meets(), Clock(network=network)

    def run(place: int, kernels: KernelModel) -> Replay:
        traffic = traffics[place]
        strangers = [kind for other in traffics if other is not traffic for kind in other.all_kinds()]
        return Replay(
            program=programs[place],
            traffic=traffic,
            pricing=Pricing(kernels=kernels, traffic=traffic, network=network, step_host_s=machine.calibration.launch.step_s),
            clock=clock,
            contended=traffic.contended(programs[place], common, [*strangers, *(load.kind for load in loads)]),
            records=place == 0,
        )

    repeated = tuple(Repeated(name=other.name, replay=run(1 + place, other.kernels)) for place, other in enumerate(others))
    return run(0, machine.kernels), repeated, loads


def _states(runs: Sequence[Replay], until_s: float) -> Mapping[State, float]:
    """Return for how many seconds each combination of kinds was in flight.

    What ran beside the passes is in the network's account; collectives inside passes on links of their own were never put on the
    network, and are added from the prices of the passes.
    """
    states = dict(runs[0].clock.network.occupancy())
    for run in runs:
        for price, times in run.priced(until_s):
            for state, seconds in price.carried.items():
                states[state] = states.get(state, 0.0) + times * seconds
    return states


def _labels(runs: Sequence[Replay], loads: Iterable[Load]) -> Mapping[int, tuple[str, ...]]:
    """Return, for each kind of flow, the names of what puts it on the links."""
    names: dict[int, dict[str, None]] = {}
    for run in runs:
        for kind, labels in run.traffic.labels().items():
            names.setdefault(kind, {}).update(dict.fromkeys(labels))
    for load in loads:
        names.setdefault(load.kind, {})[load.background.name] = None
    return {kind: tuple(found) for kind, found in names.items()}
