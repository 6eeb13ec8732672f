"""Trainings whose batch grows at first."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from types import MappingProxyType

import pytest

import clustersim
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.parallel.step_settings import BatchRamp

MODEL: dict[str, Data] = {
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 2816,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
RAMP: dict[str, Data] = {"start": 64, "increment": 64, "tokens": "300M"}
S = 2048


def trained(training: Mapping[str, Data] = MappingProxyType({}), *, batch: int = 256, pp: int = 1) -> clustersim.Result:
    said: dict[str, Data] = {"global_batch_size": batch, "seq_length": S} | dict(training)
    found = clustersim.run(
        {
            "model": MODEL,
            "cluster": {"node": "dgx-h100", "nodes": 1},
            "training": said,
            "strategy": {"pp": pp},
            "cost": {"gpu_hour": "2 USD"},
        }
    )
    assert isinstance(found, clustersim.Result)
    return found


def measures(result: clustersim.Result) -> tuple[float, float]:
    """Return the time and the GPU hours of a whole training."""
    assert result.time_to_train_s is not None
    assert result.cost is not None
    assert result.cost.training is not None
    return result.time_to_train_s, result.cost.training.gpu_hours


@pytest.mark.parametrize("pp", [1, 4])
def test_a_growing_batch_takes_the_time_of_the_steps_of_each_batch(pp: int) -> None:
    steps_s = {batch: trained(batch=batch, pp=pp).step_time_s for batch in (64, 128, 192, 256)}
    by_hand_s = fsum(1e8 / (batch * S) * steps_s[batch] for batch in (64, 128, 192)) + 7e8 / (256 * S) * steps_s[256]

    assert trained({"tokens": "1B", "batch_ramp": RAMP}, pp=pp).time_to_train_s == pytest.approx(by_hand_s, rel=1e-3)


def test_cost_is_that_of_the_longer_training() -> None:
    plain, ramped = (measures(trained({"tokens": "1B"} | more)) for more in ({}, {"batch_ramp": RAMP}))

    assert ramped[0] > plain[0]
    assert ramped[1] / plain[1] == pytest.approx(ramped[0] / plain[0])


def test_steps_of_equal_length_train_as_many_tokens_for_each_batch() -> None:
    ramp = BatchRamp(start=10, increment=10, tokens=6000)

    assert ramp.time_s(40, 100, 3.0, 3.0) == pytest.approx(3.0 * (2 + 1 + 2 / 3))


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"batch_ramp": RAMP}, "a batch that grows matters to a whole training"),
        ({"tokens": "100M", "batch_ramp": RAMP}, "of at least as many tokens"),
        ({"tokens": "1B", "batch_ramp": {**RAMP, "increment": 100}}, "64 does not grow to 256 by steps of 100"),
        ({"tokens": "1B", "batch_ramp": {**RAMP, "start": 256}}, "256 does not grow to 256"),
        ({"tokens": "1B", "batch_ramp": {**RAMP, "start": 4, "increment": 4}}, "while the batch grows, 4 is not a multiple of dp"),
    ],
)
def test_a_batch_that_cannot_grow_so_is_refused(training: dict[str, Data], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        trained(training)
