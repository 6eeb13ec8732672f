"""New prompts wait for others, while sequences decode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.network.in_flight import TICK_S
from clustersim.serving.prompt_waits import PromptWaits
from clustersim.serving.requests import Requests
from clustersim.serving.rules import BatchWait, EngineRules, RankWait
from clustersim.serving.sequence import Sequence
from tests.unit.serving.factories import LinearSteps, fixed_requests, make_rules, make_scheduler, served


def prompts(count: int, waits: PromptWaits) -> list[Sequence]:
    found = [Sequence(index, 100, 10) for index in range(count)]
    for each in found:
        waits.place(each)
    return found


def test_a_prompt_waits_until_its_steps_are_over() -> None:
    waits = PromptWaits(BatchWait(steps=20, budget_share=0.5), None)
    some = prompts(1, waits)
    assert [waits.steps_left(step, some, 4, 1000) for step in (7, 8, 26, 27)] == [20, 19, 1, 0]
    waits.begin(27)
    assert waits.steps_left(28, some, 4, 1000) == 20


def test_prompts_that_fill_the_budget_wait_no_longer() -> None:
    waits = PromptWaits(BatchWait(steps=20, budget_share=0.5), None)
    assert waits.steps_left(7, prompts(4, waits), 4, 1000) == 20
    assert waits.steps_left(8, prompts(5, waits), 4, 1000) == 0


def test_nobody_waits_where_nothing_decodes() -> None:
    waits = PromptWaits(BatchWait(steps=20, budget_share=0.5), RankWait(steps=50, further_steps=10, n_ranks=4), 30)
    assert waits.steps_left(7, prompts(1, waits), 0, 1000) == 0


def test_ranks_wait_for_each_other_at_most_until_the_period_ends() -> None:
    waits = PromptWaits(None, RankWait(steps=50, further_steps=10, n_ranks=4))
    some = prompts(3, waits)
    assert [waits.steps_left(step, some, 8, 1000) for step in (30, 49, 50)] == [20, 1, 0]
    waits.begin(50)
    assert [waits.steps_left(step, some, 8, 1000) for step in (51, 99, 100)] == [49, 1, 0]


def test_when_each_rank_has_a_prompt_they_wait_the_further_steps() -> None:
    waits = PromptWaits(None, RankWait(steps=50, further_steps=10, n_ranks=4))
    every = prompts(4, waits)
    assert [waits.steps_left(step, every, 8, 1000) for step in (30, 39, 40)] == [10, 1, 0]


def test_a_request_goes_to_the_rank_with_the_fewest() -> None:
    waits = PromptWaits(None, RankWait(steps=50, further_steps=10, n_ranks=2))
    first, second, third = prompts(3, waits)
    assert (first.rank, second.rank, third.rank) == (0, 1, 0)
    waits.leave(first)
    waits.leave(third)
    assert [each.rank for each in prompts(2, waits)] == [0, 0]


def test_requests_are_looked_for_at_intervals_and_behind_prompts() -> None:
    waits = PromptWaits(None, None, interval=10)
    assert [waits.last_look(step) for step in (9, 10, 19)] == [0, 10, 10]
    waits.look(13)
    assert [waits.last_look(step) for step in (13, 22, 23)] == [13, 13, 23]


STEP_S = 5e-3


def waited_steps(requests: Requests, number: int, rules: EngineRules, waits: dict[str, object], n_blocks: int = 1000) -> float:
    """Return the steps by which the first token of a request is later with waits."""
    without, with_waits = (
        served(requests, [make_scheduler(replace(rules, **each), n_blocks)], steps=LinearSteps(STEP_S, 0.0, 0.0)).log.first_token[number]
        for each in ({}, waits)
    )
    return (with_waits - without) * TICK_S / STEP_S


def test_a_prompt_beside_a_decoding_one_waits_all_its_steps() -> None:
    requests = fixed_requests(2, 100, 200, np.array([0.0, 0.1]))
    rules = make_rules("tensorrt_llm", asynchronous=False)

    assert waited_steps(requests, 1, rules, {"batch_wait": BatchWait(steps=25, budget_share=0.9)}) == pytest.approx(25)


def test_a_prompt_waits_until_the_next_look() -> None:
    requests = fixed_requests(2, 100, 200, np.array([0.0, 0.1]))
    rules = make_rules("sglang", asynchronous=False)

    # The first look is behind the first prompt, in step 1, and the request comes in step 20: a look follows in step 26.
    assert waited_steps(requests, 1, rules, {"receive_interval": 25}) == pytest.approx(6)


@pytest.mark.parametrize(("max_num_seqs", "n_blocks"), [(2, 1000), (8, 12)])
def test_only_prompts_that_there_is_room_for_wait_and_count(max_num_seqs: int, n_blocks: int) -> None:
    requests = Requests(input_tokens=np.full(8, 100), output_tokens=np.array([50, *[80] * 7]), arrival_s=np.zeros(8))
    rules = make_rules("tensorrt_llm", asynchronous=False, max_num_seqs=max_num_seqs, max_batched_tokens=500)

    # Six prompts in the queue fill the share, the one that has room does not; it waits from the step in which it has.
    assert waited_steps(requests, 2, rules, {"batch_wait": BatchWait(steps=20, budget_share=0.5)}, n_blocks) == pytest.approx(20)
