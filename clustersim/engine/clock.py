"""Simulated time: the only place where it passes, and the only one that knows SimPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import simpy

from clustersim.engine.traffic import Flight, Flights
from clustersim.network.sharing import SharedNetwork


class _Alarm(simpy.Event):
    """An event that calls one function, and has nothing else that SimPy's events have."""

    _ok = True

    def __init__(self, clock: Clock, action: Callable[[], None]) -> None:
        self.clock, self.action, self.callbacks = clock, action, _FIRE


def _fire(alarm: simpy.Event) -> None:
    assert isinstance(alarm, _Alarm)
    alarm.clock.fire(alarm.action)


_FIRE: Final = [_fire]
"""What happens to every alarm; SimPy does not change the list."""


@dataclass(slots=True)
class Clock:
    """SimPy's environment, with callbacks instead of processes, and the one timer of the network."""

    network: SharedNetwork
    environment: simpy.Environment = field(default_factory=lambda: simpy.Environment(0.0))
    n_events: int = 0
    """Fired so far."""
    log: list[tuple[float, int, int]] | None = None
    """When a flow of which kind started (1) or ended (-1), where that is kept."""
    _landed: dict[int, tuple[int, Callable[[], None]]] = field(default_factory=dict[int, tuple[int, Callable[[], None]]])
    _n_flows: int = 0
    _dirty: bool = False
    _version: int = 0
    _stopped: bool = False

    @property
    def now_s(self) -> float:
        """Simulated time."""
        return self.environment.now

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` in ``delay_s`` seconds."""
        assert delay_s >= 0.0
        self.environment.schedule(_Alarm(self, action), delay=delay_s)

    def fire(self, action: Callable[[], None]) -> None:
        """Call ``action`` now, unless nothing is to happen any more."""
        if not self._stopped:
            self.n_events += 1
            action()

    def perform(self, flights: Flights, landed: Callable[[], None]) -> None:
        """Put an operation on the network, phase by phase, and call ``landed`` after the last flight of the last."""
        if not flights:
            # An operation of a rank alone ends at once, but never before the caller has written down that it began.
            self.after(0.0, landed)
        elif len(flights) == 1 and len(flights[0]) == 1:
            self.fly(flights[0][0], landed)
        else:
            _Phases(clock=self, left=iter(flights), landed=landed).begin()

    def load(self, kind: int) -> Callable[[], None]:
        """Put traffic on the network that has no end, and return what takes it off."""
        flow = self._start(kind, float("inf"), lambda: None)

        def stop() -> None:
            self.network.advance(self.now_s)
            self.network.stop(flow)
            del self._landed[flow]
            self._note(kind, -1)
            self._touch()

        return stop

    def stop(self) -> None:
        """Let nothing more happen: what goes on for ever ends here."""
        self.network.advance(self.now_s)
        self._stopped = True

    def fly(self, flight: Flight, landed: Callable[[], None]) -> None:
        """Put one flight on the network when its latency is over, and call ``landed`` when it is through."""
        if flight.size_bytes <= 0.0:
            self.after(flight.latency_s, landed)
            return

        def take_off() -> None:
            self._start(flight.kind, flight.size_bytes, landed)

        self.after(flight.latency_s, take_off)

    def _start(self, kind: int, size_bytes: float, landed: Callable[[], None]) -> int:
        self.network.advance(self.now_s)
        flow = self._n_flows
        self._n_flows += 1
        self._landed[flow] = kind, landed
        self.network.start(flow, kind, size_bytes)
        self._note(kind, 1)
        self._touch()
        return flow

    def _note(self, kind: int, change: int) -> None:
        if self.log is not None:
            self.log.append((self.now_s, kind, change))

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
            kind, landed = self._landed.pop(flow)
            self._note(kind, -1)
            landed()
        self._touch()


@dataclass(slots=True, kw_only=True)
class _Phases:
    """An operation on the network. It refers to nothing that refers to it, so that it is freed when it has landed."""

    clock: Clock
    left: Iterator[Sequence[Flight]]
    """Phases that have not begun."""
    landed: Callable[[], None]
    _n_missing: int = 0
    """Flights of the present phase that have not landed."""

    def begin(self) -> None:
        """Begin the next phase, or end."""
        phase = next(self.left, None)
        if phase is None:
            self.landed()
            return
        self._n_missing = len(phase)
        for flight in phase:
            self.clock.fly(flight, self._one)

    def _one(self) -> None:
        self._n_missing -= 1
        if self._n_missing == 0:
            self.begin()
