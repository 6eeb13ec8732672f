"""The page behind an address of this machine alone."""

from __future__ import annotations

import logging
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clustersim.errors import ScenarioError
from clustersim.studies.ui.held import is_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

HOST: Final = "127.0.0.1"
_NAMES: Final = (HOST, "localhost")
_REFUSED: Final = 403
_NOT_OURS: Final = 400
_MOST_BYTES: Final = 2_000_000
"""Of one request."""


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
    from clustersim.studies.ui.callbacks import register
    from clustersim.studies.ui.page import TITLE, page
    from clustersim.studies.ui.starting import start, starts

    start(first, runs)
    app = Dash(__name__, title=TITLE, update_title="", serve_locally=True, suppress_callback_exceptions=True, add_log_handler=False)
    # Made anew for each visitor, who may have written further runs.
    app.layout = lambda: page(starts(runs))
    register(app, runs, first)
    _shut(app.server)
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
        own = listening.getsockname()[1]
        answering = make_server(HOST, own, server, threaded=True, fd=listening.fileno())
        told(f"http://{HOST}:{own}/")
        answering.serve_forever()


def _shut(server: Flask) -> None:
    """Let nobody in but a browser on this machine that was told this address, and nothing but what the page itself sends.

    A page from elsewhere could point a name of its own at 127.0.0.1 and ask through the browser of whoever reads it: the name it uses
    stands in the request.
    """
    from flask import abort, request

    server.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES

    @server.before_request
    def refuse() -> None:
        origin = request.headers.get("Origin")
        if request.host.partition(":")[0] not in _NAMES or (origin is not None and origin != f"http://{request.host}"):
            abort(_REFUSED)
        if request.method == "POST" and not is_request(request.get_json(silent=True)):
            abort(_NOT_OURS)
