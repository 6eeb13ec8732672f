"""Exchange of tokens among experts: closed forms, and the table that DeepEP prints."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.engine.serving_run import Deployment, ReplicaPool, ServingRun
from clustersim.hardware.catalog import load_accelerator, load_node
from clustersim.hardware.serving_constants import kernel_constants
from clustersim.network.in_flight import TICK_S
from clustersim.serving.batch import Chunk, ServingLayout, StepBatch
from clustersim.serving.busiest_rank import busiest_with_copies
from clustersim.serving.decoding import DecodingSet
from clustersim.serving.engines import engine_constants
from clustersim.serving.expert_exchange import ExpertExchange, expert_exchange
from clustersim.serving.formats import served_formats
from clustersim.serving.policies import rules_of
from clustersim.serving.requests import poisson_arrivals_s
from clustersim.serving.rules import EngineDevice
from clustersim.serving.sequence import Sequence
from clustersim.serving.step_model import TermStepModel, step_model
from clustersim.workloads.reading.model_spec import load_model
from tests.unit.serving.factories import LinearSteps, fixed_requests, make_rules, make_scheduler

DEEPSEEK_GROUPS = 8, 4
PRINTED_US = {8: 77 + 114, 16: 118 + 195, 32: 155 + 273, 64: 173 + 314, 128: 192 + 369, 256: 194 + 360}
"""Dispatch and combine of 128 tokens by the ranks, in microseconds: deepseek-ai/DeepEP, README.md @ b8d90fb7, hidden 7168, top 8, H800."""


def _exchange(n_ranks: int) -> ExpertExchange:
    return expert_exchange(load_node("hgx-h800"), n_ranks, DEEPSEEK_GROUPS)


@pytest.mark.parametrize("n_ranks", PRINTED_US)
def test_the_exchange_takes_as_long_as_its_authors_print(n_ranks: int) -> None:
    seconds, _ = _exchange(n_ranks).seconds(128, 8, 7168, 1.0 + 4.0 / 128, 2.0)

    # Rows inside a node are predicted from another accelerator at the ratio of the links; those of many nodes vary by 10 us.
    assert seconds * 1e6 == pytest.approx(PRINTED_US[n_ranks], rel=0.12)


def test_an_exchange_says_who_lends_its_constants() -> None:
    lent, measured = _exchange(8).borrowed, expert_exchange(load_node("dgx-h100"), 8, DEEPSEEK_GROUPS).borrowed

    assert lent is not None
    assert (lent.accelerator, lent.lender) == ("h800-sxm5-80g", "h100-sxm5-80g")
    assert measured is None


def test_an_exchange_across_nodes_is_bound_by_the_adapters() -> None:
    (few, _), (many, _) = (_exchange(128).seconds(tokens, 8, 7168, 1.0, 2.0) for tokens in (100, 200))

    left_bytes = 100 * 7168 * 3.0 * 8 * (1 - 1 / 16)
    assert many - few == pytest.approx(left_bytes / 50e9, rel=1e-9)


def test_copies_of_popular_experts_make_ranks_even() -> None:
    without, some, many = (busiest_with_copies(256, 32, copies, 0.6) for copies in (0, 32, 256))

    assert without > some > many >= 1.0
    assert some < 1.05


def _steps(**layout: object) -> TermStepModel:
    device, model = load_accelerator("h800-sxm5-80g"), load_model("deepseek-v3").model
    return step_model(
        model,
        device,
        ServingLayout(tp=1, dp=32, ep=32, **layout),  # type: ignore[arg-type]
        engine=engine_constants("sglang"),
        rules=rules_of("sglang", EngineDevice(name=device.name, memory_bytes=device.memory_bytes)),
        formats=served_formats(model, device, "fp8"),
    )


PROMPTS = StepBatch(tuple(Chunk(2048, 2560) for _ in range(128)), 0, 0, 0)
DECODES = StepBatch((), 32 * 88, 32 * 88 * 4989, 4989)


@pytest.mark.parametrize("batch", [PROMPTS, DECODES])
def test_halves_of_a_batch_hide_the_exchange_behind_the_products(batch: StepBatch) -> None:
    alone, overlapped = (_steps(exchange=_exchange(32), overlaps_batches=overlaps).step(batch) for overlaps in (False, True))

    assert sum(overlapped.terms.values()) == pytest.approx(overlapped.total_s, rel=1e-12)
    assert overlapped.terms["collectives"] == 0.0
    # Each half reads the weights anew, and the exchange takes multiprocessors: less is saved than the exchange takes.
    assert alone.total_s - alone.terms["collectives"] < overlapped.total_s < alone.total_s


def test_a_stretch_of_overlapped_steps_is_bit_for_bit_what_single_steps_are() -> None:
    steps = _steps(exchange=_exchange(32), overlaps_batches=True)
    n = DECODES.n_decode
    single = [steps.step(StepBatch((), n, DECODES.context_tokens + later * n, 4989 + later)).total_s for later in range(20)]

    assert steps.decode_stretch_s(DECODES, 20).tolist() == single


def test_an_exchange_sends_less_than_a_gather_of_all_tokens() -> None:
    exchanged, gathered = (_steps(exchange=each).step(PROMPTS).terms for each in (_exchange(32), None))

    assert exchanged["collectives"] < gathered["collectives"] / 4


def test_experts_of_tokens_that_arrive_sorted_are_two_products_and_others_a_layer_with_its_permutation() -> None:
    few, many = (StepBatch((), 32 * each, 32 * each * 4989, 4989) for each in (256, 257))
    exchanged, gathered = (_steps(exchange=each) for each in (_exchange(32), None))

    assert exchanged.step(few).terms["experts"] < 0.6 * gathered.step(few).terms["experts"]
    assert exchanged.step(many).terms["experts"] == gathered.step(many).terms["experts"]


def test_a_sequence_that_comes_back_before_a_step_is_done_once() -> None:
    decoding, sequence = DecodingSet(16), Sequence(0, 10, 5)
    sequence.n_cached, sequence.n_left = 10, 4
    decoding.add(sequence)
    decoding.remove(sequence)
    decoding.add(sequence)

    assert decoding.advance(4) == [sequence]


def test_the_front_end_delays_a_request_and_not_the_steps() -> None:
    arrival_s = poisson_arrivals_s(1.0, 40, np.random.default_rng(0))
    requests = fixed_requests(40, 100, 5, arrival_s)
    times: list[float] = []
    for base_s, token_s in ((0.0, 0.0), (0.02, 1e-5)):
        pool = ReplicaPool(schedulers=(make_scheduler(make_rules("vllm"), 1000),), model=LinearSteps())
        run = ServingRun(Deployment(serving=pool, frontend_base_s=base_s, frontend_per_token_s=token_s), requests)
        run.run()
        times.append(float((run.log.done - run.log.sent).mean()) * TICK_S)

    assert times[1] - times[0] == pytest.approx(0.02 + 100 * 1e-5, rel=1e-9)


def test_clients_wait_for_the_front_end_too() -> None:
    pool = ReplicaPool(schedulers=(make_scheduler(make_rules("vllm"), 1000),), model=LinearSteps(context_s=0.0))
    run = ServingRun(Deployment(serving=pool, frontend_base_s=0.02), fixed_requests(10, 100, 5, concurrency=1))
    run.run()
    one_s = 0.02 + 5 * LinearSteps.base_s + 104 * LinearSteps.token_s

    assert float(run.log.done.max()) * TICK_S == pytest.approx(10 * one_s, rel=1e-9)


def test_a_share_of_the_peak_carries_over_by_the_power_for_each_flop() -> None:
    lender, borrower = load_accelerator("l40s"), load_accelerator("a6000")
    lent, (found, note) = kernel_constants(lender, "vllm", "product", "bf16")[0], kernel_constants(borrower, "vllm", "product", "bf16")

    assert note is not None
    budget = (300.0 / borrower.peak_flops_per_s["bf16"]) / (350.0 / lender.peak_flops_per_s["bf16"])
    assert found.peak_fraction == pytest.approx(min(0.9, lent.peak_fraction * budget**0.75), rel=1e-12)
    assert found.bandwidth_fraction == lent.bandwidth_fraction
