from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.apps.collective.flows_file import load_flows
from clustersim.errors import ScenarioError
from clustersim.network.flow_times import Flow, Pipe

INF = float("inf")
LINK = '{"name": "a", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-6}'
OTHER = '{"name": "backbone", "bandwidth_bytes_per_s": 2e9, "latency_s": 0}'
FLOW = '{"route": ["a", "backbone"], "bytes": 1e6, "start_s": 0.5}'


def loaded(folder: Path, *, links: str = f"{LINK}, {OTHER}", flows: str = FLOW, more: str = ""):
    path = folder / "flows.json"
    path.write_text(f'{{"links": [{links}],\n "flows": [{flows}]{more}}}', encoding="utf-8")
    return load_flows(str(path))


def refusal(folder: Path, **parts: str) -> str:
    """Return the first line of the error without the file, from the line number on."""
    with pytest.raises(ScenarioError) as caught:
        loaded(folder, **parts)
    return str(caught.value).splitlines()[0].removeprefix(f"{folder / 'flows.json'}:")


def test_links_and_flows_are_read(tmp_path: Path) -> None:
    file = loaded(tmp_path)

    assert file.link_names == ("a", "backbone")
    assert file.links == (Pipe(bandwidth_bytes_per_s=1e9, latency_s=1e-6), Pipe(bandwidth_bytes_per_s=2e9, latency_s=0.0))
    assert file.flows == (Flow(route=(0, 1), size_bytes=1e6, start_s=0.5, weight=1.0, cap_bytes_per_s=INF),)


def test_weight_and_cap_may_be_given_and_start_and_latency_left_out(tmp_path: Path) -> None:
    file = loaded(
        tmp_path,
        links='{"name": "a", "bandwidth_bytes_per_s": 5}',
        flows='{"route": ["a"], "bytes": 0, "weight": 2.5, "cap_bytes_per_s": 3}',
    )

    assert file.links == (Pipe(bandwidth_bytes_per_s=5.0, latency_s=0.0),)
    assert file.flows == (Flow(route=(0,), size_bytes=0.0, start_s=0.0, weight=2.5, cap_bytes_per_s=3.0),)


def test_a_name_and_the_answer_may_stand_in_the_file(tmp_path: Path) -> None:
    assert len(loaded(tmp_path, more=', "name": "case", "finish_s": [1.0]').flows) == 1


@pytest.mark.parametrize("bandwidth", ["0", "-1", "NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_a_bandwidth_is_more_than_nothing_and_finite(tmp_path: Path, bandwidth: str) -> None:
    found = refusal(tmp_path, links=LINK.replace("1e9", bandwidth), flows="")

    assert found.startswith("1:51: links.0.bandwidth_bytes_per_s: ")
    assert found.endswith("is out of range; write a finite number, more than 0, in SI units, without quotes, such as 5e10")


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (
            {"links": LINK.replace("1e-6", "-1e-6")},
            "1:69: links.0.latency_s: -1e-06 is out of range; write a finite number, 0 or more, in SI units, without quotes, such as 5e10",
        ),
        (
            {"flows": FLOW.replace("1e6", "-1")},
            "2:50: flows.0.bytes: -1 is out of range; write a finite number, 0 or more, in SI units, without quotes, such as 5e10",
        ),
        (
            {"flows": FLOW.replace("0.5", "-0.5")},
            "2:66: flows.0.start_s: -0.5 is out of range; write a finite number, 0 or more, in SI units, without quotes, such as 5e10",
        ),
        (
            {"flows": FLOW.replace('"start_s": 0.5', '"weight": 1e9')},
            "2:65: flows.0.weight: 1000000000.0 is out of range; write a number from 1e-06 to 1e+06",
        ),
        (
            {"flows": FLOW.replace('"start_s": 0.5', '"cap_bytes_per_s": 0')},
            "2:74: flows.0.cap_bytes_per_s: 0 is out of range;"
            " write a finite number, more than 0, in SI units, without quotes, such as 5e10",
        ),
        ({"flows": FLOW.replace('"backbone"', '"backbon"')}, "2:28: flows.0.route.1: unknown link 'backbon'; did you mean 'backbone'?"),
        (
            {"flows": FLOW.replace('"backbone"', '"a"')},
            "2:28: flows.0.route.1: link 'a' is in the route twice; a route crosses each link once",
        ),
        (
            {"flows": FLOW.replace('"a", "backbone"', "")},
            "2:22: flows.0.route: a route without links is a flow to itself;"
            " name the links between two different ends, or leave the flow out",
        ),
        ({"links": f"{LINK}, {LINK}"}, "1:85: links.1.name: link 'a' is there already: links.0; give each link a name of its own"),
        (
            {"flows": FLOW.replace('"bytes"', '"byte"')},
            "2:41: flows.0.byte: unknown field 'byte'; did you mean 'bytes'?",
        ),
        (
            {"links": LINK.replace('"latency_s"', '"delay"')},
            "1:56: links.0.delay: unknown field 'delay'; use one of name, bandwidth_bytes_per_s, latency_s",
        ),
        ({"more": ', "link": 1'}, '2:73: link: unknown field \'link\'; did you mean \'links\'?'),
        ({"flows": '{"route": ["a"]}'}, "2:12: flows.0.bytes: 'bytes' is missing; add \"bytes\": ..."),
        (
            {"flows": FLOW.replace("1e6", '"1 MB"')},
            "2:50: flows.0.bytes: '1 MB' is not a number; write a finite number, 0 or more, in SI units, without quotes, such as 5e10",
        ),
        (
            {"flows": FLOW.replace("1e6", "true")},
            "2:50: flows.0.bytes: true is not a number; write a finite number, 0 or more, in SI units, without quotes, such as 5e10",
        ),
        ({"flows": FLOW.replace('["a", "backbone"]', '"a"')}, "2:22: flows.0.route: 'a' is not a list; write it in brackets: [\"a\"]"),
        ({"flows": FLOW.replace('"backbone"', "7")}, "2:28: flows.0.route.1: 7 is not a name; write the name of a link in quotes"),
        ({"flows": "5"}, '2:12: flows.0: 5 is not a mapping; write a mapping in braces: {"key": ...}'),
        ({"flows": "null"}, '2:12: flows.0: an empty value is not a mapping; write a mapping in braces: {"key": ...}'),
        ({"links": LINK.replace('"a"', '""')}, "1:21: links.0.name: '' is not a name; write the name of a link in quotes"),
    ],
)  # fmt: skip
def test_every_mistake_is_one_clear_error(tmp_path: Path, parts: dict[str, str], found: str) -> None:
    assert refusal(tmp_path, **parts) == found


def test_what_is_no_mapping_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flows.json"
    path.write_text("[1]", encoding="utf-8")

    with pytest.raises(ScenarioError, match=r"flows.json:1:1: is not a mapping; write \{\"links\": "):
        load_flows(str(path))


def test_a_long_name_is_cut_in_the_message(tmp_path: Path) -> None:
    found = refusal(tmp_path, flows=json.dumps({"route": ["x" * 500], "bytes": 1}))

    assert "unknown link '" + "x" * 37 + "...'" in found
