from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.topology.bisection import max_flow

EDGES = st.dictionaries(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")).filter(lambda ends: ends[0] != ends[1]),
    st.integers(0, 20).map(lambda eighths: eighths / 8),
    max_size=20,
)


@given(EDGES)
def test_it_is_the_flow_that_another_search_finds(capacity: dict[tuple[str, str], float]) -> None:
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from("ab")
    graph.add_edges_from((tail, head, {"capacity": width}) for (tail, head), width in capacity.items())

    assert max_flow(capacity, "a", "b") == pytest.approx(float(nx.maximum_flow_value(graph, "a", "b")), rel=1e-12)


def test_nothing_flows_where_nothing_leads() -> None:
    assert max_flow({}, "a", "b") == 0.0
    assert max_flow({("b", "a"): 1.0}, "a", "b") == 0.0
