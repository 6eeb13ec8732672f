"""Requests that the page never sends."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from clustersim.apps.ui.desk import Desk
from clustersim.apps.ui.local_server import make_app
from tests.unit.apps.ui.visiting import BASE, HEADERS, Visitor, outputs_of, part_of, picked

pytest.importorskip("dash", reason="dash is not installed: the page is not tried")


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Visitor:
    return Visitor(make_app(runs=tmp_path_factory.mktemp("runs"), first="llama3-8b-8xh100").test_client())


@pytest.mark.parametrize(
    ("output", "changed", "held"),
    [
        ("figures.children", "base.data", {"base": [1, 2]}),
        ("figures.children", "base.data", {"base": "model: gpt2"}),
        ("figures.children", "control-model.value", {"base": BASE, "control_model": 5}),
        ("figures.children", "control-model.value", {"base": BASE, "control_strategy_tp": ["2"]}),
        ("comparison.children", "kept.data", {"kept": "data", "current": BASE}),
        ("plan-table.children", "plan.n_clicks", {"plan": 1, "current": "data"}),
        ("base.data", "start.value", {"start": ["starter"]}),
        ("base.data", "address.hash", {"address": 7}),
        ("base.data", picked(0), {"picked": [1], "plan_rows": [5], "current": BASE}),
        ("base.data", picked(0), {"picked": [1], "plan_rows": {"strategy.tp": 2}, "current": BASE}),
    ],
)
def test_what_the_page_never_sends_is_refused_and_is_no_bug(
    visitor: Visitor, output: str, changed: str, held: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = visitor.ask(output, changed, **held)

    assert (answer.status_code, "the page sends no such request" in answer.text) == (400, True)
    assert caplog.records == []


def test_a_bug_behind_the_page_is_logged_with_its_traceback(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Desk, "progress", lambda *_: {}["stage"])

    answer = visitor.ask("progress.children", "tick.n_intervals", tick=1, visit={"id": "a"})

    assert answer.status_code == 500
    assert "KeyError: 'stage'" in caplog.text


@dataclass
class Request:
    """A request as the page sends it, and others that are like it."""

    visitor: Visitor

    def status(self, **changes: Any) -> int:
        asked = next(
            each for each in self.visitor.client.get("/_dash-dependencies", headers=HEADERS).json or () if "kept" in each["output"]
        )
        body = {
            "output": asked["output"],
            "outputs": outputs_of(asked["output"]),
            "inputs": [part_of(part, {"keep": 1}) for part in asked["inputs"]],
            "state": [part_of(part, {"current": BASE}) for part in asked["state"]],
            "changedPropIds": ["keep.n_clicks"],
        }
        body = {key: value for key, value in {**body, **changes}.items() if value is not None}
        return self.visitor.client.post("/_dash-update-component", headers=HEADERS, json=body).status_code


KEEP, FORGET = ({"id": name, "property": "n_clicks", "value": 1} for name in ("keep", "forget"))


@pytest.mark.parametrize(
    "changes",
    [
        *({key: None} for key in ("output", "outputs", "inputs", "state")),
        *({key: 5} for key in ("output", "outputs", "inputs", "state", "changedPropIds")),
        {"output": "x.y"},
        {"output": "kept"},
        {"output": ["kept.data"]},
        {"outputs": {"id": "kept"}},
        {"outputs": [{"id": "kept", "property": "data"}]},
        {"inputs": [KEEP]},
        {"inputs": [KEEP, FORGET, FORGET]},
        {"inputs": [{"value": 1}, FORGET]},
        {"changedPropIds": [5]},
        {"changedPropIds": [["keep.n_clicks"]]},
        {"changedPropIds": ['{"index":1.n_clicks']},
    ],
)
def test_a_request_that_is_not_quite_one_is_refused_and_is_no_bug(
    visitor: Visitor, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        status = Request(visitor).status(**changes)

    assert status == 400
    assert caplog.records == []
    assert Request(visitor).status() == 200


def test_a_body_that_is_nested_without_end_is_refused(visitor: Visitor) -> None:
    body = b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    answer = visitor.client.post("/_dash-update-component", headers=HEADERS, data=body, content_type="application/json")

    assert answer.status_code == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"inputs": 5}', b'{"inputs": [7]}', b'{"state": [[7]]}'])
def test_a_body_that_is_no_request_is_refused(visitor: Visitor, body: bytes) -> None:
    answer = visitor.client.post("/_dash-update-component", headers=HEADERS, data=body, content_type="application/json")

    assert answer.status_code == 400


def test_a_request_that_is_too_long_is_refused(visitor: Visitor) -> None:
    answer = visitor.ask("figures.children", "base.data", base={"description": "x" * 2_500_000})

    assert answer.status_code in {400, 413}
