"""What max-min fairness means, for coupled flows with any coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.network.fluid import link_cells
from clustersim.network.maxmin import max_min_rates
from clustersim.topology.cluster import FloatArray
from clustersim.topology.load import Footprint

ROUND_OFF = 1e-9
"""Rates are differences of capacities: a handful of roundings, and room for those that cancel."""

COEFFICIENTS = st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 14.0])
CAPACITIES = st.one_of(st.sampled_from([1.0, 2.0, 4.0, 12.0]), st.floats(1e-3, 1e3))


@dataclass(frozen=True)
class Problem:
    flows: FloatArray
    """Shape (n_links, n_variables)."""
    capacity: FloatArray


@st.composite
def problems(draw: st.DrawFn, *, boundless: bool = False) -> Problem:
    """Return links and variables; without ``boundless`` every variable crosses a link."""
    n_links, n_variables = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    rows = draw(st.lists(st.lists(COEFFICIENTS, min_size=n_variables, max_size=n_variables), min_size=n_links, max_size=n_links))
    flows = np.array(rows)
    if not boundless:
        homes = draw(st.lists(st.integers(0, n_links - 1), min_size=n_variables, max_size=n_variables))
        for variable, link in enumerate(homes):
            if not flows[:, variable].any():
                flows[link, variable] = 1.0
    return Problem(flows=flows, capacity=np.array(draw(st.lists(CAPACITIES, min_size=n_links, max_size=n_links))))


def exact_rates(problem: Problem) -> list[float]:
    """Return the rates by the textbook: raise all that may still grow together, in exact fractions, until a link is full."""
    flows = [[Fraction(value) for value in row] for row in problem.flows.tolist()]
    capacity = [Fraction(value) for value in problem.capacity.tolist()]
    n_variables = problem.flows.shape[1]
    rate = [Fraction(0)] * n_variables
    growing = [variable for variable in range(n_variables) if any(row[variable] for row in flows)]
    while growing:
        slack = [limit - sum(a * r for a, r in zip(row, rate, strict=True)) for row, limit in zip(flows, capacity, strict=True)]
        slope = [sum((row[variable] for variable in growing), start=Fraction(0)) for row in flows]
        step = min(left / steep for left, steep in zip(slack, slope, strict=True) if steep)
        for variable in growing:
            rate[variable] += step
        full = [link for link, (left, steep) in enumerate(zip(slack, slope, strict=True)) if steep and left == steep * step]
        growing = [variable for variable in growing if not any(flows[link][variable] for link in full)]
    return [float(value) if any(row[variable] for row in flows) else float("inf") for variable, value in enumerate(rate)]


@given(problems())
def test_no_link_is_overbooked(problem: Problem) -> None:
    rates = max_min_rates(problem.flows, problem.capacity)

    assert (problem.flows @ rates <= problem.capacity * (1.0 + ROUND_OFF)).all()


@given(problems())
def test_every_variable_crosses_a_full_link_on_which_no_other_is_faster(problem: Problem) -> None:
    rates = max_min_rates(problem.flows, problem.capacity)

    full = problem.flows @ rates >= problem.capacity * (1.0 - ROUND_OFF)
    for variable, rate in enumerate(rates.tolist()):
        fastest = [rates[row > 0.0].max() for row in problem.flows[full & (problem.flows[:, variable] > 0.0)]]
        assert any(rate >= other * (1.0 - ROUND_OFF) for other in fastest)


@settings(deadline=None)
@given(problems(boundless=True))
def test_the_rates_are_those_of_progressive_filling_in_exact_fractions(problem: Problem) -> None:
    assert max_min_rates(problem.flows, problem.capacity).tolist() == pytest.approx(exact_rates(problem), rel=ROUND_OFF)


@given(problems(), st.floats(1e-6, 1e12))
def test_rates_grow_with_the_capacities(problem: Problem, factor: float) -> None:
    rates = max_min_rates(problem.flows, problem.capacity)

    scaled = max_min_rates(problem.flows, problem.capacity * factor)

    np.testing.assert_allclose(scaled, rates * factor, rtol=ROUND_OFF)


@given(problems(), st.sampled_from([0.25, 2.0, 3.0]))
def test_counting_flows_otherwise_scales_all_rates(problem: Problem, factor: float) -> None:
    rates = max_min_rates(problem.flows, problem.capacity)

    np.testing.assert_allclose(max_min_rates(problem.flows * factor, problem.capacity), rates / factor, rtol=ROUND_OFF)


@given(problems(boundless=True), st.integers(0, 2**32 - 1))
def test_the_order_of_links_and_variables_does_not_matter(problem: Problem, seed: int) -> None:
    generator = np.random.default_rng(seed)
    links, variables = (generator.permutation(size) for size in problem.flows.shape)

    turned = max_min_rates(problem.flows[links][:, variables], problem.capacity[links])

    np.testing.assert_allclose(turned, max_min_rates(problem.flows, problem.capacity)[variables], rtol=ROUND_OFF)


@given(problems())
def test_a_variable_that_leaves_never_slows_the_slowest(problem: Problem) -> None:
    rates = max_min_rates(problem.flows, problem.capacity)

    for gone in range(1, problem.flows.shape[1]):
        rest = max_min_rates(np.delete(problem.flows, gone, axis=1), problem.capacity)
        assert rest.min() >= np.delete(rates, gone).min() * (1.0 - ROUND_OFF)


@given(problems(), st.integers(2, 4))
def test_a_repeated_variable_is_as_good_as_a_multiple_of_it(problem: Problem, times: int) -> None:
    repeated = np.concatenate([problem.flows[:, :1]] * times + [problem.flows[:, 1:]], axis=1)
    multiple = np.concatenate([problem.flows[:, :1] * times, problem.flows[:, 1:]], axis=1)

    one_by_one = max_min_rates(repeated, problem.capacity)

    np.testing.assert_allclose(one_by_one[times - 1 :], max_min_rates(multiple, problem.capacity), rtol=ROUND_OFF)
    np.testing.assert_allclose(one_by_one[:times], one_by_one[0], rtol=ROUND_OFF)


@given(problems())
def test_cells_of_links_have_the_rates_of_all_links(problem: Problem) -> None:
    kinds = [Footprint(link_ids=np.flatnonzero(column), flows=column[column > 0.0]) for column in problem.flows.T]

    cells = link_cells(kinds, problem.capacity, np.zeros(len(problem.capacity)))

    assert cells.n_links.sum() == problem.flows.any(axis=1).sum()
    np.testing.assert_allclose(
        max_min_rates(cells.flows, cells.capacity_bytes_per_s), max_min_rates(problem.flows, problem.capacity), rtol=ROUND_OFF
    )
