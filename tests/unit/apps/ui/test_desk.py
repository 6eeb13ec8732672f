"""Requests that wait for an answer of the page."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("dash", reason="dash is not installed: the page is not tried")

from clustersim.apps.ui.desk import is_closed


def test_a_browser_that_has_gone_is_noticed_and_one_that_waits_or_has_more_to_say_is_not() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        assert not is_closed(ours)
        theirs.sendall(b"GET")
        assert not is_closed(ours)
        assert ours.recv(3) == b"GET"
        theirs.close()
        assert is_closed(ours)


def test_a_connection_that_is_over_here_is_closed() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        assert is_closed(ours)
