"""Layer tables against published totals, and what is said about mistakes in files of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.errors import ScenarioError
from clustersim.strategy.replicated import AllReduce, ParameterServers, Receiving
from clustersim.studies.row_sources import exchanges, layer_table, read_speed_source, speed_source_names

TEXT = """
source_id: made-up
title: A table
urls: [https://example.org/table]
retrieved: 2026-11-21
machines:
  box: {node: dgx1-p100, nodes: 1}
rows:
  - {id: one, table: A, model: vgg16, machine: box, exchange: horovod_mpi, gpus: 2, batch: 8, measured: 30.0, alone: 20.0}
"""


@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds"),
    [
        # Counts as frameworks print them; Szegedy et al. say 5 billion and less than 25 million.
        ("inception-v3", 23.8e6, 5.7e9),
        # He et al., table 1; their code, like tf_cnn_benchmarks, halves the image in the first convolution of a block.
        ("resnet-50", 25.6e6, 3.8e9),
        ("resnet-101", 44.5e6, 7.6e9),
        ("resnet-152", 60.2e6, 11.3e9),
        # Simonyan and Zisserman, table 2.
        ("vgg16", 138e6, 15.5e9),
        # tf_cnn_benchmarks; the 61.1 million of Krizhevsky's own have 256 filters in the fourth convolution in place of 384.
        ("alexnet", 61.8e6, 0.84e9),
    ],
)
def test_a_layer_table_has_the_published_totals(name: str, parameters: float, multiply_adds: float) -> None:
    table = layer_table(name)

    # To the digits that are published, of which the last of 3.8e9 is cut off and not rounded.
    assert table.parameters == pytest.approx(parameters, rel=5e-3)
    assert table.multiply_adds == pytest.approx(multiply_adds, rel=2e-2)


def test_the_first_fully_connected_layer_of_vgg16_is_three_quarters_of_it() -> None:
    table = layer_table("vgg16")

    assert table.layers["fc6"][0] == 25088 * 4096 + 4096
    assert table.layers["fc6"][0] / table.parameters == pytest.approx(0.743, abs=5e-4)


def test_an_unknown_model_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ScenarioError) as caught:
        layer_table("vgg-16")

    assert "'vgg-16' is not in scenarios/studies/models" in caught.value.message
    assert caught.value.hint == "did you mean 'vgg16'?"


def test_an_exchange_with_rpc_has_the_thread_that_receives() -> None:
    served = exchanges().exchange("distributed_ps_host", hosts=(0, 1))
    local = exchanges().exchange("parameter_server_host", hosts=(0,))

    assert isinstance(served, ParameterServers)
    assert isinstance(local, ParameterServers)
    assert (served.hosts, served.per_node, served.pull) == ((0, 1), True, "first_come")
    assert served.receiving == Receiving(bytes_per_s=0.53e9, doubling_bytes=189e6, accelerator_bytes_per_s=0.9e9)
    assert local.receiving == Receiving()


def test_horovod_fuses_64_mebibytes_in_5_milliseconds() -> None:
    ring = exchanges().exchange("horovod_nccl_rdma", hosts=())

    assert ring == AllReduce(bucket_bytes=64 * 2**20, window_s=0.005, accelerator_bytes_per_s=6.5e9)


@pytest.mark.parametrize("name", speed_source_names())
def test_a_shipped_source_is_read(name: str) -> None:
    source = read_speed_source(name)

    assert source.spec.source_id == name
    assert all(row.speed_up > 0.5 for row in source.spec.rows)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("machine: box", "machine: bocks", "unknown machine 'bocks'"),
        ("exchange: horovod_mpi", "exchange: horovod_mpl", "unknown exchange 'horovod_mpl'"),
        ("gpus: 2", "gpus: 1", "gpus"),
        ("measured: 30.0", "measured: 0", "measured"),
        ("nodes: 1}", "nodes: 1, nodez: 2}", "nodez"),
        (
            "rows:\n",
            "rows:\n  - {id: one, table: A, model: vgg16, machine: box, exchange: horovod_mpi, gpus: 2, batch: 8, measured: 3, alone: 2}\n",
            "'one' is the id of another row",
        ),
    ],
)
def test_a_mistake_in_a_source_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "made-up.yaml"
    path.write_text(TEXT.replace(old, new, 1))

    with pytest.raises(ScenarioError) as caught:
        read_speed_source(path)

    assert message in str(caught.value)


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(ScenarioError, match="is not in scenarios/studies/published"):
        read_speed_source("horovod-2071")
