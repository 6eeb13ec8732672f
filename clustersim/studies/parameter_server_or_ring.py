"""When do parameter servers beat a ring? Every combination of a comparison, timed by the network model on idle clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Final

from clustersim.hardware.calibration import NetworkCalibration
from clustersim.hardware.calibrations import calibration_for
from clustersim.studies.comparison_file import Comparison
from clustersim.studies.exchange_forms import PLACEMENTS, Bandwidths, Parties, Placement, pull_s, push_s, ring_s
from clustersim.studies.exchange_times import Bench, bench

SIZE_FACTOR: Final = 4.0
"""From one size that is tried to the next, where a crossover is sought."""
SIZE_TOLERANCE: Final = 0.005
"""Relative, of a size at which both take equally long."""
ROUND_OFF: Final = 1e-12
"""Times that differ by no more are equal."""

Duration = Callable[[float], float]
"""Seconds for so many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where gradients are exchanged, and among how many."""

    adapter_bytes_per_s: float
    """Data sheet, one direction."""
    oversubscription: float
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRow:
    """One round of parameter servers and one all-reduce."""

    setting: Setting
    servers: int
    placement: Placement
    size_bytes: float
    """Gradients of one worker, and parameters."""
    in_turn_s: float
    """All gradients are pushed, then all parameters pulled."""
    overlapped_s: float
    """Both at once, as in a tensor of many layers."""
    ring_s: float
    library_s: float
    """All-reduce by what the communication library chooses itself."""
    library_algorithm: str
    closed_form_s: float
    """Of push and pull in turn, without any latency."""
    ring_closed_form_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastServers:
    """The fewest servers that are as fast as the ring; None where as many as workers are not."""

    setting: Setting
    placement: Placement
    size_bytes: float
    in_turn: int | None
    overlapped: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WinningSizes:
    """The sizes up to which servers are as fast; 0 where they never are, None where they still are at the largest size tried."""

    setting: Setting
    servers: int
    placement: Placement
    ring_bytes: float | None
    """Push and pull in turn, against the ring."""
    library_bytes: float | None
    """The same against what the communication library chooses itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything that a comparison found."""

    comparison: Comparison
    rows: tuple[ExchangeRow, ...]
    by_size: tuple[ExchangeRow, ...]
    """Of the number of workers that is shown, without oversubscription or with the least: more sizes."""
    least_servers: tuple[LeastServers, ...]
    winning_sizes: tuple[WinningSizes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Some workers on a bench."""

    comparison: Comparison
    setting: Setting
    bench: Bench
    links: Bandwidths

    def parties(self, servers: int, placement: Placement) -> Parties:
        first_host = self.bench.library.cluster.n_nodes
        return Parties(workers=self.setting.workers, servers=servers, placement=placement, first_host=first_host)

    def ring_s(self, size_bytes: float) -> float:
        return self.bench.all_reduce(self.setting.workers, size_bytes, "ring")[0]

    def library_s(self, size_bytes: float) -> float:
        return self.bench.all_reduce(self.setting.workers, size_bytes, "auto")[0]


def compare(comparison: Comparison, calibration: NetworkCalibration | None = None) -> Answer:
    """Return times and crossovers of all combinations.

    Parameters
    ----------
    calibration
        Of the network; that of the accelerator when left out.
    """
    spec = comparison.spec
    rows: list[ExchangeRow] = []
    by_size: list[ExchangeRow] = []
    least: list[LeastServers] = []
    sizes: list[WinningSizes] = []
    for case in _cases(comparison, calibration):
        rows += _rows(case, spec.sizes)
        if case.setting.workers == spec.shown.workers and case.setting.oversubscription == spec.oversubscription[0]:
            by_size += _rows(case, tried_sizes(spec.crossover_sizes.smallest, spec.crossover_sizes.largest))
        least += _least_servers(case)
        sizes += _winning_sizes(case)
    return Answer(comparison=comparison, rows=tuple(rows), by_size=tuple(by_size), least_servers=tuple(least), winning_sizes=tuple(sizes))


def _cases(comparison: Comparison, calibration: NetworkCalibration | None) -> Iterator[_Case]:
    spec = comparison.spec
    for node in comparison.nodes:
        network = calibration or calibration_for(node.accelerator).network
        for oversubscription in spec.oversubscription:
            fabric = comparison.fabric(node, oversubscription)
            on = bench(node, fabric, network, most_workers=spec.workers[-1])
            links = Bandwidths.of(node, fabric, network)
            for workers in spec.workers:
                setting = Setting(adapter_bytes_per_s=node.nic.bandwidth_bytes_per_s, oversubscription=oversubscription, workers=workers)
                yield _Case(comparison=comparison, setting=setting, bench=on, links=links)


def _rows(case: _Case, sizes_bytes: Sequence[float]) -> Iterator[ExchangeRow]:
    for size_bytes in sizes_bytes:
        library_s, library_algorithm = case.bench.all_reduce(case.setting.workers, size_bytes, "auto")
        for placement in PLACEMENTS:
            for servers in case.comparison.server_counts(case.setting.workers):
                parties = case.parties(servers, placement)
                yield ExchangeRow(
                    setting=case.setting,
                    servers=servers,
                    placement=placement,
                    size_bytes=size_bytes,
                    in_turn_s=case.bench.in_turn_s(parties, size_bytes),
                    overlapped_s=case.bench.overlapped_s(parties, size_bytes),
                    ring_s=case.ring_s(size_bytes),
                    library_s=library_s,
                    library_algorithm=library_algorithm,
                    closed_form_s=push_s(case.links, parties, size_bytes) + pull_s(case.links, parties, size_bytes),
                    ring_closed_form_s=ring_s(case.links, case.setting.workers, size_bytes),
                )


def _least_servers(case: _Case) -> Iterator[LeastServers]:
    for size_bytes in case.comparison.spec.sizes:
        for placement in PLACEMENTS:
            yield LeastServers(
                setting=case.setting,
                placement=placement,
                size_bytes=size_bytes,
                in_turn=_fewest(case, placement, size_bytes, overlapped=False),
                overlapped=_fewest(case, placement, size_bytes, overlapped=True),
            )


def _fewest(case: _Case, placement: Placement, size_bytes: float, *, overlapped: bool) -> int | None:
    limit_s = case.ring_s(size_bytes)
    for servers in range(1, case.setting.workers + 1):
        parties = case.parties(servers, placement)
        ways_s = push_s(case.links, parties, size_bytes), pull_s(case.links, parties, size_bytes)
        # What loses without any latency need not be simulated.
        if not as_fast(max(ways_s) if overlapped else sum(ways_s), limit_s):
            continue
        took_s = (case.bench.overlapped_s if overlapped else case.bench.in_turn_s)(parties, size_bytes)
        if as_fast(took_s, limit_s):
            return servers
    return None


def _winning_sizes(case: _Case) -> Iterator[WinningSizes]:
    bounds = case.comparison.spec.crossover_sizes
    sizes_bytes = tried_sizes(bounds.smallest, bounds.largest)
    for placement in PLACEMENTS:
        for servers in case.comparison.server_counts(case.setting.workers):
            in_turn_s = partial(case.bench.in_turn_s, case.parties(servers, placement))
            yield WinningSizes(
                setting=case.setting,
                servers=servers,
                placement=placement,
                ring_bytes=largest_win(in_turn_s, case.ring_s, sizes_bytes),
                library_bytes=largest_win(in_turn_s, case.library_s, sizes_bytes),
            )


def tried_sizes(smallest_bytes: float, largest_bytes: float) -> tuple[float, ...]:
    """Return sizes in steps of ``SIZE_FACTOR``, the largest among them.

    Examples
    --------
    >>> tried_sizes(1.0, 20.0)
    (1.0, 4.0, 16.0, 20.0)
    """
    sizes_bytes = [smallest_bytes]
    while sizes_bytes[-1] < largest_bytes:
        sizes_bytes.append(min(SIZE_FACTOR * sizes_bytes[-1], largest_bytes))
    return tuple(sizes_bytes)


def largest_win(served_s: Duration, rival_s: Duration, sizes_bytes: Sequence[float]) -> float | None:
    """Return the size up to which servers are as fast as a rival; 0 where they are not at the smallest, None where at all sizes.

    Where they lose for the first time, the size is sought between that and the one before.

    Examples
    --------
    >>> round(largest_win(lambda size: size, lambda size: 0.5 * size + 2.0, [1.0, 16.0]), 1)
    4.0
    """
    won_bytes = 0.0
    for lost_bytes in sizes_bytes:
        if not as_fast(served_s(lost_bytes), rival_s(lost_bytes)):
            return _between(served_s, rival_s, won_bytes, lost_bytes) if won_bytes else 0.0
        won_bytes = lost_bytes
    return None


def _between(served_s: Duration, rival_s: Duration, won_bytes: float, lost_bytes: float) -> float:
    while lost_bytes > (1.0 + SIZE_TOLERANCE) * won_bytes:
        middle_bytes = sqrt(won_bytes * lost_bytes)
        if as_fast(served_s(middle_bytes), rival_s(middle_bytes)):
            won_bytes = middle_bytes
        else:
            lost_bytes = middle_bytes
    return won_bytes


def as_fast(served_s: float, rival_s: float) -> bool:
    """Return whether servers take no longer than a rival."""
    return served_s <= rival_s * (1.0 + ROUND_OFF)
