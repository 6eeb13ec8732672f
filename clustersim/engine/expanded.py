"""A pass replayed item by item, because other traffic may be on the links it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from clustersim.engine.pricing import Pricing
from clustersim.engine.traffic import Traffic
from clustersim.program.tasks import Collective, Compute, Item, Overlapped, Work


class Fly(Protocol):
    """Puts a flow of a kind on the network and calls back when it has landed."""

    def __call__(self, kind: int, *, latency_s: float, size_bytes: float, landed: Callable[[], None]) -> None:
        """Start it now: first the latency, then the bytes of each flow."""
        ...


@dataclass(slots=True, kw_only=True)
class Stepper:
    """Walks through the items of a pass; keeps account of communication that stops it."""

    action: Compute
    pricing: Pricing
    traffic: Traffic
    after: Callable[[float, Callable[[], None]], None]
    fly: Fly
    exposed_s: dict[str, float] = field(default_factory=dict[str, float])
    hidden_s: dict[str, float] = field(default_factory=dict[str, float])

    def run(self, now_s: Callable[[], float], ended: Callable[[], None]) -> None:
        """Start the first item; call ``ended`` after the last."""
        items = self._items()

        def step() -> None:
            item = next(items, None)
            if item is None:
                ended()
                return
            self._one(item, now_s, step)

        step()

    def _items(self) -> Iterator[Item]:
        for block in self.action.blocks:
            for _ in range(block.repeat):
                yield from block.body

    def _one(self, item: Item, now_s: Callable[[], float], step: Callable[[], None]) -> None:
        compute_s = self.pricing.quote(item).compute_s
        if isinstance(item, Work):
            self.after(compute_s, step)
            return
        collective = item if isinstance(item, Collective) else item.collective
        start_s = now_s()
        missing = 2 if isinstance(item, Overlapped) else 1

        def part() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                step()

        def landed() -> None:
            dimension, took_s = collective.group.dimension, now_s() - start_s
            hidden_s = min(took_s, compute_s)
            self.exposed_s[dimension] = self.exposed_s.get(dimension, 0.0) + took_s - hidden_s
            self.hidden_s[dimension] = self.hidden_s.get(dimension, 0.0) + hidden_s
            part()

        demand = self.traffic.demand(collective)
        self.fly(self.traffic.kind(collective), latency_s=demand.latency_s, size_bytes=demand.bytes_per_flow, landed=landed)
        if isinstance(item, Overlapped):
            self.after(compute_s, part)
