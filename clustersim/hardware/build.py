"""From checked profiles to the frozen objects that the floors above use."""

from __future__ import annotations

from types import MappingProxyType

from clustersim.hardware.models import Accelerator, Fabric, Host, Nic, ScaleUp, Switch
from clustersim.hardware.provenance import built_sources
from clustersim.hardware.schema import AcceleratorSpec, FabricSpec, HostSpec, NicSpec, ScaleUpSpec, SwitchSpec


def build_accelerator(spec: AcceleratorSpec) -> Accelerator:
    """Return an accelerator; its memory is what the driver reports, where that is known."""
    return Accelerator(
        name=spec.name,
        vendor=spec.vendor,
        generation=spec.generation,
        peak_flops_per_s=MappingProxyType({str(precision): rate for precision, rate in spec.peak_flops.items()}),
        memory_bytes=spec.memory if spec.reported_memory is None else spec.reported_memory,
        memory_bandwidth_bytes_per_s=spec.memory_bandwidth,
        scale_up_bandwidth_bytes_per_s=0.0 if spec.scale_up is None else spec.scale_up.bandwidth,
        scale_up_links=0 if spec.scale_up is None else spec.scale_up.links,
        pcie_bandwidth_bytes_per_s=spec.pcie.bandwidth,
        n_multiprocessors=spec.multiprocessors,
        power_w=spec.power,
        sources=built_sources(spec),
        idle_power_w=spec.idle_power,
    )


def build_host(spec: HostSpec) -> Host:
    """Return a host."""
    return Host(
        name=spec.name,
        n_sockets=spec.sockets,
        memory_bytes=spec.memory,
        memory_bandwidth_bytes_per_s=spec.memory_bandwidth,
        socket_link_bandwidth_bytes_per_s=spec.socket_bandwidth,
        storage_bandwidth_bytes_per_s=spec.storage_bandwidth,
        storage_write_bandwidth_bytes_per_s=spec.storage_write_bandwidth,
        sources=built_sources(spec),
    )


def build_nic(spec: NicSpec) -> Nic:
    """Return a network adapter."""
    return Nic(name=spec.name, bandwidth_bytes_per_s=spec.bandwidth, latency_s=spec.latency, sources=built_sources(spec))


def build_switch(spec: SwitchSpec) -> Switch:
    """Return a switch of the scale-out network."""
    return Switch(
        name=spec.name,
        n_ports=spec.ports,
        port_bandwidth_bytes_per_s=spec.port_bandwidth,
        latency_s=spec.latency,
        sources=built_sources(spec),
    )


def build_scale_up(spec: ScaleUpSpec) -> ScaleUp:
    """Return the wiring of a domain."""
    return ScaleUp(
        kind=spec.kind,
        nodes_per_domain=spec.nodes_per_domain,
        latency_s=spec.latency,
        in_network_reduction=spec.in_network_reduction,
    )


def build_fabric(spec: FabricSpec, leaf: Switch, spine: Switch) -> Fabric:
    """Return a scale-out network made of two kinds of switches."""
    return Fabric(
        topology=spec.topology,
        leaf=leaf,
        spine=spine,
        nodes_per_leaf=spec.nodes_per_leaf,
        leaves_per_pod=spec.leaves_per_pod,
        oversubscription=spec.oversubscription,
        core_oversubscription=spec.core_oversubscription,
        routing=spec.routing,
        cable_latency_s=spec.cable_latency,
        in_network_reduction=spec.in_network_reduction,
        seed=spec.seed,
        dimensions=tuple(spec.dimensions),
        leaves_per_group=spec.leaves_per_group,
        global_links=spec.global_links,
        link_bandwidth_bytes_per_s=spec.link_bandwidth,
    )
