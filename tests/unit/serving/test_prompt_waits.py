"""New prompts wait for others, while sequences decode."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.serving.prompt_waits import BatchWait, PromptWaits, RankWait
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


@pytest.mark.parametrize(
    ("engine", "steps"), [("tensorrt_llm", {"batch_wait": BatchWait(steps=25, budget_share=0.9)}), ("sglang", {"receive_interval": 25})]
)
def test_a_request_beside_a_decoding_one_is_late_by_the_steps_that_it_waits(engine: str, steps: dict[str, object]) -> None:
    requests = fixed_requests(2, 100, 200, np.array([0.0, 0.1]))
    late = [
        served(requests, [make_scheduler(make_rules(engine, asynchronous=False, **more), 1000)], steps=LinearSteps(5e-3, 0.0, 0.0))
        for more in ({}, steps)
    ]
    waited_s = (late[1].log.first_token - late[0].log.first_token)[1] * 1e-12
    assert 0.0 < waited_s <= 25 * 5e-3 + 1e-9
