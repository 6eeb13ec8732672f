"""A pass replayed item by item, because other traffic may be on the links it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from clustersim.engine.pricing import Pricing
from clustersim.engine.traffic import Flights, Traffic
from clustersim.program.tasks import Collective, Compute, Item, Overlapped, Uneven, Work


class Clock(Protocol):
    """What a pass asks of time and of the network."""

    @property
    def now_s(self) -> float:
        """Simulated time."""
        ...

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` in so many seconds."""
        ...

    def perform(self, flights: Flights, landed: Callable[[], None]) -> None:
        """Put an operation on the network now and call ``landed`` when it is through."""
        ...


@dataclass(slots=True, kw_only=True)
class Stepper:
    """Walks through the items of a pass; keeps account of communication that stops it."""

    action: Compute
    pricing: Pricing
    traffic: Traffic
    clock: Clock
    factor: float = 1.0
    """How many times as long as by its price computation takes."""
    exposed_s: dict[str, float] = field(default_factory=dict[str, float])
    hidden_s: dict[str, float] = field(default_factory=dict[str, float])
    host_s: float = 0.0

    def run(self, ended: Callable[[], None]) -> None:
        """Start the first item; call ``ended`` after the last, or when the host has issued all of them if that is later."""
        items = self._items()
        price, start_s = self.pricing.price(self.action).at(self.factor), self.clock.now_s

        def step() -> None:
            item = next(items, None)
            if item is None:
                self.host_s = price.held_up_s(self.clock.now_s - start_s, price.issue_s)
                if self.host_s > 0.0:
                    self.clock.after(self.host_s, ended)
                else:
                    ended()
                return
            self._one(item, step)

        step()

    def _items(self) -> Iterator[Item]:
        for block in self.action.blocks:
            for _ in range(block.repeat):
                yield from block.body

    def _one(self, item: Item, step: Callable[[], None]) -> None:
        quote = self.pricing.quote(item)
        compute_s, waiting_s = self.factor * quote.compute_s, self.factor * quote.waiting_s
        if isinstance(item, Uneven):
            self.exposed_s[item.dimension] = self.exposed_s.get(item.dimension, 0.0) + waiting_s
        if isinstance(item, Work | Uneven):
            self.clock.after(compute_s + waiting_s, step)
            return
        collective = item if isinstance(item, Collective) else item.collective
        start_s = self.clock.now_s
        missing = 2 if isinstance(item, Overlapped) else 1

        def part() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                step()

        def landed() -> None:
            dimension, took_s = collective.group.dimension, self.clock.now_s - start_s
            hidden_s = min(took_s, compute_s)
            self.exposed_s[dimension] = self.exposed_s.get(dimension, 0.0) + took_s - hidden_s
            self.hidden_s[dimension] = self.hidden_s.get(dimension, 0.0) + hidden_s
            part()

        self.clock.perform(self.traffic.flights(collective), landed)
        if isinstance(item, Overlapped):
            self.clock.after(compute_s, part)
