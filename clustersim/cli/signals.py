"""Signals that end a command: Ctrl-C, and what a scheduler or a closed terminal sends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

_ENDING: Final = tuple(number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None)


@dataclass(slots=True)
class Heard:
    """Whether a signal has come: a library that is interrupted while it is imported may raise anything."""

    any: bool = False


@contextmanager
def interruptible() -> Generator[Heard]:
    """Let SIGTERM and SIGHUP end what runs inside as Ctrl-C does, so that all of it is cleaned up.

    A signal that is ignored, as SIGHUP is under ``nohup``, or that somebody else handles stays as it is.
    """
    heard = Heard()
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        heard.any = True
        raise KeyboardInterrupt

    defaults = {signal.SIGINT: signal.default_int_handler, **dict.fromkeys(_ENDING, signal.SIG_DFL)}
    ours = {number: default for number, default in defaults.items() if signal.getsignal(number) is default}
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield heard
    finally:
        for number, default in ours.items():
            signal.signal(number, default)


def forget_interruption() -> None:
    """Let the process end with the exit code that it is given.

    CPython remembers a KeyboardInterrupt that left code run by ``exec``, as it makes dataclasses and named tuples, and kills the process by
    SIGINT at the end, also where the exception was caught outside; the next ``exec`` makes it forget that.
    """
    exec("")  # noqa: S102 - nothing is run
