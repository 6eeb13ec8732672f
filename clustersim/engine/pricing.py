"""Time of a pass while nothing else uses its links, in total and by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final

from clustersim.engine.alone import Alone, Carried, alone
from clustersim.engine.host_waits import Launched, awaited, between_waits_s, waits
from clustersim.engine.pace import Timing
from clustersim.engine.traffic import FlowPhases, Traffic
from clustersim.kernels.kernel_model import launches
from clustersim.network.in_flight import whole_ticks_s
from clustersim.network.sharing import SharedNetwork
from clustersim.program.tasks import Block, Collective, Compute, Item, Task, Work, collectives_in, works_in
from clustersim.trace.timeline import DetailBlock, SpanDetail
from clustersim.workloads.operators import Kernel

WAITING: Final = "wait for the longest"
"""Name in a timeline of the time that ranks with less work wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Overlapped computation and communication, a number of times in a pass."""

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
    carried: Carried = field(default_factory=Carried)
    """Traffic of its collectives."""
    items: dict[tuple[float, float], int] = field(default_factory=dict[tuple[float, float], int])
    """Number of items by the duration of their computation, with the waiting in it, and of their communication, in seconds."""
    detail: tuple[DetailBlock, ...] = ()
    issue_s: float = 0.0
    """Host time of the whole pass, in seconds."""
    waited_moves_s: float = 0.0
    """Communication within the host time, for which the host waits, and which keeps its pace."""
    host_s: float = 0.0
    """Part of the host time on top of the accelerator and its communication, in seconds, where the host is the slower of the two."""
    waiting_s: dict[str, float] = field(default_factory=dict[str, float])
    """Part of the exposed time in which ranks wait for one with more work, and which scales with computation."""
    blocks: bool = False
    """Whether the host waits for each kernel before it issues the next one."""
    overlaps: tuple[Overlap, ...] = ()
    """Overlaps of communication with computation, whose exposed part depends on the pace."""
    quotes: tuple[tuple[int, tuple[Quote, ...]], ...] = ()
    """Number of repetitions of each block, and its items."""

    def at(self, factor: float) -> Price:
        """Return the price where computation and host take ``factor`` times as long; communication does not."""
        if factor == 1.0:
            return self
        exposed_s, hidden_s = self.exposed_s, self.hidden_s
        if self.overlaps or self.waiting_s:
            exposed_s, hidden_s = dict(exposed_s), dict(hidden_s)
            for dimension, seconds in self.waiting_s.items():
                exposed_s[dimension] += (factor - 1.0) * seconds
            for overlap in self.overlaps:
                change_s = overlap.exposed_s(factor) - overlap.exposed_s(1.0)
                exposed_s[overlap.dimension] += change_s
                hidden_s[overlap.dimension] -= change_s
        device_s = 0.0
        for (compute_s, moved_s), times in self.items.items():
            computed_s = whole_ticks_s(factor * compute_s)
            device_s += times * (computed_s if computed_s > moved_s else moved_s)
        issue_s = factor * (self.issue_s - self.waited_moves_s) + self.waited_moves_s
        host_s = whole_ticks_s(self.held_up_s(device_s, issue_s))
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
            issue_s=issue_s,
            waited_moves_s=self.waited_moves_s,
            host_s=host_s,
            waiting_s=self.waiting_s and {dimension: factor * seconds for dimension, seconds in self.waiting_s.items()},
            blocks=self.blocks,
            quotes=self.quotes,
        )

    def held_up_s(self, device_s: float, issue_s: float) -> float:
        """Return the host time that lengthens a pass: all of it where launches block, otherwise the exposed part."""
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
            carried=self.carried.times(share),
            issue_s=share * self.issue_s,
            waited_moves_s=share * self.waited_moves_s,
            host_s=share * self.host_s,
            waiting_s={dimension: share * seconds for dimension, seconds in self.waiting_s.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One item of a block: computation, and communication that overlaps with it or not."""

    compute_s: float
    communication_s: float
    issue_s: float
    """Host issue time in seconds."""
    carried: Sequence[Carried] = ()
    """Traffic of each collective."""
    flows: tuple[tuple[str, FlowPhases], ...] = ()
    """Dimension and flows of each collective."""
    has_work: bool = True
    waits: tuple[tuple[str, float], ...] = ()
    """Dimension and duration of each wait for the rank that has most work, in the mean of those that have less."""
    waiting_s: float = 0.0
    """Sum of the waits."""

    @property
    def duration_s(self) -> float:
        """The longer of the two: computation with the waiting for who has more of it, or communication beside it."""
        return max(self.compute_s + self.waiting_s, self.communication_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Communicated:
    """One collective of an item, as a timeline shows it."""

    own_s: float
    """Uncontended duration, in seconds."""
    beside_s: float | None
    """Its share of the computation beside it; None without any."""
    slice: SpanDetail

    def add_to(self, price: Price, *, repeat: int) -> None:
        """Add it to the price of a pass, a number of times."""
        dimension, exposed_s = self.slice.dimension, self.slice.duration_s
        price.bytes += repeat * self.slice.bytes
        price.exposed_s[dimension] = price.exposed_s.get(dimension, 0.0) + repeat * exposed_s
        price.hidden_s[dimension] = price.hidden_s.get(dimension, 0.0) + repeat * (self.own_s - exposed_s)
        if self.beside_s is not None:
            price.overlaps += (Overlap(dimension=dimension, repeat=repeat, compute_s=self.beside_s, communication_s=self.own_s),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """An item as a timeline shows it."""

    works: tuple[SpanDetail, ...]
    """With the waiting for who has more of it."""
    collectives: tuple[_Communicated, ...]
    slices: tuple[SpanDetail, ...] = field(init=False)
    """All of it, in order."""

    def __post_init__(self) -> None:
        """Put all slices together once."""
        object.__setattr__(self, "slices", (*self.works, *(each.slice for each in self.collectives)))


@dataclass(slots=True)
class Pricing:
    """Prices of passes, each computed once."""

    kernels: Timing
    traffic: Traffic
    network: SharedNetwork
    step_host_s: float
    slowdown: float = 1.0
    """Ratio of all computation time to that of the kernel model, and factor on the host time of a step."""
    _by_itself: dict[int, Alone] = field(default_factory=dict[int, Alone])
    _prices: dict[Compute, Price] = field(default_factory=dict[Compute, Price])
    _quotes: dict[int, tuple[Item, Quote]] = field(default_factory=dict[int, tuple[Item, Quote]])
    """By identity of the item, which therefore must live."""
    _shown_of: dict[int, _Shown] = field(default_factory=dict[int, "_Shown"])

    def price(self, action: Compute) -> Price:
        """Return the uncontended price of a pass."""
        price = self._prices.get(action)
        if price is None:
            price = self._prices[action] = self._price(action)
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
        issued = [kernel for work in works for kernel in work.longest or work.kernels]
        means_s = [self._work_s(work, work.kernels) for work in works]
        waits = tuple(
            (work.dimension, whole_ticks_s(max(0.0, self._work_s(work, work.longest) - mean_s)))
            for work, mean_s in zip(works, means_s, strict=True)
            if work.longest
        )
        return Quote(
            compute_s=fsum(map(whole_ticks_s, means_s)),
            communication_s=fsum(alone.duration_s for alone in moved),
            issue_s=whole_ticks_s(self._issue_s(issued, sum(collective.pieces for collective in collectives))),
            carried=[alone.carried for alone in moved],
            flows=tuple((collective.group.dimension, self.traffic.phases(collective)) for collective in collectives),
            has_work=bool(works),
            waits=waits,
            waiting_s=fsum(seconds for _, seconds in waits),
        )

    def _work_s(self, work: Work, kernels: Sequence[Kernel]) -> float:
        # The loader is the host's, and keeps its pace beside a slow accelerator.
        slowdown = 1.0 if work.phase == "load" else self.slowdown
        return slowdown * self.kernels.work_s(kernels)

    def _issue_s(self, kernels: Sequence[Kernel], n_collectives: int = 0) -> float:
        return self.slowdown * self.kernels.issue_s(kernels, n_collectives)

    def _alone(self, collective: Collective) -> Alone:
        phases = self.traffic.phases(collective)
        found = self._by_itself.get(id(phases))
        if found is None:
            # Phases are kept by the traffic, so that their identity stays theirs.
            found = self._by_itself[id(phases)] = alone(phases, self.network)
        return found

    def _price(self, action: Compute) -> Price:
        if action.phase == "host":
            host_s = whole_ticks_s(self.slowdown * self.step_host_s)
            return Price(duration_s=host_s, issue_s=host_s, host_s=host_s)
        price = self.times(action.blocks)
        price.detail = tuple(self._add_block(price, block) for block in action.blocks)
        return price

    def times(self, blocks: Sequence[Block]) -> Price:
        """Return the price of a pass with its times alone, without what a timeline shows."""
        price = Price(quotes=tuple((block.repeat, tuple(map(self.quote, block.body))) for block in blocks))
        for repeat, quotes in price.quotes:
            for quote in quotes:
                price.duration_s += repeat * quote.duration_s
                item_s = quote.compute_s + quote.waiting_s, quote.communication_s
                price.items[item_s] = price.items.get(item_s, 0) + repeat
                price.compute_s += repeat * quote.compute_s
        self._add_host(price, blocks)
        price.blocks = self.kernels.blocks
        price.host_s = price.held_up_s(price.duration_s, price.issue_s)
        price.duration_s += price.host_s
        return price

    def _add_block(self, price: Price, block: Block) -> DetailBlock:
        slices: list[SpanDetail] = []
        for item in block.body:
            shown = self._shown(item)
            for slice_ in shown.works:
                _add_work(price, slice_, repeat=block.repeat)
            for carried in self.quote(item).carried:
                price.carried.add(carried, block.repeat)
            for communicated in shown.collectives:
                communicated.add_to(price, repeat=block.repeat)
            slices += shown.slices
        return DetailBlock(name=block.name, repeat=block.repeat, slices=tuple(slices))

    def _add_host(self, price: Price, blocks: Sequence[Block]) -> None:
        """Add the host time of a pass: of its launches, or, where the host waits for results, of whichever is longer in each block."""
        quoted = [[self.quote(item) for item in block.body] for block in blocks]
        issues_s = [fsum(quote.issue_s for quote in quotes) for quotes in quoted]
        waiting = not self.kernels.blocks and any(issues_s) and any(map(waits, blocks))
        for block, quotes, issue_s in zip(blocks, quoted, issues_s, strict=True):
            longest_s = issue_s
            if waiting:
                device_s = fsum(quote.duration_s for quote in quotes)
                waited_s = between_waits_s([each for item in block.body for each in self._launched(item)]) if waits(block) else 0.0
                longest_s = max(issue_s, device_s, waited_s)
                if issue_s < device_s:
                    price.waited_moves_s += block.repeat * fsum(quote.duration_s - quote.compute_s - quote.waiting_s for quote in quotes)
            price.issue_s += block.repeat * longest_s

    def _launched(self, item: Item) -> list[Launched]:
        if not isinstance(item, Work):
            quote = self.quote(item)
            return [Launched(issue_s=quote.issue_s, device_s=quote.duration_s)]
        return [
            Launched(
                issue_s=self._issue_s((kernel,)),
                device_s=self.slowdown * self.kernels.work_s((kernel,)),
                n=max(1, launches(kernel)),
                awaited=awaited(kernel),
            )
            for kernel in item.kernels
        ]

    def _shown(self, item: Item) -> _Shown:
        """Return the row of an item in a timeline; most items occur in many passes."""
        shown = self._shown_of.get(id(item))
        if shown is None:
            # Items are kept with their quotes, so that their identity stays theirs.
            quote = self.quote(item)
            works = [part for work in works_in(item) for part in self._of_work(work)]
            collectives = [self._of_collective(collective, quote) for collective in collectives_in(item)]
            shown = self._shown_of[id(item)] = _Shown(works=tuple(works), collectives=tuple(collectives))
        return shown

    def _of_work(self, work: Work) -> list[SpanDetail]:
        flops, compute_s = fsum(kernel.flops for kernel in work.kernels), self._work_s(work, work.kernels)
        computed = SpanDetail(name=work.name, kind=work.phase, dimension="", duration_s=compute_s, flops=flops)
        if not work.longest:
            return [computed]
        waiting_s = max(0.0, self._work_s(work, work.longest) - compute_s)
        return [computed, SpanDetail(name=WAITING, kind="communication", dimension=work.dimension, duration_s=waiting_s)]

    def _of_collective(self, collective: Collective, quote: Quote) -> _Communicated:
        """Return one collective; of several beside the same work each sticks out of its share of it."""
        own_s, beside_s = self._alone(collective).duration_s, quote.compute_s + quote.waiting_s
        share = own_s / quote.communication_s if quote.communication_s > 0.0 else 0.0
        exposed_s = max(0.0, own_s - share * beside_s)
        return _Communicated(
            own_s=own_s,
            beside_s=share * beside_s if beside_s > 0.0 else None,
            slice=SpanDetail(
                name=collective.op.replace("_", "-"),
                kind="communication",
                dimension=collective.group.dimension,
                duration_s=exposed_s,
                bytes=collective.bytes,
            ),
        )


def price_of(prices: Sequence[Pricing], task: Task) -> Price:
    """Return the uncontended price of a pass, given the prices of each rank class."""
    assert isinstance(task.action, Compute)  # only passes have prices
    return prices[task.lanes[0].rank_class].price(task.action)


def _add_work(price: Price, part: SpanDetail, *, repeat: int) -> None:
    """Add computation, or the waiting for who has more of it."""
    if part.kind == "communication":
        waiting_s = repeat * part.duration_s
        price.exposed_s[part.dimension] = price.exposed_s.get(part.dimension, 0.0) + waiting_s
        price.waiting_s[part.dimension] = price.waiting_s.get(part.dimension, 0.0) + waiting_s
        return
    price.flops += repeat * part.flops
    if part.kind == "recompute":
        price.recompute_s += repeat * part.duration_s


def exposed_pairs(exposed_s: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return the dimensions with exposed communication, in a fixed order."""
    if not exposed_s:
        return ()
    return tuple((dimension, seconds) for dimension, seconds in sorted(exposed_s.items()) if seconds > 0.0)
