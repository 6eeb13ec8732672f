"""Loss of a plan that is chosen by predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.apps.validate.error_summary import kendall_tau, rankings
from clustersim.apps.validate.rows import RowResult
from clustersim.measure.metrics import Parallelism
from tests.unit.apps.samples import ROW

DEEP, WIDE = Parallelism(dp=1, tp=4, pp=4, cp=1, ep=1), Parallelism(dp=1, tp=8, pp=2, cp=1, ep=1)


def row(name: str, measured_s: float, predicted_s: float, **changes: object) -> RowResult:
    return replace(ROW, id=name, measured_s=measured_s, predicted_s=predicted_s, **changes)


def test_the_right_choice_is_not_regretted() -> None:
    (ranking,) = rankings([row("a", 1.0, 2.0), row("b", 1.2, 2.1), row("c", 1.1, 2.2, parallelism=DEEP)])

    assert (ranking.best_row, ranking.chosen_row, ranking.n_rows) == ("a", "a", 3)
    assert ranking.regret_fraction == 0.0


def test_regret_is_how_much_slower_the_chosen_row_was() -> None:
    (ranking,) = rankings([row("a", 1.0, 2.0), row("b", 1.2, 1.5, parallelism=DEEP), row("c", 3.0, 3.0)])

    assert (ranking.best_row, ranking.chosen_row) == ("a", "b")
    assert ranking.regret_fraction == pytest.approx(0.2)


def test_samples_per_second_are_compared_and_not_steps() -> None:
    (ranking,) = rankings([row("a", 1.0, 1.0), row("b", 1.5, 1.5, global_batch_size=128), row("c", 3.0, 3.0, parallelism=DEEP)])

    assert ranking.best_row == ranking.chosen_row == "b"


def test_of_equal_predictions_the_one_that_was_faster_stands_for_both() -> None:
    (ranking,) = rankings([row("a", 1.2, 1.0), row("b", 1.0, 1.0), row("c", 3.0, 3.0, parallelism=DEEP)])

    assert (ranking.chosen_row, ranking.regret_fraction) == ("b", 0.0)


def test_models_and_numbers_of_accelerators_are_kept_apart() -> None:
    many = [row(f"{gpus}-{place}", 1.0, 1.0, gpus=gpus, parallelism=(WIDE, DEEP, DEEP)[place]) for gpus in (8, 16) for place in range(3)]

    assert [ranking.gpus for ranking in rankings(many)] == [8, 16]


def test_few_rows_and_those_of_one_layout_say_nothing() -> None:
    assert rankings([row("a", 1.0, 1.0), row("b", 1.0, 1.0, parallelism=DEEP)]) == ()
    assert rankings([row(name, 1.0, 1.0) for name in "abcd"]) == ()


def test_the_order_of_pairs_is_kendalls_tau() -> None:
    # Five of six pairs of four are in order.
    assert kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx((5 - 1) / 6, rel=1e-12)
    assert kendall_tau([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / (2 * 3) ** 0.5, rel=1e-12)
