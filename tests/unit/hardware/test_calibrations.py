"""Every accelerator gets constants, every constant has a source, and what was not measured says so."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import AttentionPass, BandwidthCeilings, Calibration
from clustersim.hardware.calibrations import calibration_for, read_calibration
from clustersim.hardware.catalog import load_accelerator, profile_names
from clustersim.hardware.library_costs import LATENCIES, PROTOCOLS
from clustersim.topology.cluster import TIERS

FILES = sorted((data_path("hardware_profiles") / "calibration").glob("*.yaml"))
GENERATIONS = [path.stem for path in FILES]

TEXT = """\
name: test
title: A device for tests
generation: test
accelerators: [card]
notes: {careful: these constants are invented}
gemm:
  sustained_fraction: {default: 0.8, fp8: 0.6}
  under_load: {default: 0.9, fp8: 1.0}
  depth_overhead: 40
  power_exponent: 0.7
  tiles:
    - {rows: 256, columns: 128, share: 1.0}
    - {rows: 64, columns: 64, share: 0.9}
attention:
  best: flash_2
  flash_2:
    forward: {fraction: 0.7, half_length: 100, causal_half_length: 500}
    backward: {fraction: 0.6, half_length: 110, causal_half_length: 510}
    half_head_dim: 20
  flash_1:
    forward: {fraction: 0.4, half_length: 50, causal_half_length: 400}
    backward: {fraction: 0.3, half_length: 50, causal_half_length: 400}
    half_head_dim: 0
memory_fraction: 0.75
launch: {kernel: 2 us, dispatch: 6 us, further: 2 us, product: 1 us, step: 10 ms}
network:
  efficiency: {nvlink: 0.8, pcie: 0.8, socket: 0.8, nic: 0.9, leaf: 0.9, spine: 0.9, memory: 0.8}
  families:
    ring: {start: 15 us, chunk: 20 ns}
    tree: {start: 1 us, chunk: 1.5 us}
    nvls: {start: 3 us, chunk: 2 us}
    exchange: {start: 0 s, chunk: 6 ns}
  ceilings: {nvls: 0.7, exchange: 0.6, pair: 0.5, peer: 0.4}
  multiprocessors: 24
sources:
  - title: invented
    url: https://example.org
    accessed: 2026-11-21
    covers: [gemm, attention, memory_fraction, launch, network]
"""


def calibration(tmp_path: Path, *changes: tuple[str, str]) -> Calibration:
    """Return the calibration of the text above, changed in the named places."""
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "test.yaml"
    file.write_text(text, encoding="utf-8")
    return read_calibration(file)


def refusal(tmp_path: Path, *changes: tuple[str, str]) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        calibration(tmp_path, *changes)
    return caught.value


def codes(of: Calibration) -> list[str]:
    return [code for code, _ in of.notes]


def test_a_file_is_read_into_seconds_and_fractions(tmp_path: Path) -> None:
    read = calibration(tmp_path)

    assert (read.name, read.generation, read.accelerators) == ("test", "test", ("card",))
    assert (read.launch.kernel_s, read.launch.dispatch_s, read.launch.step_s) == (2e-6, 6e-6, 0.01)
    assert read.network.efficiency == {"nvlink": 0.8, "pcie": 0.8, "socket": 0.8, "nic": 0.9, "leaf": 0.9, "spine": 0.9, "memory": 0.8}
    assert {name: (family.start_s, family.chunk_s) for name, family in read.network.families.items()} == {
        "ring": (pytest.approx(15e-6), pytest.approx(20e-9)),
        "tree": (pytest.approx(1e-6), pytest.approx(1.5e-6)),
        "nvls": (pytest.approx(3e-6), pytest.approx(2e-6)),
        "exchange": (0.0, pytest.approx(6e-9)),
    }
    assert read.network.ceilings == BandwidthCeilings(nvls=0.7, exchange=0.6, pair=0.5, peer=0.4)
    assert read.network.latencies is LATENCIES
    assert read.network.protocols == PROTOCOLS
    assert read.gemm.tiles == ((256, 128, 1.0), (64, 64, 0.9))
    assert read.gemm.sustained_fraction == {"default": 0.8, "fp8": 0.6}
    assert read.gemm.under_load == {"default": 0.9, "fp8": 1.0}
    assert read.network.multiprocessors == 24
    assert list(read.attention) == ["flash", "flash_2", "flash_1"]
    assert read.attention["flash"] is read.attention["flash_2"]
    assert read.attention["flash_2"].forward == AttentionPass(fraction=0.7, half_length=100.0, causal_half_length=500.0)
    assert read.attention["flash_2"].backward == AttentionPass(fraction=0.6, half_length=110.0, causal_half_length=510.0)
    assert read.attention["flash_1"].half_head_dim == 0.0
    assert read.memory_fraction == 0.75
    assert read.notes == (("careful", "these constants are invented"),)
    assert [source.url for source in read.sources] == ["https://example.org"]


def test_a_generation_is_no_path(tmp_path: Path) -> None:
    strayed = calibration(tmp_path, ("generation: test", "generation: ../nodes/dgx-h100"))

    assert strayed.network.library == calibration(tmp_path).network.library


@pytest.mark.parametrize("key", ["latencies: {}", "protocols: []", "of_kinds: []"])
def test_keys_that_no_file_has_are_refused(tmp_path: Path, key: str) -> None:
    error = refusal(tmp_path, ("  multiprocessors: 24", f"  multiprocessors: 24\n  {key}"))

    assert error.field == f"network.{key.partition(':')[0]}"


@pytest.mark.parametrize("field", ["gemm", "attention", "memory_fraction", "launch", "network"])
def test_a_number_that_no_source_covers_does_not_load(tmp_path: Path, field: str) -> None:
    covers = ["gemm", "attention", "memory_fraction", "launch", "network"]
    left = ", ".join(cover for cover in covers if cover != field)

    error = refusal(tmp_path, ("gemm, attention, memory_fraction, launch, network", left))

    assert error.message.startswith(f"no source covers '{field}")
    assert error.place is not None


def test_a_part_may_be_covered_and_the_rest_is_missed(tmp_path: Path) -> None:
    error = refusal(tmp_path, ("launch, network]", "launch, network.efficiency]"))

    assert error.field == "network.families.ring.start"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("memory_fraction: 0.75", "memory_fraction: 1.1"),
        ("memory_fraction: 0.75", "memory_fraction: 0"),
        ("fraction: 0.7", "fraction: -0.1"),
        ("nvlink: 0.8", "nvlink: 1.5"),
        ("default: 0.8", "default: 2"),
        ("pair: 0.5", "pair: 1.01"),
        ("nvls: 0.7", "nvls: 0"),
    ],
)
def test_nothing_reaches_more_than_its_peak_or_nothing_at_all(tmp_path: Path, old: str, new: str) -> None:
    assert refusal(tmp_path, (old, new)).place is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("start: 15 us", "start: 15"),
        ("start: 3 us", "start: -3 us"),
        ("chunk: 6 ns", "chunk: 6 GB"),
        ("peer: 0.4", "peer: 0.4, bridge: 0.5"),
        ("    tree: {start: 1 us, chunk: 1.5 us}\n", ""),
        ("dispatch: 6 us", "dispatch: -6 us"),
        ("depth_overhead: 40", "depth_overhead: .nan"),
        ("rows: 256", "rows: 0"),
        ("half_length: 100", "half_length: .inf"),
        ("memory_fraction: 0.75\n", ""),
        ("kernel: 2 us", "kernal: 2 us"),
    ],
)
def test_a_mistake_in_a_file_is_refused_at_its_place(tmp_path: Path, old: str, new: str) -> None:
    error = refusal(tmp_path, (old, new))

    assert error.place is not None
    assert error.place.file.endswith("test.yaml")


def test_a_mistake_in_the_only_item_of_a_list_is_told_before_the_list_is_too_short(tmp_path: Path) -> None:
    error = refusal(tmp_path, ("    - {rows: 64, columns: 64, share: 0.9}\n", ""), ("rows: 256", "rows: 0"))

    assert (error.field, error.message) == ("gemm.tiles.0.rows", "0 is out of range")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_file_loads_and_is_named_after_its_generation(path: Path) -> None:
    read = read_calibration(path)

    assert path.stem == read.generation
    assert read.accelerators


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_file_knows_all_tiers_and_all_precisions(path: Path) -> None:
    read = read_calibration(path)

    # The bandwidth of drives is one that they were seen to reach.
    assert set(read.network.efficiency) == set(TIERS) - {"storage"}
    assert set(read.network.families) == set(LATENCIES)
    assert "default" in read.gemm.sustained_fraction


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_accelerator_that_was_measured_is_shipped_and_of_the_generation(path: Path) -> None:
    read = read_calibration(path)

    assert {load_accelerator(name).generation for name in read.accelerators} == {read.generation}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_figure_that_was_assumed_says_why(path: Path) -> None:
    sources = read_document(path).data["sources"]
    assert isinstance(sources, list)

    for source in sources:
        assert isinstance(source, dict)
        if not str(source["url"]).startswith("http"):
            assert source["note"]


def test_every_accelerator_gets_constants_and_says_where_they_are_from() -> None:
    for name in profile_names("accelerators"):
        accelerator = load_accelerator(name)

        found = calibration_for(accelerator)

        if name in found.accelerators:
            assert not {"related_calibration", "borrowed_calibration"} & set(codes(found))
        elif accelerator.generation in GENERATIONS:
            assert codes(found)[-1] == "related_calibration"
            assert found.generation == accelerator.generation
        else:
            assert codes(found)[-1] == "borrowed_calibration"
            assert found.generation == "ampere"


def test_some_accelerators_are_measured_some_related_and_some_borrow() -> None:
    kinds = [codes(calibration_for(load_accelerator(name)))[-1:] for name in ("a100-sxm4-80g", "a40", "k80")]

    assert kinds == [[], ["related_calibration"], ["borrowed_calibration"]]


def test_a_borrowed_calibration_says_whose_it_is() -> None:
    (message,) = [text for code, text in calibration_for(load_accelerator("k80")).notes if code == "borrowed_calibration"]

    assert message.startswith("k80 (generation kepler) has no calibration; constants of ampere are borrowed: shares of peak rates")
    assert "'generation' of the accelerator takes others (blackwell, cdna3, hopper, volta)" in message


def test_a_related_calibration_names_those_that_were_measured() -> None:
    (message,) = [text for code, text in calibration_for(load_accelerator("a40")).notes if code == "related_calibration"]

    assert message == "a40 itself was not measured; it shares the constants of a100-sxm4-80g, a100-sxm4-40g"


def test_an_accelerator_that_a_user_made_up_borrows_too() -> None:
    own = replace(load_accelerator("h100-sxm5-80g"), name="mine", generation="unheard-of")

    assert codes(calibration_for(own)) == ["borrowed_calibration"]


def test_notes_of_a_file_stay_when_one_is_added() -> None:
    own = calibration_for(load_accelerator("h100-sxm5-80g"))
    related = calibration_for(load_accelerator("h100-pcie-80g"))

    assert related.notes[:-1] == own.notes
    assert replace(related, notes=own.notes, gemm=own.gemm, attention=own.attention) == own


@pytest.mark.parametrize(
    ("pattern", "field"),
    [
        (r"default: [\d.]+", "gemm.sustained_fraction.default"),
        (r"nvlink: [\d.]+, ", "network.efficiency.nvlink"),
        (r" +exchange: \{.*\}\n", "network.families.exchange"),
        (r"pair: [\d.]+, ", "network.ceilings.pair"),
    ],
)
def test_a_calibration_without_a_constant_that_is_always_needed_does_not_load(tmp_path: Path, pattern: str, field: str) -> None:
    text = (data_path("hardware_profiles") / "calibration" / "ampere.yaml").read_text(encoding="utf-8")
    text, n_found = re.subn(pattern, "bf16: 0.8" if "default" in pattern else "", text, count=1)
    assert n_found == 1
    file = tmp_path / "ampere.yaml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        read_calibration(file)

    assert caught.value.field == field


def test_the_library_itself_is_slower_the_more_it_makes_sure_of() -> None:
    for latencies in LATENCIES.values():
        for medium in latencies.hop_s.values():
            assert set(medium) == set(latencies.base_s) == set(PROTOCOLS)
            assert 0.0 < medium["ll"] <= medium["ll128"] <= medium["simple"]


def test_a_hop_over_the_network_is_longer_than_one_inside() -> None:
    for latencies in LATENCIES.values():
        for protocol in PROTOCOLS:
            assert latencies.hop_s["net"][protocol] > latencies.hop_s["nvlink"][protocol]


def test_the_best_generation_of_attention_must_be_described(tmp_path: Path) -> None:
    error = refusal(tmp_path, ("best: flash_2", "best: flash_3"))

    assert error.message == "nothing is said of flash_3"
    assert error.hint == "name one of flash_2, flash_1"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_best_attention_is_no_slower_than_an_older_one(generation: str) -> None:
    attention = read_calibration(data_path("hardware_profiles") / "calibration" / f"{generation}.yaml").attention

    assert all(attention["flash"].forward.fraction >= other.forward.fraction for other in attention.values())


H100_IDLE_SHARE = 70.0 / 700.0


@pytest.mark.parametrize("share", [0.25, 0.5, 1.2])
def test_products_and_attention_follow_the_power_above_idle(share: float) -> None:
    card = load_accelerator("h100-sxm5-80g")
    other = replace(card, name="other", power_w=share * (card.power_w or 0.0))
    usual, held = calibration_for(card), calibration_for(other)
    clock = ((share - H100_IDLE_SHARE) / (1.0 - H100_IDLE_SHARE)) ** 0.7

    assert held.gemm.under_load["default"] == pytest.approx(usual.gemm.under_load["default"] * clock)
    assert held.attention["flash_2"].backward.fraction == pytest.approx(usual.attention["flash_2"].backward.fraction * clock)


def test_half_the_power_for_half_the_peak_is_no_limit() -> None:
    card = load_accelerator("h100-sxm5-80g")
    assert card.power_w is not None
    half = replace(
        card, name="half", power_w=card.power_w / 2, peak_flops_per_s={key: each / 2 for key, each in card.peak_flops_per_s.items()}
    )

    assert calibration_for(half).gemm == calibration_for(card).gemm


@pytest.mark.parametrize(("name", "measured"), [("rtxpro6000", "b200-sxm"), ("a6000", "a100-sxm4-80g")])
def test_another_chip_with_more_power_keeps_the_rate(name: str, measured: str) -> None:
    assert calibration_for(load_accelerator(name)).gemm == calibration_for(load_accelerator(measured)).gemm


def test_no_power_lifts_products_above_their_rate_in_bursts() -> None:
    card = load_accelerator("h100-sxm5-80g")
    other = replace(card, name="other", power_w=4.0 * (card.power_w or 0.0))

    assert calibration_for(other).gemm.under_load["default"] == 1.0


def test_a_limit_that_does_not_bind_changes_nothing() -> None:
    card = load_accelerator("mi300x")
    other = replace(card, name="other", power_w=(card.power_w or 0.0) / 4)

    assert calibration_for(other).gemm == calibration_for(card).gemm


def test_the_nearest_measured_accelerator_lends_its_rate() -> None:
    clock = ((1400.0 / 2.5 - 140.0 / 2.25) / (1200.0 / 2.5 - 140.0 / 2.25)) ** 0.9  # GB300 beside GB200, watts for each PFLOP/s

    gb200, gb300 = (calibration_for(load_accelerator(name)).gemm.under_load["default"] for name in ("gb200", "gb300"))

    assert gb300 == pytest.approx(gb200 * clock)


# Measured by the user

MEASURED = "    url: measured\n    sha256: " + 64 * "a" + "\n    covers"
FIT = "    fit: {rows: 7, mean_error_fraction: 0.05, median_error_fraction: 0.04, mean_error_before_fraction: 0.3}\n"


def test_a_source_may_be_a_measured_file_with_its_hash_and_how_well_it_is_met(tmp_path: Path) -> None:
    found = calibration(
        tmp_path,
        ("    url: https://example.org\n    accessed: 2026-11-21\n    covers", f"{FIT}    note: mine\n{MEASURED}"),
    )

    assert found.sources[0].url == "measured"


def test_a_measured_source_needs_the_hash_of_its_file(tmp_path: Path) -> None:
    error = refusal(tmp_path, ("url: https://example.org", "note: mine\n    url: measured"))

    assert error.message == "nothing says which file was measured"


def test_a_source_that_was_not_measured_needs_its_day(tmp_path: Path) -> None:
    assert refusal(tmp_path, ("    accessed: 2026-11-21\n", "")).message == "'accessed' is missing"
