"""Requests that the server accepts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustersim.apps.ui.local_server import HOST, make_app, serve
from clustersim.errors import ScenarioError

if TYPE_CHECKING:
    from flask.testing import FlaskClient

pytest.importorskip("dash", reason="dash is not installed: the page is not tried")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> FlaskClient:
    return make_app(runs=tmp_path_factory.mktemp("runs"), first="starter").test_client()


@pytest.mark.parametrize("host", ["127.0.0.1:8050", "localhost:8050", "127.0.0.1"])
def test_a_browser_on_this_machine_is_let_in(client: FlaskClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8050", "192.168.1.5:8050", "127.0.0.1.evil.example", "0.0.0.0:8050"])
def test_a_request_under_another_name_is_refused(client: FlaskClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 403


def test_a_page_from_elsewhere_is_refused(client: FlaskClient) -> None:
    headers = {"Host": "127.0.0.1:8050", "Origin": "https://evil.example"}

    assert client.post("/_dash-update-component", headers=headers, json={}).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("GET", "/_dash-layout", {}, 200),
        ("GET", "/assets/page.js", {}, 200),
        ("GET", "/_dash-component-suites/dash/none.js", {}, 404),
        ("GET", "/assets/none.js", {}, 404),
        ("GET", "/", {"Host": "evil.example"}, 403),
        ("POST", "/_dash-update-component", {}, 415),
        ("DELETE", "/", {}, 405),
    ],
)
def test_every_response_keeps_the_page_to_itself(client: FlaskClient, method: str, path: str, headers: dict[str, str], status: int) -> None:
    with client.open(path, method=method, headers={"Host": "127.0.0.1", **headers}) as response:
        assert response.status_code == status

    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    policy = dict(part.split(" ", 1) for part in response.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in policy["script-src"]
    assert "http" not in response.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/assets/../serving.py", "/assets/%2e%2e/serving.py", "/assets//etc/passwd", "/etc/passwd"])
def test_no_file_is_served_but_those_of_the_page(client: FlaskClient, path: str) -> None:
    response = client.get(path, headers={"Host": "127.0.0.1"})

    assert b"make_server" not in response.data
    assert b"root:" not in response.data


def test_the_page_asks_for_nothing_from_elsewhere(client: FlaskClient) -> None:
    text = client.get("/", headers={"Host": "127.0.0.1"}).text

    assert "http://" not in text
    assert "https://" not in text


def test_what_the_page_starts_from_is_checked_at_once(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="to start from"):
        make_app(runs=tmp_path, first="startr")


def test_a_port_that_is_taken_is_one_clear_error(tmp_path: Path) -> None:
    app = make_app(runs=tmp_path, first="starter")
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()

        with pytest.raises(ScenarioError, match="cannot be had"):
            serve(app, other.getsockname()[1], lambda _: None)
