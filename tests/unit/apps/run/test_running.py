"""One run from end to end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

import clustersim
from clustersim.apps.run import running
from clustersim.apps.run.running import run, run_built, step_metrics
from clustersim.config.build import Built
from clustersim.config.load import example_names
from clustersim.errors import DomainError, ScenarioError
from tests.analytical.test_memory_over_time import check_memory
from tests.unit.config.samples import built, small

WALL = re.compile(r'"(wall_s|events_per_s)": [^,}]*')


def test_the_package_offers_the_same_function() -> None:
    assert clustersim.run is run
    assert isinstance(clustersim.run(small()), clustersim.Result)


def test_a_change_is_as_good_as_an_edit() -> None:
    assert run(small(), set=["training.global_batch_size=64"]).step_time_s == run(
        small(training={"global_batch_size": 64, "micro_batch_size": 1, "precision": "bf16"})
    ).step_time_s  # fmt: skip
    assert run(small(), {"training.global_batch_size": 64}).step_time_s == run(small(), "training.global_batch_size=64").step_time_s


def test_the_flags_of_the_build_are_in_the_result() -> None:
    assert "assumed_pue" in [flag.code for flag in run(small(), set=["cost.gpu_hour=2 USD"]).flags]


@pytest.mark.parametrize("name", example_names())
def test_every_example_fits_and_gives_the_same_document_twice_and_holds_its_peak(name: str) -> None:
    results = [run(name), run(name)]

    first, second = (json.dumps(result.to_dict(), allow_nan=False) for result in results)
    assert results[0].ok
    check_memory(results[0])
    assert json.loads(first)["scenario"] == name
    assert WALL.sub("", first) == WALL.sub("", second)


def test_the_two_small_pipelines_take_equally_long_and_differ_in_memory() -> None:
    gpipe, one_forward_one_backward = run("gpipe"), run("1f1b")

    assert gpipe.step_time_s == pytest.approx(one_forward_one_backward.step_time_s, rel=0.01)
    assert one_forward_one_backward.metrics.memory.peak_bytes < 0.8 * gpipe.metrics.memory.peak_bytes


@pytest.mark.parametrize("simulate", [run_built, step_metrics])
def test_an_algorithm_that_a_group_cannot_run_is_told_at_its_key(
    simulate: Callable[[Built], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DomainError("no trees inside one domain", path=("algorithms", "all_reduce"))

    monkeypatch.setattr(running, "simulate", refuse)

    with pytest.raises(ScenarioError, match="no trees inside one domain") as raised:
        simulate(built())

    assert "algorithms.all_reduce" in str(raised.value)


@pytest.mark.parametrize(
    ("n_nodes", "change", "idle"),
    [
        (1, "nics.bandwidth=100 Gbit/s", "nics.bandwidth"),
        (2, "nics.bandwidth=100 Gbit/s", ""),
        (2, "nics.bandwidth=50 GB/s", ""),
        (2, "fabric.oversubscription=2.0", "fabric.oversubscription"),
        (2, "fabric.dimensions=[4]", "fabric.dimensions"),
        (2, "power=5 kW", "power"),
        (2, "links=[{between: [leaf0, spine0], fraction: 0.1}]", "links.0"),
        (2, "links=[{between: [node0/nic0, leaf0], fraction: 0.1}]", ""),
    ],
)
def test_a_change_of_the_cluster_that_does_nothing_is_flagged(n_nodes: int, change: str, idle: str) -> None:
    result = run("llama3-8b-8xh100", set=[f"cluster.nodes={n_nodes}", f"cluster.{change}"])

    assert [flag.message.partition(" ")[0] for flag in result.flags if flag.code == "no_effect"] == ([idle] if idle else [])
