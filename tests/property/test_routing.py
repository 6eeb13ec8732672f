"""No row is lost or made on its way to the experts, whatever the law."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clustersim.workloads.token_routing import ExpertLoad, routed


@st.composite
def loads(draw: st.DrawFn) -> tuple[ExpertLoad, int, int, int]:
    """Draw a law, and numbers of experts, tokens, and experts of a token."""
    n_experts = draw(st.integers(1, 64))
    kind = draw(st.sampled_from(("balanced", "zipf", "dirichlet", "file")))
    shares = tuple(draw(st.lists(st.floats(0.0, 1.0), min_size=n_experts, max_size=n_experts)))
    usable = shares if sum(shares) > 0.0 else (1.0,) * n_experts
    load = ExpertLoad(
        kind=kind,
        skew=draw(st.floats(0.1, 5.0)),
        seed=draw(st.integers(0, 100)),
        shares=(usable,),
        capacity_factor=draw(st.none() | st.floats(0.5, 4.0)),
    )
    return load, n_experts, draw(st.integers(1, 5000)), draw(st.integers(1, n_experts))


@given(loads())
def test_every_row_goes_to_an_expert_or_is_counted_as_dropped(drawn: tuple[ExpertLoad, int, int, int]) -> None:
    load, n_experts, n_tokens, top_k = drawn
    found = routed(load, n_experts, n_tokens=n_tokens, top_k=top_k, layer=0)

    assert len(found.rows) == n_experts
    assert sum(found.rows) + found.dropped == n_tokens * top_k
    assert min(found.rows) >= 0
    assert max(found.rows) <= n_tokens + 1
    if load.capacity_factor is None:
        assert found.dropped == 0
