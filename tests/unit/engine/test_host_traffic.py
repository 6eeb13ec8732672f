"""Copies to hosts and updates there, as they are replayed beside everything else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.engine.traffic import label, moved_by
from clustersim.hardware.library_costs import Place
from clustersim.program.tasks import HostCopy, HostUpdate
from tests.unit.engine.factories import compute, make_machine, program, task, timeline_of, traffic_of, work
from tests.unit.topology.factories import PCIE_BYTES_PER_S

SIZE = 1e9


def copy_of(*ranks: int, source: Place = "accelerator", destination: Place = "host") -> HostCopy:
    return HostCopy(name="gradients to host", ranks=np.array(ranks), bytes=SIZE, source=source, destination=destination)


def update_of(*ranks: int) -> HostUpdate:
    return HostUpdate(name="update on host", ranks=np.array(ranks), bytes=SIZE)


def test_spans_are_charged_to_offloading() -> None:
    timeline = timeline_of(make_machine(), task(copy_of(0), stream="to_host"), task(update_of(0), 0, stream="host_update"))

    assert [(span.stream, span.kind, span.dimension, span.name, span.bytes) for span in timeline.spans] == [
        ("host_update", "communication", "offload", "update on host", SIZE),
        ("to_host", "communication", "offload", "gradients to host", SIZE),
    ]


def test_a_copy_runs_beside_computation() -> None:
    timeline = timeline_of(make_machine(), task(compute(work(1.0))), task(copy_of(0), stream="to_host"))

    assert timeline.step_time_s == pytest.approx(1.0, rel=1e-9)


def test_both_directions_at_once_take_no_longer_than_one() -> None:
    machine = make_machine()
    one = timeline_of(machine, task(copy_of(0), stream="to_host"))
    back = copy_of(0, source="host", destination="accelerator")

    both = timeline_of(machine, task(copy_of(0), stream="to_host"), task(back, stream="from_host"))

    assert both.step_time_s == pytest.approx(one.step_time_s, rel=1e-9)


def test_two_copies_in_one_direction_share_the_link() -> None:
    machine = make_machine()

    both = timeline_of(machine, task(copy_of(0), stream="to_host"), task(copy_of(0), stream="also"))

    assert both.step_time_s == pytest.approx(2 * SIZE / PCIE_BYTES_PER_S, rel=1e-3)


def test_users_of_links_are_named() -> None:
    timeline = timeline_of(make_machine(), task(copy_of(0), stream="to_host"), task(update_of(0), 0, stream="host_update"))

    users = {link.name: link.users for link in timeline.links if link.tier == "memory"}
    assert users == {"node0/memory": ("offload gradients to host", "offload update on host")}


def test_how_a_copy_is_made_is_no_choice_of_the_library() -> None:
    assert timeline_of(make_machine(), task(copy_of(0), stream="to_host")).collectives == ()


def test_copies_move_themselves() -> None:
    copy, update = copy_of(0), update_of(0)

    assert moved_by(copy) == (copy,)
    assert moved_by(update) == (update,)
    assert label(copy) == "offload gradients to host"


def test_nodes_that_hold_unlike_numbers_of_ranks_are_reported() -> None:
    machine = make_machine(n_nodes=2)
    traffic = traffic_of(machine)
    uneven = replace(copy_of(0, 1, machine.cluster.n_ranks - 1), name="uneven")

    traffic.register(program(task(copy_of(0), stream="to_host"), task(uneven, stream="to_host")))

    assert traffic.uneven() == ("offload uneven",)


def test_equal_operations_are_one_flow_class() -> None:
    traffic = traffic_of(make_machine())
    copies = [copy_of(0), copy_of(0)]

    kinds = {traffic.flow_classes(copy) for copy in copies}

    assert len(kinds) == 1
