from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.hardware.calibration import BandwidthCeilings, FamilyCalibration, NetworkCalibration
from clustersim.hardware.calibrations import calibration_for, calibration_of, calibration_of_generation, slowest
from clustersim.hardware.catalog import load_node

H100, A100, A100_40G, L40S = (load_node(name) for name in ("dgx-h100", "dgx-a100-80g", "dgx-a100-40g", "pcie-l40s"))


def network(efficiency: float, start_s: float, ceiling: float, generation: str = "ampere") -> NetworkCalibration:
    return NetworkCalibration(
        efficiency={"nvlink": efficiency, "nic": 1.0 - efficiency},
        families={"ring": FamilyCalibration(start_s=start_s, chunk_s=1e-6 - start_s)},
        ceilings=BandwidthCeilings(nvls=ceiling, exchange=1.0 - ceiling, pair=ceiling, peer=1.0 - ceiling),
        multiprocessors=round(100 * efficiency),
        library=calibration_of_generation(generation).network.library,
    )


def test_of_several_constants_the_slowest_of_each_are_taken() -> None:
    found = slowest([network(0.9, 1e-7, 0.8), network(0.7, 3e-7, 0.6)])

    assert found.efficiency == pytest.approx({"nvlink": 0.7, "nic": 0.1}, rel=1e-12)
    assert found.families["ring"].start_s == 3e-7
    assert found.families["ring"].chunk_s == pytest.approx(9e-7, rel=1e-12)
    assert (found.ceilings.nvls, found.ceilings.pair) == (0.6, 0.6)
    assert (found.ceilings.exchange, found.ceilings.peer) == pytest.approx((0.2, 0.2), rel=1e-12)
    assert found.multiprocessors == 90


def test_a_protocol_that_one_kind_lacks_is_not_used() -> None:
    lacking = replace(network(0.9, 1e-7, 0.8), protocols=("ll", "simple"))

    assert slowest([network(0.9, 1e-7, 0.8), lacking]).protocols == ("ll", "simple")


def test_a_cluster_of_one_kind_has_its_calibration() -> None:
    assert calibration_of([H100]) == calibration_for(H100.accelerator)


def test_kinds_of_one_generation_are_not_mixed() -> None:
    found = calibration_of([A100, A100_40G])

    assert found.network == calibration_for(A100.accelerator).network
    assert "mixed_calibration" not in [code for code, _ in found.notes]


def test_what_is_noted_of_any_kind_is_noted_of_the_cluster() -> None:
    noted = calibration_for(L40S.accelerator).notes

    assert noted
    assert set(noted) <= set(calibration_of([A100, L40S]).notes)


def test_of_two_generations_the_network_is_the_slowest_and_those_of_both_are_kept() -> None:
    found = calibration_of([H100, A100])
    own = [calibration_for(node.accelerator).network for node in (H100, A100)]

    assert found.network.of_kinds == tuple(own)
    assert found.network.efficiency == slowest(own).efficiency
    assert found.gemm == calibration_for(H100.accelerator).gemm
    assert set(found.accelerators) >= {"h100-sxm5-80g", "a100-sxm4-80g"}


def test_a_mix_of_generations_is_noted_with_the_kinds_and_their_constants() -> None:
    notes = dict(calibration_of([H100, A100, H100]).notes)

    assert notes["mixed_calibration"] == (
        "groups that span dgx-h100 and dgx-a100-80g go by the slower of the constants of hopper and ampere throughout; "
        "no such group was measured"
    )


@pytest.mark.parametrize(
    ("generations", "oldest"),
    [(["hopper", "ampere"], "ampere"), (["blackwell", "hopper"], "hopper"), (["volta", "cdna3", "hopper"], "cdna3")],
)
def test_a_group_takes_the_limits_of_its_oldest_generation(generations: list[str], oldest: str) -> None:
    networks = [calibration_of_generation(each).network for each in generations]

    assert slowest(networks).library == calibration_of_generation(oldest).network.library
