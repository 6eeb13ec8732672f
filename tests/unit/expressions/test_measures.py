"""The name of a figure says what it measures."""

from __future__ import annotations

import pytest

from clustersim.expressions.measures import PLAIN, Measure, measure_of_key

SECOND = Measure(powers=(("s", 1),))


@pytest.mark.parametrize(
    ("key", "words", "scale"),
    [
        ("step_time_s", "s", 1.0),
        ("memory.peak_bytes", "bytes", 1.0),
        ("breakdown_s.exposed_communication.tp", "s", 1.0),
        ("tokens_per_s", "1/s", 1.0),
        ("tokens_per_s_per_gpu", "1/s", 1.0),
        ("tflops_per_gpu", "FLOP/s", 1e12),
        ("model_flops_per_step", "FLOP", 1.0),
        ("mfu", "a plain number", 1.0),
        ("bubble_fraction", "a plain number", 1.0),
        ("parallelism.tp", "a plain number", 1.0),
        ("cost.training.usd", "USD", 1.0),
        ("cost.training.energy_kwh", "J", 3.6e6),
        ("cost.training.emissions_kg_co2e", "kg", 1.0),
        ("cost.training.gpu_hours", "s", 3600.0),
        ("cost.power.node_w", "J/s", 1.0),
        ("cost.prices.usd_per_gpu_hour", "USD/s", 1 / 3600),
        ("cost.prices.usd_per_kwh", "USD/J", 1 / 3.6e6),
        ("cost.per_million_tokens.usd", "USD", 1.0),
        ("goodput.interruptions_per_day", "1/s", 1 / 86400),
    ],
)
def test_a_key_says_its_unit(key: str, words: str, scale: float) -> None:
    measure = measure_of_key(key)

    assert (str(measure), measure.scale) == (words, pytest.approx(scale, rel=1e-15))


def test_a_quotient_of_like_measures_is_a_plain_number() -> None:
    assert SECOND.times(SECOND, -1) == PLAIN


def test_powers_are_written_out() -> None:
    assert str(SECOND.times(SECOND)) == "s^2"
    assert str(PLAIN.times(SECOND.times(SECOND), -1)) == "1/s^2"
