"""From a Program and a cluster to a Timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Final

import numpy as np

from clustersim.collectives.library import Library
from clustersim.engine.alone import Carried
from clustersim.engine.background_traffic import Load, link_labels, play, prepare_loads
from clustersim.engine.clock import Clock
from clustersim.engine.contention import Contention
from clustersim.engine.folding import Folding, Regard, Wires, fold
from clustersim.engine.jobs import Allocation, Job, check_programs, to_the_end
from clustersim.engine.link_use import link_classes_of, link_use
from clustersim.engine.pace import Assigned, Pace, StepVariation, Timing
from clustersim.engine.passes import USUAL, ReplaySettings
from clustersim.engine.prepared import Prepared
from clustersim.engine.pricing import Pricing
from clustersim.engine.program_graph import Graph, unrolled
from clustersim.engine.replay import Replay
from clustersim.engine.spread import spread_of
from clustersim.engine.traffic import Traffic
from clustersim.engine.world import Process
from clustersim.hardware.calibration import Calibration
from clustersim.program.program import Background, Program
from clustersim.program.tasks import Collective
from clustersim.progress import phase
from clustersim.topology.cluster import IntArray, Rotation
from clustersim.topology.wired import Cluster
from clustersim.trace.columns import Spans
from clustersim.trace.step_log import StepLog
from clustersim.trace.timeline import EngineStats, LinkUse, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Cluster, kernels and calibration of a replay."""

    cluster: Cluster
    kernels: Timing
    calibration: Calibration
    paces: tuple[Pace, ...] = ()
    """Pace of each rank class of the program; empty where all are equal, with ``kernels``."""
    pace_of: IntArray | None = None
    """Index into ``paces`` of each rank of the cluster; None where ``paces`` has one for each class."""
    folding: Folding = "classes"
    settings: ReplaySettings = USUAL


def replay(
    program: Program, machine: Machine, background: Sequence[Background] = (), *, others: Sequence[Job] = ()
) -> tuple[Timeline, tuple[str, ...]]:
    """Replay one step of a program and return its timeline, and the names of groups that lie unevenly in their domains.

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
    jobs = prepare(program, machine, background, others=others).replayed()
    alone = jobs.alone and jobs.alone.timeline(jobs.alone.first.end_s())
    return replace(jobs.timeline(jobs.first.end_s()), alone=alone), jobs.first.traffic.uneven()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedJobs:
    """All that is to be replayed in one world, and on one network."""

    cluster: Cluster
    first: Replay
    contention: Contention
    """Tasks of the first program that can be contended."""
    others: tuple[Allocation, ...]
    loads: tuple[Load, ...]
    rotation: Rotation | None
    """Node symmetry by which the program was folded."""
    began_s: float
    """By the wall clock."""
    settings: ReplaySettings
    regard: Regard = "all"
    alone: PreparedJobs | None = None
    """The same step before any task was contended; None where none is, and where it is not asked for."""

    def replayed(self) -> PreparedJobs:
        """Return the same after one step of the program."""
        if self.loads or self.others or self.first.contended or not self.first.traffic.network.shares:
            self.go(self._step())
            return self
        with phase("replay"):
            first = collapsed(self.first, self.contention, self.settings.limit_s)
        return replace(self, first=first, alone=self if self.settings.varies and first.contended else None)

    def go(self, first: Process) -> None:
        """Start all jobs, and advance time until the first has ended."""
        clock = self.first.clock
        job = clock.world.process(to_the_end(first, clock.world))
        for process in (*(other.run() for other in self.others), *(play(load, clock) for load in self.loads)):
            clock.world.process(process)
        with phase("replay"):
            clock.world.run(until=job)
        clock.close()

    def _step(self) -> Process:
        yield self.first.start()

    def timeline(
        self, duration_s: float, steps: StepLog | None = None, *, added: Carried | None = None, spans: Spans | None = None
    ) -> Timeline:
        """Return what happened; what links carried is that of a step on average.

        Parameters
        ----------
        added
            Traffic besides that which was replayed.
        spans
            Those of the first program, where they are known.
        """
        program, clock = self.first.program, self.first.clock
        n_ranks = sum(rank_class.n_ranks for rank_class in program.rank_classes)
        n_steps = 1 if steps is None else steps.n_steps
        runs = [self.first, *(run for other in self.others for run in other.replays)]
        links: tuple[LinkUse, ...] = ()
        if self.settings.links:
            carried = _carried(runs, duration_s, added or Carried()).times(1.0 / n_steps)
            link_classes = link_classes_of(clock.network, self.rotation)
            links = link_use(self.cluster, link_classes, clock.network, carried, _labels(runs, self.loads))
        stats = EngineStats(
            events=clock.n_events,
            n_tasks=sum(run.n_tasks for run in runs),
            ranks=n_ranks,
            rank_classes=len(program.rank_classes),
            folded=n_ranks > len(program.rank_classes),
            passes=self._passes(),
            wall_s=perf_counter() - self.began_s,
            told_apart=self.regard,
            spread=spread_of(self.first) if self.settings.varies and not (self.loads or self.others) else 0.0,
        )
        return Timeline(
            rank_classes=program.rank_classes,
            spans=self.first.spans() if spans is None else spans,
            step_time_s=duration_s / n_steps,
            links=links,
            collectives=self.first.traffic.choices(),
            jobs=tuple(other.progress() for other in self.others),
            engine=stats,
            steps=steps,
        )

    def _passes(self) -> tuple[str, ...]:
        """Return the passes that had an effect."""
        program = self.first.program
        folds = sum(rank_class.n_ranks for rank_class in program.rank_classes) > len(program.rank_classes)
        collapses = len(self.first.contended) < len(program.tasks)
        return tuple(name for name, has_effect in (("fold", folds), ("collapse", collapses)) if has_effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """Settings of a replay in which each rank class begins its next step when it has ended one, whatever the others do."""

    jitter: StepVariation | None = None
    operations: Sequence[Collective] = ()
    """Collectives that the policy puts on the network."""
    overlaps: bool = True
    """False for a single step, so that steps cannot overlap."""


def _library(machine: Machine) -> Library:
    calibration = machine.calibration
    return Library(cluster=machine.cluster, calibration=calibration.network, waited_send_s=calibration.launch.waited_send_s)


def prepare(
    program: Program, machine: Machine, background: Sequence[Background], *, others: Sequence[Job], rolling: Rolling | None = None
) -> PreparedJobs:
    """Return all that is to be replayed, ready to start."""
    began_s, settings = perf_counter(), machine.settings
    check_programs(program, others, machine.cluster.n_ranks)
    owned = [(other, each) for other in others for each in other.programs]
    wires = Wires(
        libraries=tuple(_library(machine) for _ in range(1 + len(owned))),
        names=("", *(other.name for other, _ in owned)),
        labels=link_labels(background, machine.cluster),
        loaded=np.array([link for load in background for link in load.link_ids], dtype=np.int64),
        regard=settings.regard,
    )
    given = (program, *(each for _, each in owned))
    with phase("fold"):
        wired = fold(given, wires, (machine.pace_of, *(None for _ in owned)), machine.folding, closed=not (rolling and rolling.operations))
    programs, traffics, network = wired.programs, wired.traffics, wired.network
    network.shares = settings.contends
    # Updates come between the passes of any class, as other traffic does.
    own = [flow_class for operation in (rolling.operations if rolling else ()) for flow_class in traffics[0].flow_classes(operation)]
    loads = prepare_loads(background, network, wires.libraries[0].bandwidth_bytes_per_s)
    common, clock = network.wiring.meets(), Clock(network=network, log=None if rolling else [])

    graphs = [Graph(each) for each in programs]

    def contention(place: int, of: Graph) -> Contention:
        theirs = [flow_class for other in traffics if other is not traffics[place] for flow_class in other.all_classes()]
        return traffics[place].contention(of, common, [*theirs, *own, *(load.flow_class for load in loads)])

    def run(place: int, prices: Sequence[Pricing], contended: frozenset[int], jitter: StepVariation | None = None) -> Replay:
        prepared = Prepared(graph=graphs[place], traffic=traffics[place], prices=prices)
        if not settings.contends:
            contended = frozenset()
        elif not settings.passes.collapse:
            contended = frozenset(range(len(programs[place].tasks)))
        return Replay(prepared=prepared, clock=clock, contended=contended, records=place == 0, jitter=jitter)

    replays = [
        run(place, _even(programs[place], traffics[place], other.kernels, machine), contention(place, graphs[place]).all())
        for place, (other, _) in enumerate(owned, start=1)
    ]
    met = contention(0, Graph(unrolled(graphs[0])) if rolling and rolling.overlaps else graphs[0])
    contended = frozenset(index % len(programs[0].tasks) for index in met.all()) if rolling or others or loads else frozenset[int]()
    jitter = _assigned(rolling.jitter, machine, programs[0]) if rolling else None
    return PreparedJobs(
        cluster=machine.cluster,
        first=run(0, _prices(programs[0], traffics[0], machine), contended, jitter),
        contention=met,
        others=tuple(
            Allocation(job=job, replays=[each for each, (other, _) in zip(replays, owned, strict=True) if other is job]) for job in others
        ),
        loads=loads,
        rotation=wired.rotation,
        began_s=began_s,
        regard=wired.regard,
        settings=settings,
    )


def _assigned(jitter: StepVariation | None, machine: Machine, program: Program) -> StepVariation | None:
    """Return a jitter by the classes of a program, which may be parts of its own."""
    if jitter is None or machine.pace_of is None:
        return jitter
    return Assigned(jitter, tuple(int(machine.pace_of[rank_class.representative_rank]) for rank_class in program.rank_classes))


def _even(program: Program, traffic: Traffic, kernels: Timing, machine: Machine) -> Sequence[Pricing]:
    """Return the same prices for all rank classes."""
    pricing = Pricing(kernels=kernels, traffic=traffic, network=traffic.network, step_host_s=machine.calibration.launch.step_s)
    return [pricing] * len(program.rank_classes)


def _prices(program: Program, traffic: Traffic, machine: Machine) -> Sequence[Pricing]:
    """Return the prices of each rank class; classes of one pace share them."""
    if not machine.paces:
        return _even(program, traffic, machine.kernels, machine)
    paces = machine.paces
    if machine.pace_of is not None:
        paces = tuple(paces[int(machine.pace_of[rank_class.representative_rank])] for rank_class in program.rank_classes)
    assert len(paces) == len(program.rank_classes)
    known: dict[tuple[int, float, float], Pricing] = {}
    prices: list[Pricing] = []
    for pace in paces:
        step_host_s = machine.calibration.launch.step_s if pace.step_host_s is None else pace.step_host_s
        key = id(pace.kernels), pace.slowdown, step_host_s
        if key not in known:
            known[key] = Pricing(
                kernels=pace.kernels, traffic=traffic, network=traffic.network, step_host_s=step_host_s, slowdown=pace.slowdown
            )
        prices.append(known[key])
    return prices


def _carried(runs: Sequence[Replay], until_s: float, added: Carried) -> Carried:
    """Return all traffic: that which the network has accounts of, that of uncontended tasks by their prices, and what is added."""
    network = runs[0].clock.network
    found = Carried(seconds=dict(network.occupancy()), bytes=dict(network.moved_bytes()))
    for run in runs:
        for carried, times in run.priced(until_s):
            found.add(carried, times)
    found.add(added)
    return found


def _labels(runs: Sequence[Replay], loads: Iterable[Load]) -> Mapping[int, tuple[str, ...]]:
    """Return, for each flow class, the names of what puts it on the links."""
    names: dict[int, dict[str, None]] = {}
    for run in runs:
        for flow_class, labels in run.traffic.labels().items():
            names.setdefault(flow_class, {}).update(dict.fromkeys(labels))
    for load in loads:
        names.setdefault(load.flow_class, {})[load.background.name] = None
    return {flow_class: tuple(found) for flow_class, found in names.items()}


ROUNDS: Final = 4
"""Replays after which all tasks that share links with others are taken to be contended."""

MANY: Final = 0.5
"""Share of tasks that meet others from which all that share links are taken to be contended at once."""


def collapsed(replay: Replay, contention: Contention, limit_s: float = inf) -> Replay:
    """Return a finished replay of one step in which only contended tasks passed through simulated time.

    First every task is taken to be alone. Where no two tasks that share a link were in progress at the same time, that is exact: the first
    moment at which it were otherwise would have shown them together. Otherwise those tasks go through the network in the next round, with
    the tasks that they then meet in the one after it. Where most tasks meet others, all that can go there at once.

    Parameters
    ----------
    replay
        Replay of a program that has the network to itself; it has not started.
    contention
        Tasks that could meet each other.
    limit_s
        Step time without contention that is answer enough.
    """
    for number in range(ROUNDS):
        replay.run()
        if number == 0 and limit_s < inf and replay.end_s() >= limit_s:
            return replay
        met = contention.meetings(replay.start_s, replay.ended_s)
        if met <= replay.contended:
            return replay
        if len(met) > MANY * len(replay.ended_s):
            break
        replay = _again(replay, replay.contended | met)
    return _again(replay, contention.all()).run()


def _again(replay: Replay, contended: frozenset[int]) -> Replay:
    """Return a replay with other tasks on the network, which has not started."""
    clock = Clock(network=replay.clock.network.emptied(), n_events=replay.clock.n_events, log=[])
    return Replay(prepared=replay.prepared, clock=clock, contended=contended)
