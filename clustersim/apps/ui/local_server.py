"""The page behind an address of this machine alone, and the requests that it takes."""

from __future__ import annotations

import json
import logging
import socket
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from clustersim.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dash import Dash
    from flask import Flask

HOST: Final = "127.0.0.1"
_NAMES: Final = (HOST, "localhost")
_REFUSED: Final = 403
_NOT_OURS: Final = 400
_UNKNOWN: Final = 404
_NOT_THERE: Final = "there is no such file"
_HEADERS: Final = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}
_EXTENSION: Final = "clustersim"
"""Name of what answers the first question before a page asks it."""
_MOST_BYTES: Final = 2_000_000
"""Most bytes of one request."""
_MALFORMED: Final = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""Errors of reading a request that has another form."""
_TYPES: Final[Mapping[str, type]] = {"data": dict, "n_clicks": int, "n_intervals": int}
"""Type of a value by its property; of any other it is text."""


def make_app(*, runs: Path, first: str) -> Flask:
    """Return the page as a web application.

    Parameters
    ----------
    runs
        Folder of runs that the page can start from.
    first
        What it starts from.

    Raises
    ------
    ScenarioError
        When there is nothing of that name, it names files, or Dash is not installed.
    """
    try:
        from dash import Dash
    except ImportError as error:
        raise ScenarioError("the page needs Dash", hint="install it with: pip install 'clustersim[ui]'") from error
    from clustersim.apps.ui.callbacks import register
    from clustersim.apps.ui.contained import starts
    from clustersim.apps.ui.page_contents import TITLE, page

    app = Dash(__name__, title=TITLE, update_title="", serve_locally=True, suppress_callback_exceptions=True, add_log_handler=False)
    # Made anew for each visitor, who may have written further runs.
    app.layout = lambda: page(starts(runs))
    app.server.extensions[_EXTENSION] = register(app, runs, first)
    _shut(app)
    return app.server


def serve(server: Flask, port: int, told: Callable[[str], None]) -> None:
    """Answer on this machine until Ctrl-C, which is taken as the end and not as an error.

    Parameters
    ----------
    port
        0 for one that is free.
    told
        Is given the address once somebody answers there.

    Raises
    ------
    ScenarioError
        When the port cannot be had.
    """
    from werkzeug.serving import make_server

    from clustersim.apps.ui.workers import REPLAYS, stop

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise ScenarioError(
                f"port {port} cannot be had: {error}", field="--port", hint="choose another, or 0 for a free one"
            ) from error
        listening.listen()
        for begun in (server.extensions[_EXTENSION], partial(import_module, REPLAYS)):
            Thread(target=begun, daemon=True).start()
        own = listening.getsockname()[1]
        answering = make_server(HOST, own, server, threaded=True, fd=listening.fileno())
        told(f"http://{HOST}:{own}/")
        try:
            answering.serve_forever()
        finally:
            stop()


def _shut(app: Dash) -> None:
    """Let nobody in but a browser on this machine that was told this address, and take changes that the page has, of values of its types.

    A page from elsewhere could point a name of its own at 127.0.0.1 and ask through the browser of whoever reads it: the name it uses
    stands in the request.
    """
    from dash.exceptions import DependencyException
    from flask import Response, abort, request

    server = app.server
    server.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    headers = {**_HEADERS, "Content-Security-Policy": _policy(app.csp_hashes())}

    def unknown(_: DependencyException) -> tuple[str, int]:
        return _NOT_THERE, _UNKNOWN

    def refuse() -> None:
        origin = request.headers.get("Origin")
        if request.host.partition(":")[0] not in _NAMES or (origin is not None and origin != f"http://{request.host}"):
            abort(_REFUSED)

    def check() -> None:
        # Any other error is a bug of clustersim, which Flask logs and answers with 500.
        try:
            is_asked = request.method != "POST" or _is_asked(request.get_json(), app.callback_map)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - Dash says only dict
        except _MALFORMED:
            is_asked = False
        if not is_asked:
            abort(_NOT_OURS, "the page sends no such request")

    def guard(response: Response) -> Response:
        response.headers.update(headers)
        return response

    server.before_request(refuse)
    server.before_request(check)
    server.after_request(guard)
    server.register_error_handler(DependencyException, unknown)


def _is_asked(body: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a request is for one of the known changes, with its inputs and states; one of another form may raise."""
    change, output = known[body["output"]], body["output"]
    outputs = body["outputs"] if output.startswith("..") else [body["outputs"]]
    names = list[str]()
    for part, asked in zip(body["inputs"] + body.get("state", []), change["inputs"] + change["state"], strict=True):
        # Buttons of a table come as a list.
        are_many = asked["id"].startswith("{")
        parts = part if are_many else [part]
        if not all(map(_is_held, parts)) or not (are_many or _name(part) == _name(asked)):
            return False
        names += map(_name, parts)
    is_change = "callback" in change and output.strip(".") == "...".join(map(_name, outputs))
    return is_change and set(body.get("changedPropIds", [])) <= set(names)


def _name(part: Mapping[str, Any]) -> str:
    name = part["id"]
    return f"{name if isinstance(name, str) else json.dumps(name, sort_keys=True, separators=(',', ':'))}.{part['property']}"


def _is_held(part: Mapping[str, Any]) -> bool:
    value, kind = part.get("value"), _TYPES.get(part["property"], str)
    return value is None or all(isinstance(each, kind) for each in (value if part["id"] == "plan-rows" else [value]))


def _policy(hashes: Sequence[str]) -> str:
    """Return what the page may load: its own files, and the scripts with these hashes that stand in it."""
    # Plotly and the components of Dash write styles into the page, and make pictures to save of data and blobs.
    parts = {
        "default-src": "'none'",
        "script-src": " ".join(("'self'", *hashes)),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())
