"""Which kind a run is, and the interval that it gets."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest

from clustersim.apps.run.intervals import machine_of, read_bands, run_kind, shipped_bands, shipped_memory_band
from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import Band, Bands, kind_text, memory_verdict_of, wider

TEXT = """\
level: 0.8
sources: [one]
made_from:
  rows: 1
  sha256: "0000000000000000000000000000000000000000000000000000000000000000"
widening: 1.0
coverage: {weighted: 0.8, rows: 0.8, sources: 0.8}
kinds:
  - {kind: [], least: 0.9, most: 1.1, rows: 1, sources: 1}
  - {kind: [dense], least: 0.95, most: 1.2, rows: 1, sources: 1}
ratios:
  widening: 1.0
  coverage: 0.8
  kinds:
    - {kind: [], most: 1.15, pairs: 1, sources: 1}
    - {kind: [dense], most: 1.1, pairs: 1, sources: 1}
unmeasured: {measured: [a100-sxm4-80g], widening: 1.5}
"""


def write(folder: Path, text: str = TEXT) -> Path:
    path = folder / "step-time.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def kind_of(result: Result) -> tuple[str, ...]:
    return run_kind(result.built.plan, len(result.built.nodes), result.flags)


@pytest.mark.parametrize(
    ("example", "kind"),
    [
        ("llama3-8b-8xh100", ("dense", "one node", "measured accelerator")),
        ("llama3-70b-h100-512", ("dense", "many nodes", "measured accelerator")),
        ("mixtral-8x7b-ep", ("experts", "many nodes", "measured accelerator")),
        ("resnet50-ddp-dgx1", ("convolutional", "one node", "measured accelerator")),
        ("gpt2-servers-25g", ("parameter servers", "many nodes", "measured accelerator")),
    ],
)
def test_a_run_is_of_the_kind_of_its_model_and_machine(example: str, kind: tuple[str, ...]) -> None:
    assert kind_of(run(example))[0] == kind[0]
    assert kind_of(run(example))[1] == kind[1]


def test_an_accelerator_that_borrows_constants_is_not_measured() -> None:
    result = run("llama3-8b-8xh100", set=["cluster.node=pcie-l40s", "training.micro_batch_size=1"])

    assert kind_of(result)[2] == "accelerator not measured"


def test_the_interval_is_the_band_of_the_kind_times_the_step_time() -> None:
    result = run("llama3-8b-8xh100")
    band = shipped_bands().band(kind_of(result))

    assert result.metrics.step_time_interval_s == (band.least_fraction * result.step_time_s, band.most_fraction * result.step_time_s)
    assert result.metrics.step_time_interval_kind == kind_text(band.kind)
    assert result.to_dict()["step_time_interval_s"] == list(result.metrics.step_time_interval_s or ())


def test_an_interval_contains_the_prediction_or_says_why_not() -> None:
    for example in ("llama3-8b-8xh100", "mixtral-8x7b-ep", "resnet50-ddp-dgx1"):
        result = run(example)
        least, most = result.metrics.step_time_interval_s or (0.0, 0.0)
        beside = "interval_beside_prediction" in [flag.code for flag in result.flags]
        assert (least <= result.step_time_s <= most) is not beside


def test_a_kind_without_a_band_borrows_and_says_so() -> None:
    result = run("gpt2-servers-25g")

    flags = {flag.code: flag.message for flag in result.flags}
    assert result.metrics.step_time_interval_kind == "all runs"
    assert "parameter servers" in flags["interval_borrowed"]


def test_neighbours_are_not_in_the_interval_and_the_result_says_so() -> None:
    assert "interval_undisturbed" in [flag.code for flag in run("two-jobs-one-fabric").flags]
    assert "interval_undisturbed" not in [flag.code for flag in run("llama3-8b-8xh100").flags]


@pytest.mark.parametrize(("share", "verdict"), [(1.001, "does not fit"), (0.999, "tight"), (1 / 1.249, "tight"), (1 / 1.252, "fits")])
def test_a_peak_fits_is_tight_or_does_not_fit_by_what_was_measured(share: float, verdict: str) -> None:
    # The upper end of the interval is 1.2506 of the predicted peak.
    assert memory_verdict_of(share * 80e9, 80e9, shipped_memory_band()) == verdict


def test_a_run_says_whether_it_fits_beside_whether_its_prediction_does() -> None:
    for recompute, verdict in (("full", "tight"), ("none", "does not fit")):
        memory = run("llama3-8b-8xh100", set=[f"strategy.recompute={recompute}", "strategy.zero_stage=1"]).metrics.memory
        band = shipped_memory_band()

        assert memory.verdict == verdict
        assert memory.fits == (verdict != "does not fit")
        assert memory.peak_interval_bytes == (band.least_fraction * memory.peak_bytes, band.most_fraction * memory.peak_bytes)


def test_a_kind_is_part_of_wider_ones() -> None:
    band = Band(kind=("dense",), least_fraction=0.9, most_fraction=1.1)
    every = Band(kind=(), least_fraction=0.8, most_fraction=1.2)
    bands = Bands(level_fraction=0.8, by_kind={(): every, ("dense",): band}, held_out={})

    assert bands.band(("dense", "one node", "measured accelerator")) is band
    assert bands.band(("experts", "one node")) is every
    assert list(wider(("a", "b"))) == [("a", "b"), ("a",), ()]


def test_bands_are_read_by_kind(tmp_path: Path) -> None:
    bands = read_bands(write(tmp_path))

    assert bands.band(("dense", "one node")).interval_s(2.0) == (1.9, 2.4)
    assert bands.band(("experts",)).interval_s(2.0) == (1.8, 2.2)


def test_ratios_and_measured_accelerators_are_read(tmp_path: Path) -> None:
    bands = read_bands(write(tmp_path))

    assert (bands.ratio(("dense", "one node")), bands.ratio(("experts",))) == (1.1, 1.15)
    assert (bands.accelerators, bands.unmeasured_widening) == (("a100-sxm4-80g",), 1.5)


@pytest.mark.parametrize("node", ["hgx-h200", "hgx-h800", "pcie-l40s", "mi300x-oam"])
def test_an_accelerator_on_which_nobody_published_a_step_has_a_wider_interval_and_says_so(node: str) -> None:
    result = run("llama3-8b-8xh100", set=[f"cluster.node={node}"])
    bands = shipped_bands()
    band, bar = bands.band(kind_of(result)), result.metrics.error_bar

    assert bar is not None
    assert bands.unmeasured_widening > 1.2
    assert log(bar.most_fraction / bar.least_fraction) == pytest.approx(
        bands.unmeasured_widening * log(band.most_fraction / band.least_fraction), rel=1e-9
    )
    messages = {flag.code: flag.message for flag in result.flags}
    assert "not measured: the interval is that of generations left out" in messages["interval_not_measured"]


def test_a_measured_accelerator_has_the_interval_of_its_kind() -> None:
    result = run("llama3-8b-8xh100")

    assert "interval_not_measured" not in [flag.code for flag in result.flags]


def test_a_wider_band_keeps_its_middle() -> None:
    band = Band(kind=(), least_fraction=0.9, most_fraction=1.3)

    wide = band.wider(2.0)

    assert wide.least_fraction * wide.most_fraction == pytest.approx(0.9 * 1.3, rel=1e-12)
    assert wide.most_fraction / wide.least_fraction == pytest.approx((1.3 / 0.9) ** 2, rel=1e-12)


def test_a_machine_is_the_same_whatever_the_layout_and_the_number_of_nodes() -> None:
    def machine(*changes: str) -> str:
        return machine_of(build(load_scenario("llama3-8b-8xh100", changes)))

    assert machine("strategy.tp=4") == machine("cluster.nodes=4") == machine()
    assert len({machine(), machine("cluster.node=hgx-h200"), machine("cluster.nics.bandwidth=200 Gbit/s")}) == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: [dense]", "kind: [dence]", "unknown kind 'dence'"),
        ("most: 1.2", "most: 0.2", "'most' is below 'least'"),
        ("kind: []", "kind: [experts]", "no kind stands for all runs"),
        ("{kind: [], most", "{kind: [experts], most", "no kind stands for all runs"),
        ("most: 1.15", "most: 0.9", "ratios"),
        ("widening: 1.5", "widening: 0.5", "unmeasured"),
        ("level: 0.8", "level: 1.5", "level"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_bands(write(tmp_path, TEXT.replace(old, new)))

    assert message in f"{caught.value.field} {caught.value.message}"
