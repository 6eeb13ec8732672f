from __future__ import annotations

import numpy as np
import pytest

from clustersim.trace.step_log import FEW, StepLog, confidence_interval, quantile, student_t


def make_log(step_times_s: tuple[float, ...] = (1.0, 4.0, 2.0, 3.0)) -> StepLog:
    return StepLog(
        n_steps=len(step_times_s),
        step_times_s=step_times_s,
        duration_s=sum(step_times_s),
        classes=(),
        applied=8,
        staleness=((0, 2), (1, 5), (3, 1)),
        max_lead=1,
    )


def test_mean_and_quantiles_are_those_of_the_step_times() -> None:
    log = make_log()

    assert (log.mean_s, log.median_s, log.mean_staleness) == (2.5, 2.5, 1.0)
    # Between the third and the fourth of four: 3 x 0.95 = 2.85.
    assert log.p95_s == pytest.approx(3.0 + 0.85 * 1.0, rel=1e-12)


def test_a_quantile_lies_between_its_neighbours() -> None:
    assert [quantile([10.0, 0.0, 20.0], fraction) for fraction in (0.0, 0.25, 0.5, 1.0)] == [0.0, 5.0, 10.0, 20.0]


@pytest.mark.parametrize(
    ("n_degrees", "printed"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228), (19, 2.093), (29, 2.045), (120, 1.980)],
)
def test_student_t_is_that_of_the_tables(n_degrees: int, printed: float) -> None:
    # Abramowitz and Stegun, table 26.10, two-sided 0.95; three digits are printed.
    assert student_t(n_degrees) == pytest.approx(printed, abs=5e-4)


def test_one_step_has_no_interval() -> None:
    assert confidence_interval([1.0]) is None
    assert make_log((1.0,)).interval_s is None


def test_few_steps_are_taken_one_by_one() -> None:
    low, high = confidence_interval([1.0, 3.0]) or (0.0, 0.0)

    # s = sqrt 2, so that s / sqrt n = 1.
    assert (low, high) == (pytest.approx(2.0 - 12.706, abs=1e-3), pytest.approx(2.0 + 12.706, abs=1e-3))


def test_many_steps_are_taken_in_batches() -> None:
    # 10 batches of 2, each with the same mean: what varies inside a batch does not count.
    assert confidence_interval([1.0, 3.0] * (FEW // 2)) == (2.0, 2.0)


def test_the_first_few_are_left_over_where_batches_do_not_divide_them() -> None:
    # 21 values are 10 batches of 2 and one, which counts in the mean only.
    assert confidence_interval([44.0] + [1.0, 3.0] * 10) == (4.0, 4.0)


def test_no_more_than_thirty_batches_are_made() -> None:
    values = [float(number // 100) for number in range(3000)]

    low, high = confidence_interval(values) or (0.0, 0.0)

    means = np.arange(30.0)
    assert high - low == pytest.approx(2 * 2.0452 * float(means.std(ddof=1)) / 30**0.5, rel=1e-4)


@pytest.mark.parametrize("n_steps", [5, 20, 100])
def test_the_interval_of_independent_steps_holds_their_mean_in_nineteen_cases_of_twenty(n_steps: int) -> None:
    draws = np.random.default_rng(3).normal(10.0, 2.0, (1000, n_steps))

    covered = sum(low <= 10.0 <= high for low, high in (confidence_interval(row.tolist()) or (0.0, 0.0) for row in draws))

    # Three standard deviations of a count of 1000 with probability 0.95 are 21.
    assert covered == pytest.approx(950, abs=21)


def test_the_interval_of_steps_that_hang_together_is_wider_than_if_they_did_not() -> None:
    generator = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        noise, values = generator.normal(size=900), [0.0]
        for shock in noise.tolist():
            values.append(0.7 * values[-1] + shock)
        low, high = confidence_interval(values[1:]) or (0.0, 0.0)
        covered += low <= 0.0 <= high

    # Taken one by one they would hold the mean in 59 % of the cases: the deviation is too small by sqrt((1 + 0.7) / (1 - 0.7)) = 2.4.
    assert covered >= 0.9 * 200
