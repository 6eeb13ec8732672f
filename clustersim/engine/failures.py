"""Replay weeks of training with failures: what interrupts a job, what it loses, and how it comes back."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, fields
from math import floor, inf
from typing import TYPE_CHECKING, Final

import simpy

from clustersim.engine.world import Process, World
from clustersim.reliability import Shares, Upkeep

if TYPE_CHECKING:
    from numpy.random import Generator as Random
    from simpy.events import Event

Attempt = Generator["Event", object, bool]

_FAILURE: Final = "failure"
_GROWTH: Final = "growth"
_TINY: Final = 1e-9
"""Share of the work below which nothing is left of it: round-off of many sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTraining:
    """Breakdown of the time of one training, in seconds."""

    wall_s: float
    useful_s: float
    checkpoint_s: float
    lost_work_s: float
    detection_s: float
    restart_s: float
    waiting_s: float
    shrunk_s: float
    interruptions: int
    node_failures: int

    @property
    def shares(self) -> Shares:
        """The same as shares of all of it."""
        return Shares(**{part.name: getattr(self, f"{part.name}_s") / self.wall_s for part in fields(Shares)})


def replay_training(upkeep: Upkeep, work_s: float, random: Random) -> SimulatedTraining:
    """Return the parts of the time until a given amount of work is done.

    Interruptions are a Poisson process in simulated time; what the job does between two of them, checkpoint by checkpoint, is worked out at
    once, so that a replay takes as long as there are interruptions, however often the state is saved.

    Parameters
    ----------
    upkeep
        Failures, checkpoints and what follows a failure.
    work_s
        Seconds of training at full size.
    random
        Draws when something fails, and what.
    """
    job = _Job(upkeep, work_s, random)
    return job.finish()


class _Job:
    """A job and its nodes; times are booked as they pass."""

    def __init__(self, upkeep: Upkeep, work_s: float, random: Random) -> None:
        self._failures, self._points, self._recovery = upkeep.failures, upkeep.checkpoints, upkeep.recovery
        self._random = random
        self._work_s, self._left_s = work_s, work_s
        self._booked = dict.fromkeys((part.name for part in fields(Shares)), 0.0)
        self._interruptions = self._node_failures = 0
        self._in_repair = 0
        self._held = False
        """Whether nodes are in use, so that they can fail."""
        self._running = False
        self._world = World()
        self._repaired = self._world.event()
        self._training = self._world.process(self._train())
        if self._failures.mtti_s < inf:
            self._await_failure()

    def finish(self) -> SimulatedTraining:
        """Train until all work is done."""
        self._world.run(until=self._training)
        booked = {f"{name}_s": seconds for name, seconds in self._booked.items()}
        return SimulatedTraining(wall_s=self._world.now, interruptions=self._interruptions, node_failures=self._node_failures, **booked)

    @property
    def _replicas(self) -> float:
        """Share of the job for which there are nodes."""
        recovery = self._recovery
        if recovery.spares is None:
            return 1.0
        healthy = self._failures.n_nodes + recovery.spares - self._in_repair
        if healthy >= self._failures.n_nodes:
            return 1.0
        if not recovery.shrinks or recovery.replica_nodes is None:
            return 0.0
        return max(floor(healthy / recovery.replica_nodes), 0) / recovery.n_replicas

    def _await_failure(self) -> None:
        self._world.when(self._world.timeout(float(self._random.exponential(self._failures.mtti_s))), self._fail)

    def _fail(self) -> None:
        breaks_node = bool(self._random.random() < self._failures.node_rate * self._failures.mtti_s)
        if self._held:
            self._interruptions += 1
            self._node_failures += breaks_node
            if breaks_node and self._recovery.spares is not None:
                self._in_repair += 1
                self._world.when(self._world.timeout(self._recovery.repair_s), self._repair)
            self._training.interrupt(_FAILURE)
        self._await_failure()

    def _repair(self) -> None:
        before = self._replicas
        self._in_repair -= 1
        if self._running and self._replicas > before:
            self._training.interrupt(_GROWTH)
        if not self._held:
            self._repaired.succeed()
            self._repaired = self._world.event()

    def _train(self) -> Process:
        self._held = True
        while self._left_s > _TINY * self._work_s:
            size = self._replicas
            begun_s = self._world.now
            self._running = True
            try:
                yield self._world.timeout(self._needed_s(size))
                self._book_run(self._world.now - begun_s, size, saved=True)
                self._left_s = 0.0
            except simpy.Interrupt as interrupt:
                elapsed_s = self._world.now - begun_s
                self._running = False
                saved = interrupt.cause == _GROWTH and (yield from self._save())
                self._book_run(elapsed_s, size, saved=saved)
                if not (saved and (yield from self._restart())):
                    yield from self._recover()

    def _needed_s(self, size: float) -> float:
        """Return how long the rest takes without an interruption, a checkpoint after each full interval but for the last."""
        training_s = self._left_s / size
        stalls = max(floor(training_s / self._points.trained_s * (1 - _TINY)), 0)
        return training_s + stalls * self._points.stall_s

    def _book_run(self, elapsed_s: float, size: float, *, saved: bool) -> None:
        """Book a run of some length: full cycles, and what came after the last checkpoint that can be read."""
        points = self._points
        readable_s = elapsed_s if saved else elapsed_s - points.behind_s
        cycles = max(floor(readable_s / points.cycle_s * (1 + _TINY)), 0)
        rest_s = max(elapsed_s - cycles * points.cycle_s, 0.0)
        trained_s = cycles * points.trained_s + (rest_s if saved else 0.0)
        self._booked["useful"] += trained_s * size
        self._booked["shrunk"] += trained_s * (1.0 - size)
        self._booked["checkpoint"] += cycles * points.stall_s
        self._booked["lost_work"] += 0.0 if saved else rest_s
        self._left_s -= trained_s * size

    def _save(self) -> Attempt:
        """Save before a restart with the nodes that are back; return whether nothing failed meanwhile."""
        saving_s, begun_s = self._points.stall_s + self._points.behind_s, self._world.now
        try:
            yield self._world.timeout(saving_s)
        except simpy.Interrupt:
            self._booked["lost_work"] += self._world.now - begun_s
            return False
        self._booked["checkpoint"] += saving_s
        return True

    def _restart(self) -> Attempt:
        """Restart, and return whether nothing failed meanwhile."""
        begun_s = self._world.now
        try:
            yield self._world.timeout(self._recovery.restart_s)
        except simpy.Interrupt:
            self._booked["restart"] += self._world.now - begun_s
            return False
        self._booked["restart"] += self._recovery.restart_s
        return True

    def _recover(self) -> Process:
        """Notice, wait for nodes where some are missing, restart; from the beginning if something fails meanwhile."""
        while True:
            yield from self._pass(self._recovery.detection_s)
            self._booked["detection"] += self._recovery.detection_s
            yield from self._await_nodes()
            if (yield from self._restart()):
                return

    def _await_nodes(self) -> Process:
        begun_s = self._world.now
        self._held = False
        while self._replicas <= 0.0:
            yield self._repaired
        self._held = True
        self._booked["waiting"] += self._world.now - begun_s

    def _pass(self, duration_s: float) -> Process:
        """Let time pass; what fails meanwhile is noticed together with what has failed before."""
        end_s = self._world.now + duration_s
        while self._world.now < end_s:
            try:
                yield self._world.timeout(end_s - self._world.now)
            except simpy.Interrupt:
                continue
