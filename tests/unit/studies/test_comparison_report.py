"""What a comparison tells: findings that are computed, tables, pictures."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from clustersim.report.pictures import Curve, Picture
from clustersim.studies.comparison_report import reported
from clustersim.studies.comparison_view import View, adapter_text, ratio_text
from clustersim.studies.parameter_server_or_ring import Answer, compare
from clustersim.studies.reported import Reported
from tests.unit.engine.factories import IDEAL_NETWORK, latencies
from tests.unit.studies.comparison_sample import TEXT, comparison, without_latency

FEW = TEXT.replace("workers: [2, 8]", "workers: [8]").replace("sizes: [1 KB, 100 MB]", "sizes: [100 MB]")


@cache
def ideal(text: str = TEXT) -> tuple[Answer, Reported]:
    """Return a comparison on wires without latency, where all times are round."""
    answer = compare(without_latency(comparison(text)), IDEAL_NETWORK)
    return answer, reported(answer)


@cache
def latent() -> tuple[Answer, Reported]:
    """Return the same with 20 us for each step between nodes."""
    answer = compare(without_latency(comparison()), replace(IDEAL_NETWORK, latencies=latencies(0.0, 0.0, 20e-6)))
    return answer, reported(answer)


def picture(name: str, study: Reported) -> Picture:
    return next(picture for picture in study.pictures if picture.name == name)


def curves(name: str) -> dict[str, Curve]:
    """Return the curves of the first panel of a picture without latency, by label."""
    return {curve.label: curve for curve in picture(name, ideal()[1]).panels[0].curves}


def drawn(curve: Curve) -> list[tuple[float, float]]:
    """Return the points of a curve, times to the millisecond."""
    return [(x, round(y, 3)) for x, y in curve.points]


def test_findings_are_computed() -> None:
    # One server gets 8 S, a ring moves 2 * 7/8 S; at 8:1 half of everything leaves a leaf of 4 at half the rate of an adapter.
    assert [section.finding for section in ideal()[1].sections] == [
        "8 workers: 1 server takes 9.1 times as long as a ring, servers on all workers as long",
        "8 workers: servers on hosts of their own never match a ring, but from 5 on if push and pull overlap",
        "8 workers: at 8:1 servers on all workers take 4.6 times as long as at 1:1, a ring 2 times as long",
        "8 workers: 1 server beats a ring at no size, and what the library chooses itself at no size",
    ]


def test_two_adapters_that_differ_make_a_span() -> None:
    study = latent()[1]

    # 6 steps of 20 us over 8 - 7/8 times the bytes.
    assert study.sections[3].finding.startswith("8 workers: 1 server beats a ring below 21 to 210 kB, and ")
    # 14 steps of 20 us beside 14 ms, against 2 steps.
    assert (
        study.sections[0].finding
        == "8 workers: 1 server takes 9 to 9.1 times as long as a ring, servers on all workers 0.98 to 1 times as long"
    )


def test_a_ring_that_no_server_matches_is_said_so() -> None:
    text = FEW.replace("oversubscription: [1, 8]", "oversubscription: [8]")

    findings = [section.finding for section in ideal(text)[1].sections]

    assert findings[1] == "8 workers: servers on hosts of their own never match a ring, not even if push and pull overlap"


def test_a_single_oversubscription_is_neither_a_finding_nor_a_picture() -> None:
    study = ideal(FEW.replace("oversubscription: [1, 8]", "oversubscription: [2]"))[1]

    assert len(study.sections) == 3
    assert [picture.name for picture in study.pictures] == ["servers", "sizes"]


def test_a_ring_that_oversubscription_does_not_slow_takes_no_longer() -> None:
    study = ideal(FEW.replace("oversubscription: [1, 8]", "oversubscription: [1, 2]"))[1]

    assert study.sections[2].finding.endswith("a ring no longer")


def test_tables_show_what_is_to_be_shown() -> None:
    workers, fewest, leaves, sizes = ideal()[1].sections

    assert workers.columns == ("adapter", ">workers", ">ring", ">without latency", ">1 server", ">2 servers", ">N servers", ">N on workers")
    assert workers.cells[1] == ("10 Gbit/s", "8", "140 ms", "140 ms", "1.28 s", "640 ms", "160 ms", "140 ms")
    assert fewest.cells[1] == ("10 Gbit/s", "8", "never", "5", "8", "8")
    assert leaves.cells[1] == ("10 Gbit/s", "8:1", "280 ms", "280 ms", "2.56 s", "2.56 s", "1.28 s", "640 ms")
    assert sizes.cells[1] == ("10 Gbit/s", "8", "none / none", "none / none", "none / 130 kB", "all / all")


def test_more_servers_than_workers_are_left_out() -> None:
    study = ideal(TEXT.replace("servers: [1, 2], size", "servers: [1, 4], size"))[1]

    assert study.sections[0].cells[0] == ("10 Gbit/s", "2", "80 ms", "80 ms", "320 ms", "-", "160 ms", "80 ms")
    assert study.sections[3].cells[0][3] == "-"
    few = {curve.label: curve for curve in picture("workers", study).panels[0].curves}
    assert [x for x, _ in few["4 servers"].points] == [8.0]


def test_files_hold_everything_in_si_units() -> None:
    answer, study = ideal()

    tables = {table.name: table for table in study.tables}
    assert [*tables] == ["times", "times_by_size", "fewest_servers", "winning_sizes"]
    assert len(tables["times"].rows) == len(answer.rows)
    record = tables["times"].records()[0]
    assert record == {
        "adapter_bytes_per_s": 1.25e9,
        "oversubscription": 1.0,
        "workers": 2,
        "servers": 1,
        "placement": "dedicated",
        "size_bytes": 1e3,
        "in_turn_s": pytest.approx(3.2e-6, rel=1e-12),
        "overlapped_s": pytest.approx(1.6e-6, rel=1e-12),
        "ring_s": pytest.approx(0.8e-6, rel=1e-12),
        "library_s": pytest.approx(0.8e-6, rel=1e-12),
        "library_algorithm": answer.rows[0].library_algorithm,
        "closed_form_s": pytest.approx(3.2e-6, rel=1e-12),
        "ring_closed_form_s": pytest.approx(0.8e-6, rel=1e-12),
        "in_turn_over_ring": pytest.approx(4.0, rel=1e-12),
    }
    assert tables["fewest_servers"].records()[0]["fewest_servers_in_turn"] is None
    assert tables["winning_sizes"].records()[0]["as_fast_as_ring_up_to_bytes"] == 0.0


def test_pictures_have_a_panel_for_each_adapter_and_the_finding_on_top() -> None:
    study = ideal()[1]

    assert [picture.name for picture in study.pictures] == ["workers", "servers", "oversubscription", "sizes"]
    assert [picture.finding for picture in study.pictures] == [section.finding for section in study.sections]
    assert {tuple(panel.title for panel in picture.panels) for picture in study.pictures} == {("10 Gbit/s", "100 Gbit/s")}


def test_times_are_drawn_over_workers_and_over_oversubscription() -> None:
    assert drawn(curves("workers")["ring"]) == [(2.0, 0.08), (8.0, 0.14)]
    assert drawn(curves("workers")["1 server"]) == [(2.0, 0.32), (8.0, 1.28)]
    assert curves("workers")["N on workers"].line == "dashed"
    assert drawn(curves("oversubscription")["N on workers"]) == [(1.0, 0.14), (8.0, 0.64)]


def test_times_are_drawn_over_servers_with_a_ring_around_the_fewest() -> None:
    found = curves("servers")

    assert drawn(found["own hosts"]) == [(1.0, 1.28), (2.0, 0.64), (4.0, 0.32), (8.0, 0.16)]
    assert drawn(found["overlapped"]) == [(1.0, 0.64), (2.0, 0.32), (4.0, 0.16), (8.0, 0.08)]
    assert drawn(found["on workers"]) == [(1.0, 1.12), (2.0, 0.56), (4.0, 0.28), (8.0, 0.14)]
    (note,) = picture("servers", ideal()[1]).panels[0].notes
    assert (note.x, note.y, note.text) == (5.0, pytest.approx(0.14), "5")


def test_sizes_are_drawn_over_the_ring_with_a_ring_around_the_crossovers() -> None:
    panel = picture("sizes", latent()[1]).panels[0]

    found = {curve.label: curve for curve in panel.curves}
    assert {y for _, y in found["ring"].points} == {1.0}
    assert [x for x, _ in found["1 server"].points] == [1e3 * 4**step for step in range(10)] + [1e9]
    assert panel.notes[0].text == "21 kB"
    assert {note.y for note in panel.notes} == {1.0}


def test_a_view_without_a_row_says_so() -> None:
    view = View(answer=ideal()[0])

    assert view.row(view.setting(1.25e9, workers=2), view.ways[1]) is not None
    assert view.ways[1].count(2) == 2
    assert view.row(view.setting(1.0), view.ways[0]) is None


@pytest.mark.parametrize(("value", "text"), [(1.25e9, "10 Gbit/s"), (3.125e9, "25 Gbit/s"), (5e10, "400 Gbit/s")])
def test_adapters_are_called_by_bits(value: float, text: str) -> None:
    assert adapter_text(value) == text


def test_a_ratio_is_written_to_one() -> None:
    assert (ratio_text(1), ratio_text(1.5)) == ("1:1", "1.5:1")
