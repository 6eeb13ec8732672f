"""Simulated time: the only place where it passes, and the only one that knows SimPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import simpy

from clustersim.engine.traffic import Flight, Flights
from clustersim.network.sharing import SharedNetwork


@dataclass(slots=True)
class Clock:
    """SimPy's environment, with callbacks instead of processes, and the one timer of the network."""

    network: SharedNetwork
    environment: simpy.Environment = field(default_factory=simpy.Environment)
    n_events: int = 0
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
            self._note(kind, -1)
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
