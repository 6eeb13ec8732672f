from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clustersim.engine.clock import Clock
from clustersim.engine.expanded import Stepper
from clustersim.engine.pricing import Price
from clustersim.engine.simulate import Machine
from clustersim.engine.traffic import FlowPhases
from clustersim.hardware.calibration import LaunchCalibration
from clustersim.network.in_flight import TICK_S, whole_ticks_s
from clustersim.program.tasks import Compute, Item, Overlapped, Work
from clustersim.workloads.operators import Recorded, Stream
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
    transfer,
    work,
)

TP = group_of((0, 1, 2, 3), (4, 5, 6, 7), name="tp", dimension="tp")
CP = group_of((0, 4), (1, 5), (2, 6), (3, 7), name="cp", dimension="cp")
ALL = group_of(tuple(range(16)), name="all", dimension="ep")
ROUND_OFF = 1e-12
"""Sums of a handful of times against the same sums in another order."""


def stepped(action: Compute, machine: Machine) -> tuple[float, Stepper, Price]:
    """Return how long a pass takes item by item on idle links, the stepper, and the price of the same pass."""
    _, _, pricing, clock = laid_out(machine, program(task(action)))
    stepper, ends_s = Stepper(price=pricing.price(action), clock=clock), list[float]()

    stepper.run(lambda: ends_s.append(clock.now_s))
    clock.world.run()

    (end_s,) = ends_s
    return end_s, stepper, pricing.price(action)


class Asked:
    """A clock that writes down what a pass asks of it, and when."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.log: list[tuple[str, float]] = []

    @property
    def now_s(self) -> float:
        return self.clock.now_s

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.log.append(("work", self.now_s))
        self.clock.after(delay_s, action)

    def perform(self, phases: FlowPhases, landed: Callable[[], None], *, delay_s: float = 0.0) -> None:
        self.log.append(("flows", self.now_s + delay_s))
        self.clock.perform(phases, landed, delay_s=delay_s)


MIXED: list[Item] = [
    work(3e-4),
    collective(TP, 4e7),
    overlapped(collective(TP, 2e7), 1e-3),
    overlapped(collective(CP, 5e8), 1e-5),
    collective(CP, 1e6, "all_gather", pieces=3),
    replace(collective(ALL, 3e7), algorithm="hierarchical"),
    replace(collective(TP, 1e6), algorithm="tree"),
    replace(work(2e-4), longest=work(7e-4).kernels, dimension="ep"),
    Overlapped(
        collectives=(collective(TP, 2e7), collective(CP, 1e8)),
        works=(work(1e-4), replace(work(1e-4), longest=work(2e-4).kernels, dimension="ep")),
    ),
    Overlapped(collectives=(collective(TP, 1e6),), works=(work(5e-3),)),
    work(1e-5),
]


@pytest.mark.parametrize("body", [[item] for item in MIXED] + [MIXED])
def test_on_idle_links_a_pass_takes_its_price(body: list[Item]) -> None:
    repeat = 5
    end_s, stepper, price = stepped(compute(*body, repeat=repeat), make_machine(n_nodes=2, network=LATENT_NETWORK))

    assert end_s > 0.0
    assert end_s == price.duration_s
    assert stepper.exposed_s == pytest.approx(price.exposed_s, abs=4 * repeat * TICK_S)  # prices show works before they are rounded
    assert stepper.hidden_s == pytest.approx(price.hidden_s, abs=4 * repeat * TICK_S)


def test_other_traffic_makes_a_collective_longer_and_the_rest_is_exposed() -> None:
    machine, action = make_machine(), compute(overlapped(collective(TP, 420e9 * 4 / 6), 1.0))
    other = transfer((0, 4), size_bytes=420e9 / 2)
    traffic, _, pricing, clock = laid_out(machine, program(task(action), task(other, stream="send")))
    stepper, ends_s = Stepper(price=pricing.price(action), clock=clock), list[float]()

    stepper.run(lambda: ends_s.append(clock.now_s))
    clock.perform(traffic.phases(other), lambda: None)
    clock.world.run()

    # Four rings and the transfer are five flows on the way up of rank 0. A ring edge carries 105 GB/4 at 84 GB/s.
    assert ends_s == [pytest.approx(420e9 / 4 / 84e9, rel=ROUND_OFF)]
    assert stepper.exposed_s["tp"] == pytest.approx(0.25, rel=1e-9)
    assert stepper.hidden_s["tp"] == pytest.approx(1.0, rel=ROUND_OFF)


def test_items_come_one_after_the_other() -> None:
    machine, action = make_machine(), compute(work(1.0), collective(TP, 420e9 * 4 / 6), work(0.5), repeat=2)
    _, _, pricing, clock = laid_out(machine, program(task(action)))
    asked = Asked(clock)

    stepper = Stepper(price=pricing.price(action), clock=asked)  # pyright: ignore[reportArgumentType] - as much of a clock as a pass needs
    stepper.run(lambda: None)
    clock.world.run()

    # Work before a collective delays it, and needs no event.
    assert [what for what, _ in asked.log] == ["flows", "flows", "work"]
    assert [when_s for _, when_s in asked.log] == pytest.approx([1.0, 3.5, 4.5], rel=ROUND_OFF)


def test_thousands_of_items_do_not_pile_up_on_the_stack() -> None:
    end_s, _, price = stepped(compute(collective(group_of((0,), name="alone"), 1.0), work(1e-6), repeat=5000), make_machine())

    assert end_s == 5000 * whole_ticks_s(1e-6) == price.duration_s


def test_a_pass_replayed_item_by_item_waits_for_the_host_as_its_price_says() -> None:
    launch = LaunchCalibration(kernel_s=0.0, further_s=0.0, product_s=0.0, dispatch_s=1.0, step_s=0.0)
    small = Work(name="small", phase="forward", kernels=(Stream(0.0, launches=5), Recorded(1.0)))

    end_s, stepper, price = stepped(compute(small, collective(TP, 420e9 * 4 / 6)), make_machine(launch=launch))

    assert (end_s, stepper.host_s) == (pytest.approx(6.0), pytest.approx(4.0))
    assert price.duration_s == pytest.approx(end_s)
