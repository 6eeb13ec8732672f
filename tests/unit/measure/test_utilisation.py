"""Utilisation of links over time, from the bytes of each operation."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run
from clustersim.measure.utilisation import used_links, utilisation_over_time
from tests.golden.reference import reference_timeline


@cache
def result_of(source: str, *overrides: str) -> Result:
    return run(source, set=overrides)


@pytest.mark.parametrize(
    ("source", "overrides"),
    [
        ("llama3-8b-8xh100", ("strategy.zero_stage=3",)),
        ("llama3-70b-h100-512", ()),
        ("resnet50-async-servers", ()),
        ("mixtral-8x7b-ep", ()),
    ],
)
def test_all_bytes_of_the_step_are_in_it(source: str, overrides: tuple[str, ...]) -> None:
    timeline = result_of(source, *overrides).spans
    edges_s = np.linspace(0.0, timeline.duration_s, 101)

    rows = utilisation_over_time(timeline, edges_s)

    assert list(rows) == list(used_links(timeline))
    for tier, links in used_links(timeline).items():
        capacity = sum(link.n_links * link.bandwidth_bytes_per_s for link in links) * timeline.step_time_s
        carried = sum(link.n_links * link.bytes for link in links)
        highest = max(link.peak_utilisation for link in links)
        # Spread evenly, operations that wait for each other overlap: what would be above the busiest moment is cut there.
        cut = (rows[tier] >= highest).mean()
        assert carried / capacity * (1.0 - 0.1 * cut) - 1e-6 <= rows[tier].mean() <= carried / capacity * (1.0 + 1e-6)


def test_nothing_is_carried_while_nothing_runs() -> None:
    timeline = result_of("llama3-8b-8xh100").spans
    spans = [span for span in timeline.spans if span.dimension == "dp"]
    first_s = min(span.start_s for span in spans)

    rows = utilisation_over_time(timeline, np.array([0.0, first_s, timeline.step_time_s]))

    # Gradients are reduced in the last backward pass alone.
    assert first_s > 0.9 * timeline.step_time_s
    assert rows["nvlink"][0] == 0.0
    assert rows["nvlink"][1] > 0.0


@pytest.mark.parametrize("source", ["llama3-70b-h100-512", "resnet50-async-servers"])
def test_what_each_user_carries_sums_to_what_the_link_carries(source: str) -> None:
    for link in result_of(source).spans.links:
        assert sum(size for _, size in link.bytes_of) == pytest.approx(link.bytes, rel=1e-9)
        assert {name for names, _ in link.bytes_of for name in names} == set(link.users)


def test_a_timeline_that_does_not_tell_users_apart_will_do() -> None:
    timeline = reference_timeline()

    rows = utilisation_over_time(timeline, np.linspace(0.0, timeline.step_time_s, 11))

    assert rows
    assert all((row >= 0.0).all() and np.isfinite(row).all() for row in rows.values())


@pytest.mark.slow
def test_no_stretch_in_the_middle_of_a_run_is_busier_than_the_busiest_moment() -> None:
    result = run("resnet50-async-servers")
    timeline = result.spans
    highest = {tier.tier: tier.peak_utilisation for tier in result.metrics.links}

    rows = utilisation_over_time(timeline, np.linspace(0.4, 0.6, 200) * timeline.duration_s)

    assert all(row.max() <= highest[tier] * (1 + 1e-12) for tier, row in rows.items())
