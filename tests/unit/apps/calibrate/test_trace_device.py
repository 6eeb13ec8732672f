"""A trace is of the accelerator that is calibrated, or it is refused."""

from __future__ import annotations

import pytest

from clustersim.apps.calibrate.traced import TracedDevice, check_device, devices_of, is_of
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_accelerator, profile_names

GIB = 2**30


@pytest.mark.parametrize(
    ("device", "accelerators"),
    [
        ("NVIDIA A100-SXM4-40GB", {"a100-sxm4-40g", "a100-sxm4-80g"}),
        ("NVIDIA A100-PCIE-40GB", {"a100-pcie-40g", "a100-pcie-80g"}),
        ("NVIDIA A100-PG509-200", {"a100-sxm4-40g", "a100-sxm4-80g", "a100-pcie-40g", "a100-pcie-80g"}),
        ("Tesla V100-SXM2-16GB", {"v100-sxm2-16g", "v100-sxm2-32g", "v100-sxm3-32g"}),
        ("Tesla K80", {"k80"}),
        ("NVIDIA H100 80GB HBM3", {"h100-sxm5-80g", "h100-pcie-80g", "h100-500w"}),
        ("NVIDIA H200", {"h200-sxm", "h200-nvl"}),
        ("NVIDIA GH200 480GB", {"gh200"}),
        ("NVIDIA GB200", {"gb200"}),
        ("NVIDIA GeForce RTX 4090", {"rtx4090"}),
        ("NVIDIA A10G", {"a10g"}),
        ("AMD Instinct MI300X", {"mi300x"}),
        ("AMD Radeon Graphics", set[str]()),
    ],
)
def test_the_name_of_a_driver_tells_the_model_and_sometimes_the_form(device: str, accelerators: set[str]) -> None:
    assert {name for name in profile_names("accelerators") if is_of(device, name)} == accelerators


@pytest.mark.parametrize(
    ("device", "memory_gib", "accelerator", "refused"),
    [
        ("NVIDIA A100-PG509-200", 39.4, "a100-sxm4-40g", False),
        ("NVIDIA A100-PG509-200", 39.4, "a100-sxm4-80g", True),
        ("Tesla V100-SXM2-16GB", 15.8, "a100-sxm4-40g", True),
        ("NVIDIA H100 NVL", 93.1, "h100-pcie-80g", True),
    ],
)
def test_name_and_memory_have_to_fit(device: str, memory_gib: float, accelerator: str, refused: bool) -> None:
    named = [TracedDevice(name=device, memory_bytes=memory_gib * GIB)]
    if not refused:
        check_device(named, load_accelerator(accelerator), said=None, file="t.json")
        return

    with pytest.raises(ScenarioError, match=f"is of {device} with .* and {accelerator} with .* is calibrated"):
        check_device(named, load_accelerator(accelerator), said=None, file="t.json")


def test_one_other_device_among_several_is_enough_to_refuse() -> None:
    named = [TracedDevice(name="NVIDIA A100-SXM4-40GB", memory_bytes=None), TracedDevice(name="Tesla V100-SXM2-16GB", memory_bytes=None)]

    with pytest.raises(ScenarioError, match="is of Tesla V100"):
        check_device(named, load_accelerator("a100-sxm4-40g"), said=None, file="t.json")


def test_what_the_user_says_stands_above_what_the_trace_says() -> None:
    named = [TracedDevice(name="AMD Radeon Graphics", memory_bytes=64 * GIB)]

    check_device(named, load_accelerator("mi250x"), said="mi250x", file="t.json")
    with pytest.raises(ScenarioError, match="'mi300x' is not mi250x"):
        check_device(named, load_accelerator("mi250x"), said="mi300x", file="t.json")


@pytest.mark.parametrize("data", [[], {}, {"deviceProperties": None}, {"deviceProperties": [{"id": 0}, 3, {"name": 7}]}])
def test_a_trace_may_name_no_device(data: Data) -> None:
    assert devices_of(data) == ()


def test_equal_devices_are_named_once() -> None:
    device: Data = {"name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42297524224}

    assert devices_of({"deviceProperties": [device, device]}) == (TracedDevice(name="NVIDIA A100-SXM4-40GB", memory_bytes=42297524224.0),)
