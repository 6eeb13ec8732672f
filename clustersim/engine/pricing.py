"""What a pass costs while nothing else uses its links: its time, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from clustersim.engine.alone import Alone, alone
from clustersim.engine.pace import Timing
from clustersim.engine.traffic import Traffic
from clustersim.network.levels import State
from clustersim.network.sharing import SharedNetwork
from clustersim.program.tasks import Block, Collective, Compute, Item, Task, Uneven, Work, collectives_in, works_in
from clustersim.trace.timeline import DetailBlock, SpanDetail
from clustersim.workload.operators import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Computation and communication side by side, so many times in a pass."""

    dimension: str
    repeat: int
    compute_s: float
    communication_s: float

    def exposed_s(self, factor: float) -> float:
        """Return the communication that computation does not hide when it takes ``factor`` times as long."""
        return self.repeat * max(0.0, self.communication_s - factor * self.compute_s)


@dataclass(slots=True, kw_only=True)
class Price:
    """Time of a pass by what it is spent on, in seconds."""

    duration_s: float = 0.0
    compute_s: float = 0.0
    recompute_s: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    exposed_s: dict[str, float] = field(default_factory=dict[str, float])
    hidden_s: dict[str, float] = field(default_factory=dict[str, float])
    carried: dict[State, float] = field(default_factory=dict[State, float])
    """Seconds in flight for each state of the network, for the account of the links."""
    detail: tuple[DetailBlock, ...] = ()
    issue_s: float = 0.0
    """What the host needs, for the whole pass."""
    host_s: float = 0.0
    """Of that, what comes on top of the accelerator and its communication, because the host is the slower of the two."""
    waiting_s: dict[str, float] = field(default_factory=dict[str, float])
    """Part of what is exposed: the waiting for a rank that has more work, which is as slow as computation is."""
    blocks: bool = False
    """Whether the host waits for each kernel before it issues the next one."""
    overlaps: tuple[Overlap, ...] = ()
    """Where communication runs beside computation, so that its part that is not hidden depends on the pace."""

    def at(self, factor: float) -> Price:
        """Return the price where computation and host take ``factor`` times as long; communication does not."""
        if factor == 1.0:
            return self
        exposed_s, hidden_s, sticking_out_s = self.exposed_s, self.hidden_s, 0.0
        if self.overlaps or self.waiting_s:
            exposed_s, hidden_s = dict(exposed_s), dict(hidden_s)
            for dimension, seconds in self.waiting_s.items():
                exposed_s[dimension] += (factor - 1.0) * seconds
                sticking_out_s += (factor - 1.0) * seconds
            for overlap in self.overlaps:
                change_s = overlap.exposed_s(factor) - overlap.exposed_s(1.0)
                exposed_s[overlap.dimension] += change_s
                hidden_s[overlap.dimension] -= change_s
                sticking_out_s += change_s
        device_s = self.duration_s - self.host_s + (factor - 1.0) * self.compute_s + sticking_out_s
        host_s = self.held_up_s(device_s, factor * self.issue_s)
        return Price(
            duration_s=device_s + host_s,
            compute_s=factor * self.compute_s,
            recompute_s=factor * self.recompute_s,
            flops=self.flops,
            bytes=self.bytes,
            exposed_s=exposed_s,
            hidden_s=hidden_s,
            carried=self.carried,
            detail=self.detail,
            issue_s=factor * self.issue_s,
            host_s=host_s,
            waiting_s={dimension: factor * seconds for dimension, seconds in self.waiting_s.items()},
            blocks=self.blocks,
        )

    def held_up_s(self, device_s: float, issue_s: float) -> float:
        """Return by how much the host makes a pass longer: all that it needs where it waits, else what the accelerator does not hide."""
        return issue_s if self.blocks else max(0.0, issue_s - device_s)

    def part(self, share: float) -> Price:
        """Return the price of a pass of which only a share has been done."""
        return Price(
            duration_s=share * self.duration_s,
            compute_s=share * self.compute_s,
            recompute_s=share * self.recompute_s,
            flops=share * self.flops,
            bytes=share * self.bytes,
            exposed_s={dimension: share * seconds for dimension, seconds in self.exposed_s.items()},
            hidden_s={dimension: share * seconds for dimension, seconds in self.hidden_s.items()},
            carried={state: share * seconds for state, seconds in self.carried.items()},
            issue_s=share * self.issue_s,
            host_s=share * self.host_s,
            waiting_s={dimension: share * seconds for dimension, seconds in self.waiting_s.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One item of a block: computation, and communication that it cannot or can hide behind it."""

    compute_s: float
    communication_s: float
    issue_s: float
    """Of the host."""
    carried: tuple[tuple[State, float], ...] = ()
    """States of the network that the communication passes through alone, and seconds in each."""
    waiting_s: float = 0.0
    """For the rank that has most work, in the mean of those that have less."""

    @property
    def duration_s(self) -> float:
        """The longer of the two: computation with the waiting for who has more of it, or communication beside it."""
        return max(self.compute_s + self.waiting_s, self.communication_s)


@dataclass(slots=True)
class Pricing:
    """Prices of passes, each computed once."""

    kernels: Timing
    traffic: Traffic
    network: SharedNetwork
    step_host_s: float
    slowdown: float = 1.0
    """How many times as long as by the kernel model all computation takes, and the host for a step."""
    _by_itself: dict[int, Alone] = field(default_factory=dict[int, Alone])
    _prices: dict[int, Price] = field(default_factory=dict[int, Price])
    _quotes: dict[int, tuple[Item, Quote]] = field(default_factory=dict[int, tuple[Item, Quote]])
    """By identity of the item, which therefore must live."""
    _kept: list[Compute] = field(default_factory=list[Compute])

    def price(self, action: Compute) -> Price:
        """Return what a pass costs on idle links."""
        price = self._prices.get(id(action))
        if price is None:
            self._kept.append(action)
            price = self._prices[id(action)] = self._price(action)
        return price

    def quote(self, item: Item) -> Quote:
        """Return the times of one item."""
        found = self._quotes.get(id(item))
        if found is None:
            found = self._quotes[id(item)] = (item, self._quote(item))
        return found[1]

    def _quote(self, item: Item) -> Quote:
        works, collectives = works_in(item), collectives_in(item)
        moved = [self._alone(collective) for collective in collectives]
        issued = [kernel for work in works for kernel in _longest(work).kernels]
        means_s = [self._work_s(_mean(work)) for work in works]
        return Quote(
            compute_s=fsum(means_s),
            communication_s=fsum(alone.duration_s for alone in moved),
            issue_s=self._issue_s(issued, sum(collective.pieces for collective in collectives)),
            carried=tuple(state for alone in moved for state in alone.carried),
            waiting_s=fsum(max(0.0, self._work_s(_longest(work)) - mean_s) for work, mean_s in zip(works, means_s, strict=True)),
        )

    def _work_s(self, work: Work) -> float:
        # The loader is the host's, and keeps its pace beside a slow accelerator.
        slowdown = 1.0 if work.phase == "load" else self.slowdown
        return slowdown * self.kernels.work_s(work.kernels)

    def _issue_s(self, kernels: Sequence[Kernel], n_collectives: int = 0) -> float:
        return self.slowdown * self.kernels.issue_s(kernels, n_collectives)

    def _alone(self, collective: Collective) -> Alone:
        flights = self.traffic.flights(collective)
        found = self._by_itself.get(id(flights))
        if found is None:
            # Flights are kept by the traffic, so that their identity stays theirs.
            found = self._by_itself[id(flights)] = alone(flights, self.network)
        return found

    def _price(self, action: Compute) -> Price:
        price = Price()
        if action.phase == "host":
            price.duration_s = price.issue_s = price.host_s = self.slowdown * self.step_host_s
            return price
        price.detail = tuple(self._add_block(price, block) for block in action.blocks)
        price.blocks = self.kernels.blocks
        price.host_s = price.held_up_s(price.duration_s, price.issue_s)
        price.duration_s += price.host_s
        return price

    def _add_block(self, price: Price, block: Block) -> DetailBlock:
        slices: list[SpanDetail] = []
        for item in block.body:
            quote = self.quote(item)
            price.duration_s += block.repeat * quote.duration_s
            price.compute_s += block.repeat * quote.compute_s
            price.issue_s += block.repeat * quote.issue_s
            for work in works_in(item):
                slices += self._add_work(price, work, repeat=block.repeat)
            for state, seconds in quote.carried:
                price.carried[state] = price.carried.get(state, 0.0) + block.repeat * seconds
            for collective in collectives_in(item):
                slices.append(self._add_collective(price, collective, quote, repeat=block.repeat))
        return DetailBlock(name=block.name, repeat=block.repeat, slices=tuple(slices))

    def _add_work(self, price: Price, item: Work | Uneven, *, repeat: int) -> list[SpanDetail]:
        work = _mean(item)
        flops, compute_s = fsum(kernel.flops for kernel in work.kernels), self._work_s(work)
        price.flops += repeat * flops
        if work.phase == "recompute":
            price.recompute_s += repeat * compute_s
        computed = SpanDetail(name=work.name, kind=work.phase, dimension="", duration_s=compute_s, flops=flops)
        if not isinstance(item, Uneven):
            return [computed]
        waiting_s = max(0.0, self._work_s(item.longest) - compute_s)
        _add_waiting(price, item.dimension, repeat * waiting_s)
        return [computed, SpanDetail(name="wait for the longest", kind="communication", dimension=item.dimension, duration_s=waiting_s)]

    def _add_collective(self, price: Price, collective: Collective, quote: Quote, *, repeat: int) -> SpanDetail:
        """Add one collective; of several beside the same work each sticks out of its share of it."""
        dimension, own_s = collective.group.dimension, self._alone(collective).duration_s
        beside_s = quote.compute_s + quote.waiting_s
        share = own_s / quote.communication_s if quote.communication_s > 0.0 else 0.0
        exposed_s = max(0.0, own_s - share * beside_s)
        price.bytes += repeat * collective.bytes
        price.exposed_s[dimension] = price.exposed_s.get(dimension, 0.0) + repeat * exposed_s
        price.hidden_s[dimension] = price.hidden_s.get(dimension, 0.0) + repeat * (own_s - exposed_s)
        if beside_s > 0.0:
            price.overlaps += (Overlap(dimension=dimension, repeat=repeat, compute_s=share * beside_s, communication_s=own_s),)
        name = collective.op.replace("_", "-")
        return SpanDetail(name=name, kind="communication", dimension=dimension, duration_s=exposed_s, bytes=collective.bytes)


def price_of(prices: Sequence[Pricing], task: Task) -> Price:
    """Return what a task that is a pass costs on idle links, given the prices of each rank class."""
    assert isinstance(task.action, Compute)  # only passes have prices
    return prices[task.lanes[0].rank_class].price(task.action)


def _mean(work: Work | Uneven) -> Work:
    return work.work if isinstance(work, Uneven) else work


def _longest(work: Work | Uneven) -> Work:
    return work.longest if isinstance(work, Uneven) else work


def _add_waiting(price: Price, dimension: str, waiting_s: float) -> None:
    price.exposed_s[dimension] = price.exposed_s.get(dimension, 0.0) + waiting_s
    price.waiting_s[dimension] = price.waiting_s.get(dimension, 0.0) + waiting_s


def exposed_pairs(exposed_s: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return the dimensions with exposed communication, in a fixed order."""
    if not exposed_s:
        return ()
    return tuple((dimension, seconds) for dimension, seconds in sorted(exposed_s.items()) if seconds > 0.0)
