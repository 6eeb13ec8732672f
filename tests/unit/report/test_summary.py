"""The report in a terminal and in Markdown."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from clustersim.measure.metrics import Metrics
from clustersim.notices import Flag
from clustersim.report.summary import html_summary, markdown_summary, print_flags, terminal_report
from clustersim.trace.timeline import Meeting, Timeline
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


def printed(
    metrics: Metrics = METRICS,
    timeline: Timeline = TIMELINE,
    *,
    width: int = 80,
    encoding: str = "utf-8",
    colour: bool = False,
    verbose: bool = True,
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    console = Console(file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    terminal_report(metrics, timeline, console, verbose=True)
    print_flags(console, metrics, verbose=verbose)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("n_stages", [1, 16])
def test_no_line_is_wider_than_the_terminal(width: int, encoding: str, n_stages: int) -> None:
    timeline = reference_timeline(n_stages, 2 * n_stages)

    lines = printed(reference_metrics(timeline), timeline, width=width, encoding=encoding).splitlines()

    assert max(map(len, lines)) <= min(width, 120)
    assert all(line == line.rstrip() for line in lines)


def test_bars_are_in_proportion() -> None:
    lines = printed(encoding="ascii").splitlines()

    bars = {line[2:17].strip(): len(re.findall("[#-]", line[17:])) for line in lines if "%" in line and re.search("  [#-]", line)}
    assert bars["compute"] == 39
    # 94.625 ms of 201.6 ms.
    assert bars["pipeline bubble"] == round(39 * 94.625 / 201.6)


def test_ascii_loses_no_figure() -> None:
    figures = re.compile(r"\d[\d,.]*")

    assert figures.findall(printed(encoding="ascii")) == figures.findall(printed())


def test_a_name_that_the_terminal_cannot_show_is_no_error() -> None:
    assert "gro?es Modell" in printed(replace(METRICS, scenario="großes Modell"), encoding="ascii")


def test_colour_only_adds_colour() -> None:
    coloured = printed(colour=True)

    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == printed()


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    assert not re.search(r"\x1b\[[0-9;]*(3[0-9]|38|4[0-9]|48)[;m]", printed(colour=True))


def test_markup_in_a_name_is_plain_text() -> None:
    assert "[red]x[/red]" in printed(replace(METRICS, scenario="[red]x[/red]"))


def test_what_there_is_not_has_no_section() -> None:
    metrics = replace(METRICS, flags=(), links=(), collectives=(), busiest_links=())

    for text in (printed(metrics), markdown_summary(metrics, TIMELINE), html_summary(metrics, TIMELINE)):
        assert not any(word in text for word in ("Assumed", "Busiest links", "Collectives", "contention"))


def test_light_assumptions_stand_in_one_line_and_others_in_full() -> None:
    flags = tuple(Flag(code=code, message=f"of {code}") for code in ("assumed_reserve", "borrowed_calibration", "no_interference"))

    text = printed(replace(METRICS, flags=flags), verbose=False)

    light = "  of little effect on the step: assumed_reserve, no_interference (in full with\n    --verbose)\n"
    assert text.endswith(f"borrowed_calibration: of borrowed_calibration\n{light}")


@pytest.mark.parametrize(("share", "told"), [(0.005, False), (0.02, True)])
def test_the_assumed_time_of_the_host_is_told_where_a_step_waits_for_it(share: float, *, told: bool) -> None:
    breakdown = replace(METRICS.breakdown_s, host=share * METRICS.step_time_s)

    text = printed(replace(METRICS, breakdown_s=breakdown, flags=(Flag(code="assumed_launch_overhead", message="1.7"),)), verbose=False)

    assert ("assumed_launch_overhead: 1.7" in text) == told


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_meeting_is_wrapped(width: int) -> None:
    (link, *rest) = METRICS.busiest_links
    long = Meeting(names=tuple(f"expert-parallel all-to-all of layer {layer}" for layer in range(6)), seconds=9.0)
    metrics = replace(METRICS, busiest_links=(replace(link, meetings=(long,)), *rest))

    lines = printed(metrics, width=width).splitlines()

    assert max(map(len, lines)) <= width
    assert "with expert-parallel all-to-all of layer 5 on" in " ".join(line.strip() for line in lines)


def test_a_plan_that_does_not_fit_says_by_how_much() -> None:
    metrics = reference_metrics(TIMELINE, capacity_bytes=50e9)

    assert "does not fit with 55.4 GiB of 46.6 GiB, 8.8 GiB too much" in printed(metrics)
    assert "The layout does not fit with 55.4 GiB of 46.6 GiB, 8.8 GiB too much." in markdown_summary(metrics, TIMELINE)


def test_markdown_escapes_what_would_break_a_table() -> None:
    metrics = replace(METRICS, scenario="a|b", flags=(Flag(code="odd", message="x|y\nz"),))

    text = markdown_summary(metrics, TIMELINE)

    assert "# a\\|b" in text
    assert "- odd: x\\|y z" in text


def test_the_wall_clock_is_in_no_report() -> None:
    slower = replace(METRICS, engine=replace(METRICS.engine, wall_s=99.0))
    timeline = replace(TIMELINE, engine=replace(TIMELINE.engine, wall_s=99.0))

    assert markdown_summary(slower, timeline) == markdown_summary(METRICS, TIMELINE)
    assert printed(slower, timeline) == printed()


def test_what_others_on_the_cluster_cost_stands_in_both_reports() -> None:
    metrics = replace(METRICS, step_time_alone_s=METRICS.step_time_s / 1.25)

    for text in (printed(metrics, TIMELINE), markdown_summary(metrics, TIMELINE)):
        assert "Others on the cluster" in text
        assert "25.0 % longer" in text
    assert "Others on the cluster" not in printed() + markdown_summary(METRICS, TIMELINE)
