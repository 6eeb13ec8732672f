"""The network of a world, with one timer for the next end of a flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import simpy
from simpy.events import NORMAL

from clustersim.engine.traffic import CoupledFlow, FlowPhases
from clustersim.engine.world import World
from clustersim.network.in_flight import INF, whole_ticks_s
from clustersim.network.sharing import SharedNetwork


class _Alarm(simpy.Event):
    """An event that calls one function, and has nothing else that SimPy's events have."""

    _ok = True

    def __init__(self, clock: Clock, action: Callable[[], None]) -> None:
        self.clock, self.action, self.callbacks = clock, action, _FIRE


def _fire(alarm: _Alarm) -> None:
    alarm.clock.fire(alarm.action)


_FIRE: Final = [_fire]
"""Callbacks of every alarm; SimPy does not change the list."""


@dataclass(slots=True)
class Clock:
    """The network of a world, with callbacks instead of processes, and its one timer."""

    network: SharedNetwork
    world: World = field(default_factory=World)
    unit_s: float = 1.0
    """Unit in which the world counts time: a second, or one tick where it counts whole numbers of them."""
    n_events: int = 0
    """Fired so far."""
    log: list[tuple[float, int, int]] | None = None
    """Time at which a flow of a class started (1) or ended (-1), if recorded."""
    _landed: dict[int, tuple[int, Callable[[], None]]] = field(default_factory=dict[int, tuple[int, Callable[[], None]]])
    _n_flows: int = 0
    _dirty: bool = False
    """Whether flows have come or gone since rates were shared."""
    _firing: bool = False
    _timer_s: float = INF
    """When the timer fires; infinite while it is not set."""

    @property
    def now_s(self) -> float:
        """Simulated time."""
        return self.world.now * self.unit_s

    def close(self) -> None:
        """End here, and drop what has not happened: it refers to this clock, and neither would be freed without a collection."""
        self.network.advance(self.now_s)
        self.world.clear()
        self._landed.clear()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` in ``delay_s`` seconds."""
        assert delay_s >= 0.0
        self.world.schedule(_Alarm(self, action), NORMAL, delay_s / self.unit_s)

    def wait(self, delay_s: float) -> simpy.Event:
        """Return an event after a delay."""
        return self.world.after(whole_ticks_s(delay_s) / self.unit_s)

    def fire(self, action: Callable[[], None]) -> None:
        """Call ``action`` now, and count it as an event; rates are shared anew where it is the last of its instant."""
        self.n_events += 1
        waits, self._firing = self._dirty, True
        action()
        self._firing = False
        if self._dirty and not waits:
            if self.world.is_instant_over:
                self._solve()
            else:
                self.after(0.0, self._solve)

    def perform(self, phases: FlowPhases, landed: Callable[[], None], *, delay_s: float = 0.0) -> None:
        """Put an operation on the network after a delay, phase by phase, and call ``landed`` after the last flow of the last."""
        if not phases:
            # An operation of a rank alone ends at once, but never before the caller has written down that it began.
            self.after(delay_s, landed)
        elif len(phases) == 1 and len(phases[0]) == 1:
            self.fly(phases[0][0], landed, delay_s=delay_s)
        else:
            _Phases(clock=self, left=iter(phases), landed=landed).begin(delay_s)

    def load(self, flow_class: int) -> Callable[[], None]:
        """Put traffic on the network that has no end, and return what takes it off."""
        flow = self._start(flow_class, INF, lambda: None)

        def stop() -> None:
            self.network.advance(self.now_s)
            self.network.stop(flow)
            del self._landed[flow]
            if self.log is not None:
                self.log.append((self.now_s, flow_class, -1))
            self._touch()

        return stop

    def fly(self, coupled_flow: CoupledFlow, landed: Callable[[], None], *, delay_s: float = 0.0) -> None:
        """Start one flow class after a delay and its latency, and call ``landed`` at its end."""
        if coupled_flow.size_bytes <= 0.0:
            self.after(delay_s + coupled_flow.latency_s, landed)
            return

        def take_off() -> None:
            self._start(coupled_flow.flow_class, coupled_flow.size_bytes, landed)

        self.after(delay_s + coupled_flow.latency_s, take_off)

    def _start(self, flow_class: int, size_bytes: float, landed: Callable[[], None]) -> int:
        now_s = self.now_s
        self.network.advance(now_s)
        flow = self._n_flows
        self._n_flows += 1
        self._landed[flow] = flow_class, landed
        self.network.start(flow, flow_class, size_bytes)
        if self.log is not None:
            self.log.append((now_s, flow_class, 1))
        self._touch()
        return flow

    def _touch(self) -> None:
        # All changes of one instant are solved once, behind the events of that instant.
        if not self._dirty:
            self._dirty = True
            if not self._firing:
                self.after(0.0, self._solve)

    def _solve(self) -> None:
        self._dirty = False
        self.network.share()
        self._set_timer()

    def _set_timer(self) -> None:
        """Have the timer fire no later than the next flow lands. It may fire before, and is set again then."""
        end_s = self.network.next_end_s()
        if end_s < self._timer_s:
            now_s = self.now_s
            self._timer_s = max(end_s, now_s)
            self.after(self._timer_s - now_s, self._wake)

    def _wake(self) -> None:
        now_s = self.now_s
        if now_s < self._timer_s:
            # It has been set to an earlier time since.
            return
        self._timer_s = INF
        self.network.advance(now_s)
        finished = self.network.finished()
        if not finished:
            self._set_timer()
            return
        for flow in finished:
            flow_class, landed = self._landed.pop(flow)
            if self.log is not None:
                self.log.append((now_s, flow_class, -1))
            landed()
        self._touch()


@dataclass(slots=True, kw_only=True)
class _Phases:
    """An operation on the network. It refers to nothing that refers to it, so that it is freed when it has landed."""

    clock: Clock
    left: Iterator[Sequence[CoupledFlow]]
    """Phases that have not begun."""
    landed: Callable[[], None]
    _n_missing: int = 0
    """Flows of the present phase that have not landed."""

    def begin(self, delay_s: float = 0.0) -> None:
        """Begin the next phase after a delay, or end."""
        phase = next(self.left, None)
        if phase is None:
            self.landed()
            return
        self._n_missing = len(phase)
        for coupled_flow in phase:
            self.clock.fly(coupled_flow, self._one, delay_s=delay_s)

    def _one(self) -> None:
        self._n_missing -= 1
        if self._n_missing == 0:
            self.begin()
