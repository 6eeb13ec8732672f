"""``clustersim show``: tables, pages and JSON of everything that is shipped."""

from __future__ import annotations

import json

import pytest

from clustersim.cli.show import SHELVES, readable
from clustersim.documents.text import Data
from clustersim.hardware.catalog import load_accelerator
from tests.unit.cli.conftest import Cli


@pytest.mark.parametrize("kind", list(SHELVES))
def test_the_table_has_one_line_for_each_thing(cli: Cli, kind: str) -> None:
    outcome = cli("show", kind)

    names = [line.split()[0] for line in outcome.out.split("\n\n")[0].splitlines()]
    assert outcome.code == 0
    assert names == ["name", *SHELVES[kind].names()]


@pytest.mark.parametrize("kind", list(SHELVES))
def test_json_holds_everything_about_each_thing(cli: Cli, kind: str) -> None:
    document = json.loads(cli("show", kind, "--json").out)

    assert [one["name"] for one in document] == list(SHELVES[kind].names())


@pytest.mark.parametrize("kind", list(SHELVES))
def test_everything_can_be_shown_in_full(cli: Cli, kind: str) -> None:
    for name in SHELVES[kind].names():
        outcome = cli("show", kind, name)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.strip()


def test_an_accelerator_is_shown_with_units_and_sources_and_as_data_in_si_units(cli: Cli) -> None:
    page = cli("show", "accelerators", "h100-sxm5-80g").out
    document = json.loads(cli("show", "accelerators", "h100-sxm5-80g", "--json").out)

    assert all(line in page for line in ("\n  bf16: 989 TFLOP/s\n", "\nmemory_bandwidth: 3.35 TB/s\n", "\n    url: "))
    assert document["memory_bandwidth_bytes_per_s"] == load_accelerator("h100-sxm5-80g").memory_bandwidth_bytes_per_s
    assert document["sources"]


def test_an_example_is_shown_as_its_file(cli: Cli) -> None:
    first, second = cli("show", "examples", "gpipe", "1f1b").out.split("---\n")

    assert "schedule: gpipe" in first
    assert "schedule: 1f1b" in second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpus"], "error: cannot show 'gpus'; use one of accelerators, nodes, clusters, models, examples, prices, presets\n"),
        (["gpipe"], "error: cannot show 'gpipe'; try: clustersim show examples gpipe\n"),
        (["models", "qwen3-nxt"], "error: unknown model 'qwen3-nxt'; did you mean 'qwen3-next-80b-a3b'?\n"),
        (["nodse"], "error: cannot show 'nodse'; did you mean 'nodes'?\n"),
        (["nodes", "dgx-h10"], "error: unknown node 'dgx-h10'; did you mean 'dgx-h100'?\n"),
        (["models", "../models/llama3-8b"], None),
    ],
)
def test_what_is_not_there_is_an_input_error(cli: Cli, arguments: list[str], message: str | None) -> None:
    outcome = cli("show", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert message is None or outcome.err == message


def test_a_list_of_layers_is_shown_layer_by_layer(cli: Cli) -> None:
    document = json.loads(cli("show", "models", "resnet-50", "--json").out)

    assert document["parameters"] == sum(layer["parameters"] for layer in document["layers"]) == 25557032
    assert document["forward_flops"] == sum(layer["forward_flops"] for layer in document["layers"])
    assert document["layers"][0] == {
        "does": "convolution, batch_norm",
        "output": "64 x 112 x 112",
        "parameters": 9536,
        "forward_flops": 2 * 118013952,
    }


def test_the_table_says_what_a_sample_of_a_list_of_layers_takes(cli: Cli) -> None:
    lines = {line.split()[0]: line.split() for line in cli("show", "models").out.splitlines()}

    assert max(len(line) for line in cli("show", "models").out.splitlines()) <= 100
    assert lines["resnet-50"][1:6] == ["25.6M", "-", "8.178", "G", "22"]
    assert lines["llama3-8b"][2:4] == ["-", "-"]
    assert lines["mixtral-8x7b"][1:3] == ["46.7B", "12.9B"]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (
            {"latency_s": 1.3e-6, "bandwidth_bytes_per_s": 5e10, "power_w": 700.0},
            {"latency": "1.3 us", "bandwidth": "50 GB/s", "power": "700 W"},
        ),
        ({"peak_flops_per_s": {"bf16": 989e12, "fp8": 1979e12}}, {"peak": {"bf16": "989 TFLOP/s", "fp8": "1.979 PFLOP/s"}}),
        ({"power_w": None, "note": "", "n_links": 0}, {"n_links": 0}),
        ([{"name": "x", "n_layers": 32, "on": True}], [{"name": "x", "n_layers": 32, "on": True}]),
    ],
)
def test_a_suffix_becomes_a_unit_and_what_is_empty_is_left_out(data: Data, shown: Data) -> None:
    assert readable(data) == shown
