"""The trace that Perfetto opens."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.measure.utilisation import used_links
from clustersim.report import chrome
from clustersim.report.chrome import n_slices, to_ns, unfolded, write_trace
from clustersim.trace.timeline import DetailBlock, RankClass, Span, SpanDetail, Timeline
from tests.golden.reference import reference_timeline

TIMELINE = reference_timeline()


@dataclass
class Trace:
    """A trace read back, its times in whole nanoseconds."""

    document: dict[str, Any]

    def events(self, phase: str) -> list[dict[str, Any]]:
        return [event for event in self.document["traceEvents"] if event["ph"] == phase]

    def threads(self) -> dict[tuple[int, int], list[tuple[int, int, str]]]:
        """Return (start, end, name) of the slices of each thread, in the order of the file."""
        found: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
        for event in self.events("X"):
            start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            found[event["pid"], event["tid"]].append((start, start + length, event["name"]))
        return found

    def names(self, kind: str) -> dict[tuple[int, int], str]:
        return {(event["pid"], event["tid"]): event["args"]["name"] for event in self.events("M") if event["name"] == kind}


def written(timeline: Timeline, path: Path) -> Trace:
    write_trace(timeline, path)
    raw = path.read_bytes()
    return Trace(json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw))


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return written(TIMELINE, tmp_path / "trace.json")


def assert_nested(slices: Iterable[tuple[int, int, str]]) -> None:
    """Fail if a slice crosses the edge of another, or begins before the one written ahead of it."""
    open_ends: list[int] = []
    last_start = 0
    for start, end, name in slices:
        assert last_start <= start <= end, name
        last_start = start
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], f"{name} crosses the end of the slice around it"
        open_ends.append(end)


def test_slices_nest_on_every_thread_and_are_sorted(trace: Trace) -> None:
    for slices in trace.threads().values():
        assert_nested(slices)


def test_start_and_duration_add_up_without_error(trace: Trace) -> None:
    # What viewers do in floating point: an end must be the very number that the next slice starts at.
    times = [time for event in trace.events("X") for time in (event["ts"], event["dur"])]

    assert all(time * 8 == int(time * 8) for time in times)


def test_arrows_lead_from_every_send_to_its_receive(trace: Trace) -> None:
    starts, ends = ({event["id"]: event for event in trace.events(phase)} for phase in "sf")
    names = trace.names("thread_name")

    assert starts.keys() == ends.keys()
    # Three boundaries between stages, eight micro-batches, both ways.
    assert len(starts) == 3 * 8 * 2
    for number, start in starts.items():
        end = ends[number]
        sender, receiver = names[start["pid"], start["tid"]], names[end["pid"], end["tid"]]
        assert receiver == sender.replace("send", "recv")
        assert end["pid"] - start["pid"] == (1 if sender == "send_forward" else -1)
        assert end["bp"] == "e"
        assert end["ts"] >= start["ts"]


def test_arrows_begin_and_end_inside_slices(trace: Trace) -> None:
    threads = trace.threads()

    for event in (*trace.events("s"), *trace.events("f")):
        at = round(event["ts"] * 1000)
        assert any(start <= at < end for start, end, _ in threads[event["pid"], event["tid"]])


def test_a_send_without_receive_has_no_arrow(tmp_path: Path) -> None:
    lonely = tuple(span for span in TIMELINE.spans if "recv" not in span.stream)

    trace = written(replace(TIMELINE, spans=lonely), tmp_path / "trace.json")

    assert trace.events("s") == trace.events("f") == []


def test_interleaved_arrows_pair_the_two_ends_of_one_transfer(tmp_path: Path) -> None:
    trace = written(reference_timeline(4, 8, 2), tmp_path / "trace.json")

    slices = {(event["pid"], event["tid"], event["ts"]): event["name"] for event in trace.events("X")}
    ends = {event["id"]: slices[event["pid"], event["tid"], event["ts"]] for event in trace.events("f")}
    # From one stage to the next: seven boundaries between eight chunks, eight micro-batches, both ways.
    assert len(ends) == 7 * 8 * 2
    for event in trace.events("s"):
        assert slices[event["pid"], event["tid"], event["ts"]] == ends[event["id"]]


def test_overlapping_spans_of_one_stream_are_put_on_threads_of_their_own(tmp_path: Path) -> None:
    spans = tuple(
        Span(rank_class=0, stream="dp", kind="communication", name=name, start_s=start, end_s=end, dimension="dp")
        for name, start, end in (("a", 0.0, 2.0), ("b", 1.0, 3.0), ("c", 2.0, 4.0))
    )

    trace = written(replace(TIMELINE, spans=spans), tmp_path / "trace.json")

    assert trace.names("thread_name") == {(1, 1): "dp", (1, 2): "dp 2"}
    assert {thread: [name for *_, name in slices] for (_, thread), slices in trace.threads().items()} == {1: ["a", "c"], 2: ["b"]}


@pytest.mark.parametrize(
    ("largest", "layers", "said"),
    # Forward and backward of two micro-batches on four stages, two layers each.
    [(400, 2 * 2 * 4 * 2, "only passes of micro-batches 0 and 7 are unfolded"), (len(TIMELINE.spans), 0, "no pass is unfolded")],
)
def test_a_long_trace_unfolds_its_first_and_last_micro_batch_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int, layers: int, said: str
) -> None:
    monkeypatch.setattr(chrome, "LARGEST_TRACE", largest)

    trace = written(TIMELINE, tmp_path / "trace.json")

    unfolded = [event["name"] for event in trace.events("X") if event["name"].startswith("layer")]
    assert len(unfolded) == layers
    assert set(unfolded) <= {"layer 0", "layer 1"}
    assert trace.document["otherData"]["details"].startswith(said)


@pytest.mark.parametrize("rank_classes", [(), TIMELINE.rank_classes])
def test_a_timeline_without_spans_is_a_trace_too(tmp_path: Path, rank_classes: tuple[RankClass, ...]) -> None:
    trace = written(Timeline(rank_classes=rank_classes, spans=(), step_time_s=0.0), tmp_path / "trace.json")

    assert trace.events("X") == []
    # There is no process for links.
    assert len(trace.names("process_name")) == len(rank_classes)


def test_odd_names_are_escaped(tmp_path: Path) -> None:
    name = 'a "quoted" \\ name\nover two lines'
    span = Span(rank_class=0, stream="compute", kind="forward", name=name, start_s=0.0, end_s=1.0)

    trace = written(replace(TIMELINE, spans=(span,)), tmp_path / "trace.json")

    assert [event["name"] for event in trace.events("X")] == [name]


def test_a_compressed_trace_is_the_same_and_keeps_no_time_or_name(tmp_path: Path) -> None:
    write_trace(TIMELINE, tmp_path / "one.json")
    write_trace(TIMELINE, tmp_path / "two.json.gz")
    write_trace(TIMELINE, tmp_path / "three.json.gz")

    packed = (tmp_path / "two.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "one.json").read_bytes()
    assert packed == (tmp_path / "three.json.gz").read_bytes()
    # Bytes 4 to 7 are the time, bit 3 of byte 3 says that a name follows (RFC 1952).
    assert packed[4:8] == b"\0\0\0\0"
    assert packed[3] & 0b1000 == 0


def test_every_process_counts_its_memory(trace: Trace) -> None:
    counts = trace.events("C")

    for curve in TIMELINE.memory:
        mine = [event for event in counts if event["pid"] == curve.rank_class + 1]
        held = {round(event["ts"] * 1000): sum(event["args"].values()) for event in mine}
        assert list(held) == sorted(held)
        assert max(held.values()) == pytest.approx(curve.peak_bytes, abs=5)
        assert held[to_ns(curve.peak_at_s)] == max(held.values())


def test_a_counter_that_jumps_has_the_value_after_the_jump(tmp_path: Path) -> None:
    (curve, *_) = TIMELINE.memory
    jump = replace(
        curve,
        time_s=(0.0, 1.0, 1.0),
        parameters_bytes=(1.0, 1.0, 1.0),
        gradients_bytes=(2.0, 2.0, 5.0),
        optimizer_bytes=(0.0, 0.0, 0.0),
        activations_bytes=(0.0, 0.0, 0.0),
        buffers_bytes=(0.0, 0.0, 0.0),
    )

    trace = written(replace(TIMELINE, memory=(jump,), links=()), tmp_path / "trace.json")

    assert [(event["ts"], event["args"]["gradients"]) for event in trace.events("C")] == [(0.0, 2), (1e6, 5)]


def test_links_count_how_busy_they_are(trace: Trace) -> None:
    counts = [event for event in trace.events("C") if event["pid"] == 5]

    assert {event["name"] for event in counts} == {f"{tier} utilisation, %" for tier in used_links(TIMELINE)}
    for tier, links in used_links(TIMELINE).items():
        own = [(event["ts"] / 1e6, event["args"]["mean"]) for event in counts if event["name"].startswith(f"{tier} ")]
        assert [time_s for time_s, _ in own] == sorted(time_s for time_s, _ in own)
        assert own[-1][1] == 0.0
        # A value holds until the next: the area under them is what the links carried.
        area = sum(mean / 100 * (after[0] - time_s) for (time_s, mean), after in pairwise(own))
        capacity = sum(link.n_links * link.bandwidth_bytes_per_s for link in links)
        assert area * capacity == pytest.approx(sum(link.n_links * link.bytes for link in links), rel=0.02)


def span_of(*blocks: DetailBlock, start_s: float = 0.0, end_s: float = 1.0) -> Span:
    return Span(rank_class=0, stream="compute", kind="forward", name="F", start_s=start_s, end_s=end_s, detail=blocks)


def block(repeat: int, *durations_s: float) -> DetailBlock:
    slices = tuple(
        SpanDetail(name=f"part {index}", kind="forward", dimension="", duration_s=duration) for index, duration in enumerate(durations_s)
    )
    return DetailBlock(name="layer", repeat=repeat, slices=slices)


def test_a_block_that_is_not_repeated_has_no_number() -> None:
    assert next(unfolded(span_of(block(1, 0.5)))).name == "layer"


def test_parts_longer_than_the_span_are_shortened_alike() -> None:
    pieces = list(unfolded(span_of(block(1, 1.0, 3.0))))

    assert [(piece.start_ns, piece.end_ns) for piece in pieces[1:]] == [(0, 250_000_000), (250_000_000, 1_000_000_000)]


def test_what_takes_no_time_is_no_slice() -> None:
    assert [piece.name for piece in unfolded(span_of(block(1, 0.1, 0.0, 0.2)))] == ["layer", "part 0", "part 2"]
    assert list(unfolded(span_of(block(2, 0.0)))) == []


durations = st.lists(st.floats(min_value=0.0, max_value=0.7), min_size=1, max_size=4)


@given(
    st.lists(st.tuples(st.integers(min_value=1, max_value=5), durations), min_size=1, max_size=4), st.floats(min_value=0.0, max_value=1e4)
)
def test_pieces_are_in_order_and_inside_their_span(blocks: list[tuple[int, list[float]]], start_s: float) -> None:
    span = span_of(*(block(repeat, *parts) for repeat, parts in blocks), start_s=start_s, end_s=start_s + 1.0)

    pieces = list(unfolded(span))

    assert len(pieces) <= n_slices(span)
    assert all(piece.start_ns < piece.end_ns for piece in pieces)
    at_ns = to_ns(span.start_s)
    layer_end_ns = at_ns
    for piece in pieces:
        if piece.name.startswith("layer"):
            assert piece.start_ns >= layer_end_ns
            layer_end_ns = piece.end_ns
        else:
            assert at_ns <= piece.start_ns <= piece.end_ns <= layer_end_ns
            at_ns = piece.end_ns
    assert layer_end_ns <= to_ns(span.end_s)
