"""The closed form beside the simulation."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.validate.closed_form import BASELINE, ServedClosedForm, closed_form_of
from clustersim.config.serving_scenario import load_serving

ONLY_READING = ServedClosedForm(
    bandwidth_fraction=1.0,
    cache_fraction=1.0,
    peak_fraction=1.0,
    step_s=0.0,
    sequence_s=0.0,
    collective_s=0.0,
    frontend_s=0.0,
)


def _of(requests: Mapping[str, object], constants: ServedClosedForm = BASELINE) -> Mapping[str, float]:
    scenario = {
        "version": 1,
        "model": "llama3.1-8b",
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "serving": {"engine": "vllm", "replicas": 1},
        "requests": {"input_tokens": 1000, "output_tokens": 100, **requests},
    }
    return closed_form_of(build_serving(load_serving(scenario)), constants)


def test_a_client_alone_waits_for_the_weights_and_its_cache() -> None:
    found = _of({"arrival": "closed", "concurrency": 1, "count": 4}, ONLY_READING)
    # 32 layers of 218 million weights in 16 bits, and 1,050 tokens of 32 layers with 8 heads of 128 for key and value.
    read_bytes = 2.0 * 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336) + 1050 * 32 * 2 * 8 * 128 * 2.0

    assert found["tpot_s"] == pytest.approx(read_bytes / 3.35e12, rel=1e-3)


def test_more_clients_give_more_tokens_and_each_waits_longer() -> None:
    few, many = (_of({"arrival": "closed", "concurrency": clients, "count": 200}) for clients in (4, 64))

    assert many["output_tokens_per_s"] > few["output_tokens_per_s"]
    assert many["tpot_s"] > few["tpot_s"]


def test_a_rate_below_the_capacity_is_answered_at_that_rate() -> None:
    found = _of({"arrival": "constant", "rate": "2 /s", "count": 201})

    assert found["output_tokens_per_s"] == pytest.approx(2.0 * 100, rel=0.01)
