"""SI names and numbers to what people read."""

from __future__ import annotations

from clustersim.cli.units import readable


def test_a_suffix_becomes_a_unit() -> None:
    assert readable({"latency_s": 1.3e-6, "bandwidth_bytes_per_s": 5e10, "memory_bytes": 8e10, "power_w": 700.0}) == {
        "latency": "1.3 us", "bandwidth": "50 GB/s", "memory": "80 GB", "power": "700 W"
    }  # fmt: skip


def test_a_unit_reaches_down_into_a_mapping() -> None:
    assert readable({"peak_flops_per_s": {"bf16": 989e12, "fp8": 1979e12}}) == {"peak": {"bf16": "989 TFLOP/s", "fp8": "1.979 PFLOP/s"}}


def test_what_is_empty_is_left_out() -> None:
    assert readable({"power_w": None, "note": "", "n_links": 0}) == {"n_links": 0}


def test_counts_and_text_stay_as_they_are() -> None:
    assert readable([{"name": "x", "n_layers": 32, "on": True}]) == [{"name": "x", "n_layers": 32, "on": True}]
