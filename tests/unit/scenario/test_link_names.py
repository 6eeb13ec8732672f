"""Links by their names."""

from __future__ import annotations

import pytest

from clustersim.errors import DomainError
from clustersim.scenario.link_names import links_named
from clustersim.topology.build import build_cluster
from tests.unit.topology.factories import make_fabric, make_node, make_servers

CLUSTER = build_cluster(make_node(fabric=make_fabric("leaf_spine", nodes_per_leaf=2)), 12, servers=make_servers(2))


def names(text: str) -> list[str]:
    return [CLUSTER.link_name(link_id) for link_id in links_named(CLUSTER, text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("leaf0/up", ["leaf0/up"]),
        ("node3/nic0/tx", ["node3/nic0/tx"]),
        ("node3/gpu2/nvlink/down", ["node3/gpu2/nvlink/down"]),
        ("node11/memory", ["node11/memory"]),
        ("server1/nic0/rx", ["server1/nic0/rx"]),
        ("leaf[0,2]/*", ["leaf0/up", "leaf0/down", "leaf2/up", "leaf2/down"]),
        ("node[9-11]/nic7/tx", ["node9/nic7/tx", "node10/nic7/tx", "node11/nic7/tx"]),
        ("node1/nic[0, 2]/*x", ["node1/nic0/tx", "node1/nic0/rx", "node1/nic2/tx", "node1/nic2/rx"]),
    ],
)
def test_a_name_means_the_links_that_it_fits(text: str, found: list[str]) -> None:
    assert names(text) == found


def test_a_star_ends_at_a_slash() -> None:
    assert len(names("node*/memory")) == 12
    assert len(names("*/memory")) == 14
    assert all(name.count("/") == 1 for name in names("*/*"))


def test_a_dot_in_a_name_is_a_dot() -> None:
    with pytest.raises(DomainError, match=r"there is no link 'leaf\./up'"):
        names("leaf./up")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("leaf0/upp", "did you mean 'leaf0/up'?"),
        ("leaf0/spine*/up", "did you mean 'leaf0/up'?"),
        ("node3/nic9/tx", "did you mean 'node3/nic"),
        ("node3/nic/tx", "did you mean 'node3/nic"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(DomainError) as caught:
        names(text)

    assert caught.value.message == f"there is no link '{text}'"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


def test_a_name_that_is_like_no_other_is_told_what_there_is() -> None:
    with pytest.raises(DomainError) as caught:
        names("???")

    assert caught.value.hint is not None
    assert caught.value.hint.startswith("there are such as leaf*/up, leaf*/down, node*/memory")


@pytest.mark.parametrize("text", ["leaf[]/up", "leaf[a]/up", "leaf[3-1]/up", "leaf[0-9999999]/up", "leaf[0-]/up"])
def test_brackets_without_numbers_are_refused(text: str) -> None:
    with pytest.raises(DomainError, match="is not a range of numbers"):
        names(text)
