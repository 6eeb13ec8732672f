"""Schema of a hardware profile, checked at the edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, ClassVar, Final, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model, model_validator

from clustersim.documents.form import key_of
from clustersim.hardware.models import (
    Accelerator,
    FabricTopology,
    Few,
    GraphSwitch,
    Host,
    Nic,
    PositiveBytes,
    PositivePower,
    Routing,
    ScaleUp,
    ScaleUpKind,
    Switch,
)
from clustersim.hardware.source import CheckedSource
from clustersim.units.fields import (
    MOST_GPUS,
    Degree,
    FlopsPerSecond,
    LineRate,
    NonNegativeInt,
    PositiveBandwidth,
    PositiveInt,
    PositiveRatio,
    Seconds,
    mistake,
)

PeakPrecision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
Leaves = Annotated[int, Field(strict=True, ge=0, le=MOST_GPUS)]
Oversubscription = Annotated[PositiveRatio, Field(ge=0.1, le=1000)]
"""Bandwidth down over bandwidth up. Below a tenth a leaf would have ten times the ports up that it has down, and each is wired."""
PositiveFlops = Annotated[FlopsPerSecond, Field(gt=0)]


class Checked(BaseModel):
    """Refuses keys that it does not know."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


class Spec(Checked):
    """Fields common to all profiles."""

    name: str
    title: str
    sources: Annotated[tuple[CheckedSource, ...], Field(min_length=1)]


class ScaleUpLinksSpec(Checked):
    """Links of one accelerator to others in its domain."""

    bandwidth: PositiveBandwidth
    """All links together, one direction."""
    links: PositiveInt = 1


class PcieSpec(Checked):
    """The route of one accelerator to its host."""

    generation: PositiveInt | None = None
    lanes: PositiveInt | None = None
    """For the reader only; the bandwidth is used."""
    bandwidth: PositiveBandwidth
    """One direction."""


OF_PARTS: Final = ("peak_flops_per_s", "scale_up_bandwidth_bytes_per_s", "scale_up_links", "pcie_bandwidth_bytes_per_s")
"""Attributes of an accelerator whose keys stand in sections."""


def figures_of(part: type, others: Sequence[str] = ()) -> type[Checked]:
    """Return the schema of the figures of a part, but for others: its declaration says the type and the default of each."""
    hints = get_type_hints(part, include_extras=True)
    given = {
        key_of(each.name): (hints[each.name], each)
        for each in fields(part)
        if each.name not in ("name", "sources", "calibration", "clock_spread", *others)
    }
    declared: dict[str, Any] = {key: (hint, ... if each.default is MISSING else each.default) for key, (hint, each) in given.items()}
    return create_model(f"{part.__name__}Figures", __base__=Checked, __doc__=part.__doc__, **declared)


class AcceleratorFigures(figures_of(Accelerator, OF_PARTS)):
    """Figures of an accelerator."""

    peak_flops: dict[Literal[PeakPrecision, "fp4"], PositiveFlops] = Field(min_length=1)
    """Dense, without structured sparsity."""
    reported_memory: PositiveBytes | None = None
    """Memory as reported by the driver; it decides whether a model fits, where known."""
    scale_up: ScaleUpLinksSpec | None = None
    pcie: PcieSpec


class AcceleratorSpec(Spec, AcceleratorFigures):
    """``hardware_profiles/accelerators/<name>.yaml``."""


class HostFigures(figures_of(Host)):
    """Figures of a host."""

    @model_validator(mode="after")
    def _reads_and_writes(self) -> HostFigures:
        if len({vars(self)[key] is None for key in ("storage_bandwidth", "storage_write_bandwidth")}) > 1:
            raise mistake("storage_bandwidth and storage_write_bandwidth go together", "give both, or neither where there is no NVMe")
        return self


class HostSpec(Spec, HostFigures):
    """``hardware_profiles/hosts/<name>.yaml``."""


NicFigures = figures_of(Nic)
SwitchFigures = figures_of(Switch)


class NicSpec(Spec, NicFigures):
    """``hardware_profiles/nics/<name>.yaml``."""


class SwitchSpec(Spec, SwitchFigures):
    """``hardware_profiles/switches/<name>.yaml``."""


class FabricFigures(Checked):
    """Proportions of a scale-out network; those left out stay as they are."""

    leaves_per_pod: Leaves | None = Field(default=None, description="Leaves of one pod.")
    oversubscription: Oversubscription | None = Field(default=None, description="Bandwidth to nodes over that to spines.")
    core_oversubscription: Oversubscription | None = Field(
        default=None, description="Bandwidth of a pod to its leaves over that to the core."
    )
    routing: Routing | None = Field(default=None, description="Choice of flows among equal paths.")
    cable_latency: Seconds | None = Field(default=None, description="Latency of one cable between switches.")
    in_network_reduction: bool | None = Field(default=None, description="Whether switches reduce, as SHARP does.")
    seed: NonNegativeInt | None = Field(default=None, description="Seed of the paths that hashing chooses.")
    dimensions: Annotated[list[Degree], Field(max_length=8)] | None = Field(default=None, description="Sizes of a torus or mesh.")
    leaves_per_group: Degree | None = Field(default=None, description="Leaves of one group of a dragonfly.")
    global_links: Few | None = Field(default=None, description="Links of one leaf to other groups.")
    link_bandwidth: LineRate | None = Field(default=None, description="Bandwidth of one link of a torus, mesh or dragonfly, one direction.")


class FabricSpec(FabricFigures):
    """A scale-out network by its shape and proportions."""

    topology: FabricTopology
    leaf: str
    spine: str
    nodes_per_leaf: Degree


class NicsSpec(Checked):
    """Adapters of one node for the scale-out network."""

    model: str
    count: Few


class NodeSpec(Spec):
    """``hardware_profiles/nodes/<name>.yaml``."""

    accelerator: str
    accelerators_per_node: Few
    scale_up: ScaleUp
    host: str
    nics: NicsSpec
    accelerators_per_pcie_switch: Few
    power: PositivePower | None = None
    fabric: FabricSpec


class ClusterProfileSpec(Spec):
    """``hardware_profiles/clusters/<name>.yaml``."""

    node: str
    nodes: Degree
    fabric: FabricSpec


OwnPart = Annotated[
    dict[str, JsonValue], Field(description="Figures of one's own, of which 'base' names the shipped part they start from.")
]
"""A part that is not shipped; :mod:`clustersim.hardware.own_parts` checks it."""


class NicsChange(Checked):
    """Settings of the adapters that a scenario may change."""

    model: str | OwnPart | None = Field(default=None, description="A shipped adapter, a file, or one described here.")
    count: Few | None = Field(default=None, description="Adapters of a node.")
    bandwidth: LineRate | None = Field(default=None, description="Bandwidth of one adapter, one direction.")
    latency: Seconds | None = Field(default=None, description="Latency of one adapter.")


class ScaleUpChange(Checked):
    """Settings of the wires inside a node that a scenario may change."""

    kind: ScaleUpKind | None = Field(default=None, description="Wiring of the accelerators of a domain.")
    nodes_per_domain: Degree | None = Field(default=None, description="Servers that share one domain.")
    bandwidth: PositiveBandwidth | None = Field(default=None, description="Bandwidth of one accelerator to the others, one direction.")
    latency: Seconds | None = Field(default=None, description="Latency from one accelerator to another.")
    in_network_reduction: bool | None = Field(default=None, description="Whether switches reduce, as NVLS does.")


class FabricChange(FabricFigures):
    """Settings of the network between nodes that a scenario may change."""

    topology: FabricTopology | None = Field(default=None, description="Wiring of the switches.")
    leaf: str | OwnPart | None = Field(
        default=None, description="Switch that nodes connect to: a shipped one, a file, or one described here."
    )
    spine: str | OwnPart | None = Field(default=None, description="Switch above the leaves, in the same way.")
    nodes_per_leaf: Degree | None = Field(default=None, description="Nodes at one leaf.")
    graph: Annotated[tuple[GraphSwitch, ...], Field(max_length=100_000)] | None = Field(
        default=None, description="Switches and cables one by one, for topology: graph."
    )


class NodeChange(Checked):
    """Settings of a node that a scenario may change, or must give when it describes one from nothing."""

    accelerator: str | OwnPart | None = Field(default=None, description="A shipped accelerator, a file, or one described here.")
    accelerators_per_node: Few | None = Field(default=None, description="Accelerators of one server.")
    nics: NicsChange | None = Field(default=None, description="Network adapters of a node.")
    scale_up: ScaleUpChange | None = Field(default=None, description="Wires between accelerators of a domain.")
    host: str | OwnPart | None = Field(default=None, description="A shipped host, a file, or one described here.")
    accelerators_per_pcie_switch: Few | None = Field(default=None, description="Accelerators that share one PCIe switch.")
    power: PositivePower | None = Field(default=None, description="Power of a whole node under load.")
    fabric: FabricChange | None = Field(default=None, description="Network between nodes; default: the node's reference fabric.")
