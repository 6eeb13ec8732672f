from __future__ import annotations

import numpy as np

from clustersim.topology.cluster import BoolArray
from clustersim.topology.direct_links import RouterGraph
from tests.unit.topology.factories import ranks

LINE = RouterGraph(n_routers=4, tails=ranks(0, 1, 1, 2, 3), heads=ranks(1, 0, 2, 1, 2))


def up(*links: int) -> BoolArray:
    return np.isin(np.arange(5), links)


def test_routers_that_reach_each_other_have_the_same_number() -> None:
    assert LINE.components(up(0, 1, 2, 3, 4)).tolist() == [0, 0, 0, 3]  # nothing leads to the last
    assert LINE.components(up(0, 1, 2, 4)).tolist() == [0, 0, 2, 3]


def test_the_shortest_path_over_links_that_work_is_found_or_none() -> None:
    paths, reached = LINE.around(ranks(0, 3, 0, 2), ranks(2, 0, 3, 2), up(0, 1, 2, 3, 4))

    assert paths.tolist() == [[0, 2, -1], [4, 3, 1], [-1, -1, -1], [-1, -1, -1]]
    assert reached.tolist() == [True, True, False, True]
