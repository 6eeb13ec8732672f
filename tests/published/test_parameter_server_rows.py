"""Parameter servers and rings as measured in 2017: who is faster, and what more accelerators bring.

The speed of one accelerator is that of the source, so that these rows show the network and what feeds it.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations

import pytest

from clustersim.apps.validate.published import validate
from clustersim.apps.validate.rows import RowResult
from clustersim.apps.validate.sources import read_source, value_at
from clustersim.units.quantity import parse_quantity

APART_FRACTION = 0.03
"""Rows that were measured closer to each other than this, which is more than the mean error of the source, are not ordered."""


@cache
def rows(source: str) -> tuple[RowResult, ...]:
    return validate([source]).sources[0].rows


def speed_up(row: RowResult, step_s: float) -> float:
    """Return the speed of all accelerators over that of one, which the source prints and the scenario takes."""
    name = "horovod-2017" if row.id.startswith("hvd") else "tensorflow-ps-2017"
    (spec,) = (each for each in read_source(name).spec.rows if each.id == row.id)
    alone = parse_quantity(str(value_at(spec.scenario, ["model", "samples_per_s"])), "samples/s")
    return row.global_batch_size / step_s / alone


@pytest.mark.parametrize("model", ["inception-v3", "resnet-101", "vgg-16"])
def test_the_ways_of_exchanging_gradients_are_in_their_measured_order(model: str) -> None:
    for one, other in combinations([row for row in rows("horovod-2017") if row.model == model], 2):
        faster, slower = sorted((one, other), key=lambda row: row.measured_s)
        if slower.measured_s > (1.0 + APART_FRACTION) * faster.measured_s:
            assert slower.predicted_s > faster.predicted_s, (slower.id, faster.id)


def test_sixteen_accelerators_with_parameter_servers_train_vgg16_slower_than_one_and_with_rings_much_faster() -> None:
    vgg16 = [row for row in rows("horovod-2017") if row.model == "vgg-16"]

    for row in vgg16:
        for speed in (speed_up(row, row.measured_s), speed_up(row, row.predicted_s)):
            assert speed < 1.0 if "parameter servers" in row.capabilities else speed > 4.0


@pytest.mark.slow
def test_more_accelerators_are_faster_and_never_more_than_in_proportion() -> None:
    dgx1 = [row for row in rows("tensorflow-ps-2017") if row.id.startswith("tfb-p100")]

    for one, other in combinations(dgx1, 2):
        if one.id.rpartition("-")[0] == other.id.rpartition("-")[0]:
            few, many = sorted((one, other), key=lambda row: row.gpus)
            assert many.predicted_s / many.gpus < few.predicted_s / few.gpus
    assert all(speed_up(row, row.predicted_s) <= row.gpus for row in dgx1)


@pytest.mark.slow
def test_the_ring_in_device_order_loses_where_it_leaves_the_quads_of_the_cube_mesh() -> None:
    alexnet = {row.gpus: row for row in rows("tensorflow-ps-2017") if row.id.startswith("tfb-p100-alexnet")}

    for step_s in ({n: row.measured_s for n, row in alexnet.items()}, {n: row.predicted_s for n, row in alexnet.items()}):
        # From 4 to 8 accelerators more is lost than from 2 to 4.
        assert 1 / step_s[4] - 1 / step_s[8] > 1 / step_s[2] - 1 / step_s[4]
