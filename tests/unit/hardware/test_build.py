from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest
from pydantic import ValidationError

from clustersim.hardware.catalog import build_accelerator, build_part
from clustersim.hardware.models import Host, Nic, Switch
from clustersim.hardware.profile_schema import AcceleratorSpec, HostSpec, NicSpec, Spec, SwitchSpec
from clustersim.hardware.source import Source

build_host, build_nic, build_switch = partial(build_part, Host), partial(build_part, Nic), partial(build_part, Switch)
SOURCES = [{"title": "T", "url": "https://example.org", "accessed": "2026-11-20", "covers": ["memory"]}]
ACCELERATOR: dict[str, object] = {
    "name": "toy",
    "title": "A toy",
    "vendor": "amd",
    "generation": "toy",
    "peak_flops": {"fp32": "1 TFLOP/s"},
    "memory": "16 GB",
    "memory_bandwidth": "1 TB/s",
    "pcie": {"generation": 4, "lanes": 16, "bandwidth": "31.5 GB/s"},
    "multiprocessors": 10,
    "sources": SOURCES,
}
HOST: dict[str, object] = {
    "name": "h",
    "title": "H",
    "sockets": 2,
    "memory": "1 TB",
    "memory_bandwidth": "400 GB/s",
    "socket_bandwidth": "100 GB/s",
    "sources": SOURCES,
}


S = TypeVar("S", bound=Spec)
P = TypeVar("P")


def made(build: Callable[[S, str, tuple[Source, ...]], P], spec: S) -> P:
    return build(spec, spec.name, spec.sources)


def test_an_accelerator_without_links_has_no_scale_up_bandwidth() -> None:
    accelerator = made(build_accelerator, AcceleratorSpec.model_validate(ACCELERATOR))

    assert (accelerator.scale_up_bandwidth_bytes_per_s, accelerator.scale_up_links) == (0.0, 0)
    assert accelerator.power_w is None
    assert accelerator.sources[0].covers == ("memory",)


def test_what_the_driver_reports_decides_what_fits() -> None:
    spec = AcceleratorSpec.model_validate({**ACCELERATOR, "reported_memory": "15 GiB"})

    assert made(build_accelerator, spec).memory_bytes == 15 * 2**30
    assert made(build_accelerator, AcceleratorSpec.model_validate(ACCELERATOR)).memory_bytes == 16e9


def test_peaks_cannot_be_changed_after_loading() -> None:
    peaks = made(build_accelerator, AcceleratorSpec.model_validate(ACCELERATOR)).peak_flops_per_s

    with pytest.raises(TypeError):
        peaks["fp32"] = 0.0  # pyright: ignore[reportIndexIssue] # the point of the test


def test_a_host_may_have_no_storage() -> None:
    spec = HostSpec.model_validate(HOST)

    host = made(build_host, spec)

    assert (host.n_sockets, host.memory_bytes, host.socket_bandwidth_bytes_per_s) == (2, 1e12, 100e9)
    assert host.storage_bandwidth_bytes_per_s is None
    assert host.storage_write_bandwidth_bytes_per_s is None


def test_drives_are_read_and_written_at_rates_of_their_own() -> None:
    host = made(build_host, HostSpec.model_validate({**HOST, "storage_bandwidth": "25 GB/s", "storage_write_bandwidth": "16 GB/s"}))

    assert (host.storage_bandwidth_bytes_per_s, host.storage_write_bandwidth_bytes_per_s) == (25e9, 16e9)


@pytest.mark.parametrize("only", ["storage_bandwidth", "storage_write_bandwidth"])
def test_one_rate_of_drives_without_the_other_is_refused(only: str) -> None:
    with pytest.raises(ValidationError, match="go together"):
        HostSpec.model_validate({**HOST, only: "25 GB/s"})


def test_network_parts_are_in_si_units() -> None:
    nic = made(
        build_nic, NicSpec.model_validate({"name": "n", "title": "N", "bandwidth": "400 Gbit/s", "latency": "1 us", "sources": SOURCES})
    )
    switch = made(
        build_switch,
        SwitchSpec.model_validate(
            {"name": "s", "title": "S", "ports": 64, "port_bandwidth": "400 Gbit/s", "latency": "150 ns", "sources": SOURCES}
        ),
    )

    assert (nic.bandwidth_bytes_per_s, nic.latency_s) == (50e9, 1e-6)
    assert (switch.n_ports, switch.port_bandwidth_bytes_per_s, switch.latency_s) == (64, 50e9, 150e-9)
