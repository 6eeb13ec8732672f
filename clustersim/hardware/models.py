"""Peak figures of a device, host, NIC, switch or node, in SI units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, with_config

from clustersim.documents.form import UNITLESS
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.source import Source
from clustersim.units.fields import Bytes, Degree, LineRate, PositiveBandwidth, PositiveInt, PositiveRatio, Seconds, Watts

PositiveBytes = Annotated[Bytes, Field(gt=0)]
PositivePower = Annotated[Watts, Field(gt=0)]
ScaledFormat = Literal["mx", "nvfp4"]
"""Formats of which matrix units must take blocks with a scale each; others need nothing of them [1]_ [2]_.

References
----------
.. [1] Triton, tutorial on blocked-scaled products of Blackwell: MX and NVFP4.
.. [2] ROCm, pull requests rocm-libraries 3738 and meta-pytorch/MSLK 381: MX and no NVFP4 on gfx950 (CDNA 4).
"""
Few = Annotated[int, Field(strict=True, gt=0, le=1024)]
"""Parts of one node, or links of one switch: each is wired, and no node has a tenth of it."""
ScaleUpKind = Literal["nvswitch", "cube_mesh", "full_mesh", "bridge_pairs", "pcie"]
FabricTopology = Literal["rail_optimized", "leaf_spine", "fat_tree", "single_switch", "torus", "dragonfly", "graph"]
Routing = Literal["adaptive", "ecmp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator as its data sheet describes it."""

    name: str
    vendor: Annotated[str, Field(pattern="^[a-z0-9-]+$")]
    generation: Annotated[str, Field(pattern="^[a-z0-9]+$")]
    """Architecture, such as ``ampere``; its calibration applies where the accelerator has none."""
    peak_flops_per_s: Mapping[str, float]
    """Dense matrix peak for each precision: fp32, tf32, fp16, bf16, fp8."""
    memory_bytes: PositiveBytes
    memory_bandwidth_bytes_per_s: PositiveBandwidth
    scale_up_bandwidth_bytes_per_s: float
    """All NVLink or xGMI links together, one direction; 0 without any."""
    scale_up_links: int
    pcie_bandwidth_bytes_per_s: float
    """One direction."""
    n_multiprocessors: PositiveInt
    power_w: PositivePower | None = None
    sources: tuple[Source, ...]
    idle_power_w: PositivePower | None = None
    """Idle power; None where unknown."""
    compute_capability: PositiveRatio | None = None
    """Version of CUDA's instruction set, where it differs from that of the data-centre chips of its generation."""
    scaled_formats: tuple[ScaledFormat, ...] = ()
    """Formats of its matrix units in which a block of numbers shares a scale: mx, nvfp4."""
    calibration: Calibration | None = None
    """Calibration of this accelerator; None for that of its generation."""
    clock_spread: float | None = None
    """Standard deviation of the clock between accelerators of this kind, relative to its mean; None for that of the calibration."""

    @property
    def peak_16_flops_per_s(self) -> float:
        """Dense matrix peak in 16 bits, of whichever format there is; in fp32 without any."""
        return next(self.peak_flops_per_s[name] for name in ("bf16", "fp16", "fp32") if name in self.peak_flops_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Processors, memory and storage of a server."""

    name: str
    n_sockets: PositiveInt
    memory_bytes: PositiveBytes
    memory_bandwidth_bytes_per_s: PositiveBandwidth
    """All sockets together."""
    socket_bandwidth_bytes_per_s: PositiveBandwidth
    """Between sockets, one direction."""
    storage_bandwidth_bytes_per_s: PositiveBandwidth | None = None
    """Sequential read from local NVMe, all drives together; None without any."""
    storage_write_bandwidth_bytes_per_s: PositiveBandwidth | None = None
    """Sequential write to local NVMe; None without any."""
    sources: tuple[Source, ...]
    pace: PositiveRatio = 1.0
    """Time of the host to issue a kernel, relative to the host whose time the calibrations have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network adapter port."""

    name: str
    bandwidth_bytes_per_s: LineRate
    """One direction."""
    latency_s: Seconds
    """Through the adapter and its PCIe path, one side."""
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One switch of the scale-out fabric."""

    name: str
    n_ports: PositiveInt
    port_bandwidth_bytes_per_s: LineRate
    """One direction."""
    latency_s: Seconds
    """Port to port."""
    sources: tuple[Source, ...]


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp:
    """Wiring of the accelerators of one NVLink (or xGMI, or PCIe) domain."""

    kind: ScaleUpKind
    nodes_per_domain: Degree = 1
    """More than one where the domain spans servers, as in an NVL72 rack."""
    latency_s: Seconds = 0.0
    """One traversal of the domain."""
    in_network_reduction: bool = False
    """True where the switch can add (NVLS)."""
    links_per_peer: Degree = 1
    """Links between each two accelerators of a full mesh."""


Number = Annotated[int, Field(strict=True, ge=0)]


@with_config(UNITLESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSwitch:
    """One switch of a fabric that is given switch by switch, or a part of its nodes and cables."""

    switch: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Its name.")]
    nodes: Annotated[tuple[Number, ...], Field(max_length=1_000_000, description="Nodes whose adapters hang at it.")] = ()
    adapters: Annotated[tuple[Number, ...], Field(max_length=1000, description="Adapters of these nodes; all if left out.")] = ()
    to: Annotated[
        Mapping[str, Few], Field(description="Other switches, with the number of cables to each; each cable is listed at one end.")
    ] = field(default_factory=dict[str, int], hash=False)
    bandwidth_bytes_per_s: Annotated[LineRate | None, Field(description="Bandwidth of each of these cables, one direction.")] = None
    """None for that of the fabric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The scale-out network, by its shape and proportions."""

    topology: FabricTopology
    leaf: Switch
    spine: Switch
    nodes_per_leaf: int
    """Servers below one leaf (of one rail, when rail-optimised): the scalable unit."""
    leaves_per_pod: int = 0
    """Leaves below one group of spines in a three-tier fabric; 0 for two tiers."""
    oversubscription: float = 1.0
    """Bandwidth down over bandwidth up at the leaf."""
    core_oversubscription: float = 1.0
    """The same at the top of a pod."""
    routing: Routing = "adaptive"
    cable_latency_s: float = 0.0
    in_network_reduction: bool = False
    """True where the switches can add (SHARP)."""
    seed: int = 0
    """Seed of the hash by which ECMP picks a path for each pair."""
    dimensions: tuple[int, ...] = ()
    """Nodes along each dimension of a torus."""
    leaves_per_group: int = 0
    """Routers in one group of a dragonfly; each has ``nodes_per_leaf`` servers."""
    global_links: int = 0
    """Links of one dragonfly router to other groups."""
    link_bandwidth_bytes_per_s: float | None = None
    """Bandwidth of one link of a torus, dragonfly or graph, one direction; None for the default of the topology."""
    graph: tuple[GraphSwitch, ...] = ()
    """Switches and cables of a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A server: accelerators, the wires between them, host and adapters."""

    name: str
    accelerator: Accelerator
    n_accelerators: int
    scale_up: ScaleUp
    host: Host
    nic: Nic
    n_nics: int
    accelerators_per_pcie_switch: int
    power_w: float | None
    """Maximum of the whole server."""
    fabric: Fabric
    """Reference fabric, used where a scenario names none."""
    sources: tuple[Source, ...]

    @property
    def domain_size(self) -> int:
        """Accelerators of a scale-up domain."""
        return self.n_accelerators * self.scale_up.nodes_per_domain


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHosts:
    """Dedicated hosts without accelerators on the same fabric, such as parameter servers."""

    n_hosts: int
    host: Host
    nic: Nic
    n_nics: int
    """In one host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProfile:
    """A reference cluster: a number of nodes of one kind on one fabric."""

    name: str
    title: str
    node: Node
    n_nodes: int
    fabric: Fabric
    sources: tuple[Source, ...]
