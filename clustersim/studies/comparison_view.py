"""Which times of a comparison are shown, and how they are called."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from clustersim.report.pictures import Line
from clustersim.studies.exchange_forms import Placement
from clustersim.studies.parameter_server_or_ring import Answer, ExchangeRow, LeastServers, Setting, WinningSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Some parameter servers, whatever the number of workers."""

    label: str
    placement: Placement
    servers: int | None
    """As many as workers where None."""
    line: Line

    def count(self, workers: int) -> int:
        """Return how many servers so many workers have."""
        return workers if self.servers is None else self.servers


EACH: Final = Way(label="N servers", placement="dedicated", servers=None, line="solid")
EVERYWHERE: Final = Way(label="N on workers", placement="colocated", servers=None, line="dashed")


@dataclass(frozen=True, kw_only=True)
class View:
    """An answer by what one asks it."""

    answer: Answer

    @property
    def ways(self) -> tuple[Way, ...]:
        """Those that are shown."""
        counts = [count for count in self.answer.comparison.spec.shown.servers if count < self.shown_workers]
        few = (Way(label=servers_text(count), placement="dedicated", servers=count, line="solid") for count in counts)
        return (*few, EACH, EVERYWHERE)

    @property
    def adapters(self) -> tuple[float, ...]:
        """Bandwidths of the adapters, in bytes per second."""
        return tuple(node.nic.bandwidth_bytes_per_s for node in self.answer.comparison.nodes)

    @property
    def oversubscriptions(self) -> tuple[float, ...]:
        """All of them."""
        return tuple(self.answer.comparison.spec.oversubscription)

    @property
    def workers(self) -> tuple[int, ...]:
        """All numbers of workers."""
        return tuple(self.answer.comparison.spec.workers)

    @property
    def shown_workers(self) -> int:
        """The number of workers where only one is shown."""
        return self.answer.comparison.spec.shown.workers

    @property
    def size_bytes(self) -> float:
        """The size where only one is shown."""
        return self.answer.comparison.spec.shown.size

    def setting(self, adapter: float, *, oversubscription: float | None = None, workers: int | None = None) -> Setting:
        """Return a setting; with the least oversubscription and the shown number of workers where these are left out."""
        ratio = self.oversubscriptions[0] if oversubscription is None else oversubscription
        return Setting(adapter_bytes_per_s=adapter, oversubscription=ratio, workers=workers or self.shown_workers)

    def row(self, setting: Setting, way: Way) -> ExchangeRow | None:
        """Return a row of the shown size; None where there are fewer workers than servers."""
        return self._rows.get((setting, way.count(setting.workers), way.placement))

    def ring_s(self, setting: Setting) -> float:
        """Return the time of the ring."""
        return self._rows[setting, setting.workers, "dedicated"].ring_s

    def ring_closed_form_s(self, setting: Setting) -> float:
        """Return the time of the ring without latency."""
        return self._rows[setting, setting.workers, "dedicated"].ring_closed_form_s

    def rows(self, setting: Setting, placement: Placement) -> list[ExchangeRow]:
        """Return the rows of the shown size with 1, 2 and more servers."""
        return [row for (where, _, placed), row in self._rows.items() if where == setting and placed == placement]

    def by_size(self, setting: Setting, way: Way) -> list[ExchangeRow]:
        """Return rows with more and more bytes."""
        count = way.count(setting.workers)
        return [row for row in self.answer.by_size if (row.setting, row.servers, row.placement) == (setting, count, way.placement)]

    def least(self, setting: Setting, placement: Placement) -> LeastServers:
        """Return the fewest servers that are as fast as the ring at the shown size."""
        return self._least[setting, placement]

    def winning(self, setting: Setting, way: Way) -> WinningSizes | None:
        """Return up to which size servers are as fast; None where there are fewer workers than servers."""
        return self._winning.get((setting, way.count(setting.workers), way.placement))

    @cached_property
    def _rows(self) -> dict[tuple[Setting, int, Placement], ExchangeRow]:
        return {(row.setting, row.servers, row.placement): row for row in self.answer.rows if row.size_bytes == self.size_bytes}

    @cached_property
    def _least(self) -> dict[tuple[Setting, Placement], LeastServers]:
        return {(least.setting, least.placement): least for least in self.answer.least_servers if least.size_bytes == self.size_bytes}

    @cached_property
    def _winning(self) -> dict[tuple[Setting, int, Placement], WinningSizes]:
        return {(found.setting, found.servers, found.placement): found for found in self.answer.winning_sizes}


def servers_text(count: int) -> str:
    """Return ``1 server`` or ``4 servers``."""
    return "1 server" if count == 1 else f"{count} servers"


def adapter_text(bandwidth_bytes_per_s: float) -> str:
    """Return a bandwidth as adapters are called.

    Examples
    --------
    >>> adapter_text(1.25e9)
    '10 Gbit/s'
    """
    return f"{8e-9 * bandwidth_bytes_per_s:g} Gbit/s"


def ratio_text(oversubscription: float) -> str:
    """Return ``8:1``."""
    return f"{oversubscription:g}:1"
