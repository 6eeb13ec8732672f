"""Sources that are left out, and what is written down of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.run.intervals import residuals_path
from clustersim.apps.validate.cross import (
    BORROWED,
    ROWS,
    SHIPPED_FOLDS,
    Fold,
    cross_validate,
    folds_table,
    folds_text,
    measured_steps,
    read_folds,
    unmeasured_widening,
)
from clustersim.apps.validate.sources import source_names

PAGE = Path(__file__).parents[4] / "docs" / "theory" / "cross-validation.md"


def fold(**changes: object) -> Fold:
    values: dict[str, object] = {
        "kind": "source",
        "left_out": "one",
        "n_rows": 4,
        "shipped_fraction": 0.02,
        "refitted_fraction": 0.05,
        "quality_a": (0, 0.0),
        "constants": (("ampere.memory_fraction", 0.75),),
        **changes,
    }
    return Fold(**values)  # pyright: ignore[reportArgumentType] - keywords of a test


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cross")]


@pytest.fixture(scope="module")
def folds() -> list[Fold]:
    return cross_validate(["korthikanti-2022", "megatron-sc21", "fms-fsdp"])


def test_each_source_and_each_generation_is_left_out_once(folds: list[Fold]) -> None:
    assert [(each.kind, each.left_out) for each in folds] == [
        ("source", "korthikanti-2022"),
        ("source", "megatron-sc21"),
        ("source", "fms-fsdp"),
        ("generation", "ampere"),
        ("generation", "hopper"),
        ("borrowed", "hopper"),
        ("borrowed ratios", "hopper"),
    ]
    assert [each.n_rows for each in folds if each.kind == "source"] == [4, 11, 4]


def test_what_was_left_out_has_no_part_in_its_constants(folds: list[Fold]) -> None:
    # Nothing else here was measured on an H100, so that both folds know as little of it.
    constants = {each.left_out: dict(each.constants) for each in folds if each.kind in ("source", "generation")}

    assert constants["hopper"]["hopper.launch.dispatch"] == constants["korthikanti-2022"]["ampere.launch.dispatch"] == 20e-6
    assert constants["korthikanti-2022"]["ampere.memory_fraction"] != constants["megatron-sc21"]["ampere.memory_fraction"]


def test_large_models_on_the_a100_are_predicted_by_each_other(folds: list[Fold]) -> None:
    # What a refit on a handful of rows of one other source can be held to: within a point or two of the shipped constants.
    for each in folds[:2]:
        assert each.refitted_fraction <= each.shipped_fraction + 0.02


def test_a_source_weighs_as_the_root_of_its_rows() -> None:
    steps = measured_steps(["korthikanti-2022", "vtrain-single"])

    weights = {name: sum(step.weight for step in steps if step.source == name) for name in ("korthikanti-2022", "vtrain-single")}
    assert weights == {"korthikanti-2022": pytest.approx(2.0), "vtrain-single": pytest.approx(ROWS**0.5)}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    folds = [fold(), fold(kind="generation", left_out="hopper", quality_a=(3, 0.0123))]
    (tmp_path / "folds.csv").write_text(folds_text(folds), encoding="utf-8")

    assert read_folds(tmp_path / "folds.csv") == folds


def test_what_nobody_measured_is_as_much_wider_as_errors_grow_where_a_generation_is_left_out() -> None:
    generations = [fold(kind="generation", refitted_fraction=error) for error in (0.02, 0.04)]

    assert unmeasured_widening([fold(refitted_fraction=0.9), *generations]) == pytest.approx(1.5, rel=1e-12)
    assert unmeasured_widening([fold(kind="generation", refitted_fraction=0.01)]) == 1.0


def test_a_calibration_of_another_generation_errs_more_than_four_constants_of_ones_own_that_are_not_known() -> None:
    folds = read_folds(residuals_path(SHIPPED_FOLDS))

    assert unmeasured_widening(folds, BORROWED) > unmeasured_widening(folds)


def test_a_table_ends_with_means_over_sources_and_rows() -> None:
    lines = folds_table([fold(), fold(left_out="two", n_rows=12, refitted_fraction=0.01, quality_a=(2, 0.03))], "source").splitlines()

    assert lines[-3:] == ["| mean of all | 2 | 2.0 % | 3.0 % |", "| all rows | 16 | 2.0 % | 2.0 % |", "| rows of quality A | 2 | | 3.0 % |"]


def test_the_shipped_table_has_every_source_that_states_its_rows() -> None:
    shipped = {each.left_out for each in read_folds(residuals_path(SHIPPED_FOLDS)) if each.kind == "source"}

    assert shipped == {step.source for step in measured_steps([name for name in source_names() if name != "megascale-baseline"])}


def test_the_comparison_with_other_tools_shows_errors_out_of_sample() -> None:
    page = (PAGE.parents[1] / "comparison.md").read_text(encoding="utf-8")
    folds = {fold.left_out: fold for fold in read_folds(residuals_path(SHIPPED_FOLDS)) if fold.kind == "source"}
    sources = ("megatron-sc21", "korthikanti-2022", "vtrain-multi", "vtrain-single")

    for name in sources:
        assert f"| `{name}` | {folds[name].n_rows} | {100 * folds[name].refitted_fraction:.1f} % |" in page
    *most, last = (f"{100 * folds[name].shipped_fraction:.1f}" for name in sources)
    assert f"ours are {', '.join(most)} and {last} %" in page


def test_the_documentation_shows_the_shipped_table() -> None:
    folds = read_folds(residuals_path(SHIPPED_FOLDS))

    for kind in ("source", "generation", BORROWED):
        assert folds_table(folds, kind) in PAGE.read_text(encoding="utf-8")
