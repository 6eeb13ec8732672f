"""Max-min levels found flow class by flow class are those found column by column, to the bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clustersim.network.filling import Filling, filled_in_turn, progressive_filling


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 7))
def test_levels_in_turn_are_those_of_progressive_filling(seed: int, n_flow_classes: int, n_link_classes: int) -> None:
    generator = np.random.default_rng(seed)
    crossed = [
        np.sort(generator.choice(n_link_classes, size=generator.integers(1, n_link_classes + 1), replace=False))
        for _ in range(n_flow_classes)
    ]
    sizes = [len(links) for links in crossed]
    # Loads and capacities from few values, so that link classes fill up together.
    loads = generator.choice([0.5, 1.0, 1.0 / 3.0, 8.0], size=sum(sizes))
    limits = np.where(generator.random(n_flow_classes) < 0.3, generator.choice([1.0, 2.5, 4.0], size=n_flow_classes), np.inf)
    capacity_bytes_per_s = generator.choice([4.0, 10.0, 25.0, 1.0 / 7.0], size=n_link_classes)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    problem = Filling(
        starts=starts, link_classes=np.concatenate(crossed), loads=loads, limits=limits, capacity_bytes_per_s=capacity_bytes_per_s
    )
    rows = [
        (list(zip(links.tolist(), loads[begin : begin + len(links)].tolist(), strict=True)), float(limit))
        for links, begin, limit in zip(crossed, starts.tolist(), limits.tolist(), strict=False)
    ]

    assert filled_in_turn(rows, capacity_bytes_per_s.tolist()) == progressive_filling(problem).levels.tolist()
