"""Properties of serving for every mix of requests, engine and size of the KV cache."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.serving.policies import ENGINES
from clustersim.serving.requests import Requests
from clustersim.serving.rules import BatchWait, RankWait
from tests.unit.serving.factories import make_rules, make_scheduler, served

LENGTHS = st.tuples(st.integers(1, 400), st.integers(1, 60))


@settings(max_examples=60, deadline=None)
@given(
    engine=st.sampled_from(list(ENGINES)),
    lengths=st.lists(LENGTHS, min_size=1, max_size=25),
    gaps_ms=st.lists(st.integers(0, 60), min_size=25, max_size=25),
    spare=st.integers(0, 1200),
    seqs=st.integers(1, 12),
    draft=st.sampled_from([0, 0, 2]),
    asynchronous=st.booleans(),
    waits=st.fixed_dictionaries(
        {
            "batch_wait": st.one_of(st.none(), st.builds(BatchWait, steps=st.integers(1, 20), budget_share=st.floats(0.1, 1.0))),
            "rank_wait": st.one_of(
                st.none(), st.builds(RankWait, steps=st.integers(1, 20), further_steps=st.integers(0, 5), n_ranks=st.integers(2, 4))
            ),
            "receive_interval": st.integers(1, 12),
        }
    ),
)
def test_nobody_is_lost_and_the_cache_never_overflows(
    *,
    engine: str,
    lengths: list[tuple[int, int]],
    gaps_ms: list[int],
    spare: int,
    seqs: int,
    draft: int,
    asynchronous: bool,
    waits: dict[str, object],
) -> None:
    rules = make_rules(engine, max_num_seqs=seqs, max_batched_tokens=max(500, 4 * seqs), asynchronous=asynchronous, **waits)
    longest = max(sum(each) for each in lengths) + draft + 2 * rules.block_tokens
    n_blocks = -(-(longest + spare) // rules.block_tokens)
    requests = Requests(
        input_tokens=np.array([each[0] for each in lengths]),
        output_tokens=np.array([each[1] for each in lengths]),
        arrival_s=np.cumsum(np.array(gaps_ms[: len(lengths)], dtype=np.float64)) * 1e-3,
    )
    runs = [
        served(requests, [make_scheduler(rules, n_blocks, draft_tokens=draft, acceptance=0.6)], every_step=every_step)
        for every_step in (False, True)
    ]
    for run in runs:
        scheduler = run.replicas[0].scheduler
        assert not run.log.refused
        assert (run.log.done >= run.log.first_token).all()
        assert (run.log.first_token > run.log.sent).all()
        assert scheduler.pool.n_used == 0
        assert scheduler.pool.peak_used <= n_blocks
        assert scheduler.n_reserved == 0
        assert max(record.n_decode for record in run.steps.first) <= seqs
    assert np.array_equal(runs[0].log.done, runs[1].log.done)
    assert np.array_equal(runs[0].log.first_token, runs[1].log.first_token)
