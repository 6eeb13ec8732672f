"""A pass replayed item by item, because other traffic may be on the links it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import fsum

from clustersim.engine.clock import Clock
from clustersim.engine.pricing import Price, Quote
from clustersim.engine.traffic import FlowPhases
from clustersim.network.in_flight import whole_ticks_s


@dataclass(slots=True, kw_only=True)
class Stepper:
    """Steps through the items of a pass; accounts for exposed communication."""

    price: Price
    """Cost of the pass on idle links, at its pace."""
    clock: Clock
    factor: float = 1.0
    """Ratio of the duration of computation to that of the kernel model."""
    exposed_s: dict[str, float] = field(default_factory=dict[str, float])
    hidden_s: dict[str, float] = field(default_factory=dict[str, float])
    host_s: float = 0.0
    _items: Iterator[Quote] = field(init=False)
    """Those that have not begun."""
    _start_s: float = field(init=False)
    _ended: Callable[[], None] | None = field(init=False)
    _n_missing: int = 0
    """Number of unfinished parts of the present item: computation and communication."""
    _compute_s: float = 0.0
    """Compute seconds of this item."""
    _flying: tuple[tuple[str, FlowPhases], ...] = ()
    """Its collectives in flight or waiting, the one in flight first."""
    _flying_since_s: float = 0.0
    _took_s: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """Duration of each landed collective, in seconds."""

    def run(self, ended: Callable[[], None]) -> None:
        """Start the first item; call ``ended`` after the last, or when the host has issued all of them if that is later."""
        self._items = (quote for repeat, block in self.price.quotes for _ in range(repeat) for quote in block)
        self._ended = ended
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

    def _step(self) -> None:
        """Start the next item with communication; the work before it has a known duration, and no event of its own."""
        work_s = 0.0
        for quote in self._items:
            self._compute_s = compute_s = whole_ticks_s(self.factor * (quote.compute_s + quote.waiting_s))
            for dimension, waiting_s in quote.waits:
                self.exposed_s[dimension] = self.exposed_s.get(dimension, 0.0) + self.factor * waiting_s
            if quote.flows:
                self._n_missing, self._took_s, self._flying = 1 + quote.has_work, [], quote.flows
                self._fly(work_s)
                if quote.has_work:
                    self.clock.after(work_s + compute_s, self._part)
                return
            work_s += compute_s
        ended, self._ended = self._ended, None
        assert ended is not None
        self.host_s = whole_ticks_s(self.price.held_up_s(self.clock.now_s + work_s - self._start_s, self.price.issue_s))
        if work_s + self.host_s > 0.0:
            self.clock.after(work_s + self.host_s, ended)
        else:
            ended()

    def _fly(self, delay_s: float = 0.0) -> None:
        """Put the next collective of an item on the network after a delay."""
        self._flying_since_s = self.clock.now_s + delay_s
        self.clock.perform(self._flying[0][1], self._landed, delay_s=delay_s)

    def _landed(self) -> None:
        """Record the time of a collective, and continue with the next one."""
        self._took_s.append((self._flying[0][0], self.clock.now_s - self._flying_since_s))
        self._flying = self._flying[1:]
        if self._flying:
            self._fly()
        else:
            self._account()
            self._part()

    def _part(self) -> None:
        """End computation or communication of an item, and the item with the second of them."""
        self._n_missing -= 1
        if self._n_missing == 0:
            self._step()

    def _account(self) -> None:
        """Charge what sticks out of computation to each collective by its share."""
        total_s = fsum([seconds for _, seconds in self._took_s])
        hidden = min(1.0, self._compute_s / total_s) if total_s > 0.0 else 0.0
        for dimension, seconds in self._took_s:
            self.exposed_s[dimension] = self.exposed_s.get(dimension, 0.0) + (1.0 - hidden) * seconds
            self.hidden_s[dimension] = self.hidden_s.get(dimension, 0.0) + hidden * seconds
