"""Serving runs whose answer is a formula on paper."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.serving.records import TICK_S
from clustersim.serving.requests import poisson_arrivals_s
from tests.unit.serving.factories import LinearSteps, fixed_requests, make_requests, make_rules, make_scheduler, served

SERVICE = LinearSteps(base_s=0.01, token_s=0.0, context_s=0.0)


def test_single_token_answers_one_at_a_time_are_an_m_d_1_queue() -> None:
    """Pollaczek and Khinchine: the mean wait is rho / (2 (1 - rho)) service times."""
    rho = 0.7
    arrival_s = poisson_arrivals_s(rho / SERVICE.base_s, 60_000, np.random.default_rng(3))
    run = served(fixed_requests(len(arrival_s), 10, 1, arrival_s), [make_scheduler(make_rules("vllm", max_num_seqs=1), 100)], steps=SERVICE)
    waited_s = np.mean(run.log.done - run.log.sent) * TICK_S - SERVICE.base_s
    # The mean of so many correlated waits has a standard error of some two percent.
    assert waited_s == pytest.approx(SERVICE.base_s * rho / (2 * (1 - rho)), rel=0.06)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_requests_under_way_are_rate_times_time_in_the_system(engine: str) -> None:
    """Little's law, over a time in which the system begins and ends empty, is exact."""
    rules = make_rules(engine)
    run = served(make_requests(300), [make_scheduler(rules, 60_000 // rules.block_tokens)])
    sent, done = run.log.sent, run.log.done
    moments = np.sort(np.concatenate([sent, done]))
    under_way = np.searchsorted(np.sort(sent), moments, side="right") - np.searchsorted(np.sort(done), moments, side="right")
    whole = int(moments[-1] - moments[0])
    mean_under_way = float(np.sum(under_way[:-1] * np.diff(moments))) / whole
    assert mean_under_way == pytest.approx(len(sent) / whole * float(np.mean(done - sent)), rel=1e-9)


def test_one_request_alone_takes_its_prefill_and_its_steps() -> None:
    steps = LinearSteps()
    run = served(fixed_requests(1, 1000, 101, np.zeros(1)), [make_scheduler(make_rules("vllm"), 1000)], steps=steps)
    prefill_s = steps.base_s + 1000 * steps.token_s
    decode_s = 100 * (steps.base_s + steps.token_s) + steps.context_s * sum(range(1000, 1100))
    assert run.log.first_token[0] * TICK_S == pytest.approx(prefill_s, rel=1e-9)
    assert run.log.done[0] * TICK_S == pytest.approx(prefill_s + decode_s, rel=1e-9)


def test_a_busy_replica_never_rests_while_requests_wait() -> None:
    run = served(make_requests(200, rate_per_s=50.0), [make_scheduler(make_rules("vllm"), 1000)])
    # Requests come faster than they are answered: from the first to the last token there is no gap between steps.
    whole = int(run.log.done.max() - run.log.sent.min())
    assert run.steps.busy_ticks == whole


def test_a_static_batch_takes_one_prefill_and_the_steps_of_its_longest_answer() -> None:
    steps = LinearSteps(context_s=0.0)
    run = served(fixed_requests(8, 100, 51, np.zeros(8)), [make_scheduler(make_rules("static"), 1000)], steps=steps)
    expected_s = steps.base_s + 800 * steps.token_s + 50 * (steps.base_s + 8 * steps.token_s)
    assert run.log.done.max() * TICK_S == pytest.approx(expected_s, rel=1e-9)
