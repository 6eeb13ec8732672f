"""Pictures of unlike runs: eight GPUs, a thousand in three dimensions, experts, and servers in step and at their own pace."""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run
from clustersim.report.plots.canvas import PictureAxes, title_of
from tests.unit.report.plots.pictures import is_empty, outside, overlapping

PAID: Final = (
    "cost.gpu_hour=2.50 USD",
    "reliability.node_mtbf=5 years",
    "reliability.restart=8 min",
    "reliability.checkpoint.bandwidth=10 GB/s",
)
RUNS: Final = {
    "sharded": ("llama3-8b-8xh100", ("strategy.zero_stage=3",)),
    "three dimensions": ("llama3-70b-h100-512", ("cluster.nodes=128",)),
    "experts": ("mixtral-8x7b-ep", ()),
    "servers": ("gpt2-servers-25g", ()),
    "asynchronous": ("resnet50-async-servers", ()),
}
KINDS: Final = (
    "pipeline", "timeline", "breakdown", "communication", "links", "topology", "memory", "memory_over_time", "roofline", "cost", "goodput",
)  # fmt: skip


@cache
def result_of(name: str) -> Result:
    source, overrides = RUNS[name]
    return run(source, set=[*overrides, *PAID])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("experts", kind) for kind in KINDS),
        *(("three dimensions", kind) for kind in ("pipeline", "communication", "links", "topology", "memory")),
        *(("servers", kind) for kind in ("communication", "links", "topology", "memory")),
        *(("sharded", kind) for kind in ("timeline", "memory_over_time")),
        *(pytest.param("asynchronous", kind, marks=pytest.mark.slow) for kind in ("timeline", "breakdown", "topology", "memory")),
    ],
)
def test_no_label_lies_on_another_and_no_axes_are_empty(name: str, kind: str) -> None:
    ax = getattr(result_of(name).plot, kind)()

    assert not is_empty(ax)
    assert overlapping(ax) == []
    assert outside(ax) == []


def test_all_pictures_of_one_run_are_methods() -> None:
    assert dir(result_of("sharded").plot) == sorted((*KINDS, "strong_scaling", "weak_scaling"))


def test_a_notebook_shows_the_picture_of_a_run() -> None:
    ax = result_of("sharded").plot.breakdown()

    assert isinstance(ax, PictureAxes)
    assert ax._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["three dimensions", "servers"])
def test_links_and_topology_name_the_same_mean(name: str) -> None:
    plot = result_of(name).plot

    links, topology = (title_of(picture()).split(" is busiest, ")[1] for picture in (plot.links, plot.topology))

    assert topology.startswith(f"{links}, ")


def test_memory_of_servers_is_not_drawn_in_a_worker() -> None:
    texts = [text.get_text() for text in result_of("servers").plot.topology().texts]

    place = texts.index("server0, one of the hosts without accelerators")
    assert texts.count("host memory") == 1
    assert texts.index("host memory") > place


def test_a_picture_that_is_not_there_is_named_with_one_that_is() -> None:
    assert repr(result_of("sharded").plot).startswith("pictures: pipeline, timeline, ")
    with pytest.raises(AttributeError, match="no picture 'pipelin'; did you mean 'pipeline'"):
        _ = result_of("sharded").plot.pipelin
