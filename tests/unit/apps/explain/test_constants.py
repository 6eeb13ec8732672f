"""Every figure that a result stands on has a source."""

from __future__ import annotations

import pytest

from clustersim.apps.explain.constants import constants_of
from clustersim.config.build import build
from clustersim.config.load import example_names, load_scenario


@pytest.mark.parametrize("name", example_names())
def test_every_constant_of_an_example_has_a_source(name: str) -> None:
    constants = constants_of(build(load_scenario(name)))

    assert constants
    assert [constant.name for constant in constants if not constant.sources] == []


def test_constants_are_those_of_the_precision() -> None:
    values = {constant.name: constant.value for constant in constants_of(build(load_scenario("llama3-8b-8xh100")))}

    assert values["h100-sxm5-80g.peak_flops.bf16"] == "989 TFLOP/s"
    assert values["hopper.gemm.under_load.default"] == "0.82"
    assert "h100-sxm5-80g.peak_flops.fp8" not in values


def test_fp8_has_its_own_share_of_the_peak() -> None:
    names = [constant.name for constant in constants_of(build(load_scenario("llama3-8b-8xh100", ["training.precision=fp8"])))]

    assert "hopper.gemm.sustained_fraction.fp8" in names


def test_each_kind_of_node_has_its_constants() -> None:
    names = [constant.name for constant in constants_of(build(load_scenario("gpt2-xl-h100-and-a100")))]

    assert {"hopper.memory_fraction", "ampere.memory_fraction"} <= set(names)
    assert len(names) == len(set(names))


def test_a_figure_that_the_user_gave_is_cited_as_the_scenario_s() -> None:
    constants = constants_of(build(load_scenario("llama3-70b-h100-512", ["cluster.nics.bandwidth=200 Gbit/s"])))

    (nic,) = (constant for constant in constants if constant.name.endswith(".bandwidth") and "adapters" in constant.meaning)
    assert (nic.value, [source.url for source in nic.sources]) == ("200 Gbit/s", ["scenario"])
