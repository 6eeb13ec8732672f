"""A comparison of parameter servers and rings as findings with tables, and everything in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from clustersim.studies.comparison_pictures import pictures
from clustersim.studies.comparison_view import EVERYWHERE, View, adapter_text, ratio_text
from clustersim.studies.exchange_forms import PLACEMENTS
from clustersim.studies.parameter_server_or_ring import Answer, ExchangeRow, Setting
from clustersim.studies.reported import Cell, Reported, Section, Table, span_text
from clustersim.studies.validation_table import share_text
from clustersim.units.quantity import format_quantity

NEVER: Final = "never"
ABSENT: Final = "-"
AS_LONG: Final = "as long"
SAME: Final = 1.005
"""Factors nearer to 1 than this are none."""

SETTING_HEADER: Final = ("adapter_bytes_per_s", "oversubscription", "workers")
ROW_HEADER: Final = (
    *SETTING_HEADER,
    "servers",
    "placement",
    "size_bytes",
    "in_turn_s",
    "overlapped_s",
    "ring_s",
    "library_s",
    "library_algorithm",
    "closed_form_s",
    "ring_closed_form_s",
    "in_turn_over_ring",
)
LEAST_HEADER: Final = (*SETTING_HEADER, "placement", "size_bytes", "fewest_servers_in_turn", "fewest_servers_overlapped")
SIZES_HEADER: Final = (*SETTING_HEADER, "servers", "placement", "as_fast_as_ring_up_to_bytes", "as_fast_as_library_up_to_bytes")


def reported(answer: Answer) -> Reported:
    """Return what a comparison tells its reader."""
    view = View(answer=answer)
    spec = answer.comparison.spec
    return Reported(
        name=spec.name,
        title=spec.question,
        sections=tuple(_sections(view)),
        notes=tuple(_notes(view)),
        tables=tuple(_tables(answer)),
        pictures=pictures(view, [finding(view) for finding in (by_workers, by_servers, by_oversubscription, by_size)]),
    )


def by_workers(view: View) -> str:
    """Return what more workers do."""
    most, way = view.workers[-1], view.ways[0]
    rows = [[view.row(view.setting(adapter, workers=most), one) for adapter in view.adapters] for one in (way, EVERYWHERE)]
    few, everywhere = (_factor_text([row.in_turn_s / row.ring_s for row in some if row]) for some in rows)
    return f"{most} workers: {way.label} {'takes' if way.servers == 1 else 'take'} {few} as a ring, servers on all workers {everywhere}"


def by_servers(view: View) -> str:
    """Return how many servers it takes."""
    found = [view.least(view.setting(adapter), "dedicated") for adapter in view.adapters]
    in_turn, overlapped = [least.in_turn for least in found], [least.overlapped for least in found]
    who = f"{view.shown_workers} workers: servers on hosts of their own"
    if all(count is None for count in overlapped):
        return f"{who} never match a ring, not even if push and pull overlap"
    if all(count is None for count in in_turn):
        return f"{who} never match a ring, but {_from_text(overlapped)} if push and pull overlap"
    return f"{who} match a ring {_from_text(in_turn)}, and {_from_text(overlapped)} if push and pull overlap"


def by_oversubscription(view: View) -> str:
    """Return what less bandwidth between leaves does."""
    first, last = view.oversubscriptions[0], view.oversubscriptions[-1]
    everywhere: list[float] = []
    ring: list[float] = []
    for adapter in view.adapters:
        wide, narrow = view.setting(adapter), view.setting(adapter, oversubscription=last)
        ring.append(view.ring_s(narrow) / view.ring_s(wide))
        before, after = view.row(wide, EVERYWHERE), view.row(narrow, EVERYWHERE)
        everywhere += [after.in_turn_s / before.in_turn_s] if before and after else []
    slower = "no longer" if _factor_text(ring) == AS_LONG else _factor_text(ring)
    return (
        f"{view.shown_workers} workers: at {ratio_text(last)} servers on all workers take {_factor_text(everywhere)}"
        f" as at {ratio_text(first)}, a ring {slower}"
    )


def by_size(view: View) -> str:
    """Return which messages are small enough."""
    way = view.ways[0]
    found = [sizes for adapter in view.adapters if (sizes := view.winning(view.setting(adapter), way))]
    ring, library = _up_to_text([sizes.ring_bytes for sizes in found]), _up_to_text([sizes.library_bytes for sizes in found])
    verb = "beats" if way.servers == 1 else "beat"
    return f"{view.shown_workers} workers: {way.label} {verb} a ring {ring}, and what the library chooses itself {library}"


def _sections(view: View) -> Iterator[Section]:
    times = ("adapter", ">workers", ">ring", ">without latency", *(f">{way.label}" for way in view.ways))
    settings = [view.setting(adapter, workers=workers) for adapter in view.adapters for workers in view.workers]
    yield Section(finding=by_workers(view), columns=times, cells=tuple(_time_cells(view, setting) for setting in settings))
    fewest = ("adapter", ">workers", ">own hosts", ">overlapped", ">on workers", ">overlapped")
    yield Section(finding=by_servers(view), columns=fewest, cells=tuple(_fewest_cells(view, setting) for setting in settings))
    if len(view.oversubscriptions) > 1:
        yield _narrowed(view, times)
    sizes = ("adapter", ">workers", *(f">{way.label}" for way in view.ways))
    yield Section(finding=by_size(view), columns=sizes, cells=tuple(_size_cells(view, setting) for setting in settings))


def _narrowed(view: View, columns: tuple[str, ...]) -> Section:
    settings = [view.setting(adapter, oversubscription=ratio) for adapter in view.adapters for ratio in view.oversubscriptions]
    cells: list[tuple[str, ...]] = []
    for setting in settings:
        adapter, _, *times = _time_cells(view, setting)
        cells.append((adapter, ratio_text(setting.oversubscription), *times))
    adapter, _, *names = columns
    return Section(finding=by_oversubscription(view), columns=(adapter, ">leaves", *names), cells=tuple(cells))


def _time_cells(view: View, setting: Setting) -> tuple[str, ...]:
    rows = [view.row(setting, way) for way in view.ways]
    return (
        adapter_text(setting.adapter_bytes_per_s),
        f"{setting.workers}",
        _time_text(view.ring_s(setting)),
        next(_time_text(row.ring_closed_form_s) for row in rows if row),
        *(_time_text(row.in_turn_s) if row else ABSENT for row in rows),
    )


def _fewest_cells(view: View, setting: Setting) -> tuple[str, ...]:
    counts = [
        count for placement in PLACEMENTS for least in (view.least(setting, placement),) for count in (least.in_turn, least.overlapped)
    ]
    return adapter_text(setting.adapter_bytes_per_s), f"{setting.workers}", *(NEVER if count is None else f"{count}" for count in counts)


def _size_cells(view: View, setting: Setting) -> tuple[str, ...]:
    found = [view.winning(setting, way) for way in view.ways]
    return (
        adapter_text(setting.adapter_bytes_per_s),
        f"{setting.workers}",
        *(f"{_size_text(sizes.ring_bytes)} / {_size_text(sizes.library_bytes)}" if sizes else ABSENT for sizes in found),
    )


def _notes(view: View) -> Iterator[str]:
    bounds = view.answer.comparison.spec.crossover_sizes
    tried = " to ".join(format_quantity(size_bytes, "B") for size_bytes in (bounds.smallest, bounds.largest))
    yield (
        f"Times are those of {format_quantity(view.size_bytes, 'B')} on an idle network, {ratio_text(view.oversubscriptions[0])} where"
        " nothing else is said: a push, then a pull. Servers hold even shares, on hosts of their own below further leaves; N on workers:"
        " one on the host of each worker."
    )
    yield "Without latency: a ring by its closed form. times.csv has the closed forms of parameter servers, and push and pull overlapped."
    rows = [row for row in view.answer.rows if row.size_bytes == view.size_bytes]
    ring = max(row.ring_s / row.ring_closed_form_s for row in rows) - 1.0
    served = max(row.in_turn_s / row.closed_form_s for row in rows) - 1.0
    yield f"Latency and ramp-up add {share_text(served)} to the closed form of push and pull at most, and {share_text(ring)} to a ring's."
    yield f"Sizes are those below which servers are as fast as a ring / as what the library chooses itself, from {tried}."


def _tables(answer: Answer) -> Iterator[Table]:
    yield Table(name="times", header=ROW_HEADER, rows=tuple(_row(row) for row in answer.rows))
    yield Table(name="times_by_size", header=ROW_HEADER, rows=tuple(_row(row) for row in answer.by_size))
    yield Table(
        name="fewest_servers",
        header=LEAST_HEADER,
        rows=tuple((*_where(one.setting), one.placement, one.size_bytes, one.in_turn, one.overlapped) for one in answer.least_servers),
    )
    yield Table(
        name="winning_sizes",
        header=SIZES_HEADER,
        rows=tuple((*_where(one.setting), one.servers, one.placement, one.ring_bytes, one.library_bytes) for one in answer.winning_sizes),
    )


def _row(row: ExchangeRow) -> tuple[Cell, ...]:
    return (
        *_where(row.setting),
        row.servers,
        row.placement,
        row.size_bytes,
        row.in_turn_s,
        row.overlapped_s,
        row.ring_s,
        row.library_s,
        row.library_algorithm,
        row.closed_form_s,
        row.ring_closed_form_s,
        row.in_turn_s / row.ring_s,
    )


def _where(setting: Setting) -> tuple[Cell, ...]:
    return setting.adapter_bytes_per_s, setting.oversubscription, setting.workers


def _factor_text(factors: Sequence[float]) -> str:
    if all(1.0 / SAME < factor < SAME for factor in factors):
        return AS_LONG
    return f"{span_text(factors, lambda factor: f'{factor:.2g}', NEVER)} times as long"


def _time_text(seconds: float) -> str:
    return format_quantity(seconds, "s")


def _from_text(counts: Sequence[int | None]) -> str:
    return f"from {span_text(counts, lambda count: f'{count:.0f}', NEVER)} on"


def _up_to_text(sizes_bytes: Sequence[float | None]) -> str:
    if all(size is None for size in sizes_bytes):
        return "at all sizes"
    if not any(sizes_bytes):
        return "at no size"
    return f"below {span_text(sizes_bytes, lambda size: format_quantity(size, 'B', 2), 'at all sizes')}"


def _size_text(size_bytes: float | None) -> str:
    if size_bytes is None:
        return "all"
    return format_quantity(size_bytes, "B", 2) if size_bytes else "none"
