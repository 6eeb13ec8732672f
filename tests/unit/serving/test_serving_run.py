"""Invariants of every serving run, whatever the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.engine.pace import Jitter
from clustersim.engine.serving_run import ServingRun
from clustersim.network.in_flight import TICK_S
from clustersim.serving.policies import ENGINES
from clustersim.serving.requests import Requests
from clustersim.serving.router import ROUTERS
from tests.unit.serving.factories import LinearSteps, cache_links, fixed_requests, make_requests, make_rules, make_scheduler, served
from tests.unit.topology.factories import NIC_BYTES_PER_S

TIGHT_TOKENS = 8192
"""A KV cache in which a few requests have room together."""


def run_of(engine: str, *, every_step: bool = False, kv_tokens: int = TIGHT_TOKENS, rate_per_s: float = 12.0) -> ServingRun:
    rules = make_rules(engine)
    scheduler = make_scheduler(rules, kv_tokens // rules.block_tokens)
    return served(make_requests(120, rate_per_s=rate_per_s), [scheduler], every_step=every_step)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_stretch_of_decode_steps_is_bit_for_bit_what_single_steps_are(engine: str) -> None:
    together, single = run_of(engine), run_of(engine, every_step=True)
    assert together.n_events < single.n_events
    for column in ("sent", "first_token", "done"):
        assert np.array_equal(getattr(together.log, column), getattr(single.log, column))
    assert together.steps.gaps.statistics() == single.steps.gaps.statistics()
    assert together.steps.decode.seconds() == single.steps.decode.seconds()
    assert together.steps.n_tokens == single.steps.n_tokens
    ours, theirs = (run.replicas[0].scheduler for run in (together, single))
    assert (ours.n_preemptions, ours.pool.peak_used) == (theirs.n_preemptions, theirs.pool.peak_used)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_every_request_is_answered_once_and_the_cache_is_empty_at_the_end(engine: str) -> None:
    run = run_of(engine)
    scheduler = run.replicas[0].scheduler
    assert (run.log.done >= run.log.first_token).all()
    assert (run.log.first_token > run.log.sent).all()
    assert not scheduler.running
    assert not scheduler.waiting
    assert scheduler.pool.n_used == 0
    assert 0 < scheduler.pool.peak_used <= scheduler.pool.n_blocks
    # One token comes with the prompt, or with a prompt that is computed again; all others from decode steps.
    n_output = int(run.requests.output_tokens.sum())
    n_single = int((run.requests.output_tokens == 1).sum())
    assert run.steps.gaps.n_gaps == n_output - len(run.requests)
    assert n_single >= 0


def test_only_engines_that_admit_without_a_guarantee_preempt() -> None:
    preemptions = {engine: run_of(engine).replicas[0].scheduler.n_preemptions for engine in ENGINES}
    assert preemptions["vllm"] > 0
    assert preemptions["tensorrt_llm"] == preemptions["static"] == 0


def test_a_token_is_never_sooner_than_the_prompt_can_be_computed() -> None:
    run = run_of("vllm", kv_tokens=100_000)
    steps = LinearSteps()
    least = np.array([steps.base_s + steps.token_s * tokens for tokens in run.requests.input_tokens.tolist()])
    assert ((run.log.first_token - run.log.sent) * TICK_S >= least - 1e-9).all()


def test_prefix_blocks_that_others_computed_are_not_computed_again() -> None:
    arrival_s = np.arange(20, dtype=np.float64) * 5.0
    requests = Requests(
        input_tokens=np.full(20, 2048 + 100),
        output_tokens=np.full(20, 10),
        arrival_s=arrival_s,
        prefixes=[(0, 1, 2, 3, 100 + index) for index in range(20)],
    )
    rules = make_rules("vllm")
    run = served(requests, [make_scheduler(rules, 2000)])
    pool = run.replicas[0].scheduler.pool
    assert pool.n_prefix_hit == 19 * 4
    assert pool.n_prefix_asked == 20 * 5
    ttft = run.log.first_token - run.log.sent
    assert ttft[1:].max() < ttft[0]
    assert run.steps.n_prefill_tokens == 2148 + 19 * 100


def test_a_prefix_that_was_evicted_is_computed_again() -> None:
    requests = Requests(
        input_tokens=np.full(3, 1024),
        output_tokens=np.full(3, 2),
        arrival_s=np.arange(3, dtype=np.float64) * 5.0,
        prefixes=[(0, 1), (2, 3), (0, 1)],
    )
    room_for_one = served(requests, [make_scheduler(make_rules("vllm"), 66)])
    room_for_both = served(requests, [make_scheduler(make_rules("vllm"), 140)])
    assert room_for_one.replicas[0].scheduler.pool.n_prefix_hit == 0
    assert room_for_both.replicas[0].scheduler.pool.n_prefix_hit == 2


@pytest.mark.parametrize("router", list(ROUTERS))
def test_a_router_spreads_requests_over_all_replicas(router: str) -> None:
    rules = make_rules("vllm")
    run = served(make_requests(200, rate_per_s=30.0), [make_scheduler(rules, 4000) for _ in range(4)], router=router)
    busy = {record.replica for record in run.steps.first}
    assert busy == {0, 1, 2, 3}
    assert (run.log.done >= 0).all()


def test_replicas_that_feed_each_other_are_bit_for_bit_what_single_steps_are() -> None:
    rules = make_rules("vllm")
    runs = [
        served(
            fixed_requests(60, 500, 40, concurrency=8),
            [make_scheduler(rules, 1000) for _ in range(2)],
            router="least_loaded",
            every_step=every_step,
        )
        for every_step in (False, True)
    ]
    assert np.array_equal(runs[0].log.done, runs[1].log.done)


def test_the_shared_prefix_goes_where_it_is_cached() -> None:
    requests = Requests(
        input_tokens=np.full(40, 1100),
        output_tokens=np.full(40, 5),
        arrival_s=np.arange(40, dtype=np.float64),
        prefixes=[(index % 4 * 10, index % 4 * 10 + 1, 1000 + index) for index in range(40)],
    )
    rules = make_rules("vllm")
    aware = served(requests, [make_scheduler(rules, 5000) for _ in range(3)], router="prefix_aware")
    blind = served(requests, [make_scheduler(rules, 5000) for _ in range(3)], router="round_robin")
    hits = [sum(replica.scheduler.pool.n_prefix_hit for replica in run.replicas) for run in (aware, blind)]
    assert hits[0] == 2 * 36 > hits[1]


def test_a_disaggregated_answer_takes_prefill_transfer_and_decode() -> None:
    rules = make_rules("vllm", prefix_cache=False)
    links = cache_links(((0,),), ((8,),), bytes_per_token=1e5)
    run = served(fixed_requests(1, 1000, 11, np.zeros(1)), [make_scheduler(rules, 200)], decode=[make_scheduler(rules, 200)], links=links)
    steps = LinearSteps()
    prefill_s = steps.base_s + 1000 * steps.token_s
    moved_s = 1000 * 1e5 / NIC_BYTES_PER_S
    decode_s = sum(steps.base_s + steps.token_s + steps.context_s * (1000 + step) for step in range(10))
    assert run.transfer_s == pytest.approx([moved_s], rel=1e-9)
    assert run.log.first_token[0] * TICK_S == pytest.approx(prefill_s, rel=1e-9)
    assert run.log.done[0] * TICK_S == pytest.approx(prefill_s + moved_s + decode_s, rel=1e-9)
    assert all(replica.scheduler.pool.n_used == 0 for replica in run.replicas)


def test_disaggregated_pools_answer_everything_and_share_the_link() -> None:
    rules = make_rules("vllm", prefix_cache=False)
    links = cache_links(((0,), (1,)), ((8,),), bytes_per_token=2.5e6)
    run = served(
        make_requests(80, rate_per_s=20.0),
        [make_scheduler(rules, 1000) for _ in range(2)],
        decode=[make_scheduler(rules, 800)],
        links=links,
    )
    assert (run.log.done > run.log.first_token).all()
    alone = [tokens * 2.5e6 / NIC_BYTES_PER_S for tokens in run.requests.input_tokens.tolist()]
    assert sum(run.transfer_s) > sum(alone)
    assert max(run.transfer_s) > max(alone)


@pytest.mark.parametrize("n_layers", [1, 4])
def test_states_move_once_a_request_with_its_cache(n_layers: int) -> None:
    # The prompt is computed in two chunks; states leave with the last one.
    rules, steps = make_rules("vllm", prefix_cache=False, max_batched_tokens=600), LinearSteps()
    whole_bytes = 1000 * 1e5 + 9e9
    links = replace(cache_links(((0,),), ((8,),), bytes_per_token=1e5), state_bytes=9e9, n_layers=n_layers)
    run = served(fixed_requests(1, 1000, 11, np.zeros(1)), [make_scheduler(rules, 200)], decode=[make_scheduler(rules, 200)], links=links)

    last_s = (steps.base_s + 400 * steps.token_s) * (1.0 - 1.0 / n_layers)
    first_bytes = 600 * 1e5 * (1.0 - 1.0 / n_layers)  # which have left when the second chunk begins to leave
    early_s = 0.0 if n_layers == 1 else last_s
    assert run.transfer_s == pytest.approx([(whole_bytes - first_bytes) / NIC_BYTES_PER_S - early_s], rel=0.02)
    assert run.transfers is not None
    assert run.transfers.link_bytes.max() == pytest.approx(whole_bytes, rel=1e-9)


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_sequences_hold_blocks_for_their_states(prefix_cache: bool) -> None:
    rules = make_rules("vllm", prefix_cache=prefix_cache)
    plain, state = make_scheduler(rules, 1000), make_scheduler(rules, 1000)
    state.pool.state_blocks = 50
    runs = [served(fixed_requests(30, 320, 11, np.zeros(30)), [scheduler]) for scheduler in (plain, state)]

    assert plain.pool.peak_used == 30 * 21
    # No more than 1,000 / (50 + 21) requests, or 1,000 / (50 + 20) until they take the next block and one is preempted.
    assert state.pool.peak_used in (14 * 71, 14 * 70)
    assert runs[1].log.done.max() > runs[0].log.done.max()
    assert state.pool.n_used == 0


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize("state_blocks", [0, 40])
def test_a_cache_with_states_answers_everything_and_is_empty_then(engine: str, state_blocks: int) -> None:
    rules = make_rules(engine)
    scheduler = make_scheduler(rules, 12_000 // rules.block_tokens + 3 * state_blocks)
    scheduler.pool.state_blocks = state_blocks
    run = served(make_requests(60), [scheduler])
    assert (run.log.done > 0).all()
    assert scheduler.pool.n_used == 0


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_a_decode_pool_holds_nothing_when_all_is_answered(engine: str) -> None:
    rules = make_rules(engine, prefix_cache=False)
    links = cache_links(((0,),), ((8,),), bytes_per_token=1e5)
    pools = [[make_scheduler(rules, 20_000 // rules.block_tokens)] for _ in range(2)]
    run = served(make_requests(40), pools[0], decode=pools[1], links=links)
    assert [replica.scheduler.pool.n_used for replica in run.replicas] == [0, 0]


def test_a_slow_accelerator_stretches_every_step_of_its_replica() -> None:
    requests = fixed_requests(1, 1000, 101, np.zeros(1))
    plain, slow = (served(requests, [make_scheduler(make_rules("vllm"), 200)], slowdowns=slowdowns) for slowdowns in ((), (1.25,)))
    assert slow.log.done[0] == pytest.approx(1.25 * plain.log.done[0], rel=1e-9)


def test_steps_that_vary_are_the_same_one_by_one_and_in_stretches() -> None:
    requests = make_requests(40)
    together, single = (
        served(requests, [make_scheduler(make_rules("vllm"), 2000)], jitter=Jitter(sigma=0.1).drawn([4], seed=3), every_step=every_step)
        for every_step in (False, True)
    )
    even = served(requests, [make_scheduler(make_rules("vllm"), 2000)])

    assert together.log.done.tolist() == single.log.done.tolist()
    assert together.log.done.sum() > even.log.done.sum()


def test_speculation_shortens_answers_by_the_tokens_that_a_step_yields() -> None:
    rules = make_rules("vllm")
    requests = fixed_requests(40, 200, 401, np.zeros(40))
    plain = served(requests, [make_scheduler(rules, 4000)])
    drafted = served(requests, [make_scheduler(rules, 4000, draft_tokens=3, acceptance=0.7)])
    yielded = plain.steps.decode.n_steps * 40 / drafted.steps.n_sequences
    assert yielded == pytest.approx(2.533, rel=0.05)
    assert drafted.replicas[0].scheduler.pool.n_used == 0


def test_certain_acceptance_yields_all_draft_tokens() -> None:
    rules = make_rules("vllm")
    run = served(fixed_requests(1, 100, 41, np.zeros(1)), [make_scheduler(rules, 100, draft_tokens=3, acceptance=1.0)])
    assert run.steps.decode.n_steps == 10


def test_a_request_that_never_fits_is_refused_and_the_others_are_answered() -> None:
    requests = Requests(input_tokens=np.array([100, 5000, 100]), output_tokens=np.array([5, 5, 5]), arrival_s=np.zeros(3))
    run = served(requests, [make_scheduler(make_rules("vllm"), 100)])
    assert run.log.refused == [1]
    assert (run.log.done[[0, 2]] > 0).all()
    assert run.log.done[1] < 0


def test_warm_up_requests_are_answered_before_measured_ones_are_sent() -> None:
    run = served(fixed_requests(30, 100, 20, concurrency=4, n_warmup=10), [make_scheduler(make_rules("vllm"), 1000)])
    assert run.log.sent[10:].min() == run.log.done[:10].max()


def test_a_static_batch_ends_before_the_next_begins() -> None:
    rules = make_rules("static", max_num_seqs=4)
    requests = Requests(input_tokens=np.full(8, 100), output_tokens=np.array([5, 10, 15, 20] * 2), arrival_s=np.zeros(8))
    run = served(requests, [make_scheduler(rules, 1000)])
    assert run.log.first_token[4:].min() > run.log.done[:4].max()


def test_a_preempted_prompt_waits_until_what_is_left_of_it_and_its_next_chunk_have_room() -> None:
    rules = make_rules("vllm@0.10", max_batched_tokens=512)
    run = served(make_requests(60, rate_per_s=20.0), [make_scheduler(rules, 350)])
    assert run.replicas[0].scheduler.n_preemptions > 0
    assert (run.log.done > run.log.first_token).all()


def test_an_asynchronous_engine_admits_one_step_later() -> None:
    requests = Requests(input_tokens=np.array([100, 100]), output_tokens=np.array([100, 2]), arrival_s=np.array([0.0, 0.0203]))
    first = [
        served(requests, [make_scheduler(make_rules("vllm", asynchronous=asynchronous), 100)]).log.first_token[1]
        for asynchronous in (False, True)
    ]
    assert 5.0e-3 < (first[1] - first[0]) * TICK_S < 5.1e-3


def test_sglang_computes_prompts_before_it_decodes() -> None:
    run = run_of("sglang", kv_tokens=50_000)
    assert all(not (record.n_prefill_tokens and record.n_decode) for record in run.steps.first)


def test_the_token_budget_of_a_step_holds() -> None:
    rules = make_rules("vllm", max_batched_tokens=256, max_num_seqs=64)
    run = served(make_requests(60, rate_per_s=20.0), [make_scheduler(rules, 4000)])
    assert max(record.n_prefill_tokens + record.n_decode for record in run.steps.first) == 256
    assert max(record.n_decode for record in run.steps.first) <= 64
