"""Replay a Program in simulated time: the only place where time passes, and the only one that knows SimPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import simpy

from clustersim.engine.contention import deadlock_message
from clustersim.engine.expanded import Stepper
from clustersim.engine.pricing import Price, Pricing, exposed_pairs
from clustersim.engine.traffic import Flight, Flights, Traffic
from clustersim.errors import DeadlockError
from clustersim.network.sharing import SharedNetwork
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Communicate, Compute, Task, Transfer
from clustersim.trace.timeline import Span


@dataclass(slots=True)
class Clock:
    """SimPy's environment, with callbacks instead of processes, and the one timer of the network."""

    network: SharedNetwork
    environment: simpy.Environment = field(default_factory=simpy.Environment)
    n_events: int = 0
    _landed: dict[int, Callable[[], None]] = field(default_factory=dict[int, Callable[[], None]])
    _n_flows: int = 0
    _dirty: bool = False
    _version: int = 0
    _stopped: bool = False

    @property
    def now_s(self) -> float:
        """Simulated time."""
        return float(self.environment.now)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` in ``delay_s`` seconds."""

        def fire(_: simpy.Event) -> None:
            if not self._stopped:
                self.n_events += 1
                action()

        timeout: simpy.Event = self.environment.timeout(delay_s)
        # SimPy types its callbacks loosely.
        timeout.callbacks.append(fire)  # pyright: ignore[reportUnknownMemberType]

    def perform(self, flights: Flights, landed: Callable[[], None]) -> None:
        """Put an operation on the network, phase by phase, and call ``landed`` after the last flight of the last."""
        phases = iter(flights)

        def begin() -> None:
            phase = next(phases, None)
            if phase is None:
                landed()
                return
            missing = len(phase)

            def one() -> None:
                nonlocal missing
                missing -= 1
                if missing == 0:
                    begin()

            for flight in phase:
                self._fly(flight, one)

        if not flights:
            # An operation of a rank alone ends at once, but never before the caller has written down that it began.
            self.after(0.0, landed)
            return
        begin()

    def load(self, kind: int) -> Callable[[], None]:
        """Put traffic on the network that has no end, and return what takes it off."""
        flow = self._start(kind, float("inf"), lambda: None)

        def stop() -> None:
            self.network.advance(self.now_s)
            self.network.stop(flow)
            del self._landed[flow]
            self._touch()

        return stop

    def stop(self) -> None:
        """Let nothing more happen: what goes on for ever ends here."""
        self.network.advance(self.now_s)
        self._stopped = True

    def _fly(self, flight: Flight, landed: Callable[[], None]) -> None:
        if flight.size_bytes <= 0.0:
            self.after(flight.latency_s, landed)
            return
        self.after(flight.latency_s, lambda: self._take_off(flight, landed))

    def _take_off(self, flight: Flight, landed: Callable[[], None]) -> None:
        self._start(flight.kind, flight.size_bytes, landed)

    def _start(self, kind: int, size_bytes: float, landed: Callable[[], None]) -> int:
        self.network.advance(self.now_s)
        flow = self._n_flows
        self._n_flows += 1
        self._landed[flow] = landed
        self.network.start(flow, kind, size_bytes)
        self._touch()
        return flow

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
    records: bool = True
    """Whether spans are kept."""
    spans: list[Span] = field(default_factory=list[Span])
    _ended: Callable[[], None] = lambda: None
    _waiting: list[int] = field(default_factory=list[int])
    _followers: list[list[int]] = field(default_factory=list[list[int]])
    _done: list[bool] = field(default_factory=list[bool])
    _n_left: int = 0
    _n_running: int = 0
    _priced: dict[int, int] = field(default_factory=dict[int, int])
    """How often each pass ended that was not on the network."""
    _under_way: dict[int, float] = field(default_factory=dict[int, float])
    """Since when such passes have been going on."""

    def run(self) -> float:
        """Replay to the end and return the step time in seconds.

        Raises
        ------
        DeadlockError
            When tasks are left that wait for each other; it names the first of them and what they wait for.
        """
        self.start(lambda: None)
        self.clock.environment.run()
        return self.end_s()

    def start(self, ended: Callable[[], None]) -> None:
        """Start a step, the first or another, and call ``ended`` after its last task.

        Raises
        ------
        DeadlockError
            Now or later, when all tasks that are left wait for each other.
        """
        tasks = self.program.tasks
        if not self._followers:
            self._followers = [[] for _ in tasks]
            for index, task in enumerate(tasks):
                for earlier in task.after:
                    self._followers[earlier].append(index)
        self._ended = ended
        self._waiting = [len(task.after) for task in tasks]
        self._done = [False] * len(tasks)
        self._n_left = len(tasks)
        # Counted as running until all have been started, of which some may end at once and start those that wait for them.
        self._n_running = 1
        for index in [index for index, count in enumerate(self._waiting) if count == 0]:
            self._start(index)
        self._one_less()

    def end_s(self) -> float:
        """Return when the last task ended.

        Raises
        ------
        DeadlockError
            When tasks are left.
        """
        if self._n_left:
            raise DeadlockError(deadlock_message(self.program, self._done))
        return max((span.end_s for span in self.spans), default=0.0)

    def priced(self, until_s: float) -> Iterator[tuple[Price, float]]:
        """Yield what each pass costs that was not on the network, and how often it was made; a fraction where one goes on."""
        for index in sorted({*self._priced, *self._under_way}):
            task = self.program.tasks[index]
            assert isinstance(task.action, Compute)  # only passes have prices
            price = self.pricing.price(task.action)
            times = float(self._priced.get(index, 0))
            if index in self._under_way and price.duration_s > 0.0:
                times += (until_s - self._under_way[index]) / price.duration_s
            yield price, times

    def _start(self, index: int) -> None:
        self._n_running += 1
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
            stepper = Stepper(action=action, pricing=self.pricing, traffic=self.traffic, clock=self.clock)

            def stepped() -> None:
                exposed, hidden = exposed_pairs(stepper.exposed_s), exposed_pairs(stepper.hidden_s)
                self._record(index, task, start_s, exposed_s=exposed, hidden_s=hidden)

            stepper.run(stepped)
            return
        price = self.pricing.price(action)
        exposed, hidden = exposed_pairs(price.exposed_s), exposed_pairs(price.hidden_s)
        self._under_way[index] = start_s

        def passed() -> None:
            del self._under_way[index]
            self._priced[index] = self._priced.get(index, 0) + 1
            self._record(index, task, start_s, exposed_s=exposed, hidden_s=hidden)

        self.clock.after(price.duration_s, passed)

    def _fly(self, index: int, task: Task, action: Collective | Transfer, start_s: float) -> None:
        self.clock.perform(self.traffic.flights(action), lambda: self._record(index, task, start_s))

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
        for lane in task.lanes if self.records else ():
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
        self._done[index] = True
        self._n_left -= 1
        for follower in self._followers[index]:
            self._waiting[follower] -= 1
            if self._waiting[follower] == 0:
                self._start(follower)
        self._one_less()

    def _one_less(self) -> None:
        self._n_running -= 1
        if self._n_running == 0:
            if self._n_left:
                raise DeadlockError(deadlock_message(self.program, self._done))
            self._ended()
