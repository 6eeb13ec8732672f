from __future__ import annotations

from clustersim.engine.pricing import Price
from clustersim.engine.recording import Record
from clustersim.program.tasks import Lane, Task
from clustersim.trace.timeline import DetailBlock, Span
from tests.unit.engine.factories import communicate, compute, group_of, transfer, work

LANES = (Lane(rank_class=0, stream="one"), Lane(rank_class=2, stream="two"))
DETAIL = (DetailBlock(name="layer", repeat=2, slices=()),)
PRICE = Price(duration_s=3.0, compute_s=2.0, recompute_s=0.5, flops=7.0, bytes=8.0, exposed_s={"tp": 1.0, "cp": 0.0}, detail=DETAIL)


def spans_of(task: Task, price: Price | None, *, is_whole: bool = True) -> tuple[Span, ...]:
    record = Record(tasks=(task,))
    record.note(0, 0, price, start_s=1.0, end_s=4.0, step=3, is_whole=is_whole)
    return tuple(record.spans())


def test_a_pass_is_written_down_with_what_it_cost() -> None:
    (span,) = spans_of(Task(action=compute(work(2.0), name="F"), lanes=LANES[:1], after=(), micro_batch=5, chunk=1), PRICE)

    assert (span.rank_class, span.stream, span.kind, span.name) == (0, "one", "forward", "F")
    assert (span.step, span.start_s, span.end_s, span.micro_batch, span.chunk) == (3, 1.0, 4.0, 5, 1)
    assert (span.compute_s, span.recompute_s, span.flops, span.bytes) == (2.0, 0.5, 7.0, 8.0)
    assert (span.exposed_s, span.hidden_s, span.detail) == ((("tp", 1.0),), (), DETAIL)


def test_communication_is_written_down_on_every_lane() -> None:
    task = Task(action=communicate(group_of((0, 1)), 6.0, name="reduce"), lanes=LANES, after=(), micro_batch=5)

    spans = spans_of(task, None)

    assert [(span.rank_class, span.stream) for span in spans] == [(0, "one"), (2, "two")]
    assert {(span.kind, span.name, span.dimension, span.bytes, span.micro_batch, span.step) for span in spans} == {
        ("communication", "reduce", "dp", 6.0, 5, 3)
    }


def test_a_transfer_has_a_dimension_of_its_own() -> None:
    (span,) = spans_of(Task(action=transfer((0, 1), size_bytes=6.0), lanes=LANES[:1], after=()), None)

    assert (span.dimension, span.bytes) == ("pp", 6.0)


def test_bytes_that_have_not_landed_do_not_count() -> None:
    task = Task(action=transfer((0, 1), size_bytes=6.0), lanes=LANES[:1], after=())

    (span,) = spans_of(task, None, is_whole=False)

    assert (span.bytes, span.end_s) == (0.0, 4.0)
