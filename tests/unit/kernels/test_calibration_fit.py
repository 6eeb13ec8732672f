"""The shipped constants against the measurements that they were fitted to: a changed constant shows here."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import replace
from math import prod
from statistics import geometric_mean, mean, median

import pytest

from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.catalog import load_accelerator
from clustersim.kernels.kernel_model import KernelModel
from clustersim.workloads.operators import FlashAttention, Gemm, GroupedGemm

MEASUREMENTS = data_path("hardware_profiles") / "calibration" / "measurements"
A100, H100, B200, GB200, V100 = "a100-sxm4-80g", "h100-sxm5-80g", "b200-sxm", "gb200", "v100-sxm2-16g"
TOKENS, HIDDEN = 16384, 2048
"""Columns of every bar of the attention charts."""

GENERATIONS = {
    "FlashAttention": "flash_1",
    "FlashAttention Triton": "flash_1",
    "FlashAttention-2": "flash_2",
    "FlashAttention-3": "flash_3",
    "cuDNN": "flash_3",
}
PASSES = {"forward": (False,), "backward": (True,), "forward+backward": (False, True)}

Row = dict[str, str]


def rows(name: str) -> list[Row]:
    with (MEASUREMENTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def model(accelerator: str, precision: str = "bf16") -> KernelModel:
    """Return the kernels of an accelerator in measurements of seconds, before power holds it back."""
    card = load_accelerator(accelerator)
    calibration = calibration_for(card)
    fresh = replace(calibration, gemm=replace(calibration.gemm, under_load={"default": 1.0}))
    return KernelModel(accelerator=card, calibration=fresh, precision=precision, attention_precision="bf16")


def product(row: Row) -> Gemm:
    return Gemm(
        int(row["m"]),
        int(row["n"]),
        int(row["k"]),
        element_bytes=1.0 if row["dtype"] == "fp8" else 2.0,
        output_bytes=4.0 if row["result_dtype"] == "fp32" else 2.0,
        accumulates=row["layout"] == "NT",
    )


def product_errors(accelerator: str, *, fp8: bool = False) -> list[float]:
    """Return the relative errors of predicted times."""
    card = model(accelerator, "fp8" if fp8 else "fp16")
    errors: list[float] = []
    for row in rows("gemm.csv"):
        if row["accelerator"] == accelerator and (row["dtype"] == "fp8") is fp8:
            gemm = product(row)
            errors.append(card.kernel_s(gemm) * float(row["flops_per_s"]) / gemm.flops - 1.0)
    return errors


def grouped_errors() -> list[float]:
    """Return the relative errors of predicted times of the products of experts on a B200."""
    card, errors = model(B200), []
    for row in rows("grouped.csv"):
        experts, outputs, inputs = int(row["experts"]), int(row["outputs"]), int(row["inputs"])
        backward, weights = row["pass"] == "input_gradient", row["pass"] == "weight_gradient"
        products = GroupedGemm(
            (int(row["rows"]),) * experts,
            inputs if backward else outputs,
            outputs if backward else inputs,
            over_rows=weights,
            output_bytes=4.0 if weights and row["gradient_dtype"] == "fp32" else 2.0,
            accumulates=weights,
            launches=experts,
        )
        errors.append(card.kernel_s(products) * float(row["flops_per_s"]) / sum(each.flops for each in products.products) - 1.0)
    return errors


def attention_errors(accelerator: str, generation: str, *, backward: bool | None = None) -> list[float]:
    """Return the relative errors of predicted rates, of all rows or of those of one direction alone."""
    card = model(accelerator)
    errors: list[float] = []
    for row in rows("attention.csv"):
        directions = PASSES[row["pass"]]
        chosen = backward is None or directions == (backward,)
        if row["accelerator"] == accelerator and GENERATIONS[row["implementation"]] == generation and chosen:
            length, width, causal = int(row["sequence_length"]), int(row["head_dim"]), row["causal"] == "true"
            shape = (TOKENS // length, HIDDEN // width, HIDDEN // width, length, length, width, causal)
            passes = [FlashAttention(*shape, way, generation=generation) for way in directions]
            flops = sum(kernel.flops for kernel in passes) * (0.5 if causal else 1.0)
            errors.append(flops / sum(card.kernel_s(kernel) for kernel in passes) / float(row["flops_per_s"]) - 1.0)
    return errors


def stated(accelerator: str, covers: str) -> list[tuple[float, ...]]:
    """Return the mean errors, and medians where they stand, that the note of a calibration states, in per cent."""
    sources = calibration_for(load_accelerator(accelerator)).sources
    notes = [source.note for source in sources if any(cover.startswith(covers) for cover in source.covers)]
    found = re.findall(r"mean error ([\d.]+) %(?:, median ([\d.]+) %)?", " ".join(notes))
    return [tuple(float(number) for number in numbers if number) for numbers in found]


def in_percent(errors: list[float]) -> tuple[float, float]:
    sizes = [100.0 * abs(error) for error in errors]
    return mean(sizes), median(sizes)


# Stated errors are printed with one digit behind the point: half a unit of it.
PRINTED = 0.05 + 1e-9


@pytest.mark.parametrize("accelerator", [A100, H100, B200, V100])
def test_products_have_the_error_that_the_calibration_states(accelerator: str) -> None:
    (shipped,) = stated(accelerator, "gemm")

    assert in_percent(product_errors(accelerator)) == pytest.approx(shipped, abs=PRINTED)


def test_products_of_experts_have_the_error_that_the_calibration_states() -> None:
    (shipped,) = stated(B200, "launch.product")

    assert in_percent(grouped_errors()) == pytest.approx(shipped, abs=PRINTED)


@pytest.mark.parametrize(("accelerator", "bias"), [(A100, -0.0069), (H100, -0.0005), (B200, 0.0474)])
def test_products_are_off_to_neither_side_by_more_than_half_of_their_error(accelerator: str, bias: float) -> None:
    errors = product_errors(accelerator)

    assert mean(errors) == pytest.approx(bias, abs=0.0005)  # pinned: any constant moves it
    assert abs(mean(errors)) < mean(map(abs, errors)) / 2


@pytest.mark.parametrize(
    ("accelerator", "generation", "backward"),
    [(A100, "flash_2", None), (A100, "flash_1", None), (H100, "flash_2", None), (H100, "flash_3", False), (H100, "flash_3", True)],
)
def test_fused_attention_has_the_error_that_the_calibration_states(accelerator: str, generation: str, backward: bool | None) -> None:
    part = {None: "", False: ".forward", True: ".backward"}[backward]
    (shipped,) = stated(accelerator, f"attention.{generation}{part}")

    assert in_percent(attention_errors(accelerator, generation, backward=backward))[:1] == pytest.approx(shipped, abs=PRINTED)


@pytest.mark.parametrize(
    ("heads", "key_heads", "length", "backward", "measured_us"),
    [
        # SimuMax, and forward vLLM beside it: cuDNN and FlashInfer on a B200, causal, heads of 128.
        (64, 8, 4096, False, 280.4),
        (64, 8, 4096, False, 270.8),
        (64, 8, 8192, False, 931.6),
        (64, 8, 16384, False, 3365.9),
        (16, 2, 32768, False, 3354.5),
        (64, 8, 4096, True, 837.5),
        (128, 16, 4096, True, 1469.1),
        (16, 2, 32768, True, 11211.9),
        (16, 2, 131072, True, 189155.7),
    ],
)
def test_fused_attention_on_a_b200_takes_what_was_measured(
    heads: int, key_heads: int, length: int, backward: bool, measured_us: float
) -> None:
    attention = FlashAttention(1, heads, key_heads, length, length, 128, True, backward)

    assert model(B200).kernel_s(attention) == pytest.approx(measured_us * 1e-6, rel=0.2)


def test_no_bar_of_the_a100_chart_is_off_by_more_than_a_twentieth() -> None:
    assert max(map(abs, attention_errors(A100, "flash_2"))) < 0.05


@pytest.mark.parametrize(("backward", "times"), [(False, 1.4), (True, 2.0)])
def test_the_second_generation_is_as_much_faster_as_its_paper_says(backward: bool, times: float) -> None:
    card, shape = model(A100), (4, 16, 16, 4096, 4096, 128, True)

    old, new = (card.kernel_s(FlashAttention(*shape, backward, generation=generation)) for generation in ("flash_1", "flash_2"))

    # "Around 1.3-1.5x faster in the forward pass and around 2x faster in the backward pass", over lengths and widths.
    assert old / new == pytest.approx(times, rel=0.15)


def test_an_accelerator_under_load_takes_longer_for_products() -> None:
    card = load_accelerator(H100)
    loaded = KernelModel(accelerator=card, calibration=calibration_for(card), precision="bf16", attention_precision="bf16")
    product = Gemm(8192, 8192, 8192)

    assert loaded.kernel_s(product) == pytest.approx(model(H100).kernel_s(product) / 0.82, rel=0.01)


def test_unaligned_products_on_hopper_run_at_the_shipped_shares_of_aligned_ones() -> None:
    rates: dict[tuple[str, str, str], list[float]] = {}
    for row in rows("unaligned.csv"):
        sizes = [int(row[name]) for name in "mnk"]
        alignment = "odd" if any(size % 2 for size in sizes) else "even" if any(size % 8 for size in sizes) else "whole"
        rates.setdefault((row["dtype"], row["product"], alignment), []).append(prod(sizes) / float(row["time_s"]))
    shares = {
        alignment: geometric_mean(median(rates[*kind, alignment]) / median(rates[*kind, "whole"]) for kind in {each[:2] for each in rates})
        for alignment in ("odd", "even")
    }

    # Over all sizes at once, and not over nearly as large ones, as the shipped shares.
    shipped = calibration_for(load_accelerator(H100)).gemm.unaligned_fraction
    assert shares == pytest.approx({"odd": shipped["odd"], "even": shipped["even"]}, abs=0.02)


@pytest.mark.parametrize("accelerator", [H100, GB200])
def test_large_squares_in_fp8_are_met_to_a_hundredth(accelerator: str) -> None:
    errors = product_errors(accelerator, fp8=True)

    assert len(errors) == 2
    assert max(map(abs, errors)) < 0.01


def test_the_fitted_rows_are_as_many_as_the_calibrations_say() -> None:
    products, experts, bars = (Counter(row["source_id"] for row in rows(name)) for name in ("gemm.csv", "grouped.csv", "attention.csv"))

    assert experts == {"simumax-b200-experts": 108}
    assert products == {
        "vidur-a100": 283,
        "azure-a100": 8,
        "eleutherai-a100": 5,
        "vidur-h100": 275,
        "azure-h100": 2,
        "azure-gb200": 2,
        "simumax-b200": 514,
        "triton-v100": 3,
    }
    assert bars == {
        "flash-attention-2-a100": 23,
        "flash-attention-3-h100": 52,
        "flash-attention-2-h100": 24,
        "flash-attention-2-h100-forward": 18,
        "tritonbench-h100": 4,
        "tritonbench-h100-causal": 4,
        "flash-attention-1-a100": 34,
    }


@pytest.mark.parametrize("name", ["gemm.csv", "grouped.csv", "attention.csv"])
def test_every_measurement_has_a_source_and_every_source_measurements(name: str) -> None:
    sources = read_document(MEASUREMENTS / "sources.yaml").data
    both = rows("gemm.csv") + rows("grouped.csv") + rows("attention.csv")

    assert {row["source_id"] for row in rows(name)} <= set(sources)
    assert {row["source_id"] for row in both} == set(sources)
    for source in sources.values():
        assert isinstance(source, dict)
        assert set(source) == {"title", "url"}
        assert str(source["url"]).startswith("https://")


@pytest.mark.parametrize("name", ["gemm.csv", "attention.csv"])
def test_no_measurement_beats_the_data_sheet(name: str) -> None:
    for row in rows(name):
        peaks = load_accelerator(row["accelerator"]).peak_flops_per_s

        assert 0.0 < float(row["flops_per_s"]) < peaks[row["dtype"]]
