from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.parallel.pass_costs import evenly
from clustersim.parallel.stages import model_chunks
from tests.unit.config.samples import built

TIMES = st.lists(st.integers(1, 20).map(float), min_size=2, max_size=9)


def by_trying(times: list[float], ends: tuple[float, float], n_parts: int) -> float:
    """Return the shortest longest part, over all ways to cut."""
    found: list[float] = []
    for cuts in combinations(range(1, len(times)), n_parts - 1):
        borders = (0, *cuts, len(times))
        parts = [sum(times[start:stop]) for start, stop in pairwise(borders)]
        parts[0] += ends[0]
        parts[-1] += ends[1]
        found.append(max(parts))
    return min(found)


@given(TIMES, st.integers(0, 30), st.integers(0, 30), st.data())
def test_the_longest_part_is_as_short_as_any_cut_makes_it(times: list[float], first: int, last: int, data: st.DataObject) -> None:
    n_parts = data.draw(st.integers(2, len(times)))
    ends = float(first), float(last)

    sizes = evenly(times, ends, n_parts)

    assert (len(sizes), sum(sizes)) == (n_parts, len(times))
    assert min(sizes) >= 1
    starts = [sum(sizes[:part]) for part in range(n_parts)]
    parts = [sum(times[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    parts[0] += ends[0]
    parts[-1] += ends[1]
    assert max(parts) == by_trying(times, ends, n_parts)


def test_equal_layers_without_ends_are_dealt_out_evenly() -> None:
    assert evenly([1.0] * 12, (0.0, 0.0), 4) == (3, 3, 3, 3)


def test_the_stage_of_the_logits_gets_fewer_layers() -> None:
    plan = built("strategy.stage_layers=balanced", "model.vocab_size=100000", "model.num_hidden_layers=16").plan

    first, last = (chunk.n_layers for (chunk,) in model_chunks(plan.strategy, plan.model.n_layers))
    assert first > last
    assert first + last == 16


def test_a_schedule_that_goes_by_times_is_given_those_of_the_accelerator() -> None:
    changes = ("strategy.schedule=zb_2p", "strategy.pp=4", "strategy.tp=1")
    costs = built(*changes).plan.strategy.costs
    again = built(*changes, "strategy.recompute=full").plan.strategy.costs

    assert 0.0 < costs.weight_s < costs.input_s
    assert 0.0 < costs.send_s < costs.forward_s
    assert 0.0 < costs.weight_fraction <= 1.5
    assert again.input_s == pytest.approx(costs.input_s + costs.forward_s, rel=1e-12)
    assert built("strategy.schedule=zb_h1").plan.strategy.costs.forward_s == 1.0
