"""Processes that receive signals, whoever started the tests."""

from __future__ import annotations

import signal


def hear_interrupts() -> None:
    """Receive Ctrl-C and hang-ups again: a shell lets processes in the background ignore the one, and nohup the other."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
