"""Replay a Program in simulated time: the only place where time passes, and the only one that knows SimPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import simpy

from clustersim.engine.contention import deadlock_message
from clustersim.engine.expanded import Stepper
from clustersim.engine.pricing import Pricing, exposed_pairs
from clustersim.engine.traffic import Traffic
from clustersim.errors import DeadlockError
from clustersim.network.fluid import FluidNetwork
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Communicate, Compute, Task, Transfer
from clustersim.trace.timeline import Span


@dataclass(slots=True)
class Clock:
    """SimPy's environment, with callbacks instead of processes, and the one timer of the network."""

    network: FluidNetwork
    environment: simpy.Environment = field(default_factory=simpy.Environment)
    n_events: int = 0
    _landed: dict[int, Callable[[], None]] = field(default_factory=dict[int, Callable[[], None]])
    _n_flows: int = 0
    _dirty: bool = False
    _version: int = 0

    @property
    def now_s(self) -> float:
        """Simulated time."""
        return float(self.environment.now)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` in ``delay_s`` seconds."""

        def fire(_: simpy.Event) -> None:
            self.n_events += 1
            action()

        timeout: simpy.Event = self.environment.timeout(delay_s)
        # SimPy types its callbacks loosely.
        timeout.callbacks.append(fire)  # pyright: ignore[reportUnknownMemberType]

    def fly(self, kind: int, *, latency_s: float, size_bytes: float, landed: Callable[[], None]) -> None:
        """Wait for the latency, then move ``size_bytes`` on each flow of the kind, then call ``landed``."""
        if size_bytes <= 0.0:
            self.after(latency_s, landed)
            return

        def take_off() -> None:
            self.network.advance(self.now_s)
            flow = self._n_flows
            self._n_flows += 1
            self._landed[flow] = landed
            self.network.start(flow, kind, size_bytes)
            self._touch()

        self.after(latency_s, take_off)

    def _touch(self) -> None:
        # All changes of one instant are solved once, behind the events of that instant.
        if not self._dirty:
            self._dirty = True
            self.after(0.0, self._solve)

    def _solve(self) -> None:
        self._dirty = False
        self.network.share()
        self._version += 1
        version, end_s = self._version, self.network.next_end_s()
        if end_s < float("inf"):
            self.after(max(0.0, end_s - self.now_s), lambda: self._wake(version))

    def _wake(self, version: int) -> None:
        if version != self._version:
            return
        self.network.advance(self.now_s)
        for flow in self.network.finished():
            self._landed.pop(flow)()
        self._touch()


@dataclass(slots=True)
class Replay:
    """Runs every task when those it waits for have ended, and writes down when."""

    program: Program
    traffic: Traffic
    pricing: Pricing
    clock: Clock
    contended: frozenset[int]
    """Passes to be replayed item by item."""
    spans: list[Span] = field(default_factory=list[Span])
    _waiting: list[int] = field(default_factory=list[int])
    _followers: list[list[int]] = field(default_factory=list[list[int]])
    _ended: list[bool] = field(default_factory=list[bool])

    def run(self) -> float:
        """Replay to the end and return the step time in seconds.

        Raises
        ------
        DeadlockError
            When tasks are left that wait for each other; it names the first of them and what they wait for.
        """
        tasks = self.program.tasks
        self._waiting = [len(task.after) for task in tasks]
        self._followers = [[] for _ in tasks]
        self._ended = [False] * len(tasks)
        for index, task in enumerate(tasks):
            for earlier in task.after:
                self._followers[earlier].append(index)
        # Listed first: a task that ends at once starts those that wait for it.
        for index in [index for index, count in enumerate(self._waiting) if count == 0]:
            self._start(index)
        self.clock.environment.run()
        if not all(self._ended):
            raise DeadlockError(deadlock_message(self.program, self._ended))
        return max((span.end_s for span in self.spans), default=0.0)

    def _start(self, index: int) -> None:
        task = self.program.tasks[index]
        start_s = self.clock.now_s
        match task.action:
            case Compute():
                self._compute(index, task, task.action, start_s)
            case Communicate():
                self._fly(index, task, task.action.collective, start_s)
            case Transfer():
                self._fly(index, task, task.action, start_s)

    def _compute(self, index: int, task: Task, action: Compute, start_s: float) -> None:
        if index in self.contended:
            stepper = Stepper(action=action, pricing=self.pricing, traffic=self.traffic, after=self.clock.after, fly=self.clock.fly)

            def stepped() -> None:
                exposed, hidden = exposed_pairs(stepper.exposed_s), exposed_pairs(stepper.hidden_s)
                self._record(index, task, start_s, exposed_s=exposed, hidden_s=hidden)

            stepper.run(lambda: self.clock.now_s, stepped)
            return
        price = self.pricing.price(action)
        exposed, hidden = exposed_pairs(price.exposed_s), exposed_pairs(price.hidden_s)
        self.clock.after(price.duration_s, lambda: self._record(index, task, start_s, exposed_s=exposed, hidden_s=hidden))

    def _fly(self, index: int, task: Task, action: Collective | Transfer, start_s: float) -> None:
        demand = self.traffic.demand(action)
        kind = self.traffic.kind(action)
        self.clock.fly(
            kind, latency_s=demand.latency_s, size_bytes=demand.bytes_per_flow, landed=lambda: self._record(index, task, start_s)
        )

    def _record(
        self,
        index: int,
        task: Task,
        start_s: float,
        *,
        exposed_s: tuple[tuple[str, float], ...] = (),
        hidden_s: tuple[tuple[str, float], ...] = (),
    ) -> None:
        action, end_s = task.action, self.clock.now_s
        for lane in task.lanes:
            if isinstance(action, Compute):
                price = self.pricing.price(action)
                span = Span(
                    rank_class=lane.rank_class,
                    stream=lane.stream,
                    kind=action.phase,
                    name=action.name,
                    start_s=start_s,
                    end_s=end_s,
                    micro_batch=task.micro_batch,
                    chunk=task.chunk,
                    bytes=price.bytes,
                    flops=price.flops,
                    compute_s=price.compute_s,
                    recompute_s=price.recompute_s,
                    exposed_s=exposed_s,
                    hidden_s=hidden_s,
                    # A pass that met other traffic has no two layers alike.
                    detail=() if index in self.contended else price.detail,
                )
            else:
                moved = action.collective if isinstance(action, Communicate) else action
                span = Span(
                    rank_class=lane.rank_class,
                    stream=lane.stream,
                    kind="communication",
                    name=action.name,
                    start_s=start_s,
                    end_s=end_s,
                    dimension=moved.group.dimension if isinstance(moved, Collective) else moved.dimension,
                    micro_batch=task.micro_batch,
                    chunk=task.chunk,
                    bytes=moved.bytes,
                )
            self.spans.append(span)
        self._end(index)

    def _end(self, index: int) -> None:
        self._ended[index] = True
        for follower in self._followers[index]:
            self._waiting[follower] -= 1
            if self._waiting[follower] == 0:
                self._start(follower)
