from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.engine.alone import Carried
from clustersim.engine.pricing import Price, Pricing, Quote, exposed_pairs
from clustersim.hardware.calibration import LaunchCalibration
from clustersim.kernels.kernel_model import KernelModel
from clustersim.network.in_flight import TICK_S
from clustersim.program.tasks import Block, Compute, Item, Overlapped, Work
from clustersim.trace.timeline import SpanDetail
from clustersim.workloads.operators import Gemm, Recorded, Stream
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    collective,
    compute,
    group_of,
    laid_out,
    make_machine,
    overlapped,
    program,
    task,
    work,
)
from tests.unit.topology.factories import NIC_BYTES_PER_S, SCALE_UP_BYTES_PER_S

TP = group_of((0, 1, 2, 3), (4, 5, 6, 7), name="tp", dimension="tp")
CP = group_of((0, 4), (1, 5), (2, 6), (3, 7), name="cp", dimension="cp")
ONE_SECOND = SCALE_UP_BYTES_PER_S * 4 / 6
"""Bytes whose all-reduce among four takes a second: 2 * 3/4 * S / B."""


def pricing_of(*actions: Compute, step_s: float = 0.0) -> Pricing:
    machine = make_machine(launch=LaunchCalibration(kernel_s=0.0, further_s=0.0, product_s=0.0, dispatch_s=0.0, step_s=step_s))
    _, _, pricing, _ = laid_out(machine, program(*(task(action) for action in actions)))
    return pricing


def price_of(action: Compute, *, step_s: float = 0.0) -> Price:
    return pricing_of(action, step_s=step_s).price(action)


def test_work_takes_the_time_of_its_kernels() -> None:
    price = price_of(compute(work(2.0)))

    assert (price.duration_s, price.compute_s, price.bytes) == (2.0, 2.0, 0.0)


def test_a_block_counts_as_often_as_it_is_repeated() -> None:
    once, often = (price_of(compute(work(0.5), collective(TP, ONE_SECOND), repeat=repeat)) for repeat in (1, 20))

    assert often.duration_s == pytest.approx(20 * once.duration_s, rel=1e-12)
    assert often.compute_s == pytest.approx(10.0, rel=1e-12)
    assert often.exposed_s == {"tp": pytest.approx(20.0, rel=1e-12)}
    assert often.bytes == pytest.approx(20 * ONE_SECOND, rel=1e-12)


def test_blocks_add_up() -> None:
    blocks = (Block(name="a", body=(work(1.0),)), Block(name="b", body=(work(2.0),), repeat=3))

    assert price_of(Compute(name="F", phase="forward", blocks=blocks)).duration_s == pytest.approx(7.0, rel=1e-12)


def test_a_collective_between_work_is_exposed_in_full() -> None:
    price = price_of(compute(work(2.0), collective(TP, ONE_SECOND)))

    assert price.duration_s == pytest.approx(3.0, rel=1e-12)
    assert price.compute_s == pytest.approx(2.0, rel=1e-12)
    assert price.exposed_s == {"tp": pytest.approx(1.0, rel=1e-12)}
    assert price.hidden_s == {"tp": 0.0}


@pytest.mark.parametrize(("work_s", "exposed_s"), [(0.25, 0.75), (1.0, 0.0), (4.0, 0.0)])
def test_a_collective_beside_work_is_exposed_where_it_sticks_out(work_s: float, exposed_s: float) -> None:
    price = price_of(compute(overlapped(collective(TP, ONE_SECOND), work_s)))

    assert price.duration_s == pytest.approx(max(work_s, 1.0), rel=1e-12)
    assert price.exposed_s["tp"] == pytest.approx(exposed_s, abs=1e-12)
    assert price.hidden_s["tp"] == pytest.approx(1.0 - exposed_s, abs=1e-12)


def test_dimensions_are_kept_apart() -> None:
    price = price_of(compute(collective(TP, ONE_SECOND), collective(CP, SCALE_UP_BYTES_PER_S)))

    # Two members: 2 * 1/2 * S / B.
    assert price.exposed_s == {"tp": pytest.approx(1.0, rel=1e-12), "cp": pytest.approx(1.0, rel=1e-12)}


def test_recomputed_work_is_counted_on_its_own() -> None:
    price = price_of(compute(work(1.0, phase="recompute"), work(2.0, phase="backward"), repeat=3, phase="backward"))

    assert price.recompute_s == pytest.approx(3.0, rel=1e-12)
    assert price.compute_s == pytest.approx(9.0, rel=1e-12)


def test_flops_are_those_of_the_kernels() -> None:
    gemms = Work(name="mlp", phase="forward", kernels=(Gemm(128, 256, 512), Gemm(64, 64, 64, batch=3)))

    price = price_of(compute(gemms, overlapped(collective(TP, 1.0), 0.0), repeat=2))

    assert price.flops == 2 * (2 * 128 * 256 * 512 + 3 * 2 * 64**3)


def test_the_host_takes_the_time_of_a_step() -> None:
    price = price_of(Compute(name="host", phase="host", blocks=()), step_s=0.25)

    assert (price.duration_s, price.compute_s, price.detail) == (0.25, 0.0, ())


def test_a_pass_is_priced_once() -> None:
    action = compute(work(1.0))
    pricing = pricing_of(action)

    assert pricing.price(action) is pricing.price(action)


def test_states_hold_the_seconds_with_bytes_on_the_links() -> None:
    machine = make_machine(network=LATENT_NETWORK)
    action = compute(collective(TP, 1e9), overlapped(collective(TP, 1e9), 5.0), repeat=3)
    traffic, network, pricing, _ = laid_out(machine, program(task(action)))

    carried = pricing.price(action).carried

    (kind,) = traffic.flow_classes(collective(TP, 1.0))
    rate = network.idle_rate(kind)
    assert rate == pytest.approx(0.8 * SCALE_UP_BYTES_PER_S / 4, rel=1e-12)
    assert carried.seconds == {((kind, 1),): pytest.approx(6 * 2 * 0.75 * 1e9 / 4 / rate, abs=6 * TICK_S)}
    assert carried.bytes == {kind: 6 * 2 * 0.75 * 1e9 / 4}


def test_latency_is_paid_but_moves_nothing() -> None:
    machine = make_machine(network=LATENT_NETWORK)
    action = compute(collective(TP, 1e6))
    traffic, _, pricing, _ = laid_out(machine, program(task(action)))

    quote = pricing.quote(collective(TP, 1e6))

    ((coupled_flow,),) = traffic.phases(collective(TP, 1e6))
    (carried,) = quote.carried
    (moving_s,) = carried.seconds.values()
    assert quote.communication_s - moving_s == coupled_flow.latency_s
    assert pricing.price(action).duration_s == quote.communication_s


def test_an_operation_in_phases_is_priced_by_its_phases() -> None:
    everyone = group_of(tuple(range(16)), name="all", dimension="tp")
    two_level = replace(collective(everyone, 1e9), algorithm="hierarchical")
    machine = make_machine(n_nodes=2)
    action = compute(two_level)
    _, _, pricing, _ = laid_out(machine, program(task(action)))

    price = pricing.price(action)

    # Seven eighths of the tensor inside the nodes, an eighth over each adapter, and seven eighths inside again.
    phases_s = [7 / 8 * 1e9 / SCALE_UP_BYTES_PER_S, 1e9 / 8 / NIC_BYTES_PER_S, 7 / 8 * 1e9 / SCALE_UP_BYTES_PER_S]
    assert price.duration_s == pytest.approx(sum(phases_s), abs=3 * TICK_S)
    states = price.carried.seconds
    assert states == {((0, 1),): pytest.approx(2 * phases_s[0], abs=2 * TICK_S), ((1, 1),): pytest.approx(phases_s[1], abs=TICK_S)}


def test_a_group_of_one_costs_nothing() -> None:
    alone = group_of((0,), (1,), name="alone", dimension="tp")
    price = price_of(compute(work(1.0), collective(alone, 1e12)))

    assert price.duration_s == 1.0
    assert price.carried == Carried()


def test_an_item_takes_the_longer_of_its_two_parts() -> None:
    assert Quote(compute_s=2.0, communication_s=3.0, issue_s=9.0).duration_s == 3.0
    assert Quote(compute_s=2.0, communication_s=1.0, issue_s=9.0).duration_s == 2.0


def issued(*items: Item, dispatch_s: float, slowdown: float = 1.0, blocks: bool = False) -> Price:
    """Return the price of a pass of four layers where issuing a kernel or a collective takes the host so long."""
    action = compute(*items, repeat=4)
    machine = make_machine(launch=LaunchCalibration(kernel_s=0.0, further_s=0.0, product_s=0.0, dispatch_s=dispatch_s, step_s=0.0))
    assert isinstance(machine.kernels, KernelModel)
    machine = replace(machine, kernels=replace(machine.kernels, blocks=blocks))
    _, _, pricing, _ = laid_out(machine, program(task(action)))
    return replace(pricing, slowdown=slowdown).price(action)


SMALL = Work(name="small", phase="forward", kernels=(Stream(0.0, launches=3), Recorded(1.0)))


def test_a_pass_waits_for_the_host_where_that_takes_longer_than_all_of_it() -> None:
    # Four layers: 4 s of work, 4 s of communication; 12 kernels and 4 collectives to issue.
    price = issued(SMALL, collective(TP, ONE_SECOND), dispatch_s=1.0)

    assert (price.issue_s, price.duration_s, price.host_s) == (16.0, pytest.approx(16.0), pytest.approx(8.0))
    assert price.compute_s == pytest.approx(4.0)
    assert price.exposed_s == {"tp": pytest.approx(4.0)}


def test_a_host_that_is_faster_costs_nothing() -> None:
    price = issued(SMALL, collective(TP, ONE_SECOND), dispatch_s=0.4)

    assert (price.issue_s, price.duration_s, price.host_s) == (pytest.approx(6.4), pytest.approx(8.0), 0.0)


def test_a_collective_is_issued_once_for_each_of_its_pieces() -> None:
    pieces = replace(collective(TP, ONE_SECOND), pieces=3)

    assert issued(Overlapped(collectives=(pieces,), works=(SMALL,)), dispatch_s=1.0).issue_s == 4 * (3 + 3)


COUNTED = Work(name="counted", phase="forward", kernels=(Recorded(5.0), Stream(0.0, launches=2), Stream(0.0, awaited=True)))


def test_a_host_that_waits_for_a_result_has_no_lead_behind_it() -> None:
    # The host needs 3 s for a layer and the accelerator 6, but 1.5 s of launches come between the wait and the first work behind it.
    price = issued(COUNTED, SMALL, dispatch_s=0.5)

    assert price.host_s == pytest.approx(4 * 1.5)
    assert price.at(2.0).duration_s == pytest.approx(2.0 * price.duration_s)


def test_communication_that_a_host_waits_for_keeps_its_pace() -> None:
    price = issued(COUNTED, collective(TP, 10 * ONE_SECOND), dispatch_s=0.1)

    assert price.at(3.0).duration_s - price.duration_s == pytest.approx(2.0 * (price.compute_s + price.host_s))


@pytest.mark.parametrize("dispatch_s", [0.1, 1.0])
def test_a_host_that_waits_for_each_kernel_hides_nothing_of_what_it_needs(dispatch_s: float) -> None:
    price = issued(SMALL, collective(TP, ONE_SECOND), dispatch_s=dispatch_s, blocks=True)

    assert (price.duration_s, price.host_s) == (pytest.approx(8.0 + 16.0 * dispatch_s), pytest.approx(16.0 * dispatch_s))
    assert price.at(2.0).duration_s == pytest.approx(8.0 + 4.0 + 32.0 * dispatch_s)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_a_slow_host_is_compared_with_a_slow_accelerator_and_with_communication_as_it_is(factor: float) -> None:
    price = issued(SMALL, collective(TP, ONE_SECOND), dispatch_s=1.0).at(factor)

    assert price.duration_s == pytest.approx(max(4.0 * factor + 4.0, 16.0 * factor))
    assert issued(SMALL, dispatch_s=1.0, slowdown=factor).duration_s == pytest.approx(12.0 * factor)


def test_the_detail_of_a_pass_is_one_repetition_in_order() -> None:
    price = price_of(compute(work(2.0, name="attention"), collective(TP, ONE_SECOND), repeat=7))

    (block,) = price.detail
    assert (block.name, block.repeat) == ("layer", 7)
    assert [(part.name, part.kind, part.dimension, part.duration_s) for part in block.slices] == [
        ("attention", "forward", "", 2.0),
        ("all-reduce", "communication", "tp", pytest.approx(1.0, rel=1e-12)),
    ]


def test_the_slices_of_a_pass_fill_its_time() -> None:
    price = price_of(compute(work(0.3), collective(CP, 1e9), overlapped(collective(TP, ONE_SECOND), 0.7), repeat=4))

    assert sum(block.repeat * part.duration_s for block in price.detail for part in block.slices) == pytest.approx(
        price.duration_s, rel=1e-12
    )


def test_a_hidden_collective_shows_what_sticks_out_of_the_work() -> None:
    price = price_of(compute(overlapped(collective(TP, ONE_SECOND), 0.75)))

    (block,) = price.detail
    (_, collective_slice) = block.slices
    assert collective_slice == replace(
        SpanDetail(name="all-reduce", kind="communication", dimension="tp", duration_s=0.0, bytes=ONE_SECOND),
        duration_s=collective_slice.duration_s,
    )
    assert collective_slice.duration_s == pytest.approx(0.25, rel=1e-9)  # a difference


def test_exposed_dimensions_come_in_a_fixed_order_and_without_zeros() -> None:
    assert exposed_pairs({"tp": 1.0, "ep": 0.0, "cp": 2.0}) == (("cp", 2.0), ("tp", 1.0))


MIXED = compute(
    work(0.5),
    collective(TP, ONE_SECOND),
    overlapped(collective(TP, ONE_SECOND), 0.75),
    overlapped(collective(CP, ONE_SECOND), 0.25),
    work(0.25, phase="recompute"),
    repeat=3,
)


def slow_price(factor: float) -> Price:
    """Return the price where the kernels themselves take so many times as long."""
    _, _, pricing, _ = laid_out(make_machine(), program(task(MIXED)))
    return replace(pricing, slowdown=factor).price(MIXED)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.3, 2.0, 8.0])
def test_a_factor_makes_computation_longer_and_communication_not(factor: float) -> None:
    price, slow = price_of(MIXED).at(factor), slow_price(factor)

    assert price.duration_s == pytest.approx(slow.duration_s, abs=16 * TICK_S)
    assert price.compute_s == pytest.approx(factor * 3 * 1.75, rel=1e-12)
    assert price.recompute_s == pytest.approx(factor * 3 * 0.25, rel=1e-12)
    assert price.exposed_s == pytest.approx(slow.exposed_s, abs=16 * TICK_S)
    assert price.hidden_s == pytest.approx(slow.hidden_s, abs=16 * TICK_S)
    assert (price.carried, price.bytes, price.flops) == (slow.carried, slow.bytes, slow.flops)
    assert price.duration_s == pytest.approx(price.compute_s + sum(price.exposed_s.values()), abs=16 * TICK_S)


def test_slower_kernels_hide_more_communication() -> None:
    # 1 s beside 0.75 s and 1 s that stands alone; then all of the first is hidden.
    assert slow_price(1.0).exposed_s["tp"] == pytest.approx(3 * 1.25, rel=1e-12)
    assert slow_price(2.0).exposed_s["tp"] == pytest.approx(3 * 1.0, rel=1e-12)


def test_a_host_that_is_slow_takes_longer_too() -> None:
    host = Compute(name="host", phase="host", blocks=())
    _, _, pricing, _ = laid_out(
        make_machine(launch=LaunchCalibration(kernel_s=0.0, further_s=0.0, product_s=0.0, dispatch_s=0.0, step_s=0.25)), program(task(host))
    )

    assert replace(pricing, slowdown=2.0).price(host).at(3.0).duration_s == 1.5
    assert pricing.price(host).at(3.0).compute_s == 0.0


def test_the_loader_keeps_its_pace_beside_a_slow_accelerator() -> None:
    action = compute(Work(name="load", phase="load", kernels=(Recorded(0.5),)), phase="load")
    _, _, pricing, _ = laid_out(make_machine(), program(task(action)))

    assert replace(pricing, slowdown=3.0).price(action).duration_s == 0.5


def test_recorded_work_is_as_slow_as_all_else() -> None:
    action = compute(Work(name="measured", phase="forward", kernels=(Recorded(0.5),)))
    _, _, pricing, _ = laid_out(make_machine(), program(task(action)))

    assert replace(pricing, slowdown=3.0).price(action).duration_s == 1.5


def test_a_part_of_a_pass_costs_its_share() -> None:
    price, part = price_of(MIXED), price_of(MIXED).part(0.25)

    assert part.duration_s == pytest.approx(price.duration_s / 4, rel=1e-12)
    assert part.duration_s == pytest.approx(part.compute_s + sum(part.exposed_s.values()), rel=1e-12)
    assert part.hidden_s == pytest.approx({dimension: seconds / 4 for dimension, seconds in price.hidden_s.items()}, rel=1e-12)
    assert sum(part.carried.seconds.values()) == pytest.approx(sum(price.carried.seconds.values()) / 4, rel=1e-12)
    assert (part.bytes, part.recompute_s, part.detail) == (price.bytes / 4, price.recompute_s / 4, ())


def test_the_mean_of_uneven_work_is_computed_and_the_rest_is_waited_for() -> None:
    price = price_of(compute(replace(work(2.0), longest=work(5.0).kernels, dimension="ep"), repeat=3))

    assert (price.duration_s, price.compute_s) == (15.0, 6.0)
    assert price.exposed_s == {"ep": 9.0}
    assert price.waiting_s == {"ep": 9.0}


def test_slow_accelerators_wait_longer_for_who_has_most_work() -> None:
    price = price_of(compute(replace(work(2.0), longest=work(5.0).kernels, dimension="ep"))).at(1.5)

    assert (price.duration_s, price.compute_s) == (7.5, 3.0)
    assert price.exposed_s == {"ep": 4.5}


@pytest.mark.parametrize(("seconds", "takes"), [(0.5, 2.0), (2.0, 2.0), (5.0, 5.0)])
def test_woven_communication_sticks_out_of_computation_or_does_not(seconds: float, takes: float) -> None:
    half = ONE_SECOND
    price = price_of(
        compute(Overlapped(collectives=(collective(TP, half), collective(TP, half)), works=(work(seconds / 2), work(seconds / 2))))
    )

    assert price.duration_s == pytest.approx(takes, rel=1e-12)
    assert price.compute_s == pytest.approx(seconds, rel=1e-12)
    assert price.exposed_s["tp"] == pytest.approx(max(0.0, 2.0 - seconds), abs=1e-12)
    assert price.exposed_s["tp"] + price.hidden_s["tp"] == pytest.approx(2.0, rel=1e-12)


def test_woven_communication_is_hidden_more_behind_slow_computation() -> None:
    price = price_of(compute(Overlapped(collectives=(collective(TP, ONE_SECOND),) * 2, works=(work(1.0),)))).at(1.5)

    assert price.duration_s == pytest.approx(2.0, rel=1e-12)
    assert price.exposed_s["tp"] == pytest.approx(0.5, rel=1e-12)
