"""A pass replayed item by item, because other traffic may be on the links it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import fsum
from typing import Protocol

from clustersim.engine.pricing import Price, Pricing
from clustersim.engine.traffic import FlowPhases, Traffic
from clustersim.network.in_flight import whole_ticks_s
from clustersim.program.tasks import Collective, Compute, Item, UnevenWork, collectives_in, works_in


class PassClock(Protocol):
    """Clock and network interface of a pass."""

    @property
    def now_s(self) -> float:
        """Simulated time."""
        ...

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` after a number of seconds."""
        ...

    def perform(self, phases: FlowPhases, landed: Callable[[], None], *, delay_s: float = 0.0) -> None:
        """Start an operation on the network after a delay and call ``landed`` at its end."""
        ...


@dataclass(slots=True, kw_only=True)
class Stepper:
    """Steps through the items of a pass; accounts for exposed communication."""

    action: Compute
    pricing: Pricing
    traffic: Traffic
    clock: PassClock
    price: Price
    """Cost of the pass on idle links, at its pace."""
    factor: float = 1.0
    """Ratio of the duration of computation to that of the kernel model."""
    exposed_s: dict[str, float] = field(default_factory=dict[str, float])
    hidden_s: dict[str, float] = field(default_factory=dict[str, float])
    host_s: float = 0.0
    _items: Iterator[Item] = field(init=False)
    """Those that have not begun."""
    _start_s: float = field(init=False)
    _ended: Callable[[], None] | None = field(init=False)
    _n_missing: int = 0
    """Number of unfinished parts of the present item: computation and communication."""
    _compute_s: float = 0.0
    """Compute seconds of this item."""
    _flying: tuple[Collective, ...] = ()
    """Its collectives in flight or waiting, the one in flight first."""
    _flying_since_s: float = 0.0
    _took_s: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """Duration of each landed collective, in seconds."""

    def run(self, ended: Callable[[], None]) -> None:
        """Start the first item; call ``ended`` after the last, or when the host has issued all of them if that is later."""
        self._items, self._ended = self._in_order(), ended
        self._start_s = self.clock.now_s
        self._step()

    def met(self) -> Price:
        """Return the parts of a finished pass."""
        return Price(
            compute_s=self.price.compute_s,
            recompute_s=self.price.recompute_s,
            flops=self.price.flops,
            bytes=self.price.bytes,
            exposed_s=self.exposed_s,
            hidden_s=self.hidden_s,
            host_s=self.host_s,
            waiting_s=self.price.waiting_s,
        )

    def _in_order(self) -> Iterator[Item]:
        for block in self.action.blocks:
            for _ in range(block.repeat):
                yield from block.body

    def _step(self) -> None:
        """Start the next item with communication; the work before it has a known duration, and no event of its own."""
        work_s = 0.0
        for item in self._items:
            quote, collectives = self.pricing.quote(item), collectives_in(item)
            self._compute_s = whole_ticks_s(self.factor * (quote.compute_s + quote.waiting_s))
            if quote.waiting_s > 0.0:
                for dimension, waiting_s in self._waiting(item):
                    self.exposed_s[dimension] = self.exposed_s.get(dimension, 0.0) + waiting_s
            if collectives:
                self._communicate(item, collectives, work_s)
                return
            work_s += self._compute_s
        ended, self._ended = self._ended, None
        assert ended is not None
        self.host_s = whole_ticks_s(self.price.held_up_s(self.clock.now_s + work_s - self._start_s, self.price.issue_s))
        if work_s + self.host_s > 0.0:
            self.clock.after(work_s + self.host_s, ended)
        else:
            ended()

    def _communicate(self, item: Item, collectives: tuple[Collective, ...], delay_s: float) -> None:
        """Start an item with collectives after a delay."""
        has_work = not isinstance(item, Collective)
        self._n_missing, self._took_s = 1 + has_work, []
        self._flying = collectives
        self._fly(delay_s)
        if has_work:
            self.clock.after(delay_s + self._compute_s, self._part)

    def _fly(self, delay_s: float = 0.0) -> None:
        """Put the next collective of an item on the network after a delay."""
        self._flying_since_s = self.clock.now_s + delay_s
        self.clock.perform(self.traffic.phases(self._flying[0]), self._landed, delay_s=delay_s)

    def _landed(self) -> None:
        """Record the time of a collective, and continue with the next one."""
        self._took_s.append((self._flying[0].group.dimension, self.clock.now_s - self._flying_since_s))
        self._flying = self._flying[1:]
        if self._flying:
            self._fly()
        else:
            self._account(self._took_s, self._compute_s)
            self._part()

    def _part(self) -> None:
        """End computation or communication of an item, and the item with the second of them."""
        self._n_missing -= 1
        if self._n_missing == 0:
            self._step()

    def _account(self, took_s: list[tuple[str, float]], compute_s: float) -> None:
        """Charge what sticks out of computation to each collective by its share."""
        total_s = fsum(seconds for _, seconds in took_s)
        hidden = min(1.0, compute_s / total_s) if total_s > 0.0 else 0.0
        for dimension, seconds in took_s:
            self.exposed_s[dimension] = self.exposed_s.get(dimension, 0.0) + (1.0 - hidden) * seconds
            self.hidden_s[dimension] = self.hidden_s.get(dimension, 0.0) + hidden * seconds

    def _waiting(self, item: Item) -> list[tuple[str, float]]:
        """Return the waiting for ranks with more work, and what it is charged to."""
        uneven = [work for work in works_in(item) if isinstance(work, UnevenWork)]
        return [(work.dimension, self.factor * self.pricing.quote(work).waiting_s) for work in uneven]
