"""Controls of the page, and the conversion between their values and a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from clustersim.config.overriding import parse_override
from clustersim.documents.check import value_at
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import profile_names
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.step_settings import Precision
from clustersim.parallel.training_plan import Recompute
from clustersim.workloads.reading.model_spec import model_names

MACHINE: Final = "cluster.machine"
"""Stands for ``cluster.name`` or ``cluster.node``, whichever the text names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One input."""

    key: str
    """Dotted path in a scenario."""
    label: str
    group: str
    choices: tuple[str, ...] = ()
    """Choices that are offered; empty for numbers and quantities."""
    closed: bool = False
    """Whether only what is offered can be chosen."""
    example: str = ""
    """Shown while the input is empty; then the default holds."""
    wide: bool = False
    listed: bool = False
    """Whether it holds a list of names, separated by commas."""
    own_model: bool = False
    """Only for a model described by numbers."""

    @property
    def name(self) -> str:
        """Name on the page, without dots: a dot has a meaning there."""
        return f"control-{self.key.replace('.', '-').replace('_', '-')}"


def _own(key: str, label: str, example: str) -> Control:
    return Control(key=f"model.{key}", label=label, group="Model", example=example, own_model=True)


def controls() -> tuple[Control, ...]:
    """Return all inputs, in the order in which the page shows them."""
    return (
        Control(key="model", label="Model", group="Model", choices=model_names(), example="own numbers", wide=True),
        _own("num_hidden_layers", "Layers", "32"),
        _own("hidden_size", "Hidden size", "4096"),
        _own("intermediate_size", "MLP size", "14336"),
        _own("num_attention_heads", "Heads", "32"),
        _own("num_key_value_heads", "Key-value heads", "8"),
        _own("vocab_size", "Vocabulary", "128256"),
        Control(key="training.seq_length", label="Sequence length", group="Model", example="the model's"),
        Control(key="training.global_batch_size", label="Global batch", group="Model"),
        Control(key="training.micro_batch_size", label="Micro-batch", group="Model", example="1"),
        Control(key="training.precision", label="Precision", group="Model", choices=get_args(Precision), example="the best", closed=True),
        Control(
            key=MACHINE, label="Node or cluster", group="Cluster", choices=(*profile_names("nodes"), *profile_names("clusters")), wide=True
        ),
        Control(key="cluster.nodes", label="Nodes", group="Cluster", example="the machine's"),
        Control(
            key="cluster.accelerator", label="Accelerator", group="Cluster", choices=profile_names("accelerators"), example="the node's"
        ),
        Control(key="cluster.nics.bandwidth", label="Adapter bandwidth", group="Cluster", example="the node's"),
        Control(key="cluster.fabric.oversubscription", label="Oversubscription", group="Cluster", example="the fabric's"),
        Control(key="strategy.tp", label="Tensor parallel (tp)", group="Strategy", example="1"),
        Control(key="strategy.pp", label="Pipeline stages (pp)", group="Strategy", example="1"),
        Control(key="strategy.cp", label="Context parallel (cp)", group="Strategy", example="1"),
        Control(key="strategy.ep", label="Expert parallel (ep)", group="Strategy", example="1"),
        Control(key="strategy.dp", label="Data parallel (dp)", group="Strategy", example="auto"),
        Control(
            key="strategy.schedule", label="Pipeline schedule", group="Strategy", choices=tuple(SCHEDULES), example="1f1b", closed=True
        ),
        Control(key="strategy.virtual_stages", label="Chunks per stage", group="Strategy", example="the schedule's"),
        Control(key="strategy.zero_stage", label="ZeRO stage", group="Strategy", choices=("0", "1", "2", "3"), example="0", closed=True),
        Control(
            key="strategy.sequence_parallel",
            label="Sequence parallel",
            group="Strategy",
            choices=("true", "false"),
            example="with tp",
            closed=True,
        ),
        Control(
            key="strategy.recompute", label="Recomputation", group="Strategy", choices=get_args(Recompute), example="none", closed=True
        ),
        Control(
            key="strategy.offload",
            label="Offload to host",
            group="Strategy",
            choices=("optimizer", "optimizer, gradients", "activations"),
            example="nothing",
            listed=True,
        ),
        Control(key="cost.gpu_hour", label="Rent of a GPU hour", group="Cost and failures", example="such as 2.50 USD"),
        Control(key="reliability.node_mtbf", label="MTBF of a node", group="Cost and failures", example="such as 5 years"),
    )


def values_of(document: Mapping[str, Data]) -> tuple[str, ...]:
    """Return what controls hold for a scenario, as text; empty where it says nothing, or nothing that one line can hold."""
    return tuple(_text(value_at(dict(document), _path_in(document, control))) for control in controls())


def changed(document: Mapping[str, Data], values: Sequence[str | None]) -> dict[str, Data]:
    """Return a scenario with what controls hold.

    What an input cannot show, such as a list of nodes, stays while that input is empty.
    """
    data = _with_cluster(document)
    own: dict[str, Data] = {}
    for control, value in zip(controls(), values, strict=True):
        text = (value or "").strip()
        if control.own_model:
            if text:
                own[control.key.removeprefix("model.")] = _read(control, text)
            continue
        read = _read(control, text) if text else None
        data = _on_machine(data, read) if control.key == MACHINE else put(data, control.key.split("."), read)
    if "model" not in data and own:
        data["model"] = own
    elif isinstance(data.get("model"), dict):
        data["model"] = {**_without(data["model"], own), **own}
    return data


def control_of(field: str | None) -> Control | None:
    """Return the control that an error is shown at: that of its field, or of the nearest one above."""
    if field is None:
        return None
    if field.startswith(("cluster.name", "cluster.node")) and not field.startswith("cluster.nodes"):
        field = MACHINE
    known = {control.key: control for control in controls()}
    parts = field.split(".")
    return next((known[key] for n in range(len(parts), 0, -1) if (key := ".".join(parts[:n])) in known), None)


def _read(control: Control, text: str) -> Data:
    key = "cluster.node" if control.key == MACHINE else control.key
    try:
        return parse_override(f"{key}=" + (f"[{text}]" if control.listed else text)).value
    except ScenarioError as error:
        raise ScenarioError(error.message, field=control.key, hint=error.hint) from error


def _path_in(document: Mapping[str, Data], control: Control) -> tuple[str, ...]:
    if control.key != MACHINE:
        return tuple(control.key.split("."))
    cluster = document.get("cluster")
    if not isinstance(cluster, dict):
        return ("cluster",)
    return ("cluster", "name" if cluster.get("name") is not None else "node")


def _text(value: Data) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) if all(isinstance(each, str) for each in value) else ""
    if value is None or isinstance(value, dict):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_cluster(document: Mapping[str, Data]) -> dict[str, Data]:
    cluster = document.get("cluster")
    return {**document, "cluster": {"name": cluster}} if isinstance(cluster, str) else dict(document)


def _on_machine(data: dict[str, Data], named: Data) -> dict[str, Data]:
    """Return a scenario on a shipped node or cluster; a name of neither is left to the models, as that of a node."""
    cluster = data.get("cluster")
    parts = dict(cluster) if isinstance(cluster, dict) else {}
    if named is None:
        kept = {key: value for key, value in parts.items() if key not in {"name", "node"} or isinstance(value, dict)}
        return {**data, "cluster": kept}
    key = "name" if named in profile_names("clusters") else "node"
    parts.pop("node" if key == "name" else "name", None)
    return {**data, "cluster": {key: named, **{other: value for other, value in parts.items() if other != key}}}


def put(data: Mapping[str, Data], path: Sequence[str], value: Data) -> dict[str, Data]:
    """Return a scenario with one value at a path; None removes a value that an input can show.

    Examples
    --------
    >>> put({"strategy": {"tp": 2}}, ["strategy", "pp"], 4)
    {'strategy': {'tp': 2, 'pp': 4}}
    >>> put({"strategy": {"tp": 2}}, ["strategy", "tp"], None)
    {'strategy': {}}
    """
    head, below = path[0], data.get(path[0])
    if len(path) > 1:
        inner = put(dict(below) if isinstance(below, dict) else {}, path[1:], value)
        if not isinstance(below, dict) and (value is None or below is not None):
            return dict(data)  # nothing to take away, or something that no input can show
        return {**data, head: inner}
    if value is not None:
        return {**data, head: value}
    if isinstance(below, dict | list) and not _text(below):
        return dict(data)
    return {key: each for key, each in data.items() if key != head}


def _without(model: Data, own: Mapping[str, Data]) -> dict[str, Data]:
    """Return an own model without numbers that were emptied."""
    numbers = [control.key.removeprefix("model.") for control in controls() if control.own_model]
    return {key: value for key, value in model.items() if key not in numbers or key in own} if isinstance(model, dict) else {}
