"""Kind of a run, and the interval that it gets."""

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
from clustersim.measure.error_bars import Band, Reach, kind_text, memory_verdict_of
from clustersim.notices import Flag
from tests.unit.config.samples import built

TEXT = """\
level: 0.8
sources: [one]
made_from:
  rows: 1
  sha256: "0000000000000000000000000000000000000000000000000000000000000000"
coverage: {weighted: 0.8, rows: 0.8, sources: 0.8}
spread: {middle: 1.0, most: 1.1}
factors:
  - {word: experts, factor: 2.0, rows: 1, sources: 1, covered: 0.8}
held_out:
  - {without: one, middle: 1.0, most: 1.2, factors: {experts: 1.5}}
ratios: {most: 1.05, pairs: 1, sources: 1, coverage: 0.8}
reach: {accelerators: [a100-sxm4-80g], n_accelerators: 512, seq_length: 8192, widening: 1.5, borrowed_widening: 2.5,
  borrowed_ratio_widening: 1.4}
"""


def write(folder: Path, text: str = TEXT) -> Path:
    path = folder / "step-time.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def kind_of(result: Result) -> tuple[str, ...]:
    return run_kind(result.built.plan.model, result.step_time_s, result.flags)


@pytest.mark.parametrize(
    ("example", "kind"),
    [
        ("llama3-70b-h100-512", ()),
        ("mixtral-8x7b-ep", ("experts",)),
        ("resnet50-ddp-dgx1", ("short step",)),
    ],
)
def test_a_kind_says_what_makes_the_error_of_a_run_larger(example: str, kind: tuple[str, ...]) -> None:
    assert tuple(word for word in kind_of(run(example)) if word != "usual settings") == kind


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("training.micro_batch_size=1", ("usual settings",)),
        ("training.kernels=fused", ()),
        ("strategy.preset=megatron_lm", ()),
    ],
)
def test_settings_that_nobody_gave_are_part_of_the_kind(said: str, kind: tuple[str, ...]) -> None:
    found = built(said)

    assert run_kind(found.plan.model, 1.0, found.flags) == kind


@pytest.mark.parametrize("code", ["usual_settings", "assumed_kernels"])
def test_what_was_taken_as_usual_is_part_of_the_kind(code: str) -> None:
    assert run_kind(built().plan.model, 1.0, [Flag(code=code, message="not said")]) == ("usual settings",)


def test_the_interval_is_the_band_of_the_kind_times_the_step_time() -> None:
    result = run("llama3-8b-8xh100")
    band = shipped_bands().spread.band(kind_of(result))

    assert result.metrics.step_time_interval_s == (band.least_fraction * result.step_time_s, band.most_fraction * result.step_time_s)
    assert result.metrics.step_time_interval_kind == kind_text(kind_of(result))
    assert "interval_not_measured" not in [flag.code for flag in result.flags]
    assert result.to_dict()["step_time_interval_s"] == list(result.metrics.step_time_interval_s or ())


def test_neighbours_are_not_in_the_interval_and_the_result_says_so() -> None:
    assert "interval_undisturbed" in [flag.code for flag in run("two-jobs-one-fabric").flags]
    assert "interval_undisturbed" not in [flag.code for flag in run("llama3-8b-8xh100").flags]


@pytest.mark.parametrize(("share", "verdict"), [(1.001, "does not fit"), (0.999, "tight"), (1 / 1.131, "tight"), (1 / 1.132, "fits")])
def test_a_peak_fits_is_tight_or_does_not_fit_by_what_was_measured(share: float, verdict: str) -> None:
    # The upper end of the interval is 1.1315 of the predicted peak.
    assert memory_verdict_of(share * 80e9, 80e9, shipped_memory_band()) == verdict


def test_a_run_says_whether_it_fits_beside_whether_its_prediction_does() -> None:
    for stage, verdict in ((2, "tight"), (1, "does not fit")):
        changes = [f"strategy.zero_stage={stage}", "strategy.recompute=none", "training.fused_loss=true"]
        memory = run("llama3-8b-8xh100", set=changes).metrics.memory
        band = shipped_memory_band()

        assert memory.verdict == verdict
        assert memory.fits == (verdict != "does not fit")
        assert memory.peak_interval_bytes == (band.least_fraction * memory.peak_bytes, band.most_fraction * memory.peak_bytes)


def test_bands_are_read_with_their_factors(tmp_path: Path) -> None:
    bands = read_bands(write(tmp_path))

    assert bands.spread.band(()).interval_s(2.0) == pytest.approx((2.0 / 1.1, 2.2))
    assert bands.spread.band(("experts",)).most_fraction == pytest.approx(1.21)
    assert bands.held_out["one"].band(("experts",)).most_fraction == pytest.approx(1.2**1.5)
    assert (bands.ratio(()), bands.ratio(("experts",))) == pytest.approx((1.05, 1.05**2))
    assert bands.reach == Reach(
        accelerators=("a100-sxm4-80g",),
        n_accelerators=512,
        seq_length=8192,
        widening=1.5,
        borrowed_widening=2.5,
        borrowed_ratio_widening=1.4,
    )


@pytest.mark.parametrize("key", ["word: experts", "{experts: 1.5}"])
def test_a_word_that_is_no_kind_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="expert"):
        read_bands(write(tmp_path, TEXT.replace(key, key.replace("experts", "expert"))))


@pytest.mark.parametrize(
    ("change", "beyond"),
    [
        ("cluster.node=hgx-h800", "h800"),
        ("cluster.node=mi300x-oam", "mi300x"),
        ("cluster.nodes=128", "more than 512 accelerators"),
        ("training.seq_length=16384", "sequences of more than 8192 tokens"),
    ],
)
def test_beyond_what_was_measured_the_interval_is_wider_and_says_so(change: str, beyond: str) -> None:
    result = run("llama3-8b-8xh100", set=[change, "training.global_batch_size=1024"])
    bands = shipped_bands()
    band, bar = bands.spread.band(kind_of(result)), result.metrics.error_bar

    assert bar is not None
    assert bands.reach is not None
    assert bands.reach.widening > 1.2
    assert log(bar.most_fraction / bar.least_fraction) == pytest.approx(
        bands.reach.widening * log(band.most_fraction / band.least_fraction), rel=1e-9
    )
    messages = {flag.code: flag.message for flag in result.flags}
    assert messages["interval_not_measured"].startswith("too few measured runs had ")
    assert beyond in messages["interval_not_measured"]


def test_borrowed_constants_make_the_interval_wider_than_those_of_its_generation() -> None:
    own = "cluster.accelerator={base: h100-sxm5-80g, name: next, generation: %s}"
    widths: list[float] = []
    for generation in ("hopper", "own"):
        bar = run("llama3-8b-8xh100", set=[own % generation]).metrics.error_bar
        assert bar is not None
        widths.append(log(bar.most_fraction / bar.least_fraction))

    reach = shipped_bands().reach

    assert reach is not None
    assert widths[1] / widths[0] == pytest.approx(reach.borrowed_widening / reach.widening, rel=1e-9)


def test_a_wider_band_keeps_its_middle() -> None:
    band = Band(least_fraction=0.9, most_fraction=1.3)

    wide = band.wider(2.0)

    assert wide.least_fraction * wide.most_fraction == pytest.approx(0.9 * 1.3, rel=1e-12)
    assert wide.most_fraction / wide.least_fraction == pytest.approx((1.3 / 0.9) ** 2, rel=1e-12)


def test_a_machine_is_the_same_whatever_the_layout_and_the_number_of_nodes() -> None:
    def machine(*changes: str) -> str:
        return machine_of(build(load_scenario("llama3-8b-8xh100", changes)))

    assert machine("strategy.tp=4") == machine("cluster.nodes=4") == machine()
    assert len({machine(), machine("cluster.node=hgx-h200"), machine("cluster.nics.bandwidth=200 Gbit/s")}) == 3
