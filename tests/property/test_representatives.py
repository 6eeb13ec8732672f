"""Replicas in classes of their own give the same step as one class for each stage."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from clustersim.engine.simulate import replay
from clustersim.parallel.lower import lower
from tests.unit.engine.factories import RAMPED_NETWORK, make_machine
from tests.unit.parallel.factories import make_plan
from tests.unit.topology.factories import make_node


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    dp=st.sampled_from([2, 4]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    zero_stage=st.sampled_from([0, 1, 2, 3]),
    degree=st.sampled_from([None, 1, 2]),
    no_sync=st.booleans(),
    overlap=st.booleans(),
)
def test_replicas_in_parts_of_their_own_take_as_long_as_all_in_one(
    *, dp: int, tp: int, pp: int, zero_stage: int, degree: int | None, no_sync: bool, overlap: bool
) -> None:
    assume(dp * tp * pp >= 8 and (zero_stage < 2 or pp == 1) and (zero_stage > 0 or degree is None))
    plan = make_plan(
        dp=dp, tp=tp, pp=pp, zero_stage=zero_stage, shard_degree=degree, no_sync=no_sync, overlap=overlap, global_batch_size=dp * 2
    )
    machine = make_machine(make_node(n_accelerators=8, n_nics=8), dp * tp * pp // 8, network=RAMPED_NETWORK)

    together, apart = (replay(lower(plan, parts), machine)[0] for parts in (None, [(replica,) for replica in range(dp)]))

    assert len(apart.rank_classes) == dp * len(together.rank_classes)
    assert apart.step_time_s == pytest.approx(together.step_time_s, rel=1e-9)
