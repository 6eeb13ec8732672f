"""Serving runs whose answer is a formula on paper."""

from __future__ import annotations

import os
from dataclasses import replace
from math import exp, lgamma, log
from pathlib import Path

import numpy as np
import pytest

from clustersim.apps.serve.scenario_requests import read_trace
from clustersim.network.in_flight import TICK_S
from clustersim.program.program import Background
from clustersim.serving.records import ticks
from clustersim.serving.requests import Requests, poisson_arrivals_s
from clustersim.topology.wired import Cluster
from tests.unit.serving.factories import LinearSteps, cache_links, fixed_requests, make_requests, make_rules, make_scheduler, served
from tests.unit.topology.factories import NIC_BYTES_PER_S

Ranks = tuple[tuple[int, ...], ...]

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


def mean_wait_m_d_c(servers: int, load_erlangs: float) -> float:
    """Return the mean wait of an M/D/c queue in service times (Crommelin 1932), as a sum over Poisson tails."""
    total = 0.0
    for i in range(1, 400):
        mean = i * load_erlangs
        terms = [exp(-mean + j * log(mean) - lgamma(j + 1)) for j in range(i * servers, i * servers + 2000)]
        total += sum(terms) - servers / load_erlangs * sum(terms[1:])
    return total


@pytest.mark.parametrize("servers", [2, 5])
def test_replicas_in_turn_are_an_m_d_c_queue(servers: int) -> None:
    """Waits at c servers that are taken in turn are those of one queue for all, where services take equally long."""
    rho = 0.8
    arrival_s = poisson_arrivals_s(rho * servers / SERVICE.base_s, 60_000, np.random.default_rng(5))
    replicas = [make_scheduler(make_rules("vllm", max_num_seqs=1), 100) for _ in range(servers)]
    run = served(fixed_requests(len(arrival_s), 10, 1, arrival_s), replicas, steps=SERVICE)
    waited = run.log.done - run.log.sent - ticks(SERVICE.base_s)

    # Exactly the recursion of Lindley, and in the mean the formula; so many correlated waits have a standard error of some three percent.
    service, expected = ticks(SERVICE.base_s), np.zeros_like(waited)
    for n in range(servers, len(waited)):
        expected[n] = max(0, expected[n - servers] + service - (run.log.sent[n] - run.log.sent[n - servers]))
    assert np.array_equal(waited, expected)
    assert np.mean(waited) / service == pytest.approx(mean_wait_m_d_c(servers, rho * servers), rel=0.09)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_the_work_done_is_the_work_asked_for(engine: str) -> None:
    """Without preemption every token is computed once: the prompts, and each output token but the last of an answer."""
    requests, rules = make_requests(300), make_rules(engine)
    run = served(requests, [make_scheduler(rules, 2_000_000 // rules.block_tokens)])
    assert run.steps.n_prefill_tokens == requests.input_tokens.sum()
    assert run.steps.n_tokens == requests.input_tokens.sum() + (requests.output_tokens - 1).sum()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm", "static"])
def test_no_first_token_comes_before_its_prefill_can_end(engine: str) -> None:
    steps, requests, rules = LinearSteps(), make_requests(300, rate_per_s=12.0), make_rules(engine)
    run = served(requests, [make_scheduler(rules, 200_000 // rules.block_tokens)], steps=steps)
    least = np.array([ticks(steps.base_s + steps.token_s * n) for n in requests.input_tokens.tolist()])
    assert (run.log.first_token - run.log.sent >= least).all()


ALONE_S = 2.0**-4
"""Duration of the transfer of a cache of 1,000 tokens over one adapter: a whole number of every tick."""
PER_TOKEN = NIC_BYTES_PER_S * ALONE_S / 1000
FROM_ONE, TO_ONE = (((0,),), ((8,), (9,))), (((0,), (1,)), ((8,),))
"""Accelerators of each replica that sends, and of each that receives; those from 8 on are of another node."""


def moved_s(senders: Ranks, receivers: Ranks, n_requests: int, *, background: tuple[Background, ...] = ()) -> list[float]:
    """Return the duration of each KV transfer of requests whose prompts end together."""
    rules = make_rules("vllm")
    pools = [[make_scheduler(rules, 1000) for _ in each] for each in (senders, receivers)]
    links = cache_links(senders, receivers, bytes_per_token=PER_TOKEN, background=background)
    return served(fixed_requests(n_requests, 1000, 5, np.zeros(n_requests)), pools[0], decode=pools[1], links=links).transfer_s


def test_a_kv_transfer_alone_takes_its_bytes_over_the_bandwidth_exactly() -> None:
    assert moved_s(((0,),), ((8,),), 1) == [ALONE_S]


def test_a_kv_transfer_over_two_adapters_takes_half_as_long_exactly() -> None:
    assert moved_s(((0, 1),), ((8, 9),), 1) == [ALONE_S / 2]
    assert moved_s(((0, 1),), ((8, 9, 10, 11),), 1) == [ALONE_S / 2]


@pytest.mark.parametrize(("senders", "receivers"), [FROM_ONE, TO_ONE])
def test_two_kv_transfers_on_one_adapter_take_twice_as_long_exactly(senders: Ranks, receivers: Ranks) -> None:
    """Two prompts end at the same moment; they leave the same adapter, or enter the same one."""
    assert moved_s(senders, receivers, 2) == [2 * ALONE_S, 2 * ALONE_S]


def test_two_kv_transfers_on_links_of_their_own_do_not_delay_each_other() -> None:
    assert moved_s(((0,), (1,)), ((8,), (9,)), 2) == [ALONE_S, ALONE_S]


def test_a_neighbour_that_takes_half_an_adapter_doubles_a_kv_transfer_exactly() -> None:
    cluster = cache_links(((0,),), ((8,),), bytes_per_token=PER_TOKEN).library.cluster
    assert isinstance(cluster, Cluster)
    adapter = next(link for link in range(len(cluster.tier_index)) if cluster.link_name(link) == "node0/nic0/tx")
    load = Background(
        name="neighbour", link_ids=(adapter,), rate_bytes_per_s=NIC_BYTES_PER_S, n_flows=1, start_s=0.0, period_s=0.0, burst_s=0.0
    )
    loads = (load, replace(load, period_s=2.0**-9, burst_s=2.0**-10))

    always, in_bursts = (moved_s(((0,),), ((8,),), 1, background=(each,))[0] for each in loads)

    assert always == 2 * ALONE_S
    assert ALONE_S < in_bursts < always


@pytest.mark.parametrize("share", [0.25, 2.0])
def test_a_kv_cache_that_leaves_layer_by_layer_waits_for_its_last_layer_or_for_the_link(share: float) -> None:
    """Four layers; the whole cache takes a share of the prompt's time on the link."""
    steps, n_layers = LinearSteps(), 4
    prompt_s = steps.base_s + 1000 * steps.token_s
    whole_s = share * prompt_s
    links = replace(cache_links(((0,),), ((8,),), bytes_per_token=NIC_BYTES_PER_S * whole_s / 1000), n_layers=n_layers)
    pools = [[make_scheduler(make_rules("vllm"), 1000)] for _ in range(2)]

    run = served(fixed_requests(1, 1000, 5, np.zeros(1)), pools[0], decode=pools[1], links=links)

    expected_s = whole_s / n_layers if share < 1.0 else prompt_s / n_layers + whole_s - prompt_s
    assert run.transfer_s == pytest.approx([expected_s], rel=1e-6)
    assert all(replica.scheduler.pool.n_used == 0 for replica in run.replicas)


TRACES = os.environ.get("CLUSTERSIM_TRACES", "")


@pytest.mark.skipif(not TRACES, reason="CLUSTERSIM_TRACES names no folder with the traces of Mooncake")
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize(
    ("trace", "n_hit", "n_asked", "published"),
    [("mooncake_conversation_30min", 49_930, 146_464, 0.341), ("mooncake_synthetic", 77_953, 121_877, 0.640)],
)
def test_a_cache_that_forgets_nothing_has_the_hits_of_mooncake(engine: str, trace: str, n_hit: int, n_asked: int, published: float) -> None:
    found = read_trace(Path(TRACES) / f"{trace}.csv")
    n, rules = len(found.arrival_s), make_rules(engine, prefix_cache=True, max_batched_tokens=200_000)
    requests = Requests(
        input_tokens=found.input_tokens,
        output_tokens=np.ones(n, dtype=np.int64),
        arrival_s=np.arange(n, dtype=np.float64),
        prefixes=found.prefixes,
    )
    scheduler = make_scheduler(rules, 200_000_000 // rules.block_tokens)
    served(requests, [scheduler], steps=LinearSteps(1e-6, 0.0, 0.0))
    assert (scheduler.pool.n_prefix_hit, scheduler.pool.n_prefix_asked) == (n_hit, n_asked)
    assert round(n_hit / n_asked, 3) == published
