"""The pictures of a comparison: a panel for each adapter, parameter servers in one colour and all-reduces in another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Final

from clustersim.report.palette import DIMENSION_COLOURS
from clustersim.report.pictures import Axis, Corner, Curve, Line, Note, Panel, Picture
from clustersim.studies.comparison_view import View, adapter_text, ratio_text
from clustersim.studies.exchange_forms import Placement
from clustersim.studies.parameter_server_or_ring import ExchangeRow, Setting
from clustersim.studies.reported import ticks
from clustersim.units.quantity import format_quantity

REDUCED: Final = DIMENSION_COLOURS["dp"]
SERVED: Final = DIMENSION_COLOURS["ps"]
WHERE: Final = "solid: servers on hosts of their own, dashed: on hosts of workers"


def pictures(view: View, findings: Sequence[str]) -> tuple[Picture, ...]:
    """Return a picture for each finding: by workers, by servers, by oversubscription, by size."""
    workers, servers, oversubscription, size = findings
    found = [_workers(view, workers), _servers(view, servers), _oversubscription(view, oversubscription), _sizes(view, size)]
    # One place on the axis is no picture.
    return tuple(picture for picture in found if len({point[0] for point in _points(picture.panels)}) > 1)


def _workers(view: View, finding: str) -> Picture:
    panels: list[Panel] = []
    for adapter in view.adapters:
        settings = [view.setting(adapter, workers=workers) for workers in view.workers]
        curves = _curves(view, [(float(one.workers), one) for one in settings])
        bytes_alone = tuple((float(one.workers), view.ring_closed_form_s(one)) for one in settings)
        alone = Curve(label="without latency", points=bytes_alone, colour=REDUCED, line="dotted")
        panels.append(Panel(title=adapter_text(adapter), curves=(alone, *curves)))
    return Picture(
        name="workers",
        finding=finding,
        subtitle=f"{_round(view)}, leaves {_leaves(view)}; {WHERE}; dotted: a ring without latency",
        x=Axis(label="workers", ticks=tuple((float(count), f"{count}") for count in view.workers)),
        y=Axis(label="time of a round", ticks=ticks([y for _, y in _points(panels)], "s")),
        panels=tuple(panels),
    )


def _servers(view: View, finding: str) -> Picture:
    panels: list[Panel] = []
    for adapter in view.adapters:
        setting = view.setting(adapter)
        panels.append(Panel(title=adapter_text(adapter), curves=tuple(_by_servers(view, setting)), notes=tuple(_matches(view, setting))))
    counts = sorted({x for x, _ in _points(panels)})
    return Picture(
        name="servers",
        finding=finding,
        subtitle=f"{_round(view)}, {view.shown_workers} workers, leaves {_leaves(view)}; {WHERE}; dotted: push and pull overlap",
        x=Axis(label="servers", ticks=tuple((count, f"{count:g}") for count in counts)),
        y=Axis(label="time of a round", ticks=ticks([y for _, y in _points(panels)], "s")),
        panels=tuple(panels),
    )


def _by_servers(view: View, setting: Setting) -> Iterator[Curve]:
    last = float(setting.workers)
    yield _ring(((1.0, view.ring_s(setting)), (last, view.ring_s(setting))))
    ways: tuple[tuple[str, Placement, Line, bool], ...] = (
        ("own hosts", "dedicated", "solid", False),
        ("overlapped", "dedicated", "dotted", True),
        ("on workers", "colocated", "dashed", False),
    )
    for label, placement, line, overlapped in ways:
        rows = view.rows(setting, placement)
        points = tuple((float(row.servers), row.overlapped_s if overlapped else row.in_turn_s) for row in rows)
        yield Curve(label=label, points=points, colour=SERVED, line=line)


def _matches(view: View, setting: Setting) -> Iterator[Note]:
    least = view.least(setting, "dedicated")
    for count in (least.in_turn, least.overlapped):
        if count is not None:
            yield Note(x=float(count), y=view.ring_s(setting), text=f"{count}", corner="lower left")


def _oversubscription(view: View, finding: str) -> Picture:
    panels: list[Panel] = []
    for adapter in view.adapters:
        settings = [view.setting(adapter, oversubscription=ratio) for ratio in view.oversubscriptions]
        panels.append(Panel(title=adapter_text(adapter), curves=_curves(view, [(one.oversubscription, one) for one in settings])))
    return Picture(
        name="oversubscription",
        finding=finding,
        subtitle=f"{_round(view)}, {view.shown_workers} workers; {WHERE}",
        x=Axis(label="oversubscription of leaves", ticks=tuple((ratio, ratio_text(ratio)) for ratio in view.oversubscriptions)),
        y=Axis(label="time of a round", ticks=ticks([y for _, y in _points(panels)], "s")),
        panels=tuple(panels),
    )


def _sizes(view: View, finding: str) -> Picture:
    panels: list[Panel] = []
    for adapter in view.adapters:
        setting = view.setting(adapter)
        curves: list[Curve] = []
        for way in view.ways:
            rows = view.by_size(setting, way)
            curves.append(Curve(label=way.label, points=_over_ring(rows, [row.in_turn_s for row in rows]), colour=SERVED, line=way.line))
        rows = view.by_size(setting, view.ways[0])
        library = Curve(label="library's choice", points=_over_ring(rows, [row.library_s for row in rows]), colour=REDUCED, line="dotted")
        panels.append(
            Panel(
                title=adapter_text(adapter),
                curves=(_ring(_over_ring(rows, [row.ring_s for row in rows])), library, *curves),
                notes=tuple(_overtaken(view, setting)),
            )
        )
    return Picture(
        name="sizes",
        finding=finding,
        subtitle=f"push, then pull, {view.shown_workers} workers, leaves {_leaves(view)}; {WHERE}",
        x=Axis(label="gradients of one worker", ticks=ticks([x for x, _ in _points(panels)], "B")),
        y=Axis(label="time over that of a ring", ticks=tuple((at, f"{at:g}") for at in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0))),
        panels=tuple(panels),
    )


def _over_ring(rows: Sequence[ExchangeRow], times_s: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple((row.size_bytes, time_s / row.ring_s) for row, time_s in zip(rows, times_s, strict=True))


def _overtaken(view: View, setting: Setting) -> Iterator[Note]:
    corners: Iterator[Corner] = cycle(("upper left", "lower right"))
    for way in view.ways:
        sizes = view.winning(setting, way)
        if sizes and sizes.ring_bytes:
            yield Note(x=sizes.ring_bytes, y=1.0, text=format_quantity(sizes.ring_bytes, "B", 2), corner=next(corners))


def _curves(view: View, settings: Sequence[tuple[float, Setting]]) -> tuple[Curve, ...]:
    """Return the ring and the servers that are shown, each setting at its place on the axis."""
    curves = [_ring(tuple((x, view.ring_s(setting)) for x, setting in settings))]
    for way in view.ways:
        points = tuple((x, row.in_turn_s) for x, setting in settings if (row := view.row(setting, way)))
        curves.append(Curve(label=way.label, points=points, colour=SERVED, line=way.line))
    return tuple(curves)


def _ring(points: tuple[tuple[float, float], ...]) -> Curve:
    return Curve(label="ring", points=points, colour=REDUCED, strong=True)


def _round(view: View) -> str:
    return f"push, then pull of {format_quantity(view.size_bytes, 'B')}"


def _leaves(view: View) -> str:
    return ratio_text(view.oversubscriptions[0])


def _points(panels: Sequence[Panel]) -> list[tuple[float, float]]:
    return [point for panel in panels for curve in panel.curves for point in curve.points]
