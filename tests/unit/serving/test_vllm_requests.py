"""The rules of vLLM beside a run of it that was recorded request by request; see requests/README.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clustersim
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.serving.batch import FloatArray

RECORDED = Path(__file__).parent / "requests" / "vllm-rtxpro6000-llama-3.1-8b.csv"


@pytest.fixture(scope="module")
def recorded() -> pd.DataFrame:
    return pd.read_csv(RECORDED)


@pytest.fixture(scope="module")
def predicted() -> pd.DataFrame:
    result = clustersim.run(
        {
            "version": 1,
            "model": "llama3.1-8b",
            "cluster": {"node": "pcie-rtx4090", "nodes": 1, "accelerator": "rtxpro6000"},
            "serving": {"engine": "vllm@0.19", "replicas": 1, "max_num_seqs": 128, "max_batched_tokens": 2048, "asynchronous": False},
            "requests": {"arrival": "trace", "trace": str(RECORDED)},
        }
    )
    assert isinstance(result, ServingResult)
    return result.requests_table()


def n_steps_with_first_tokens(first_token_s: FloatArray) -> int:
    """Return how many steps gave somebody the first token: tokens of one step have one time, to ten microseconds."""
    return len(np.unique(np.round(first_token_s, 5)))


def test_first_tokens_come_in_the_same_order(recorded: pd.DataFrame, predicted: pd.DataFrame) -> None:
    orders = [np.lexsort((np.arange(len(each)), each.to_numpy())) for each in (recorded.first_token_s, predicted.first_token_s)]
    assert np.array_equal(orders[0], orders[1])


def test_as_many_prompts_share_a_step(recorded: pd.DataFrame, predicted: pd.DataFrame) -> None:
    ours, theirs = (n_steps_with_first_tokens(each.first_token_s.to_numpy()) for each in (predicted, recorded))
    # 300 requests; step times that are some percent off move a request to the next step here and there.
    assert ours == pytest.approx(theirs, rel=0.03)


def test_the_batch_is_full_as_long_as_it_was(recorded: pd.DataFrame, predicted: pd.DataFrame) -> None:
    """The 128th request has its first token at once, and those behind it wait for slots."""
    for each in (recorded, predicted):
        waited_s = (each.first_token_s - (each.arrival_s if "arrival_s" in each else each.sent_s)).to_numpy()
        assert np.median(waited_s[:100]) < 0.5
        assert np.median(waited_s[150:]) > 5.0
