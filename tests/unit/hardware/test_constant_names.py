"""Every constant of a calibration can be read and replaced by the name that its file has for it."""

from __future__ import annotations

import pytest

from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import AttentionPass
from clustersim.hardware.calibrations import calibration_of_generation, changed, constant, tile_areas

HOPPER = calibration_of_generation("hopper")

NAMES = {
    "gemm.sustained_fraction.fp8": HOPPER.gemm.sustained_fraction["fp8"],
    "gemm.depth_overhead": HOPPER.gemm.depth_overhead,
    "memory_fraction": HOPPER.memory_fraction,
    "launch.dispatch": HOPPER.launch.dispatch_s,
    "network.families.tree.chunk": HOPPER.network.families["tree"].chunk_s,
    "network.ceilings.pair": HOPPER.network.ceilings.pair,
    "network.efficiency.nic": HOPPER.network.efficiency["nic"],
    "attention.flash_2.backward.causal_half_length": HOPPER.attention["flash_2"].backward.causal_half_length,
    "gemm.tiles.4096": HOPPER.gemm.tiles[-1][2],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_is_read_by_its_name_in_the_file(name: str) -> None:
    assert constant(HOPPER, name) == NAMES[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_is_replaced_and_no_other(name: str) -> None:
    found = changed(HOPPER, {name: 0.125})

    assert constant(found, name) == 0.125
    assert {other: constant(found, other) for other in NAMES if other != name} == {
        other: value for other, value in NAMES.items() if other != name
    }
    assert changed(found, {name: NAMES[name]}) == HOPPER


def test_the_calibration_that_is_changed_stays_as_it_was() -> None:
    before = HOPPER.memory_fraction

    changed(HOPPER, {"memory_fraction": 0.1, "launch.kernel": 1.0})

    assert before == HOPPER.memory_fraction


def test_a_precision_without_a_share_has_the_usual_one_until_it_gets_its_own() -> None:
    assert constant(HOPPER, "gemm.under_load.fp8") == constant(HOPPER, "gemm.under_load.default")

    own = changed(HOPPER, {"gemm.under_load.fp8": 0.5})

    assert own.gemm.under_load == {**HOPPER.gemm.under_load, "fp8": 0.5}


def test_the_best_attention_changes_with_the_generation_that_it_is() -> None:
    found = changed(HOPPER, {"attention.flash_3.forward.fraction": 0.5, "attention.flash_2.forward.fraction": 0.25})

    assert found.attention["flash"] == found.attention["flash_3"]
    assert found.attention["flash"].forward == AttentionPass(
        fraction=0.5,
        half_length=HOPPER.attention["flash_3"].forward.half_length,
        causal_half_length=HOPPER.attention["flash_3"].forward.causal_half_length,
    )
    assert found.attention["flash_2"].forward.fraction == 0.25


def test_tiles_of_one_area_have_one_share() -> None:
    found = changed(HOPPER, {"gemm.tiles.16384": 0.5})

    assert tile_areas(HOPPER) == (32768, 16384, 8192, 4096)
    assert {(rows, columns) for rows, columns, share in found.gemm.tiles if share == 0.5} == {(128, 128), (256, 64), (64, 256)}


@pytest.mark.parametrize(
    "name",
    ["gemm.tiles.7", "gemm.tiles", "gemm", "memory", "attention.flash_9.forward.fraction", "launch.kernel_ms", "gemm.under_load.int4", ""],
)
def test_a_name_that_nothing_has_is_refused(name: str) -> None:
    for ask in (lambda: constant(HOPPER, name), lambda: changed(HOPPER, {name: 1.0})):
        with pytest.raises(ScenarioError, match=f"there is no constant '{name}'"):
            ask()
