"""Pipeline schedules against the step times of the papers, through a whole replay."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.engine.simulate import replay
from clustersim.hardware.calibration import LaunchCalibration
from clustersim.network.in_flight import TICK_S
from clustersim.parallel.division import Mesh, divided
from clustersim.parallel.pipeline import Piece, Pipeline
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.execution import execute
from clustersim.parallel.schedules.order import Pass, PassCosts, StageOrder
from clustersim.program.program import Program, ProgramBuilder
from clustersim.trace.timeline import RankClass, Timeline
from tests.unit.engine.factories import IDEAL_NETWORK, compute, make_machine, work
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S

ROUND_OFF = 1e-12
"""Times are sums of at most a few hundred equal terms."""

SECONDS = st.floats(1e-6, 10.0)
BOTH_WAYS = pytest.mark.parametrize("overlap", [True, False])


@dataclass(frozen=True, kw_only=True)
class Pipe:
    """A pipeline whose stages all take the same time for a pass through one chunk."""

    schedule: str
    n_stages: int
    n_micro_batches: int
    n_chunks: int = 1
    forward_s: float = 1.0
    backward_s: float = 2.0
    weight_s: float = 1.0
    """Part of the backward pass."""
    send_s: float = 0.0
    overlap: bool = True
    wait_s: float = 0.0
    """Host time of a transfer."""
    weight_fraction: float = 1.0

    @property
    def both_s(self) -> float:
        return self.forward_s + self.backward_s

    @property
    def costs(self) -> PassCosts:
        return PassCosts(
            forward_s=self.forward_s,
            input_s=self.backward_s - self.weight_s,
            weight_s=self.weight_s,
            send_s=self.send_s,
            weight_fraction=self.weight_fraction,
        )

    @property
    def orders(self) -> tuple[StageOrder, ...]:
        return SCHEDULES[self.schedule].orders(self.n_stages, self.n_micro_batches, self.n_chunks, self.costs)

    def program(self) -> Program:
        p, builder, costs = self.n_stages, ProgramBuilder(), self.costs
        pipeline = Pipeline(
            builder=builder,
            division=divided(Mesh(ranks=np.arange(p, dtype=np.int64).reshape(p, 1, 1, 1))),
            places=SCHEDULES[self.schedule].layout(p, self.n_chunks),
            pair_bytes=self.send_s * SCALE_UP_BYTES_PER_S,
            overlap=self.overlap,
            waits_per_transfer=1.0,
        )
        passes = {
            "F": compute(work(self.forward_s)),
            "B": compute(work(self.backward_s, phase="backward"), phase="backward", name="B"),
            "I": compute(work(costs.input_s, phase="input"), phase="input", name="I"),
            "W": compute(work(costs.weight_s, phase="weight"), phase="weight", name="W"),
        }
        for stage, order in enumerate(self.orders):
            together: list[Pass] = []
            for step in order:
                together.append(step)
                if not step.beside_next:
                    pipeline.add_together(stage, [(each, [Piece(action=passes[each.kind])]) for each in together])
                    together = []
        classes = (RankClass(name=f"stage {stage}", stage=stage, representative_rank=stage, ranks=np.array([stage])) for stage in range(p))
        return builder.build(classes)

    def timeline(self) -> Timeline:
        launch = LaunchCalibration(kernel_s=0.0, further_s=0.0, product_s=0.0, dispatch_s=0.0, step_s=0.0, waited_send_s=self.wait_s)
        timeline, _ = replay(self.program(), make_machine(network=IDEAL_NETWORK, launch=launch))
        return timeline

    def step_s(self) -> float:
        return self.timeline().step_time_s

    def longest_stage_s(self) -> float:
        """Return the longest time of a stage from its first pass to its last: that of a step where no stage waits for the others."""
        spans = [span for span in self.timeline().spans if span.stream == "compute"]
        of_stages = [[span for span in spans if span.rank_class == stage] for stage in range(self.n_stages)]
        return max(max(span.end_s for span in own) - min(span.start_s for span in own) for own in of_stages)

    def bubble_s(self) -> float:
        """Return what the longest stage takes longer than its passes, of which it has as many as chunks and micro-batches."""
        return self.longest_stage_s() - self.n_micro_batches * self.n_chunks * self.both_s


def busy_s(timeline: Timeline, stage: int) -> float:
    return sum(span.end_s - span.start_s for span in timeline.spans if span.rank_class == stage and span.stream == "compute")


@settings(deadline=None, max_examples=40)
@given(
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    p=st.integers(1, 8),
    m=st.integers(1, 12),
    forward_s=SECONDS,
    backward_s=SECONDS,
    overlap=st.booleans(),
)
def test_a_step_is_the_closed_form_for_any_times(schedule: str, p: int, m: int, forward_s: float, backward_s: float, overlap: bool) -> None:
    pipe = Pipe(schedule=schedule, n_stages=p, n_micro_batches=m, forward_s=forward_s, backward_s=backward_s, overlap=overlap)

    assert pipe.step_s() == pytest.approx((m + p - 1) * pipe.both_s, abs=64 * TICK_S)


@settings(deadline=None, max_examples=25)
@given(p=st.integers(2, 6), rounds=st.integers(1, 3), v=st.integers(2, 4), forward_s=SECONDS, backward_s=SECONDS)
def test_the_interleaved_bubble_holds_for_any_times(p: int, rounds: int, v: int, forward_s: float, backward_s: float) -> None:
    m = rounds * p
    pipe = Pipe(schedule="interleaved_1f1b", n_stages=p, n_micro_batches=m, n_chunks=v, forward_s=forward_s, backward_s=backward_s)

    assert pipe.step_s() == pytest.approx((m * v + p - 1) * pipe.both_s, abs=64 * TICK_S)


@pytest.mark.parametrize(("p", "v"), [(2, 2), (4, 2), (4, 4), (8, 3)])
def test_interleaving_beats_1f1b_by_the_promised_factor(p: int, v: int) -> None:
    """The same model in v chunks of a v-th of the layers: the bubble is a v-th of what it was."""
    m = 2 * p
    plain = Pipe(schedule="1f1b", n_stages=p, n_micro_batches=m, forward_s=1.0 * v, backward_s=2.0 * v)
    chunked = Pipe(schedule="interleaved_1f1b", n_stages=p, n_micro_batches=m, n_chunks=v)

    ideal_s = m * v * 3.0
    assert (chunked.step_s() - ideal_s) * v == pytest.approx(plain.step_s() - ideal_s, rel=1e-9)  # differences of near numbers


@BOTH_WAYS
@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [1, 5])
def test_layers_one_after_the_other_use_one_stage_at_a_time(p: int, m: int, overlap: bool) -> None:
    pipe = Pipe(schedule="naive", n_stages=p, n_micro_batches=m, overlap=overlap)

    timeline = pipe.timeline()

    for stage in range(p):
        assert busy_s(timeline, stage) / timeline.step_time_s == pytest.approx(1 / p, rel=ROUND_OFF)


@BOTH_WAYS
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 8), (8, 3)])
def test_utilisation_is_the_share_of_micro_batches_in_the_slots(schedule: str, p: int, m: int, overlap: bool) -> None:
    timeline = Pipe(schedule=schedule, n_stages=p, n_micro_batches=m, overlap=overlap).timeline()

    for stage in range(p):
        assert busy_s(timeline, stage) / timeline.step_time_s == pytest.approx(m / (m + p - 1), rel=ROUND_OFF)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "naive"])
@BOTH_WAYS
@pytest.mark.parametrize("p", [2, 5, 8])
def test_one_micro_batch_crosses_every_wire_twice(schedule: str, p: int, overlap: bool) -> None:
    pipe = Pipe(schedule=schedule, n_stages=p, n_micro_batches=1, send_s=0.25, overlap=overlap)

    assert pipe.step_s() == pytest.approx(p * pipe.both_s + 2 * (p - 1) * 0.25, rel=ROUND_OFF)


@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 4), (4, 3), (8, 8)])
def test_sends_beside_computation_only_lengthen_fill_and_drain(p: int, m: int) -> None:
    pipe = Pipe(schedule="gpipe", n_stages=p, n_micro_batches=m, send_s=0.5, overlap=True)

    assert pipe.step_s() == pytest.approx((m + p - 1) * pipe.both_s + 2 * (p - 1) * 0.5, rel=ROUND_OFF)


@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 4), (4, 3), (8, 8)])
def test_sends_that_a_stage_waits_for_lengthen_every_slot(p: int, m: int) -> None:
    pipe = Pipe(schedule="gpipe", n_stages=p, n_micro_batches=m, send_s=0.5, overlap=False)

    # All slots but the last of each direction are followed by a send.
    assert pipe.step_s() == pytest.approx((m + p - 2) * (pipe.both_s + 2 * 0.5) + pipe.both_s, rel=ROUND_OFF)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 2), (2, 8), (3, 3), (3, 6), (4, 3), (4, 16), (8, 8)])
def test_a_step_grows_by_the_waits_of_hosts_on_its_longest_path(schedule: str, p: int, m: int) -> None:
    pipe = Pipe(schedule=schedule, n_stages=p, n_micro_batches=m, overlap=False)
    # GPipe waits behind all slots but the last of each direction. In 1F1B the last stage turns round without one; of two stages, each waits
    # while the other does.
    of_1f1b = m + 1 if p == 2 else 2 * (m + p - 2) - 1
    n_waits = 2 * (m + p - 2) if schedule == "gpipe" else of_1f1b

    assert replace(pipe, wait_s=0.01).step_s() - pipe.step_s() == pytest.approx(n_waits * 0.01, rel=1e-6)


def test_sends_longer_than_a_pass_set_the_pace() -> None:
    pipe = Pipe(schedule="gpipe", n_stages=2, n_micro_batches=6, forward_s=1.0, backward_s=2.0, send_s=5.0)

    # One wire each way: six sends in a row, with a pass before the first and after the last.
    assert pipe.step_s() == pytest.approx((1.0 + 6 * 5.0 + 1.0) + (2.0 + 6 * 5.0 + 2.0), rel=ROUND_OFF)


@BOTH_WAYS
def test_one_micro_batch_at_a_time_waits_for_every_send(overlap: bool) -> None:
    pipe = Pipe(schedule="naive", n_stages=4, n_micro_batches=8, send_s=0.1, overlap=overlap)

    assert pipe.step_s() == pytest.approx(8 * (4 * pipe.both_s + 2 * 3 * 0.1), abs=64 * TICK_S)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe_v"])
def test_waiting_for_sends_ends_later(schedule: str) -> None:
    pipe = Pipe(schedule=schedule, n_stages=4, n_micro_batches=8, n_chunks=SCHEDULES[schedule].n_chunks or 2, send_s=0.1)

    assert replace(pipe, overlap=False).step_s() > pipe.step_s()


@pytest.mark.parametrize("schedule", list(SCHEDULES))
@BOTH_WAYS
def test_every_stage_works_through_all_of_its_passes(schedule: str, overlap: bool) -> None:
    pipe = Pipe(schedule=schedule, n_stages=4, n_micro_batches=8, n_chunks=SCHEDULES[schedule].n_chunks or 2, overlap=overlap)

    timeline = pipe.timeline()

    for stage, order in enumerate(pipe.orders):
        passes = [
            (span.name, span.micro_batch, span.chunk) for span in timeline.spans if (span.rank_class, span.stream) == (stage, "compute")
        ]
        assert passes == [(step.kind, step.micro_batch, step.chunk) for step in order]
        assert busy_s(timeline, stage) == pytest.approx(8 * pipe.n_chunks * pipe.both_s, rel=ROUND_OFF)


# Qi et al., ICLR 2024, table 1 and section 2; forward, input and weight gradient of one stage in seconds, the last never the longest.
SPLIT_TIMES = pytest.mark.parametrize(("forward_s", "input_s", "weight_s"), [(1.0, 1.0, 1.0), (3.0, 3.0, 2.0), (2.0, 2.5, 1.25)])


@SPLIT_TIMES
@pytest.mark.parametrize(("p", "m"), [(2, 6), (4, 12), (8, 24)])
def test_bubbles_of_schedules_that_put_weight_gradients_off(p: int, m: int, forward_s: float, input_s: float, weight_s: float) -> None:
    def bubble_s(schedule: str) -> float:
        pipe = Pipe(schedule=schedule, n_stages=p, n_micro_batches=m, forward_s=forward_s, backward_s=input_s + weight_s, weight_s=weight_s)
        return pipe.bubble_s()

    assert bubble_s("1f1b") == pytest.approx((p - 1) * (forward_s + input_s + weight_s), rel=1e-9)
    assert bubble_s("zb_h1") == pytest.approx((p - 1) * (forward_s + input_s - weight_s), rel=1e-9)
    assert bubble_s("zb_h2") == pytest.approx((p - 1) * (forward_s + input_s - 2 * weight_s), rel=1e-9, abs=1e-9)
    assert bubble_s("zb_2p") <= bubble_s("zb_h2") + 1e-9


@pytest.mark.parametrize("schedule", ["zb_h2", "zb_2p", "zb_v"])
@pytest.mark.parametrize(("p", "m"), [(2, 6), (4, 12), (8, 24), (8, 17)])
def test_no_bubble_is_left_where_the_three_passes_take_equally_long(schedule: str, p: int, m: int) -> None:
    pipe = Pipe(schedule=schedule, n_stages=p, n_micro_batches=m, n_chunks=SCHEDULES[schedule].n_chunks or 2)

    assert pipe.bubble_s() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("p", "m"), [(4, 8), (4, 20), (8, 16), (8, 40)])
@pytest.mark.parametrize(("forward_s", "input_s", "weight_s"), [(1.0, 1.0, 1.0), (3.0, 3.0, 2.0)])
def test_the_bubble_of_dualpipe_is_that_of_its_report(p: int, m: int, forward_s: float, input_s: float, weight_s: float) -> None:
    both_s, backward_s = forward_s + input_s + weight_s, input_s + weight_s

    dual = Pipe(schedule="dualpipe", n_stages=p, n_micro_batches=m, forward_s=forward_s, backward_s=backward_s, weight_s=weight_s)
    cut = replace(dual, schedule="dualpipe_v", n_chunks=2)

    # DeepSeek-V3, table 2, with pairs as long as their two passes; cut in half, each of p stages is two of 2 p.
    assert dual.step_s() - m * both_s == pytest.approx((p / 2 - 1) * (both_s + backward_s - 3 * weight_s), rel=1e-9, abs=1e-9)
    assert cut.step_s() - 2 * m * both_s == pytest.approx((p - 1) * (both_s + backward_s - 3 * weight_s), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 2), (4, 4, 3), (4, 9, 2), (8, 16, 4)])
def test_breadth_first_divides_the_bubble_by_the_chunks(p: int, m: int, v: int) -> None:
    pipe = Pipe(schedule="breadth_first", n_stages=p, n_micro_batches=m, n_chunks=v)

    assert pipe.step_s() == pytest.approx((m * v + p - 1) * pipe.both_s, rel=ROUND_OFF)


@settings(deadline=None, max_examples=30)
@given(
    schedule=st.sampled_from([name for name in SCHEDULES if name not in ("naive", "gpipe", "1f1b")]),
    half=st.integers(1, 3),
    rounds=st.integers(2, 3),
    forward_s=SECONDS,
    input_s=SECONDS,
    weight_s=SECONDS,
)
def test_a_replay_begins_and_ends_each_stage_when_the_orders_say(
    schedule: str, half: int, rounds: int, forward_s: float, input_s: float, weight_s: float
) -> None:
    p, v = 2 * half, SCHEDULES[schedule].n_chunks or 2
    times = Pipe(schedule=schedule, n_stages=p, n_micro_batches=rounds * p, n_chunks=v, forward_s=forward_s)
    pipe = replace(times, backward_s=input_s + weight_s, weight_s=weight_s, send_s=0.1 * forward_s)

    executed = execute(pipe.orders, SCHEDULES[schedule].layout(p, v), pipe.costs)

    spans = [span for span in pipe.timeline().spans if span.stream == "compute"]
    for stage in range(p):
        own = [span for span in spans if span.rank_class == stage]
        # Transfers of neighbours that share a link are the only thing that an execution of orders leaves out.
        assert min(span.start_s for span in own) == pytest.approx(executed.start_s[stage], abs=64 * TICK_S)
        assert max(span.end_s for span in own) >= executed.end_s[stage] - 64 * TICK_S
