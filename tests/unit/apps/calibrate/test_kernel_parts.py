"""Products and attention: constants are found again, tables may be written in several ways, and mistakes have a place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.calibrate.fit_attention import attention_part
from clustersim.apps.calibrate.fit_products import FEWEST_ROWS, products_part, read_products
from clustersim.apps.calibrate.fitting import CalibrationPart
from clustersim.documents.files import data_path
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import constant
from clustersim.hardware.catalog import load_accelerator
from tests.unit.apps.calibrate.making import A100, BASE, TARGET, attention_file, known, products_file, write

MEASUREMENTS = data_path("hardware_profiles") / "calibration" / "measurements"


def fitted(part: CalibrationPart) -> dict[str, float]:
    return {name: value for (_, name), value in part.fitted(TARGET, BASE).values.items()}


# Products


def test_the_constants_of_made_up_products_are_found_again(tmp_path: Path) -> None:
    truth = {"gemm.sustained_fraction.default": 0.7, "gemm.depth_overhead": 120.0, "gemm.tiles.16384": 0.97, "gemm.tiles.4096": 0.7}
    part = products_part([products_file(tmp_path / "a.csv", known(truth))], TARGET)

    found = part.fitted(TARGET, BASE)

    for name, value in truth.items():
        # The corner of the absolute value and the prior leave half a per cent, of the overhead a few.
        assert found.values["ampere", name] == pytest.approx(value, rel=0.06 if name == "gemm.depth_overhead" else 0.01)
    assert abs(found.errors_before).mean() > 0.05
    assert abs(found.errors).mean() < 0.005


def test_the_shipped_products_give_the_shipped_constants() -> None:
    found = fitted(products_part([str(MEASUREMENTS / "gemm.csv")], TARGET))

    # The shipped ones have the least mean error of times; here the logarithm counts, which asks a little less of slow rows.
    for name, value in found.items():
        assert value == pytest.approx(constant(BASE, name), rel=0.02), name
    assert len(found) == 5


def test_a_rate_and_a_time_say_the_same(tmp_path: Path) -> None:
    flops, time_s = 2 * 4096**3, 7e-4
    header = "m,n,k,precision,{}"
    columns = {
        "time_s": time_s,
        "time_ms": time_s * 1e3,
        "us": time_s * 1e6,
        "tflops": flops / time_s / 1e12,
        "flops_per_s": flops / time_s,
    }

    times = [
        read_products(write(tmp_path / "a.csv", header.format(name), [(4096, 4096, 4096, "torch.bfloat16", value)]), TARGET)[0][0].time_s
        for name, value in columns.items()
    ]

    assert times == pytest.approx([time_s] * 5, rel=1e-12)


def test_a_batch_counts_and_a_weight_gradient_adds_up(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "m,n,k,batch,dtype,layout,result_dtype,time_ms", [(512, 512, 512, 8, "fp16", "NT", "fp32", 0.1)])

    gemm = read_products(path, TARGET)[0][0].gemm

    assert (gemm.batch, gemm.accumulates, gemm.output_bytes, gemm.element_bytes) == (8, True, 4.0, 2.0)


def test_products_of_other_accelerators_and_of_few_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [(m, 4096, 4096, "bf16", name, 1.0) for m in (64, 4096) for name in (A100, "h100-sxm5-80g")]

    part = products_part([write(tmp_path / "a.csv", "m,n,k,dtype,accelerator,time_ms", rows)], TARGET)

    assert len(part.measured) == 1
    assert part.notices == (
        "a.csv: 2 products of other accelerators are left out",
        f"1 products of fewer than {FEWEST_ROWS} rows are not fitted",
    )


def test_another_precision_moves_its_own_rate_alone(tmp_path: Path) -> None:
    part = products_part([write(tmp_path / "a.csv", "m,n,k,dtype,time_ms", [(4096, 4096, 4096, "tf32", 1.5)])], TARGET)

    assert list(fitted(part)) == ["gemm.sustained_fraction.tf32"]


GOOD = "4096,4096,4096,bf16,0.7\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("m,n,k,dtype,time_ms\n" + GOOD + "4096,0,4096,bf16,0.7\n", 3, 6, "'0' is not a number above zero"),
        ("m,n,k,dtype,time_ms\n" + GOOD + "4096,4096, 1.5 ,bf16,0.7\n", 3, 12, "'1.5' is not a whole number above zero"),
        ("m,n,k,dtype,time_ms\n4096,4096,4096,int4,0.7\n", 2, 16, "'int4' is not known"),
        ("m,n,k,dtype,time_ms\n4096,4096,4096,fp8,0.7\n", 2, 16, "a100-sxm4-80g has no fp8"),
        ("m,n,k,dtype,time_ms\n4096,4096,4096,bf16,fast\n", 2, 21, "'fast' is not a number above zero"),
        ("m,n,k,dtype,time_ms\n4096,4096,4096,bf16,\n", 2, None, "nothing says how long it took"),
        ("m,n,k,dtype,time_us\n4096,4096,4096,bf16,0.7\n", 2, 21, "1.963e+05 TFLOP/s beat the peak of 312 TFLOP/s in bf16"),
        ("m,n,k,dtype,time_ms\n4096,4096,4096,bf16,0.7,1\n", 2, 1, "has 6 cells, and the header 5"),
        ("m,n,dtype,time_ms\n1,1,bf16,1\n", 1, 1, "there is no column 'k'"),
        ("m,n,k,dtype,accelerator,time_ms\n4096,4096,4096,bf16,a100,0.7\n", 2, 21, "'a100' is not known"),
        ("m,n,k,dtype,time_ms\n", None, None, "holds no measurement"),
        ("", None, None, "holds no measurement"),
    ],
)
def test_a_mistake_in_a_table_has_its_place(tmp_path: Path, text: str, line: int | None, column: int | None, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        products_part([str(path)], TARGET)

    place = caught.value.place
    assert caught.value.message == message
    assert place is not None
    assert (place.file, place.line, place.column) == (str(path), line, column)


def test_a_table_without_large_products_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no product of a100-sxm4-80g has 512 rows or more"):
        products_part([write(tmp_path / "a.csv", "m,n,k,dtype,time_ms", [(8, 4096, 4096, "bf16", 1.0)])], TARGET)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no such file"):
        products_part([str(tmp_path / "none.csv")], TARGET)


def test_quoted_cells_are_read_and_have_no_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('m,n,k,dtype,note,time_ms\n4096,4096,4096,bf16,"a, b",-1\n', encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        products_part([str(path)], TARGET)

    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (2, None)


# Attention


def test_the_constants_of_made_up_attention_are_found_again(tmp_path: Path) -> None:
    truth = {
        "attention.flash_2.forward.fraction": 0.7,
        "attention.flash_2.backward.fraction": 0.5,
        "attention.flash_2.forward.causal_half_length": 400.0,
        "attention.flash_2.backward.half_length": 300.0,
    }
    part = attention_part([attention_file(tmp_path / "a.csv", known(truth))], TARGET)

    found = part.fitted(TARGET, BASE)

    for name, value in truth.items():
        assert found.values["ampere", name] == pytest.approx(value, rel=0.1 if name.endswith("length") else 0.02), name
    assert abs(found.errors).mean() < 0.006


def test_the_shipped_attention_gives_the_shipped_constants() -> None:
    found = fitted(attention_part([str(MEASUREMENTS / "attention.csv")], TARGET))

    for name, value in found.items():
        # Lengths are wide valleys: a few per cent of them are a tenth of a per cent of the rates.
        assert value == pytest.approx(constant(BASE, name), rel=0.05 if "half" in name else 0.01, abs=1e-9), name


def test_directions_that_were_only_measured_together_keep_their_ratio() -> None:
    found = fitted(attention_part([str(MEASUREMENTS / "attention.csv")], TARGET))

    for generation in ("flash_1", "flash_2"):
        forward, backward = (f"attention.{generation}.{way}.fraction" for way in ("forward", "backward"))
        assert found[forward] / found[backward] == pytest.approx(constant(BASE, forward) / constant(BASE, backward), rel=1e-3)


def test_the_sizes_of_the_benchmark_are_taken_and_said_where_none_are_given() -> None:
    (left_out, sizes) = attention_part([str(MEASUREMENTS / "attention.csv")], TARGET).notices

    assert left_out == "attention.csv: 102 rows of other accelerators are left out"
    assert sizes == "attention.csv: where sequences or heads are not given, 16384 tokens and a width of 2048 are taken"


ATTENTION = "implementation,dtype,pass,causal,head_dim,sequence_length,tflops\n"


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        ("FlashAttention-5,bf16,fwd,true,64,1024,100", 1, "'FlashAttention-5' is not known"),
        ("flash_3,bf16,fwd,true,64,1024,100", 1, "nothing is known of flash_3 in ampere"),
        ("flash_2,fp32,fwd,true,64,1024,100", 9, "attention in fp32 is not modelled"),
        ("flash_2,bf16,sideways,true,64,1024,100", 14, "'sideways' is not known"),
        ("flash_2,bf16,fwd,perhaps,64,1024,100", 18, "'perhaps' is not known"),
        ("flash_2,bf16,fwd,true,,1024,100", 23, "is empty"),
    ],
)
def test_a_mistake_in_a_table_of_attention_has_its_place(tmp_path: Path, row: str, column: int, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(f"{ATTENTION}{row}\n", encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        attention_part([str(path)], TARGET)

    assert caught.value.message == message
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (2, column)


def test_attention_of_other_accelerators_alone_is_refused() -> None:
    other = replace(TARGET, accelerator=load_accelerator("v100-sxm2-16g"))

    with pytest.raises(ScenarioError, match="no attention was measured on v100-sxm2-16g"):
        attention_part([str(MEASUREMENTS / "attention.csv")], other)
