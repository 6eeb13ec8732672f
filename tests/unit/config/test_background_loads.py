"""The ``background`` of a scenario: loads on links by name, and what is wrong with some."""

from __future__ import annotations

import pytest

from clustersim.apps.run.running import run
from clustersim.config.background_loads import links_named
from clustersim.config.resolve import resolved_scenario
from clustersim.documents.text import Data
from clustersim.errors import DomainError
from clustersim.topology.cluster_wiring import build_cluster
from tests.unit.config.samples import built, refusal, small
from tests.unit.topology.factories import make_fabric, make_node, make_servers

CLUSTER: dict[str, Data] = {
    "node": "dgx-a100-40g",
    "nodes": 4,
    "fabric": {"topology": "leaf_spine", "nodes_per_leaf": 2, "oversubscription": 4},
}

WIRED = build_cluster(make_node(fabric=make_fabric("leaf_spine", nodes_per_leaf=2)), 12, servers=make_servers(2))


def load(**changes: Data) -> dict[str, Data]:
    entry: dict[str, Data] = {"links": ["leaf0/up"], "load": "50 %"}
    return entry | changes


def loads(*entries: dict[str, Data]) -> list[tuple[str, int, float]]:
    """Return name, number of links and rate of all loads."""
    made = built(cluster=CLUSTER, background=list(entries))
    return [(each.name, len(each.link_ids), each.rate_bytes_per_s) for entry in made.background for each in entry]


def test_a_share_is_of_the_data_sheet() -> None:
    # Two nodes with eight adapters of 25 GB/s, a quarter of which goes up.
    assert loads(load()) == [("background", 1, 0.5 * 100e9)]


def test_a_rate_is_what_every_link_carries() -> None:
    assert loads(load(links=["leaf*/up", "node0/nic0/tx"], load="40 Gbit/s")) == [("background", 3, 5e9)]


def test_a_share_of_links_of_two_bandwidths_is_two_loads() -> None:
    assert loads(load(links=["leaf*/up", "node0/nic0/tx"])) == [("background", 1, 12.5e9), ("background", 2, 50e9)]


def test_a_link_that_two_names_mean_carries_the_load_once() -> None:
    assert loads(load(links=["leaf0/up", "leaf*/up"])) == [("background", 2, 50e9)]


def test_both_ways_of_a_half_duplex_link_take_of_one() -> None:
    half: dict[str, Data] = {**CLUSTER, "links": [{"between": ["node0/nic0", "leaf0"], "half_duplex": True}]}
    made = built(cluster=half, background=[load(links=["node0/nic0/*"])])

    ((both,),) = made.background
    assert len(both.link_ids) == 2
    assert len(set(both.link_ids)) == 1


def test_loads_without_names_are_numbered_and_others_keep_theirs() -> None:
    assert [name for name, *_ in loads(load(name="backup"), load())] == ["backup", "background"]
    assert [name for name, *_ in loads(load(), load(name="backup"), load())] == ["background 0", "backup", "background 1"]


def test_times_and_flows_are_kept() -> None:
    made = built(cluster=CLUSTER, background=[load(start="1 ms", period="10 ms", burst="4 ms", flows=8)])

    ((each,),) = made.background
    assert (each.start_s, each.period_s, each.burst_s, each.n_flows) == (1e-3, 10e-3, 4e-3, 8)


def test_a_load_makes_the_step_longer_and_stands_in_the_links() -> None:
    scenario = small(cluster=CLUSTER, strategy={}, training={"global_batch_size": 32, "precision": "bf16"})
    alone, beside = run(scenario), run({**scenario, "background": [load(flows=100, name="backup")]})

    assert beside.step_time_s > alone.step_time_s
    assert beside.metrics.step_time_alone_s == alone.step_time_s
    assert alone.metrics.step_time_alone_s is None
    uplink = next(link for link in beside.spans.links if link.name == "leaf0/up")
    assert "backup" in uplink.users
    assert any("backup" in meeting.names and len(meeting.names) > 1 for meeting in uplink.meetings)


def test_the_resolved_scenario_has_the_same_loads() -> None:
    entries: list[Data] = [
        load(flows=3),
        load(links=["leaf1/down"], load="40 Gbit/s", name="b", start="1 ms", period="10 ms", burst="4 ms"),
    ]
    made = built(cluster=CLUSTER, background=entries)

    again = built(**resolved_scenario(made))

    assert again.background == made.background
    assert resolved_scenario(again) == resolved_scenario(made)


@pytest.mark.parametrize(
    ("entry", "field", "message"),
    [
        (load(links=["leaf9/up"]), "links.0", "there is no link 'leaf9/up'"),
        (load(links=["leaf0/up", "leaf*/side"]), "links.1", "there is no link 'leaf*/side'"),
        (load(links=["leaf[b]/up"]), "links.0", "'[b]' is not a range of numbers"),
        (load(links=[]), "links", "no link is named"),
        (load(links="leaf0/up"), "links", "'leaf0/up' is not a list"),
        (load(load="0 %"), "load", "'0 %' is not a share above 0 % and at most 100 %"),
        (load(load="0 Gbit/s"), "load", "a load of nothing is none"),
        (load(load="200 GB/s"), "load", "leaf0/up carries 100 GB/s at most"),
        (load(burst="1 ms"), "burst", "a burst without a period"),
        (load(period="1 ms"), "period", "a period without a burst"),
        (load(period="1 ms", burst="1 ms"), "burst", "a burst of 1 ms does not end within a period of 1 ms"),
        (load(period="1 ms", burst="2 ms"), "burst", "a burst of 2 ms does not end within a period of 1 ms"),
        (load(period="1 ms", burst="0 s"), "burst", "'0 s' is out of range"),
        (load(start="-1 s"), "start", "-1 s is negative"),
        (load(flows=0), "flows", "0 is out of range"),
        (load(rate="1 GB/s"), "rate", "unknown field 'rate'"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused_with_its_place(entry: dict[str, Data], field: str, message: str) -> None:
    error = refusal(cluster=CLUSTER, background=[load(), entry])

    assert (error.field, error.message) == (f"background.1.{field}", message)


def test_a_load_on_a_link_that_is_down_is_refused_unless_others_go_by_the_name() -> None:
    down: dict[str, Data] = {**CLUSTER, "links": [{"between": ["node3/nic0", "leaf1"], "state": "down"}]}

    error = refusal(cluster=down, background=[load(links=["leaf0/up", "node3/nic0/tx"])])

    assert (error.field, error.message) == ("background.0.links.1", "'node3/nic0/tx' is down")
    ((others,),) = built(cluster=down, background=[load(links=["node3/nic*/tx"])]).background
    assert len(others.link_ids) == 7


def test_bursts_without_number_are_refused_before_they_are_simulated() -> None:
    with pytest.raises(Exception, match="bursts in one step are more than the 200,000 that are simulated") as caught:
        run(small(cluster=CLUSTER, background=[load(), load(period="1 ns", burst="0.5 ns")]))

    assert getattr(caught.value, "field", None) == "background.1.period"


def names(text: str) -> list[str]:
    return [WIRED.link_name(link_id) for link_id in links_named(WIRED, text)]


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
