"""Published speeds of models that are timed, not computed: layer tables, exchanges of gradients, rows. Under ``scenarios/studies``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, StrictBool, StringConstraints, model_validator

from clustersim.documents.check import choices_hint, validate_document
from clustersim.documents.data import data_path
from clustersim.documents.text import Document, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import read_spec
from clustersim.hardware.schema import Checked, NodeChange, Spec
from clustersim.scenario.schema import NAME_PATTERN
from clustersim.strategy.replicated import AllReduce, ParameterServers, Pull, Receiving
from clustersim.units.fields import Bytes, BytesPerSecond, PositiveInt, Seconds

EXCHANGES: Final = "exchanges-2017"
ONE_BY_ONE_BYTES: Final = 1.0
"""A bucket that holds no two tensors."""

Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]
Sentence = Annotated[str, StringConstraints(min_length=1)]
Address = Annotated[str, StringConstraints(pattern=r"^https?://\S+$")]
PositiveBytes = Annotated[Bytes, Field(gt=0)]
PositiveRate = Annotated[BytesPerSecond, Field(gt=0)]
PositiveSpeed = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LayerTableSpec(Spec):
    """``scenarios/studies/models/<name>.yaml``: what a model consists of, layer by layer."""

    layers: dict[str, Annotated[list[PositiveInt], Field(min_length=2, max_length=2)]] = Field(min_length=1)
    """In forward order: parameters, and forward multiply-adds of one image."""

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        return sum(parameters for parameters, _ in self.layers.values())

    @property
    def multiply_adds(self) -> int:
        """Of the forward pass of one image."""
        return sum(multiply_adds for _, multiply_adds in self.layers.values())


class ReceivingSpec(Checked):
    """The thread on which a process receives tensors."""

    rate: PositiveRate
    doubling: PositiveBytes
    accelerator_rate: PositiveRate


class ServedSpec(Checked):
    """Gradients go to parameter servers."""

    kind: Literal["parameter_server"]
    pull: Pull
    per_node: StrictBool = False
    rpc: StrictBool = False
    """Whether servers and workers are processes of their own."""
    on_accelerators: StrictBool = False


class ReducedSpec(Checked):
    """Gradients are summed over all replicas."""

    kind: Literal["all_reduce"]
    bucket: PositiveBytes = ONE_BY_ONE_BYTES
    window: Annotated[Seconds, Field(gt=0)] = inf
    overlap: StrictBool = True
    algorithm: Literal["auto", "ring", "rank_order"] = "auto"
    host_rate: PositiveRate = inf
    accelerator_rate: PositiveRate = inf


class ExchangesSpec(Spec):
    """``scenarios/studies/exchanges-2017.yaml``: what software did with gradients."""

    receiving: ReceivingSpec
    exchanges: dict[Name, Annotated[ServedSpec | ReducedSpec, Field(discriminator="kind")]]

    def exchange(self, name: str, *, hosts: Sequence[int]) -> AllReduce | ParameterServers:
        """Return what a program is lowered with, with parameter servers on some hosts."""
        spec = self.exchanges[name]
        if isinstance(spec, ReducedSpec):
            return AllReduce(
                bucket_bytes=spec.bucket,
                window_s=spec.window,
                overlap=spec.overlap,
                algorithm=spec.algorithm,
                host_bytes_per_s=spec.host_rate,
                accelerator_bytes_per_s=spec.accelerator_rate,
            )
        thread = self.receiving
        receiving = Receiving(bytes_per_s=thread.rate, doubling_bytes=thread.doubling, accelerator_bytes_per_s=thread.accelerator_rate)
        return ParameterServers(
            hosts=tuple(hosts),
            pull=spec.pull,
            per_node=spec.per_node,
            receiving=receiving if spec.rpc else Receiving(),
            on_accelerators=spec.on_accelerators,
        )


class MachineSpec(NodeChange):
    """Nodes of one kind: a shipped one, with any of its parts changed."""

    node: Name
    nodes: PositiveInt


class SpeedRowSpec(Checked):
    """How fast several accelerators were together, and one of them alone, in images a second."""

    id: Name
    table: Sentence
    model: Name
    machine: Name
    exchange: Name
    gpus: Annotated[PositiveInt, Field(gt=1)]
    batch: PositiveInt
    """Images that each accelerator takes in a step."""
    measured: PositiveSpeed
    alone: PositiveSpeed

    @property
    def speed_up(self) -> float:
        """Measured speed over that of one accelerator."""
        return self.measured / self.alone


class SpeedSourceSpec(Checked):
    """``scenarios/studies/published/<source>.yaml``."""

    source_id: Name
    title: Sentence
    urls: list[Address] = Field(min_length=1)
    retrieved: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    notes: list[Sentence] = Field(default=[])
    machines: dict[Name, MachineSpec]
    rows: list[SpeedRowSpec] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_names(self) -> SpeedSourceSpec:
        ids: dict[str, None] = {}
        for index, row in enumerate(self.rows):
            if row.id in ids:
                raise ScenarioError(f"'{row.id}' is the id of another row", field=f"rows.{index}.id", hint="give each row its own")
            ids[row.id] = None
            for field, name, known in (("machine", row.machine, [*self.machines]), ("exchange", row.exchange, [*exchanges().exchanges])):
                if name not in known:
                    raise ScenarioError(f"unknown {field} '{name}'", field=f"rows.{index}.{field}", hint=choices_hint(name, known))
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSource:
    """A checked source, and the document it came from."""

    spec: SpeedSourceSpec
    document: Document


def speed_source_names() -> tuple[str, ...]:
    """Return the names of the shipped sources in alphabetical order."""
    return tuple(sorted(path.stem for path in _folder("published").glob("*.yaml")))


def read_speed_source(path: str | Path) -> SpeedSource:
    """Return a source by its shipped name, or from a file.

    Raises
    ------
    ScenarioError
        When there is no such source, or its file cannot be used.
    """
    found = path if isinstance(path, Path) else _shipped("published", path)
    document = read_document(found)
    return SpeedSource(spec=validate_document(SpeedSourceSpec, document), document=document)


@lru_cache
def layer_table(name: str) -> LayerTableSpec:
    """Return the layers of a shipped model; raise ``ScenarioError`` for an unknown name."""
    return read_spec(LayerTableSpec, _shipped("models", name))[0]


@lru_cache
def exchanges() -> ExchangesSpec:
    """Return what the software of 2017 did with gradients."""
    return read_spec(ExchangesSpec, _shipped("", EXCHANGES))[0]


def _shipped(kind: str, name: str) -> Path:
    known = sorted(path.stem for path in _folder(kind).glob("*.yaml"))
    if name not in known:
        raise ScenarioError(f"'{name}' is not in scenarios/studies/{kind}", hint=choices_hint(name, known))
    return _folder(kind) / f"{name}.yaml"


def _folder(kind: str) -> Path:
    return data_path("scenarios") / "studies" / kind
