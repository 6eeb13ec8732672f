"""The page behind an address of this machine alone, and the requests that it takes."""

from __future__ import annotations

import logging
import socket
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from clustersim.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dash import Dash
    from flask import Flask, Request


import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

_TEXTS: Final = ("value", "hash", "href", "children", "className")
_ROWS: Final = "plan-rows"


def is_request(body: object, known: Mapping[str, Mapping[str, object]]) -> bool:
    """Return whether the body of a request for a change of the page has the form that the page gives it.

    Parameters
    ----------
    known
        By its outputs, each change that the page can ask for: ``inputs`` and ``state``, in their order.

    Examples
    --------
    >>> base = {"id": "base", "property": "data"}
    >>> known = {"link.href": {"inputs": [base], "state": []}}
    >>> body = {
    ...     "output": "link.href",
    ...     "outputs": {"id": "link", "property": "href"},
    ...     "inputs": [{**base, "value": {"model": "gpt2"}}],
    ...     "changedPropIds": ["base.data"],
    ... }
    >>> is_request(body, known), is_request({**body, "inputs": []}, known)
    (True, False)
    """
    if not _is_mapping(body):
        return False
    output, inputs, state = body.get("output"), body.get("inputs"), body.get("state", [])
    asked = known.get(output) if isinstance(output, str) else None
    if asked is None or not isinstance(output, str) or not _is_list(inputs) or not _is_list(state):
        return False
    if body.get("outputs") != _outputs(output) or not _are_parts(inputs, asked["inputs"]) or not _are_parts(state, asked["state"]):
        return False
    changed, names = body.get("changedPropIds", []), list(_names(inputs))
    return _is_list(changed) and all(each in names for each in changed)


def _outputs(text: str) -> object:
    """Return the outputs of a change as a request names them."""
    several = [dict(zip(("id", "property"), each.rsplit(".", 1), strict=True)) for each in text.strip(".").split("...")]
    return several if text.startswith("..") else several[0]


def _are_parts(parts: Sequence[object], known: object) -> bool:
    """Return whether inputs or states are those that were asked for; those of a table of buttons come as a list."""
    if not _is_list(known) or len(parts) != len(known):
        return False
    return all(_is_part(part, each) for part, each in zip(parts, known, strict=True))


def _is_part(part: object, known: object) -> bool:
    if not _is_mapping(known):
        return False
    if _is_list(part):
        pattern = known["id"]
        return isinstance(pattern, str) and pattern.startswith("{") and all(_is_button(each, json.loads(pattern)) for each in part)
    return _is_mapping(part) and part.get("id") == known["id"] and _is_kind(part, known["property"])


def _is_button(part: object, pattern: Mapping[str, object]) -> bool:
    """Return whether a part is a button of a table, which is named by its row."""
    if not _is_mapping(part):
        return False
    name = part.get("id")
    if not _is_mapping(name) or name.keys() != pattern.keys():
        return False
    return name["type"] == pattern["type"] and isinstance(name["index"], int) and _is_kind(part, "n_clicks")


def _is_kind(part: Mapping[str, object], kind: object) -> bool:
    return part.get("property") == kind and _is_held(part["id"], kind, part.get("value"))


def _is_held(name: object, kind: object, value: object) -> bool:
    if value is None:
        return True
    if kind in {"n_clicks", "n_intervals"}:
        return isinstance(value, int)
    if kind in _TEXTS:
        return isinstance(value, str)
    if name == _ROWS:
        return _is_list(value) and all(map(_is_mapping, value))
    return kind == "data" and _is_mapping(value)


def _names(inputs: Sequence[object]) -> Iterator[str]:
    """Yield how the page calls each input when it has changed."""
    for part in inputs:
        if _is_list(part):
            yield from _names(part)
        elif _is_mapping(part):
            name = part["id"]
            yield f"{name if isinstance(name, str) else json.dumps(name, sort_keys=True, separators=(',', ':'))}.{part['property']}"


def _is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list)


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
    """Let nobody in but a browser on this machine that was told this address, and nothing but what the page itself sends.

    A page from elsewhere could point a name of its own at 127.0.0.1 and ask through the browser of whoever reads it: the name it uses
    stands in the request.
    """
    from dash.exceptions import DependencyException
    from flask import Response, abort, request

    server = app.server
    server.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    headers = {**_HEADERS, "Content-Security-Policy": _policy(app.csp_hashes())}

    def known() -> Mapping[str, Mapping[str, object]]:
        return app.callback_map  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - Dash says only dict

    def unknown(_: DependencyException) -> tuple[str, int]:
        return _NOT_THERE, _UNKNOWN

    def refuse() -> None:
        origin = request.headers.get("Origin")
        if request.host.partition(":")[0] not in _NAMES or (origin is not None and origin != f"http://{request.host}"):
            abort(_REFUSED)
        if request.method == "POST" and not is_request(_body(request), known()):
            abort(_NOT_OURS)

    def guard(response: Response) -> Response:
        response.headers.update(headers)
        return response

    server.before_request(refuse)
    server.after_request(guard)
    server.register_error_handler(DependencyException, unknown)


def _body(request: Request) -> object:
    try:
        return request.get_json(silent=True)
    except RecursionError:
        return None


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
