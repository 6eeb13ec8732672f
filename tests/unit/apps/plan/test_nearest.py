"""The nearest that fits of a model that fits nowhere, and the number of nodes that it needs."""

from __future__ import annotations

import re

import pytest

from clustersim.apps.plan.asking import asked_of
from clustersim.apps.plan.nearest import nearest_lines, smallest_layout

MARGIN = 0.08


@pytest.mark.parametrize(("framework", "offloads"), [(None, True), ("torchtitan", False)])
def test_the_number_of_nodes_is_the_first_doubling_whose_smallest_layout_fits(framework: str | None, *, offloads: bool) -> None:
    overrides = ("training.global_batch_size=256",)
    asked = asked_of("llama3.1-405b", "dgx-h100", nodes=2, overrides=overrides, framework=framework)

    lines = nearest_lines(asked, (), MARGIN)

    found = re.match(r"It fits on (\d+) nodes", lines[1])
    assert found is not None
    assert [line.endswith(", offload optimizer.") for line in lines] == [offloads] * 2
    for n_nodes, fits in ((int(found[1]) // 2, False), (int(found[1]), True)):
        there = smallest_layout(asked_of("llama3.1-405b", "dgx-h100", nodes=n_nodes, overrides=overrides, framework=framework))
        assert there is not None
        assert (there.peak_bytes <= (1.0 - MARGIN) * there.capacity_bytes) == fits


def test_the_first_line_says_what_the_smallest_layout_lacks() -> None:
    asked = asked_of("llama3.1-405b", "dgx-h100", nodes=1, overrides=("training.global_batch_size=8",))
    here = smallest_layout(asked)

    line = nearest_lines(asked, (), MARGIN)[0]

    assert here is not None
    over = re.search(r"([\d.]+) GiB too much", line)
    assert over is not None
    assert float(over[1]) == pytest.approx((here.peak_bytes - (1.0 - MARGIN) * here.capacity_bytes) / 2**30, abs=0.06)
