"""A pass replayed item by item, because other traffic may be on the links it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import fsum
from typing import Protocol

from clustersim.engine.pricing import Price, Pricing
from clustersim.engine.traffic import Flights, Traffic
from clustersim.program.tasks import Collective, Compute, Item, Uneven, collectives_in, works_in


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

    def met(self, price: Price) -> Price:
        """Return what a pass that has ended was spent on, given its price on idle links at the same pace."""
        return Price(
            compute_s=price.compute_s,
            recompute_s=price.recompute_s,
            flops=price.flops,
            bytes=price.bytes,
            exposed_s=self.exposed_s,
            hidden_s=self.hidden_s,
            host_s=self.host_s,
        )

    def _items(self) -> Iterator[Item]:
        for block in self.action.blocks:
            for _ in range(block.repeat):
                yield from block.body

    def _one(self, item: Item, step: Callable[[], None]) -> None:
        quote, collectives = self.pricing.quote(item), collectives_in(item)
        compute_s = self.factor * (quote.compute_s + quote.waiting_s)
        for dimension, waiting_s in self._waiting(item):
            self.exposed_s[dimension] = self.exposed_s.get(dimension, 0.0) + waiting_s
        if not collectives:
            self.clock.after(compute_s, step)
            return
        missing = 2 if works_in(item) else 1
        took_s: list[tuple[str, float]] = []

        def part() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                step()

        def through() -> None:
            self._account(took_s, compute_s)
            part()

        self._perform(collectives, took_s, through)
        if works_in(item):
            self.clock.after(compute_s, part)

    def _perform(self, collectives: tuple[Collective, ...], took_s: list[tuple[str, float]], through: Callable[[], None]) -> None:
        """Put collectives on the network one after the other, and note what each took."""
        start_s = self.clock.now_s

        def landed() -> None:
            took_s.append((collectives[0].group.dimension, self.clock.now_s - start_s))
            if len(collectives) == 1:
                through()
            else:
                self._perform(collectives[1:], took_s, through)

        self.clock.perform(self.traffic.flights(collectives[0]), landed)

    def _account(self, took_s: list[tuple[str, float]], compute_s: float) -> None:
        """Charge what sticks out of computation to each collective by its share."""
        total_s = fsum(seconds for _, seconds in took_s)
        hidden = min(1.0, compute_s / total_s) if total_s > 0.0 else 0.0
        for dimension, seconds in took_s:
            self.exposed_s[dimension] = self.exposed_s.get(dimension, 0.0) + (1.0 - hidden) * seconds
            self.hidden_s[dimension] = self.hidden_s.get(dimension, 0.0) + hidden * seconds

    def _waiting(self, item: Item) -> list[tuple[str, float]]:
        """Return the waiting for ranks with more work, and what it is charged to."""
        uneven = [work for work in works_in(item) if isinstance(work, Uneven)]
        return [(work.dimension, self.factor * self.pricing.quote(work).waiting_s) for work in uneven]
