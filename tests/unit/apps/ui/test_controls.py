"""Between what controls hold and a scenario."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.apps.ui.controls import MACHINE, changed, control_of, controls, values_of
from clustersim.config.load import example_names, load_scenario
from clustersim.errors import ScenarioError
from clustersim.workloads.reading.model_spec import load_model

BASE: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "training": {"global_batch_size": 64, "seq_length": 8192},
    "strategy": {"tp": 2, "sequence_parallel": True},
}


def values(document: dict[str, Any], **changes: str) -> list[str | None]:
    keys = [control.key for control in controls()]
    held: list[str | None] = list(values_of(document))
    for key, text in changes.items():
        held[keys.index(key.replace("__", "."))] = text
    return held


def value_of(document: dict[str, Any], key: str) -> str:
    return dict(zip([control.key for control in controls()], values_of(document), strict=True))[key]


def test_controls_that_nobody_touched_change_nothing() -> None:
    for name in example_names():
        document = load_scenario(name).document.data

        assert changed(document, values_of(document)) == document, name


def test_controls_have_names_of_their_own_without_dots() -> None:
    names = [control.name for control in controls()]

    assert len({*names}) == len(names)
    assert not any("." in name for name in names)


def test_controls_show_what_a_scenario_says() -> None:
    shown = {key: value_of(BASE, key) for key in ("model", MACHINE, "strategy.tp", "strategy.sequence_parallel", "strategy.pp")}

    assert shown == {"model": "llama3-8b", MACHINE: "dgx-h100", "strategy.tp": "2", "strategy.sequence_parallel": "true", "strategy.pp": ""}


def test_a_value_is_read_as_in_a_file() -> None:
    data = changed(BASE, values(BASE, strategy__tp=" 4 ", cluster__nics__bandwidth="200 Gbit/s", strategy__sequence_parallel="false"))

    assert data["strategy"] == {"tp": 4, "sequence_parallel": False}
    assert data["cluster"] == {"node": "dgx-h100", "nodes": 2, "nics": {"bandwidth": "200 Gbit/s"}}


def test_an_emptied_control_leaves_the_default() -> None:
    assert changed(BASE, values(BASE, strategy__tp="", training__seq_length=""))["training"] == {"global_batch_size": 64}


def test_parts_to_offload_are_a_list_of_names_and_can_be_emptied() -> None:
    on = changed(BASE, values(BASE, strategy__offload="optimizer, gradients"))

    assert on["strategy"] == {"tp": 2, "sequence_parallel": True, "offload": ["optimizer", "gradients"]}
    assert value_of(on, "strategy.offload") == "optimizer, gradients"
    assert changed(on, values(on, strategy__offload="")) == BASE


def test_a_cluster_takes_the_place_of_a_node_and_back() -> None:
    onto = changed(BASE, values(BASE, cluster__machine="selene-a100"))
    back = changed(onto, values(onto, cluster__machine="dgx-a100"))

    assert onto["cluster"] == {"name": "selene-a100", "nodes": 2}
    assert value_of(onto, MACHINE) == "selene-a100"
    assert back["cluster"] == {"node": "dgx-a100", "nodes": 2}


def test_a_cluster_by_its_name_alone_is_shown() -> None:
    assert value_of({**BASE, "cluster": "selene-a100"}, MACHINE) == "selene-a100"


def test_what_one_line_cannot_hold_stays() -> None:
    document = {**BASE, "cluster": {"nodes": [{"node": "dgx-h100", "count": 2}]}}

    assert value_of(document, "cluster.nodes") == ""
    assert changed(document, values_of(document)) == document


def test_a_model_is_described_by_numbers() -> None:
    sizes = {"num_hidden_layers": "4", "hidden_size": "512", "intermediate_size": "2048", "num_attention_heads": "8", "vocab_size": "32000"}
    numbers = {f"model__{key}": text for key, text in sizes.items()}

    data = changed(BASE, values(BASE, model="", **numbers))
    changed_again = changed(data, values(data, model__vocab_size="64000"))

    assert load_model(data["model"]).model.n_layers == 4
    assert value_of(data, "model.hidden_size") == "512"
    assert changed_again["model"] == {**data["model"], "vocab_size": 64000}  # pyright: ignore[reportGeneralTypeIssues] - a mapping


def test_a_named_model_goes_before_numbers() -> None:
    assert changed(BASE, values(BASE, model__hidden_size="512"))["model"] == "llama3-8b"


def test_a_number_of_an_own_model_can_be_emptied() -> None:
    document = {**BASE, "model": {"num_hidden_layers": 4, "hidden_size": 512, "rope": True}}

    assert changed(document, values(document, model__hidden_size=""))["model"] == {"num_hidden_layers": 4, "rope": True}


def test_a_text_that_is_no_value_is_refused_at_its_control() -> None:
    with pytest.raises(ScenarioError) as caught:
        changed(BASE, values(BASE, strategy__tp="[1"))

    assert caught.value.field == "strategy.tp"


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("strategy.tp", "strategy.tp"),
        ("model", "model"),
        ("model.hidden_size", "model.hidden_size"),
        ("model.rope.theta", "model"),
        ("cluster.node", MACHINE),
        ("cluster.name", MACHINE),
        ("cluster.node.accelerator", MACHINE),
        ("cluster.nodes", "cluster.nodes"),
        ("cluster.nodes.0.count", "cluster.nodes"),
        ("cluster.fabric", None),
        ("checks.0", None),
        (None, None),
    ],
)
def test_an_error_is_shown_at_the_nearest_control(field: str | None, key: str | None) -> None:
    found = control_of(field)

    assert (found.key if found else None) == key
