"""Figures that correlate with the errors of a source, and loss of a plan that is chosen by predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from clustersim.apps.run.running import run
from clustersim.apps.validate.error_summary import FEWEST_ROWS, MOST_SHOWN, correlates, kendall_tau, mean_ranks, rankings
from clustersim.apps.validate.rows import RowResult, features_of
from clustersim.measure.metrics import Parallelism
from tests.unit.apps.samples import ROW

DEEP, WIDE = Parallelism(dp=1, tp=4, pp=4, cp=1, ep=1), Parallelism(dp=1, tp=8, pp=2, cp=1, ep=1)


def made(errors: Sequence[float], **features: Sequence[float]) -> list[RowResult]:
    return [
        replace(ROW, error_fraction=error, features={name: float(values[place]) for name, values in features.items()})
        for place, error in enumerate(errors)
    ]


RISING = [0.01 * place for place in range(20)]


def test_what_rises_with_the_errors_is_named_with_its_sign_and_what_does_not_is_not() -> None:
    cubed, falling, steady = [place**3 for place in range(20)], [-place for place in range(20)], [4.0] * 20

    found = correlates(made(RISING, cubed=cubed, falling=falling, steady=steady))

    assert [(each.feature, each.rank_correlation) for each in found] == [("cubed", pytest.approx(1.0)), ("falling", pytest.approx(-1.0))]


def test_what_may_be_chance_is_not_named() -> None:
    swaying = [place % 5 for place in range(20)]

    assert correlates(made(RISING, swaying=swaying)) == ()
    assert correlates(made(RISING[: FEWEST_ROWS - 1], rising=RISING)) == ()


def test_the_strongest_are_named_and_no_more() -> None:
    noise = np.random.default_rng(3).normal(size=20)
    mixed = {
        f"with {share} of noise": [rising + share * sway for rising, sway in zip(RISING, noise, strict=True)]
        for share in (0.0, 0.02, 0.05, 0.08)
    }

    found = correlates(made(RISING, **mixed))

    strengths = [each.rank_correlation for each in found]
    assert len(found) == MOST_SHOWN
    assert strengths == sorted(strengths, reverse=True)
    assert found[0].feature == "with 0.0 of noise"


def test_equals_share_the_mean_of_their_ranks_whatever_their_last_bits_say() -> None:
    assert mean_ranks(np.array([0.3, 0.1 + 0.2, 0.1])).tolist() == [2.5, 2.5, 1.0]


def test_features_are_degrees_sizes_and_shares_of_the_step() -> None:
    result = run(
        {
            "model": "gpt2",
            "cluster": {"node": "dgx-a100-80g", "nodes": 1},
            "training": {"global_batch_size": 32, "micro_batch_size": 2},
            "strategy": {"tp": 2, "pp": 2},
        }
    )

    features = features_of(result)

    assert (features["tensor-parallel degree"], features["pipeline stages"], features["replicas"]) == (2.0, 2.0, 2.0)
    assert (features["micro-batch"], features["micro-batches"], features["accelerators"]) == (2.0, 8.0, 8.0)
    assert sum(value for name, value in features.items() if name.startswith("share of ") and name != "share of memory") == pytest.approx(
        1.0
    )
    assert 0.0 < features["share of memory"] < 1.0


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
