"""Processes that hear Ctrl-C, whoever started the tests."""

from __future__ import annotations

import signal


def hear_interrupts() -> None:
    """Be interrupted by Ctrl-C again: whoever is started in the background of a shell is deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
