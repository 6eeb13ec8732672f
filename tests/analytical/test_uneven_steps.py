"""Uneven machines from a scenario to the result: what a straggler costs, in step and at one's own pace."""

from __future__ import annotations

from math import erf, exp, sqrt

import numpy as np
import pytest

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run
from clustersim.documents.text import Data

N, SLOWDOWN = 8, 1.3

# Hardly any bytes for much computation, so that neither network nor servers nor the host weigh.
MODEL: dict[str, Data] = {
    "model_type": "gpt2",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "max_position_embeddings": 2048,
}
NEGLIGIBLE = 0.01
"""Share of a step in which something else than computation is the limit: the host is slowed too, and 4 MB are moved."""


def step(*overrides: str, seed: int = 0, gradients: dict[str, Data] | None = None) -> Result:
    scenario: dict[str, Data] = {
        "model": dict(MODEL),
        "cluster": {"node": "dgx-a100-40g", "nodes": 1},
        "training": {"global_batch_size": 32 * 32 * N, "micro_batch_size": 32, "precision": "bf16"},
        "strategy": {"data_parallel": gradients or {}},
    }
    return run(scenario, set=overrides, seed=seed)


def test_in_step_one_slow_rank_slows_all_of_them() -> None:
    even, uneven = step(), step(f"cluster.stragglers=[{{ranks: 3, slowdown: {SLOWDOWN}}}]")

    assert even.step_time_s / uneven.step_time_s == pytest.approx(1 / SLOWDOWN, rel=NEGLIGIBLE)
    assert uneven.metrics.steps is not None
    (waited,) = uneven.metrics.steps.waited_for
    assert (waited.name, waited.ranks) == ("rank 3", 1)
    late_s = uneven.step_time_s - even.step_time_s
    assert waited.waited_s == pytest.approx((N - 1) / N * late_s, rel=5 * NEGLIGIBLE)


def test_at_their_own_pace_one_slow_rank_slows_itself_alone() -> None:
    servers: dict[str, Data] = {"algorithm": "parameter_server", "mode": "async", "reduce_in_node": False}
    even = step("steps=40", gradients=servers)
    uneven = step("steps=40", f"cluster.stragglers=[{{ranks: 3, slowdown: {SLOWDOWN}}}]", gradients=servers)

    samples = even.metrics.samples_per_s, uneven.metrics.samples_per_s
    assert samples[1] / samples[0] == pytest.approx((N - 1 + 1 / SLOWDOWN) / N, rel=NEGLIGIBLE)


def test_a_bound_of_zero_steps_is_in_step_again() -> None:
    servers: dict[str, Data] = {"algorithm": "parameter_server", "reduce_in_node": False}
    slow = f"cluster.stragglers=[{{ranks: 3, slowdown: {SLOWDOWN}}}]"

    bounded = step("steps=5", slow, gradients={**servers, "mode": "ssp", "staleness": 0})
    together = step("steps=5", slow, gradients=servers)

    assert bounded.step_time_s == pytest.approx(together.step_time_s, rel=NEGLIGIBLE)


def expected_maximum(sigma: float, n: int) -> float:
    """Return the mean of the largest of n lognormal factors of mean 1: the integral of 1 - F(x)^n."""
    x = np.linspace(1e-6, exp(8 * sigma), 40_001)
    below = np.array([0.5 * (1 + erf((np.log(each) + 0.5 * sigma**2) / (sigma * sqrt(2)))) for each in x])
    return float(np.trapezoid(1 - below**n, x))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_steps_that_vary_last_as_long_as_the_longest_of_the_ranks(seed: int) -> None:
    sigma = 0.1

    varying = step("cluster.jitter=10 %", "steps=200", seed=seed)

    assert varying.metrics.steps is not None
    assert varying.metrics.steps.confidence_interval_s is not None
    low, high = varying.metrics.steps.confidence_interval_s
    # Widened to 99.9 %, as this is done for three seeds; and by what is not computation.
    middle, half = 0.5 * (low + high), 1.7 * 0.5 * (high - low)
    assert step().step_time_s * expected_maximum(sigma, N) == pytest.approx(middle, abs=half + NEGLIGIBLE * middle)


def test_the_same_seed_gives_the_same_steps_and_another_does_not() -> None:
    first, again, other = (step("cluster.jitter=10 %", "steps=20", seed=seed) for seed in (1, 1, 2))

    assert first.metrics.steps == again.metrics.steps
    assert first.step_time_s != other.step_time_s


def test_a_loader_that_is_too_slow_is_the_bound_of_the_step() -> None:
    even = step()
    rate = 0.5 * even.metrics.samples_per_s

    held_up = step(f"training.data_loader={{rate: {rate:.6f} samples/s}}")

    assert held_up.metrics.samples_per_s == pytest.approx(rate, rel=1e-6)
    assert held_up.metrics.breakdown_s.stall == pytest.approx(held_up.step_time_s - even.step_time_s, rel=0.02)


def test_a_loader_that_keeps_up_costs_nothing() -> None:
    even = step()

    loaded = step(f"training.data_loader={{rate: {2 * even.metrics.samples_per_s:.6f} samples/s}}")

    # One of them may be replayed in part, which adds up the same times in another order.
    assert loaded.step_time_s == pytest.approx(even.step_time_s, rel=1e-12)
