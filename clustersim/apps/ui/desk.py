"""Questions of the page and their answers, the last of which are kept."""

from __future__ import annotations

import json
import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from socket import MSG_PEEK, socket
from threading import Lock
from typing import TYPE_CHECKING, Final, TypedDict

from dash.exceptions import PreventUpdate
from flask import request

from clustersim.apps.ui.contained import check_contained, check_limits
from clustersim.apps.ui.showing import Mistake, Seen, look, look_again, result_of
from clustersim.apps.ui.workers import AbandonedError, Asker, LimitError, T, WorkerError, Workers
from clustersim.config.load import load_scenario
from clustersim.documents.text import Data
from clustersim.report.facts import gpus_text

if TYPE_CHECKING:
    from clustersim.apps.ui.layouts import Looked

_MOST_KEPT: Final = 32
"""Results of the page, of what it is compared with, of a few steps back; each twice."""
_LONGEST_NAME: Final = 64


class Visit(TypedDict):
    """A page that somebody has opened."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Answers questions of all pages."""

    workers: Workers = field(default_factory=Workers)
    _kept: dict[str, Seen] = field(default_factory=dict[str, Seen])
    """The last results, by what they were asked for with."""
    _lock: Lock = field(default_factory=Lock)

    def seen(self, visit: Visit | None, base: Mapping[str, Data], values: Sequence[str | None]) -> Seen | Mistake:
        """Return the result of a scenario with what controls hold.

        Raises
        ------
        PreventUpdate
            When nobody waits for it any more.
        LimitError, WorkerError
            When the page cannot work it out.
        """
        key = _key([base, values])
        found = self._kept.get(key) or self._call(_asker(visit, "result"), look, base, values)
        if isinstance(found, Seen):
            self._keep(key, found)
            # As it is asked for by comparisons.
            self._keep(_key(found.shown["current"]), found)
        return found

    def prepare(self, base: Mapping[str, Data], values: Sequence[str | None]) -> None:
        """Keep the answer to a question that pages will ask; nothing where there is none."""
        with suppress(LimitError, WorkerError, AbandonedError):
            found = self.workers.call(Asker(name="first", is_gone=lambda: False), look, base, values)
            if isinstance(found, Seen):
                self._keep(_key([base, values]), found)

    def compared(self, visit: Visit | None, documents: Sequence[Mapping[str, Data]]) -> list[Seen]:
        """Return results of scenarios that the page holds.

        Raises
        ------
        ScenarioError
            When one of them cannot be used.
        PreventUpdate, LimitError, WorkerError
            As :meth:`seen`.
        """
        asker = _asker(visit, "comparison")
        found: list[Seen] = []
        for document in documents:
            key = _key(document)
            seen = self._kept.get(key) or self._call(asker, look_again, document)
            self._keep(key, seen)
            found.append(seen)
        return found

    def layouts(self, visit: Visit | None, document: Mapping[str, Data]) -> tuple[str, Looked]:
        """Return layouts of a scenario, and what they were found for: figures are of that, whatever is changed later.

        Raises
        ------
        ScenarioError
            When the scenario cannot be used.
        PreventUpdate, LimitError, WorkerError
            As :meth:`seen`.
        """
        return self._call(_asker(visit, "layouts"), _layouts, document)

    def progress(self, visit: Visit | None) -> str:
        """Return the progress of the search of a page, in words."""
        return self.workers.progress(_asker(visit, "layouts").name)

    def stop(self, visit: Visit | None) -> None:
        """End the search of a page."""
        self.workers.abandon(_asker(visit, "layouts").name)

    def _call(self, asker: Asker, function: Callable[..., T], *arguments: object) -> T:
        try:
            return self.workers.call(asker, function, *arguments)
        except AbandonedError as error:
            raise PreventUpdate from error

    def _keep(self, key: str, seen: Seen) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = seen
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]


def _key(asked: object) -> str:
    # A browser gives keys back in another order.
    return json.dumps(asked, sort_keys=True)


def _layouts(document: Mapping[str, Data]) -> tuple[str, Looked]:
    from clustersim.apps.ui.layouts import layout_rows

    check_contained(document)
    check_limits(load_scenario(document))
    found = layout_rows(document)
    if not found.rows:
        return "", found
    result = result_of(document)
    plan = result.built.plan
    what = f"Found for {plan.model.name} on {gpus_text(result.metrics)}, batch {plan.training.global_batch_size:,}"
    return f"{what}.", found


def _asker(visit: Visit | None, part: str) -> Asker:
    """Return who asks for a part of a page; of pages without a name, each request is one of its own."""
    connection: socket | None = request.environ.get("werkzeug.socket")
    page = str(visit["id"])[:_LONGEST_NAME] if visit and "id" in visit else token_hex(8)
    return Asker(name=f"{part} of {page}", is_gone=lambda: connection is not None and is_closed(connection))


def is_closed(connection: socket) -> bool:
    """Return whether a browser has closed its end of a connection on which it has sent all that it has to say."""
    try:
        readable, _, _ = select.select([connection], [], [], 0.0)
        return bool(readable) and not connection.recv(1, MSG_PEEK)
    except (OSError, ValueError):
        return True
