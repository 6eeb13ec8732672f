"""Scenarios on nodes of several kinds, from the file to the result."""

from __future__ import annotations

import pytest

import clustersim
from clustersim.apps.run.result import Result
from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.hardware.catalog import load_accelerator
from tests.unit.config.samples import MODEL, refusal, small

MIXED: list[Data] = [{"node": "dgx-h100", "count": 1}, {"node": "dgx-a100-80g", "count": 1}]


def scenario(groups: list[Data], **others: Data) -> dict[str, Data]:
    return small(**{"cluster": {"nodes": groups}, "strategy": {}, **others})


def built(groups: list[Data], **others: Data) -> Built:
    return build(load_scenario(scenario(groups, **others)))


def run(groups: list[Data], **others: Data) -> Result:
    return clustersim.run(scenario(groups, **others))


def codes(made: Built) -> list[str]:
    return [flag.code for flag in made.flags]


def test_all_ranks_of_all_groups_take_part() -> None:
    made = built(MIXED)

    assert (made.cluster.n_ranks, made.plan.n_ranks, made.plan.strategy.dp) == (16, 16, 16)
    assert [node.name for node, _ in made.cluster.kinds] == ["dgx-h100", "dgx-a100-80g"]


def test_a_precision_that_one_kind_lacks_is_refused_with_those_that_all_have() -> None:
    volta: list[Data] = [{"node": "dgx-h100", "count": 1}, {"node": "dgx1-v100-32g", "count": 1}]
    fabric: Data = {"topology": "leaf_spine"}

    error = refusal(**scenario(volta, cluster={"nodes": volta, "fabric": fabric}))

    assert error.message == "v100-sxm2-32g does not have bf16"
    assert (error.field, error.hint) == ("training.precision", "use fp32 or fp16")


def test_the_precision_that_is_assumed_is_one_that_all_kinds_have() -> None:
    volta: list[Data] = [{"node": "dgx-h100", "count": 1}, {"node": "dgx1-v100-32g", "count": 1}]
    training: Data = {"global_batch_size": 32}

    made = built(volta, cluster={"nodes": volta, "fabric": {"topology": "leaf_spine"}}, training=training)

    assert made.plan.training.precision == "fp16"
    assert "fp16, which h100-sxm5-80g and v100-sxm2-32g have" in next(f.message for f in made.flags if f.code == "assumed_precision")


def test_rails_that_do_not_fit_are_refused_at_the_fabric() -> None:
    groups: list[Data] = [{"node": "dgx-h100", "count": 1}, {"node": "dgx-a100-80g", "count": 1, "nics": {"count": 4}}]

    error = refusal(**scenario(groups))

    assert error.field == "cluster.fabric.topology"
    assert "on 8 rails, and one of kind dgx-a100-80g on 4" in error.message


def test_what_fits_goes_by_the_smallest_memory_and_mfu_by_the_peaks_of_all() -> None:
    groups: list[Data] = [{"node": "dgx-h100", "count": 1}, {"node": "dgx-a100-40g", "count": 1}]

    result = run(groups).metrics

    peaks = [load_accelerator(name).peak_flops_per_s["bf16"] for name in ("h100-sxm5-80g", "a100-sxm4-40g")]
    assert result.memory.capacity_bytes == load_accelerator("a100-sxm4-40g").memory_bytes
    assert result.mfu == pytest.approx(result.model_flops_per_step / result.step_time_s / (8 * sum(peaks)), rel=1e-12)


def test_a_mixed_cluster_is_as_slow_as_its_slowest_kind_and_says_so() -> None:
    mixed = run(MIXED)
    slow, fast = (run([{"node": name, "count": 2}]) for name in ("dgx-a100-80g", "dgx-h100"))

    assert mixed.step_time_s > fast.step_time_s
    assert mixed.step_time_s == pytest.approx(slow.step_time_s, rel=0.1)
    assert "mixed_calibration" in [flag.code for flag in mixed.metrics.flags]
    assert "mixed_calibration" not in [flag.code for flag in slow.metrics.flags]


def test_groups_that_cross_the_smallest_domain_are_flagged() -> None:
    racks: list[Data] = [{"node": "dgx-h100", "count": 1, "scale_up": {"nodes_per_domain": 4}}, {"node": "dgx-h100", "count": 3}]
    strategy: Data = {"tp": 8, "placement": ["dp", "tp", "cp", "ep", "pp"]}
    narrow = built(racks, strategy=strategy, model={**MODEL, "num_key_value_heads": 8})

    assert "tp_across_fabric" in codes(narrow)


def test_links_and_stragglers_count_through_the_groups() -> None:
    cluster: Data = {
        "nodes": MIXED,
        "links": [{"between": ["node1/nic0", "leaf*"], "fraction": 0.5}],
        "stragglers": [{"nodes": 1, "slowdown": 1.3}],
    }
    made = built(MIXED, cluster=cluster)

    widths = {link.name: link.bandwidth_bytes_per_s for link in made.cluster.links}
    assert widths["node1/nic0/tx"] == 0.5 * widths["node1/nic1/tx"]
    assert made.uneven is not None
    assert made.uneven.slowdowns == dict.fromkeys(range(8, 16), 1.3)
